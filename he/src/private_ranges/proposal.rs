//! A client's proposal: its ranges, encrypted.

use zeroize::Zeroizing;

use super::{Levels, RangesSecret, lwe};
use crate::{
    Error,
    bytes::{Reader, Writer, to_bytes, to_words},
    error::FrameError,
    ids::Seed,
};

/// The levels of one client's ranges in unary, tensor by tensor and level by level: bit `l` is 1 if the range is
/// that of level `l` or larger. Each is a ciphertext, of which the body travels.
#[derive(Debug, Clone, PartialEq)]
pub struct Proposal {
    /// What the masks grow from: fresh for every proposal.
    pub(super) seed: Seed,
    /// Bits of each range.
    levels: u8,
    pub(super) bodies: Vec<u64>,
}

impl Proposal {
    /// Encrypts the ranges of a client's tensors. Those beyond the highest level are proposed as that.
    ///
    /// # Errors
    /// No randomness.
    pub fn new(secret: &RangesSecret, levels: Levels, ranges: &[f64]) -> Result<Self, Error> {
        let seed = Seed::draw()?;
        let bits = ranges.iter().flat_map(|&range| {
            let level = levels.level(range);
            (1..=levels.count()).map(move |l| u64::from(l <= level))
        });
        let bits: Zeroizing<Vec<_>> = Zeroizing::new(bits.collect());
        let bodies = lwe::encrypt(&secret.large(), seed.bytes(), &bits)?;
        Ok(Self { seed, levels: levels.count() as u8, bodies })
    }

    /// Returns what names it.
    #[must_use]
    pub fn seed(&self) -> Seed {
        self.seed
    }

    /// Returns the number of levels that each range is written in.
    #[must_use]
    pub fn levels(&self) -> u8 {
        self.levels
    }

    pub(crate) fn write(&self, w: &mut Writer) {
        self.seed.write(w);
        w.u8(self.levels);
        w.bytes(&to_bytes(&self.bodies));
    }

    /// Reads a proposal of the ranges of as many tensors.
    pub(crate) fn read(r: &mut Reader<'_>, tensors: usize) -> Result<Self, FrameError> {
        let (seed, levels) = (Seed::read(r)?, r.u8()?);
        let length = tensors.checked_mul(8 * usize::from(levels)).ok_or(FrameError::Truncated)?;
        Ok(Self { seed, levels, bodies: to_words(r.bytes(length)?) })
    }
}
