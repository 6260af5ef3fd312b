//! Types of values: what they hold, and how they are read and written.

use half::{bf16, f16};

/// A type of the values of a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dtype {
    /// IEEE 754 half precision.
    F16,
    /// The upper half of single precision.
    Bf16,
    /// Single precision.
    F32,
    /// Double precision.
    F64,
    /// Signed integers of 8 bits.
    I8,
    /// Signed integers of 16 bits.
    I16,
    /// Signed integers of 32 bits.
    I32,
    /// Signed integers of 64 bits.
    I64,
    /// Unsigned integers of 8 bits.
    U8,
    /// Unsigned integers of 16 bits.
    U16,
    /// Unsigned integers of 32 bits.
    U32,
    /// Unsigned integers of 64 bits.
    U64,
    /// Truth values, a byte each: 0 and 1 in sums.
    Bool,
}

/// Integers of this magnitude or more are not summed: from here on doubles leave some out.
pub(crate) const INTEGER_LIMIT: f64 = 9_007_199_254_740_992.0;

impl Dtype {
    /// All types, in the order of their codes.
    const ALL: [Self; 13] = [
        Self::F16,
        Self::Bf16,
        Self::F32,
        Self::F64,
        Self::I8,
        Self::I16,
        Self::I32,
        Self::I64,
        Self::U8,
        Self::U16,
        Self::U32,
        Self::U64,
        Self::Bool,
    ];

    /// Returns the name that safetensors uses.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::F16 => "F16",
            Self::Bf16 => "BF16",
            Self::F32 => "F32",
            Self::F64 => "F64",
            Self::I8 => "I8",
            Self::I16 => "I16",
            Self::I32 => "I32",
            Self::I64 => "I64",
            Self::U8 => "U8",
            Self::U16 => "U16",
            Self::U32 => "U32",
            Self::U64 => "U64",
            Self::Bool => "BOOL",
        }
    }

    /// Returns the type of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|d| d.name() == name)
    }

    /// Returns the number that stands for it in frames and in the names of jobs.
    pub(crate) fn code(self) -> u8 {
        self as u8
    }

    /// Returns the type of that number.
    pub(crate) fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code)).copied()
    }

    /// Returns whether its values are integers or truth values.
    #[must_use]
    pub fn is_integer(self) -> bool {
        !matches!(self, Self::F16 | Self::Bf16 | Self::F32 | Self::F64)
    }

    /// Returns the bytes of one value.
    #[must_use]
    pub fn bytes(self) -> usize {
        match self {
            Self::I8 | Self::U8 | Self::Bool => 1,
            Self::F16 | Self::Bf16 | Self::I16 | Self::U16 => 2,
            Self::F32 | Self::I32 | Self::U32 => 4,
            Self::F64 | Self::I64 | Self::U64 => 8,
        }
    }

    pub(super) fn safetensors(self) -> safetensors::Dtype {
        match self {
            Self::F16 => safetensors::Dtype::F16,
            Self::Bf16 => safetensors::Dtype::BF16,
            Self::F32 => safetensors::Dtype::F32,
            Self::F64 => safetensors::Dtype::F64,
            Self::I8 => safetensors::Dtype::I8,
            Self::I16 => safetensors::Dtype::I16,
            Self::I32 => safetensors::Dtype::I32,
            Self::I64 => safetensors::Dtype::I64,
            Self::U8 => safetensors::Dtype::U8,
            Self::U16 => safetensors::Dtype::U16,
            Self::U32 => safetensors::Dtype::U32,
            Self::U64 => safetensors::Dtype::U64,
            Self::Bool => safetensors::Dtype::BOOL,
        }
    }

    /// Reads values, as many as there are bytes and room for: exactly, but for integers past 2^53.
    pub(crate) fn read(self, bytes: &[u8], out: &mut [f64]) {
        match self {
            Self::F16 => read_each(bytes, out, |b| f16::from_le_bytes(b).to_f64()),
            Self::Bf16 => read_each(bytes, out, |b| bf16::from_le_bytes(b).to_f64()),
            Self::F32 => read_each(bytes, out, |b| f64::from(f32::from_le_bytes(b))),
            Self::F64 => read_each(bytes, out, f64::from_le_bytes),
            Self::I8 => read_each(bytes, out, |b| i8::from_le_bytes(b).into()),
            Self::I16 => read_each(bytes, out, |b| i16::from_le_bytes(b).into()),
            Self::I32 => read_each(bytes, out, |b| i32::from_le_bytes(b).into()),
            Self::I64 => read_each(bytes, out, |b| i64::from_le_bytes(b) as f64),
            Self::U8 => read_each(bytes, out, |[b]: [u8; 1]| b.into()),
            Self::U16 => read_each(bytes, out, |b| u16::from_le_bytes(b).into()),
            Self::U32 => read_each(bytes, out, |b| u32::from_le_bytes(b).into()),
            Self::U64 => read_each(bytes, out, |b| u64::from_le_bytes(b) as f64),
            Self::Bool => read_each(bytes, out, |[b]: [u8; 1]| f64::from(u8::from(b != 0))),
        }
    }

    /// Writes `values` over as many, each rounded to the nearest value of the type, ties to even. Gives
    /// the place of the first that the type does not hold.
    pub(crate) fn write(self, values: &[f64], out: &mut [u8]) -> Option<usize> {
        // The half crate goes through f32, which would round twice; x is rounded before, exactly.
        match self {
            Self::F16 => write_each(values, out, |x| {
                let y = f16::from_f64(round_to(x, 10, -14));
                (y.to_le_bytes(), y.is_finite())
            }),
            Self::Bf16 => write_each(values, out, |x| {
                let y = bf16::from_f64(round_to(x, 7, -126));
                (y.to_le_bytes(), y.is_finite())
            }),
            Self::F32 => {
                write_each(values, out, |x| ((x as f32).to_le_bytes(), (x as f32).is_finite()))
            }
            Self::F64 => write_each(values, out, |x| (x.to_le_bytes(), x.is_finite())),
            Self::I8 => self.write_integers(values, out, |x| (x as i8).to_le_bytes()),
            Self::I16 => self.write_integers(values, out, |x| (x as i16).to_le_bytes()),
            Self::I32 => self.write_integers(values, out, |x| (x as i32).to_le_bytes()),
            Self::I64 => self.write_integers(values, out, |x| (x as i64).to_le_bytes()),
            Self::U8 | Self::Bool => self.write_integers(values, out, |x| [x as u8]),
            Self::U16 => self.write_integers(values, out, |x| (x as u16).to_le_bytes()),
            Self::U32 => self.write_integers(values, out, |x| (x as u32).to_le_bytes()),
            Self::U64 => self.write_integers(values, out, |x| (x as u64).to_le_bytes()),
        }
    }

    fn write_integers<const BYTES: usize>(
        self,
        values: &[f64],
        out: &mut [u8],
        write: impl Fn(f64) -> [u8; BYTES],
    ) -> Option<usize> {
        let (least, most) = self.bounds();
        write_each(values, out, |x| {
            let x = x.round_ties_even();
            (write(x), (least..=most).contains(&x))
        })
    }

    /// Writes what `value` makes of integers over as many of a type of integers. Gives the place of the first that the
    /// type does not hold.
    pub(crate) fn write_exact(
        self,
        integers: &[i64],
        out: &mut [u8],
        value: impl Fn(i64) -> i64,
    ) -> Option<usize> {
        let (least, most) = match self {
            Self::I64 => (i64::MIN, i64::MAX),
            Self::U64 => (0, i64::MAX),
            // Those of fewer bits are doubles.
            _ => (self.bounds().0 as i64, self.bounds().1 as i64),
        };
        let width = self.bytes();
        let mut all_fit = true;
        for (out, &integer) in out.chunks_exact_mut(width).zip(integers) {
            let integer = value(integer);
            out.copy_from_slice(&integer.to_le_bytes()[..width]);
            all_fit &= (least..=most).contains(&integer);
        }
        let fits = |&integer: &i64| (least..=most).contains(&value(integer));
        if all_fit { None } else { integers.iter().position(|integer| !fits(integer)) }
    }

    /// Returns the least and the greatest value that a sum of the type may have, integers within ±2^53.
    pub(crate) fn bounds(self) -> (f64, f64) {
        let around = |most: f64| (-most, most);
        match self {
            Self::F16 => around(f16::MAX.to_f64()),
            Self::Bf16 => around(bf16::MAX.to_f64()),
            Self::F32 => around(f32::MAX.into()),
            Self::F64 => around(f64::MAX),
            Self::I8 => (i8::MIN.into(), i8::MAX.into()),
            Self::I16 => (i16::MIN.into(), i16::MAX.into()),
            Self::I32 => (i32::MIN.into(), i32::MAX.into()),
            Self::I64 => around(INTEGER_LIMIT),
            Self::U8 => (0.0, u8::MAX.into()),
            Self::U16 => (0.0, u16::MAX.into()),
            Self::U32 => (0.0, u32::MAX.into()),
            Self::U64 => (0.0, INTEGER_LIMIT),
            Self::Bool => (0.0, 1.0),
        }
    }
}

fn read_each<const BYTES: usize>(bytes: &[u8], out: &mut [f64], read: impl Fn([u8; BYTES]) -> f64) {
    out.iter_mut().zip(bytes.as_chunks().0).for_each(|(out, bytes)| *out = read(*bytes));
}

/// Writes what `write` makes of each value; gives the place of the first that does not fit.
fn write_each<const BYTES: usize>(
    values: &[f64],
    out: &mut [u8],
    write: impl Fn(f64) -> ([u8; BYTES], bool),
) -> Option<usize> {
    let mut all_fit = true;
    for (out, &x) in out.as_chunks_mut::<BYTES>().0.iter_mut().zip(values) {
        let (bytes, fits) = write(x);
        *out = bytes;
        all_fit &= fits;
    }
    if all_fit { None } else { values.iter().position(|&x| !write(x).1) }
}

/// Returns `x` rounded to a binary format of a number of fraction bits and a smallest normal exponent,
/// ties to even. Scaling by a power of two is exact, and so is rounding to an integer.
fn round_to(x: f64, fraction_bits: i32, min_exponent: i32) -> f64 {
    let exponent = ((x.to_bits() >> 52) & 0x7ff) as i32 - 1023;
    let unit = 2f64.powi(exponent.max(min_exponent) - fraction_bits);
    if x.is_finite() { (x / unit).round_ties_even() * unit } else { x }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_are_rounded_once() {
        let bits = |dtype: Dtype, x: f64| {
            let mut out = [0; 2];
            assert_eq!(dtype.write(&[x], &mut out), None);
            u16::from_le_bytes([out[0], out[1]])
        };
        // Just above the tie between 1 and the next half: through f32 it would become the tie.
        let above = |half_ulp: i32| 1.0 + 2f64.powi(half_ulp) + 2f64.powi(-40);
        assert_eq!(bits(Dtype::F16, above(-11)), f16::from_f64(1.0 + 2f64.powi(-10)).to_bits());
        assert_eq!(bits(Dtype::F16, 1.0 + 2f64.powi(-11)), f16::ONE.to_bits());
        assert_eq!(bits(Dtype::Bf16, above(-8)), bf16::from_f64(1.0 + 2f64.powi(-7)).to_bits());
        assert_eq!(bits(Dtype::Bf16, 1.0 + 2f64.powi(-8)), bf16::ONE.to_bits());
        // Subnormals, and what is too small for them.
        assert_eq!(bits(Dtype::F16, 2f64.powi(-24) * 2.6), 3);
        assert_eq!(bits(Dtype::F16, 2f64.powi(-26)), 0);
        assert_eq!(bits(Dtype::Bf16, 2f64.powi(-133) * 1.6), 2);
        assert_eq!(bits(Dtype::F16, 65519.0), f16::MAX.to_bits());
    }

    #[test]
    fn integers_go_through_and_those_that_do_not_fit_are_found() {
        for dtype in Dtype::ALL.into_iter().filter(|dtype| dtype.is_integer()) {
            let (least, most) = dtype.bounds();
            let values = [least, 0.0, 1.0, most];
            let mut bytes = vec![0; 4 * dtype.bytes()];
            assert_eq!(dtype.write(&values, &mut bytes), None, "{}", dtype.name());
            let mut found = [7.0; 4];
            dtype.read(&bytes, &mut found);
            assert_eq!(found, values, "{}", dtype.name());
            let near = [0.5, 0.6, most - 0.4, most + 2.0];
            assert_eq!(dtype.write(&near, &mut bytes), Some(3), "{}", dtype.name());
            dtype.read(&bytes, &mut found);
            assert_eq!(found[..3], [0.0, 1.0, most], "{}", dtype.name());
            assert_eq!(dtype.write(&[least - 2.0], &mut bytes), Some(0), "{}", dtype.name());
        }
    }

    #[test]
    fn codes_and_names_are_those_of_files_that_there_are() {
        let first = [Dtype::F16, Dtype::Bf16, Dtype::F32, Dtype::F64];
        assert_eq!(first.map(Dtype::code), [0, 1, 2, 3]);
        for dtype in Dtype::ALL {
            assert_eq!(Dtype::from_code(dtype.code()), Some(dtype));
            assert_eq!(Dtype::from_name(dtype.name()), Some(dtype));
            assert_eq!(format!("{:?}", dtype.safetensors()), dtype.name());
        }
        assert_eq!((Dtype::from_code(13), Dtype::from_name("F8_E4M3")), (None, None));
    }
}
