//! Contributions: one client's encrypted update each.

use std::{ffi::c_int, sync::Arc};

use ciphergram_he::{self as he, Error as SchemeError, frame::Frame};
use pyo3::{
    ffi,
    prelude::*,
    types::{PyBytes, PyDict},
};

use crate::{
    buffer::{self, Frozen},
    errors::{Error, Result},
    keys::PyPublicKey,
    opened,
    ranges::PyRanges,
    sum::PySum,
    summing,
};

/// One client's encrypted update: the bytes of its file, which anyone may have. Has the buffer protocol, and pickles.
#[pyclass(frozen, name = "Contribution", module = "ciphergram")]
#[derive(Clone)]
pub(crate) struct PyContribution(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    frame: Frozen,
    client: u16,
    round: u64,
    job: he::JobId,
    key: he::KeyId,
    scheme: &'static str,
    agreement: he::Agreement,
    clipped: Option<Vec<usize>>,
    /// The key that it was made or read with.
    public: Option<PyPublicKey>,
}

impl PyContribution {
    /// Takes what a client encrypted to a round and under an agreement.
    pub(crate) fn encrypted(
        bytes: Vec<u8>,
        member: &he::Member<'_>,
        round: u64,
        agreement: he::Agreement,
        clipped: Vec<usize>,
        key: PyPublicKey,
    ) -> Self {
        Self(Arc::new(Inner {
            frame: bytes.into(),
            client: member.key.number(),
            round,
            job: member.job.id(),
            key: key.key.id(),
            scheme: key.key.parameters().scheme().name(),
            agreement,
            clipped: Some(clipped),
            public: Some(key),
        }))
    }

    /// Reads the bytes of a file, made under a key if one is given.
    pub(crate) fn read(frame: Frozen, public: Option<PyPublicKey>) -> Result<Self> {
        let parsed = Frame::parse(frame.as_ref()).map_err(SchemeError::from)?;
        if let Some(public) = &public {
            parsed.check_key(&public.key)?;
        }
        let he::Contribution { contributor, job, round, agreement, .. } =
            he::Contribution::from_frame(&parsed)?;
        let literal = parsed.literal().map_err(SchemeError::from)?;
        let (key, scheme) = (parsed.key, literal.scheme.name());
        let client = contributor.number;
        Ok(Self(Arc::new(Inner {
            frame,
            client,
            round,
            job,
            key,
            scheme,
            agreement,
            clipped: None,
            public,
        })))
    }

    /// Returns the bytes of its file.
    pub(crate) fn frame(&self) -> &[u8] {
        self.0.frame.as_ref()
    }

    /// Returns the key that it was made or read with.
    pub(crate) fn public(&self) -> Option<&PyPublicKey> {
        self.0.public.as_ref()
    }
}

#[pymethods]
impl PyContribution {
    /// The client's number.
    #[getter]
    fn client(&self) -> u16 {
        self.0.client
    }

    /// The round's number.
    #[getter]
    fn round(&self) -> u64 {
        self.0.round
    }

    /// The id of the job that it was made for.
    #[getter]
    fn job_id(&self) -> String {
        self.0.job.to_string()
    }

    /// The id of the key that it was made under.
    #[getter]
    fn key_id(&self) -> String {
        self.0.key.to_string()
    }

    /// The scheme's name.
    #[getter]
    fn scheme(&self) -> &'static str {
        self.0.scheme
    }

    /// Names, types, shapes and ranges of its tensors, and the largest weight.
    #[getter]
    fn ranges(&self) -> PyRanges {
        PyRanges::new(self.0.agreement.clone())
    }

    /// The number of bytes.
    #[getter]
    fn nbytes(&self) -> usize {
        self.frame().len()
    }

    /// How many values of each tensor were out of range; None if it was not made in this process.
    #[getter]
    fn clipped<'py>(&self, py: Python<'py>) -> Result<Option<Bound<'py, PyDict>>> {
        opened::by_name(py, &self.0.agreement, self.0.clipped.as_deref())
    }

    fn __len__(&self) -> usize {
        self.frame().len()
    }

    fn __bytes__<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.frame())
    }

    #[expect(unsafe_code, reason = "the protocol's own signature")]
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        // SAFETY: the view is Python's.
        unsafe { buffer::clear(view) };
        let bytes: *const [u8] = slf.get().frame();
        // SAFETY: the class is frozen, so its bytes stay where they are while the view has a reference to it.
        unsafe { buffer::show(slf.into_any(), &*bytes, view, flags) }
    }

    /// Adds another contribution, or a sum.
    fn __add__(slf: &Bound<'_, Self>, other: &Bound<'_, PyAny>) -> Result<PySum> {
        summing::add(slf.get().public(), [slf.as_any(), other])
    }

    fn __radd__(slf: &Bound<'_, Self>, other: &Bound<'_, PyAny>) -> Result<PySum> {
        summing::add(slf.get().public(), [other, slf.as_any()])
    }

    fn __eq__(&self, other: &Self) -> bool {
        self.frame() == other.frame()
    }

    fn __reduce__<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<(Bound<'py, PyAny>, (Bound<'py, PyBytes>,))> {
        Ok((py.import("ciphergram")?.getattr("loads")?, (self.__bytes__(py),)))
    }

    fn __repr__(&self) -> String {
        let Inner { client, round, agreement, .. } = &*self.0;
        format!(
            "<Contribution of client {client} to round {round}, {} tensors, {} values, {} bytes>",
            agreement.specs().len(),
            agreement.values(),
            self.frame().len()
        )
    }
}

/// Makes the error of something that was read without its key.
pub(crate) fn unknown_key() -> Error {
    let text = "it was loaded without a key: load it with key=, or sum with aggregate(…, public)";
    Error::Own("KeyMismatch", text.into())
}
