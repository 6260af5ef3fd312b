//! The agreement that all contributors to a sum must share.

use super::{
    Precision,
    precision::{MOST, Radix},
};
use crate::{
    Error, Parameters, TensorSpec,
    bytes::{Reader, Writer},
    error::FrameError,
    params::{BITS, half_steps},
    tensors::Dtype,
};

/// Names, types and shapes of the tensors, their clipping ranges and precisions, the largest weight, the norm that
/// updates are clipped to, if they are, and the last sum that those who take part opened.
///
/// All of it is public: it travels in clear with every contribution.
#[derive(Debug, Clone, PartialEq)]
pub struct Agreement {
    specs: Vec<TensorSpec>,
    ranges: Vec<f64>,
    precisions: Vec<Precision>,
    max_weight: u32,
    clip_norm: Option<f64>,
    opened: Option<OpenedRound>,
    values: usize,
}

/// The last round of a job that a client opened, and a name of the sum that it opened it to.
///
/// Contributions are sealed under what most of those who take part say of the latest round that any opened. So an
/// aggregator that gave two clients different sums of it is found out at the next round that both take part in: one
/// refuses, or what they seal adds up to nothing that opens. It cannot make up a round that nobody opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct OpenedRound {
    /// The round.
    pub round: u64,
    /// The name of its sum, and what vouches for both: only those who have the key of tags can make it.
    pub sum: [u8; 32],
}

/// Stands in the place of the largest weight, which is never 0, before a norm that updates are clipped to and before
/// the round that was opened last.
const EXTENSION: u32 = 0;
/// Stands before the round that was opened last in the place of such a norm, which is never NaN.
const OPENED: u64 = u64::MAX;

/// More values than this is a malformed frame. It keeps the number of chunks below 2^32: those that carry
/// values hold dozens each, and masks little more than double their number.
const MAX_VALUES: usize = 1 << 36;

impl Agreement {
    /// Joins specifications with one range each. Floats are summed in the key's bits, integers exactly.
    ///
    /// # Errors
    /// Names are not distinct and ascending, the tensors are too large to be counted or of too many
    /// extents, a range is negative or not finite, or the largest weight is 0; a range of integers times the largest
    /// weight is 2^53 or more.
    ///
    /// # Panics
    /// If there are not as many ranges as tensors.
    pub fn new(specs: Vec<TensorSpec>, ranges: Vec<f64>, max_weight: u32) -> Result<Self, Error> {
        let usual = |spec: &TensorSpec| match spec.dtype.is_integer() {
            true => Precision::Exact,
            false => Precision::Key,
        };
        let precisions = specs.iter().map(usual).collect();
        Self::of_parts(specs, ranges, precisions, max_weight)
    }

    fn of_parts(
        specs: Vec<TensorSpec>,
        ranges: Vec<f64>,
        precisions: Vec<Precision>,
        max_weight: u32,
    ) -> Result<Self, Error> {
        // There is one zero: statements cover the bits of ranges.
        let ranges: Vec<_> = ranges.into_iter().map(|range| range + 0.0).collect();
        assert_eq!(specs.len(), ranges.len(), "one range for each tensor");
        if max_weight == 0 {
            return Err(Error::Weight { weight: 0, max_weight: u32::MAX });
        }
        let values = check_specs(&specs).map_err(|why| Error::Tensors { why })?;
        for ((spec, &range), precision) in specs.iter().zip(&ranges).zip(&precisions) {
            precision.check(spec)?;
            if !range.is_finite() || range < 0.0 {
                let (tensor, range) = (spec.name.clone(), range.to_string());
                return Err(Error::Range { tensor, range });
            }
        }
        let (clip_norm, opened) = (None, None);
        let agreement = Self { specs, ranges, precisions, max_weight, clip_norm, opened, values };
        agreement.check_exact(max_weight)?;
        let limbs = agreement.limbs(*BITS.start());
        let fields = agreement
            .specs
            .iter()
            .zip(limbs)
            .map(|(spec, limbs)| spec.values().unwrap_or(0) * limbs);
        if fields.sum::<usize>() > MAX_VALUES {
            return Err(Error::Tensors { why: "they take more than 2^36 fields".into() });
        }
        Ok(agreement)
    }

    /// Refuses integers whose range, times a largest weight, is beyond what is summed exactly.
    ///
    /// # Errors
    /// [`Error::NotExact`].
    pub(crate) fn check_exact(&self, max_weight: u32) -> Result<(), Error> {
        for (i, range) in self.exact() {
            if range * f64::from(max_weight) > MOST as f64 {
                let why = format!(
                    "its range, {range}, times the largest weight, {max_weight}, is 2^53 or more"
                );
                return Err(Error::NotExact { tensor: self.specs[i].name.clone(), why });
            }
        }
        Ok(())
    }

    /// Refuses integers that are measured to be beyond what this agreement sums exactly: nothing clips them.
    ///
    /// # Errors
    /// [`Error::NotExact`].
    pub(crate) fn check_covers(&self, measured: &Self) -> Result<(), Error> {
        let beyond = self.exact().find(|&(i, range)| measured.ranges[i] > range);
        let Some((i, range)) = beyond else { return Ok(()) };
        let why = format!("one of {} is beyond the agreed range, {range}", measured.ranges[i]);
        Err(Error::NotExact { tensor: self.specs[i].name.clone(), why })
    }

    /// Returns the tensors that are summed exactly, each with its range.
    fn exact(&self) -> impl Iterator<Item = (usize, f64)> {
        let each = self.precisions.iter().zip(&self.ranges).enumerate();
        each.filter(|(_, (precision, _))| **precision == Precision::Exact)
            .map(|(i, (_, range))| (i, range.floor()))
    }

    /// Returns the same agreement with a precision and a range for each tensor and another largest weight.
    ///
    /// # Errors
    /// Those of [`Self::new`]; floats that are to be exact, or integers in bits of their own.
    pub(crate) fn with(
        &self,
        precisions: Vec<Precision>,
        ranges: Vec<f64>,
        max_weight: u32,
    ) -> Result<Self, Error> {
        let other = Self::of_parts(self.specs.clone(), ranges, precisions, max_weight)?;
        Ok(other.with_clip_norm(self.clip_norm)?.with_opened(self.opened))
    }

    /// Returns the same agreement with bits of their own for some tensors of floats.
    ///
    /// # Errors
    /// [`Error::Bits`]: a tensor of integers has some, or one has fewer than 8 or more than 48.
    pub fn with_bits(self, bits: impl IntoIterator<Item = Option<u32>>) -> Result<Self, Error> {
        let own = self.precisions.iter().zip(bits);
        let precisions = own.map(|(usual, bits)| bits.map_or(*usual, Precision::Bits)).collect();
        self.with(precisions, self.ranges.clone(), self.max_weight)
    }

    /// Returns the same agreement with an L2 norm that each client clips its whole update to, or without one.
    ///
    /// # Errors
    /// [`Error::ClipNorm`]: it is negative or not finite. [`Error::NotExact`]: there are integers, which would be
    /// clipped with the rest.
    pub fn with_clip_norm(self, clip_norm: Option<f64>) -> Result<Self, Error> {
        match clip_norm {
            Some(norm) if !norm.is_finite() || norm < 0.0 => {
                Err(Error::ClipNorm { norm: norm.to_string() })
            }
            Some(_) if let Some((i, _)) = self.exact().next() => {
                let why = "whole updates are clipped to a norm; keep it out of the sum".into();
                Err(Error::NotExact { tensor: self.specs[i].name.clone(), why })
            }
            // There is one zero here too.
            _ => Ok(Self { clip_norm: clip_norm.map(|norm| norm + 0.0), ..self }),
        }
    }

    /// Returns the same agreement among clients who opened this round last, whatever it said of that.
    #[must_use]
    pub fn with_opened(self, opened: Option<OpenedRound>) -> Self {
        Self { opened, ..self }
    }

    /// Returns the same agreement with another largest weight.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn with_max_weight(&self, max_weight: u32) -> Result<Self, Error> {
        self.with(self.precisions.clone(), self.ranges.clone(), max_weight)
    }

    /// Returns the same agreement over other ranges.
    ///
    /// # Errors
    /// A range is negative or not finite.
    ///
    /// # Panics
    /// If there are not as many ranges as tensors.
    pub(crate) fn with_ranges(&self, ranges: Vec<f64>) -> Result<Self, Error> {
        self.with(self.precisions.clone(), ranges, self.max_weight)
    }

    /// Returns the tensors, sorted by name.
    #[must_use]
    pub fn specs(&self) -> &[TensorSpec] {
        &self.specs
    }

    /// Returns the range of each tensor.
    #[must_use]
    pub fn ranges(&self) -> &[f64] {
        &self.ranges
    }

    /// Returns the precision of each tensor.
    #[must_use]
    pub fn precisions(&self) -> &[Precision] {
        &self.precisions
    }

    /// Returns the step of each tensor's values under a key.
    pub fn steps(&self, parameters: &Parameters) -> impl Iterator<Item = f64> {
        let in_bits = |bits| half_steps(bits) as f64;
        let each = self.precisions.iter().zip(&self.ranges);
        each.map(move |(precision, range)| match precision {
            Precision::Key => range / in_bits(parameters.bits()),
            Precision::Bits(bits) => range / in_bits(*bits),
            Precision::Exact => 1.0,
        })
    }

    /// Returns the number of fields that a value of each tensor takes, of a key of these bits.
    pub(crate) fn limbs(&self, field_bits: u32) -> impl Iterator<Item = usize> {
        let radix = Radix::new(field_bits);
        let each = self.precisions.iter().zip(&self.ranges);
        each.map(move |(precision, range)| match precision {
            Precision::Key => 1,
            Precision::Bits(bits) => radix.limbs(half_steps(*bits)),
            Precision::Exact => radix.limbs(range.floor() as u64 * u64::from(self.max_weight)),
        })
    }

    /// Returns the largest weight that a contributor may have.
    #[must_use]
    pub fn max_weight(&self) -> u32 {
        self.max_weight
    }

    /// Returns the L2 norm that each client clips its whole update to before all else, if it does.
    #[must_use]
    pub fn clip_norm(&self) -> Option<f64> {
        self.clip_norm
    }

    /// Returns the last round that those who take part opened, if any did.
    #[must_use]
    pub fn opened(&self) -> Option<OpenedRound> {
        self.opened
    }

    /// Refuses to take part where another sum of the round that this client opened last is the `last` that was opened.
    ///
    /// # Errors
    /// [`Error::DifferentSums`].
    pub(crate) fn check_opened(&self, last: Option<OpenedRound>) -> Result<(), Error> {
        match (self.opened, last) {
            (Some(own), Some(last)) if own.round == last.round && own.sum != last.sum => {
                Err(Error::DifferentSums { round: own.round })
            }
            _ => Ok(()),
        }
    }

    /// Returns the number of values of all tensors.
    #[must_use]
    pub fn values(&self) -> usize {
        self.values
    }

    /// Refuses tensors of another layout, naming the first difference: "it" is `specs`, agreed is this one's.
    ///
    /// # Errors
    /// [`Error::Layout`].
    pub fn check_layout(&self, specs: &[TensorSpec]) -> Result<(), Error> {
        check_layout(specs, &self.specs)
    }

    /// Returns the agreement over the tensors of all, with the largest range of each, and the largest weight. Of opened
    /// rounds it says nothing.
    ///
    /// # Errors
    /// There is none, or their tensors or their clip norms differ from the first one's.
    pub(crate) fn largest<'a>(all: impl IntoIterator<Item = &'a Self>) -> Result<Self, Error> {
        let mut all = all.into_iter();
        let mut largest = all.next().ok_or(Error::NothingToSum)?.clone();
        for other in all {
            largest.check_same_layout(other)?;
            largest.check_same_clip_norm(other)?;
            let ranges = largest.ranges.iter_mut().zip(&other.ranges);
            ranges.for_each(|(range, other)| *range = range.max(*other));
            largest.max_weight = largest.max_weight.max(other.max_weight);
        }
        largest.check_exact(largest.max_weight)?;
        Ok(largest.with_opened(None))
    }

    /// Refuses other tensors, or the same in other precisions, naming the first difference: "it" is `other`,
    /// agreed is this one's.
    ///
    /// # Errors
    /// [`Error::Layout`].
    pub(crate) fn check_same_layout(&self, other: &Self) -> Result<(), Error> {
        self.check_layout(&other.specs)?;
        let mut each = self.specs.iter().zip(other.precisions.iter().zip(&self.precisions));
        match each.find(|(_, (here, there))| here != there) {
            None => Ok(()),
            Some((spec, (here, there))) => {
                let (name, here, there) = (&spec.name, here.words(), there.words());
                let difference =
                    format!("tensor {name:?} is summed in {here} by it, in {there} as agreed");
                Err(Error::Layout { difference })
            }
        }
    }

    /// Refuses a weight that is not from 1 to the largest.
    ///
    /// # Errors
    /// [`Error::Weight`].
    pub fn check_weight(&self, weight: u64) -> Result<u32, Error> {
        u32::try_from(weight)
            .ok()
            .filter(|w| (1..=self.max_weight).contains(w))
            .ok_or(Error::Weight { weight, max_weight: self.max_weight })
    }

    /// Refuses anything but the same agreement, naming the first difference: "here" is in this one,
    /// "there" in `other`.
    ///
    /// # Errors
    /// [`Error::Layout`] or [`Error::Ranges`].
    pub fn check_same(&self, other: &Self) -> Result<(), Error> {
        other.check_same_layout(self)?;
        let ranges = self.ranges.iter().zip(&other.ranges);
        for (spec, (a, b)) in self.specs.iter().zip(ranges) {
            if a.to_bits() != b.to_bits() {
                let difference = format!("tensor {:?} has range {a} here and {b} there", spec.name);
                return Err(Error::Ranges { difference });
            }
        }
        if self.max_weight != other.max_weight {
            let (a, b) = (self.max_weight, other.max_weight);
            let difference = format!("the largest weight is {a} here and {b} there");
            return Err(Error::Ranges { difference });
        }
        if self.opened != other.opened {
            let difference = "the last sum that clients opened is not the same".into();
            return Err(Error::Ranges { difference });
        }
        self.check_same_clip_norm(other)
    }

    fn check_same_clip_norm(&self, other: &Self) -> Result<(), Error> {
        if self.clip_norm.map(f64::to_bits) == other.clip_norm.map(f64::to_bits) {
            return Ok(());
        }
        let norm = |norm: Option<f64>| norm.map_or("none".into(), |norm| norm.to_string());
        let (a, b) = (norm(self.clip_norm), norm(other.clip_norm));
        let difference = format!("the norm that updates are clipped to is {a} here and {b} there");
        Err(Error::Ranges { difference })
    }

    pub(crate) fn write(&self, w: &mut Writer) {
        if let Some(OpenedRound { round, sum }) = self.opened {
            w.u32(EXTENSION);
            w.u64(OPENED);
            w.u64(round);
            w.bytes(&sum);
        }
        if let Some(norm) = self.clip_norm {
            w.u32(EXTENSION);
            w.u64(norm.to_bits());
        }
        w.u32(self.max_weight);
        write_specs(w, &self.specs);
        let each = self.ranges.iter().zip(&self.precisions);
        each.for_each(|(&range, &precision)| write_range(w, range, precision));
    }

    pub(crate) fn read(r: &mut Reader<'_>) -> Result<Self, Error> {
        let (mut opened, mut clip_norm) = (None, None);
        let max_weight = loop {
            match r.u32()? {
                EXTENSION => match r.u64()? {
                    OPENED if opened.is_none() && clip_norm.is_none() => {
                        opened = Some(OpenedRound { round: r.u64()?, sum: r.array()? });
                    }
                    norm if norm != OPENED && clip_norm.is_none() => {
                        clip_norm = Some(f64::from_bits(norm));
                    }
                    _ => return Err(FrameError::Malformed { what: "an extension twice" }.into()),
                },
                max_weight => break max_weight,
            }
        };
        let specs = read_specs(r)?;
        let read = specs.iter().map(|_| read_range(r)).collect::<Result<Vec<_>, _>>()?;
        let (ranges, precisions) = read.into_iter().unzip();
        let agreement = Self::of_parts(specs, ranges, precisions, max_weight)?;
        Ok(agreement.with_clip_norm(clip_norm)?.with_opened(opened))
    }
}

/// The sign of a range, which has none: it says that a precision other than the key's follows. Agreements without any
/// are those of earlier versions, which refuse the others by their range.
const HAS_PRECISION: u64 = 1 << 63;

fn write_range(w: &mut Writer, range: f64, precision: Precision) {
    match precision.code() {
        None => w.u64(range.to_bits()),
        Some(code) => {
            w.u64(range.to_bits() | HAS_PRECISION);
            w.u8(code);
        }
    }
}

fn read_range(r: &mut Reader<'_>) -> Result<(f64, Precision), FrameError> {
    let bits = r.u64()?;
    let precision = match bits & HAS_PRECISION {
        0 => Precision::Key,
        _ => Precision::from_code(r.u8()?)
            .ok_or(FrameError::Malformed { what: "an unknown precision" })?,
    };
    Ok((f64::from_bits(bits & !HAS_PRECISION), precision))
}

/// Returns the number of all values, if these are tensors that can be summed; otherwise why not.
pub(crate) fn check_specs(specs: &[TensorSpec]) -> Result<usize, String> {
    if let Some(pair) = specs.windows(2).find(|pair| pair[0].name >= pair[1].name) {
        return Err(format!("tensor {:?} is listed twice or out of order", pair[1].name));
    }
    specs.iter().try_fold(0usize, |sum, spec| {
        let total = spec.values().and_then(|v| sum.checked_add(v)).filter(|&v| v <= MAX_VALUES);
        if spec.shape.len() > usize::from(u16::MAX) {
            return Err(format!("tensor {:?} has {} extents", spec.name, spec.shape.len()));
        }
        total.ok_or_else(|| format!("tensor {:?} makes them more than 2^36 values", spec.name))
    })
}

/// Refuses two lists of tensors that differ, naming the first difference.
///
/// # Errors
/// [`Error::Layout`].
pub(crate) fn check_layout(here: &[TensorSpec], there: &[TensorSpec]) -> Result<(), Error> {
    match layout_difference(here, there) {
        Some(difference) => Err(Error::Layout { difference }),
        None => Ok(()),
    }
}

/// Returns the first difference, in words that its owner and whoever refuses it read alike.
fn layout_difference(here: &[TensorSpec], there: &[TensorSpec]) -> Option<String> {
    let surplus =
        |spec: &TensorSpec| format!("it has tensor {:?}, which was not agreed", spec.name);
    let missing = |spec: &TensorSpec| format!("it lacks tensor {:?}, which was agreed", spec.name);
    let shape = |spec: &TensorSpec| format!("{} {:?}", spec.dtype.name(), spec.shape);
    for (a, b) in here.iter().zip(there) {
        if a.name != b.name {
            return Some(if a.name < b.name { surplus(a) } else { missing(b) });
        }
        if a != b {
            return Some(format!(
                "tensor {:?} is {} in it and {} was agreed",
                a.name,
                shape(a),
                shape(b)
            ));
        }
    }
    let common = here.len().min(there.len());
    here.get(common).map(surplus).or_else(|| there.get(common).map(missing))
}

pub(crate) fn write_specs(w: &mut Writer, specs: &[TensorSpec]) {
    w.u32(specs.len() as u32);
    for spec in specs {
        w.prefixed(spec.name.as_bytes());
        w.u8(spec.dtype.code());
        w.u16(spec.shape.len() as u16);
        spec.shape.iter().for_each(|&d| w.u64(d));
    }
}

pub(crate) fn read_specs(r: &mut Reader<'_>) -> Result<Vec<TensorSpec>, FrameError> {
    let mut specs: Vec<TensorSpec> = vec![];
    for _ in 0..r.u32()? {
        let name = r.text()?;
        let dtype = Dtype::from_code(r.u8()?)
            .ok_or(FrameError::Malformed { what: "an unknown tensor type" })?;
        let extents = r.u16()?;
        let shape = (0..extents).map(|_| r.u64()).collect::<Result<Vec<_>, _>>()?;
        specs.push(TensorSpec { name, dtype, shape });
    }
    Ok(specs)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn specs() -> Vec<TensorSpec> {
        let spec = |name: &str, dtype| TensorSpec { name: name.into(), dtype, shape: vec![2] };
        vec![spec("f", Dtype::F32), spec("n", Dtype::I64)]
    }

    fn written(agreement: &Agreement) -> Vec<u8> {
        let mut w = Writer::default();
        agreement.write(&mut w);
        w.0
    }

    fn read(bytes: &[u8]) -> Result<Agreement, Error> {
        let mut r = Reader(bytes);
        let agreement = Agreement::read(&mut r)?;
        assert_eq!(r.end(), Ok(()));
        Ok(agreement)
    }

    #[test]
    fn agreements_of_earlier_versions_stay_what_they_were() {
        let mut w = Writer::default();
        w.u32(7);
        write_specs(&mut w, &specs());
        [1.5f64, 40.0].iter().for_each(|range| w.u64(range.to_bits()));
        let old = read(&w.0).unwrap();
        assert_eq!(old.precisions(), [Precision::Key; 2], "their integers were rounded");
        assert_eq!(written(&old), w.0, "and their statement is that");
        let new = Agreement::new(specs(), vec![1.5, 40.0], 7).unwrap();
        let differ =
            "tensor \"n\" is summed in exact integers by it, in the bits of the key as agreed";
        assert_eq!(new.check_same(&old), Err(Error::Layout { difference: differ.into() }));
        assert!(matches!(Agreement::largest([&old, &new]), Err(Error::Layout { .. })));
        // Of floats alone nothing is new.
        let floats = |agreement: &Agreement| written(agreement)[4..][4..].len();
        assert_eq!(floats(&new), floats(&old) + 1);
    }

    #[test]
    fn precisions_are_written_and_read() {
        let new = Agreement::new(specs(), vec![0.0, 40.0], 7).unwrap();
        for bits in [None, Some(8), Some(48)] {
            let own = new.clone().with_bits([bits, None]).unwrap();
            assert_eq!(read(&written(&own)), Ok(own.clone()));
            assert_eq!(own.check_same(&new).is_ok(), bits.is_none());
        }
        for bits in [[Some(7), None], [Some(49), None], [None, Some(24)]] {
            assert!(matches!(new.clone().with_bits(bits), Err(Error::Bits { .. })));
        }
        // A precision that there is not, and one that its type cannot have.
        let bytes = written(&new);
        for (code, dtype) in [(7, 7), (49, 7), (24, 7), (0, 2)] {
            let mut bytes = bytes.clone();
            let (last, at) = (bytes.len() - 1, 4 + 4 + (4 + 1 + 1 + 2 + 8) + (4 + 1));
            assert_eq!(bytes[at], Dtype::I64.code());
            (bytes[last], bytes[at]) = (code, dtype);
            assert!(read(&bytes).is_err(), "{code} of {dtype}");
        }
    }
}
