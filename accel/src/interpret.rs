//! What engines that run on the host share: binding operands, and walking a program item by item.

use zeroize::Zeroize;

use crate::{
    engine::{Operand, OperandFault, RunError},
    program::{Kind, Program, Source, Spread, Step},
};

/// One step's arithmetic over one item. Kinds tell shapes; `out` arrives with stale contents.
pub(crate) trait Kernels: Sync {
    fn step(&self, step: &Step, out_kind: &Kind, out: &mut [u64], args: &[(&Kind, &[u64])]);
}

/// An operand's remaining items.
enum View<'a> {
    Shared(&'a [u64]),
    Each(&'a [u64]),
    Write(&'a mut [u64]),
}

impl<'a> View<'a> {
    /// Splits after `items` items of `words` words; shared data go to both sides.
    fn split(self, items: usize, words: usize) -> (Self, Self) {
        match self {
            View::Shared(data) => (View::Shared(data), View::Shared(data)),
            View::Each(data) => {
                let (a, b) = data.split_at(items * words);
                (View::Each(a), View::Each(b))
            }
            View::Write(data) => {
                let (a, b) = data.split_at_mut(items * words);
                (View::Write(a), View::Write(b))
            }
        }
    }

    fn item(&self, item: usize, words: usize) -> &[u64] {
        match self {
            View::Shared(data) => data,
            View::Each(data) => &data[item * words..][..words],
            View::Write(data) => &data[item * words..][..words],
        }
    }
}

/// What a step may read or the run must write, resolved once for a run.
struct Plan<'p> {
    program: &'p Program,
    /// For each value, where it lies: its operand, or its offset in scratch memory.
    places: Vec<usize>,
    /// For each operand, the value it binds.
    bound: Vec<usize>,
    scratch_words: usize,
}

impl<'p> Plan<'p> {
    fn new(program: &'p Program) -> Self {
        let (mut places, mut bound, mut scratch_words) = (vec![], vec![], 0);
        for (index, value) in program.values().iter().enumerate() {
            places.push(match value.source {
                Source::Input { .. } => {
                    bound.push(index);
                    bound.len() - 1
                }
                Source::Constant { .. } => 0,
                Source::Step { .. } => {
                    scratch_words += value.kind.words();
                    scratch_words - value.kind.words()
                }
            });
        }
        bound.extend(program.outputs());
        Self { program, places, bound, scratch_words }
    }

    fn words(&self, value: usize) -> usize {
        self.program.values()[value].kind.words()
    }

    fn fault(&self, operand: usize, why: OperandFault) -> RunError {
        let program = self.program.name().into();
        let operand = self.program.values()[self.bound[operand]].name.clone();
        RunError::Operand { program, operand, why }
    }

    /// Checks access and lengths; gives a view of each operand and the number of items.
    fn bind<'a>(
        &self,
        operands: &'a mut [Operand<'_>],
    ) -> Result<(Vec<View<'a>>, usize), RunError> {
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
        let count = (0..operands.len())
            .find(|&i| spread(i) != Some(Spread::Shared))
            .map_or(0, |i| operands[i].len() / self.words(self.bound[i]));
        let mut views = Vec::with_capacity(operands.len());
        for (i, operand) in operands.iter_mut().enumerate() {
            let value = &self.program.values()[self.bound[i]];
            let items = if spread(i) == Some(Spread::Shared) { 1 } else { count };
            let (expected, found) = (items * value.kind.words(), operand.len());
            if found != expected {
                return Err(self.fault(i, OperandFault::Length { expected, found }));
            }
            views.push(match (operand, spread(i)) {
                (Operand::SecretIn(_), Some(Spread::Each | Spread::Shared)) if !value.secret => {
                    return Err(self.fault(i, OperandFault::SecretAsPublic));
                }
                (Operand::In(w) | Operand::SecretIn(w), Some(Spread::Each)) => View::Each(w),
                (Operand::In(w) | Operand::SecretIn(w), Some(Spread::Shared)) => View::Shared(w),
                (Operand::InOut(w), Some(Spread::Update)) | (Operand::Out(w), None) => {
                    View::Write(w)
                }
                _ => return Err(self.fault(i, OperandFault::Access)),
            });
        }
        Ok((views, count))
    }

    fn arg<'s>(
        &'s self,
        value: usize,
        scratch: &'s [u64],
        views: &'s [View<'_>],
        item: usize,
    ) -> (&'s Kind, &'s [u64]) {
        let v = &self.program.values()[value];
        let words = v.kind.words();
        let data = match &v.source {
            Source::Input { .. } => views[self.places[value]].item(item, words),
            Source::Constant { words } => words,
            Source::Step { .. } => &scratch[self.places[value]..][..words],
        };
        (&v.kind, data)
    }

    /// Runs the whole program over one item.
    fn run_item(&self, k: &impl Kernels, scratch: &mut [u64], views: &mut [View<'_>], item: usize) {
        for (index, value) in self.program.values().iter().enumerate() {
            let Source::Step { step, operands } = &value.source else { continue };
            let (before, rest) = scratch.split_at_mut(self.places[index]);
            let out = &mut rest[..value.kind.words()];
            match operands[..] {
                [a] => k.step(step, &value.kind, out, &[self.arg(a, before, views, item)]),
                [a, b] => {
                    let args = [self.arg(a, before, views, item), self.arg(b, before, views, item)];
                    k.step(step, &value.kind, out, &args);
                }
                _ => unreachable!("the builder makes steps of one or two operands"),
            }
        }
        let updates = self.program.updates().iter().map(|&(to, from)| (self.places[to], from));
        let first = self.bound.len() - self.program.outputs().len();
        let outputs = self.program.outputs().iter().enumerate().map(|(i, &v)| (first + i, v));
        for (operand, value) in updates.chain(outputs) {
            let words = self.words(value);
            let source = &scratch[self.places[value]..][..words];
            if let View::Write(data) = &mut views[operand] {
                data[item * words..][..words].copy_from_slice(source);
            }
        }
    }

    /// Halves the batch until a part is at most `grain` items, spreading parts over cores.
    fn run_range(&self, k: &impl Kernels, mut views: Vec<View<'_>>, count: usize, grain: usize) {
        if count > grain {
            let half = count / 2;
            let (a, b): (Vec<_>, Vec<_>) = views
                .into_iter()
                .zip(&self.bound)
                .map(|(view, &value)| view.split(half, self.words(value)))
                .unzip();
            rayon::join(
                || self.run_range(k, a, half, grain),
                || self.run_range(k, b, count - half, grain),
            );
            return;
        }
        let mut scratch = vec![0; self.scratch_words];
        (0..count).for_each(|item| self.run_item(k, &mut scratch, &mut views, item));
        if self.program.has_secrets() {
            scratch.zeroize();
        }
    }
}

/// Runs `program` with `kernels`: over all cores, or in order on the calling thread.
pub(crate) fn run(
    kernels: &impl Kernels,
    program: &Program,
    operands: &mut [Operand<'_>],
    parallel: bool,
) -> Result<(), RunError> {
    let plan = Plan::new(program);
    let (views, count) = plan.bind(operands)?;
    let grain = if parallel { count.div_ceil(4 * rayon::current_num_threads()) } else { count };
    plan.run_range(kernels, views, count, grain.max(1));
    Ok(())
}
