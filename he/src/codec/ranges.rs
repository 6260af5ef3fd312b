//! Clipping ranges: how a client finds its own, and the file in which ranges are shared.

use serde::{Deserialize, Serialize};

use super::Agreement;
use crate::{
    Error, Tensor, TensorSpec, Update,
    params::BITS,
    tensors::{Dtype, check_values},
    versions,
};

/// A policy by which a client derives a tensor's range from its values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Policy {
    /// The largest magnitude: nothing is clipped.
    Max,
    /// A multiple of the root mean square, at most the largest magnitude. What is no positive number
    /// clips nothing.
    Sigma(f64),
    /// The multiple that minimises the mean square error of clipping and rounding a Gaussian at the
    /// given bits, at most the largest magnitude.
    ///
    /// # Source
    /// R. Banner et al., "Post training 4-bit quantization of convolutional networks for
    /// rapid-deployment" (ACIQ), 2019, with the variance of stochastic rounding, step²/6.
    Aciq {
        /// Bits of a quantised value; out of 8 to 24, the nearest of these.
        bits: u32,
    },
    /// This range, whatever the values are.
    Fixed(f64),
}

impl Policy {
    /// Returns the multiple of the root mean square that is the largest range, if the policy has one.
    fn multiple(self) -> Option<f64> {
        match self {
            Self::Sigma(multiple) if multiple > 0.0 => Some(multiple),
            Self::Aciq { bits } => Some(gaussian_clip(bits)),
            Self::Max | Self::Sigma(_) | Self::Fixed(_) => None,
        }
    }

    /// Returns the range of a tensor whose largest magnitude is `largest`.
    fn range(self, tensor: &Tensor, largest: f64) -> Result<f64, Error> {
        match (self, self.multiple()) {
            (Self::Fixed(range), _) => Ok(range),
            // Integers are summed exactly, and never clipped.
            _ if tensor.spec.dtype.is_integer() => Ok(largest),
            (_, Some(multiple)) => Ok(largest.min(multiple * rms(tensor, largest)?)),
            _ => Ok(largest),
        }
    }
}

/// Returns the root mean square of a tensor whose largest magnitude is `largest`.
fn rms(tensor: &Tensor, largest: f64) -> Result<f64, Error> {
    // Relative to the largest, so that no square overflows or vanishes.
    let unit = if largest > 0.0 { largest } else { 1.0 };
    let mut squares = 0.0;
    tensor.try_for_blocks(|_, values| {
        squares += values.iter().map(|x| (x / unit) * (x / unit)).sum::<f64>();
        Ok::<_, Error>(())
    })?;
    Ok(unit * (squares / tensor.count().max(1) as f64).sqrt())
}

/// Finds the point where the error of clipping a unit Gaussian at `a` and that of rounding to `L = 2^(bits−1) − 1`
/// steps balance: `4·E[(x − a)⁺] = a / (3·L²)`, found by bisection.
fn gaussian_clip(bits: u32) -> f64 {
    let bits = bits.clamp(*BITS.start(), *BITS.end());
    let steps = f64::from((1u32 << (bits - 1)) - 1);
    let excess = |a: f64| -> f64 {
        // Simpson's rule over [a, a + 10], past which a unit Gaussian is below 1e-22.
        const PARTS: u32 = 1000;
        let h = 10.0 / f64::from(PARTS);
        let tail = |i: u32| {
            let t = h * f64::from(i);
            let weight = if i == 0 || i == PARTS { 1.0 } else { f64::from(2 + 2 * (i % 2)) };
            weight * t * (-(a + t) * (a + t) / 2.0).exp()
        };
        (0..=PARTS).map(tail).sum::<f64>() * h / 3.0 / (2.0 * std::f64::consts::PI).sqrt()
    };
    let (mut low, mut high) = (0.5, 10.0);
    for _ in 0..60 {
        let middle: f64 = (low + high) / 2.0;
        if 4.0 * excess(middle) > middle / (3.0 * steps * steps) {
            low = middle
        } else {
            high = middle
        }
    }
    low
}

/// Returns the smallest power of two that is not below `range`; 0 stays 0, and beyond the largest
/// power of two a double can hold it is the largest double.
#[must_use]
pub fn round_up_to_power_of_two(range: f64) -> f64 {
    const MANTISSA: u64 = (1 << 52) - 1;
    let bits = range.to_bits();
    let power = if bits == 0 {
        0
    } else if bits <= MANTISSA {
        // Subnormal numbers are integers times 2^-1074.
        bits.next_power_of_two()
    } else {
        (bits + MANTISSA) & !MANTISSA
    };
    f64::from_bits(power).min(f64::MAX)
}

/// One tensor of a [`RangesFile`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TensorRange {
    name: String,
    dtype: String,
    shape: Vec<u64>,
    range: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    bits: Option<u32>,
}

/// A client's own ranges and largest weight, or those of many joined: JSON, for all to share.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RangesFile {
    kind: String,
    version: u32,
    max_weight: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    clip_norm: Option<f64>,
    tensors: Vec<TensorRange>,
}

const KIND: &str = "ciphergram-ranges";
/// The first version has no norm that updates are clipped to, the second no bits of tensors; ranges without are still
/// of these.
const VERSION: u32 = 3;

impl RangesFile {
    /// Returns the ranges that `policy` finds in `update`.
    ///
    /// # Errors
    /// A value cannot be summed, or the weight is not from 1 to 2^32 − 1; the file cannot be read.
    pub fn measure(update: &Update, policy: Policy, weight: u64) -> Result<Self, Error> {
        let max_weight = u32::try_from(weight)
            .ok()
            .filter(|&w| w > 0)
            .ok_or(Error::Weight { weight, max_weight: u32::MAX })?;
        let tensors = update.tensors().iter().map(|tensor| {
            let mut largest = 0f64;
            tensor.try_for_blocks(|first, values| {
                check_values(tensor, first, values)?;
                largest = values.iter().fold(largest, |largest, x| largest.max(x.abs()));
                Ok::<_, Error>(())
            })?;
            Ok(TensorRange {
                name: tensor.spec.name.clone(),
                dtype: tensor.spec.dtype.name().into(),
                shape: tensor.spec.shape.clone(),
                range: policy.range(tensor, largest)?,
                bits: None,
            })
        });
        let tensors = tensors.collect::<Result<_, Error>>()?;
        Ok(Self { kind: KIND.into(), version: 1, max_weight, clip_norm: None, tensors })
    }

    /// Returns the file of an agreement.
    #[must_use]
    pub fn from_agreement(agreement: &Agreement) -> Self {
        let each = agreement.specs().iter().zip(agreement.ranges()).zip(agreement.precisions());
        let tensors = each.map(|((spec, &range), precision)| {
            let (name, dtype) = (spec.name.clone(), spec.dtype.name().into());
            TensorRange { name, dtype, shape: spec.shape.clone(), range, bits: precision.bits() }
        });
        let (tensors, clip_norm) = (tensors.collect::<Vec<_>>(), agreement.clip_norm());
        let has_bits = tensors.iter().any(|tensor| tensor.bits.is_some());
        let version = if has_bits { VERSION } else { 1 + u32::from(clip_norm.is_some()) };
        let max_weight = agreement.max_weight();
        Self { kind: KIND.into(), version, max_weight, clip_norm, tensors }
    }

    /// Parses JSON.
    ///
    /// # Errors
    /// It is not such a file, or a later version of it.
    pub fn from_json(text: &str) -> Result<Self, Error> {
        let invalid = |why: String| Error::Format { what: "ranges file", why };
        versions::check_json(text, "ranges file", KIND, VERSION)?;
        serde_json::from_str(text).map_err(|e| invalid(e.to_string()))
    }

    /// Returns the JSON text.
    ///
    /// # Errors
    /// None is known; the library's are passed on.
    pub fn to_json(&self) -> Result<String, Error> {
        serde_json::to_string_pretty(self)
            .map_err(|e| Error::Format { what: "ranges file", why: e.to_string() })
    }

    /// Checks it and makes it the agreement.
    ///
    /// # Errors
    /// A type is unknown, names are not distinct, a range or the norm is negative or not finite.
    pub fn agreement(&self) -> Result<Agreement, Error> {
        let mut tensors: Vec<&TensorRange> = self.tensors.iter().collect();
        tensors.sort_by(|a, b| a.name.cmp(&b.name));
        let mut specs: Vec<TensorSpec> = vec![];
        for t in &tensors {
            let unknown = || Error::Dtype { tensor: t.name.clone(), dtype: t.dtype.clone() };
            let dtype = Dtype::from_name(&t.dtype).ok_or_else(unknown)?;
            specs.push(TensorSpec { name: t.name.clone(), dtype, shape: t.shape.clone() });
        }
        Agreement::new(specs, tensors.iter().map(|t| t.range).collect(), self.max_weight)?
            .with_bits(tensors.iter().map(|t| t.bits))?
            .with_clip_norm(self.clip_norm)
    }

    /// Returns the largest range of each tensor and the largest weight of all files.
    ///
    /// # Errors
    /// There is none, one is not valid, or their tensors or the norms that updates are clipped to differ.
    pub fn merge(files: &[Self]) -> Result<Self, Error> {
        let agreements = files.iter().map(Self::agreement).collect::<Result<Vec<_>, _>>()?;
        Ok(Self::from_agreement(&Agreement::largest(&agreements)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn update(values: &[f64]) -> Update {
        let shape = vec![values.len() as u64];
        let spec = TensorSpec { name: "t".into(), dtype: Dtype::F64, shape };
        Update::new(vec![Tensor::from_values(spec, values).unwrap()])
    }

    #[test]
    fn the_gaussian_optimum_agrees_with_the_paper() {
        // ACIQ's own table is for rounding to nearest, step²/12 over 2^bits steps: 3.92 at 8 bits.
        // Stochastic rounding weighs twice as much, which pushes the optimum a little lower.
        assert!((3.6..3.92).contains(&gaussian_clip(8)), "{}", gaussian_clip(8));
        assert!((gaussian_clip(16) - 5.9).abs() < 0.3, "{}", gaussian_clip(16));
    }

    #[test]
    fn policies_never_exceed_the_largest() {
        let values = update(&[3.0, -4.0, 0.0, 0.0]);
        let range = |policy| RangesFile::measure(&values, policy, 1).unwrap().tensors[0].range;
        assert_eq!(range(Policy::Max), 4.0);
        assert_eq!(range(Policy::Sigma(1.0)), 2.5);
        assert_eq!(range(Policy::Sigma(9.0)), 4.0);
        assert_eq!(range(Policy::Aciq { bits: 16 }), 4.0);
    }

    #[test]
    fn merging_takes_the_largest_and_json_round_trips() {
        let a = RangesFile::measure(&update(&[0.1, 0.2]), Policy::Max, 7).unwrap();
        let b = RangesFile::measure(&update(&[1e-300, -0.3]), Policy::Max, 3).unwrap();
        let merged = RangesFile::merge(&[a.clone(), b]).unwrap();
        assert_eq!((merged.tensors[0].range, merged.max_weight), (0.3, 7));
        assert_eq!(RangesFile::from_json(&merged.to_json().unwrap()).unwrap(), merged);
        let other = RangesFile::measure(&update(&[1.0; 3]), Policy::Max, 1).unwrap();
        assert!(matches!(RangesFile::merge(&[a, other]), Err(Error::Layout { .. })));
        assert!(matches!(RangesFile::from_json("{}"), Err(Error::Format { .. })));
    }

    proptest! {
        #[test]
        fn powers_of_two_cover_any_range(bits in any::<u64>()) {
            let range = f64::from_bits(bits).abs();
            prop_assume!(range.is_finite());
            let power = round_up_to_power_of_two(range);
            prop_assert!(power >= range && power.is_finite());
            if range > 0.0 && power < f64::MAX {
                prop_assert!(power / 2.0 < range || power / 2.0 == 0.0);
                prop_assert_eq!(power.log2().fract(), 0.0);
            }
        }
    }
}
