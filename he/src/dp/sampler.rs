//! A sampler of the discrete Gaussian by tables: integers `v` with probability proportional to `exp(-v²/2σ²)`.
//!
//! No floating point takes part in a draw. A [`Table`] draws from a distribution whose probabilities are multiples of
//! 2^-127, exactly, by Walker's alias method: it chooses an entry at random, and takes it or its alias. Tables have the
//! size of a core's cache, for σ up to 2730; a larger σ is drawn as `k·a + b` of two tables.
//!
//! # Distance
//! [`DISTANCE`] bounds the total variation distance between a draw and the discrete Gaussian, for every variance that a
//! [`Mechanism`](super::Mechanism) admits. It is more than the sum of
//! - tables: their weights are off by what [`Table::new`] says, 2^-102 of their sum, in each of two;
//! - ends: a discrete Gaussian is beyond 12σ with a probability of at most `2·exp(-72)` < 2^-102, since it is
//!   subgaussian (Canonne, Kamath and Steinke 2020), for each of two tables and for the bound;
//! - `k·a + b`, of deviations σ₁ and `s = 4k`, where `σ² = k²·σ₁² + s²`: the probability of z is proportional to
//!   `exp(-z²/2σ²)` times a sum over a shifted lattice of a Gaussian of deviation `s' = σ₁·s/σ`, which by Poisson's
//!   summation formula is constant within a factor of `1 ± 2.1·exp(-2π²·s'²)`, and s' is above 3.
//!
//! # Time
//! A draw takes the same instructions whatever it draws, but for one in 2^48, which needs more random bits. It reads an
//! entry of a table at a random place, which the noise depends on: who shares a core's caches may learn about noise.
//! Nothing depends on the values that noise is added to.
//!
//! # Sources
//! C. Canonne, G. Kamath, T. Steinke, "The Discrete Gaussian for Differential Privacy", 2020 (the distribution; the
//! tests draw by their algorithms too). M. Vose, "A Linear Algorithm for Generating Random Numbers with a Given
//! Distribution", 1991. T. Pöppelmann, L. Ducas, T. Güneysu, "Enhanced Lattice-Based Signatures on Reconfigurable
//! Hardware", 2014 (sums of two tables).

use rand_core::Rng;
use zeroize::Zeroizing;

use super::{
    TAIL,
    fixed::{ONE, divide, exp_neg, mul},
};
use crate::tensors::BLOCK;

/// The largest distance of a draw from the discrete Gaussian, in total variation: 2^-96.
pub(super) const DISTANCE: f64 = 1.0 / (1u128 << 96) as f64;

/// The largest deviation of one table: its entries reach 12 of them.
const MAX_DEVIATION: f64 = 2730.0;
/// The deviation of the multiplied table where there are two, about.
const COARSE_DEVIATION: f64 = 2048.0;

/// A sampler for one variance.
pub(super) struct DiscreteGaussian {
    /// Tables, and what their draws are multiplied by before they are added.
    parts: Vec<(i32, Table)>,
    bound: i32,
}

impl DiscreteGaussian {
    /// Makes the tables of a variance from 1 to 2^40, no smaller than it and at most a 2^-38th larger. Draws end at
    /// `±bound`, which is at least 12 standard deviations less 1.
    pub(super) fn new(variance: f64, bound: i32) -> Self {
        let deviation = variance.sqrt();
        let parts = if deviation <= MAX_DEVIATION {
            vec![(1, Table::of_variance(variance))]
        } else {
            let factor = (deviation / COARSE_DEVIATION).ceil();
            let fine = 16.0 * factor * factor;
            // Rounding down in one of these operations may not make the variance smaller.
            let coarse = (variance - fine) / (factor * factor) * (1.0 + 2f64.powi(-40));
            vec![(factor as i32, Table::of_variance(coarse)), (1, Table::of_variance(fine))]
        };
        Self { parts, bound }
    }

    /// Adds a draw to each field; a negative sum would wrap around.
    pub(super) fn add_to(&self, fields: &mut [u32], rng: &mut impl Rng) {
        let mut random = Zeroizing::new(vec![0; 8 * BLOCK]);
        let mut draws = Zeroizing::new([0; BLOCK]);
        for fields in fields.chunks_mut(BLOCK) {
            let (random, draws) = (&mut random[..8 * fields.len()], &mut draws[..fields.len()]);
            draws.fill(0);
            for (factor, table) in &self.parts {
                rng.fill_bytes(random);
                let words = random.as_chunks().0.iter().map(|bytes| u64::from_le_bytes(*bytes));
                for (draw, word) in draws.iter_mut().zip(words) {
                    *draw += factor * table.draw(word, rng);
                }
            }
            for (field, &draw) in fields.iter_mut().zip(draws.iter()) {
                *field = field.wrapping_add_signed(draw.clamp(-self.bound, self.bound));
            }
        }
    }
}

/// Entries of a table.
const SIZE: usize = 1 << INDEX_BITS;
const INDEX_BITS: u32 = 15;
/// Bits of a random word above index and sign, which are compared with a threshold, and of all of a threshold.
const FRACTION_BITS: u32 = 48;
const THRESHOLD_BITS: u32 = 127 - INDEX_BITS;

/// An alias table of the magnitudes 0, 1, 2 and so on; a random sign makes draws of them.
///
/// An entry, at the index of a magnitude, is a threshold and an alias: the magnitude stays what it is with a
/// probability of the threshold over 2^112, and becomes the alias otherwise.
struct Table {
    /// Highest 48 bits of a threshold, above an alias.
    entries: Box<[u64]>,
    /// The other 64 bits of thresholds.
    lower: Box<[u64]>,
}

impl Table {
    /// Makes the table of a variance, or of one that is larger by a 2^-49th at most.
    fn of_variance(variance: f64) -> Self {
        let rate = (1.0 - 2f64.powi(-50)) / (2.0 * variance);
        Self::new((rate * ONE as f64) as u128)
    }

    /// Makes the table of `exp(-v²·rate)` for a rate, `1/2σ²`, of at most a half: magnitudes up to 12σ.
    ///
    /// The weights w follow from `exp(-(v+1)²·rate) = exp(-v²·rate) · q`, where `q = exp(-(2v+1)·rate)` shrinks by
    /// `exp(-2·rate)` each time. Both exponentials are within 4u and products within u, so the q of v is within
    /// 5(v+1)u, and weight v + 1 is off by `5(v+1)·w·u + u` more than what the product makes of the error before. All
    /// errors together are `2.5·Σ (v+1)(v+2)·w·u` of the former kind and `12σ·1.3(σ+1)·u` of the latter: over the sum
    /// of weights, about 1.25σ, less than `3(σ+2)²·u + 13(σ+1)·u`, which is below 2^-102 for σ up to 2730. Making them
    /// sum to one moves less.
    fn new(rate: u128) -> Self {
        let deviation = (ONE as f64 / (2.0 * rate as f64)).sqrt();
        let count = ((TAIL * deviation) as usize + 1).min(SIZE);
        let (mut weight, mut factor, shrink) = (ONE, exp_neg(rate), exp_neg(2 * rate));
        let mut weights = Vec::with_capacity(SIZE);
        for _ in 0..count {
            weights.push(weight);
            weight = mul(weight, factor);
            factor = mul(factor, shrink);
        }
        // In units of 2^-111: there are thousands of them. Magnitudes but 0 are of two values.
        let sum = |weights: &[u128]| weights.iter().map(|w| w >> 16).sum::<u128>();
        let total = 2 * sum(&weights) - (weights[0] >> 16);
        let inverse = divide(ONE >> 16, total);
        weights.iter_mut().for_each(|w| *w = mul(*w, inverse) << 1);
        let rest: u128 = weights[1..].iter().sum();
        weights[0] = ONE - rest;
        Self::of_probabilities(weights)
    }

    /// Makes the table of probabilities that sum to one, by Vose's method: what an entry of less than its part lacks
    /// is an alias of one that has more.
    fn of_probabilities(mut probabilities: Vec<u128>) -> Self {
        const PART: u128 = 1 << THRESHOLD_BITS;
        probabilities.resize(SIZE, 0);
        let mut entries: Box<[_]> = (0..SIZE as u64).collect();
        let mut lower: Box<[_]> = vec![0; SIZE].into();
        let (mut less, mut more): (Vec<_>, Vec<_>) =
            (0..SIZE).partition(|&v| probabilities[v] < PART);
        while let (Some(v), Some(&alias)) = (less.pop(), more.last()) {
            let threshold = probabilities[v];
            let upper = (threshold >> (THRESHOLD_BITS - FRACTION_BITS)) as u64;
            (entries[v], lower[v]) = (upper << 16 | alias as u64, threshold as u64);
            probabilities[alias] -= PART - threshold;
            if probabilities[alias] < PART {
                less.extend(more.pop());
            }
        }
        Self { entries, lower }
    }

    /// Returns the draw of a random word: its lowest bits are an index, the next a sign, and the rest the beginning of
    /// a fraction, of which `rng` gives more if it is that of the threshold.
    #[inline]
    fn draw(&self, word: u64, rng: &mut impl Rng) -> i32 {
        let index = word as usize % SIZE;
        let entry = self.entries[index];
        let (fraction, threshold) = (word >> 16, entry >> 16);
        let mut stays = fraction < threshold;
        if fraction == threshold {
            stays = rng.next_u64() < self.lower[index];
        }
        let stays = 0u64.wrapping_sub(u64::from(stays));
        let magnitude = (index as u64 & stays | entry & 0xffff & !stays) as i32;
        let sign = (word as i32) << 16 >> 31;
        (magnitude ^ sign) - sign
    }
}

#[cfg(test)]
mod tests;
