//! Ranges that clients agree on without showing theirs.

use std::{path::PathBuf, sync::Arc};

use ciphergram_he::{
    self as he, AgreedRanges as SchemeAgreed, Error as SchemeError,
    RangesProposal as SchemeProposal, codec::Policy, keys::beside,
    private_ranges::RangesEvaluationKey,
};
use pyo3::{prelude::*, types::PyBytes};

use crate::{
    errors::Result, holder::Holder, job::PyJob, keys::PyPublicKey, pool::run, ranges::PyRanges,
};

/// Encrypts the ranges of a client's tensors.
pub(crate) fn propose(
    py: Python<'_>,
    (update, policy): (&he::Update, Policy),
    key: &Bound<'_, PyAny>,
    client: Option<u16>,
    job: Option<&PyJob>,
) -> Result<PyRangesProposal> {
    let holder = Holder::of(key)?;
    holder.ranges_secret()?;
    let (job, client) = (holder.job(job)?, holder.key.as_client(client)?);
    let proposal = run(py, || Ok(SchemeProposal::new(client, &job, update, policy)?))?;
    let bytes = proposal.to_bytes(holder.key.public());
    Ok(PyRangesProposal { proposal, bytes })
}

/// A client's ranges, encrypted. Its bytes travel, and `from_bytes` reads them.
#[pyclass(frozen, name = "RangesProposal", module = "ciphergram")]
pub(crate) struct PyRangesProposal {
    proposal: SchemeProposal,
    bytes: Vec<u8>,
}

#[pymethods]
impl PyRangesProposal {
    /// Reads the bytes of a proposal made under a key.
    ///
    /// Raises:
    ///     BadFrame: They are none.
    ///     KeyMismatch: It was made under another key.
    #[staticmethod]
    fn from_bytes(bytes: &[u8], key: &Bound<'_, PyAny>) -> Result<Self> {
        let proposal = SchemeProposal::from_bytes(bytes, Holder::of(key)?.key.public())?;
        Ok(Self { proposal, bytes: bytes.to_vec() })
    }

    /// The client's number, as it says.
    #[getter]
    fn client(&self) -> u16 {
        self.proposal.number()
    }

    fn __bytes__<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.bytes)
    }

    fn __repr__(&self) -> String {
        let (tensors, levels) = (self.proposal.specs().len(), self.proposal.levels());
        format!(
            "<RangesProposal of client {}, {tensors} tensors in {levels} levels>",
            self.client()
        )
    }
}

/// Ranges that were agreed, encrypted: `open_ranges` opens them. Its bytes travel, and `from_bytes` reads them.
#[pyclass(frozen, name = "AgreedRanges", module = "ciphergram")]
pub(crate) struct PyAgreedRanges {
    agreed: SchemeAgreed,
    bytes: Vec<u8>,
}

#[pymethods]
impl PyAgreedRanges {
    /// Reads the bytes of ranges that were agreed under a key.
    ///
    /// Raises:
    ///     BadFrame: They are none.
    ///     KeyMismatch: They were agreed under another key.
    #[staticmethod]
    fn from_bytes(bytes: &[u8], key: &Bound<'_, PyAny>) -> Result<Self> {
        let agreed = SchemeAgreed::from_bytes(bytes, Holder::of(key)?.key.public())?;
        Ok(Self { agreed, bytes: bytes.to_vec() })
    }

    /// The numbers of those who proposed, as the aggregator says.
    #[getter]
    fn clients(&self) -> Vec<u16> {
        self.agreed.proposers().iter().map(|proposer| proposer.number).collect()
    }

    fn __bytes__<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.bytes)
    }

    fn __repr__(&self) -> String {
        let tensors = self.agreed.specs().len();
        format!("<AgreedRanges of {tensors} tensors, among clients {:?}>", self.clients())
    }
}

/// The key that an aggregator finds private ranges with, and opens none. It takes a package that was built with the
/// feature `tfhe`.
#[pyclass(frozen, name = "RangesKey", module = "ciphergram")]
pub(crate) struct PyRangesKey {
    pub(crate) key: Arc<RangesEvaluationKey>,
    public: PyPublicKey,
}

impl PyRangesKey {
    /// Makes the one beside a key with a secret of ranges.
    pub(crate) fn generate(py: Python<'_>, holder: &Holder) -> Result<Self> {
        let secret = holder.key.secret()?;
        let key = run(py, || {
            let ranges = secret.ranges_secret().ok_or(SchemeError::NoRangesSecret)?;
            let file = RangesEvaluationKey::generate(ranges, secret.public())?;
            Ok(RangesEvaluationKey::from_bytes(&file, secret.public())?)
        })?;
        Ok(Self { key: key.into(), public: holder.public() })
    }
}

#[pymethods]
impl PyRangesKey {
    /// Reads the file `ranges-evaluation.cgk` of a folder that `Keys.save` or `ciphergram keygen` wrote.
    ///
    /// Args:
    ///     path: The file.
    ///     key: The public key; None for `public.json` beside it, and the job there.
    ///
    /// Raises:
    ///     BadFrame: It is none.
    ///     KeyMismatch: It was made beside another key.
    ///     NoRangesKey: The package was built without private ranges.
    #[staticmethod]
    #[pyo3(signature = (path, key=None))]
    fn load(py: Python<'_>, path: PathBuf, key: Option<&Bound<'_, PyAny>>) -> Result<Self> {
        let public = match key {
            Some(key) => PyPublicKey::of(key)?,
            None => PyPublicKey::load(py, &beside(&path, "public.json"))?,
        };
        let key = run(py, || Ok(RangesEvaluationKey::load(&path, public.key())?))?;
        Ok(Self { key: key.into(), public })
    }

    /// The id of the secret that it was made of, as hexadecimal digits.
    #[getter]
    fn id(&self) -> String {
        self.key.id().to_string()
    }

    fn __repr__(&self) -> String {
        format!("<RangesKey {}>", self.id())
    }
}

/// Finds the ranges that a job agrees on among proposals.
pub(crate) fn merge(
    py: Python<'_>,
    proposals: &[PyRef<'_, PyRangesProposal>],
    key: &PyRangesKey,
    job: Option<&PyJob>,
) -> Result<PyAgreedRanges> {
    let job = key.public.0.job(job)?;
    let proposals: Vec<_> = proposals.iter().map(|proposal| proposal.proposal.clone()).collect();
    let agreed = run(py, || Ok(SchemeAgreed::find(&key.key, &job, &proposals, &|_| {})?))?;
    let bytes = agreed.to_bytes(key.public.key());
    Ok(PyAgreedRanges { agreed, bytes })
}

/// Opens ranges that were agreed.
///
/// Args:
///     agreed: What `merge_ranges` found among proposals.
///     key: A client's key.
///     job: The job; None for the key's own.
///
/// Raises:
///     NoRangesKey: The key has no secret of ranges.
///     JobMismatch, LayoutError, TooFew: They are not what the job agrees on.
#[pyfunction]
#[pyo3(signature = (agreed, key, *, job=None))]
pub(crate) fn open_ranges(
    agreed: &PyAgreedRanges,
    key: &Bound<'_, PyAny>,
    job: Option<&PyJob>,
) -> Result<PyRanges> {
    let holder = Holder::of(key)?;
    Ok(PyRanges(agreed.agreed.open(holder.ranges_secret()?, &*holder.job(job)?)?))
}
