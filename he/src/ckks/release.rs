//! Flooding: noise on a decryption that others than key holders see.
//!
//! A decryption is off by the noise of its ciphertext, and that noise depends on the secret: who chose what was
//! computed, and sees a few decryptions, solves for the secret (Li and Micciancio 2021). So what leaves gets fresh
//! noise, in which the ciphertext's own is lost.
//!
//! # How much
//! Coefficients get independent Gaussians of deviation `σ = √(12·τ)·2^(s/2)·B`, where B bounds the Euclidean norm
//! of the noise, τ is the number of releases under one key, and s the bits of statistical security: 30. The norm of
//! a polynomial over its coefficients is the root mean square of its slots, so the bound at slots is B.
//!
//! Draws are rounded to integers, from two words each by the method of Box and Muller; they end at 8.5 deviations,
//! which changes all draws of a polynomial with a chance below 2^-40. Doubles have 53 bits, and a larger draw none
//! below its 53rd; so draws of deviations `σ·2^-30`, `σ·2^-60`, … as far as they are above 1 are added. Each is 2^18
//! times as wide as the gaps that the one before leaves, which vanish in it, and the sum is no narrower. Logarithms and
//! sines are a library's, whose time may depend on a draw, never on what it is added to.
//!
//! # Source
//! B. Li, D. Micciancio, M. Schultz, J. Sorrell, "Securing approximate homomorphic encryption using differential
//! privacy", 2022, theorem 3 and section 5: 128 bits against computation, s against statistics.

use std::f64::consts::TAU;

use rand_core::Rng as _;

use super::{Ciphertext, encryption::reduced};
use crate::{Error, random};

/// Bits of statistical security.
const STATISTICAL_BITS: f64 = 30.0;

/// Bits by which the deviation of a draw is above that of the next, which fills its lowest bits.
const FINER: i32 = 30;

/// The noise of a release.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Flooding {
    /// The standard deviation of a coefficient, in units of the scale.
    sigma: f64,
}

impl Flooding {
    /// Sizes the noise of a ciphertext, by its bound, for so many releases under its key.
    #[must_use]
    pub fn of(a: &Ciphertext, releases: u32) -> Self {
        let noise = a.bound.error * a.parameters.scale(a.level);
        let sigma = (12.0 * f64::from(releases.max(1))).sqrt() * (STATISTICAL_BITS / 2.0).exp2();
        Self { sigma: sigma * noise.max(1.0) }
    }

    /// Returns the bits of the largest slot that are above the deviation of the noise at a slot.
    #[must_use]
    pub fn bits_left(&self, a: &Ciphertext) -> f64 {
        (a.bound.magnitude / self.deviation(a)).log2()
    }

    /// Returns the standard deviation of the noise at a slot, in the units of what was encrypted.
    #[must_use]
    pub fn deviation(&self, a: &Ciphertext) -> f64 {
        let degree = a.parameters.degree() as f64;
        self.sigma * degree.sqrt() / a.parameters.scale(a.level)
    }

    /// Returns whether draws, which end at 8.5 deviations, are within ±q/4.
    pub(super) fn fits(&self, q: u128) -> bool {
        self.sigma * 34.0 <= q as f64
    }

    /// Adds a draw to each coefficient, modulo q, in which it [`fits`](Self::fits).
    pub(super) fn add_to(self, coefficients: &mut [u128], q: u128) -> Result<(), Error> {
        let mut random = random::generator()?;
        // In (0, 1]: its logarithm is finite.
        let mut unit = || ((random.next_u64() >> 11) + 1) as f64 * 2f64.powi(-53);
        let mut sigma = self.sigma;
        while sigma > 1.0 {
            for pair in coefficients.chunks_mut(2) {
                let (radius, turn) = ((-2.0 * unit().ln()).sqrt() * sigma, TAU * unit());
                for (coefficient, part) in pair.iter_mut().zip([turn.cos(), turn.sin()]) {
                    let noise = (radius * part).round() as i128;
                    *coefficient = reduced(coefficient.cast_signed() + noise, q);
                }
            }
            sigma *= 2f64.powi(-FINER);
        }
        Ok(())
    }
}
