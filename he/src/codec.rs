//! From floats to shared integers and back.
//!
//! # What is computed
//! With `L = 2^(bits−1) − 1` steps on either side of zero, a tensor's agreed range `r`, a client's
//! weight `w` and the agreed largest weight `W`, a value `x` becomes an integer next to
//! `clip(x, ±r) · L/r · w/W`, rounded up or down at random so that its expectation is that within
//! 2^-28 of a step. Zero stays zero. The sum `S` over the contributors decodes to `S · r/L · W`, which is `Σ w·x`, and that
//! divided by `Σ w` is the weighted mean.
//!
//! # Error
//! Each contributor's rounding is off by less than one step `r/L`, so the mean of values that were
//! not clipped is within `contributors · W / Σw` steps, plus the rounding of the output type.

mod agreement;
mod fields;
mod ranges;

pub use agreement::Agreement;
pub(crate) use fields::{Fields, add_bits, is_zero_between};
pub use ranges::{Policy, RangesFile, round_up_to_power_of_two};

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use rand_core::Rng;
use zeroize::Zeroizing;

use crate::{Error, Parameters, Tensor, TensorSpec, Update};

/// A client's update as integers `0 ..= 2L` (value plus `L`), all tensors as one stream.
pub struct Quantised {
    fields: Zeroizing<Vec<u32>>,
    weight: u32,
    clipped: Vec<usize>,
}

impl Quantised {
    /// Clips, scales and rounds `update`.
    ///
    /// # Errors
    /// The update is not laid out as agreed, a value is not finite, or the weight is not from 1 to
    /// the agreed largest.
    pub fn new(
        update: &Update,
        agreement: &Agreement,
        weight: u64,
        parameters: &Parameters,
        rng: &mut impl Rng,
    ) -> Result<Self, Error> {
        agreement.check_layout(&update.specs())?;
        let weight = agreement.check_weight(weight)?;
        let scale = f64::from(weight) / f64::from(agreement.max_weight());
        let steps = f64::from(parameters.half_steps());
        let mut fields = Zeroizing::new(vec![0; agreement.values()]);
        let mut clipped = Vec::with_capacity(update.tensors().len());
        let mut rest = &mut fields[..];
        let mut rounder = Rounder::new(scale * steps, steps);
        for (tensor, &range) in update.tensors().iter().zip(agreement.ranges()) {
            let (own, after) = rest.split_at_mut(tensor.values().len());
            let mut outside = 0;
            for (index, fields) in own.chunks_mut(BLOCK).enumerate() {
                let values = &mut rounder.values[..fields.len()];
                tensor.read(index * BLOCK, values);
                check_finite(tensor, index * BLOCK, values)?;
                outside += rounder.round(fields, range, rng);
            }
            clipped.push(outside);
            rest = after;
        }
        Ok(Self { fields, weight, clipped })
    }

    /// Takes integers `0 ..= 2L` as they are: for tests and for callers with a codec of their own.
    #[must_use]
    pub fn from_fields(fields: Vec<u32>, weight: u32) -> Self {
        Self { fields: Zeroizing::new(fields), weight, clipped: vec![] }
    }

    /// The integers.
    #[must_use]
    pub fn fields(&self) -> &[u32] {
        &self.fields
    }

    /// The client's weight.
    #[must_use]
    pub fn weight(&self) -> u32 {
        self.weight
    }

    /// How many values of each tensor were outside its range.
    #[must_use]
    pub fn clipped(&self) -> &[usize] {
        &self.clipped
    }
}

/// Values that are read, and rounded, at a time.
pub(crate) const BLOCK: usize = 1024;

/// Turns blocks of values into fields.
struct Rounder {
    /// Steps of a value at the end of its range.
    scale: f64,
    /// What fields are raised by.
    steps: f64,
    values: Zeroizing<Box<[f64]>>,
    random: Zeroizing<Box<[u8]>>,
}

impl Rounder {
    fn new(scale: f64, steps: f64) -> Self {
        let values = Zeroizing::new(vec![0.0; BLOCK].into());
        Self { scale, steps, values, random: Zeroizing::new(vec![0; 4 * BLOCK].into()) }
    }

    /// Clips, scales and rounds the values in memory; gives how many were outside the range.
    ///
    /// Each becomes the integer below or above, the nearer one more likely, so that the expectation is
    /// the value within 2^-28. The random fraction has 29 bits: beside the 24 bits of an integer their
    /// sum is exact in a double, so an integer is never rounded away from itself. What is rounded is not
    /// negative, so that cutting off is rounding down.
    fn round(&mut self, fields: &mut [u32], range: f64, rng: &mut impl Rng) -> usize {
        let random = &mut self.random[..4 * fields.len()];
        rng.fill_bytes(random);
        // Any range does for zeros.
        let divisor = if range == 0.0 { 1.0 } else { range };
        let mut outside = 0;
        let random = random.as_chunks().0.iter().map(|bytes| u32::from_le_bytes(*bytes) >> 3);
        for ((field, &x), random) in fields.iter_mut().zip(self.values.iter()).zip(random) {
            outside += usize::from(x.abs() > range);
            let unit = if range == 0.0 { 0.0 } else { (x / divisor).clamp(-1.0, 1.0) };
            let fraction = f64::from(random as i32) / f64::from(1u32 << 29);
            *field = (unit * self.scale + self.steps + fraction) as i32 as u32;
        }
        outside
    }
}

/// Names the first of `values`, which start at `first`, that is no finite number.
fn check_finite(tensor: &Tensor, first: usize, values: &[f64]) -> Result<(), Error> {
    // Without a way out of the loop, it takes several values at a time.
    if values.iter().fold(true, |all, x| all & x.is_finite()) {
        return Ok(());
    }
    let place = values.iter().position(|x| !x.is_finite()).unwrap_or(0);
    let (tensor, value) = (tensor.spec.name.clone(), values[place].to_string());
    Err(Error::NotFinite { tensor, index: first + place, value })
}

/// What a decoded update should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Output {
    /// `Σ w·x / Σ w`.
    Mean,
    /// `Σ w·x`.
    Sum,
}

/// Decodes integer sums to tensors. `runs` are sums of `v` (offsets removed), each run with the sum of
/// weights of those who contributed to it.
///
/// # Errors
/// A value of a sum exceeds the tensor's type.
///
/// # Panics
/// If there are not as many sums as the agreement has values.
pub fn decode<'a>(
    agreement: &Agreement,
    parameters: &Parameters,
    output: Output,
    runs: impl Iterator<Item = (&'a [i64], u64)>,
) -> Result<Update, Error> {
    decode_by(agreement, parameters, output, |decoder| {
        let mut done = 0;
        for (sums, weight) in runs {
            decoder.decode(done, sums, weight);
            done += sums.len();
        }
        assert_eq!(done, agreement.values(), "one sum for each value");
        Ok(())
    })
}

/// The update that `run` decodes every value of. Its own error goes before any of what it decoded.
///
/// # Errors
/// That of `run`, else the first value, in the order of the tensors, that exceeds its tensor's type.
pub(crate) fn decode_by(
    agreement: &Agreement,
    parameters: &Parameters,
    output: Output,
    run: impl FnOnce(&mut Decoder<'_>) -> Result<(), Error>,
) -> Result<Update, Error> {
    let bytes = |spec: &TensorSpec| vec![0; spec.values().unwrap_or(0) * spec.dtype.bytes()];
    let mut data: Vec<_> = agreement.specs().iter().map(bytes).collect();
    let mut end = 0;
    let places = agreement.specs().iter().zip(agreement.ranges()).zip(&mut data);
    let places = places.map(|((spec, &range), bytes)| {
        let first = end;
        end += spec.values().unwrap_or(0);
        Place { spec, range, first, end, bytes }
    });
    let steps = f64::from(parameters.half_steps());
    let max_weight = f64::from(agreement.max_weight());
    let overflow = AtomicUsize::new(usize::MAX);
    let places = places.collect();
    run(&mut Decoder { steps, max_weight, output, places, overflow: &overflow })?;
    let mut index = overflow.into_inner();
    for spec in agreement.specs() {
        let values = spec.values().unwrap_or(0);
        if index < values {
            let (tensor, dtype) = (spec.name.clone(), spec.dtype.name());
            return Err(Error::Overflow { tensor, index, dtype });
        }
        index -= values;
    }
    let tensors = agreement.specs().iter().cloned().zip(data);
    Ok(Update::new(tensors.map(|(spec, data)| Tensor::from_bytes(spec, data)).collect()))
}

/// Where the values `first .. end` of an update go: to the tensor that `spec` tells of.
struct Place<'a> {
    spec: &'a TensorSpec,
    range: f64,
    first: usize,
    end: usize,
    bytes: &'a mut [u8],
}

/// Decodes sums to where they belong.
pub(crate) struct Decoder<'a> {
    steps: f64,
    max_weight: f64,
    output: Output,
    places: Vec<Place<'a>>,
    /// The first value that exceeds its tensor's type, of all that were decoded beside one another.
    overflow: &'a AtomicUsize,
}

impl<'a> Decoder<'a> {
    /// Takes what is before value `end` away, to be decoded beside the rest.
    pub(crate) fn split_to(&mut self, end: usize) -> Self {
        let whole = self.places.partition_point(|place| place.end <= end);
        let mut places: Vec<_> = self.places.drain(..whole).collect();
        if let Some(place) = self.places.first_mut().filter(|place| place.first < end) {
            let count = end - place.first;
            let at = count * place.spec.dtype.bytes();
            let (bytes, rest) = std::mem::take(&mut place.bytes).split_at_mut(at);
            places.push(Place { end, bytes, ..*place });
            (place.first, place.bytes) = (end, rest);
        }
        Self { places, ..*self }
    }

    /// Decodes sums of the values from `at` on, of contributors of this weight together. What exceeds
    /// its tensor's type is told of in the end: what else is wrong goes before it.
    pub(crate) fn decode(&mut self, mut at: usize, mut sums: &[i64], weight: u64) {
        if sums.is_empty() {
            return;
        }
        let mut block = Zeroizing::new([0.0; BLOCK]);
        let first = self.places.partition_point(|place| place.end <= at);
        let mut places = self.places[first..].iter_mut();
        while !sums.is_empty() {
            let Some(place) = places.next() else { unreachable!("one sum for each value") };
            let (mine, after) = sums.split_at(sums.len().min(place.end - at));
            for own in mine.chunks(BLOCK) {
                let values = &mut block[..own.len()];
                let (range, largest) = (place.range, place.spec.dtype.largest());
                let each = values.iter_mut().zip(own);
                match self.output {
                    // The mean of clipped values is within the range and the type; rounding may not
                    // leave them.
                    Output::Mean => {
                        let unit = self.max_weight / (weight as f64 * self.steps);
                        each.for_each(|(out, &sum)| {
                            let part = (sum as f64 * unit).clamp(-1.0, 1.0);
                            *out = (part * range).clamp(-largest, largest);
                        });
                    }
                    Output::Sum => each.for_each(|(out, &sum)| {
                        *out = sum as f64 / self.steps * self.max_weight * range;
                    }),
                }
                let dtype = place.spec.dtype;
                let bytes = &mut place.bytes[(at - place.first) * dtype.bytes()..];
                if let Some(index) = dtype.write(values, bytes) {
                    self.overflow.fetch_min(at + index, Relaxed);
                }
                at += own.len();
            }
            sums = after;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Scheme, TensorSpec, params::Literal, tensors::Dtype};
    use proptest::prelude::*;
    use rand_chacha::ChaCha20Rng;
    use rand_core::SeedableRng;

    fn parameters(bits: u32) -> Parameters {
        Parameters::new(Literal { scheme: Scheme::CkksSum, clients: 8, bits }).unwrap()
    }

    fn update(values: &[f64]) -> Update {
        let shape = vec![values.len() as u64];
        let spec = TensorSpec { name: "t".into(), dtype: Dtype::F64, shape };
        let bytes = values.iter().flat_map(|x| x.to_le_bytes()).collect();
        Update::new(vec![Tensor::from_bytes(spec, bytes)])
    }

    #[test]
    fn zeros_and_ends_are_exact_and_the_rest_is_unbiased() {
        let p = parameters(8);
        let values = [0.0, -0.0, 1.5, -1.5, 9.0, 0.5];
        let agreement = Agreement::new(update(&values).specs(), vec![1.5], 1).unwrap();
        let mut rng = ChaCha20Rng::seed_from_u64(1);
        let mut total = 0i64;
        for _ in 0..4000 {
            let q = Quantised::new(&update(&values), &agreement, 1, &p, &mut rng).unwrap();
            assert_eq!(q.fields()[..5], [127, 127, 254, 0, 254]);
            assert_eq!(q.clipped(), [1]);
            total += i64::from(q.fields()[5]) - 127;
        }
        // 127/3 = 42.33…, each draw within one step: 4,000 draws are within 0.05 of it.
        assert!((total as f64 / 4000.0 - 127.0 / 3.0).abs() < 0.05);
    }

    #[test]
    fn refusals_name_what_and_where() {
        let p = parameters(16);
        let agreement = Agreement::new(update(&[0.0; 3]).specs(), vec![1.0], 10).unwrap();
        let mut rng = ChaCha20Rng::seed_from_u64(2);
        let mut refuse = |values: &[f64], weight| {
            Quantised::new(&update(values), &agreement, weight, &p, &mut rng).err().unwrap()
        };
        let not_finite = refuse(&[0.0, f64::NAN, 0.0], 1).to_string();
        assert!(not_finite.starts_with("tensor \"t\" has NaN at index 1"), "{not_finite}");
        assert_eq!(refuse(&[0.0; 3], 11), Error::Weight { weight: 11, max_weight: 10 });
        assert_eq!(refuse(&[0.0; 3], 0), Error::Weight { weight: 0, max_weight: 10 });
        assert!(matches!(refuse(&[0.0; 4], 1), Error::Layout { .. }));
    }

    proptest! {
        /// One client's values come back within a step of W/w, over any range at all.
        #[test]
        fn within_the_documented_bound(
            values in prop::collection::vec(-1e3f64..1e3, 1..50),
            exponent in -300i32..300,
            weight in 1u64..100,
            bits in 8u32..=24,
        ) {
            let p = parameters(bits);
            let scale = 10f64.powi(exponent);
            let values: Vec<f64> = values.iter().map(|x| x * scale).collect();
            let range = values.iter().fold(0f64, |m, x| m.max(x.abs()));
            let agreement = Agreement::new(update(&values).specs(), vec![range], 100).unwrap();
            let mut rng = ChaCha20Rng::seed_from_u64(weight);
            let q = Quantised::new(&update(&values), &agreement, weight, &p, &mut rng).unwrap();
            let offset = i64::from(p.half_steps());
            let sums: Vec<_> = q.fields().iter().map(|&f| i64::from(f) - offset).collect();
            let runs = [(&sums[..], weight)].into_iter();
            let mean = decode(&agreement, &p, Output::Mean, runs).unwrap();
            let step = range / f64::from(p.half_steps()) * (100.0 / weight as f64);
            for (x, y) in values.iter().zip(mean.tensors()[0].values()) {
                prop_assert!((x - y).abs() <= step * (1.0 + 1e-9), "{x} {y} {step}");
            }
        }
    }
}
