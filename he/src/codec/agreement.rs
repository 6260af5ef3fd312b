//! The agreement that all contributors to a sum must share.

use crate::{
    Error, TensorSpec,
    bytes::{Reader, Writer},
    error::FrameError,
    tensors::Dtype,
};

/// Names, types and shapes of the tensors, their clipping ranges, the largest weight, the norm that updates are clipped
/// to, if they are, and which sums those who take part opened last.
///
/// All of it is public: it travels in clear with every contribution.
#[derive(Debug, Clone, PartialEq)]
pub struct Agreement {
    specs: Vec<TensorSpec>,
    ranges: Vec<f64>,
    max_weight: u32,
    clip_norm: Option<f64>,
    opened: Vec<OpenedRound>,
    values: usize,
}

/// The last round of a job that a client opened, and the digest of the sum that it opened it to.
///
/// Contributions are sealed under those of all who take part. So an aggregator that gave two clients different sums of
/// one round is found out at the next round that both take part in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct OpenedRound {
    /// The round.
    pub round: u64,
    /// The digest of its sum.
    pub sum: [u8; 32],
}

/// Precedes a norm that updates are clipped to, in the place of the largest weight, which is never 0.
const CLIP_NORM: u32 = 0;
/// Precedes the rounds that were opened, in the place of such a norm, which is never NaN.
const OPENED: u64 = u64::MAX;

/// More values than this is a malformed frame. It keeps the number of chunks below 2^32: those that carry
/// values hold dozens each, and masks little more than double their number.
const MAX_VALUES: usize = 1 << 36;

impl Agreement {
    /// Joins specifications with one range each.
    ///
    /// # Errors
    /// Names are not distinct and ascending, the tensors are too large to be counted or of too many
    /// extents, a range is negative or not finite, or the largest weight is 0.
    ///
    /// # Panics
    /// If there are not as many ranges as tensors.
    pub fn new(specs: Vec<TensorSpec>, ranges: Vec<f64>, max_weight: u32) -> Result<Self, Error> {
        // There is one zero: statements cover the bits of ranges.
        let ranges: Vec<_> = ranges.into_iter().map(|range| range + 0.0).collect();
        assert_eq!(specs.len(), ranges.len(), "one range for each tensor");
        if max_weight == 0 {
            return Err(Error::Weight { weight: 0, max_weight: u32::MAX });
        }
        let values = check_specs(&specs).map_err(|why| Error::Tensors { why })?;
        for (spec, &range) in specs.iter().zip(&ranges) {
            if !range.is_finite() || range < 0.0 {
                let (tensor, range) = (spec.name.clone(), range.to_string());
                return Err(Error::Range { tensor, range });
            }
        }
        Ok(Self { specs, ranges, max_weight, clip_norm: None, opened: vec![], values })
    }

    /// Returns the same agreement with an L2 norm that each client clips its whole update to, or without one.
    ///
    /// # Errors
    /// [`Error::ClipNorm`]: it is negative or not finite.
    pub fn with_clip_norm(self, clip_norm: Option<f64>) -> Result<Self, Error> {
        match clip_norm {
            Some(norm) if !norm.is_finite() || norm < 0.0 => {
                Err(Error::ClipNorm { norm: norm.to_string() })
            }
            // There is one zero here too.
            _ => Ok(Self { clip_norm: clip_norm.map(|norm| norm + 0.0), ..self }),
        }
    }

    /// Returns the same agreement among clients who opened these rounds last, whatever it said of that.
    #[must_use]
    pub fn with_opened(mut self, opened: impl IntoIterator<Item = OpenedRound>) -> Self {
        self.opened = opened.into_iter().collect();
        self.opened.sort_unstable();
        self.opened.dedup();
        self
    }

    /// Returns the same agreement over other ranges.
    ///
    /// # Errors
    /// A range is negative or not finite.
    ///
    /// # Panics
    /// If there are not as many ranges as tensors.
    pub(crate) fn with_ranges(&self, ranges: Vec<f64>) -> Result<Self, Error> {
        let other = Self::new(self.specs.clone(), ranges, self.max_weight)?;
        Ok(other.with_clip_norm(self.clip_norm)?.with_opened(self.opened.iter().copied()))
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

    /// Returns the rounds that those who take part opened last, ascending, each once.
    #[must_use]
    pub fn opened(&self) -> &[OpenedRound] {
        &self.opened
    }

    /// Refuses to take part with clients who opened another sum of the same round.
    ///
    /// # Errors
    /// [`Error::DifferentSums`].
    pub(crate) fn check_opened(&self) -> Result<(), Error> {
        match self.opened.windows(2).find(|pair| pair[0].round == pair[1].round) {
            Some(pair) => Err(Error::DifferentSums { round: pair[0].round }),
            None => Ok(()),
        }
    }

    /// Returns the number of values of all tensors.
    #[must_use]
    pub fn values(&self) -> usize {
        self.values
    }

    /// Refuses tensors of another layout, naming the first difference: "here" is in `specs`, "there"
    /// in the agreement.
    ///
    /// # Errors
    /// [`Error::Layout`].
    pub fn check_layout(&self, specs: &[TensorSpec]) -> Result<(), Error> {
        check_layout(specs, &self.specs)
    }

    /// Returns the agreement over the tensors of all, with the largest range of each, the largest weight and all rounds
    /// that were opened.
    ///
    /// # Errors
    /// There is none, or their tensors or their clip norms differ from the first one's.
    pub(crate) fn largest<'a>(all: impl IntoIterator<Item = &'a Self>) -> Result<Self, Error> {
        let mut all = all.into_iter();
        let mut largest = all.next().ok_or(Error::NothingToSum)?.clone();
        for other in all {
            largest.check_layout(&other.specs)?;
            largest.check_same_clip_norm(other)?;
            let ranges = largest.ranges.iter_mut().zip(&other.ranges);
            ranges.for_each(|(range, other)| *range = range.max(*other));
            largest.max_weight = largest.max_weight.max(other.max_weight);
            largest.opened.extend(&other.opened);
        }
        let opened = std::mem::take(&mut largest.opened);
        Ok(largest.with_opened(opened))
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
        other.check_layout(&self.specs)?;
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
            let difference = "the sums that clients opened before are not the same".into();
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
        if !self.opened.is_empty() {
            w.u32(CLIP_NORM);
            w.u64(OPENED);
            w.u16(self.opened.len() as u16);
            for OpenedRound { round, sum } in &self.opened {
                w.u64(*round);
                w.bytes(sum);
            }
        }
        if let Some(norm) = self.clip_norm {
            w.u32(CLIP_NORM);
            w.u64(norm.to_bits());
        }
        w.u32(self.max_weight);
        write_specs(w, &self.specs);
        self.ranges.iter().for_each(|r| w.u64(r.to_bits()));
    }

    pub(crate) fn read(r: &mut Reader<'_>) -> Result<Self, Error> {
        let (mut opened, mut clip_norm, mut max_weight) = (vec![], None, r.u32()?);
        if max_weight == CLIP_NORM {
            let mut norm = r.u64()?;
            if norm == OPENED {
                for _ in 0..r.u16()? {
                    opened.push(OpenedRound { round: r.u64()?, sum: r.array()? });
                }
                max_weight = r.u32()?;
                norm = if max_weight == CLIP_NORM { r.u64()? } else { OPENED };
            }
            if norm != OPENED {
                (clip_norm, max_weight) = (Some(f64::from_bits(norm)), r.u32()?);
            }
        }
        let specs = read_specs(r)?;
        let ranges =
            specs.iter().map(|_| r.u64().map(f64::from_bits)).collect::<Result<Vec<_>, _>>()?;
        if max_weight == 0 {
            return Err(FrameError::Malformed { what: "a largest weight of 0" }.into());
        }
        if !opened.is_sorted_by(|a, b| a < b) {
            return Err(FrameError::Malformed { what: "opened rounds out of order" }.into());
        }
        let agreement = Self::new(specs, ranges, max_weight)?.with_clip_norm(clip_norm)?;
        Ok(agreement.with_opened(opened))
    }
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

fn layout_difference(here: &[TensorSpec], there: &[TensorSpec]) -> Option<String> {
    let shape = |spec: &TensorSpec| format!("{} {:?}", spec.dtype.name(), spec.shape);
    for (a, b) in here.iter().zip(there) {
        if a.name != b.name {
            let missing = if a.name < b.name { (&a.name, "there") } else { (&b.name, "here") };
            return Some(format!("tensor {:?} is missing {}", missing.0, missing.1));
        }
        if a != b {
            return Some(format!(
                "tensor {:?} is {} here and {} there",
                a.name,
                shape(a),
                shape(b)
            ));
        }
    }
    let common = here.len().min(there.len());
    let longer = if here.len() > common { (here, "there") } else { (there, "here") };
    longer.0.get(common).map(|s| format!("tensor {:?} is missing {}", s.name, longer.1))
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
