//! The order in which a host runs the steps of a program, and the places of its values.
//!
//! Most steps over polynomials treat each prime apart. Steps of this kind that follow each other run one prime at a
//! time, all of them over its residues before the next prime: what one leaves is in cache when the next wants it, and
//! what no other step reads takes the memory of one prime. Those that also treat each place apart go tile by tile.
//! Residues that [`LimbOp::Limbs`](super::LimbOp::Limbs) and [`LimbOp::JoinLimbs`](super::LimbOp::JoinLimbs) name are
//! read where they were computed.

use super::{Kind, LimbStep, Program, Source, Step, Value};

/// The place of a value.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ValuePlace {
    /// In the program.
    Constant,
    /// In an operand of the run.
    Operand(usize),
    /// In this slot of scratch memory.
    Scratch(usize),
    /// In this slot of scratch memory, the residues of one prime at a time.
    OfPrime(usize),
    /// In another value, from one of its words on: residues that a step takes out, and nothing has
    /// to compute.
    Within {
        /// That value, which is not within another.
        value: usize,
        /// The first word.
        first: usize,
    },
    /// In other values, prime by prime: nobody reads it as a whole.
    Apart,
}

/// What runs before anything that follows it.
pub(crate) enum Task {
    /// The step that makes this value.
    Whole(usize),
    /// Steps that treat each prime apart, a prime after the other.
    ByPrime(Vec<PrimeStep>),
}

/// A step over the residues of one prime.
pub(crate) struct PrimeStep {
    /// The value that it makes a part of.
    pub(crate) value: usize,
    /// The prime, as the ring of the value numbers it.
    pub(crate) limb: usize,
    /// What it does.
    pub(crate) step: LimbStep,
    /// What it reads.
    pub(crate) operands: Vec<PrimeOperand>,
}

/// What a step over the residues of one prime reads.
#[derive(Clone, Copy)]
pub(crate) enum PrimeOperand {
    /// All words of a value that is no polynomial.
    Whole(usize),
    /// Residues of a value.
    Limb {
        /// The value, in which they are computed.
        value: usize,
        /// The prime, as the ring of the value numbers it.
        limb: usize,
    },
}

impl PrimeOperand {
    fn value(self) -> usize {
        match self {
            Self::Whole(value) | Self::Limb { value, .. } => value,
        }
    }
}

/// The order of steps and the places of all values, resolved once for a program: runs over few items are short.
#[derive(Default)]
pub(crate) struct ValuePlaces {
    /// What runs, in this order.
    pub(crate) tasks: Vec<Task>,
    /// For each value its place. Outputs are computed where they belong.
    pub(crate) of_values: Vec<ValuePlace>,
    /// For each operand, the value it binds.
    pub(crate) bound: Vec<usize>,
    /// For each slot of scratch memory, its words for one item.
    pub(crate) slots: Vec<usize>,
    /// For each slot, whether something secret comes to lie there.
    pub(crate) is_secret: Vec<bool>,
}

impl ValuePlaces {
    /// Finds an order for the steps of a finished program and a place for each value.
    pub(super) fn new(program: &Program) -> Self {
        let values = program.values();
        let mut bound: Vec<usize> = program.inputs().map(|(value, _)| value).collect();
        bound.extend(program.outputs());
        let place = |index: usize| match values[index].source {
            Source::Constant(_) => Some(ValuePlace::Constant),
            _ => bound.iter().position(|&value| value == index).map(ValuePlace::Operand),
        };
        let views = views(program);
        let mut of_values: Vec<_> =
            (0..values.len()).map(|value| place(value).or(views[value])).collect();
        for (target, value) in in_place(program) {
            of_values[value] = of_values[target];
        }
        let tasks = tasks(program, &views);
        let lives = Lives::new(program, &tasks, &of_values);
        let mut slots = Slots::default();
        for (at, task) in tasks.iter().enumerate() {
            match task {
                Task::Whole(value) => {
                    of_values[*value]
                        .get_or_insert_with(|| slots.take(values[*value].kind.words()));
                }
                Task::ByPrime(steps) => {
                    place_by_prime(values, steps, (at, &lives), &mut of_values, &mut slots)
                }
            }
            // A value that no later task reads makes room, after the task that was the last to read it.
            for (value, place) in of_values.iter().enumerate() {
                if let (Some(ValuePlace::Scratch(slot)), true) =
                    (place, lives.last[value] == Some(at))
                {
                    slots.free.push(*slot);
                }
            }
        }
        let mut is_secret = vec![false; slots.words.len()];
        for (value, place) in values.iter().zip(&of_values) {
            if let &Some(ValuePlace::Scratch(slot) | ValuePlace::OfPrime(slot)) = place {
                // A modulus may be secret even where no value is, and what is left of a public number tells it.
                let is_residue = matches!(value.kind, Kind::Residues { .. } | Kind::Pairs { .. });
                is_secret[slot] |= value.secret || is_residue && program.has_secrets();
            }
        }
        // Whatever has none is what nobody computes.
        let of_values =
            of_values.into_iter().map(|place| place.unwrap_or(ValuePlace::Apart)).collect();
        Self { tasks, of_values, bound, slots: slots.words, is_secret }
    }
}

/// Returns the accumulators whose updates are computed where they lie, and these: steps that accumulate there, where
/// nothing else reads what was there before.
fn in_place(program: &Program) -> impl Iterator<Item = (usize, usize)> {
    let is_in_place = |&&(target, value): &&(usize, usize)| {
        let adds = matches!(&program.values()[value].source, Source::Step { step, operands }
            if step.accumulates() && operands[0] == target);
        let readers = program.values().iter().flat_map(operands).filter(|&&read| read == target);
        adds && readers.count() == 1
    };
    program.updates().iter().filter(is_in_place).copied()
}

/// Slots of scratch memory.
#[derive(Default)]
struct Slots {
    /// The words of each.
    words: Vec<usize>,
    free: Vec<usize>,
}

impl Slots {
    fn take_slot(&mut self, words: usize) -> usize {
        let slot = self.free.pop().unwrap_or(self.words.len());
        self.words.resize(self.words.len().max(slot + 1), 0);
        self.words[slot] = self.words[slot].max(words);
        slot
    }

    fn take(&mut self, words: usize) -> ValuePlace {
        ValuePlace::Scratch(self.take_slot(words))
    }
}

/// Finds a place for each value that steps over one prime at a time make.
///
/// The next prime's first step follows this prime's last, so a slot of a whole value has no other before the task is
/// over. Where a value lives for one prime only, the slot is free for another after the last step of this prime
/// that reads it; but only for one that lives as shortly.
fn place_by_prime(
    values: &[Value],
    steps: &[PrimeStep],
    (at, lives): (usize, &Lives),
    of_values: &mut [Option<ValuePlace>],
    slots: &mut Slots,
) {
    let (mut free, mut all) = (vec![], vec![]);
    let order = values_of(steps);
    let readers = last_readers(steps, values.len());
    for (index, &value) in order.iter().enumerate() {
        if of_values[value].is_none() {
            let is_short = lives.last[value] == Some(at) && !lives.is_read_whole[value];
            of_values[value] = Some(if is_short {
                let slot =
                    free.pop().unwrap_or_else(|| slots.take_slot(degree(&values[value].kind)));
                all.push(slot);
                ValuePlace::OfPrime(slot)
            } else {
                slots.take(values[value].kind.words())
            });
        }
        for &before in &order[..=index] {
            if let (Some(ValuePlace::OfPrime(slot)), true) =
                (of_values[before], readers[before] == value)
            {
                free.push(slot);
            }
        }
    }
    all.sort_unstable();
    all.dedup();
    slots.free.extend(all);
}

/// Returns the values that steps make, in the order of the steps of one prime.
fn values_of(steps: &[PrimeStep]) -> Vec<usize> {
    let mut values: Vec<_> = steps.iter().map(|step| step.value).collect();
    values.sort_unstable();
    values.dedup();
    values
}

/// Returns, for each of the values that steps make, the last that they make of it: itself if there is none.
fn last_readers(steps: &[PrimeStep], values: usize) -> Vec<usize> {
    let mut last: Vec<_> = (0..values).collect();
    for step in steps {
        for part in &step.operands {
            last[part.value()] = last[part.value()].max(step.value);
        }
    }
    last
}

/// For each value, who reads it.
struct Lives {
    /// The last task that makes it or reads it; none where it leaves the program.
    last: Vec<Option<usize>>,
    /// Whether a step reads all of it at once.
    is_read_whole: Vec<bool>,
}

impl Lives {
    fn new(program: &Program, tasks: &[Task], places: &[Option<ValuePlace>]) -> Self {
        let values = program.values();
        let mut last = vec![None; values.len()];
        let mut is_read_whole = vec![false; values.len()];
        for (at, task) in tasks.iter().enumerate() {
            match task {
                Task::Whole(value) => {
                    last[*value] = Some(at);
                    for &operand in operands(&values[*value]) {
                        let read = match places[operand] {
                            Some(ValuePlace::Within { value, .. }) => value,
                            _ => operand,
                        };
                        (last[read], is_read_whole[read]) = (Some(at), true);
                    }
                }
                Task::ByPrime(steps) => {
                    for step in steps {
                        last[step.value] = Some(at);
                        step.operands.iter().for_each(|part| last[part.value()] = Some(at));
                    }
                }
            }
        }
        program.updates().iter().for_each(|&(_, value)| last[value] = None);
        Self { last, is_read_whole }
    }
}

/// Puts the steps in order: what needs whole values as soon as it can be done, the rest as late, so that much of it
/// runs by primes at once.
fn tasks(program: &Program, views: &[Option<ValuePlace>]) -> Vec<Task> {
    let values = program.values();
    let mut is_done: Vec<_> =
        values.iter().map(|value| !matches!(value.source, Source::Step { .. })).collect();
    let mut tasks = vec![];
    while is_done.contains(&false) {
        let mut by_prime = vec![];
        for wants_prime in [false, true] {
            for (index, value) in values.iter().enumerate() {
                let is_ready =
                    !is_done[index] && operands(value).iter().all(|&operand| is_done[operand]);
                let is_view = views[index].is_some();
                if is_ready && (is_view || is_by_prime(value) == wants_prime) {
                    is_done[index] = true;
                    match (is_view, wants_prime) {
                        (true, _) => {}
                        (_, true) => by_prime.push(index),
                        (_, false) => tasks.push(Task::Whole(index)),
                    }
                }
            }
        }
        if !by_prime.is_empty() {
            tasks.push(Task::ByPrime(steps_by_prime(values, &by_prime)));
        }
    }
    tasks
}

/// Returns the steps that make these values, all of a prime before those of the next.
fn steps_by_prime(values: &[Value], these: &[usize]) -> Vec<PrimeStep> {
    let mut all: Vec<u64> = vec![];
    for &q in these.iter().flat_map(|&value| primes(&values[value].kind)) {
        if !all.contains(&q) {
            all.push(q);
        }
    }
    let step = |value: usize, q: u64| {
        let Source::Step { step: Step::Limb(step), operands } = &values[value].source else {
            return None;
        };
        let limb = limb_of(&values[value].kind, q)?;
        let part = |&operand: &usize| match limb_of(&values[operand].kind, q) {
            Some(limb) => Some(computed(values, operand, limb)),
            // Of two that are joined the other one.
            None if matches!(values[operand].kind, Kind::Polys { .. }) => None,
            None => Some(PrimeOperand::Whole(operand)),
        };
        let operands = operands.iter().filter_map(part).collect();
        Some(PrimeStep { value, limb, step: step.clone(), operands })
    };
    all.iter().flat_map(|&q| these.iter().filter_map(move |&value| step(value, q))).collect()
}

/// Returns where the residues of a value are computed.
fn computed(values: &[Value], mut value: usize, mut limb: usize) -> PrimeOperand {
    let taken_from = |value: usize, limb: usize| {
        let q = primes(&values[value].kind)[limb];
        let mut operands = operands(&values[value]).iter().filter(|_| is_view(&values[value]));
        operands.find_map(|&operand| Some((operand, limb_of(&values[operand].kind, q)?)))
    };
    while let Some(found) = taken_from(value, limb) {
        (value, limb) = found;
    }
    PrimeOperand::Limb { value, limb }
}

/// Returns for each value the place in others that its residues have, if no step has to put them anywhere: those that
/// are taken out or joined, do not leave the program, and lie as they are read.
fn views(program: &Program) -> Vec<Option<ValuePlace>> {
    let values = program.values();
    let is_read_whole = |index: usize| {
        let of_whole = values.iter().filter(|value| !is_by_prime(value));
        of_whole.flat_map(operands).any(|&operand| operand == index)
    };
    let view = |index: usize| {
        let value = &values[index];
        let leaves = program.outputs().contains(&index)
            || program.updates().iter().any(|&(_, value)| value == index);
        if !is_view(value) || leaves {
            return None;
        }
        let mut parts = (0..primes(&value.kind).len()).map(|limb| computed(values, index, limb));
        let Some(PrimeOperand::Limb { value: of, limb: first }) = parts.next() else { return None };
        let is_run = |(limb, part)| matches!(part, PrimeOperand::Limb { value, limb: at } if (value, at) == (of, limb));
        match is_read_whole(index) {
            false => Some(ValuePlace::Apart),
            true if (first + 1..).zip(parts).all(is_run) => {
                Some(ValuePlace::Within { value: of, first: first * degree(&value.kind) })
            }
            true => None,
        }
    };
    (0..values.len()).map(view).collect()
}

/// Returns whether a step makes residues of each prime of those of that prime.
fn is_by_prime(value: &Value) -> bool {
    matches!(value.source, Source::Step { step: Step::Limb(_), .. })
}

/// Returns whether a step only takes residues from where they are.
fn is_view(value: &Value) -> bool {
    matches!(&value.source, Source::Step { step: Step::Limb(step), .. } if step.is_view())
}

fn operands(value: &Value) -> &[usize] {
    match &value.source {
        Source::Step { operands, .. } => operands,
        _ => &[],
    }
}

fn primes(kind: &Kind) -> &[u64] {
    match kind {
        Kind::Polys { ring, .. } => ring.primes(),
        _ => &[],
    }
}

fn degree(kind: &Kind) -> usize {
    match kind {
        Kind::Polys { ring, .. } => ring.degree(),
        _ => 0,
    }
}

/// Returns which prime of its ring q is.
fn limb_of(kind: &Kind, q: u64) -> Option<usize> {
    primes(kind).iter().position(|&prime| prime == q)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::{Builder, Ring, program::ValuePlace};

    #[test]
    fn memory_of_public_polynomials_is_not_wiped() {
        let ring = Arc::new(Ring::new(16, &[97, 193]).unwrap());
        let mut b = Builder::new("encrypt");
        let (index, seed) = (b.index("index"), b.seeds("seed", 1));
        let key = b.secret_seed("key");
        let a = b.uniform("a", &ring, seed, index);
        let e = b.noise("e", &ring, key, index);
        let e = b.ntt("e in NTT form", e);
        let sum = b.add("sum", a, e);
        b.output(sum);
        let program = b.build();
        let places = program.places();
        let is_secret = |name: &str| {
            let value = program.values().iter().position(|value| value.name == name).unwrap();
            match places.of_values[value] {
                ValuePlace::Scratch(slot) | ValuePlace::OfPrime(slot) => places.is_secret[slot],
                _ => panic!("{name} lies in no scratch memory"),
            }
        };
        assert_eq!(["a", "e", "e in NTT form"].map(is_secret), [false, true, true]);
    }
}
