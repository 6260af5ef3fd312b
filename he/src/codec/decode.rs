//! Decoding: integer sums to tensors.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use zeroize::Zeroizing;

use super::Agreement;
use crate::{Error, Parameters, Tensor, TensorSpec, Update, tensors::BLOCK};

/// The form of a decoded update.
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

/// Returns the update of which `run` decodes every value. Its own error goes before any of a value.
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

/// The destination of the values `first .. end` of an update: the tensor that `spec` describes.
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

    /// Decodes sums of the values from `at` on, of contributors of this weight together. A value
    /// that exceeds its tensor's type is reported in the end: any other fault goes before it.
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
