//! Quantisation: values to integers, clipped and rounded.

use std::{borrow::Cow, ops::Range, sync::Arc};

use ciphergram_accel::random::StreamRng;
use rand_core::Rng;
use zeroize::Zeroizing;

use super::{
    Agreement, norm,
    places::{Place, Places},
    precision::{Precision, Radix, near_unit, round_wide},
};
use crate::{
    Error, Parameters, Tensor, Update,
    params::half_steps,
    tensors::{BLOCK, Window},
};

/// A client's update as fields, integers `0 ..= 2L` (a value or a limb plus `L`), all tensors as one stream.
///
/// Those of tensors are computed when they are needed, the same whenever that is.
pub struct Quantised {
    source: Source,
    weight: u32,
    clipped: Vec<usize>,
}

/// The origin of integers.
enum Source {
    /// They are at hand.
    Fields(Zeroizing<Vec<u32>>),
    /// They are those of tensors.
    Tensors(Arc<Quantiser>),
}

impl Quantised {
    /// Checks `update`, to be clipped, as a whole to the agreed norm and then each value to its range, scaled and
    /// rounded under a seed.
    ///
    /// # Errors
    /// The update is not laid out as agreed, a value cannot be summed, or the weight is not from 1 to
    /// the agreed largest; the file cannot be read.
    pub fn new(
        update: &Update,
        agreement: &Agreement,
        weight: u64,
        parameters: &Parameters,
        seed: &[u8; 32],
    ) -> Result<Self, Error> {
        agreement.check_layout(&update.specs())?;
        let weight = agreement.check_weight(weight)?;
        let mut clipped = Vec::with_capacity(update.tensors().len());
        let Places { tensors: places, fields } = Places::new(agreement, parameters);
        let mut parts = vec![];
        // The number of times that the update is longer than the norm: divided by it, values are clipped to the norm.
        // Of zeros under a norm of 0 it is NaN, which `max` makes 1.
        let excess = match agreement.clip_norm() {
            Some(most) => (norm(update)? / most).max(1.0),
            None => 1.0,
        };
        let each = update.tensors().iter().zip(agreement.ranges()).zip(agreement.precisions());
        for (((tensor, range), &precision), place) in each.zip(places) {
            // A field is a value over its range, so that multiplying the range divides the value.
            let range = (range * excess).min(f64::MAX);
            clipped.push(match precision {
                Precision::Exact => tensor.check_within(range).map(|()| 0)?,
                Precision::Key | Precision::Bits(_) => tensor.count_outside(range)?,
            });
            parts.push(QuantisedPart { tensor: tensor.clone(), range, precision, place });
        }
        let scale = f64::from(weight) / f64::from(agreement.max_weight());
        let steps = f64::from(parameters.half_steps());
        let radix = Radix::new(parameters.bits());
        let seed = Zeroizing::new(*seed);
        let quantiser = Quantiser { parts, fields, scale, weight, steps, radix, seed };
        Ok(Self { source: Source::Tensors(quantiser.into()), weight, clipped })
    }

    /// Takes integers `0 ..= 2L` as they are: for tests and for callers with a codec of their own.
    #[must_use]
    pub fn from_fields(fields: Vec<u32>, weight: u32) -> Self {
        let source = Source::Fields(Zeroizing::new(fields));
        Self { source, weight, clipped: vec![] }
    }

    /// Takes integers of tensors of which no value was outside its range.
    pub(crate) fn unclipped(fields: Zeroizing<Vec<u32>>, weight: u32, tensors: usize) -> Self {
        Self { source: Source::Fields(fields), weight, clipped: vec![0; tensors] }
    }

    /// Returns the number of fields.
    #[must_use]
    pub fn count(&self) -> usize {
        match &self.source {
            Source::Fields(fields) => fields.len(),
            Source::Tensors(quantiser) => quantiser.fields,
        }
    }

    /// Returns whether all integers are within `0 ..= most`: those of tensors are by construction.
    pub(crate) fn is_within(&self, most: u32) -> bool {
        match &self.source {
            Source::Fields(fields) => fields.iter().all(|&f| f <= most),
            Source::Tensors(_) => true,
        }
    }

    /// Returns all integers.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn fields(&self) -> Result<Cow<'_, [u32]>, Error> {
        let mut room = FieldRoom::default();
        match &self.source {
            Source::Fields(fields) => Ok(Cow::Borrowed(fields)),
            Source::Tensors(_) => Ok(self.fields_of(0..self.count(), &mut room)?.to_vec().into()),
        }
    }

    /// Returns the integers in `range`, of whole chunks if values take several, which lie in `room` unless they are at
    /// hand.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(crate) fn fields_of<'a>(
        &'a self,
        range: Range<usize>,
        room: &'a mut FieldRoom,
    ) -> Result<&'a [u32], Error> {
        match &self.source {
            Source::Fields(fields) => Ok(&fields[range]),
            Source::Tensors(quantiser) => quantiser.fields_of(range, room),
        }
    }

    /// Returns a digest that the integers and the weight follow from, under one agreement: of others it is another.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(crate) fn digest(&self) -> Result<[u8; 32], Error> {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.weight.to_le_bytes());
        match &self.source {
            Source::Fields(fields) => {
                for &field in fields.iter() {
                    hasher.update(&field.to_le_bytes());
                }
            }
            Source::Tensors(quantiser) => quantiser.hash(&mut hasher)?,
        }
        Ok(*hasher.finalize().as_bytes())
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

/// Memory for integers of tensors, kept from one batch to the next.
#[derive(Default)]
pub(crate) struct FieldRoom {
    window: Window,
    rounder: Rounder,
    fields: Zeroizing<Vec<u32>>,
}

/// A tensor, the range and the steps of its values, and its place in the stream of fields.
struct QuantisedPart {
    tensor: Tensor,
    range: f64,
    precision: Precision,
    place: Place,
}

/// Turns values of tensors into fields, wherever one begins.
struct Quantiser {
    parts: Vec<QuantisedPart>,
    fields: usize,
    /// The weight over the largest.
    scale: f64,
    weight: u32,
    /// The steps of a field, the offset that makes it positive.
    steps: f64,
    radix: Radix,
    /// Each field has a word of its stream, by its place.
    seed: Zeroizing<[u8; 32]>,
}

impl Quantiser {
    /// Hashes all that fields follow from, but for the agreement.
    fn hash(&self, hasher: &mut blake3::Hasher) -> Result<(), Error> {
        hasher.update(&*self.seed);
        for QuantisedPart { tensor, .. } in &self.parts {
            hasher.update(&tensor.limit.to_le_bytes());
            tensor.try_for_bytes(|bytes| {
                hasher.update(bytes);
                Ok::<_, Error>(())
            })?;
        }
        Ok(())
    }

    fn fields_of<'a>(
        &self,
        range: Range<usize>,
        room: &'a mut FieldRoom,
    ) -> Result<&'a [u32], Error> {
        let FieldRoom { window, rounder, fields } = room;
        // A vector that grew would leave a copy behind.
        if fields.capacity() < range.len() {
            *fields = Zeroizing::new(Vec::with_capacity(range.len()));
        }
        fields.resize(range.len(), 0);
        let mut rng = StreamRng::at(&self.seed, range.start as u64);
        let first = self.parts.partition_point(|part| part.place.end <= range.start);
        let mut done = range.start;
        for part in self.parts[first..].iter().take_while(|part| part.place.first < range.end) {
            let own = range.start.max(part.place.first)..range.end.min(part.place.end);
            let out = &mut fields[own.start - range.start..own.end - range.start];
            done = own.end;
            if part.precision == Precision::Key {
                self.round_narrow(part, own, out, (window, rounder), &mut rng)?;
            } else {
                self.round_limbs(part, own.clone(), out, (window, rounder))?;
                rng = StreamRng::at(&self.seed, own.end as u64);
            }
        }
        // What is left of the last set's least.
        fields[done - range.start..].fill(self.steps as u32);
        Ok(fields)
    }

    /// Rounds values to a field each.
    fn round_narrow(
        &self,
        part: &QuantisedPart,
        own: Range<usize>,
        mut rest: &mut [u32],
        (window, Rounder { values, random }): (&mut Window, &mut Rounder),
        rng: &mut StreamRng,
    ) -> Result<(), Error> {
        let own = own.start - part.place.first..own.end - part.place.first;
        part.tensor.try_for_values(own, (window, values), |_, values| {
            let (fields, after) = std::mem::take(&mut rest).split_at_mut(values.len());
            let steps = (self.scale * self.steps, self.steps);
            round(steps, part.range, (values, fields), random, rng);
            rest = after;
            Ok(())
        })
    }

    /// Cuts integers, or values that are rounded to such, into limbs.
    fn round_limbs(
        &self,
        part: &QuantisedPart,
        own: Range<usize>,
        out: &mut [u32],
        (window, Rounder { values, random }): (&mut Window, &mut Rounder),
    ) -> Result<(), Error> {
        let (limbs, weight) = (part.place.limbs, i64::from(self.weight));
        // Fields that no value has room in are digits of zero.
        out.fill(self.steps as u32);
        for (run, first) in part.place.runs(own.clone()) {
            let mut rng = StreamRng::at(&self.seed, first as u64);
            let mut rest = &mut out[first - own.start..][..run.len() * limbs];
            part.tensor.try_for_values(run, (&mut *window, &mut *values), |_, values| {
                let (fields, after) = std::mem::take(&mut rest).split_at_mut(values.len() * limbs);
                rest = after;
                if let Precision::Bits(bits) = part.precision {
                    let most = half_steps(bits) as i64;
                    let (steps, values) =
                        ((self.scale * most as f64, most), (values, limbs, fields));
                    round_wide(steps, part.range, values, &self.radix, &mut random[..], &mut rng);
                } else {
                    let integers = values.iter().map(|&x| x as i64 * weight);
                    self.radix.cut_all(integers, limbs, fields);
                }
                Ok::<_, Error>(())
            })?;
        }
        Ok(())
    }
}

/// Memory for a block of values on their way to integers, and for the randomness that rounds them.
pub(crate) struct Rounder {
    pub(crate) values: Box<Zeroizing<[f64; BLOCK]>>,
    pub(crate) random: Box<Zeroizing<[u8; 4 * BLOCK]>>,
}

impl Default for Rounder {
    fn default() -> Self {
        let values = Box::new(Zeroizing::new([0.0; BLOCK]));
        Self { values, random: Box::new(Zeroizing::new([0; 4 * BLOCK])) }
    }
}

/// Bits of the random fraction that decides which way a value is rounded.
const FRACTION_BITS: u32 = 27;
/// 1.5 · 2^52: a number within ±2^51 that is added to it is rounded to an integer, which the low bits then hold.
const WHOLE: f64 = 6_755_399_441_055_744.0;

/// Clips, scales and rounds at most a block of values to as many fields: `scale` steps at the end of the range, and
/// `steps`, no fewer and below 2^23, for zero.
///
/// Each becomes the integer below or above, the nearer one more likely, so that the expectation is the value within
/// 2^-27: in units of that it is the nearest integer, to which a random one of 27 bits is added before these bits are
/// cut off. An integer has none of them, and is never rounded away from itself. Nothing branches on a value, and none
/// leaves its field: what is not a number becomes the lower end of the range.
pub(crate) fn round(
    (scale, steps): (f64, f64),
    range: f64,
    (values, fields): (&[f64], &mut [u32]),
    random: &mut [u8; 4 * BLOCK],
    rng: &mut impl Rng,
) {
    let random = &mut random[..4 * fields.len()];
    rng.fill_bytes(random);
    let random = random.as_chunks().0.iter().map(|bytes| u32::from_le_bytes(*bytes));
    let near = near_unit(range);
    let (range, unit) = (range * near, f64::from(1u32 << FRACTION_BITS));
    // Values of an empty range are clipped to 0.
    let factor = if range == 0.0 { 0.0 } else { scale * unit / range };
    let zero = steps * unit;
    for ((field, &x), random) in fields.iter_mut().zip(values).zip(random) {
        let x = x * near;
        let x = if x > -range { x } else { -range };
        let x = if x < range { x } else { range };
        let whole = x * factor + zero + WHOLE;
        let whole = whole.to_bits().wrapping_sub(WHOLE.to_bits());
        *field = ((whole + u64::from(random >> (32 - FRACTION_BITS))) >> FRACTION_BITS) as u32;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const STEPS: u32 = (1 << 23) - 1;

    fn rounded(range: f64, values: &[f64]) -> Vec<u32> {
        let (mut fields, mut random) = (vec![0; values.len()], [0; 4 * BLOCK]);
        let (steps, mut rng) = (f64::from(STEPS), StreamRng::from_seed(&[7; 32]));
        round((steps, steps), range, (values, &mut fields), &mut random, &mut rng);
        fields
    }

    proptest! {
        #[test]
        fn ends_of_any_range_and_zero_are_exact(bits in 1..0x7ff0_0000_0000_0000u64) {
            let range = f64::from_bits(bits);
            let values = [range, -range, f64::MAX, f64::MIN, 0.0, -0.0];
            prop_assert_eq!(rounded(range, &values), [2 * STEPS, 0, 2 * STEPS, 0, STEPS, STEPS]);
        }

        #[test]
        fn integers_of_steps_are_never_rounded_away(
            step in -(STEPS as i32)..=STEPS as i32,
            range in 1e-3..1e3,
        ) {
            // The nearest double to so many steps.
            let value = f64::from(step) * range / f64::from(STEPS);
            prop_assert_eq!(rounded(range, &[value; 64]), [(step + STEPS as i32) as u32; 64]);
        }

        #[test]
        fn weighed_values_become_an_integer_next_to_them(
            range in 1e-3..1e3,
            at in -1.0..1.0,
            weight in 1..=1000u32,
        ) {
            let (mut fields, mut random) = (vec![0; 64], [0; 4 * BLOCK]);
            let steps = f64::from(STEPS);
            let scale = f64::from(weight) / 1000.0 * steps;
            let mut rng = StreamRng::from_seed(&[7; 32]);
            let values = [at * range; 64];
            round((scale, steps), range, (&values, &mut fields), &mut random, &mut rng);
            let exact: f64 = at * scale + steps;
            // Beside an integer by less than 2^-26 either is right.
            let beside = 2f64.powi(-26);
            let next = (exact - beside).floor()..=(exact + beside).ceil();
            prop_assert!(fields.iter().all(|&field| next.contains(&f64::from(field))));
        }
    }

    #[test]
    fn everything_is_zero_in_an_empty_range_and_in_one_without_end() {
        for range in [0.0, f64::INFINITY] {
            assert_eq!(rounded(range, &[1.0, -f64::MAX, f64::MIN_POSITIVE]), [STEPS; 3]);
        }
    }

    #[test]
    fn nothing_leaves_its_field() {
        for range in [f64::MIN_POSITIVE / 8.0, 0.7, f64::MAX] {
            let found = rounded(range, &[f64::NAN, -f64::NAN, f64::INFINITY, f64::NEG_INFINITY]);
            assert_eq!(found, [0, 0, 2 * STEPS, 0], "{range}");
        }
    }

    #[test]
    fn a_fraction_of_a_step_goes_up_as_often_as_it_is_large() {
        let found = rounded(f64::from(STEPS), &[0.25; BLOCK]);
        let up = found.iter().filter(|&&field| field == STEPS + 1).count();
        assert!(found.iter().all(|&field| field == STEPS || field == STEPS + 1));
        // Five standard deviations around a quarter.
        let (mean, most) = (BLOCK as f64 / 4.0, 5.0 * (BLOCK as f64 * 3.0 / 16.0).sqrt());
        assert!((up as f64 - mean).abs() < most, "{up} of {BLOCK}");
    }
}
