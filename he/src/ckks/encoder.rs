//! Numbers in slots to polynomials and back: the canonical embedding.
//!
//! A polynomial m with real coefficients has the values `m(ζ^(5^j))` at half of the primitive 2N-th
//! roots of unity, `ζ = e^(iπ/N)`; at the other half it has their conjugates. These N/2 complex
//! numbers are the *slots*. Sums and products of polynomials modulo `X^N + 1` are those of slots,
//! and X → X^5 rotates them by one.
//!
//! # Source
//! J. Cheon, A. Kim, M. Kim, Y. Song, "Homomorphic encryption for arithmetic of approximate
//! numbers", 2017; the transform is a complex one of N/2 points twisted by roots, as in their
//! implementation's description.

use std::f64::consts::PI;

use super::CkksError;

/// Bits of the largest coefficient: one that an `i64` holds with room for sums.
const COEFFICIENT_BITS: i32 = 62;

/// Complex numbers, real and imaginary parts apart.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Complex {
    /// Real parts.
    pub re: Vec<f64>,
    /// Imaginary parts.
    pub im: Vec<f64>,
}

impl Complex {
    /// Makes `count` zeros.
    #[must_use]
    pub fn zeros(count: usize) -> Self {
        Self { re: vec![0.0; count], im: vec![0.0; count] }
    }

    /// Returns the index of the first number whose squared size is not within bounds, and the part of it that is to
    /// blame. All are looked at alike: a number that is within bounds takes the same time whatever it is.
    pub(super) fn first_beyond(&self, is_within: impl Fn(f64) -> bool) -> Option<(usize, f64)> {
        let squares = || self.re.iter().zip(&self.im).map(|(re, im)| re * re + im * im);
        if squares().fold(true, |all, square| all & is_within(square)) {
            return None;
        }
        let index = squares().position(|square| !is_within(square))?;
        let (re, im) = (self.re[index], self.im[index]);
        Some((
            index,
            if re.is_finite() && (im.abs() > re.abs() || !im.is_finite()) { im } else { re },
        ))
    }

    /// Makes complex numbers of real ones.
    #[must_use]
    pub fn real(values: &[f64]) -> Self {
        Self { re: values.to_vec(), im: vec![0.0; values.len()] }
    }
}

/// The transform between slots and coefficients for one ring degree.
pub struct Encoder {
    slots: usize,
    /// For each stage, of blocks of 2, 4 … slots, the roots that its butterflies take, one after
    /// the other.
    roots: Vec<Complex>,
    /// Where the slot of each place of a bit-reversed transform is.
    reversed: Vec<u32>,
}

impl Encoder {
    /// Derives the roots for `slots` slots, a power of two.
    #[must_use]
    pub fn new(slots: usize) -> Self {
        let order = 4 * slots;
        let powers: Vec<usize> =
            std::iter::successors(Some(1), |power| Some(power * 5 % order)).take(slots).collect();
        let stages = (1..=slots.trailing_zeros()).map(|stage| {
            let length = 1usize << stage;
            // Of the 4·length-th roots, those at powers of five.
            let angle = |j: usize| {
                let turn = powers[j] % (4 * length);
                2.0 * PI * turn as f64 / (4 * length) as f64
            };
            let angles = (0..length / 2).map(angle);
            let (re, im) = angles.map(|angle| (angle.cos(), angle.sin())).unzip();
            Complex { re, im }
        });
        let bits = slots.trailing_zeros();
        let reversed =
            (0..slots as u32).map(|i| i.reverse_bits().checked_shr(32 - bits).unwrap_or(0));
        Self { slots, roots: stages.collect(), reversed: reversed.collect() }
    }

    /// Encodes numbers, which fill the first slots, at a scale: coefficient i of the polynomial.
    /// `bits` bounds coefficients beside what an `i64` holds; `level` is for errors.
    ///
    /// # Errors
    /// [`CkksError::TooMany`]; [`CkksError::Value`] with the first that is not finite or too large.
    pub fn encode(
        &self,
        values: &Complex,
        (scale, bits, level): (f64, f64, usize),
    ) -> Result<Vec<i64>, CkksError> {
        let count = values.re.len();
        if count > self.slots {
            return Err(CkksError::TooMany { count, slots: self.slots });
        }
        // No coefficient is larger than the largest slot.
        let limit = (bits.min(f64::from(COEFFICIENT_BITS))).exp2() / scale;
        if let Some((index, value)) = values.first_beyond(|square| square < limit * limit) {
            return Err(CkksError::Value { index, value, level, limit });
        }
        let mut slots = Complex::zeros(self.slots);
        slots.re[..count].copy_from_slice(&values.re);
        slots.im[..count].copy_from_slice(&values.im);
        self.inverse(&mut slots);
        let factor = scale / self.slots as f64;
        let rounded = |x: &f64| round(x * factor);
        Ok(slots.re.iter().chain(&slots.im).map(rounded).collect())
    }

    /// Decodes coefficients, which are divided by a scale, to slots.
    #[must_use]
    pub fn decode(&self, coefficients: &[f64], scale: f64) -> Complex {
        let (re, im) = coefficients.split_at(self.slots);
        let scaled = |part: &[f64]| part.iter().map(|x| x / scale).collect();
        let mut slots = Complex { re: scaled(re), im: scaled(im) };
        self.forward(&mut slots);
        slots
    }

    /// Coefficients, `re[i]` of X^i and `im[i]` of X^(N/2 + i), to slots: decimation in time.
    fn forward(&self, x: &mut Complex) {
        self.reverse(x);
        for (stage, roots) in self.roots.iter().enumerate() {
            let half = 1 << stage;
            let blocks = x.re.chunks_exact_mut(2 * half).zip(x.im.chunks_exact_mut(2 * half));
            for (re, im) in blocks {
                let ((a, c), (b, d)) = (re.split_at_mut(half), im.split_at_mut(half));
                for i in 0..half {
                    let (w, v) = (roots.re[i], roots.im[i]);
                    let (re, im) = (c[i] * w - d[i] * v, c[i] * v + d[i] * w);
                    (c[i], d[i]) = (a[i] - re, b[i] - im);
                    (a[i], b[i]) = (a[i] + re, b[i] + im);
                }
            }
        }
    }

    /// Slots to coefficients times N/2: the stages of [`Encoder::forward`] undone, last first.
    fn inverse(&self, x: &mut Complex) {
        for (stage, roots) in self.roots.iter().enumerate().rev() {
            let half = 1 << stage;
            let blocks = x.re.chunks_exact_mut(2 * half).zip(x.im.chunks_exact_mut(2 * half));
            for (re, im) in blocks {
                let ((a, c), (b, d)) = (re.split_at_mut(half), im.split_at_mut(half));
                for i in 0..half {
                    let (w, v) = (roots.re[i], roots.im[i]);
                    let (re, im) = (a[i] - c[i], b[i] - d[i]);
                    (a[i], b[i]) = (a[i] + c[i], b[i] + d[i]);
                    (c[i], d[i]) = (re * w + im * v, im * w - re * v);
                }
            }
        }
        self.reverse(x);
    }

    fn reverse(&self, x: &mut Complex) {
        for (i, &j) in self.reversed.iter().enumerate() {
            let j = j as usize;
            if i < j {
                x.re.swap(i, j);
                x.im.swap(i, j);
            }
        }
    }
}

/// Returns the nearest integer of a number below 2^62, the even one of two: rounding by a sum is quicker
/// than a function of the library, and what is 2^51 or more is within a half of an integer anyway.
fn round(x: f64) -> i64 {
    // Its lowest bit weighs 1.
    const UNIT: f64 = 6_755_399_441_055_744.0;
    let nearest = (x + UNIT) - UNIT;
    (if x.abs() < 2_251_799_813_685_248.0 { nearest } else { x }) as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The values of a polynomial at ζ^(5^j), by Horner's rule.
    fn slots_of(coefficients: &[f64]) -> Complex {
        let n = coefficients.len();
        let mut slots = Complex::default();
        let mut power = 1;
        for _ in 0..n / 2 {
            let angle = PI * power as f64 / n as f64;
            let (w, v) = (angle.cos(), angle.sin());
            let (mut re, mut im) = (0.0, 0.0);
            for c in coefficients.iter().rev() {
                (re, im) = (re * w - im * v + c, re * v + im * w);
            }
            slots.re.push(re);
            slots.im.push(im);
            power = power * 5 % (2 * n);
        }
        slots
    }

    #[test]
    fn slots_are_the_values_at_powers_of_five() {
        for slots in [1, 2, 8, 64] {
            let encoder = Encoder::new(slots);
            let coefficients: Vec<f64> =
                (0..2 * slots).map(|i| (i * i % 17) as f64 - 8.0).collect();
            let (found, expected) = (encoder.decode(&coefficients, 1.0), slots_of(&coefficients));
            for j in 0..slots {
                assert!((found.re[j] - expected.re[j]).abs() < 1e-9, "{slots} slots, {j}");
                assert!((found.im[j] - expected.im[j]).abs() < 1e-9, "{slots} slots, {j}");
            }
            let back = encoder.encode(&found, (1.0, 60.0, 0)).unwrap();
            let expected: Vec<i64> = coefficients.iter().map(|&c| c as i64).collect();
            assert_eq!(back, expected);
        }
    }

    #[test]
    fn numbers_of_any_size_are_rounded() {
        for x in [0.0, 0.4, -0.6, 1.5, 2.5, -2.5, 1e15 + 0.5, 2f64.powi(51) - 0.5, -2f64.powi(61)] {
            assert_eq!(round(x), x.round_ties_even() as i64, "{x}");
        }
    }

    #[test]
    fn what_does_not_fit_is_refused_by_its_index() {
        let encoder = Encoder::new(8);
        let encode = |values: &[f64]| encoder.encode(&Complex::real(values), (1024.0, 20.0, 3));
        assert!(encode(&[1.0, -1023.9]).is_ok());
        for bad in [1024.0, f64::NAN, f64::NEG_INFINITY] {
            let found = encode(&[1.0, bad]);
            assert!(matches!(found, Err(CkksError::Value { index: 1, level: 3, .. })), "{bad}");
        }
        assert_eq!(encode(&[0.0; 9]), Err(CkksError::TooMany { count: 9, slots: 8 }));
    }
}
