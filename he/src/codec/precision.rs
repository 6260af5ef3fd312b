//! Precisions of tensors, and the limbs that integers of more bits than a field's are cut into.

use std::ops::RangeInclusive;

use ciphergram_accel::random::StreamRng;
use rand_core::Rng;
use serde::{Deserialize, Serialize};

use crate::{Error, TensorSpec, params::half_steps};

/// The fewest and the most bits that a tensor may be summed in beside the key's.
pub(crate) const TENSOR_BITS: RangeInclusive<u32> = 8..=48;

/// Bits of the tensors of floats that a pattern names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TensorBits {
    /// A name, in which `*` stands for any text.
    pub name: String,
    /// From 8 to 48.
    pub bits: u32,
}

impl TensorBits {
    /// Refuses bits that no tensor may have.
    ///
    /// # Errors
    /// [`Error::Bits`].
    pub(crate) fn check(&self) -> Result<(), Error> {
        if TENSOR_BITS.contains(&self.bits) {
            return Ok(());
        }
        Err(self.fault(format!("{}; choose 8 to 48", self.bits)))
    }

    /// Refuses a pattern that names none of these tensors.
    ///
    /// # Errors
    /// [`Error::Bits`].
    pub(crate) fn check_names(&self, specs: &[TensorSpec]) -> Result<(), Error> {
        if specs.iter().any(|spec| self.names(spec)) {
            return Ok(());
        }
        Err(self.fault("no tensor of floats has such a name".into()))
    }

    fn fault(&self, why: String) -> Error {
        Error::Bits { name: self.name.clone(), why }
    }

    /// Returns whether a tensor is meant: never one of integers, which are exact.
    pub(crate) fn names(&self, spec: &TensorSpec) -> bool {
        !spec.dtype.is_integer() && is_of_pattern(&spec.name, &self.name)
    }
}

/// Returns whether a name is of a pattern, in which `*` stands for any text: each part between two of them where it
/// comes first, so that a name that a peer chose takes no more than a search for each.
fn is_of_pattern(name: &str, pattern: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return pattern == name };
    let (middle, end) = rest.rsplit_once('*').unwrap_or(("", rest));
    let name = name.strip_prefix(start).and_then(|name| name.strip_suffix(end));
    name.is_some_and(|mut name| {
        middle.split('*').all(|part| match name.split_once(part) {
            Some((_, rest)) => {
                name = rest;
                true
            }
            None => false,
        })
    })
}

/// The steps in which a tensor's values are summed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Precision {
    /// Those of the key's bits, in one field a value.
    Key,
    /// Those of bits of its own, in as many fields as they take.
    Bits(u32),
    /// Integers as they are, in as many fields as their range and the largest weight take.
    Exact,
}

impl Precision {
    /// Refuses the precision of a tensor that cannot have it.
    ///
    /// # Errors
    /// [`Error::Bits`].
    pub(crate) fn check(self, spec: &TensorSpec) -> Result<(), Error> {
        let is_integer = spec.dtype.is_integer();
        let can_be = match self {
            Self::Key => true,
            Self::Bits(bits) => !is_integer && TENSOR_BITS.contains(&bits),
            Self::Exact => is_integer,
        };
        if can_be {
            return Ok(());
        }
        let why = format!("{} cannot be summed in {}", spec.dtype.name(), self.words());
        Err(Error::Bits { name: spec.name.clone(), why })
    }

    /// Returns the bits, if they are the tensor's own.
    #[must_use]
    pub fn bits(self) -> Option<u32> {
        match self {
            Self::Bits(bits) => Some(bits),
            Self::Key | Self::Exact => None,
        }
    }

    /// Returns the number that stands for it beside a range, if any does: frames of earlier versions have none.
    pub(crate) fn code(self) -> Option<u8> {
        match self {
            Self::Key => None,
            Self::Bits(bits) => Some(bits as u8),
            Self::Exact => Some(0),
        }
    }

    /// Returns the precision of that number.
    pub(crate) fn from_code(code: u8) -> Option<Self> {
        match code {
            0 => Some(Self::Exact),
            bits if TENSOR_BITS.contains(&bits.into()) => Some(Self::Bits(bits.into())),
            _ => None,
        }
    }

    /// Returns it in words.
    #[must_use]
    pub fn words(self) -> String {
        match self {
            Self::Key => "the bits of the key".into(),
            Self::Bits(bits) => format!("{bits} bits"),
            Self::Exact => "exact integers".into(),
        }
    }
}

/// Integers up to this magnitude have sums of any number of contributors that 64 bits hold.
pub(crate) const MOST: u64 = (1 << 53) - 1;

/// The cut of integers into limbs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Radix {
    /// The largest digit, L.
    half: u64,
    base: u64,
    /// 2^64 over the base, rounded down.
    reciprocal: u64,
    /// The multiple of the base that makes any integer positive.
    lift: u64,
}

impl Radix {
    /// Digits of fields of `bits` bits.
    pub(crate) fn new(bits: u32) -> Self {
        let half = half_steps(bits);
        let base = 2 * half + 1;
        Self { half, base, reciprocal: u64::MAX / base, lift: MOST / base + 2 }
    }

    /// Returns the number of limbs that integers up to this magnitude take.
    pub(crate) fn limbs(&self, most: u64) -> usize {
        let (mut limbs, mut held) = (1, self.half);
        while held < most {
            held = held.saturating_mul(self.base).saturating_add(self.half);
            limbs += 1;
        }
        limbs
    }

    /// Writes the digits of an integer of magnitude [`MOST`] at most as fields. Takes the same time for all.
    fn cut(&self, value: i64, fields: &mut [u32]) {
        let mut rest = value;
        for field in fields {
            let positive = rest.wrapping_add_unsigned(self.half + self.lift * self.base) as u64;
            // The quotient, or one less: the reciprocal is rounded down, and what it multiplies is below 2^64.
            let low = ((u128::from(positive) * u128::from(self.reciprocal)) >> 64) as u64;
            let digit = positive - low * self.base;
            let is_over = 1 ^ digit.wrapping_sub(self.base) >> 63;
            *field = (digit - is_over * self.base) as u32;
            rest = (low + is_over) as i64 - self.lift as i64;
        }
    }

    /// Returns the integer of sums of digits. What no contributors can sum to wraps around.
    pub(crate) fn join(&self, digits: &[i64]) -> i64 {
        let join =
            |high: i64, &digit: &i64| high.wrapping_mul(self.base as i64).wrapping_add(digit);
        digits.iter().rev().fold(0, join)
    }

    /// Writes integers as fields, `limbs` each.
    pub(crate) fn cut_all(
        &self,
        values: impl Iterator<Item = i64>,
        limbs: usize,
        fields: &mut [u32],
    ) {
        fields
            .chunks_exact_mut(limbs)
            .zip(values)
            .for_each(|(fields, value)| self.cut(value, fields));
    }
}

/// Clips, scales and rounds values as [`round`](super::round) does, to integers of more bits than a field's, and cuts
/// them into limbs: `scale` steps at the end of the range, `most` at the most. A value has as many words of the stream
/// as fields, of which it uses the first.
pub(crate) fn round_wide(
    (scale, most): (f64, i64),
    range: f64,
    (values, limbs, fields): (&[f64], usize, &mut [u32]),
    radix: &Radix,
    rounder: &mut [u8],
    rng: &mut StreamRng,
) {
    let near = near_unit(range);
    let range = range * near;
    let factor = if range == 0.0 { 0.0 } else { scale / range };
    let at_once = rounder.len() / (4 * limbs);
    for (values, fields) in values.chunks(at_once).zip(fields.chunks_mut(at_once * limbs)) {
        let random = &mut rounder[..4 * fields.len()];
        rng.fill_bytes(random);
        let words = random.as_chunks().0.iter().step_by(limbs);
        let integers = values.iter().zip(words).map(|(&x, word)| {
            let x = x * near;
            let x = if x > -range { x } else { -range };
            let x = if x < range { x } else { range };
            let exact = x * factor;
            // Towards zero, and then down.
            let whole = exact as i64;
            let part = exact - whole as f64;
            let (whole, part) =
                (whole - i64::from(part < 0.0), part + f64::from(u8::from(part < 0.0)));
            let draw = f64::from(u32::from_le_bytes(*word)) / 4_294_967_296.0;
            (whole + i64::from(draw < part)).clamp(-most, most)
        });
        radix.cut_all(integers, limbs, fields);
    }
}

/// Returns the integer nearest to a sum over a weight, the even one of two. Exact: the quotient of the doubles is
/// within one of it, since the sum over the weight is below 2^53.
pub(crate) fn nearest_mean(sum: i64, weight: u64) -> i64 {
    let near = (sum as f64 / weight as f64).round_ties_even() as i64;
    let weight = i128::from(weight);
    let twice_off = 2 * (i128::from(sum) - i128::from(near) * weight);
    let is_odd = near & 1 == 1;
    let up = twice_off > weight || twice_off == weight && is_odd;
    let down = twice_off < -weight || twice_off == -weight && is_odd;
    near.wrapping_add(i64::from(up)).wrapping_sub(i64::from(down))
}

/// 2^-512 and 2^512.
const SMALL: f64 = f64::from_bits((1023 - 512) << 52);
const LARGE: f64 = f64::from_bits((1023 + 512) << 52);

/// Returns the power of two that a range is multiplied by: neither it nor one over it may be subnormal or infinite.
pub(super) fn near_unit(range: f64) -> f64 {
    match range {
        ..SMALL => LARGE,
        LARGE.. => SMALL,
        _ => 1.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn stars_of_a_pattern_stand_for_any_text() {
        for (pattern, names, others) in [
            ("w", &["w"][..], &["", "ww"][..]),
            ("*", &["", "w", "a.b"], &[]),
            ("head.*", &["head.", "head.w"], &["head", "a.head.w"]),
            ("*.w", &["a.w", ".w"], &["w", "a.w.b"]),
            ("a*b*c", &["abc", "a.b.c", "abbcc"], &["ab", "ac", "acb", "abcd"]),
            ("aa*aa", &["aaaa", "aa.aa"], &["aa", "aaa"]),
            ("*l.*.m.*w", &["l.0.m.w", "x.l.l.m.m.w"], &["l.m.w", "l.0.m"]),
        ] {
            assert!(names.iter().all(|name| is_of_pattern(name, pattern)), "{pattern}");
            assert!(!others.iter().any(|name| is_of_pattern(name, pattern)), "{pattern}");
        }
        // Tried at every place of a long name, it would not end.
        let long = format!("l.{}x", ".m.".repeat(1_000_000));
        assert!(!is_of_pattern(&long, "l.*.m.*.m.*.w"));
    }

    proptest! {
        #[test]
        fn limbs_join_to_what_was_cut(bits in 8u32..=24, value in -(MOST as i64)..=MOST as i64, size in 0u32..54) {
            let (radix, value) = (Radix::new(bits), value >> size);
            let limbs = radix.limbs(value.unsigned_abs());
            let mut fields = vec![0; limbs];
            radix.cut(value, &mut fields);
            let half = half_steps(bits) as i64;
            prop_assert!(fields.iter().all(|&field| i64::from(field) <= 2 * half));
            let digits: Vec<_> = fields.iter().map(|&field| i64::from(field) - half).collect();
            prop_assert_eq!(radix.join(&digits), value);
        }

        #[test]
        fn the_mean_is_the_nearest_integer(
            mean in -(MOST as i64)..=MOST as i64,
            weight in 1u64..1024,
            off in any::<u64>(),
        ) {
            let off = (off % weight) as i64;
            let (twice, near) = (2 * off as u64, nearest_mean(mean * weight as i64 + off, weight));
            let up = i64::from(twice > weight || twice == weight && mean & 1 == 1);
            prop_assert_eq!(near, mean + up);
        }
    }

    #[test]
    fn the_ends_of_any_number_of_limbs_fit_them() {
        for bits in [8, 16, 24] {
            let radix = Radix::new(bits);
            for limbs in 1..=2 {
                let most = (radix.base.pow(limbs) - 1) / 2;
                assert_eq!(radix.limbs(most), limbs as usize);
                assert_eq!(radix.limbs(most + 1), limbs as usize + 1);
                for value in [most.min(MOST) as i64, 0, -(most.min(MOST) as i64)] {
                    let mut fields = vec![0; limbs as usize];
                    radix.cut(value, &mut fields);
                    let digits: Vec<_> =
                        fields.iter().map(|&f| i64::from(f) - radix.half as i64).collect();
                    assert_eq!(radix.join(&digits), value);
                }
            }
        }
    }
}
