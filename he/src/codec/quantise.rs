//! Quantisation: tensors to integers.

use rand_core::Rng;
use zeroize::Zeroizing;

use super::Agreement;
use crate::{
    Error, Parameters, Update,
    tensors::{BLOCK, check_finite},
};

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

    /// Takes integers of tensors of which no value was outside its range.
    pub(crate) fn unclipped(fields: Zeroizing<Vec<u32>>, weight: u32, tensors: usize) -> Self {
        Self { fields, weight, clipped: vec![0; tensors] }
    }

    /// Returns the integers.
    #[must_use]
    pub fn fields(&self) -> &[u32] {
        &self.fields
    }

    /// Returns the client's weight.
    #[must_use]
    pub fn weight(&self) -> u32 {
        self.weight
    }

    /// Returns the number of values of each tensor that were outside its range.
    #[must_use]
    pub fn clipped(&self) -> &[usize] {
        &self.clipped
    }
}

/// Turns blocks of values into fields.
pub(crate) struct Rounder {
    /// Steps of a value at the end of its range.
    scale: f64,
    /// The offset that makes fields positive.
    steps: f64,
    pub(crate) values: Zeroizing<Box<[f64]>>,
    random: Zeroizing<Box<[u8]>>,
}

impl Rounder {
    pub(crate) fn new(scale: f64, steps: f64) -> Self {
        let values = Zeroizing::new(vec![0.0; BLOCK].into());
        Self { scale, steps, values, random: Zeroizing::new(vec![0; 4 * BLOCK].into()) }
    }

    /// Clips, scales and rounds the values in memory; gives how many were outside the range.
    ///
    /// Each becomes the integer below or above, the nearer one more likely, so that the expectation is
    /// the value within 2^-28. The random fraction has 29 bits: beside the 24 bits of an integer their
    /// sum is exact in a double, so an integer is never rounded away from itself. What is rounded is not
    /// negative, so that cutting off is rounding down.
    pub(crate) fn round(&mut self, fields: &mut [u32], range: f64, rng: &mut impl Rng) -> usize {
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
