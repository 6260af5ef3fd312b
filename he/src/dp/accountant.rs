//! Accounting: what the noise of a number of sums protects.
//!
//! A sum of `m` shares is as private as one discrete Gaussian of the same variance, but for the `τ` of each value
//! by which their probabilities differ in logarithm. Its Rényi divergences follow, add up over rounds, and become
//! ε at δ. A part of δ is set aside for what draws are off, [`DISTANCE`] each.

use super::{Mechanism, sampler::DISTANCE};
use crate::error::NoiseError;

/// The part of delta that is set aside for the distance of draws from the discrete Gaussian.
const SET_ASIDE: f64 = 1e-3;

/// The largest order of sampled sums.
const MAX_ORDER: u32 = 512;

/// The sums that are released, and what is known of their clients.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Release {
    /// Sums of the same clients' updates.
    pub rounds: u32,
    /// Clients that work together against another: they know their own shares of the noise, and take them off.
    pub colluders: u32,
    /// The probability that a contribution to a sum is of a client's update, drawn for each (Poisson sampling), rather
    /// than of zeros with its noise. Counts only against those who cannot tell which.
    pub sample: f64,
}

/// A bound on privacy.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Epsilon {
    /// The ε: probabilities of what is seen differ by a factor of `exp(ε)` at most, but for δ.
    pub epsilon: f64,
    /// The Rényi order that it was found at.
    pub order: f64,
    /// The ρ of concentrated differential privacy (zCDP) of all rounds; none if clients are sampled.
    pub rho: Option<f64>,
}

impl Mechanism {
    /// Returns the ε at `delta` of a release.
    ///
    /// Without sampling it is by concentrated differential privacy, the best of all orders; with it, by Rényi
    /// divergences of integer orders up to 512: those between have no formula for noise that is discrete.
    ///
    /// # Errors
    /// [`NoiseError::Release`] if a number is out of its range, or [`NoiseError::Unbounded`].
    pub fn epsilon(&self, release: Release, delta: f64) -> Result<Epsilon, NoiseError> {
        let Release { rounds, colluders, sample } = release;
        let refuse = |what, found, choose| Err(NoiseError::Release { what, found, choose });
        if !(delta > 0.0 && delta < 1.0) {
            return refuse("a delta", delta, "a number between 0 and 1");
        }
        if !(sample > 0.0 && sample <= 1.0) {
            return refuse("a sampling rate", sample, "a number above 0, up to 1");
        }
        if rounds == 0 {
            return refuse("a number of rounds", 0.0, "1 or more");
        }
        let unbounded = NoiseError::Unbounded { delta, colluders };
        let shares = self.noise.literal().min_clients.saturating_sub(colluders);
        if shares == 0 {
            return Err(unbounded);
        }
        let sum = Sum::new(self, shares);
        let rounds = f64::from(rounds);
        let found = if sample < 1.0 {
            least((2..=MAX_ORDER).map(|order| {
                let divergence = sum.sampled_divergence(order, sample);
                epsilon(f64::from(order), rounds * divergence, delta, None)
            }))
        } else {
            let rho = rounds * sum.rho();
            // From 1 + 2^-12 to 1 + 2^30, a 64th of an octave apart.
            let orders = (-12 * 64..30 * 64).map(|i| 1.0 + (f64::from(i) / 64.0).exp2());
            least(orders.map(|order| epsilon(order, rho * order, delta, Some(rho))))
        };
        let drawn = rounds * f64::from(shares) * self.values as f64;
        let distance = (1.0 + found.epsilon.exp()) * drawn * DISTANCE;
        if distance <= SET_ASIDE * delta { Ok(found) } else { Err(unbounded) }
    }
}

/// Returns the bound of an order: Canonne, Kamath and Steinke 2020, proposition 12.
fn epsilon(order: f64, divergence: f64, delta: f64, rho: Option<f64>) -> Epsilon {
    let delta = (1.0 - SET_ASIDE) * delta;
    let others = (-1.0 / order).ln_1p() - (delta.ln() + order.ln()) / (order - 1.0);
    Epsilon { epsilon: (divergence + others).max(0.0), order, rho }
}

/// Returns the smallest bound of some.
fn least(bounds: impl Iterator<Item = Epsilon>) -> Epsilon {
    let none = Epsilon { epsilon: f64::INFINITY, order: 1.0, rho: None };
    bounds.fold(none, |best, next| if next.epsilon < best.epsilon { next } else { best })
}

/// One sum with the noise of some shares.
struct Sum {
    /// Sensitivity over the standard deviation of the noise.
    ratio: f64,
    values: f64,
    tau: f64,
}

impl Sum {
    /// Source of τ: Kairouz, Liu and Steinke 2021, theorem 1.
    fn new(mechanism: &Mechanism, shares: u32) -> Self {
        let variance = mechanism.share_variance;
        let ratio = (mechanism.squared_norm as f64 / (f64::from(shares) * variance)).sqrt();
        let term = |k: u32| {
            let part = f64::from(k) / f64::from(k + 1);
            (-2.0 * std::f64::consts::PI.powi(2) * variance * part).exp()
        };
        let tau = 10.0 * (1..shares).map(term).sum::<f64>();
        Self { ratio, values: mechanism.values as f64, tau }
    }

    /// Returns the ρ of its concentrated differential privacy: its Rényi divergence of any order α is at most ρ·α.
    fn rho(&self) -> f64 {
        let summed = self.ratio * self.ratio + 2.0 * self.tau * self.values;
        let rooted = self.ratio + self.tau * self.values.sqrt();
        summed.min(rooted * rooted) / 2.0
    }

    /// Returns its Rényi divergence of an integer order from 2 if each update is in it with probability `q` below 1.
    ///
    /// # Source
    /// I. Mironov, K. Talwar, L. Zhang, "Rényi Differential Privacy of the Sampled Gaussian Mechanism", 2019, for
    /// integer orders. Only the moments and the symmetry of the noise enter, which the discrete Gaussian has too:
    /// `he/docs/noise.md`.
    fn sampled_divergence(&self, order: u32, q: f64) -> f64 {
        let (rho, alpha) = (self.rho(), f64::from(order));
        let (log_q, log_rest) = (q.ln(), (-q).ln_1p());
        let mut log_binomial = 0.0;
        let terms = (0..=order).map(|k| {
            let (taken, left) = (f64::from(k), f64::from(order - k));
            let term = log_binomial + left * log_rest + taken * log_q + taken * (taken - 1.0) * rho;
            log_binomial += (left / (taken + 1.0)).ln();
            term
        });
        // Sampling never harms.
        (log_sum(&terms.collect::<Vec<_>>()) / (alpha - 1.0)).min(alpha * rho)
    }
}

/// Returns the logarithm of the sum of the exponentials of `terms`.
fn log_sum(terms: &[f64]) -> f64 {
    let largest = terms.iter().fold(f64::NEG_INFINITY, |most, &t| most.max(t));
    largest + terms.iter().map(|t| (t - largest).exp()).sum::<f64>().ln()
}

#[cfg(test)]
mod tests;
