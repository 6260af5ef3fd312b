//! Numbers as they lie in card memory.

use crate::program::Kind;

/// Words of 64 bits in a beat.
const WORDS: usize = 8;
/// Bytes of a beat.
pub(super) const BEAT: usize = 64;

/// The form of an item: numbers one after the other, each from a beat on.
#[derive(Clone, Copy)]
pub(crate) struct BeatForm {
    pub(super) numbers: usize,
    /// Words of 64 bits of a number on the host; the rest of its last beat is zero.
    pub(super) words: usize,
}

impl BeatForm {
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
