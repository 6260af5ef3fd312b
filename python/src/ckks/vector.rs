//! Encrypted vectors.

use std::{
    path::PathBuf,
    sync::{Arc, OnceLock},
};

use ciphergram_he::{
    self as he, Error as SchemeError,
    ckks::{self, Bound as Bounds, Ciphertext, Evaluator},
    frame::{Frame, Kind},
    vectors::Layout,
};
use pyo3::{
    exceptions::{PyTypeError, PyZeroDivisionError},
    prelude::*,
    types::{PyBytes, PyTuple},
};

use super::{Context, ENGINE, scheme};
use crate::{
    arrays::{self, NumberArrays},
    buffer::{self, Frozen, Pickle},
    errors::{Error, Result, whole},
    paths::{read_file, replace},
    pool::run,
};

/// An encrypted array of numbers, to compute with: by other vectors, and by numbers and arrays in clear. Results are
/// new vectors; slots, units and levels look after themselves. Pickles, without what computes.
///
/// >>> keys = cg.ckks.keygen("ckks-4096x1", rotations=["sum"])
/// >>> x = keys.encrypt([1.0, 2.0, 3.0])
/// >>> keys.decrypt(3 * x - [0, 1, 2]).round(3)
/// array([3., 5., 7.])
/// >>> float(keys.decrypt((x * x).sum()).round(3))
/// 14.0
#[pyclass(frozen, name = "Vector", module = "ciphergram.ckks")]
#[derive(Clone)]
pub(crate) struct PyVector {
    vector: Arc<he::vectors::Vector>,
    context: Context,
    /// The bytes of its file, once they were asked for.
    frame: Arc<OnceLock<Frozen>>,
}

/// What an encrypted vector is computed with.
enum VectorOperand<'py> {
    Vector(Bound<'py, PyVector>),
    /// One number for all values.
    Number(f64),
    /// Numbers, and their shape.
    Numbers(Vec<f64>, Vec<u64>),
}

impl<'py> VectorOperand<'py> {
    fn of(object: &Bound<'py, PyAny>) -> Result<Self> {
        if let Ok(vector) = object.cast::<PyVector>() {
            return Ok(Self::Vector(vector.clone()));
        }
        let numbers = NumberArrays::take(object)?;
        Ok(match (numbers.values(), numbers.shape) {
            (values, shape) if shape.is_empty() => Self::Number(values[0]),
            (values, shape) => Self::Numbers(values, shape),
        })
    }

    /// Takes a function of numbers in clear.
    fn map(self, function: impl Fn(f64) -> f64) -> Self {
        match self {
            Self::Vector(_) => self,
            Self::Number(number) => Self::Number(function(number)),
            Self::Numbers(numbers, shape) => {
                Self::Numbers(numbers.into_iter().map(function).collect(), shape)
            }
        }
    }
}

/// Returns how values of a shape lie: a single one in all slots, so that it goes with every value.
pub(super) fn layout(shape: &[u64]) -> Layout {
    if shape.is_empty() { Layout::Each } else { Layout::Rows }
}

/// Opens a vector, or the bytes of one.
pub(super) fn open<'py>(
    key: &he::LevelledKey,
    object: &Bound<'py, PyAny>,
) -> Result<Bound<'py, PyAny>> {
    let (py, key) = (object.py(), key.secret()?);
    let vector = match object.cast::<PyVector>() {
        Ok(vector) => vector.get().vector.clone(),
        Err(_) => {
            let bytes = Frozen::new(object)?;
            run(py, || Ok(Arc::new(read(bytes.as_ref())?)))?
        }
    };
    let values = run(py, || Ok(vector.decrypt_values(key, &*ENGINE)?))?;
    arrays::array(py, &vector.shape(), &values)
}

fn read(bytes: &[u8]) -> Result<he::vectors::Vector> {
    Ok(he::vectors::Vector::from_bytes(bytes, &*ENGINE)?.0)
}

impl PyVector {
    /// Takes a vector, and what computes with it.
    pub(super) fn new(vector: he::vectors::Vector, context: Context) -> Self {
        Self { vector: Arc::new(vector), context, frame: Arc::default() }
    }

    /// Reads the bytes of a file, to be computed with by a key if one is given.
    fn read(py: Python<'_>, bytes: &[u8], key: Option<&Bound<'_, PyAny>>) -> Result<Self> {
        let context = key.map(Context::of_key).transpose()?;
        let vector = run(py, || read(bytes))?;
        let context = match context {
            Some(context) => {
                context.check(vector.key().to_string())?;
                context
            }
            None => Context::of(ckks::EvaluationKeys::none_for(&vector.ciphertexts()[0])),
        };
        Ok(Self::new(vector, context))
    }

    /// Computes with it, on threads of our own.
    fn compute(
        &self,
        py: Python<'_>,
        work: impl FnOnce(
            &he::vectors::Vector,
            &Evaluator<'_>,
        ) -> Result<he::vectors::Vector, SchemeError>
        + Send,
    ) -> Result<Self> {
        let context = self.context.clone();
        let vector = run(py, || Ok(work(&self.vector, &context.evaluator)?))?;
        Ok(Self::new(vector, context))
    }

    /// Computes with it and another one, by the keys that either has.
    fn compute_both(
        &self,
        other: &Bound<'_, Self>,
        work: impl FnOnce(
            &he::vectors::Vector,
            &Evaluator<'_>,
            &he::vectors::Vector,
        ) -> Result<he::vectors::Vector, SchemeError>
        + Send,
    ) -> Result<Self> {
        let (py, other) = (other.py(), other.get().clone());
        let context = self.context.or(&other.context).clone();
        let here = Self { context, ..self.clone() };
        here.compute(py, |vector, evaluator| work(vector, evaluator, &other.vector))
    }

    fn plus(&self, py: Python<'_>, operand: VectorOperand<'_>) -> Result<Self> {
        let (numbers, shape) = match operand {
            VectorOperand::Vector(other) => {
                return self.compute_both(&other, |a, evaluator, b| a.add(evaluator, b));
            }
            VectorOperand::Number(number) => {
                (vec![number; self.vector.values()], self.vector.shape())
            }
            VectorOperand::Numbers(numbers, shape) => (numbers, shape),
        };
        self.compute(py, |vector, evaluator| vector.add_plain(evaluator, &numbers, &shape))
    }

    fn times(&self, py: Python<'_>, operand: VectorOperand<'_>) -> Result<Self> {
        match operand {
            VectorOperand::Vector(other) => {
                self.compute_both(&other, |a, evaluator, b| a.multiply(evaluator, b))
            }
            VectorOperand::Number(number) => {
                self.compute(py, |vector, evaluator| vector.multiply_constant(evaluator, number))
            }
            VectorOperand::Numbers(numbers, shape) => self.compute(py, |vector, evaluator| {
                vector.multiply_plain(evaluator, &numbers, &shape)
            }),
        }
    }

    /// Returns the product by a matrix of so many rows and columns, from the left.
    fn by_matrix(&self, py: Python<'_>, matrix: &[f64], sizes: (u64, u64)) -> Result<Self> {
        if self.vector.shape() != [sizes.1] {
            let (shape, (rows, columns)) = (self.shape_text(), sizes);
            let text =
                format!("a matrix of {rows}x{columns} does not multiply a vector of shape {shape}");
            return Err(Error::Own("LayoutError", text));
        }
        let sizes = (sizes.0 as usize, sizes.1 as usize);
        self.compute(py, |vector, evaluator| vector.multiply_matrix(evaluator, matrix, sizes))
    }

    /// Multiplies by a matrix from the left, or by one that is given by its columns; or sums products.
    fn product(&self, other: &Bound<'_, PyAny>, is_left: bool) -> Result<Self> {
        let (py, shape) = (other.py(), self.vector.shape());
        let wrong = |found: &str| {
            let text = format!("{found} does not multiply a vector of shape {}", self.shape_text());
            Err(Error::Own("LayoutError", text))
        };
        let operand = VectorOperand::of(other)?;
        let is_vector = |operand: &VectorOperand<'_>| match operand {
            VectorOperand::Vector(other) => other.get().vector.shape().len() == 1,
            _ => true,
        };
        if shape.len() != 1 || !is_vector(&operand) {
            let text = "only encrypted vectors of one extent multiply by @: encrypt each row of a matrix, and multiply \
                        row by row, [row @ w for row in rows]";
            return Err(Error::Own("LayoutError", text.into()));
        }
        match operand {
            VectorOperand::Vector(other) if other.get().vector.shape() == shape => self
                .compute_both(&other, |a, evaluator, b| a.multiply(evaluator, b)?.sum(evaluator)),
            VectorOperand::Vector(other) => {
                wrong(&format!("a vector of shape {}", other.get().shape_text()))
            }
            VectorOperand::Number(_) => wrong("one number"),
            VectorOperand::Numbers(numbers, found) => match (&found[..], is_left) {
                (&[rows, columns], true) => self.by_matrix(py, &numbers, (rows, columns)),
                (&[rows, columns], false) => {
                    let turned = transposed(&numbers, rows as usize, columns as usize);
                    self.by_matrix(py, &turned, (columns, rows))
                }
                (found, _) if *found == *shape => self.compute(py, |vector, evaluator| {
                    vector.multiply_plain(evaluator, &numbers, &shape)?.sum(evaluator)
                }),
                (found, _) => wrong(&format!("an array of shape {found:?}")),
            },
        }
    }

    /// Returns a shape as Python shows it.
    fn shape_text(&self) -> String {
        match &self.vector.shape()[..] {
            [one] => format!("({one},)"),
            shape => {
                let extents: Vec<_> = shape.iter().map(u64::to_string).collect();
                format!("({})", extents.join(", "))
            }
        }
    }

    fn frame(&self) -> Result<&[u8]> {
        buffer::once(&self.frame, || Ok(self.vector.to_bytes()?))
    }

    /// Returns the bounds on values and on what they are off by.
    fn bounds(&self) -> (f64, f64) {
        let Bounds { magnitude, error } = self.vector.bound();
        let factor = self.vector.unit() / self.vector.divisor() as f64;
        (magnitude * factor, error * factor)
    }
}

/// The least integer whose neighbours doubles do not tell apart.
const LARGEST_INTEGER: f64 = (1u64 << 53) as f64;

/// Returns a matrix with rows and columns exchanged.
fn transposed(values: &[f64], rows: usize, columns: usize) -> Vec<f64> {
    (0..columns).flat_map(|j| (0..rows).map(move |i| values[i * columns + j])).collect()
}

#[pymethods]
impl PyVector {
    /// Tells numpy to leave operators between its arrays and this one to this one.
    #[classattr]
    fn __array_ufunc__() -> Option<()> {
        None
    }

    /// Refuses functions of numpy, which would take the vector for one object and make arrays of such.
    fn __array_function__(
        &self,
        function: &Bound<'_, PyAny>,
        _types: &Bound<'_, PyAny>,
        _args: &Bound<'_, PyAny>,
        _kwargs: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let name: String = function.getattr("__name__")?.extract()?;
        Err(PyTypeError::new_err(format!(
            "numpy.{name} does not compute with encrypted vectors: take +, -, *, /, ** and @, and the methods sum, mean, \
             rotate and polyval; instead of numpy.roll(v, k) it is v.rotate(-k), around the end of all slots"
        )))
    }

    /// The shape of what was encrypted; of a sum ().
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.vector.shape())
    }

    /// The number of values.
    #[getter]
    fn size(&self) -> usize {
        self.vector.values()
    }

    /// The number of ciphertexts that they are in.
    #[getter]
    fn ciphertexts(&self) -> usize {
        self.vector.ciphertexts().len()
    }

    /// The products in a row that there is room for.
    #[getter]
    fn level(&self) -> usize {
        self.vector.level()
    }

    /// What numbers are multiplied by before they are rounded to integers, about 2^40 on every level.
    #[getter]
    fn scale(&self) -> f64 {
        self.vector.parameters().scale(self.vector.level())
    }

    /// The bits between what values may be and what would wrap around; a result that has none is refused.
    #[getter]
    fn bits_left(&self) -> f64 {
        let bits = self.vector.ciphertexts().iter().map(Ciphertext::bits_left);
        bits.fold(f64::INFINITY, f64::min)
    }

    /// The most that a value may be, by the ranges that were declared.
    #[getter]
    fn range(&self) -> f64 {
        self.bounds().0
    }

    /// The most that a value is off by, but for a chance of 2^-40: mostly it is ten times less, and more than that
    /// after many operations, whose errors are added up as if they were all of one sign.
    #[getter]
    fn error(&self) -> f64 {
        self.bounds().1
    }

    /// The id of the key that it is under.
    #[getter]
    fn key_id(&self) -> String {
        self.vector.key().to_string()
    }

    /// The name of its key's preset.
    #[getter]
    fn scheme(&self) -> Result<&'static str> {
        scheme(self.vector.parameters())
    }

    /// The number of bytes of its file.
    #[getter]
    fn nbytes(&self) -> Result<usize> {
        Ok(self.frame()?.len())
    }

    fn __len__(&self) -> PyResult<usize> {
        let shape = self.vector.shape();
        let first =
            shape.first().ok_or_else(|| PyTypeError::new_err("a single value has no length"));
        first.map(|&extent| extent as usize)
    }

    /// Adds another vector, an array or a number.
    ///
    /// Raises:
    ///     KeyMismatch: The other vector is under another key.
    ///     LayoutError: It is of another shape. DtypeError: It is nothing of numbers.
    ///     NotFinite, Overflow: A number of it is not finite, or too large.
    fn __add__(&self, other: &Bound<'_, PyAny>) -> Result<Self> {
        self.plus(other.py(), VectorOperand::of(other)?)
    }

    fn __radd__(&self, other: &Bound<'_, PyAny>) -> Result<Self> {
        self.__add__(other)
    }

    /// Subtracts another vector, an array or a number: see `__add__`.
    fn __sub__(&self, other: &Bound<'_, PyAny>) -> Result<Self> {
        let py = other.py();
        match VectorOperand::of(other)? {
            VectorOperand::Vector(other) => {
                self.compute_both(&other, |a, evaluator, b| a.sub(evaluator, b))
            }
            numbers => self.plus(py, numbers.map(|x| -x)),
        }
    }

    fn __rsub__(&self, other: &Bound<'_, PyAny>) -> Result<Self> {
        self.__neg__(other.py())?.__add__(other)
    }

    fn __neg__(&self, py: Python<'_>) -> Result<Self> {
        self.compute(py, |vector, evaluator| vector.negate(evaluator))
    }

    /// Multiplies by another vector, an array or a number, value by value: a level lower, but by a power of two.
    ///
    /// Raises:
    ///     OutOfLevels: No level is left.
    ///     NoEvaluationKey: Neither vector has a key for products.
    ///     Overflow: A result may be too large, or a number of it is.
    ///     KeyMismatch, LayoutError, DtypeError, NotFinite: As `__add__`.
    fn __mul__(&self, other: &Bound<'_, PyAny>) -> Result<Self> {
        self.times(other.py(), VectorOperand::of(other)?)
    }

    fn __rmul__(&self, other: &Bound<'_, PyAny>) -> Result<Self> {
        self.__mul__(other)
    }

    /// Divides by numbers in clear: by an integer on the same level, by others as it multiplies.
    fn __truediv__(&self, other: &Bound<'_, PyAny>) -> Result<Self> {
        let py = other.py();
        match VectorOperand::of(other)? {
            VectorOperand::Vector(_) => Err(PyTypeError::new_err(
                "a vector is not divided by an encrypted one: multiply by a polynomial that is near the inverse",
            )
            .into()),
            VectorOperand::Number(0.0) => Err(PyZeroDivisionError::new_err("division by zero").into()),
            VectorOperand::Number(number) if number.fract() == 0.0 && number.abs() < LARGEST_INTEGER => {
                let by = number.abs() as u64;
                let quotient = self.compute(py, |vector, _| vector.divide(by))?;
                if number < 0.0 { quotient.__neg__(py) } else { Ok(quotient) }
            }
            numbers => self.times(py, numbers.map(f64::recip)),
        }
    }

    /// Multiplies each value by itself so often: `⌈log₂ exponent⌉` levels lower.
    ///
    /// Raises:
    ///     OutOfLevels, NoEvaluationKey, Overflow: As `__mul__`.
    fn __pow__(
        &self,
        py: Python<'_>,
        exponent: &Bound<'_, PyAny>,
        modulo: Option<&Bound<'_, PyAny>>,
    ) -> Result<Self> {
        if modulo.is_some() {
            return Err(PyTypeError::new_err("an encrypted power has no modulo").into());
        }
        let exponent: u32 = whole(exponent)?;
        self.compute(py, |vector, evaluator| vector.power(evaluator, exponent))
    }

    /// Multiplies by a matrix in clear, of as many rows as there are values; or sums products with another vector or
    /// array, as `@` of numpy does. A level lower. What a product by a matrix is off by grows with the root of the
    /// number of values, as its result does; room is left for sums of a few such results.
    ///
    /// Raises:
    ///     NoEvaluationKey: There are no keys for the rotations: "matrix:COLUMNSxROWS", or "sum".
    ///     OutOfLevels, Overflow, KeyMismatch, LayoutError, DtypeError, NotFinite: As `__mul__`.
    fn __matmul__(&self, other: &Bound<'_, PyAny>) -> Result<Self> {
        self.product(other, false)
    }

    fn __rmatmul__(&self, other: &Bound<'_, PyAny>) -> Result<Self> {
        self.product(other, true)
    }

    /// Rotates by so many values to the left, around the end of all slots, of which a vector fills the first. What
    /// comes from behind the values is zero, and what goes there comes back.
    ///
    /// Raises:
    ///     NoEvaluationKey: There is no key for this rotation.
    ///     LayoutError: The vector is in several ciphertexts.
    fn rotate(&self, py: Python<'_>, #[pyo3(from_py_with = whole)] steps: i64) -> Result<Self> {
        self.compute(py, |vector, evaluator| vector.rotate(evaluator, steps))
    }

    /// Returns the sum of all values, of shape (): on the same level, or behind a rotation a level lower.
    ///
    /// Raises:
    ///     NoEvaluationKey: There are no keys for the rotations: "sum".
    ///     Overflow: It may be too large.
    fn sum(&self, py: Python<'_>) -> Result<Self> {
        self.compute(py, |vector, evaluator| vector.sum(evaluator))
    }

    /// Returns the mean of all values: see `sum`.
    fn mean(&self, py: Python<'_>) -> Result<Self> {
        self.compute(py, |vector, evaluator| vector.sum(evaluator)?.divide(vector.values() as u64))
    }

    /// Returns the polynomial of each value: `⌈log₂(degree + 1)⌉` levels lower.
    ///
    /// Args:
    ///     coefficients: Numbers, that of the lowest power first.
    ///
    /// Raises:
    ///     OutOfLevels, NoEvaluationKey, Overflow, DtypeError, NotFinite: As `__mul__`.
    fn polyval(&self, coefficients: &Bound<'_, PyAny>) -> Result<Self> {
        let numbers = NumberArrays::take(coefficients)?;
        if numbers.shape.len() != 1 {
            let text =
                format!("coefficients are a list of numbers, not of shape {:?}", numbers.shape);
            return Err(Error::Own("LayoutError", text));
        }
        let numbers = numbers.values();
        self.compute(coefficients.py(), |vector, evaluator| vector.polynomial(evaluator, &numbers))
    }

    /// Returns the same vector, to be computed with by keys.
    ///
    /// Args:
    ///     key: The evaluation keys, or all keys.
    ///
    /// Raises:
    ///     KeyMismatch: They are of another key.
    fn under(&self, key: &Bound<'_, PyAny>) -> Result<Self> {
        let context = Context::of_key(key)?;
        context.check(self.key_id())?;
        Ok(Self { context, ..self.clone() })
    }

    /// Writes the vector's file; one that is there is replaced.
    ///
    /// Raises:
    ///     Exists: The file is something else.
    ///     FileError: It cannot be written.
    fn save(&self, path: PathBuf) -> Result<()> {
        let is_vector =
            |found: &[u8]| Frame::parse(found).is_ok_and(|frame| frame.kind == Kind::Vector);
        replace(&path, self.frame()?, is_vector)
    }

    fn __bytes__<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, self.frame()?))
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> Result<Pickle<'py>> {
        Ok((py.import("ciphergram.ckks")?.getattr("loads")?, (self.__bytes__(py)?,)))
    }

    fn __repr__(&self) -> Result<String> {
        let (shape, scheme, level) = (self.shape_text(), self.scheme()?, self.level());
        Ok(format!(
            "<Vector of shape {shape}, {scheme}, level {level}, {:.1} bits left>",
            self.bits_left()
        ))
    }
}

/// Reads the bytes of a vector's file.
///
/// Args:
///     data: Bytes, or anything with the buffer protocol.
///     key: What computes with it: the evaluation keys, or all keys. What is read without can be added, and
///         multiplied by numbers.
///
/// Raises:
///     BadFrame: The bytes are cut, changed, or something else.
///     KeyMismatch: It is under another key.
#[pyfunction]
#[pyo3(signature = (data, key=None))]
pub(crate) fn loads(data: &Bound<'_, PyAny>, key: Option<&Bound<'_, PyAny>>) -> Result<PyVector> {
    PyVector::read(data.py(), Frozen::new(data)?.as_ref(), key)
}

/// Reads a vector's file, of `ciphergram encrypt` too: see `loads`. Several tensors are one vector, one after another.
#[pyfunction]
#[pyo3(signature = (path, key=None))]
pub(crate) fn load(
    py: Python<'_>,
    path: PathBuf,
    key: Option<&Bound<'_, PyAny>>,
) -> Result<PyVector> {
    read_file(&path, |bytes| PyVector::read(py, &bytes, key))
}
