//! Contributions: one client's encrypted update each.

use std::ffi::c_int;

use ciphergram_he::{self as he, Error as SchemeError, frame::Frame};
use pyo3::{
    ffi,
    prelude::*,
    types::{PyBytes, PyDict},
};

use crate::{
    buffer::{self, Frozen, Pickle},
    errors::{Error, Result},
    keys::PyPublicKey,
    opened,
    ranges::PyRanges,
    sum::PySum,
    summing,
};

/// One client's encrypted update: the bytes of its file, which anyone may have. Has the buffer protocol, and pickles.
#[pyclass(frozen, name = "Contribution", module = "ciphergram")]
pub(crate) struct PyContribution {
    frame: Frozen,
    /// The client's number.
    #[pyo3(get)]
    client: u16,
    /// The round's number.
    #[pyo3(get)]
    round: u64,
    /// The id of the job that it was made for.
    #[pyo3(get)]
    job_id: String,
    /// The id of the key that it was made under.
    #[pyo3(get)]
    key_id: String,
    /// The scheme's name.
    #[pyo3(get)]
    scheme: &'static str,
    agreement: he::Agreement,
    clipped: Option<Vec<usize>>,
    /// The key that it was made or read with.
    public: Option<PyPublicKey>,
}

impl PyContribution {
    /// Takes what a client encrypted: the bytes, the round, the agreement, and how many values of each tensor it
    /// clipped.
    pub(crate) fn sealed(
        member: &he::Member<'_>,
        (bytes, round, agreement, clipped): (Vec<u8>, u64, he::Agreement, Vec<usize>),
        key: PyPublicKey,
    ) -> Self {
        Self {
            frame: bytes.into(),
            client: member.key.number(),
            round,
            job_id: member.job.id().to_string(),
            key_id: key.0.id(),
            scheme: key.0.scheme(),
            agreement,
            clipped: Some(clipped),
            public: Some(key),
        }
    }

    /// Reads the bytes of a file, made under a key if one is given.
    pub(crate) fn read(frame: Frozen, public: Option<PyPublicKey>) -> Result<Self> {
        let parsed = Frame::parse(frame.as_ref()).map_err(SchemeError::from)?;
        if let Some(public) = &public {
            parsed.check_key(public.key())?;
        }
        let he::Contribution { contributor, job, round, agreement, .. } =
            he::Contribution::from_frame(&parsed)?;
        let (client, job_id, key_id) =
            (contributor.number, job.to_string(), parsed.key.to_string());
        let scheme = parsed.literal().map_err(SchemeError::from)?.scheme.name();
        Ok(Self { frame, client, round, job_id, key_id, scheme, agreement, clipped: None, public })
    }

    /// Returns the bytes of its file.
    pub(crate) fn frame(&self) -> &[u8] {
        self.frame.as_ref()
    }
}

#[pymethods]
impl PyContribution {
    /// Names, types, shapes and ranges of its tensors, and the largest weight.
    #[getter]
    fn ranges(&self) -> PyRanges {
        PyRanges(self.agreement.clone())
    }

    /// The number of bytes.
    #[getter]
    fn nbytes(&self) -> usize {
        self.frame().len()
    }

    /// How many values of each tensor were out of range; None if it was not made in this process.
    #[getter]
    fn clipped<'py>(&self, py: Python<'py>) -> Result<Option<Bound<'py, PyDict>>> {
        opened::by_name(py, &self.agreement, self.clipped.as_deref())
    }

    fn __len__(&self) -> usize {
        self.frame().len()
    }

    fn __bytes__<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.frame())
    }

    #[expect(unsafe_code, reason = "the protocol's own signature")]
    unsafe fn __getbuffer__(
        slf: &Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> Result<()> {
        // SAFETY: the view is Python's; the class is frozen, so its bytes stay where they are while the view has a
        // reference to it.
        unsafe { buffer::show(slf.as_any(), Ok(slf.get().frame()), view, flags) }
    }

    /// Adds another contribution, or a sum.
    fn __add__(slf: &Bound<'_, Self>, other: &Bound<'_, PyAny>) -> Result<PySum> {
        summing::add(slf.get().public.as_ref(), [slf.as_any(), other])
    }

    fn __radd__(slf: &Bound<'_, Self>, other: &Bound<'_, PyAny>) -> Result<PySum> {
        summing::add(slf.get().public.as_ref(), [other, slf.as_any()])
    }

    fn __eq__(&self, other: &Self) -> bool {
        self.frame() == other.frame()
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Pickle<'py>> {
        Ok((py.import("ciphergram")?.getattr("loads")?, (self.__bytes__(py),)))
    }

    fn __repr__(&self) -> String {
        let Self { client, round, agreement, .. } = self;
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
