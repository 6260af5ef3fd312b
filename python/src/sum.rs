//! Sums.

use std::{
    ffi::c_int,
    sync::{Arc, OnceLock},
};

use ciphergram_he::{
    self as he, Error as SchemeError,
    frame::{Frame, Kind},
};
use pyo3::{
    ffi,
    prelude::*,
    types::{PyBytes, PyDict},
};

use crate::{
    buffer::{self, Frozen},
    contribution::{PyContribution, unknown_key},
    errors::Result,
    keys::PyPublicKey,
    opened,
    ranges::PyRanges,
    summing,
};

/// The encrypted sum of contributions. Has the buffer protocol, and pickles.
#[pyclass(frozen, name = "Sum", module = "ciphergram")]
#[derive(Clone)]
pub(crate) struct PySum(Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) sum: he::Sum,
    key: he::KeyId,
    literal: he::params::Literal,
    public: Option<PyPublicKey>,
    clipped: Option<Vec<usize>>,
    /// The bytes of its file, once they were asked for.
    frame: OnceLock<Frozen>,
}

impl PySum {
    /// Takes a sum under a key; of a round that this process took part in, also how many values of each tensor were
    /// clipped.
    pub(crate) fn new(sum: he::Sum, public: PyPublicKey, clipped: Option<Vec<usize>>) -> Self {
        let (key, literal) = (public.key.id(), public.key.parameters().literal());
        let (public, frame) = (Some(public), OnceLock::new());
        Self(Arc::new(Inner { sum, key, literal, public, clipped, frame }))
    }

    /// Reads the bytes of a file, made under a key if one is given.
    pub(crate) fn read(bytes: Frozen, public: Option<PyPublicKey>) -> Result<Self> {
        let parsed = Frame::parse(bytes.as_ref()).map_err(SchemeError::from)?;
        if let Some(public) = &public {
            parsed.check_key(&public.key)?;
        }
        let sum = he::Sum::from_frame(&parsed)?;
        let (key, literal) = (parsed.key, parsed.literal().map_err(SchemeError::from)?);
        let frame = bytes.into();
        Ok(Self(Arc::new(Inner { sum, key, literal, public, clipped: None, frame })))
    }

    /// Takes a sum, or the bytes of one.
    pub(crate) fn of(object: &Bound<'_, PyAny>) -> Result<Self> {
        if let Ok(sum) = object.cast::<Self>() {
            return Ok(sum.get().clone());
        }
        if object.cast::<PyContribution>().is_ok() {
            let (found, expected) = (Kind::Contribution.name(), Kind::Sum.name());
            return Err(SchemeError::from(he::error::FrameError::Kind { found, expected }).into());
        }
        Self::read(Frozen::new(object)?, None)
    }

    /// Refuses another key than it was made under.
    pub(crate) fn check_key(&self, key: &he::PublicKey) -> Result<()> {
        let (found, parameters) = (self.0.literal, key.parameters());
        if found.scheme != parameters.scheme() {
            let (found, expected) = (found.scheme.to_string(), parameters.scheme().to_string());
            let what = "it is of scheme";
            return Err(SchemeError::KeyMismatch { what, found, expected }.into());
        }
        if self.0.key != key.id() {
            let (found, expected) = (self.0.key.to_string(), key.id().to_string());
            let what = "it was made under key";
            return Err(SchemeError::KeyMismatch { what, found, expected }.into());
        }
        Ok(())
    }

    fn frame(&self) -> Result<&[u8]> {
        let Inner { sum, public, frame, .. } = &*self.0;
        if let Some(frame) = frame.get() {
            return Ok(frame.as_ref());
        }
        let key = public.as_ref().ok_or_else(unknown_key)?;
        Ok(frame.get_or_init(|| sum.to_bytes(&key.key).into()).as_ref())
    }
}

impl std::ops::Deref for PySum {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        &self.0
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
        PyRanges::new(self.sum.agreement.clone())
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
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> Result<()> {
        // SAFETY: the view is Python's.
        unsafe { buffer::clear(view) };
        let bytes: *const [u8] = slf.get().frame()?;
        // SAFETY: the class is frozen, so its bytes stay where they are while the view has a reference to it.
        Ok(unsafe { buffer::show(slf.into_any(), &*bytes, view, flags) }?)
    }

    /// Adds a contribution, or another sum.
    fn __add__(slf: &Bound<'_, Self>, other: &Bound<'_, PyAny>) -> Result<Self> {
        summing::add(slf.get().public.as_ref(), [slf.as_any(), other])
    }

    fn __radd__(slf: &Bound<'_, Self>, other: &Bound<'_, PyAny>) -> Result<Self> {
        summing::add(slf.get().public.as_ref(), [other, slf.as_any()])
    }

    fn __eq__(&self, other: &Self) -> bool {
        self.key == other.key && self.sum == other.sum
    }

    fn __reduce__<'py>(
        &self,
        py: Python<'py>,
    ) -> Result<(Bound<'py, PyAny>, (Bound<'py, PyBytes>,))> {
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
