//! A client's proposal: its ranges, encrypted.

use zeroize::Zeroizing;

use super::{RangesSecret, lwe};
use crate::{
    Error,
    bytes::{Reader, Writer, to_bytes, to_words},
    error::{FrameError, WRONG_LENGTH},
    ids::Seed,
};

/// The levels of what one client proposes in unary, row by row and level by level: bit `l` is 1 if the row's level is
/// `l` or higher. Each bit is a ciphertext, of which the body travels. A row is of the range of a tensor, or of the
/// norm of the update.
#[derive(Debug, Clone, PartialEq)]
pub struct Proposal {
    /// What the masks grow from: fresh for every proposal.
    pub(super) seed: Seed,
    /// Bits of each row.
    levels: u8,
    pub(super) bodies: Vec<u64>,
}

impl Proposal {
    /// Encrypts the level of each row, of `levels` above level 0.
    ///
    /// # Errors
    /// No randomness.
    pub fn new(secret: &RangesSecret, levels: u8, rows: &[usize]) -> Result<Self, Error> {
        let seed = Seed::draw()?;
        let bits = |&row: &usize| (1..=levels).map(move |l| u64::from(usize::from(l) <= row));
        let bits: Zeroizing<Vec<_>> = Zeroizing::new(rows.iter().flat_map(bits).collect());
        let bodies = lwe::encrypt(&secret.large(), seed.bytes(), &bits)?;
        Ok(Self { seed, levels, bodies })
    }

    /// Returns what names it.
    #[must_use]
    pub fn seed(&self) -> Seed {
        self.seed
    }

    /// Returns the number of levels that each row is written in.
    #[must_use]
    pub fn levels(&self) -> u8 {
        self.levels
    }

    /// Returns the number of rows.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.bodies.len() / usize::from(self.levels)
    }

    pub(crate) fn write(&self, w: &mut Writer) {
        self.seed.write(w);
        w.u8(self.levels);
        w.bytes(&to_bytes(&self.bodies));
    }

    /// Reads a proposal, which all that is left is.
    pub(crate) fn read(r: &mut Reader<'_>) -> Result<Self, FrameError> {
        let (seed, levels) = (Seed::read(r)?, r.u8()?);
        let bytes = r.rest();
        if levels == 0 || !bytes.len().is_multiple_of(8 * usize::from(levels)) {
            return Err(WRONG_LENGTH);
        }
        Ok(Self { seed, levels, bodies: to_words(bytes) })
    }
}
