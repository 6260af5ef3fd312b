//! The ranges that are agreed, encrypted.

use super::{
    Levels, RangesSecret,
    lwe::{self, DIMENSION},
};
use crate::{
    bytes::{Reader, Writer},
    error::FrameError,
};

/// Words of a ciphertext, each rounded to 16 bits.
const WORDS: usize = DIMENSION + 1;

/// A ciphertext for each tensor: the level that is agreed.
#[derive(Debug, Clone, PartialEq)]
pub struct EncryptedRanges {
    pub(super) words: Vec<u16>,
}

impl EncryptedRanges {
    /// Bytes for each tensor.
    pub const BYTES: usize = 2 * WORDS;

    /// Opens the ranges. Whatever they hold, they are those of levels: one that is out of bounds is the
    /// nearest one.
    #[must_use]
    pub fn open(&self, secret: &RangesSecret, levels: Levels) -> Vec<f64> {
        let secret = secret.large();
        let level = |words: &[u16]| lwe::open_level(&secret, words).max(0) as usize;
        self.words.chunks_exact(WORDS).map(|words| levels.range(level(words))).collect()
    }

    pub(crate) fn write(&self, w: &mut Writer) {
        self.words.iter().for_each(|&word| w.u16(word));
    }

    /// Reads those of as many tensors.
    pub(crate) fn read(r: &mut Reader<'_>, tensors: usize) -> Result<Self, FrameError> {
        let length = tensors.checked_mul(Self::BYTES).ok_or(FrameError::Truncated)?;
        let words = r.bytes(length)?.as_chunks().0.iter().map(|word| u16::from_le_bytes(*word));
        Ok(Self { words: words.collect() })
    }
}
