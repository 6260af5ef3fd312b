//! The places of the values of a program while it runs on the host.

use super::{Program, Source};

/// The place of a value.
#[derive(Clone, Copy)]
pub(crate) enum Place {
    /// In the program.
    Constant,
    /// In an operand of the run.
    Operand(usize),
    /// In this slot of scratch memory.
    Scratch(usize),
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
            of_values.push(match (&value.source, operand) {
                (Source::Constant(_), _) => Place::Constant,
                (_, Some(operand)) => Place::Operand(operand),
                (_, None) => {
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
    last
}
