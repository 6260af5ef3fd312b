//! A batch on the side of the host, and the parts of it that go to a device.

use std::ops::Range;

use crate::{
    engine::Operand,
    program::{Program, Spread},
};

/// Items of a batch that are a part of it, and which recording is for them.
pub(crate) type BatchPart = (Range<usize>, usize);

/// The host's side of an operand.
enum Data<'o> {
    Shared(&'o [u64]),
    Read(&'o [u64]),
    Write(&'o mut [u64]),
}

/// The operands of a run, and how many items of theirs are done.
pub(crate) struct DeviceBatch<'o> {
    /// With the words of an item.
    operands: Vec<(usize, Data<'o>)>,
    pub(crate) count: usize,
    /// Items, from the first on, whose results are written.
    pub(crate) done: usize,
}

impl<'o> DeviceBatch<'o> {
    pub(crate) fn new(program: &Program, operands: &'o mut [Operand<'_>], count: usize) -> Self {
        let data = |(operand, (words, shared)): (&'o mut Operand<'_>, (usize, bool))| {
            let data = match operand {
                Operand::In(words) | Operand::SecretIn(words) if shared => Data::Shared(words),
                Operand::In(words) | Operand::SecretIn(words) => Data::Read(words),
                Operand::Out(words) | Operand::InOut(words) => Data::Write(words),
            };
            (words, data)
        };
        let operands = operands.iter_mut().zip(items(program)).map(data).collect();
        Self { operands, count, done: 0 }
    }

    /// Takes operands to record only: the batch cannot be run.
    pub(crate) fn unwritten(program: &Program, operands: &'o [Operand<'_>], count: usize) -> Self {
        let data = |(operand, (each, shared)): (&'o Operand<'_>, (usize, bool))| {
            let words = operand.words();
            (each, if shared { Data::Shared(words) } else { Data::Read(words) })
        };
        let operands = operands.iter().zip(items(program)).map(data).collect();
        Self { operands, count, done: 0 }
    }

    /// Returns one item without operands.
    pub(crate) fn empty() -> Self {
        Self { operands: vec![], count: 1, done: 0 }
    }

    /// Returns an operand that all items share, if it is of that kind.
    pub(crate) fn shared(&self, operand: usize) -> Option<&'o [u64]> {
        match self.operands[operand].1 {
            Data::Shared(words) => Some(words),
            _ => None,
        }
    }

    /// Returns the words of an operand's items that go up.
    pub(crate) fn input(&self, operand: usize, items: &Range<usize>) -> &[u64] {
        let (each, data) = &self.operands[operand];
        match data {
            Data::Shared(words) => words,
            Data::Read(words) => &words[items.start * each..items.end * each],
            Data::Write(words) => &words[items.start * each..items.end * each],
        }
    }

    /// Returns the room for an operand's items that come down: none of an input.
    pub(crate) fn output(&mut self, operand: usize, items: &Range<usize>) -> &mut [u64] {
        let (each, data) = &mut self.operands[operand];
        match data {
            Data::Write(words) => &mut words[items.start * *each..items.end * *each],
            Data::Shared(_) | Data::Read(_) => &mut [],
        }
    }
}

/// Returns the words of an item of each operand, and whether it is the same for all.
fn items(program: &Program) -> impl Iterator<Item = (usize, bool)> {
    let inputs = program.inputs().map(|(value, spread)| (value, spread == Spread::Shared));
    let bound = inputs.chain(program.outputs().iter().map(|&value| (value, false)));
    bound.map(|(value, shared)| (program.values()[value].kind.words(), shared))
}

/// The rest of a batch, in parts of `size` items.
pub(crate) struct DeviceJob<'j, 'o, R> {
    pub(crate) batch: &'j mut DeviceBatch<'o>,
    pub(crate) size: usize,
    /// The work on `size` items, and on the fewer that are left in the end.
    pub(crate) recordings: [&'j R; 2],
    /// Whether memory has to be overwritten in the end.
    pub(crate) secret: bool,
}

impl<R> DeviceJob<'_, '_, R> {
    /// Returns the parts that are left.
    pub(crate) fn parts(&self) -> impl Iterator<Item = BatchPart> + use<R> {
        let (count, size) = (self.batch.count, self.size);
        (self.batch.done..count).step_by(size.max(1)).map(move |first| {
            let items = first..count.min(first + size);
            let whole = items.len() == size;
            (items, usize::from(!whole))
        })
    }
}
