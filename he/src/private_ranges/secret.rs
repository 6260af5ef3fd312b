//! The secret that clients share to propose ranges and to open those that are agreed.

use zeroize::Zeroizing;

#[cfg(feature = "tfhe")]
use super::lwe::PARAMETERS;
use super::lwe::{self, DIMENSION};
use crate::{Error, ids::KeyId, random};

/// The secret of private ranges: a seed, of which both secret keys of bootstraps are made.
///
/// All clients of a key have the same. An aggregator must never have it.
#[derive(Clone)]
pub struct RangesSecret {
    seed: Zeroizing<[u8; 32]>,
}

impl RangesSecret {
    /// Draws a fresh secret.
    ///
    /// # Errors
    /// No randomness.
    pub fn draw() -> Result<Self, Error> {
        Ok(Self { seed: random::bytes()? })
    }

    /// Returns the secret that a seed names.
    pub(crate) fn of_seed(seed: Zeroizing<[u8; 32]>) -> Self {
        Self { seed }
    }

    /// Returns the seed.
    pub(crate) fn seed(&self) -> &[u8; 32] {
        &self.seed
    }

    /// Returns the name of it and of the evaluation key beside it.
    #[must_use]
    pub fn id(&self) -> KeyId {
        KeyId::derive("ciphergram 2026 ranges key", &*self.seed)
    }

    /// Returns the key that bits are encrypted under, and levels opened.
    pub(super) fn large(&self) -> lwe::LweSecret {
        self.bits("ciphergram 2026 ranges secret, large", DIMENSION)
    }

    /// Returns the key that bootstraps work under.
    #[cfg(feature = "tfhe")]
    pub(super) fn small(&self) -> lwe::LweSecret {
        self.bits("ciphergram 2026 ranges secret, small", PARAMETERS.lwe_dimension)
    }

    fn bits(&self, context: &str, count: usize) -> lwe::LweSecret {
        let key = Zeroizing::new(blake3::derive_key(context, &*self.seed));
        let mut bits = random::keystream(&key, count);
        bits.iter_mut().for_each(|word| *word &= 1);
        bits
    }
}
