//! Vectors: encoded, and encrypted.

use std::sync::Arc;

use ciphergram_accel::Engine;

use super::{keys, noise::Bound, packing, parameters::Parameters};
use crate::{
    Error,
    bytes::{Reader, Writer},
    ids::KeyId,
};

/// Bytes of the seed that a polynomial expands from.
const SEED_BYTES: usize = 32;

/// An encoded vector: a polynomial on a level, at the scale of the level.
#[derive(Clone)]
pub struct Plaintext {
    pub(super) parameters: Arc<Parameters>,
    pub(super) level: usize,
    pub(super) bound: Bound,
    /// In NTT form.
    pub(super) words: Vec<u64>,
}

/// An encrypted vector on a level, at the scale of the level: two parts, under 1 and s.
#[derive(Clone)]
pub struct Ciphertext {
    pub(super) parameters: Arc<Parameters>,
    pub(super) key: KeyId,
    pub(super) level: usize,
    pub(super) bound: Bound,
    /// What the second part expands from, as long as it is as it was encrypted.
    pub(super) seed: Option<[u8; 32]>,
    /// In NTT form.
    pub(super) parts: [Vec<u64>; 2],
}

/// A product that is not a ciphertext yet: three parts, under 1, s and s², at the square of the
/// scale of its level. Sums of products are switched and rescaled once.
#[derive(Clone)]
pub struct Product {
    pub(super) key: KeyId,
    pub(super) level: usize,
    pub(super) bound: Bound,
    /// In NTT form.
    pub(super) parts: [Vec<u64>; 3],
}

/// The digits of the second part of a ciphertext, which its rotations share.
pub struct Digits {
    pub(super) key: KeyId,
    pub(super) first: Vec<u64>,
    pub(super) level: usize,
    pub(super) bound: Bound,
    /// In NTT form, modulo all primes of the level and the special ones.
    pub(super) digits: Vec<Vec<u64>>,
}

impl Ciphertext {
    /// Returns the bytes of one in a file, without level and bound.
    pub(crate) fn packed_bytes(parameters: &Parameters, level: usize, is_seeded: bool) -> usize {
        let part = packing::packed_bytes(parameters.ring(level));
        part + if is_seeded { SEED_BYTES } else { part }
    }

    /// Returns whether a seed tells the second part.
    pub(crate) fn is_seeded(&self) -> bool {
        self.seed.is_some()
    }

    /// Appends its parts, or the first one and the seed of the other.
    pub(crate) fn write(&self, w: &mut Writer, is_seeded: bool) {
        let ring = self.parameters.ring(self.level);
        packing::pack(w, ring, &self.parts[0]);
        match self.seed.filter(|_| is_seeded) {
            Some(seed) => w.bytes(&seed),
            None => packing::pack(w, ring, &self.parts[1]),
        }
    }

    /// Reads what [`write`](Self::write) wrote of a ciphertext under a key, on a level, of this bound.
    ///
    /// # Errors
    /// Its residues are not there, or not reduced; the engine's.
    pub(crate) fn read(
        r: &mut Reader<'_>,
        (parameters, key): (&Arc<Parameters>, KeyId),
        (level, bound, is_seeded): (usize, Bound, bool),
        engine: &dyn Engine,
    ) -> Result<Self, Error> {
        let ring = parameters.ring(level);
        let first = packing::unpack(r, ring)?;
        let (second, seed) = match is_seeded {
            true => {
                let seed = r.array::<SEED_BYTES>()?;
                (keys::uniform(ring, &seed, 0, engine)?, Some(seed))
            }
            false => (packing::unpack(r, ring)?, None),
        };
        let parameters = parameters.clone();
        Ok(Self { parameters, key, level, bound, seed, parts: [first, second] })
    }

    /// Returns the id of the key that it is under.
    #[must_use]
    pub fn key(&self) -> KeyId {
        self.key
    }

    /// Returns the bounds on its slots and on their errors.
    #[must_use]
    pub fn bound(&self) -> Bound {
        self.bound
    }

    /// Returns the bits between what its slots may be and what the modulus holds that it is decrypted by, of two
    /// primes at most: below 0 it may have wrapped.
    #[must_use]
    pub fn bits_left(&self) -> f64 {
        let ring = self.parameters.ring(self.level.min(1));
        let log_q: f64 = ring.primes().iter().map(|&q| (q as f64).log2()).sum();
        let Bound { magnitude, error } = self.bound;
        log_q - 1.0 - ((magnitude + error) * self.parameters.scale(self.level)).log2()
    }

    /// Returns the same, with slots taken to be within ±`magnitude`: by whoever knows more than what was declared.
    #[must_use]
    pub(crate) fn within(&self, magnitude: f64) -> Self {
        let mut same = self.clone();
        same.bound.magnitude = same.bound.magnitude.min(magnitude);
        same
    }

    /// Returns the products in a row that there is room for.
    #[must_use]
    pub fn level(&self) -> usize {
        self.level
    }

    /// Returns its parameters.
    #[must_use]
    pub fn parameters(&self) -> &Arc<Parameters> {
        &self.parameters
    }
}
