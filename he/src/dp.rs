//! Differential privacy of sums: discrete Gaussian noise that clients add together.
//!
//! Each client clips its whole update to an L2 norm, rounds it to integers whose norm is checked, and adds its share
//! of the noise before anything is encrypted. A share is as large as the *fewest* clients of a sum need together, so
//! clients that drop out never leave a sum with less than was agreed. [`Noise`] is what a job agrees on, [`Mechanism`]
//! what follows from it at a range and a precision, with [`Mechanism::epsilon`] for what it protects, and
//! [`Quantised::noised`](crate::Quantised::noised) what a client does. `he/docs/noise.md` has the proofs.
//!
//! # Units
//! `clip` and ranges are as the values of tensors are. `sigma` is the standard deviation of the noise of a *sum* of
//! the fewest clients in multiples of the clip: the *noise multiplier* of the literature. Variances and norms inside a
//! [`Mechanism`] are in steps: integers as they are summed.
//!
//! # Neighbours
//! Two sums are neighbours if one client's update is zeros in one of them. Who takes part is public.
//!
//! # Source
//! P. Kairouz, Z. Liu, T. Steinke, "The Distributed Discrete Gaussian Mechanism for Federated Learning with Secure
//! Aggregation", ICML 2021.

mod accountant;
mod fixed;
mod mechanism;
mod quantise;
mod sampler;

use serde::{Deserialize, Serialize};

use crate::{error::NoiseError, params::MAX_CLIENTS};

pub use accountant::{Epsilon, Release};
pub use mechanism::Mechanism;

/// Standard deviations of a client's noise above the clip that a range must hold.
pub const TAIL: f64 = 12.0;

/// The choices that noise is derived from.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Literal {
    /// Standard deviation of the noise of a sum of the fewest clients, in multiples of the clip.
    pub sigma: f64,
    /// The L2 norm that a client's whole update is clipped to.
    pub clip: f64,
    /// The most clients of a sum.
    pub clients: u32,
    /// The fewest clients of a sum that is opened.
    pub min_clients: u32,
}

/// Checked noise that the clients of a job agree on.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Literal", into = "Literal")]
pub struct Noise(Literal);

impl Noise {
    /// Checks the choices.
    ///
    /// # Errors
    /// A sigma or clip that is not positive and finite; numbers of clients that are none.
    pub fn new(literal: Literal) -> Result<Self, NoiseError> {
        let Literal { sigma, clip, clients, min_clients } = literal;
        if !(1..=MAX_CLIENTS).contains(&clients) || !(1..=clients).contains(&min_clients) {
            let why = format!(
                "{min_clients} to {clients} clients; choose 1 to {MAX_CLIENTS}, and the fewest first"
            );
            return Err(NoiseError(why));
        }
        if !sigma.is_finite() || sigma <= 0.0 {
            let why = format!(
                "a sigma of {sigma}; choose a positive number, the noise of a sum in multiples of the clip"
            );
            return Err(NoiseError(why));
        }
        let noise = Self(literal);
        if !clip.is_normal() || clip < 0.0 || !noise.range().is_finite() {
            let why = format!(
                "a clip of {clip}; choose a positive number that leaves doubles room for the noise"
            );
            return Err(NoiseError(why));
        }
        Ok(noise)
    }

    /// Returns the choices.
    #[must_use]
    pub fn literal(&self) -> Literal {
        self.0
    }

    /// Returns the standard deviation of one client's share, as the values are.
    #[must_use]
    pub fn share_deviation(&self) -> f64 {
        self.0.sigma / f64::from(self.0.min_clients).sqrt() * self.0.clip
    }

    /// Returns the smallest range of all tensors with headroom for the clip and [`TAIL`] standard deviations of a
    /// client's share above it: the range to agree on.
    #[must_use]
    pub fn range(&self) -> f64 {
        self.0.clip + TAIL * self.share_deviation()
    }
}

impl TryFrom<Literal> for Noise {
    type Error = NoiseError;

    fn try_from(literal: Literal) -> Result<Self, NoiseError> {
        Self::new(literal)
    }
}

impl From<Noise> for Literal {
    fn from(noise: Noise) -> Self {
        noise.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LITERAL: Literal = Literal { sigma: 1.0, clip: 2.0, clients: 8, min_clients: 4 };

    #[test]
    fn choices_are_checked_also_from_json() {
        let noise = Noise::new(LITERAL).unwrap();
        assert_eq!((noise.share_deviation(), noise.range()), (1.0, 14.0));
        let text = serde_json::to_string(&noise).unwrap();
        assert_eq!(text, r#"{"sigma":1.0,"clip":2.0,"clients":8,"min_clients":4}"#);
        assert_eq!(serde_json::from_str::<Noise>(&text).unwrap(), noise);
        for (from, to, why) in [
            ("\"sigma\":1.0", "\"sigma\":-1.0", "a sigma of -1; choose a positive number"),
            ("\"clip\":2.0", "\"clip\":0.0", "a clip of 0; choose a positive number"),
            ("\"min_clients\":4", "\"min_clients\":9", "9 to 8 clients; choose 1 to 1024"),
            ("\"clients\":8", "\"clients\":1025", "4 to 1025 clients"),
            ("\"clients\":8", "\"clients\":8,\"beta\":1", "unknown field `beta`"),
            ("\"sigma\":1.0,", "", "missing field `sigma`"),
        ] {
            let error = serde_json::from_str::<Noise>(&text.replace(from, to)).unwrap_err();
            assert!(error.to_string().starts_with(why), "{error}");
        }
    }

    #[test]
    fn numbers_that_are_none_are_refused() {
        for sigma in [0.0, -0.0, f64::NAN, f64::INFINITY] {
            let error = Noise::new(Literal { sigma, ..LITERAL }).unwrap_err();
            assert!(error.0.starts_with(&format!("a sigma of {sigma}; choose")), "{error}");
        }
        for clip in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e308, 1e-310] {
            let error = Noise::new(Literal { clip, ..LITERAL }).unwrap_err();
            assert!(error.0.starts_with(&format!("a clip of {clip}; choose")), "{error}");
        }
        for (clients, min_clients) in [(0, 0), (1, 0), (1, 2), (1025, 1)] {
            let error = Noise::new(Literal { clients, min_clients, ..LITERAL }).unwrap_err();
            assert!(error.0.starts_with(&format!("{min_clients} to {clients} clients; choose")));
        }
    }
}
