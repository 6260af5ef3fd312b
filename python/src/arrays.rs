//! Tensors from Python's arrays, without a copy where they are contiguous, and arrays for results.

use std::path::PathBuf;

use ciphergram_he::{Agreement, Dtype, Error as SchemeError, Integers, Tensor, TensorSpec, Update};
use pyo3::{
    prelude::*,
    types::{PyDict, PyList},
};

use crate::{
    buffer::{Borrowed, Writable},
    errors::{Error, Result, internal},
    pool::run,
};

/// The treatment of integers, by its name.
fn integers(name: &str) -> Result<Integers> {
    let unknown = || Error::parameter(format!("integers={name:?}: there are keep, sum and refuse"));
    Integers::from_name(name).ok_or_else(unknown)
}

/// Takes tensors: a mapping of names to arrays, or the path of a safetensors file.
pub(crate) fn take(tensors: &Bound<'_, PyAny>, integers: &str) -> Result<Update> {
    let integers = self::integers(integers)?;
    if let Ok(path) = tensors.extract::<PathBuf>() {
        return Ok(Update::open(&path, integers)?);
    }
    let glue = tensors.py().import("ciphergram._arrays")?;
    let described: Vec<(String, String, Vec<u64>, Bound<'_, PyAny>)> =
        glue.call_method1("describe", (tensors, integers == Integers::Keep))?.extract()?;
    let tensors = described.into_iter().map(|(name, dtype, shape, bytes)| {
        let unknown = SchemeError::Dtype { tensor: name.clone(), dtype: dtype.clone() };
        let dtype = Dtype::from_name(&dtype).ok_or(unknown)?;
        if dtype.is_integer() && integers == Integers::Refuse {
            return Err(SchemeError::Integers { tensor: name, dtype: dtype.name() }.into());
        }
        let spec = TensorSpec { name, dtype, shape };
        Ok(Tensor::from_owner(spec, Borrowed::new(&bytes)?)?)
    });
    Ok(Update::new(tensors.collect::<Result<_>>()?))
}

/// Takes tensors, clipped to a magnitude if one is given, and how many values of each were beyond it.
pub(crate) fn take_clipped(
    py: Python<'_>,
    tensors: &Bound<'_, PyAny>,
    clip: Option<f64>,
    integers: &str,
) -> Result<(Update, Vec<usize>)> {
    if let Some(limit) = clip.filter(|limit| limit.is_nan() || *limit <= 0.0) {
        return Err(Error::parameter(format!("clip={limit}: it must be a positive number")));
    }
    let mut update = take(tensors, integers)?;
    let outside = run(py, || Ok(clip.map(|limit| update.clip(limit)).transpose()?))?;
    Ok((update, outside.unwrap_or_default()))
}

/// Arrays for the tensors of an agreement.
pub(crate) struct Arrays {
    /// By name.
    pub(crate) arrays: Py<PyDict>,
    writable: Vec<Writable>,
}

impl Arrays {
    /// Allocates them, arranged as tensors or names that are given, or as this process gave such names last.
    pub(crate) fn new(
        py: Python<'_>,
        agreement: &Agreement,
        like: Option<&Bound<'_, PyAny>>,
    ) -> Result<Self> {
        let specs =
            agreement.specs().iter().map(|spec| (&spec.name, spec.dtype.name(), &spec.shape));
        let (arrays, writable) = allocate(PyList::new(py, specs)?, like)?;
        if writable.len() != agreement.specs().len() {
            return Err(internal("not one array for each tensor").into());
        }
        Ok(Self { arrays: arrays.unbind(), writable })
    }

    /// Returns the bytes of each, in the order of the agreement.
    pub(crate) fn slices(&mut self) -> Vec<&mut [u8]> {
        self.writable.iter_mut().map(Writable::bytes).collect()
    }
}

/// Allocates an array for each of these names, types and shapes, and gives the bytes of each.
fn allocate<'py>(
    specs: Bound<'py, PyList>,
    like: Option<&Bound<'py, PyAny>>,
) -> Result<(Bound<'py, PyDict>, Vec<Writable>)> {
    let glue = specs.py().import("ciphergram._arrays")?;
    let (arrays, views): (Bound<'_, PyDict>, Vec<Bound<'_, PyAny>>) =
        glue.call_method1("empty", (specs, like))?.extract()?;
    Ok((arrays, views.iter().map(Writable::new).collect::<PyResult<_>>()?))
}

/// Returns the tensors of an agreement in the order in which this process gave them: the place of each.
pub(crate) fn in_order(py: Python<'_>, agreement: &Agreement) -> Result<Vec<usize>> {
    let specs = agreement.specs();
    let names: Vec<_> = specs.iter().map(|spec| &spec.name).collect();
    let ordered: Vec<String> =
        py.import("ciphergram._layout")?.call_method1("order", (names,))?.extract()?;
    let place = |name: &String| specs.binary_search_by(|spec| spec.name.cmp(name)).ok();
    Ok(ordered.iter().filter_map(place).collect())
}

/// Numbers in clear, as float64.
pub(crate) struct NumberArrays {
    pub(crate) shape: Vec<u64>,
    bytes: Borrowed,
}

impl NumberArrays {
    /// Takes a number, or an array of numbers: a copy, unless they are float64 and contiguous.
    pub(crate) fn take(values: &Bound<'_, PyAny>) -> Result<Self> {
        let glue = values.py().import("ciphergram._arrays")?;
        let (shape, bytes): (Vec<u64>, Bound<'_, PyAny>) =
            glue.call_method1("numbers", (values,))?.extract()?;
        Ok(Self { shape, bytes: Borrowed::new(&bytes)? })
    }

    /// Returns the numbers.
    pub(crate) fn values(&self) -> Vec<f64> {
        let words = self.bytes.as_ref().as_chunks::<8>().0.iter();
        words.map(|word| f64::from_le_bytes(*word)).collect()
    }

    /// Returns them as the only tensor of an update.
    pub(crate) fn into_update(self) -> Result<Update> {
        let (name, dtype, shape) = ("values".into(), Dtype::F64, self.shape);
        let spec = TensorSpec { name, dtype, shape };
        Ok(Update::new(vec![Tensor::from_owner(spec, self.bytes)?]))
    }
}

/// Returns a new array of float64.
pub(crate) fn array<'py>(
    py: Python<'py>,
    shape: &[u64],
    values: &[f64],
) -> Result<Bound<'py, PyAny>> {
    let specs = PyList::new(py, [("values", Dtype::F64.name(), shape)])?;
    let (arrays, mut writable) = allocate(specs, None)?;
    let words = writable.iter_mut().flat_map(|one| one.bytes().as_chunks_mut::<8>().0);
    words.zip(values).for_each(|(word, value)| *word = value.to_le_bytes());
    Ok(arrays.as_any().get_item("values")?)
}
