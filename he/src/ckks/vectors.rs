//! Vectors: encoded, and encrypted.

use std::sync::Arc;

use super::{noise::Bound, parameters::Parameters};

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
    pub(super) level: usize,
    pub(super) bound: Bound,
    /// In NTT form.
    pub(super) parts: [Vec<u64>; 2],
}

/// A product that is not a ciphertext yet: three parts, under 1, s and s², at the square of the
/// scale of its level. Sums of products are switched and rescaled once.
#[derive(Clone)]
pub struct Product {
    pub(super) parameters: Arc<Parameters>,
    pub(super) level: usize,
    pub(super) bound: Bound,
    /// In NTT form.
    pub(super) parts: [Vec<u64>; 3],
}

/// The digits of the second part of a ciphertext, which its rotations share.
pub struct Digits {
    pub(super) first: Vec<u64>,
    pub(super) level: usize,
    pub(super) bound: Bound,
    /// In NTT form, modulo all primes of the level and the special ones.
    pub(super) digits: Vec<Vec<u64>>,
}

impl Ciphertext {
    /// Makes room for a result.
    pub(super) fn zeros(parameters: &Arc<Parameters>, level: usize, bound: Bound) -> Self {
        let words = parameters.ring(level).len_words();
        let parts = [0, 1].map(|_| vec![0; words]);
        Self { parameters: parameters.clone(), level, bound, parts }
    }

    /// Returns the bounds on its slots and on their errors.
    #[must_use]
    pub fn bound(&self) -> Bound {
        self.bound
    }

    /// Returns the bits between what its slots may be and what its modulus holds: below 0 it may have wrapped.
    #[must_use]
    pub fn bits_left(&self) -> f64 {
        let ring = self.parameters.ring(self.level);
        let log_q: f64 = ring.primes().iter().map(|&q| (q as f64).log2()).sum();
        let Bound { magnitude, error } = self.bound;
        log_q - 1.0 - ((magnitude + error) * self.parameters.scale(self.level)).log2()
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
