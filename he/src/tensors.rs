//! Named tensors, from and to safetensors.

use half::{bf16, f16};
use safetensors::{SafeTensors, tensor::TensorView};
use zeroize::Zeroizing;

use crate::Error;

/// The number of values that are read, and rounded, at a time.
pub(crate) const BLOCK: usize = 1024;

/// A floating-point type that can be summed.
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
}

impl Dtype {
    const ALL: [Self; 4] = [Self::F16, Self::Bf16, Self::F32, Self::F64];

    /// Returns the name that safetensors uses.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::F16 => "F16",
            Self::Bf16 => "BF16",
            Self::F32 => "F32",
            Self::F64 => "F64",
        }
    }

    /// Returns the type of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|d| d.name() == name)
    }

    /// Returns the bytes of one value.
    #[must_use]
    pub fn bytes(self) -> usize {
        match self {
            Self::F16 | Self::Bf16 => 2,
            Self::F32 => 4,
            Self::F64 => 8,
        }
    }

    fn safetensors(self) -> safetensors::Dtype {
        match self {
            Self::F16 => safetensors::Dtype::F16,
            Self::Bf16 => safetensors::Dtype::BF16,
            Self::F32 => safetensors::Dtype::F32,
            Self::F64 => safetensors::Dtype::F64,
        }
    }

    /// Writes `values` over as many, each rounded to the nearest value of the type, ties to even. Gives
    /// the place of the first that is not finite then.
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
        }
    }

    /// Returns the largest finite value.
    pub(crate) fn largest(self) -> f64 {
        match self {
            Self::F16 => f16::MAX.to_f64(),
            Self::Bf16 => bf16::MAX.to_f64(),
            Self::F32 => f64::from(f32::MAX),
            Self::F64 => f64::MAX,
        }
    }
}

/// Writes what `write` makes of each value; gives the place of the first that is not finite.
fn write_each<const BYTES: usize>(
    values: &[f64],
    out: &mut [u8],
    write: impl Fn(f64) -> ([u8; BYTES], bool),
) -> Option<usize> {
    let mut all_finite = true;
    for (out, &x) in out.as_chunks_mut::<BYTES>().0.iter_mut().zip(values) {
        let (bytes, finite) = write(x);
        *out = bytes;
        all_finite &= finite;
    }
    if all_finite { None } else { values.iter().position(|&x| !write(x).1) }
}

/// Returns `x` rounded to a binary format of a number of fraction bits and a smallest normal exponent,
/// ties to even. Scaling by a power of two is exact, and so is rounding to an integer.
fn round_to(x: f64, fraction_bits: i32, min_exponent: i32) -> f64 {
    let exponent = ((x.to_bits() >> 52) & 0x7ff) as i32 - 1023;
    let unit = 2f64.powi(exponent.max(min_exponent) - fraction_bits);
    if x.is_finite() { (x / unit).round_ties_even() * unit } else { x }
}

/// A tensor's name, type and shape.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorSpec {
    /// The name, unique in its file.
    pub name: String,
    /// The type of its values.
    pub dtype: Dtype,
    /// The shape; empty for a scalar, and any extent may be 0.
    pub shape: Vec<u64>,
}

impl TensorSpec {
    /// Returns the number of values, if it fits a `usize`.
    #[must_use]
    pub fn values(&self) -> Option<usize> {
        let product = |acc: usize, &d: &u64| acc.checked_mul(usize::try_from(d).ok()?);
        // A zero extent makes the product 0 whatever the others are.
        if self.shape.contains(&0) { Some(0) } else { self.shape.iter().try_fold(1, product) }
    }
}

/// A tensor with its values, little-endian as in safetensors.
#[derive(Clone, PartialEq, Eq)]
pub struct Tensor {
    /// Name, type and shape.
    pub spec: TensorSpec,
    data: Vec<u8>,
}

impl Tensor {
    /// Rounds `values` to the type of `spec`.
    ///
    /// # Errors
    /// [`Error::Overflow`] if a value is not finite in the type.
    ///
    /// # Panics
    /// If there are not as many values as the shape says.
    pub fn from_values(spec: TensorSpec, values: &[f64]) -> Result<Self, Error> {
        let mut data = vec![0; values.len() * spec.dtype.bytes()];
        match spec.dtype.write(values, &mut data) {
            None => Ok(Self::from_bytes(spec, data)),
            Some(index) => {
                let (tensor, dtype) = (spec.name, spec.dtype.name());
                Err(Error::Overflow { tensor, index, dtype })
            }
        }
    }

    /// Takes values as they lie in a file, whatever they are.
    ///
    /// # Panics
    /// If there are not as many bytes as the shape says.
    #[must_use]
    pub fn from_bytes(spec: TensorSpec, data: Vec<u8>) -> Self {
        let bytes = spec.values().and_then(|v| v.checked_mul(spec.dtype.bytes()));
        assert_eq!(Some(data.len()), bytes, "values of {:?}", spec.name);
        Self { spec, data }
    }

    /// Returns the values as they lie in a file.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.data
    }

    /// Values `first ..`, as many as there is room for, each exactly.
    pub(crate) fn read(&self, first: usize, out: &mut [f64]) {
        fn each<const BYTES: usize>(
            data: &[u8],
            out: &mut [f64],
            read: impl Fn([u8; BYTES]) -> f64,
        ) {
            out.iter_mut().zip(data.as_chunks().0).for_each(|(out, bytes)| *out = read(*bytes));
        }
        let data = &self.data[first * self.spec.dtype.bytes()..];
        match self.spec.dtype {
            Dtype::F16 => each(data, out, |b| f16::from_le_bytes(b).to_f64()),
            Dtype::Bf16 => each(data, out, |b| bf16::from_le_bytes(b).to_f64()),
            Dtype::F32 => each(data, out, |b| f64::from(f32::from_le_bytes(b))),
            Dtype::F64 => each(data, out, f64::from_le_bytes),
        }
    }

    /// Returns all values, each exactly, some at a time: the place of the first of them, and them.
    pub(crate) fn try_for_blocks<E>(
        &self,
        mut take: impl FnMut(usize, &[f64]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut block = Zeroizing::new([0.0; BLOCK]);
        let count = self.values().len();
        for first in (0..count).step_by(BLOCK) {
            let values = &mut block[..BLOCK.min(count - first)];
            self.read(first, values);
            take(first, values)?;
        }
        Ok(())
    }

    /// Returns the values, each exactly.
    pub fn values(&self) -> impl ExactSizeIterator<Item = f64> + '_ {
        (0..self.data.len() / self.spec.dtype.bytes()).map(|index| {
            let mut value = [0.0];
            self.read(index, &mut value);
            value[0]
        })
    }
}

/// A set of tensors: a gradient, an update, a mean. Sorted by name, so that it does not matter in
/// what order a file lists them.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Update {
    tensors: Vec<Tensor>,
}

impl Update {
    /// Returns the update with every value clipped to `±limit`, and for each tensor how many were.
    ///
    /// # Errors
    /// A value is not finite.
    pub fn clipped(&self, limit: f64) -> Result<(Self, Vec<usize>), Error> {
        let mut counts = vec![];
        let mut clip = |tensor: &Tensor| {
            let (mut data, mut count) = (vec![0; tensor.data.len()], 0);
            tensor.try_for_blocks(|first, values| {
                check_finite(tensor, first, values)?;
                count += values.iter().filter(|x| x.abs() > limit).count();
                let clipped = Zeroizing::new(
                    values.iter().map(|x| x.clamp(-limit, limit)).collect::<Vec<_>>(),
                );
                tensor.spec.dtype.write(&clipped, &mut data[first * tensor.spec.dtype.bytes()..]);
                Ok::<_, Error>(())
            })?;
            counts.push(count);
            Ok::<_, Error>(Tensor::from_bytes(tensor.spec.clone(), data))
        };
        let tensors = self.tensors.iter().map(&mut clip).collect::<Result<_, _>>()?;
        Ok((Self { tensors }, counts))
    }

    /// Takes tensors of distinct names.
    #[must_use]
    pub fn new(mut tensors: Vec<Tensor>) -> Self {
        tensors.sort_by(|a, b| a.spec.name.cmp(&b.spec.name));
        Self { tensors }
    }

    /// Returns the tensors, sorted by name.
    #[must_use]
    pub fn tensors(&self) -> &[Tensor] {
        &self.tensors
    }

    /// Returns the specifications, in order.
    #[must_use]
    pub fn specs(&self) -> Vec<TensorSpec> {
        self.tensors.iter().map(|t| t.spec.clone()).collect()
    }

    /// Reads a safetensors file's bytes.
    ///
    /// # Errors
    /// It is not safetensors, or holds a tensor of another type than the four supported.
    pub fn from_safetensors(bytes: &[u8]) -> Result<Self, Error> {
        let invalid = |e: safetensors::SafeTensorError| Error::Safetensors { why: e.to_string() };
        let file = SafeTensors::deserialize(bytes).map_err(invalid)?;
        let tensors = file.iter().map(|(name, view)| {
            let found = format!("{:?}", view.dtype());
            let dtype = Dtype::from_name(&found)
                .ok_or_else(|| Error::Dtype { tensor: name.into(), dtype: found })?;
            let shape = view.shape().iter().map(|&d| d as u64).collect();
            let spec = TensorSpec { name: name.into(), dtype, shape };
            Ok(Tensor { spec, data: view.data().to_vec() })
        });
        Ok(Self::new(tensors.collect::<Result<_, Error>>()?))
    }

    /// Returns the bytes of a safetensors file.
    ///
    /// # Errors
    /// The library refuses a name or shape.
    pub fn to_safetensors(&self) -> Result<Vec<u8>, Error> {
        let invalid = |e: safetensors::SafeTensorError| Error::Safetensors { why: e.to_string() };
        let views = self.tensors.iter().map(|t| {
            let shape = t.spec.shape.iter().map(|&d| d as usize).collect();
            let view = TensorView::new(t.spec.dtype.safetensors(), shape, &t.data);
            Ok((t.spec.name.as_str(), view.map_err(invalid)?))
        });
        let views = views.collect::<Result<Vec<_>, Error>>()?;
        safetensors::serialize(views, None).map_err(invalid)
    }
}

/// Names the first of `values`, which start at `first`, that is no finite number.
///
/// # Errors
/// [`Error::NotFinite`].
pub(crate) fn check_finite(tensor: &Tensor, first: usize, values: &[f64]) -> Result<(), Error> {
    // Without a way out of the loop, it takes several values at a time.
    if values.iter().fold(true, |all, x| all & x.is_finite()) {
        return Ok(());
    }
    let place = values.iter().position(|x| !x.is_finite()).unwrap_or(0);
    let (tensor, value) = (tensor.spec.name.clone(), values[place].to_string());
    Err(Error::NotFinite { tensor, index: first + place, value })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn tensor(name: &str, dtype: Dtype, shape: &[u64], values: &[f64]) -> Tensor {
        let spec = TensorSpec { name: name.into(), dtype, shape: shape.into() };
        Tensor::from_values(spec, values).unwrap()
    }

    #[test]
    fn safetensors_keep_names_shapes_and_types() {
        let update = Update::new(vec![
            tensor("z", Dtype::F64, &[], &[0.1]),
            tensor("empty", Dtype::F32, &[3, 0, 2], &[]),
            tensor("b", Dtype::Bf16, &[2, 1], &[1.5, -2.0]),
            tensor("h", Dtype::F16, &[1], &[65504.0]),
        ]);
        let bytes = update.to_safetensors().unwrap();
        assert!(Update::from_safetensors(&bytes).unwrap() == update);
        let empty = Update::default().to_safetensors().unwrap();
        assert!(Update::from_safetensors(&empty).unwrap() == Update::default());
    }

    #[test]
    fn other_types_are_refused_by_name() {
        let view = TensorView::new(safetensors::Dtype::I64, vec![1], &[0; 8]).unwrap();
        let bytes = safetensors::serialize([("steps", view)], None).unwrap();
        let expected = Error::Dtype { tensor: "steps".into(), dtype: "I64".into() };
        assert_eq!(Update::from_safetensors(&bytes).err(), Some(expected));
    }

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
    fn a_value_beyond_the_type_is_named() {
        let spec = TensorSpec { name: "h".into(), dtype: Dtype::F16, shape: vec![2] };
        let error = Tensor::from_values(spec, &[1.0, 1e5]).err();
        let expected = Error::Overflow { tensor: "h".into(), index: 1, dtype: "F16" };
        assert_eq!(error, Some(expected));
    }

    proptest! {
        #[test]
        fn parsing_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Update::from_safetensors(&bytes);
        }
    }
}
