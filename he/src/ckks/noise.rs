//! Bounds on errors, proved but for a chance of 2^-40.
//!
//! Every ciphertext has a bound on its slots and one on their errors. Both follow from what was
//! declared when it was encrypted and from what was done since, never from what it holds.
//!
//! # What is bounded
//! A polynomial e with N independent coefficients of mean zero that are sub-Gaussian of variance σ²,
//! as centred binomials and roundings are, has at each of the N/2 slots a value with sub-Gaussian
//! real and imaginary parts of variance at most `N·σ²` together. So `|e(ζ)| ≤ t·√N·σ` at all slots
//! but for a chance of `2·N·exp(−t²/2)`, which is below 2^-50 for `t² = 2·ln(2^51·N)`: [`tail`]. A
//! product of two polynomials has at a slot the product of their values there.
//!
//! - **Fresh, by the secret**: one binomial of variance 10.5, and what encoding rounds, at most N/2 at
//!   any slot.
//! - **Fresh, by the public key**: `(e·u + e₀ + e₁·s) / P`, next to nothing beside what the division
//!   by P rounds.
//! - **A division** rounds both parts by at most a half: `τ₀ + τ₁·s`, of variances 1/12 and 2/3.
//! - **A switch of keys** adds `Σ d_j·e_j / P`: digits within ±D_j/2, D_j being the product of a
//!   digit's primes, times binomials; then a division.
//! - **A sum** adds errors; **a product** of slots within a and b with errors x and y has an error of at
//!   most `a·y + b·x + x·y`.
//!
//! A circuit of a thousand operations fails with a chance below 2^-40. Errors of floating-point
//! transforms are 2^-50 of what is encoded, and counted with the encoding.

use super::parameters::Parameters;

/// The variance of noise: a centred binomial of 2 × 21 bits.
const NOISE: f64 = 10.5;
/// The variance of what rounding leaves.
const ROUNDING: f64 = 1.0 / 12.0;
/// The variance of a ternary coefficient.
const TERNARY: f64 = 2.0 / 3.0;

/// Bounds on the slots of a ciphertext, in the units of what was encrypted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bound {
    /// The most that a slot should be away from zero.
    pub magnitude: f64,
    /// The most that it is away from what it should be.
    pub error: f64,
}

impl Bound {
    /// Returns the bound on a sum, or a difference.
    pub(super) fn add(self, other: Self) -> Self {
        let magnitude = self.magnitude + other.magnitude;
        Self { magnitude, error: self.error + other.error }
    }

    /// Returns the bound on a product by a number that is exact.
    pub(super) fn scale(self, factor: f64) -> Self {
        Self { magnitude: self.magnitude * factor.abs(), error: self.error * factor.abs() }
    }

    /// Returns the bound on a product, slot by slot.
    pub(super) fn multiply(self, other: Self) -> Self {
        let [(a, x), (b, y)] = [(self.magnitude, self.error), (other.magnitude, other.error)];
        Self { magnitude: a * b, error: a * y + b * x + x * y }
    }

    /// Returns zero with an error of as much as this may be away from it.
    pub(super) fn as_error(self) -> Self {
        Self { magnitude: 0.0, error: self.magnitude + self.error }
    }

    /// Returns the bound with an error of so many units of the scale more.
    pub(super) fn with(self, error: f64, scale: f64) -> Self {
        Self { error: self.error + error / scale, ..self }
    }
}

impl Parameters {
    /// Returns the bounds on a fresh ciphertext of numbers within ±`magnitude`, under the public key or the secret.
    #[must_use]
    pub fn fresh_bound(&self, magnitude: f64, public: bool) -> Bound {
        let noise = if public { of_public(self) } else { of_secret(self) };
        Bound { magnitude, error: 0.0 }.with(noise, self.scale(self.top_level()))
    }

    /// Returns the bounds on a product on a level, relinearised and rescaled.
    ///
    /// # Panics
    /// If there is no such level, or it is 0.
    #[must_use]
    pub fn product_bound(&self, a: Bound, b: Bound, level: usize) -> Bound {
        let scale = self.scale(level);
        let product = a.multiply(b).with(of_switch(self, level), scale * scale);
        product.with(of_division(self), self.scale(level - 1))
    }
}

/// Returns how many deviations no slot is away, but for a chance of 2^-50.
fn tail(degree: usize) -> f64 {
    (2.0 * ((degree as f64).ln() + 51.0 * std::f64::consts::LN_2)).sqrt()
}

/// Returns the bound at slots on a polynomial with coefficients of this variance.
fn at_slots(degree: usize, variance: f64) -> f64 {
    tail(degree) * (degree as f64 * variance).sqrt()
}

/// Returns the most at a slot, in units of the scale, that encoding rounds.
pub(super) fn of_encoding(set: &Parameters) -> f64 {
    set.degree() as f64 / 2.0
}

/// Returns the noise of a fresh ciphertext under the secret.
fn of_secret(set: &Parameters) -> f64 {
    at_slots(set.degree(), NOISE) + of_encoding(set)
}

/// Returns the noise of a fresh ciphertext under the public key.
fn of_public(set: &Parameters) -> f64 {
    let degree = set.degree();
    let [e, u] = [NOISE, TERNARY].map(|variance| at_slots(degree, variance));
    (2.0 * e * u + e) / special(set) + of_division(set) + of_encoding(set)
}

/// Returns the noise of a division of both parts.
pub(super) fn of_division(set: &Parameters) -> f64 {
    let degree = set.degree();
    let [rounding, s] = [ROUNDING, TERNARY].map(|variance| at_slots(degree, variance));
    rounding * (1.0 + s)
}

/// Returns the noise of a switch of keys on a level, without the division behind it.
pub(super) fn of_switch(set: &Parameters, level: usize) -> f64 {
    let degree = set.degree();
    let digits = set.level(level).digits.iter().map(|digit| {
        let size: f64 = digit.own.primes().iter().map(|&q| q as f64).product();
        at_slots(degree, size * size * ROUNDING)
    });
    digits.sum::<f64>() * at_slots(degree, NOISE) / special(set)
}

/// Returns the product of the special primes.
fn special(set: &Parameters) -> f64 {
    set.special().primes().iter().map(|&q| q as f64).product()
}
