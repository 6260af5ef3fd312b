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

use zeroize::Zeroize;

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

    /// Returns its first half and its second.
    fn halves(&mut self) -> (Half<'_>, Half<'_>) {
        let half = self.re.len() / 2;
        let ((a, c), (b, d)) = (self.re.split_at_mut(half), self.im.split_at_mut(half));
        ((a, b), (c, d))
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
    /// For each stage, of transforms of 2, 4 … slots, the roots that its butterflies take, one after the other.
    roots: Vec<Complex>,
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
        Self { slots, roots: stages.collect() }
    }

    /// Encodes numbers, which fill the first slots, at a scale: coefficient i of the polynomial.
    /// `bits` bounds coefficients beside what an `i64` holds; `level` is for errors.
    ///
    /// # Errors
    /// [`CkksError::Vectors`]; [`CkksError::Value`] with the first that is not finite or too large.
    pub fn encode(
        &self,
        values: &Complex,
        (scale, bits, level): (f64, f64, usize),
    ) -> Result<Vec<i64>, CkksError> {
        let count = values.re.len();
        if count > self.slots {
            return Err(CkksError::too_many(count, self.slots));
        }
        // No coefficient is larger than the largest slot.
        let limit = (bits.min(f64::from(COEFFICIENT_BITS))).exp2() / scale;
        if let Some((index, value)) = values.first_beyond(|square| square < limit * limit) {
            return Err(CkksError::Value { index, value, level, limit });
        }
        let mut slots = Complex::zeros(self.slots);
        slots.re[..count].copy_from_slice(&values.re);
        slots.im[..count].copy_from_slice(&values.im);
        let mut slots = self.inverse(slots);
        let factor = scale / self.slots as f64;
        let rounded = |x: &f64| round(x * factor);
        let coefficients = slots.re.iter().chain(&slots.im).map(rounded).collect();
        slots.zeroize();
        Ok(coefficients)
    }

    /// Decodes coefficients, which are divided by a scale, to slots.
    #[must_use]
    pub fn decode(&self, coefficients: &[f64], scale: f64) -> Complex {
        let (re, im) = coefficients.split_at(self.slots);
        // The time of a quotient depends on its operands, by far more than that of a product.
        let inverse = scale.recip();
        let scaled = |part: &[f64]| part.iter().map(|x| x * inverse).collect();
        self.forward(Complex { re: scaled(re), im: scaled(im) })
    }

    /// Coefficients, `re[i]` of X^i and `im[i]` of X^(N/2 + i), to slots: decimation in time, of which each stage
    /// writes its results in the order that the next one reads (Stockham), so that nothing need be reversed.
    fn forward(&self, mut from: Complex) -> Complex {
        let mut to = Complex::zeros(self.slots);
        for roots in &self.roots {
            let (low, high) = to.halves();
            // Short runs, of a length that the compiler knows, are vector code of their own.
            match self.slots / (2 * roots.re.len()) {
                1 => merge(1, roots, &from, low, high),
                2 => merge(2, roots, &from, low, high),
                run => merge(run, roots, &from, low, high),
            }
            std::mem::swap(&mut from, &mut to);
        }
        to.zeroize();
        from
    }

    /// Slots to coefficients times N/2: the stages of [`Encoder::forward`] undone, last first.
    fn inverse(&self, mut from: Complex) -> Complex {
        let mut to = Complex::zeros(self.slots);
        for roots in self.roots.iter().rev() {
            let (low, high) = from.halves();
            match self.slots / (2 * roots.re.len()) {
                1 => split(1, roots, low, high, &mut to),
                2 => split(2, roots, low, high, &mut to),
                run => split(run, roots, low, high, &mut to),
            }
            std::mem::swap(&mut from, &mut to);
        }
        to.zeroize();
        from
    }
}

impl Zeroize for Complex {
    fn zeroize(&mut self) {
        self.re.zeroize();
        self.im.zeroize();
    }
}

/// Half of some complex numbers: real and imaginary parts.
type Half<'a> = (&'a mut [f64], &'a mut [f64]);

/// Makes one transform of two, for each of `run` pairs: block k of `from` is a run of numbers a and a run of numbers c,
/// with root w number k; a + w·c comes to block k of `low`, which is a run, and a − w·c to that of `high`.
#[inline(always)]
fn merge(run: usize, roots: &Complex, from: &Complex, low: Half<'_>, high: Half<'_>) {
    let inputs = from.re.chunks_exact(2 * run).zip(from.im.chunks_exact(2 * run));
    let low = low.0.chunks_exact_mut(run).zip(low.1.chunks_exact_mut(run));
    let high = high.0.chunks_exact_mut(run).zip(high.1.chunks_exact_mut(run));
    let outputs = low.zip(high);
    for (((w, v), (re, im)), (low, high)) in roots.re.iter().zip(&roots.im).zip(inputs).zip(outputs)
    {
        let ((a, c), (b, d)) = (re.split_at(run), im.split_at(run));
        for i in 0..run {
            let (re, im) = (c[i] * w - d[i] * v, c[i] * v + d[i] * w);
            (low.0[i], low.1[i]) = (a[i] + re, b[i] + im);
            (high.0[i], high.1[i]) = (a[i] - re, b[i] - im);
        }
    }
}

/// Undoes [`merge`], but for a factor of 2.
#[inline(always)]
fn split(run: usize, roots: &Complex, low: Half<'_>, high: Half<'_>, to: &mut Complex) {
    let low = low.0.chunks_exact(run).zip(low.1.chunks_exact(run));
    let high = high.0.chunks_exact(run).zip(high.1.chunks_exact(run));
    let outputs = to.re.chunks_exact_mut(2 * run).zip(to.im.chunks_exact_mut(2 * run));
    for (((w, v), (low, high)), (re, im)) in
        roots.re.iter().zip(&roots.im).zip(low.zip(high)).zip(outputs)
    {
        let ((a, c), (b, d)) = (re.split_at_mut(run), im.split_at_mut(run));
        for i in 0..run {
            let (re, im) = (low.0[i] - high.0[i], low.1[i] - high.1[i]);
            (a[i], b[i]) = (low.0[i] + high.0[i], low.1[i] + high.1[i]);
            (c[i], d[i]) = (re * w + im * v, im * w - re * v);
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
        assert_eq!(encode(&[0.0; 9]), Err(CkksError::too_many(9, 8)));
    }
}
