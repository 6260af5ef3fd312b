//! A client's proposal: the levels of its rows, encrypted.

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
    rows: u32,
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
        // It does not grow: that would leave copies.
        let mut bits = Zeroizing::new(Vec::with_capacity(rows.len() * usize::from(levels)));
        for &row in rows {
            bits.extend((1..=levels).map(|level| u64::from(usize::from(level) <= row)));
        }
        let bodies = lwe::encrypt(&secret.large(), seed.bytes(), &bits)?;
        Ok(Self { seed, rows: rows.len() as u32, levels, bodies })
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
        self.rows as usize
    }

    pub(crate) fn write(&self, w: &mut Writer) {
        self.seed.write(w);
        w.u32(self.rows);
        w.u8(self.levels);
        w.bytes(&to_bytes(&self.bodies));
    }

    pub(crate) fn read(r: &mut Reader<'_>) -> Result<Self, FrameError> {
        let (seed, rows, levels) = (Seed::read(r)?, r.u32()?, r.u8()?);
        if levels == 0 {
            return Err(WRONG_LENGTH);
        }
        let length = (rows as usize).checked_mul(8 * usize::from(levels));
        let bodies = to_words(r.bytes(length.ok_or(FrameError::Truncated)?)?);
        Ok(Self { seed, rows, levels, bodies })
    }
}
