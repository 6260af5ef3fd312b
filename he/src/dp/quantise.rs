//! A client's update with its share of the noise: clip, round, add.
//!
//! Norm and scale are in floating point, which moves rounding by less than 2^-28 of a step; ε rests on integers and
//! draws. Nothing is rotated before rounding, as in the paper: there is no modulus for large values to pass.

use std::mem;

use ciphergram_accel::random::StreamRng;
use rand_core::{CryptoRng, Rng};
use zeroize::Zeroizing;

use super::{Mechanism, Noise, sampler::DiscreteGaussian};
use crate::{
    Agreement, Error, Parameters, Quantised, Tensor, Update,
    codec::{self, Precision, Rounder, norm},
    error::NoiseError,
    spread::spread,
    tensors::{BLOCK, Window},
};

/// Values that one thread takes at a time: whole blocks.
const PART: usize = 64 * BLOCK;

impl Quantised {
    /// Clips `update` as a whole to an L2 norm, rounds it, and adds a client's share of discrete Gaussian noise.
    ///
    /// Values are rounded at random to the integer below or above, all of them again until their norm is within
    /// [`Mechanism::squared_norm`]. No value leaves its field: the range has headroom for [`TAIL`](super::TAIL)
    /// standard deviations of noise, beyond which draws end. How often it is rounded, once but one time in a million,
    /// depends on the update.
    ///
    /// # Errors
    /// The update is not laid out as agreed or has a value that cannot be summed; the agreement has several ranges
    /// or weights above 1; the file cannot be read; see also [`Mechanism::new`].
    pub fn noised(
        update: &Update,
        agreement: &Agreement,
        parameters: &Parameters,
        noise: &Noise,
        rng: &mut impl CryptoRng,
    ) -> Result<Self, Error> {
        agreement.check_layout(&update.specs())?;
        let (range, half_steps) = (one_range(agreement, noise)?, parameters.half_steps());
        let mechanism = Mechanism::new(*noise, range, half_steps, agreement.values())?;
        let norm = norm(update)?;
        let mut fields = Zeroizing::new(vec![0; agreement.values()]);
        round_within(update, norm, &mechanism, &mut fields, rng)?;
        add_noise(&mechanism, &mut fields, rng);
        // The update was clipped as a whole, no value by itself.
        Ok(Self::unclipped(fields, 1, update.tensors().len()))
    }
}

/// Returns the range of all tensors, all weights being 1.
fn one_range(agreement: &Agreement, noise: &Noise) -> Result<f64, NoiseError> {
    let found = |found: String| {
        Err(NoiseError(format!(
            "noise hides one client's update only if all tensors have one range and all weights are 1; {found} was \
             agreed"
        )))
    };
    if agreement.max_weight() != 1 {
        return found(format!("a largest weight of {}", agreement.max_weight()));
    }
    if let Some(other) = agreement.precisions().iter().find(|&&other| other != Precision::Key) {
        return found(format!("a tensor in {}", other.words()));
    }
    let Some((&range, others)) = agreement.ranges().split_first() else {
        return Ok(noise.range());
    };
    match others.iter().find(|&&other| other != range) {
        Some(other) => found(format!("a range of {range} beside one of {other}")),
        None => Ok(range),
    }
}

/// Some values of a tensor, and where they go.
struct NoisedPart<'a> {
    tensor: &'a Tensor,
    first: usize,
    fields: &'a mut [u32],
    rng: StreamRng,
}

/// Clips and rounds until the norm of the integers is within its bound.
fn round_within(
    update: &Update,
    norm: f64,
    mechanism: &Mechanism,
    fields: &mut [u32],
    rng: &mut impl Rng,
) -> Result<(), Error> {
    while round(update, norm, mechanism, fields, rng)? > mechanism.squared_norm {}
    Ok(())
}

/// Clips an update of norm `norm` and rounds it to fields; returns the square of the norm of the integers.
fn round(
    update: &Update,
    norm: f64,
    mechanism: &Mechanism,
    mut fields: &mut [u32],
    rng: &mut impl Rng,
) -> Result<u64, Error> {
    let mut parts = vec![];
    for tensor in update.tensors() {
        let (own, rest) = fields.split_at_mut(tensor.count());
        let own = own.chunks_mut(PART).enumerate();
        parts.extend(own.map(|(index, fields)| NoisedPart {
            tensor,
            first: index * PART,
            fields,
            rng: generator(rng),
        }));
        fields = rest;
    }
    let (clip, half_steps) = (mechanism.noise.literal().clip, mechanism.half_steps);
    let steps = f64::from(half_steps);
    let scale = clip / mechanism.range * steps;
    // Values are within ±divisor, which becomes the clip; over an infinite norm, they are zeros.
    let divisor = norm.max(clip);
    let room = || (Window::default(), Rounder::default());
    let squares = spread(parts, room, |(window, rounder), mut part| {
        let own = part.first..part.first + part.fields.len();
        let (mut rest, mut squares) = (&mut part.fields[..], 0);
        let Rounder { values, random } = rounder;
        part.tensor.try_for_values(own, (window, values), |_, values| {
            let (fields, after) = mem::take(&mut rest).split_at_mut(values.len());
            codec::round((scale, steps), divisor, (values, fields), random, &mut part.rng);
            squares += fields.iter().map(|&f| square(f, half_steps)).sum::<u64>();
            rest = after;
            Ok::<_, Error>(())
        })?;
        Ok::<_, Error>(squares)
    });
    squares.into_iter().sum()
}

/// Returns the square of a field's value.
fn square(field: u32, half_steps: u32) -> u64 {
    let magnitude = u64::from(field.abs_diff(half_steps));
    magnitude * magnitude
}

/// Adds a share of the noise to fields.
fn add_noise(mechanism: &Mechanism, fields: &mut [u32], rng: &mut impl Rng) {
    let sampler = DiscreteGaussian::new(mechanism.share_variance, mechanism.largest_draw());
    let parts: Vec<_> = fields.chunks_mut(PART).map(|fields| (fields, generator(rng))).collect();
    spread(parts, || (), |(), (fields, mut rng)| sampler.add_to(fields, &mut rng));
}

/// Returns a generator of its own for a part.
fn generator(rng: &mut impl Rng) -> StreamRng {
    let mut seed = Zeroizing::new([0; 32]);
    rng.fill_bytes(&mut *seed);
    StreamRng::from_seed(&seed)
}

#[cfg(test)]
mod tests;
