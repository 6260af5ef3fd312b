//! Accounting: what the noise of a number of sums protects.
//!
//! A sum of `m` shares is as private as one discrete Gaussian of the same variance, but for the `τ` of each value
//! by which their probabilities differ in logarithm. Its Rényi divergences follow, add up over rounds, and become
//! ε at δ. A part of δ is set aside for what draws are off, [`DISTANCE`] each.

use super::{Mechanism, sampler::DISTANCE};
use crate::error::NoiseError;

/// The part of delta that is set aside for the distance of draws from the discrete Gaussian.
const SET_ASIDE: f64 = 1e-3;

/// The sums that are released, and what is known of their clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Release {
    /// Sums of the same clients' updates.
    pub rounds: u32,
    /// Clients that work together against another: they know their own shares of the noise, and take them off.
    pub colluders: u32,
}

/// A bound on privacy.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Epsilon {
    /// The ε: probabilities of what is seen differ by a factor of `exp(ε)` at most, but for δ.
    pub epsilon: f64,
    /// The Rényi order that it was found at.
    pub order: f64,
    /// The ρ of concentrated differential privacy (zCDP) of all rounds.
    pub rho: f64,
}

impl Mechanism {
    /// Returns the ε at `delta` of a release.
    ///
    /// It is by concentrated differential privacy, the best of all orders. That clients are drawn for a round is not
    /// counted: who takes part is known to whoever sums.
    ///
    /// # Errors
    /// A number is out of its range, or no epsilon holds at the delta.
    pub fn epsilon(&self, release: Release, delta: f64) -> Result<Epsilon, NoiseError> {
        let Release { rounds, colluders } = release;
        if !(delta > 0.0 && delta < 1.0) {
            return Err(NoiseError(format!("a delta of {delta}; choose a number between 0 and 1")));
        }
        if rounds == 0 {
            return Err(NoiseError("a number of rounds of 0; choose 1 or more".into()));
        }
        let unbounded = NoiseError(format!(
            "no epsilon at a delta of {delta}: the noise left by {colluders} colluders is too little; \
             choose a larger sigma, fewer rounds or a larger delta"
        ));
        let shares = self.noise.literal().min_clients.saturating_sub(colluders);
        if shares == 0 {
            return Err(unbounded);
        }
        let rounds = f64::from(rounds);
        let rho = rounds * MomentSum::new(self, shares).rho();
        // From 1 + 2^-12 to 1 + 2^30, a 64th of an octave apart.
        let orders = (-12 * 64..30 * 64).map(|i| 1.0 + (f64::from(i) / 64.0).exp2());
        let found = least(orders.map(|order| epsilon(order, rho, delta)));
        let drawn = rounds * f64::from(shares) * self.values as f64;
        let distance = (1.0 + found.epsilon.exp()) * drawn * DISTANCE;
        if distance <= SET_ASIDE * delta { Ok(found) } else { Err(unbounded) }
    }
}

/// Returns the bound of an order: Canonne, Kamath and Steinke 2020, proposition 12.
fn epsilon(order: f64, rho: f64, delta: f64) -> Epsilon {
    let delta = (1.0 - SET_ASIDE) * delta;
    let others = (-1.0 / order).ln_1p() - (delta.ln() + order.ln()) / (order - 1.0);
    Epsilon { epsilon: (rho * order + others).max(0.0), order, rho }
}

/// Returns the smallest bound of some.
fn least(bounds: impl Iterator<Item = Epsilon>) -> Epsilon {
    let none = Epsilon { epsilon: f64::INFINITY, order: 1.0, rho: f64::INFINITY };
    bounds.fold(none, |best, next| if next.epsilon < best.epsilon { next } else { best })
}

/// One sum with the noise of some shares.
struct MomentSum {
    /// Sensitivity over the standard deviation of the noise.
    ratio: f64,
    values: f64,
    tau: f64,
}

impl MomentSum {
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
}

#[cfg(test)]
mod tests;
