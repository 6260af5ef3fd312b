//! Sums.

use std::{ffi::c_int, sync::OnceLock};

use ciphergram_he::{
    self as he, Destination, Error as SchemeError,
    frame::{Frame, Kind},
    threshold::OpenAnswer,
};
use pyo3::{
    ffi,
    prelude::*,
    types::{PyBytes, PyDict},
};

use crate::{
    arrays::Arrays,
    buffer::{self, Frozen, Pickle},
    contribution::{PyContribution, unknown_key},
    errors::Result,
    holder::Holder,
    job::PyJob,
    keys::{PyMember, PyPublicKey, PySecretKey},
    opened,
    ranges::PyRanges,
};

/// The encrypted sum of contributions. Has the buffer protocol, and pickles.
#[pyclass(frozen, name = "Sum", module = "ciphergram")]
pub(crate) struct PySum {
    pub(crate) sum: he::Sum,
    key: he::KeyId,
    literal: he::params::Literal,
    pub(crate) public: Option<PyPublicKey>,
    clipped: Option<Vec<usize>>,
    /// The bytes of its file, once they were asked for.
    frame: OnceLock<Frozen>,
}

impl PySum {
    /// Takes a sum under a key; of a round that this process took part in, also how many values of each tensor were
    /// clipped.
    pub(crate) fn new(sum: he::Sum, public: PyPublicKey, clipped: Option<Vec<usize>>) -> Self {
        let (key, literal) = (public.key().id(), public.key().parameters().literal());
        Self { sum, key, literal, public: Some(public), clipped, frame: OnceLock::new() }
    }

    /// Reads the bytes of a file, made under a key if one is given.
    pub(crate) fn read(bytes: Frozen, public: Option<PyPublicKey>) -> Result<Self> {
        let parsed = Frame::parse(bytes.as_ref()).map_err(SchemeError::from)?;
        if let Some(public) = &public {
            parsed.check_key(public.key())?;
        }
        let sum = he::Sum::from_frame(&parsed)?;
        let (key, literal) = (parsed.key, parsed.literal().map_err(SchemeError::from)?);
        Ok(Self { sum, key, literal, public, clipped: None, frame: bytes.into() })
    }

    /// Takes a sum, or the bytes of one.
    pub(crate) fn of(object: &Bound<'_, PyAny>) -> Result<Py<Self>> {
        if let Ok(sum) = object.cast::<Self>() {
            return Ok(sum.clone().unbind());
        }
        if object.cast::<PyContribution>().is_ok() {
            let (found, expected) = (Kind::Contribution.name(), Kind::Sum.name());
            return Err(SchemeError::from(he::error::FrameError::Kind { found, expected }).into());
        }
        Ok(Py::new(object.py(), Self::read(Frozen::new(object)?, None)?)?)
    }

    /// Refuses another key than it was made under.
    pub(crate) fn check_key(&self, key: &he::PublicKey) -> Result<()> {
        let (found, parameters) = (self.literal, key.parameters());
        if found.scheme != parameters.scheme() {
            let (found, expected) = (found.scheme.to_string(), parameters.scheme().to_string());
            let what = "it is of scheme";
            return Err(SchemeError::KeyMismatch { what, found, expected }.into());
        }
        if self.key != key.id() {
            let (found, expected) = (self.key.to_string(), key.id().to_string());
            let what = "it was made under key";
            return Err(SchemeError::KeyMismatch { what, found, expected }.into());
        }
        Ok(())
    }

    fn frame(&self) -> Result<&[u8]> {
        buffer::once(&self.frame, || {
            let public = self.public.as_ref().ok_or_else(unknown_key)?;
            Ok(self.sum.to_bytes(public.key()))
        })
    }
}

#[pymethods]
impl PySum {
    /// The numbers of the clients whose contributions are in it, ascending.
    #[getter]
    fn contributors(&self) -> Vec<u16> {
        self.sum.contributed()
    }

    /// The fewest contributors of any value.
    #[getter]
    fn fewest(&self) -> usize {
        self.sum.fewest_contributors()
    }

    /// The round's number.
    #[getter]
    fn round(&self) -> u64 {
        self.sum.round
    }

    /// The id of the job that it was made for.
    #[getter]
    fn job_id(&self) -> String {
        self.sum.job.to_string()
    }

    /// The id of the key that it was made under.
    #[getter]
    fn key_id(&self) -> String {
        self.key.to_string()
    }

    /// The scheme's name.
    #[getter]
    fn scheme(&self) -> &'static str {
        self.literal.scheme.name()
    }

    /// Names, types, shapes and ranges of its tensors, and the largest weight.
    #[getter]
    fn ranges(&self) -> PyRanges {
        PyRanges(self.sum.agreement.clone())
    }

    /// How many values of each tensor of this client were out of range; None unless `Client.sum` returned this sum.
    #[getter]
    fn clipped<'py>(&self, py: Python<'py>) -> Result<Option<Bound<'py, PyDict>>> {
        opened::by_name(py, &self.sum.agreement, self.clipped.as_deref())
    }

    /// The number of bytes.
    #[getter]
    fn nbytes(&self) -> Result<usize> {
        Ok(self.frame()?.len())
    }

    fn __len__(&self) -> Result<usize> {
        self.nbytes()
    }

    fn __bytes__<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, self.frame()?))
    }

    #[expect(unsafe_code, reason = "the protocol's own signature")]
    unsafe fn __getbuffer__(
        slf: &Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> Result<()> {
        // SAFETY: the view is Python's; the class is frozen, so its bytes stay where they are while the view has a
        // reference to it.
        unsafe { buffer::show(slf.as_any(), slf.get().frame(), view, flags) }
    }

    fn __eq__(&self, other: &Self) -> bool {
        self.key == other.key && self.sum == other.sum
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> Result<Pickle<'py>> {
        Ok((py.import("ciphergram")?.getattr("loads")?, (self.__bytes__(py)?,)))
    }

    fn __repr__(&self) -> String {
        let he::Sum { contributors, round, agreement, .. } = &self.sum;
        format!(
            "<Sum of {} contributions to round {round}, {} tensors, {} values>",
            contributors.len(),
            agreement.specs().len(),
            agreement.values()
        )
    }
}

#[pymethods]
impl PyMember {
    /// Opens a sum by openers' answers: see `SecretKey.decrypt`.
    ///
    /// Args:
    ///     answers: The bytes of answers, of as many openers as the job demands.
    ///
    /// Raises:
    ///     OpenerError: An answer is not its opener's own, or of another sum. SumMismatch: They do not open it.
    ///     TooFew: There are fewer answers than open a sum.
    #[pyo3(signature = (sum, answers, *, total=false, like=None, job=None, engine="cpu"))]
    #[expect(clippy::too_many_arguments)]
    fn decrypt<'py>(
        &self,
        py: Python<'py>,
        sum: &Bound<'py, PyAny>,
        answers: &Bound<'py, PyAny>,
        total: bool,
        like: Option<&Bound<'py, PyAny>>,
        job: Option<&PyJob>,
        engine: &str,
    ) -> Result<Bound<'py, PyAny>> {
        let public = self.0.key.public();
        let answer = |bytes: PyResult<Bound<'_, PyAny>>| {
            Ok(OpenAnswer::from_bytes(Frozen::new(&bytes?)?.as_ref(), public)?)
        };
        let answers = answers.try_iter()?.map(answer).collect::<Result<Vec<_>>>()?;
        self.0.decrypt(py, sum, &answers, (total, like), (job, engine))
    }
}

impl Holder {
    /// Opens a sum to new arrays, of the weighted sum if that is asked for, laid out like tensors if some are given.
    fn decrypt<'py>(
        &self,
        py: Python<'py>,
        sum: &Bound<'py, PyAny>,
        answers: &[OpenAnswer],
        (total, like): (bool, Option<&Bound<'py, PyAny>>),
        (job, engine): (Option<&PyJob>, &str),
    ) -> Result<Bound<'py, PyAny>> {
        let (sum, job) = (PySum::of(sum)?, self.job(job)?);
        let sum = sum.get();
        sum.check_key(self.key.public())?;
        let mut arrays = Arrays::new(py, &sum.sum.agreement, like)?;
        let (inner, target) = (&sum.sum, &mut arrays);
        self.act(Some(0), &job, engine, |member| {
            py.detach(|| {
                let mut slices = target.slices();
                let to = Destination::Memory(&mut slices);
                Ok(member.open_sum(inner, answers, opened::output(total), to)?)
            })
        })?;
        opened::opened(py, arrays, &sum.sum, total, None)
    }
}

#[pymethods]
impl PySecretKey {
    /// Opens a sum, and returns the weighted mean of its contributors' tensors.
    ///
    /// Args:
    ///     sum: The sum.
    ///     total: Returns the weighted sum instead of the mean.
    ///     like: Tensors, or their names, in the order that the result is to be in. Integers of such tensors that were
    ///         not summed are copied to it. None for the order in which this process gave tensors of those names last;
    ///         if it never did, names are sorted, and numbers within them by value.
    ///     job: The job; None for the key's own.
    ///     engine: "cpu", "gpu" or "auto".
    ///
    /// Returns:
    ///     New arrays by name, with the shapes and types that clients gave.
    ///
    /// Raises:
    ///     LayoutError: `like` has other names.
    ///     KeyMismatch: It was made under another key.
    ///     TooFew: It is of fewer contributors than the job demands.
    ///     SumMismatch: It is not what its contributors sealed.
    ///     SecondSum: Another sum of its round was opened.
    ///     Overflow: A value exceeds the type of its tensor.
    #[pyo3(signature = (sum, *, total=false, like=None, job=None, engine="cpu"))]
    fn decrypt<'py>(
        &self,
        py: Python<'py>,
        sum: &Bound<'py, PyAny>,
        total: bool,
        like: Option<&Bound<'py, PyAny>>,
        job: Option<&PyJob>,
        engine: &str,
    ) -> Result<Bound<'py, PyAny>> {
        self.0.decrypt(py, sum, &[], (total, like), (job, engine))
    }
}
