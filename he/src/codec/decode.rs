//! Decoding: integer sums to tensors.

use std::{
    fs::File,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};

use zeroize::{Zeroize as _, Zeroizing};

use super::{
    Agreement, Precision,
    places::{self, Places},
    precision::{Radix, nearest_mean},
};
use crate::{
    Error, Parameters, Tensor, TensorSpec, Update,
    params::half_steps,
    tensors::{BLOCK, Dtype, FileLayout, WINDOW_BYTES, write_at},
};

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
/// If there are not as many sums as the agreement has fields.
pub fn decode<'a>(
    agreement: &Agreement,
    parameters: &Parameters,
    output: Output,
    runs: impl Iterator<Item = (&'a [i64], u64)>,
) -> Result<Update, Error> {
    let bytes = |spec: &TensorSpec| vec![0; spec.values().unwrap_or(0) * spec.dtype.bytes()];
    let mut data: Vec<_> = agreement.specs().iter().map(bytes).collect();
    let mut slices: Vec<_> = data.iter_mut().map(Vec::as_mut_slice).collect();
    decode_into(agreement, parameters, output, &mut slices, |decoder| {
        let mut done = 0;
        for (sums, weight) in runs {
            decoder.decode(done, sums, weight)?;
            done += sums.len();
        }
        assert_eq!(done, agreement.fields(parameters), "one sum for each field");
        Ok(())
    })?;
    let tensors = agreement.specs().iter().cloned().zip(data);
    Ok(Update::new(tensors.map(|(spec, data)| Tensor::from_bytes(spec, data)).collect()))
}

/// Decodes all values that `run` decodes to the bytes of each tensor, in order, which hold none of them after any
/// error. Its own error goes before any of a value.
///
/// # Errors
/// That of `run`, else those of [`decode`]; not as many slices as tensors, or not as long as these.
pub(crate) fn decode_into(
    agreement: &Agreement,
    parameters: &Parameters,
    output: Output,
    out: &mut [&mut [u8]],
    run: impl FnOnce(&mut Decoder<'_>) -> Result<(), Error>,
) -> Result<(), Error> {
    let bytes = |spec: &TensorSpec| spec.values().unwrap_or(0) * spec.dtype.bytes();
    if !agreement.specs().iter().map(bytes).eq(out.iter().map(|out| out.len())) {
        let why = "the memory for them is not as large as they are".into();
        return Err(Error::Tensors { why });
    }
    let targets = out.iter_mut().map(|out| Target::Memory(out)).collect();
    let decoded = decode_targets(agreement, parameters, output, targets, run);
    if decoded.is_err() {
        // Values of a sum that did not open may be among them.
        out.iter_mut().for_each(|out| out.zeroize());
    }
    decoded
}

/// Writes a safetensors file of the values that `run` decodes: as `template` is, which has the tensors of the
/// agreement and some that it keeps, or as the library would. Its own error goes before any of a value.
///
/// # Errors
/// That of `run`, else those of [`decode`]; a template of other tensors; a file cannot be read or written.
pub(crate) fn decode_to(
    (agreement, template): (&Agreement, Option<&Update>),
    parameters: &Parameters,
    output: Output,
    file: &File,
    run: impl FnOnce(&mut Decoder<'_>) -> Result<(), Error>,
) -> Result<(), Error> {
    let layout = match template {
        Some(template) => {
            agreement.check_layout(&template.specs())?;
            template.layout()?
        }
        None => FileLayout::new(agreement.specs())?.into(),
    };
    file.set_len(layout.bytes())?;
    write_at(file, layout.header(), 0)?;
    let start = |spec: &TensorSpec| layout.start_of(&spec.name).unwrap_or(layout.bytes());
    let target = |spec| Target::File(file, start(spec));
    let targets = agreement.specs().iter().map(target).collect();
    decode_targets(agreement, parameters, output, targets, run)?;
    template.map_or(Ok(()), |template| template.write_kept(&layout, file))
}

/// Decodes all values that `run` decodes to where their tensors belong.
fn decode_targets(
    agreement: &Agreement,
    parameters: &Parameters,
    output: Output,
    targets: Vec<Target<'_>>,
    run: impl FnOnce(&mut Decoder<'_>) -> Result<(), Error>,
) -> Result<(), Error> {
    let laid_out = Places::new(agreement, parameters).tensors;
    let each = agreement.specs().iter().zip(agreement.ranges()).zip(agreement.precisions());
    let places =
        each.zip(&laid_out).zip(targets).map(|((((spec, &range), &precision), &at), target)| {
            let steps = half_steps(precision.bits().unwrap_or(parameters.bits())) as f64;
            let form = Form { dtype: spec.dtype, range, precision, steps };
            Place { form, at, first: at.first, end: at.end, target }
        });
    let overflow = AtomicUsize::new(usize::MAX);
    let (max_weight, radix) = (f64::from(agreement.max_weight()), Radix::new(parameters.bits()));
    let places: Vec<_> = places.collect();
    let pending = Pending::of(&places);
    run(&mut Decoder { radix, max_weight, output, places, pending, overflow: &overflow })?;
    let field = overflow.into_inner();
    let mut each = agreement.specs().iter().zip(&laid_out);
    match each.find(|(_, at)| field < at.end) {
        None => Ok(()),
        Some((spec, at)) => {
            let (tensor, dtype) = (spec.name.clone(), spec.dtype.name());
            Err(Error::Overflow { tensor, index: at.values_before(field), dtype })
        }
    }
}

/// The destination of the values in the fields `first .. end` of an update: some of those of a tensor.
struct Place<'a> {
    form: Form,
    /// The place of the whole tensor.
    at: places::Place,
    first: usize,
    end: usize,
    target: Target<'a>,
}

/// What integers of a tensor stand for.
#[derive(Clone, Copy)]
struct Form {
    dtype: Dtype,
    range: f64,
    precision: Precision,
    /// Steps on either side of zero.
    steps: f64,
}

impl Place<'_> {
    /// Returns the number of values before a field.
    fn values_before(&self, field: usize) -> usize {
        self.at.values_before(field) - self.at.values_before(self.first)
    }

    fn bytes(&self) -> usize {
        self.values_before(self.end) * self.form.dtype.bytes()
    }
}

impl Form {
    /// Writes what sums of contributors of this weight together decode to, which may lie in `block` meanwhile. Gives
    /// the place of the first that the type does not hold.
    fn write(
        &self,
        sums: &[i64],
        (weight, max_weight): (u64, f64),
        output: Output,
        block: &mut [f64; BLOCK],
        bytes: &mut [u8],
    ) -> Option<usize> {
        let Self { dtype, range, precision, steps } = *self;
        let (values, (least, most)) = (&mut block[..sums.len()], dtype.bounds());
        let each = values.iter_mut().zip(sums);
        match output {
            Output::Sum if precision == Precision::Exact => {
                return dtype.write_exact(sums, bytes, |sum| sum);
            }
            Output::Mean if precision == Precision::Exact => {
                return dtype.write_exact(sums, bytes, |sum| nearest_mean(sum, weight));
            }
            // The mean of clipped values is within the range and the type; rounding may not
            // leave them.
            Output::Mean => {
                let unit = max_weight / (weight as f64 * steps);
                each.for_each(|(out, &sum)| {
                    let part = (sum as f64 * unit).clamp(-1.0, 1.0);
                    *out = (part * range).clamp(least, most);
                });
            }
            Output::Sum => each.for_each(|(out, &sum)| {
                *out = sum as f64 / steps * max_weight * range;
            }),
        }
        dtype.write(values, bytes)
    }
}

/// The bytes of a place.
enum Target<'a> {
    Memory(&'a mut [u8]),
    /// A file, and where the first of them goes.
    File(&'a File, u64),
}

impl Target<'_> {
    /// Takes the first `count` bytes away.
    fn split_to(&mut self, count: usize) -> Self {
        match self {
            Self::Memory(bytes) => {
                let (first, rest) = std::mem::take(bytes).split_at_mut(count);
                *bytes = rest;
                Self::Memory(first)
            }
            Self::File(file, at) => {
                let first = Self::File(file, *at);
                *at += count as u64;
                first
            }
        }
    }
}

/// Bytes that follow one another in a file and are written together: some hundreds of kilobytes at most.
struct Pending<'a> {
    file: Option<&'a File>,
    start: u64,
    /// Bytes that it may hold: no more than there are.
    most: usize,
    bytes: Zeroizing<Vec<u8>>,
}

impl<'a> Pending<'a> {
    /// Returns none of the bytes of these places.
    fn of(places: &[Place<'a>]) -> Self {
        let most = places.iter().map(Place::bytes).sum::<usize>().min(WINDOW_BYTES);
        Self { file: None, start: 0, most, bytes: Zeroizing::default() }
    }

    /// Returns room for the next `count` bytes, a block's at most, of which the first goes to `at`.
    fn room(&mut self, file: &'a File, at: u64, count: usize) -> Result<&mut [u8], Error> {
        let (held, capacity) = (self.bytes.len(), self.bytes.capacity());
        if self.start + held as u64 != at || held + count > capacity {
            self.write()?;
            (self.file, self.start) = (Some(file), at);
            // At once: a vector that grew would leave a copy behind.
            self.bytes.reserve_exact(self.most);
        }
        let start = self.bytes.len();
        self.bytes.resize(start + count, 0);
        Ok(&mut self.bytes[start..])
    }

    fn write(&mut self) -> Result<(), Error> {
        if let Some(file) = self.file {
            write_at(file, &self.bytes, self.start)?;
        }
        self.bytes.clear();
        Ok(())
    }
}

/// Joins the limbs of values, a block at most.
fn join<'a>(radix: &Radix, limbs: &[i64], each: usize, room: &'a mut Joined) -> &'a [i64] {
    let joined = &mut room.0[..limbs.len() / each];
    let limbs = limbs.chunks_exact(each);
    joined.iter_mut().zip(limbs).for_each(|(out, limbs)| *out = radix.join(limbs));
    joined
}

/// Memory for integers of several limbs, while there are such.
struct Joined(Zeroizing<[i64; BLOCK]>);

impl Default for Joined {
    fn default() -> Self {
        Self(Zeroizing::new([0; BLOCK]))
    }
}

/// Decodes sums to where they belong.
pub(crate) struct Decoder<'a> {
    radix: Radix,
    max_weight: f64,
    output: Output,
    places: Vec<Place<'a>>,
    pending: Pending<'a>,
    /// The first field of the first value that exceeds its tensor's type, of all that were decoded beside one another.
    overflow: &'a AtomicUsize,
}

impl<'a> Decoder<'a> {
    /// Takes what is before field `end`, which cuts no value, away, to be decoded beside the rest.
    pub(crate) fn split_to(&mut self, end: usize) -> Self {
        let whole = self.places.partition_point(|place| place.end <= end);
        let mut places: Vec<_> = self.places.drain(..whole).collect();
        if let Some(place) = self.places.first_mut().filter(|place| place.first < end) {
            let count = place.values_before(end);
            let target = place.target.split_to(count * place.form.dtype.bytes());
            places.push(Place { end, target, ..*place });
            place.first = end;
        }
        let Self { radix, max_weight, output, overflow, .. } = *self;
        let pending = Pending::of(&places);
        Self { radix, max_weight, output, places, pending, overflow }
    }

    /// Decodes sums of the fields from `at` on, which are of whole values and of contributors of this weight together.
    /// A value that exceeds its tensor's type is reported in the end: any other fault goes before it.
    ///
    /// # Errors
    /// A file cannot be written.
    pub(crate) fn decode(
        &mut self,
        mut at: usize,
        mut sums: &[i64],
        weight: u64,
    ) -> Result<(), Error> {
        let Self { radix, output, overflow, .. } = *self;
        let mut block = Zeroizing::new([0.0; BLOCK]);
        let mut joined = None;
        let first = self.places.partition_point(|place| place.end <= at);
        for place in &mut self.places[first..] {
            let (mine, after) = sums.split_at(sums.len().min(place.end - at));
            let (form, limbs) = (place.form, place.at.limbs);
            let width = form.dtype.bytes();
            for (run, start) in place.at.runs(at..at + mine.len()) {
                let fields = &mine[start - at..][..run.len() * limbs];
                let mut skipped = place.values_before(start) * width;
                for (own, index) in fields.chunks(BLOCK / limbs * limbs).zip(0..) {
                    let own = match limbs {
                        1 => own,
                        _ => join(&radix, own, limbs, joined.get_or_insert_default()),
                    };
                    let count = own.len() * width;
                    let bytes = match &mut place.target {
                        Target::Memory(bytes) => &mut bytes[skipped..][..count],
                        Target::File(file, first) => {
                            self.pending.room(file, *first + skipped as u64, count)?
                        }
                    };
                    skipped += count;
                    let weights = (weight, self.max_weight);
                    if let Some(place) = form.write(own, weights, output, &mut block, bytes) {
                        let field = start + (index * (BLOCK / limbs) + place) * limbs;
                        overflow.fetch_min(field, Relaxed);
                    }
                }
            }
            at += mine.len();
            sums = after;
            if sums.is_empty() {
                break;
            }
        }
        Ok(())
    }

    /// Writes what is decoded and not written yet.
    ///
    /// # Errors
    /// A file cannot be written.
    pub(crate) fn finish(mut self) -> Result<(), Error> {
        self.pending.write()
    }
}
