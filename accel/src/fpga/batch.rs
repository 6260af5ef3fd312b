//! A batch on the host's side, and the numbers of its items as they lie on the card.

use std::ops::Range;

use crate::{
    engine::Operand,
    program::{Kind, Program, Spread},
};

/// Words of 64 bits in a beat.
const WORDS: usize = 8;
/// Bytes of a beat.
pub(super) const BEAT: usize = 64;

/// The form of an item: numbers one after the other, each from a beat on.
#[derive(Clone, Copy)]
pub(super) struct Form {
    pub(super) numbers: usize,
    /// Words of 64 bits of a number on the host; the rest of its last beat is zero.
    pub(super) words: usize,
}

impl Form {
    /// Returns the form of the items of a kind.
    pub(super) fn of(kind: &Kind) -> Self {
        match kind {
            Kind::Residues { modulus, rows } => Self { numbers: *rows, words: modulus.len_words() },
            Kind::Pairs { .. } => Self { numbers: 2, words: kind.words() / 2 },
            Kind::Exponents { bits, count } => {
                Self { numbers: *count, words: bits.div_ceil(64) as usize }
            }
            Kind::Beats { count, .. } => Self { numbers: *count, words: WORDS },
            _ => Self::number(kind.words()),
        }
    }

    /// Returns the form of one number.
    pub(super) fn number(words: usize) -> Self {
        Self { numbers: 1, words }
    }

    /// Returns the beats of a number.
    pub(super) fn length(&self) -> u64 {
        self.words.div_ceil(WORDS) as u64
    }

    /// Returns the beats of an item.
    pub(super) fn beats(&self) -> u64 {
        self.length() * self.numbers as u64
    }

    /// Writes numbers to whole beats, which are zero.
    pub(super) fn spread(&self, numbers: &[u64], bytes: &mut [u8]) {
        let each = self.length() as usize * BEAT;
        for (number, bytes) in numbers.chunks(self.words).zip(bytes.chunks_mut(each)) {
            for (word, bytes) in number.iter().zip(bytes.as_chunks_mut().0) {
                *bytes = word.to_le_bytes();
            }
        }
    }

    /// Reads numbers from whole beats.
    pub(super) fn gather(&self, bytes: &[u8], numbers: &mut [u64]) {
        let each = self.length() as usize * BEAT;
        for (number, bytes) in numbers.chunks_mut(self.words).zip(bytes.chunks(each)) {
            for (word, bytes) in number.iter_mut().zip(bytes.as_chunks().0) {
                *word = u64::from_le_bytes(*bytes);
            }
        }
    }
}

/// The host's side of an operand.
enum Data<'o> {
    Shared(&'o [u64]),
    Read(&'o [u64]),
    Write(&'o mut [u64]),
}

/// The operands of a run, and how many items of theirs are done.
pub(super) struct Batch<'o> {
    /// With the words of an item.
    operands: Vec<(usize, Data<'o>)>,
    pub(super) count: usize,
    /// Items, from the first on, whose results are written.
    pub(super) done: usize,
}

impl<'o> Batch<'o> {
    pub(super) fn new(program: &Program, operands: &'o mut [Operand<'_>], count: usize) -> Self {
        let data = |(operand, (each, shared)): (&'o mut Operand<'_>, (usize, bool))| {
            let data = match operand {
                Operand::In(words) | Operand::SecretIn(words) if shared => Data::Shared(words),
                Operand::In(words) | Operand::SecretIn(words) => Data::Read(words),
                Operand::Out(words) | Operand::InOut(words) => Data::Write(words),
            };
            (each, data)
        };
        let operands = operands.iter_mut().zip(items(program)).map(data).collect();
        Self { operands, count, done: 0 }
    }

    /// Takes operands to record only: the batch cannot be run.
    pub(super) fn unwritten(program: &Program, operands: &'o [Operand<'_>], count: usize) -> Self {
        let data = |(operand, (each, shared)): (&'o Operand<'_>, (usize, bool))| {
            let words = operand.words();
            (each, if shared { Data::Shared(words) } else { Data::Read(words) })
        };
        let operands = operands.iter().zip(items(program)).map(data).collect();
        Self { operands, count, done: 0 }
    }

    /// Returns one item without operands.
    pub(super) fn empty() -> Self {
        Self { operands: vec![], count: 1, done: 0 }
    }

    /// Returns an operand that all items share, if it is of that kind.
    pub(super) fn shared(&self, operand: usize) -> Option<&'o [u64]> {
        match self.operands[operand].1 {
            Data::Shared(words) => Some(words),
            _ => None,
        }
    }

    /// Returns the words of an operand's items that go up.
    pub(super) fn input(&self, operand: usize, items: &Range<usize>) -> &[u64] {
        let (each, data) = &self.operands[operand];
        match data {
            Data::Shared(words) => words,
            Data::Read(words) => &words[items.start * each..items.end * each],
            Data::Write(words) => &words[items.start * each..items.end * each],
        }
    }

    /// Returns the room for an operand's items that come down.
    pub(super) fn output(&mut self, operand: usize, items: &Range<usize>) -> &mut [u64] {
        let (each, data) = &mut self.operands[operand];
        match data {
            Data::Write(words) => &mut words[items.start * *each..items.end * *each],
            _ => unreachable!("operands were checked"),
        }
    }
}

/// Returns the words of an item of each operand, and whether it is the same for all.
fn items(program: &Program) -> impl Iterator<Item = (usize, bool)> {
    let inputs = program.inputs().map(|(value, spread)| (value, spread == Spread::Shared));
    let bound = inputs.chain(program.outputs().iter().map(|&value| (value, false)));
    bound.map(|(value, shared)| (program.values()[value].kind.words(), shared))
}
