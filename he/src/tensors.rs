//! Named tensors, from and to safetensors.
//!
//! The values of a file's tensors stay in it: they are read by the block, as often as they are needed.

mod dtype;
mod file;

use std::{fs::File, path::Path, sync::Arc};

use zeroize::Zeroizing;

use crate::Error;
pub use dtype::Dtype;
use dtype::INTEGER_LIMIT;
use file::{Content, Parsed};
pub(crate) use file::{FileLayout, WINDOW_BYTES, Window, metadata, write_at};

/// The number of values that are rounded at a time.
pub(crate) const BLOCK: usize = 1024;

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

/// A tensor with its values, little-endian as in safetensors, in memory or in a file.
#[derive(Clone)]
pub struct Tensor {
    /// Name, type and shape.
    pub spec: TensorSpec,
    content: Arc<Content>,
    /// The place of the first value.
    start: u64,
    /// The magnitude that values are clipped to.
    pub(crate) limit: f64,
}

impl Tensor {
    /// Rounds `values` to the type of `spec`.
    ///
    /// # Errors
    /// [`Error::Overflow`] if the type does not hold a value.
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
        Self::in_memory(spec, Box::new(data))
    }

    /// Takes values as they lie in a file, in memory that `data` keeps: they are read from there whenever they are
    /// needed, and must stay as they are until then.
    ///
    /// # Errors
    /// [`Error::Tensors`], if there are not as many bytes as the shape says.
    pub fn from_owner(
        spec: TensorSpec,
        data: impl AsRef<[u8]> + Send + Sync + 'static,
    ) -> Result<Self, Error> {
        let (found, values) = (data.as_ref().len(), spec.values());
        if values.and_then(|v| v.checked_mul(spec.dtype.bytes())) != Some(found) {
            let TensorSpec { name, dtype, shape } = spec;
            let why =
                format!("{name:?} has {found} bytes, which are not {shape:?} of {}", dtype.name());
            return Err(Error::Tensors { why });
        }
        Ok(Self::in_memory(spec, Box::new(data)))
    }

    fn in_memory(spec: TensorSpec, data: Box<dyn AsRef<[u8]> + Send + Sync>) -> Self {
        Self { spec, content: Content::Memory(data).into(), start: 0, limit: f64::INFINITY }
    }

    /// Returns the number of values: that of its bytes, which were found.
    pub(crate) fn count(&self) -> usize {
        self.spec.values().unwrap_or(0)
    }

    /// Shows the values as they lie in a file, not clipped, some at a time.
    ///
    /// # Errors
    /// Those of `take`; the file cannot be read.
    pub fn try_for_bytes<E: From<Error>>(
        &self,
        mut take: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut window = Window::default();
        let total = self.count() * self.spec.dtype.bytes();
        for first in (0..total).step_by(WINDOW_BYTES) {
            let length = WINDOW_BYTES.min(total - first);
            take(self.content.window(self.start + first as u64, length, &mut window)?)?;
        }
        Ok(())
    }

    /// Shows the values in `range`, clipped, a block at a time, which lies in `block` meanwhile: the place of the
    /// first of them, and them.
    pub(crate) fn try_for_values<E: From<Error>>(
        &self,
        range: std::ops::Range<usize>,
        (window, block): (&mut Window, &mut [f64; BLOCK]),
        mut take: impl FnMut(usize, &[f64]) -> Result<(), E>,
    ) -> Result<(), E> {
        let each = self.spec.dtype.bytes();
        let values_at_once = WINDOW_BYTES / each;
        for first in range.clone().step_by(values_at_once) {
            let count = values_at_once.min(range.end - first);
            let start = self.start + (first * each) as u64;
            let bytes = self.content.window(start, count * each, window)?;
            for (index, bytes) in bytes.chunks(BLOCK * each).enumerate() {
                let values = &mut block[..bytes.len() / each];
                self.spec.dtype.read(bytes, values);
                self.clip(values);
                take(first + index * BLOCK, values)?;
            }
        }
        Ok(())
    }

    /// Clips values to the limit; what is not finite stays so, and is refused.
    fn clip(&self, values: &mut [f64]) {
        if self.limit.is_finite() {
            let limit = self.limit;
            let finite = values.iter_mut().filter(|x| x.is_finite());
            finite.for_each(|x| *x = x.clamp(-limit, limit));
        }
    }

    /// Shows all values as [`try_for_values`](Self::try_for_values) does.
    pub(crate) fn try_for_blocks<E: From<Error>>(
        &self,
        take: impl FnMut(usize, &[f64]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut block = Zeroizing::new([0.0; BLOCK]);
        self.try_for_values(0..self.count(), (&mut Window::default(), &mut block), take)
    }

    /// Counts the values outside `±range`, after all were found to be such as can be summed.
    ///
    /// # Errors
    /// Those of [`check_values`]; the file cannot be read.
    pub(crate) fn count_outside(&self, range: f64) -> Result<usize, Error> {
        let mut outside = 0;
        self.try_for_blocks(|first, values| {
            check_values(self, first, values)?;
            outside += values.iter().filter(|x| x.abs() > range).count();
            Ok::<_, Error>(())
        })?;
        Ok(outside)
    }

    /// Refuses integers beyond `±range`, and those that cannot be summed.
    ///
    /// # Errors
    /// [`Error::NotExact`] and those of [`check_values`]; the file cannot be read.
    pub(crate) fn check_within(&self, range: f64) -> Result<(), Error> {
        self.try_for_blocks(|first, values| {
            check_values(self, first, values)?;
            let Some(place) = values.iter().position(|x| x.abs() > range) else { return Ok(()) };
            let why =
                format!("that at index {} is beyond the agreed range, {range}", first + place);
            Err(Error::NotExact { tensor: self.spec.name.clone(), why })
        })
    }

    /// Returns the values, each exactly, but integers past 2^53 as the nearest double.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn values(&self) -> Result<Vec<f64>, Error> {
        let mut all = Vec::with_capacity(self.count());
        self.try_for_blocks(|_, values| {
            all.extend(values);
            Ok::<_, Error>(())
        })?;
        Ok(all)
    }
}

/// The treatment of integers and truth values, which are counters and masks more often than parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Integers {
    /// They are left out of the sum, and each client keeps its own.
    #[default]
    Keep,
    /// They are summed exactly, and a mean is rounded to the nearest.
    Sum,
    /// They are refused.
    Refuse,
}

impl Integers {
    /// The names of all.
    pub const NAMES: [&str; 3] = ["keep", "sum", "refuse"];

    /// Returns the one of a name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        let place = Self::NAMES.iter().position(|known| *known == name)?;
        Some([Self::Keep, Self::Sum, Self::Refuse][place])
    }
}

/// A set of tensors: a gradient, an update, a mean. Sorted by name, so that it does not matter in
/// what order a file lists them.
#[derive(Clone, Default)]
pub struct Update {
    tensors: Vec<Tensor>,
    kept: Vec<Tensor>,
    /// The layout of its file, if it is of one.
    layout: Option<Arc<FileLayout>>,
}

impl Update {
    /// Takes tensors of distinct names.
    #[must_use]
    pub fn new(mut tensors: Vec<Tensor>) -> Self {
        tensors.sort_by(|a, b| a.spec.name.cmp(&b.spec.name));
        Self { tensors, kept: vec![], layout: None }
    }

    /// Opens a safetensors file, whose values are read when they are needed. Errors name it.
    ///
    /// # Errors
    /// It cannot be read or is not safetensors, or holds a tensor of a type that cannot be summed or is refused.
    pub fn open(path: &Path, integers: Integers) -> Result<Self, Error> {
        Self::of(&Parsed::open(path)?, |spec| is_summed(spec, integers))
            .map_err(|e| e.within(path.display()))
    }

    /// Opens a safetensors file as a template of the mean of a sum of tensors: integers that are not among them
    /// are kept. Errors name it.
    ///
    /// # Errors
    /// As [`open`](Self::open), or it has other tensors.
    pub fn open_template(path: &Path, summed: &[TensorSpec]) -> Result<Self, Error> {
        let is_one = |spec: &TensorSpec| {
            let is_named = summed.binary_search_by(|s| s.name.cmp(&spec.name)).is_ok();
            Ok(is_named || !spec.dtype.is_integer())
        };
        Self::of(&Parsed::open(path)?, is_one).map_err(|e| e.within(path.display()))
    }

    /// Reads a safetensors file's bytes.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn from_bytes(bytes: Vec<u8>, integers: Integers) -> Result<Self, Error> {
        Self::of(&Parsed::of(Content::Memory(Box::new(bytes)))?, |spec| is_summed(spec, integers))
    }

    /// Reads a safetensors file's bytes, of which integers are kept.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn from_safetensors(bytes: &[u8]) -> Result<Self, Error> {
        Self::from_bytes(bytes.into(), Integers::Keep)
    }

    fn of(
        file: &Parsed,
        is_summed: impl Fn(&TensorSpec) -> Result<bool, Error>,
    ) -> Result<Self, Error> {
        let (mut tensors, mut kept) = (vec![], vec![]);
        for tensor in file.tensors() {
            let list = if is_summed(&tensor.spec)? { &mut tensors } else { &mut kept };
            list.push(tensor);
        }
        Ok(Self { tensors, kept, layout: Some(file.layout.clone().into()) })
    }

    /// Clips every value to `±limit`, integers to the last below it, and returns for each tensor how many were.
    ///
    /// # Errors
    /// A value is not finite; the file cannot be read.
    pub fn clip(&mut self, limit: f64) -> Result<Vec<usize>, Error> {
        let counts = self.tensors.iter().map(|tensor| tensor.count_outside(limit));
        let counts = counts.collect::<Result<_, _>>()?;
        for tensor in &mut self.tensors {
            let limit = if tensor.spec.dtype.is_integer() { limit.floor() } else { limit };
            tensor.limit = limit.min(tensor.limit);
        }
        Ok(counts)
    }

    /// Returns the tensors that are summed, sorted by name.
    #[must_use]
    pub fn tensors(&self) -> &[Tensor] {
        &self.tensors
    }

    /// Returns the tensors that are not summed but kept, sorted by name.
    #[must_use]
    pub fn kept(&self) -> &[Tensor] {
        &self.kept
    }

    /// Returns the magnitude that values were [clipped](Self::clip) to.
    #[must_use]
    pub fn limit(&self) -> Option<f64> {
        self.tensors
            .iter()
            .map(|tensor| tensor.limit)
            .filter(|limit| limit.is_finite())
            .max_by(f64::total_cmp)
    }

    /// Returns the specifications of the tensors that are summed, in order.
    #[must_use]
    pub fn specs(&self) -> Vec<TensorSpec> {
        self.tensors.iter().map(|t| t.spec.clone()).collect()
    }

    /// Returns the bytes of its safetensors file, which those of a mean of such updates has too.
    ///
    /// # Errors
    /// The library refuses a name or shape.
    pub fn file_bytes(&self) -> Result<u64, Error> {
        Ok(self.layout()?.bytes())
    }

    /// Returns the layout of its file, or the one that the library would make.
    pub(crate) fn layout(&self) -> Result<Arc<FileLayout>, Error> {
        match &self.layout {
            Some(layout) => Ok(layout.clone()),
            None => Ok(FileLayout::new(&self.specs())?.into()),
        }
    }

    /// Writes the tensors that are kept to where they belong.
    ///
    /// # Errors
    /// A file cannot be read or written.
    pub(crate) fn write_kept(&self, layout: &FileLayout, file: &File) -> Result<(), Error> {
        for tensor in &self.kept {
            let mut at = layout.start_of(&tensor.spec.name).unwrap_or(layout.bytes());
            tensor.try_for_bytes(|bytes| {
                write_at(file, bytes, at)?;
                at += bytes.len() as u64;
                Ok::<_, Error>(())
            })?;
        }
        Ok(())
    }

    /// Returns the bytes of a safetensors file.
    ///
    /// # Errors
    /// The library refuses a name or shape; the file that the values are in cannot be read.
    pub fn to_safetensors(&self) -> Result<Vec<u8>, Error> {
        let layout = self.layout()?;
        let mut out = layout.header().to_vec();
        out.resize(layout.bytes() as usize, 0);
        for tensor in self.tensors.iter().chain(&self.kept) {
            let Some(at) = layout.start_of(&tensor.spec.name) else { continue };
            let mut rest = &mut out[at as usize..];
            tensor.try_for_bytes(|bytes| {
                let (own, after) = std::mem::take(&mut rest).split_at_mut(bytes.len());
                own.copy_from_slice(bytes);
                rest = after;
                Ok::<_, Error>(())
            })?;
        }
        Ok(out)
    }
}

/// Returns whether a tensor is summed rather than kept.
fn is_summed(spec: &TensorSpec, integers: Integers) -> Result<bool, Error> {
    let refused = || Error::Integers { tensor: spec.name.clone(), dtype: spec.dtype.name() };
    match (spec.dtype.is_integer(), integers) {
        (false, _) | (true, Integers::Sum) => Ok(true),
        (true, Integers::Keep) => Ok(false),
        (true, Integers::Refuse) => Err(refused()),
    }
}

/// Names the first of `values`, which start at `first`, that cannot be summed: what is no finite number, or an
/// integer that doubles may not hold.
///
/// # Errors
/// [`Error::NotFinite`] or [`Error::Integer`].
pub(crate) fn check_values(tensor: &Tensor, first: usize, values: &[f64]) -> Result<(), Error> {
    let limit = if tensor.spec.dtype.is_integer() { INTEGER_LIMIT } else { f64::INFINITY };
    // Without a way out of the loop, it takes several values at a time. No number at all is not less, too.
    if values.iter().fold(true, |all, x| all & (x.abs() < limit)) {
        return Ok(());
    }
    let holds = |x: &f64| x.abs() < limit;
    let place = values.iter().position(|x| !holds(x)).unwrap_or(0);
    let (tensor, index) = (tensor.spec.name.clone(), first + place);
    Err(if limit.is_finite() {
        Error::Integer { tensor, index }
    } else {
        Error::NotFinite { tensor, index, value: values[place].to_string() }
    })
}

#[cfg(test)]
mod tests;
