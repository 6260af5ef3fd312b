//! The noise of a job at a range and a precision: variances and norms in steps.

use super::{Noise, TAIL};
use crate::error::NoiseError;

/// `ln(1/β)` for β = 10^-6, the probability at most that an update is rounded once more.
const LN_RETRIES: f64 = 13.815510557964274;

/// What a client does to an update of a number of values, and what that protects.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Mechanism {
    pub(super) noise: Noise,
    pub(super) half_steps: u32,
    pub(super) range: f64,
    pub(super) values: usize,
    /// Variance of one client's share.
    pub(super) share_variance: f64,
    /// Largest square of the L2 norm of a rounded update.
    pub(super) squared_norm: u64,
}

impl Mechanism {
    /// Derives it for updates of `values` values in a range of `half_steps` steps on either side of zero.
    ///
    /// With the clip `c` in steps and `d` values, a rounded update is kept within the norm whose square is the smaller
    /// of `(c + √d)²`, which no rounding passes, and `c² + d/4 + √(2·ln(1/β))·(c + √d/2)`, which one passes with a
    /// probability of at most β = 10^-6 (Kairouz, Liu and Steinke 2021).
    ///
    /// # Errors
    /// The range holds the clip but not the tail of the noise; noise that is narrower than a step.
    pub fn new(
        noise: Noise,
        range: f64,
        half_steps: u32,
        values: usize,
    ) -> Result<Self, NoiseError> {
        let (literal, deviation, needed) =
            (noise.literal(), noise.share_deviation(), noise.range());
        // No number at all is less than it, too.
        if !(range >= needed && range.is_finite()) {
            let (sigma, clip) = (literal.sigma, literal.clip);
            return Err(NoiseError(format!(
                "a sigma of {sigma} has no headroom: the range is {range}, but the clip of {clip} and {TAIL} \
                 standard deviations of a client's noise, {deviation} each, take {needed}; choose a range of \
                 {needed} or more, a smaller sigma, or more clients at least"
            )));
        }
        let steps = |x: f64| x / range * f64::from(half_steps);
        let (clip, deviation) = (steps(literal.clip), steps(deviation));
        if deviation < 1.0 {
            return Err(NoiseError(format!(
                "a client's noise has a standard deviation of {deviation} steps, less than 1: choose a larger \
                 sigma, a smaller range, more bits, or fewer clients at least"
            )));
        }
        let root = (values as f64).sqrt();
        let likely =
            clip * clip + values as f64 / 4.0 + (2.0 * LN_RETRIES).sqrt() * (clip + root / 2.0);
        let squared_norm = likely.min((clip + root) * (clip + root)) as u64;
        let share_variance = deviation * deviation;
        Ok(Self { noise, half_steps, range, values, share_variance, squared_norm })
    }

    /// Returns the range of all tensors.
    #[must_use]
    pub fn range(&self) -> f64 {
        self.range
    }

    /// Returns the value of a step.
    #[must_use]
    pub fn step(&self) -> f64 {
        self.range / f64::from(self.half_steps)
    }

    /// Returns the variance of one client's share of the noise, in squared steps: that of the sum's noise over the
    /// fewest clients, so that more of them only add to it.
    #[must_use]
    pub fn share_variance(&self) -> f64 {
        self.share_variance
    }

    /// Returns the largest square of the L2 norm of an update in steps: the sensitivity of a sum to one client.
    #[must_use]
    pub fn squared_norm(&self) -> u64 {
        self.squared_norm
    }

    /// Returns the largest magnitude of a rounded value.
    pub(super) fn largest_value(&self) -> u32 {
        (self.noise.literal().clip / self.range * f64::from(self.half_steps)).ceil() as u32
    }

    /// Returns the largest magnitude of a draw, so that no value with its noise leaves the range: at least [`TAIL`]
    /// standard deviations less 1.
    pub(super) fn largest_draw(&self) -> i32 {
        (self.half_steps - self.largest_value()) as i32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dp::Literal;

    fn noise(sigma: f64, min_clients: u32) -> Noise {
        Noise::new(Literal { sigma, clip: 1.0, clients: 1024, min_clients }).unwrap()
    }

    const HALF_16: u32 = (1 << 15) - 1;

    #[test]
    fn a_sigma_without_headroom_is_refused_with_the_numbers() {
        let noise = noise(2.0, 4);
        assert_eq!(noise.range(), 13.0);
        assert!(Mechanism::new(noise, 13.0, HALF_16, 10).is_ok());
        for range in [12.999, 1.0, 0.0, -13.0, f64::NAN, f64::INFINITY] {
            let error = Mechanism::new(noise, range, HALF_16, 10).unwrap_err();
            let text = format!(
                "a sigma of 2 has no headroom: the range is {range}, but the clip of 1 and 12 standard \
                 deviations of a client's noise, 1 each, take 13; choose a range of 13 or more, a \
                 smaller sigma, or more clients at least"
            );
            assert_eq!(error.to_string(), text);
        }
    }

    #[test]
    fn noise_narrower_than_a_step_is_refused() {
        let small = noise(1e-3, 4);
        let error = Mechanism::new(small, small.range(), 127, 10).unwrap_err();
        assert!(error.to_string().contains("0.06312"), "{error}");
        assert!(error.to_string().contains("less than 1: choose a larger sigma"), "{error}");
        assert!(Mechanism::new(small, small.range(), HALF_16, 10).is_ok());
    }

    #[test]
    fn shares_of_the_fewest_clients_are_the_whole_noise_and_more_only_add() {
        for min_clients in [1, 2, 3, 10, 1000] {
            let noise = noise(1.0, min_clients);
            let m = Mechanism::new(noise, noise.range(), HALF_16, 10).unwrap();
            let agreed = (1.0 / m.step()).powi(2);
            let least = f64::from(min_clients) * m.share_variance();
            assert!((least / agreed - 1.0).abs() < 1e-12, "{min_clients} clients");
        }
    }

    #[test]
    fn the_bound_of_the_norm_is_that_of_the_paper() {
        let noise = noise(0.1, 1);
        let of = |values| {
            let m = Mechanism::new(noise, 32767.0 / 1000.25, HALF_16, values).unwrap();
            m.squared_norm() as f64
        };
        // With one value the bound that always holds is the smaller one, then the other.
        assert_eq!(of(1), (1001.25f64 * 1001.25).floor());
        let likely = 1000.25 * 1000.25 + 2.5e5 + (2.0 * 1e6f64.ln()).sqrt() * (1000.25 + 500.0);
        assert_eq!(of(1_000_000), likely.floor());
    }

    #[test]
    fn a_value_at_its_largest_with_its_noise_stays_within_the_range() {
        for (sigma, min_clients) in [(0.1, 3), (1.0, 3), (7.3, 5), (1e6, 1)] {
            for half_steps in [127, HALF_16, (1 << 23) - 1] {
                let noise = noise(sigma, min_clients);
                let Ok(m) = Mechanism::new(noise, noise.range(), half_steps, 10) else {
                    panic!("{sigma} at {half_steps}");
                };
                assert_eq!(m.largest_value() + m.largest_draw() as u32, half_steps);
                let tail = TAIL * m.share_variance().sqrt();
                assert!(f64::from(m.largest_draw()) + 1.0 >= tail * (1.0 - 1e-12));
            }
        }
    }
}
