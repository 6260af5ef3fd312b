//! What engines that run on the host share: binding operands and splitting batches, and walking a program block by block.

use crate::{
    engine::{Operand, OperandFault, RunError},
    program::{Kind, Program, Source, Spread, Step, Value},
};

/// The items of one operand of a step over a block.
#[derive(Clone, Copy)]
pub(crate) struct Arg<'a> {
    pub(crate) kind: &'a Kind,
    words: &'a [u64],
    shared: bool,
}

impl<'a> Arg<'a> {
    /// Item `index` of the block.
    pub(crate) fn item(&self, index: usize) -> &'a [u64] {
        let each = self.kind.words();
        if self.shared { self.words } else { &self.words[index * each..][..each] }
    }

    /// All items of the block, or the one that stands for all.
    pub(crate) fn words(&self) -> &'a [u64] {
        self.words
    }

    /// Whether every item of the block is the same one.
    pub(crate) fn is_shared(&self) -> bool {
        self.shared
    }
}

/// How many items at once suit a program: whole programs run over one block before the next.
#[derive(Clone, Copy)]
pub(crate) struct Blocks {
    /// Batches are cut only at multiples of this.
    pub(crate) unit: usize,
    /// The most units of a block.
    pub(crate) units: usize,
    /// Parts of a batch for each thread: a few, so that a slow core does not hold up the rest, or one
    /// where each part has to make what it could share.
    pub(crate) parts: usize,
    /// Items that are worth the while of another thread: to wake it takes some microseconds.
    pub(crate) least: usize,
}

/// One step's arithmetic over a block. Kinds tell shapes; `out` arrives with stale contents.
pub(crate) trait Kernels: Sync {
    fn blocks(&self, program: &Program) -> Blocks;

    /// Once for a run, before its parts start.
    fn prepare(&self, _program: &Program) {}

    fn step(&self, step: &Step, out_kind: &Kind, out: &mut [u64], args: &[Arg<'_>]);
}

/// The items of an operand that belong to a part of a batch.
struct View<'a> {
    operand: Operand<'a>,
    /// Words of an item; none where one item stands for all.
    each: Option<usize>,
}

impl<'a> View<'a> {
    const NONE: Self = View { operand: Operand::In(&[]), each: None };

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

    /// What a step or an update writes.
    fn words_mut(&mut self) -> &mut [u64] {
        match &mut self.operand {
            Operand::Out(w) | Operand::InOut(w) => w,
            Operand::In(_) | Operand::SecretIn(_) => unreachable!("operands were checked"),
        }
    }
}

fn both<T, U>((a, b): (T, T), of: fn(T) -> U) -> (U, U) {
    (of(a), of(b))
}

/// Operands that fit a program: a batch, or a part of one.
pub(crate) struct Batch<'a> {
    views: Vec<View<'a>>,
    count: usize,
}

impl<'a> Batch<'a> {
    /// Checks access and lengths.
    pub(crate) fn bind(
        program: &Program,
        operands: &'a mut [Operand<'_>],
    ) -> Result<Self, RunError> {
        Plan::new(program).bind(operands)
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

/// Where a value lies.
#[derive(Clone, Copy)]
enum Place {
    Constant,
    /// In an operand of the run.
    Operand(usize),
    /// In this slot of scratch memory.
    Scratch(usize),
}

/// What a step may read or the run must write, resolved once for a run.
struct Plan<'p> {
    program: &'p Program,
    /// For each value, where it lies. Outputs are computed where they belong.
    places: Vec<Place>,
    /// For each operand, the value it binds.
    bound: Vec<usize>,
    /// For each slot of scratch memory, its words for one item.
    slots: Vec<usize>,
}

impl<'p> Plan<'p> {
    fn new(program: &'p Program) -> Self {
        let mut bound: Vec<usize> = program.inputs().map(|(value, _)| value).collect();
        bound.extend(program.outputs());
        let last_uses = last_uses(program);
        let (mut slots, mut free): (Vec<usize>, Vec<usize>) = (vec![], vec![]);
        let mut places = Vec::with_capacity(program.values().len());
        for (index, value) in program.values().iter().enumerate() {
            let operand = bound.iter().position(|&value| value == index);
            places.push(match (&value.source, operand) {
                (Source::Constant { .. }, _) => Place::Constant,
                (_, Some(operand)) => Place::Operand(operand),
                (_, None) => {
                    let slot = free.pop().unwrap_or(slots.len());
                    slots.resize(slots.len().max(slot + 1), 0);
                    slots[slot] = slots[slot].max(value.kind.words());
                    Place::Scratch(slot)
                }
            });
            // What nothing reads any more makes room, after the step that was the last to read it.
            for (before, &last) in last_uses.iter().enumerate().take(index + 1) {
                if let (Place::Scratch(slot), true) = (places[before], last == index) {
                    free.push(slot);
                }
            }
        }
        Self { program, places, bound, slots }
    }

    fn words(&self, value: usize) -> usize {
        self.program.values()[value].kind.words()
    }

    fn fault(&self, operand: usize, why: OperandFault) -> RunError {
        let program = self.program.name().into();
        let operand = self.program.values()[self.bound[operand]].name.clone();
        RunError::Operand { program, operand, why }
    }

    /// See [`Batch::bind`].
    fn bind<'a>(&self, operands: &'a mut [Operand<'_>]) -> Result<Batch<'a>, RunError> {
        if operands.len() != self.bound.len() {
            let (expected, found) = (self.bound.len(), operands.len());
            return Err(RunError::OperandCount {
                program: self.program.name().into(),
                expected,
                found,
            });
        }
        let inputs: Vec<_> = self.program.inputs().collect();
        let spread = |i: usize| inputs.get(i).map(|&(_, spread)| spread);
        let count = count(self.program, operands);
        let mut views = Vec::with_capacity(operands.len());
        for (i, operand) in operands.iter_mut().enumerate() {
            let value = &self.program.values()[self.bound[i]];
            let items = if spread(i) == Some(Spread::Shared) { 1 } else { count };
            let (expected, found) = (items * value.kind.words(), operand.len());
            if found != expected {
                return Err(self.fault(i, OperandFault::Length { expected, found }));
            }
            let operand = match (operand, spread(i)) {
                (Operand::SecretIn(_), Some(Spread::Each | Spread::Shared)) if !value.secret => {
                    return Err(self.fault(i, OperandFault::SecretAsPublic));
                }
                (Operand::In(w), Some(Spread::Each | Spread::Shared)) => Operand::In(w),
                (Operand::SecretIn(w), Some(Spread::Each | Spread::Shared)) => Operand::SecretIn(w),
                (Operand::InOut(w), Some(Spread::Update)) => Operand::InOut(w),
                (Operand::Out(w), None) => Operand::Out(w),
                _ => return Err(self.fault(i, OperandFault::Access)),
            };
            let each = (spread(i) != Some(Spread::Shared)).then(|| value.kind.words());
            views.push(View { operand, each });
        }
        Ok(Batch { views, count })
    }

    fn arg<'s>(
        &'s self,
        value: usize,
        scratch: &'s [Vec<u64>],
        views: &'s [View<'_>],
        block: &Block,
    ) -> Arg<'s> {
        let v = &self.program.values()[value];
        let words = v.kind.words();
        let (data, shared): (&[u64], bool) = match (self.places[value], &v.source) {
            (_, Source::Constant { words }) => (words, true),
            (Place::Scratch(slot), _) => (&scratch[slot], false),
            (Place::Operand(operand), _) => match &views[operand] {
                view @ View { each: None, .. } => (view.words(), true),
                view => (&view.words()[block.first * words..], false),
            },
            (Place::Constant, _) => unreachable!("constants are constants"),
        };
        let items = if shared { 1 } else { block.count };
        Arg { kind: &v.kind, words: &data[..items * words], shared }
    }

    /// Runs the whole program over one block.
    fn run_block(
        &self,
        k: &impl Kernels,
        scratch: &mut [Vec<u64>],
        views: &mut [View<'_>],
        block: &Block,
    ) {
        for (index, value) in self.program.values().iter().enumerate() {
            let Source::Step { step, operands } = &value.source else { continue };
            let words = value.kind.words() * block.count;
            match self.places[index] {
                Place::Scratch(slot) => {
                    // No operand of a step lies where its result goes.
                    let mut room = std::mem::take(&mut scratch[slot]);
                    let out = &mut room[..words];
                    self.run_step(k, (step, operands), &value.kind, out, scratch, views, block);
                    scratch[slot] = room;
                }
                Place::Operand(operand) => {
                    // An output is nobody's operand before it is computed.
                    let mut view = std::mem::replace(&mut views[operand], View::NONE);
                    let out = &mut view.words_mut()[block.first * value.kind.words()..][..words];
                    self.run_step(k, (step, operands), &value.kind, out, scratch, views, block);
                    views[operand] = view;
                }
                Place::Constant => unreachable!("a constant is no step"),
            }
        }
        for &(target, value) in self.program.updates() {
            let words = self.words(value);
            let (Place::Operand(operand), Place::Scratch(slot)) =
                (self.places[target], self.places[value])
            else {
                unreachable!("an accumulator is an operand, what replaces it a result")
            };
            let source = &scratch[slot][..words * block.count];
            let target = &mut views[operand].words_mut()[block.first * words..];
            target[..source.len()].copy_from_slice(source);
        }
    }

    #[expect(clippy::too_many_arguments, reason = "one call of a step is all of these")]
    fn run_step(
        &self,
        k: &impl Kernels,
        (step, operands): (&Step, &[usize]),
        kind: &Kind,
        out: &mut [u64],
        scratch: &[Vec<u64>],
        views: &[View<'_>],
        block: &Block,
    ) {
        let arg = |value: usize| self.arg(value, scratch, views, block);
        match operands[..] {
            [a] => k.step(step, kind, out, &[arg(a)]),
            [a, b] => k.step(step, kind, out, &[arg(a), arg(b)]),
            [a, b, c] => k.step(step, kind, out, &[arg(a), arg(b), arg(c)]),
            _ => unreachable!("the builder makes steps of one to three operands"),
        }
    }

    /// Halves the batch until a part is at most `grain` items, spreading parts over cores; batches
    /// are cut at whole units.
    fn run_range(&self, k: &impl Kernels, batch: Batch<'_>, blocks: Blocks, grain: usize) {
        let count = batch.count;
        if count > grain {
            let (a, b) = batch.split(count.div_ceil(blocks.unit) / 2 * blocks.unit);
            rayon::join(
                || self.run_range(k, a, blocks, grain),
                || self.run_range(k, b, blocks, grain),
            );
            return;
        }
        let mut views = batch.views;
        let room = count.min(blocks.unit * blocks.units);
        let mut scratch: Vec<_> = self.slots.iter().map(|words| vec![0; words * room]).collect();
        for first in (0..count).step_by(room.max(1)) {
            let block = Block { first, count: room.min(count - first) };
            self.run_block(k, &mut scratch, &mut views, &block);
        }
        if self.program.has_secrets() {
            scratch.iter_mut().for_each(|slot| wipe(slot));
        }
    }
}

/// Some items of a part.
struct Block {
    first: usize,
    count: usize,
}

/// For each value, the last one that is computed from it: itself where there is none, and none where
/// it leaves the program.
fn last_uses(program: &Program) -> Vec<usize> {
    let mut last: Vec<usize> = (0..program.values().len()).collect();
    for (index, value) in program.values().iter().enumerate() {
        if let Source::Step { operands, .. } = &value.source {
            operands.iter().for_each(|&operand| last[operand] = index);
        }
    }
    program.updates().iter().for_each(|&(_, value)| last[value] = usize::MAX);
    last
}

/// Overwrites memory that held secrets, at the speed of memory.
fn wipe(words: &mut [u64]) {
    words.fill(0);
    // So that the compiler does not leave it out.
    zeroize::optimization_barrier(words);
}

/// Shows each step of `program` to `see`, over a block of `count` items that are all zero; constants
/// are what they are.
pub(crate) fn walk(
    program: &Program,
    count: usize,
    mut see: impl FnMut(&Step, &Kind, &mut [u64], &[Arg<'_>]),
) {
    let zeros = |kind: &Kind| vec![0; kind.words() * count.max(1)];
    let words: Vec<_> = program.values().iter().map(|value| zeros(&value.kind)).collect();
    for value in program.values() {
        let Source::Step { step, operands } = &value.source else { continue };
        let args: Vec<_> = operands
            .iter()
            .map(|&i| {
                let Value { kind, source, .. } = &program.values()[i];
                match source {
                    Source::Constant { words } => Arg { kind, words, shared: true },
                    Source::Input { spread: Spread::Shared } => {
                        Arg { kind, words: &words[i][..kind.words()], shared: true }
                    }
                    _ => Arg { kind, words: &words[i][..kind.words() * count], shared: false },
                }
            })
            .collect();
        see(step, &value.kind, &mut zeros(&value.kind)[..value.kind.words() * count], &args);
    }
}

/// The items of a batch that these operands are.
pub(crate) fn count(program: &Program, operands: &[Operand<'_>]) -> usize {
    let inputs: Vec<_> = program.inputs().collect();
    let spread = |i: usize| inputs.get(i).map(|&(_, spread)| spread);
    let kind = |i: usize| match inputs.get(i) {
        Some(&(value, _)) => &program.values()[value].kind,
        None => &program.values()[program.outputs()[i - inputs.len()]].kind,
    };
    let last = inputs.len() + program.outputs().len();
    (0..operands.len().min(last))
        .find(|&i| spread(i) != Some(Spread::Shared))
        .map_or(0, |i| operands[i].len() / kind(i).words())
}

/// Checks that operands fit a program; gives the number of items.
#[cfg(feature = "gpu")]
pub(crate) fn check(program: &Program, operands: &mut [Operand<'_>]) -> Result<usize, RunError> {
    Batch::bind(program, operands).map(|batch| batch.count)
}

/// Runs `program` with `kernels`: over all cores, or in order on the calling thread.
pub(crate) fn run(
    kernels: &impl Kernels,
    program: &Program,
    operands: &mut [Operand<'_>],
    parallel: bool,
) -> Result<(), RunError> {
    let plan = Plan::new(program);
    let batch = plan.bind(operands)?;
    kernels.prepare(program);
    let blocks = kernels.blocks(program);
    let threads = if parallel { rayon::current_num_threads() } else { 1 };
    let parts = if threads > 1 { blocks.parts * threads } else { 1 };
    let grain = batch.count.div_ceil(parts).max(blocks.least).next_multiple_of(blocks.unit).max(1);
    plan.run_range(kernels, batch, blocks, grain);
    Ok(())
}
