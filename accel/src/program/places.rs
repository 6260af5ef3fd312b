//! The places of the values of a program while it runs on the host.

use super::{Kind, Program, Source, Step, Value};

/// The place of a value.
#[derive(Clone, Copy)]
pub(crate) enum Place {
    /// In the program.
    Constant,
    /// In an operand of the run.
    Operand(usize),
    /// In this slot of scratch memory.
    Scratch(usize),
    /// In another value, from one of its words on: residues that a step takes out, and nothing has
    /// to compute.
    Within {
        /// That value, which is not within another.
        value: usize,
        /// The first word.
        first: usize,
    },
}

/// The places of all values, resolved once for a program: runs over few items are short.
#[derive(Default)]
pub(crate) struct Places {
    /// For each value its place. Outputs are computed where they belong.
    pub(crate) of_values: Vec<Place>,
    /// For each operand, the value it binds.
    pub(crate) bound: Vec<usize>,
    /// For each slot of scratch memory, its words for one item.
    pub(crate) slots: Vec<usize>,
}

impl Places {
    /// Finds a place for each value of a finished program.
    pub(super) fn new(program: &Program) -> Self {
        let mut bound: Vec<usize> = program.inputs().map(|(value, _)| value).collect();
        bound.extend(program.outputs());
        let last_uses = last_uses(program);
        let (mut slots, mut free): (Vec<usize>, Vec<usize>) = (vec![], vec![]);
        let mut of_values = Vec::with_capacity(program.values().len());
        for (index, value) in program.values().iter().enumerate() {
            let operand = bound.iter().position(|&value| value == index);
            let within = within(program, index).map(|(of, first)| match of_values[of] {
                Place::Within { value, first: before } => (value, before + first),
                _ => (of, first),
            });
            of_values.push(match (&value.source, operand, within) {
                (Source::Constant(_), ..) => Place::Constant,
                (_, Some(operand), _) => Place::Operand(operand),
                (_, None, Some((value, first))) => Place::Within { value, first },
                (_, None, None) => {
                    let slot = free.pop().unwrap_or(slots.len());
                    slots.resize(slots.len().max(slot + 1), 0);
                    slots[slot] = slots[slot].max(value.kind.words());
                    Place::Scratch(slot)
                }
            });
            // A value that no later step reads makes room, after the step that was the last to read
            // it.
            for (before, &last) in last_uses.iter().enumerate().take(index + 1) {
                if let (Place::Scratch(slot), true) = (of_values[before], last == index) {
                    free.push(slot);
                }
            }
        }
        Self { of_values, bound, slots }
    }
}

/// Returns for each value the last one that is computed from it: itself where there is none, and
/// none where it leaves the program.
fn last_uses(program: &Program) -> Vec<usize> {
    let mut last: Vec<usize> = (0..program.values().len()).collect();
    for (index, value) in program.values().iter().enumerate() {
        if let Source::Step { operands, .. } = &value.source {
            operands.iter().for_each(|&operand| last[operand] = index);
        }
    }
    program.updates().iter().for_each(|&(_, value)| last[value] = usize::MAX);
    // What lies within a value needs it as long.
    for index in (0..last.len()).rev() {
        if let Some((of, _)) = within(program, index) {
            last[of] = last[of].max(last[index]);
        }
    }
    last
}

/// Returns which value this one is a part of, and from which word on, if it is one. What leaves
/// the program has a place of its own.
fn within(program: &Program, index: usize) -> Option<(usize, usize)> {
    let leaves = program.outputs().contains(&index)
        || program.updates().iter().any(|&(_, value)| value == index);
    match &program.values()[index] {
        Value {
            source: Source::Step { step: Step::Limbs { first }, operands },
            kind: Kind::Polys { ring, .. },
            ..
        } if !leaves => Some((operands[0], first * ring.degree())),
        _ => None,
    }
}
