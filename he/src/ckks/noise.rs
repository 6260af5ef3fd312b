//! Bounds on errors, proved but for a chance of 2^-40.
//!
//! Every ciphertext has a bound on its slots and one on their errors. Both follow from what was
//! declared when it was encrypted and from what was done since, never from what it holds.
//!
//! # What is bounded
//! A polynomial e with N independent coefficients of mean zero that are sub-Gaussian of variance σ²,
//! as centred binomials and roundings are, has at each of the N/2 slots a value with sub-Gaussian
//! real and imaginary parts of variance `N·σ²/2` each, uncorrelated. The same holds for a sum of its
//! slots, each times a weight, where the squares of weights add up to 1: powers of the roots at two
//! slots are orthogonal, and no slot is the conjugate of another. All that follows holds for such
//! sums as for slots.
//!
//! - `|e(ζ)| ≤ t·√N·σ` with `t² = 1 + √(2x) + x`, but for a chance of `e^−x` (Hsu, Kakade, Zhang). With
//!   `x = ln(2^51·N)` it holds at all slots but for a chance of 2^-50.
//! - **A product** with a polynomial f has at a slot the product of their values. As `|e·f|` is at most
//!   the mean of their squares, each in its own unit, it is within `(1 + √x + x/2)·N·σ_e·σ_f`: far less
//!   than both bounds together, as not both are large at once.
//!
//! These are bounds on what occurs but for that chance, not on the worst that could: roundings and
//! noise are taken to be independent, as they are for keys that were drawn honestly.
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
//! - **A product by a matrix** of rows w takes the noise of a fresh ciphertext and of its rotations
//!   times the root of `Σ w_k²`, as they are independent from slot to slot and from key to key, and
//!   the root of their squares together: given the secret and the digits, all are sub-Gaussian. What
//!   was computed before may be off alike in all slots: its error counts `Σ |w_k|` times ([`Weights`]).
//!
//! A circuit of a thousand operations fails with a chance below 2^-40. Errors of floating-point
//! transforms are 2^-50 of what is encoded, and counted with the encoding.
//!
//! # Source
//! D. Hsu, S. Kakade, T. Zhang, "A tail inequality for quadratic forms of subgaussian random
//! vectors", 2012, theorem 2.1.

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

/// Squares of weights by which products of two polynomials are taken, each at another slot, and summed.
#[derive(Default)]
struct Squares {
    sum: f64,
    fourths: f64,
    most: f64,
}

impl Squares {
    fn add(&mut self, square: f64) {
        self.sum += square;
        self.fourths += square * square;
        self.most = self.most.max(square);
    }

    /// Returns how far the sum takes what a product is off by: the norm of a single weight, and far less of many.
    ///
    /// All products share a factor, and none the other one. Given the shared one, the sum is g, a sub-Gaussian of
    /// variance 1, times the root of `v = Σ w²·|shared|²`. That is at most `(α·|g|² + v/α) / 2` for any α, to which the
    /// theorem applies: of many weights v is near its mean.
    fn spread(&self, degree: usize) -> f64 {
        if self.sum == 0.0 {
            return 0.0;
        }
        let x = rarity(degree);
        // Where no weight counts more than g.
        let square = self.most.max(self.sum / x);
        let alpha = square.sqrt();
        let mean = (alpha + self.sum / alpha) / 2.0;
        let bound = mean + (x / 2.0 * (square + self.fourths / square)).sqrt() + x * alpha / 2.0;
        bound / product_tail(degree)
    }
}

/// How far sums of slots, each times a weight, take what the slots are off by: the most of several rows of weights.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Weights {
    /// The sum of magnitudes: so far where all slots are off alike.
    sum: f64,
    /// The root of the sum of squares: so far where they are off independently.
    norm: f64,
    /// So far products by a polynomial that all slots share: by digits in switches of keys, by the secret in what is
    /// fresh.
    products: f64,
    /// So far products by the secret in rotations, of which a run is turned together and takes it at one slot.
    runs: f64,
}

impl Weights {
    /// Measures one row. Runs of weights are of `length`, from `first` on, and what is before goes with what is left
    /// at the end, as runs go around the slots.
    pub(super) fn of_row(row: &[f64], (first, length): (usize, usize), degree: usize) -> Self {
        let (mut each, mut runs) = (Squares::default(), Squares::default());
        row.iter().for_each(|weight| each.add(weight * weight));
        let squares = |run: &[f64]| run.iter().map(|weight| weight * weight).sum::<f64>();
        let (head, rest) = row.split_at(first.min(row.len()));
        let whole = rest.chunks_exact(length);
        runs.add(squares(head) + squares(whole.remainder()));
        whole.for_each(|run| runs.add(squares(run)));
        let [products, runs] = [&each, &runs].map(|squares| squares.spread(degree));
        let sum = row.iter().map(|weight| weight.abs()).sum();
        Self { sum, norm: each.sum.sqrt(), products, runs }
    }

    /// Returns the larger of each.
    pub(super) fn max(self, other: Self) -> Self {
        Self {
            sum: self.sum.max(other.sum),
            norm: self.norm.max(other.norm),
            products: self.products.max(other.products),
            runs: self.runs.max(other.runs),
        }
    }

    /// Returns the bound on a product by a matrix with such rows, rescaled once. Encodings of its diagonals are off by
    /// `rounded` together; `turns` sums of products are rotated, at the scale of products.
    pub(super) fn product(
        self,
        set: &Parameters,
        (a, level): (Bound, usize),
        (rounded, turns): (f64, f64),
    ) -> Bound {
        let (scale, below) = (set.scale(level), set.scale(level - 1));
        let [switch, division] = [of_switch(set, level), of_division(set)];
        let rounding = at_slots(set.degree(), ROUNDING);
        let (fixed, fresh) = self.inherited(set, a, level);
        // All of these are independent of each other.
        let random = [
            fresh,
            self.products * switch / scale,
            self.runs * (division - rounding) / scale,
            self.norm * rounding / scale,
            division / below,
        ];
        let random = random.into_iter().fold(0.0, f64::hypot);
        let turned = (switch + division) / scale;
        let encoded = rounded * (a.magnitude + a.error + turned);
        let error = fixed + random + encoded + turns * turned / scale;
        Bound { magnitude: a.magnitude * self.sum, error }
    }

    /// Returns what a ciphertext's own error becomes: what is fixed, and what is independent of all that is done.
    ///
    /// A ciphertext is off independently in each slot as long as nothing was computed with it, but for what its
    /// encoding rounded. That is known by its bound: whatever else is on the top level is off by more.
    fn inherited(self, set: &Parameters, a: Bound, level: usize) -> (f64, f64) {
        let scale = set.scale(level);
        let is_fresh = |public| {
            level == set.top_level() && a.error == set.fresh_bound(a.magnitude, public).error
        };
        let fixed = self.norm * of_encoding(set) / scale;
        let random = a.error - of_encoding(set) / scale;
        // By the public key nearly all are products, by the secret none.
        let single =
            at_slots(set.degree(), ROUNDING) + at_slots(set.degree(), NOISE) / special(set);
        match (is_fresh(true), is_fresh(false)) {
            (true, _) => (fixed, self.products * random + self.norm * single / scale),
            (_, true) => (fixed, self.norm * random),
            _ => (a.error * self.sum, 0.0),
        }
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

/// Returns the x of which `e^−x`, once for each of N slots, is a chance of 2^-51.
fn rarity(degree: usize) -> f64 {
    (degree as f64).ln() + 51.0 * std::f64::consts::LN_2
}

/// Returns how many deviations no slot is away, but for a chance of 2^-50.
fn tail(degree: usize) -> f64 {
    let x = rarity(degree);
    (1.0 + (2.0 * x).sqrt() + x).sqrt()
}

/// Returns the same of a product, in deviations of both.
fn product_tail(degree: usize) -> f64 {
    let x = rarity(degree);
    1.0 + x.sqrt() + x / 2.0
}

/// Returns the bound at slots on a polynomial with coefficients of this variance.
fn at_slots(degree: usize, variance: f64) -> f64 {
    tail(degree) * (degree as f64 * variance).sqrt()
}

/// Returns the bound at slots on a product of polynomials with coefficients of these variances.
fn product_at_slots(degree: usize, a: f64, b: f64) -> f64 {
    product_tail(degree) * degree as f64 * (a * b).sqrt()
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
    let products = 2.0 * product_at_slots(degree, NOISE, TERNARY);
    (products + at_slots(degree, NOISE)) / special(set) + of_division(set) + of_encoding(set)
}

/// Returns the noise of a division of both parts.
pub(super) fn of_division(set: &Parameters) -> f64 {
    let degree = set.degree();
    at_slots(degree, ROUNDING) + product_at_slots(degree, ROUNDING, TERNARY)
}

/// Returns the noise of a switch of keys on a level, without the division behind it.
pub(super) fn of_switch(set: &Parameters, level: usize) -> f64 {
    let degree = set.degree();
    let digits = set.level(level).digits.iter().map(|digit| {
        let size: f64 = digit.own.primes().iter().map(|&q| q as f64).product();
        product_at_slots(degree, size * size * ROUNDING, NOISE)
    });
    digits.sum::<f64>() / special(set)
}

/// Returns the product of the special primes.
fn special(set: &Parameters) -> f64 {
    set.special().primes().iter().map(|&q| q as f64).product()
}
