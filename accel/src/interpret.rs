//! The parts that host engines share: binding operands, splitting batches, and walking a program
//! block by block.

use std::{cell::Cell, ops::Range};

use crate::{
    engine::{Operand, OperandMismatch, RunError},
    program::{
        Kind, LaneStep, LimbStep, MAX_TERMS, PrimeOperand, PrimeStep, Program, ResidueStep,
        RingStep, Source, Spread, Step, Task, Value, ValuePlace, ValuePlaces,
    },
    words::Words,
};

/// The items of one operand of a step over a block.
#[derive(Clone, Copy)]
pub(crate) struct Arg<'a> {
    pub(crate) kind: &'a Kind,
    words: &'a [u64],
    /// Words from one item to the next.
    stride: usize,
    shared: bool,
}

impl<'a> Arg<'a> {
    /// Returns item `index` of the block.
    pub(crate) fn item(&self, index: usize) -> &'a [u64] {
        let first = if self.shared { 0 } else { index * self.stride };
        &self.words[first..][..self.kind.words()]
    }

    /// Returns all items of the block, or the one that stands for all, of a value that lies within
    /// no other: no polynomial.
    pub(crate) fn words(&self) -> &'a [u64] {
        self.words
    }

    /// Returns whether every item of the block is the same one.
    pub(crate) fn is_shared(&self) -> bool {
        self.shared
    }
}

/// The items that suit a program at once: whole programs run over one block before the next.
#[derive(Clone, Copy)]
pub(crate) struct Blocks {
    /// Batches are cut only at multiples of this.
    pub(crate) unit: usize,
    /// The most units of a block.
    pub(crate) units: usize,
    /// Parts of a batch for each thread: a few, so that a slow core does not hold up the rest, or
    /// one where each part has to make what it could share.
    pub(crate) parts: usize,
    /// Items that are worth the while of another thread: to wake it takes some microseconds.
    pub(crate) least: usize,
}

thread_local! {
    /// The memory of the slots of a thread's former runs: wiped where they had secrets.
    static SCRATCH: Cell<Vec<Words>> = const { Cell::new(Vec::new()) };
}

/// Returns memory for slots of `slots` words an item, with stale contents.
fn take_scratch(slots: &[usize], items: usize) -> Vec<Words> {
    if slots.is_empty() {
        return vec![];
    }
    let mut memory = SCRATCH.take();
    memory.resize_with(memory.len().max(slots.len()), Words::default);
    for (memory, words) in memory.iter_mut().zip(slots) {
        if memory.len() < words * items {
            *memory = Words::zeros(words * items);
        }
    }
    memory
}

/// Keeps memory for the next run of this thread.
fn keep_scratch(mut memory: Vec<Words>) {
    if memory.is_empty() {
        return;
    }
    memory.retain(|slot| slot.len() <= KEPT_WORDS);
    SCRATCH.set(memory);
}

/// The most words of a slot that are kept for a later run: larger ones are of batches whose work
/// is longer than it takes to get memory.
const KEPT_WORDS: usize = 1 << 20;

/// Residues of a tile, over which pointwise steps all run before the next: the operands of a sum of products fit the
/// second level of cache.
const TILE: usize = 1024;

/// The most operands of a step.
const MAX_OPERANDS: usize = 2 * MAX_TERMS;

/// One step's arithmetic over a block. Kinds give shapes; `out` arrives with stale contents.
pub(crate) trait Kernels: Sync {
    fn blocks(&self, program: &Program) -> Blocks;

    /// Prepares a run, once, before its parts start.
    fn prepare(&self, _program: &Program) {}

    /// Runs a step over big residues.
    fn residues(&self, step: &ResidueStep, kind: &Kind, out: &mut [u64], args: &[Arg<'_>]);

    /// Runs a step over whole polynomials.
    fn polynomials(&self, step: &RingStep, kind: &Kind, out: &mut [u64], args: &[Arg<'_>]);

    /// Runs a step over lanes. Where it [accumulates](Step::accumulates), `out` arrives with its first operand, which
    /// is none of `args`.
    fn lanes(&self, step: &LaneStep, kind: &Kind, out: &mut [u64], args: &[Arg<'_>]);

    /// Runs a step over the residues of prime number `limb` of one item: all that there are, or some if it is
    /// pointwise.
    fn limb(&self, step: &LimbStep, limb: usize, out: &mut [u64], args: &[&[u64]]);
}

/// The items of an operand that belong to a part of a batch.
struct OperandView<'a> {
    operand: Operand<'a>,
    /// Words of an item; none where one item stands for all.
    each: Option<usize>,
}

impl<'a> OperandView<'a> {
    const NONE: Self = OperandView { operand: Operand::In(&[]), each: None };

    /// Splits after `items` items; what is shared goes to both sides.
    fn split(self, items: usize) -> (Self, Self) {
        let Self { operand, each } = self;
        let at = each.map_or(0, |each| items * each);
        let read = |w: &'a [u64]| if each.is_some() { w.split_at(at) } else { (w, w) };
        let (a, b) = match operand {
            Operand::In(w) => both(read(w), Operand::In),
            Operand::SecretIn(w) => both(read(w), Operand::SecretIn),
            Operand::Out(w) => both(w.split_at_mut(at), Operand::Out),
            Operand::InOut(w) => both(w.split_at_mut(at), Operand::InOut),
        };
        (Self { operand: a, each }, Self { operand: b, each })
    }

    fn words(&self) -> &[u64] {
        match &self.operand {
            Operand::In(w) | Operand::SecretIn(w) => w,
            Operand::Out(w) | Operand::InOut(w) => w,
        }
    }

    /// Returns the words that a step or an update may write: none of an input.
    fn words_mut(&mut self) -> &mut [u64] {
        match &mut self.operand {
            Operand::Out(w) | Operand::InOut(w) => w,
            Operand::In(_) | Operand::SecretIn(_) => &mut [],
        }
    }
}

fn both<T, U>((a, b): (T, T), of: fn(T) -> U) -> (U, U) {
    (of(a), of(b))
}

/// Operands that fit a program: a batch, or a part of one.
pub(crate) struct BoundBatch<'a> {
    views: Vec<OperandView<'a>>,
    count: usize,
}

impl<'a> BoundBatch<'a> {
    /// Checks access and lengths.
    pub(crate) fn bind(
        program: &Program,
        operands: &'a mut [Operand<'_>],
    ) -> Result<Self, RunError> {
        let mut views: Vec<_> = operands.iter().map(|_| OperandView::NONE).collect();
        let count = Plan::new(program).bind(operands, &mut views)?;
        Ok(Self { views, count })
    }

    /// Its items.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Splits after `items` items.
    pub(crate) fn split(self, items: usize) -> (Self, Self) {
        let (a, b) = self.views.into_iter().map(|view| view.split(items)).unzip();
        (Self { views: a, count: items }, Self { views: b, count: self.count - items })
    }

    pub(crate) fn into_operands(self) -> Vec<Operand<'a>> {
        self.views.into_iter().map(|view| view.operand).collect()
    }
}

/// A program and the places of its values.
struct Plan<'p> {
    program: &'p Program,
    places: &'p ValuePlaces,
}

impl<'p> Plan<'p> {
    fn new(program: &'p Program) -> Self {
        Self { program, places: program.places() }
    }

    fn words(&self, value: usize) -> usize {
        self.program.values()[value].kind.words()
    }

    fn fault(&self, operand: usize, why: OperandMismatch) -> RunError {
        let program = self.program.name().into();
        let operand = self.program.values()[self.places.bound[operand]].name.clone();
        RunError::Operand { program, operand, why }
    }

    /// Checks access and lengths of operands, and puts views of them into `views`; returns the
    /// items.
    fn bind<'a>(
        &self,
        operands: &'a mut [Operand<'_>],
        views: &mut [OperandView<'a>],
    ) -> Result<usize, RunError> {
        let (expected, found) = (self.places.bound.len(), operands.len());
        if expected != found {
            let program = self.program.name().into();
            return Err(RunError::OperandCount { program, expected, found });
        }
        let count = count(self.program, operands);
        for ((i, operand), view) in operands.iter_mut().enumerate().zip(views) {
            let (value, spread) = (self.places.bound[i], self.program.spread(i));
            let value = &self.program.values()[value];
            let items = if spread == Some(Spread::Shared) { 1 } else { count };
            let (expected, found) = (items * value.kind.words(), operand.len());
            if found != expected {
                return Err(self.fault(i, OperandMismatch::Length { expected, found }));
            }
            let operand = match (operand, spread) {
                (Operand::SecretIn(_), Some(Spread::Each | Spread::Shared)) if !value.secret => {
                    return Err(self.fault(i, OperandMismatch::SecretAsPublic));
                }
                (Operand::In(w), Some(Spread::Each | Spread::Shared)) => Operand::In(w),
                (Operand::SecretIn(w), Some(Spread::Each | Spread::Shared)) => Operand::SecretIn(w),
                (Operand::InOut(w), Some(Spread::Update)) => Operand::InOut(w),
                (Operand::Out(w), None) => Operand::Out(w),
                _ => return Err(self.fault(i, OperandMismatch::Access)),
            };
            let each = (spread != Some(Spread::Shared)).then(|| value.kind.words());
            *view = OperandView { operand, each };
        }
        Ok(count)
    }

    fn arg<'s>(
        &'s self,
        value: usize,
        scratch: &'s [Words],
        views: &'s [OperandView<'_>],
        block: &Block,
    ) -> Arg<'s> {
        let kind = &self.program.values()[value].kind;
        let (value, first) = match self.places.of_values[value] {
            ValuePlace::Within { value, first } => (value, first),
            _ => (value, 0),
        };
        let v = &self.program.values()[value];
        let words = v.kind.words();
        let (data, shared): (&[u64], bool) = match (self.places.of_values[value], &v.source) {
            (_, Source::Constant(constant)) => (constant.words(), true),
            (ValuePlace::Scratch(slot), _) => (&scratch[slot], false),
            (ValuePlace::Operand(operand), _) => match &views[operand] {
                view @ OperandView { each: None, .. } => (view.words(), true),
                view => (&view.words()[block.first * words..], false),
            },
            (
                ValuePlace::Constant
                | ValuePlace::Within { .. }
                | ValuePlace::OfPrime(_)
                | ValuePlace::Apart,
                _,
            ) => {
                unreachable!(
                    "what is read as a whole lies somewhere as a whole, and is within one value at most"
                )
            }
        };
        let items = if shared { 1 } else { block.count };
        Arg { kind, words: &data[first..items * words], stride: words, shared }
    }

    /// Runs the whole program over one block.
    fn run_block(
        &self,
        k: &impl Kernels,
        scratch: &mut [Words],
        views: &mut [OperandView<'_>],
        block: &Block,
    ) {
        for task in &self.places.tasks {
            match task {
                Task::Whole(value) => {
                    let Value { kind, source, .. } = &self.program.values()[*value];
                    let (operands, accumulates) = match source {
                        Source::Step { step, operands } => (&operands[..], step.accumulates()),
                        _ => (&[][..], false),
                    };
                    let range = 0..kind.words() * block.count;
                    self.write(*value, (block, range), scratch, views, |out, scratch, views| {
                        let arg = |value: usize| self.arg(value, scratch, views, block);
                        let operands = if accumulates {
                            self.put_first(operands[0], *value, out, arg);
                            &operands[1..]
                        } else {
                            operands
                        };
                        let mut run = |args: &[Arg<'_>]| match source {
                            Source::Step { step: Step::Residue(step), .. } => {
                                k.residues(step, kind, out, args)
                            }
                            Source::Step { step: Step::Ring(step), .. } => {
                                k.polynomials(step, kind, out, args)
                            }
                            Source::Step { step: Step::Lane(step), .. } => {
                                k.lanes(step, kind, out, args)
                            }
                            _ => unreachable!("it is a step, and none that runs prime by prime"),
                        };
                        // Most steps have one operand or two; a short run would feel room for more.
                        match operands {
                            &[a] => run(&[arg(a)]),
                            &[a, b] => run(&[arg(a), arg(b)]),
                            all => run(&all.iter().map(|&value| arg(value)).collect::<Vec<_>>()),
                        }
                    });
                }
                Task::ByPrime(steps) => {
                    for item in 0..block.count {
                        self.run_by_prime(k, steps, (block, item), scratch, views);
                    }
                }
            }
        }
        for &(target, value) in self.program.updates() {
            let words = self.words(value);
            let (operand, slot) =
                match (self.places.of_values[target], self.places.of_values[value]) {
                    (ValuePlace::Operand(operand), ValuePlace::Scratch(slot)) => (operand, slot),
                    (a, b) => {
                        assert!(a == b, "what replaces an accumulator is computed there, or apart");
                        continue;
                    }
                };
            let source = &scratch[slot][..words * block.count];
            let target = &mut views[operand].words_mut()[block.first * words..];
            target[..source.len()].copy_from_slice(source);
        }
    }

    /// Puts the first operand of a step that accumulates where its result goes, unless it lies there.
    fn put_first<'s>(
        &self,
        operand: usize,
        value: usize,
        out: &mut [u64],
        arg: impl Fn(usize) -> Arg<'s>,
    ) {
        if self.places.of_values[operand] == self.places.of_values[value] {
            return;
        }
        let first = arg(operand);
        let each = first.kind.words();
        out.chunks_exact_mut(each)
            .enumerate()
            .for_each(|(index, out)| out.copy_from_slice(first.item(index)));
    }

    /// Runs steps over the residues that item `item` of the block has, those that are pointwise tile by tile.
    fn run_by_prime(
        &self,
        k: &impl Kernels,
        steps: &[PrimeStep],
        item: (&Block, usize),
        scratch: &mut [Words],
        views: &mut [OperandView<'_>],
    ) {
        let degree = |step: &PrimeStep| step.step.ring.degree();
        let go_together = |a: &PrimeStep, b: &PrimeStep| {
            a.step.is_pointwise() && b.step.is_pointwise() && degree(a) == degree(b)
        };
        for steps in steps.chunk_by(go_together) {
            let n = degree(&steps[0]);
            let each = if steps.len() > 1 { TILE.min(n) } else { n };
            for first in (0..n).step_by(each) {
                for step in steps {
                    self.run_of_prime(k, step, first..first + each, item, scratch, views);
                }
            }
        }
    }

    /// Runs a step over some of the residues that item `item` of the block has of one prime.
    fn run_of_prime(
        &self,
        k: &impl Kernels,
        PrimeStep { value, limb, step, operands }: &PrimeStep,
        tile: Range<usize>,
        (block, item): (&Block, usize),
        scratch: &mut [Words],
        views: &mut [OperandView<'_>],
    ) {
        let n = step.ring.degree();
        let first = match self.places.of_values[*value] {
            ValuePlace::OfPrime(_) => 0,
            _ => item * step.ring.len_words() + limb * n,
        };
        let range = first + tile.start..first + tile.end;
        self.write(*value, (block, range), scratch, views, |out, scratch, views| {
            let part = |part: PrimeOperand| match part {
                PrimeOperand::Whole(value) => self.arg(value, scratch, views, block).item(item),
                PrimeOperand::Limb { value, limb } => match self.places.of_values[value] {
                    ValuePlace::OfPrime(slot) => &scratch[slot][tile.clone()],
                    _ => {
                        &self.arg(value, scratch, views, block).item(item)[limb * n..][tile.clone()]
                    }
                },
            };
            let mut args = [&[][..]; MAX_OPERANDS];
            let args = &mut args[..operands.len()];
            args.iter_mut().zip(operands).for_each(|(slot, &operand)| *slot = part(operand));
            k.limb(step, *limb, out, args);
        });
    }

    /// Has a step write some words of what the items of a block have as its result.
    fn write(
        &self,
        value: usize,
        (block, range): (&Block, Range<usize>),
        scratch: &mut [Words],
        views: &mut [OperandView<'_>],
        run: impl FnOnce(&mut [u64], &[Words], &[OperandView<'_>]),
    ) {
        match self.places.of_values[value] {
            ValuePlace::Scratch(slot) | ValuePlace::OfPrime(slot) => {
                // No operand of a step lies where its result goes.
                let mut room = std::mem::take(&mut scratch[slot]);
                run(&mut room[range], scratch, views);
                scratch[slot] = room;
            }
            ValuePlace::Operand(operand) => {
                // An output is nobody's operand before it is computed.
                let mut view = std::mem::replace(&mut views[operand], OperandView::NONE);
                let items = &mut view.words_mut()[block.first * self.words(value)..];
                run(&mut items[range], scratch, views);
                views[operand] = view;
            }
            ValuePlace::Constant | ValuePlace::Within { .. } | ValuePlace::Apart => {
                unreachable!("what is computed goes to a place of its own")
            }
        }
    }

    /// Halves the batch until a part is at most `grain` items, spreading parts over cores; batches
    /// are cut at whole units.
    fn run_range(
        &self,
        k: &impl Kernels,
        (views, count): (&mut [OperandView<'_>], usize),
        blocks: Blocks,
        grain: usize,
    ) {
        if count > grain {
            let views =
                views.iter_mut().map(|view| std::mem::replace(view, OperandView::NONE)).collect();
            let (mut a, mut b) =
                BoundBatch { views, count }.split(count.div_ceil(blocks.unit) / 2 * blocks.unit);
            rayon::join(
                || self.run_range(k, (&mut a.views, a.count), blocks, grain),
                || self.run_range(k, (&mut b.views, b.count), blocks, grain),
            );
            return;
        }
        let room = count.min(blocks.unit * blocks.units);
        let mut scratch = take_scratch(&self.places.slots, room);
        for first in (0..count).step_by(room.max(1)) {
            let block = Block { first, count: room.min(count - first) };
            self.run_block(k, &mut scratch, views, &block);
        }
        let used = scratch.iter_mut().zip(&self.places.slots).zip(&self.places.is_secret);
        for ((slot, words), _) in used.filter(|(_, is_secret)| **is_secret) {
            wipe(&mut slot[..words * room]);
        }
        keep_scratch(scratch);
    }
}

/// Some items of a part.
struct Block {
    first: usize,
    count: usize,
}

/// Overwrites memory that held secrets, at the speed of memory.
fn wipe(words: &mut [u64]) {
    words.fill(0);
    // So that the compiler does not leave it out.
    zeroize::optimization_barrier(words);
}

/// Shows each step over residues of `program` to `see`, over a block of `count` items that are all zero,
/// exponents that have all bits, and constants that are what they are.
pub(crate) fn walk(
    program: &Program,
    count: usize,
    mut see: impl FnMut(&ResidueStep, &Kind, &mut [u64], &[Arg<'_>]),
) {
    let zeros = |kind: &Kind| vec![0; kind.words() * count.max(1)];
    // Exponents of all bits: public ones take time by their length.
    let filled = |kind: &Kind| match kind {
        Kind::Exponents { .. } => vec![u64::MAX; kind.words() * count.max(1)],
        _ => zeros(kind),
    };
    let words: Vec<_> = program.values().iter().map(|value| filled(&value.kind)).collect();
    for value in program.values() {
        let Source::Step { step: Step::Residue(step), operands } = &value.source else { continue };
        let args: Vec<_> = operands
            .iter()
            .map(|&i| {
                let Value { kind, source, .. } = &program.values()[i];
                match source {
                    Source::Constant(constant) => {
                        Arg { kind, words: constant.words(), stride: 0, shared: true }
                    }
                    Source::Input { spread: Spread::Shared } => {
                        Arg { kind, words: &words[i][..kind.words()], stride: 0, shared: true }
                    }
                    _ => {
                        let stride = kind.words();
                        Arg { kind, words: &words[i][..stride * count], stride, shared: false }
                    }
                }
            })
            .collect();
        see(step, &value.kind, &mut zeros(&value.kind)[..value.kind.words() * count], &args);
    }
}

/// Returns the items of a batch that these operands are.
pub(crate) fn count(program: &Program, operands: &[Operand<'_>]) -> usize {
    let bound = &program.places().bound;
    let each = (0..operands.len().min(bound.len()))
        .find(|&operand| program.spread(operand) != Some(Spread::Shared));
    each.map_or(0, |i| operands[i].len() / program.values()[bound[i]].kind.words())
}

/// Checks that operands fit a program, for engines that bind them themselves; returns the number of
/// items.
///
/// # Errors
/// [`RunError::OperandCount`], or [`RunError::Operand`] with the first operand that does not fit.
pub fn check_operands(program: &Program, operands: &mut [Operand<'_>]) -> Result<usize, RunError> {
    BoundBatch::bind(program, operands).map(|batch| batch.count)
}

/// The most operands that are bound without memory of their own. Those of sums have two: room for more would cost so
/// short a run a tenth of its time.
const FEW: usize = 4;

/// Runs `program` with `kernels`: over all cores, or in order on the calling thread.
pub(crate) fn run(
    kernels: &impl Kernels,
    program: &Program,
    operands: &mut [Operand<'_>],
    parallel: bool,
) -> Result<(), RunError> {
    let plan = Plan::new(program);
    let (mut few, mut many) = ([const { OperandView::NONE }; FEW], vec![]);
    let views = if operands.len() <= FEW {
        &mut few[..operands.len()]
    } else {
        many.resize_with(operands.len(), || OperandView::NONE);
        &mut many[..]
    };
    let count = plan.bind(operands, views)?;
    kernels.prepare(program);
    let blocks = kernels.blocks(program);
    // A short run is one part, whatever cores there are.
    let threads = if parallel && count > blocks.least { rayon::current_num_threads() } else { 1 };
    let parts = if threads > 1 { blocks.parts * threads } else { 1 };
    let grain = count.div_ceil(parts).max(blocks.least).next_multiple_of(blocks.unit).max(1);
    plan.run_range(kernels, (views, count), blocks, grain);
    Ok(())
}
