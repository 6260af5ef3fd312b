//! The levels that are agreed, encrypted.

use super::{
    RangesSecret,
    lwe::{self, DIMENSION},
};
use crate::{
    bytes::{Reader, Writer},
    error::FrameError,
};

/// Words of a ciphertext, each rounded to 16 bits.
const WORDS: usize = DIMENSION + 1;

/// A ciphertext for each row of proposals: the level that is agreed.
#[derive(Debug, Clone, PartialEq)]
pub struct EncryptedRanges {
    pub(super) words: Vec<u16>,
}

impl EncryptedRanges {
    /// Bytes for each row.
    pub const BYTES: usize = 2 * WORDS;

    /// Opens the level of each row; one that is negative is 0, and one may be higher than any was proposed.
    #[must_use]
    pub fn open(&self, secret: &RangesSecret) -> Vec<usize> {
        let secret = secret.large();
        let level = |words: &[u16]| lwe::open_level(&secret, words).max(0) as usize;
        self.words.chunks_exact(WORDS).map(level).collect()
    }

    /// Returns the number of rows.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.words.len() / WORDS
    }

    pub(crate) fn write(&self, w: &mut Writer) {
        w.u32(self.rows() as u32);
        self.words.iter().for_each(|&word| w.u16(word));
    }

    pub(crate) fn read(r: &mut Reader<'_>) -> Result<Self, FrameError> {
        let rows = r.u32()? as usize;
        let length = rows.checked_mul(Self::BYTES).ok_or(FrameError::Truncated)?;
        let words = r.bytes(length)?.as_chunks().0.iter().map(|word| u16::from_le_bytes(*word));
        Ok(Self { words: words.collect() })
    }
}
