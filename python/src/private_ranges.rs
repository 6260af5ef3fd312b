//! Ranges measured and joined, in clear or without that clients show theirs.

use std::{path::PathBuf, sync::Arc};

use ciphergram_he::{
    self as he, AgreedRanges as SchemeAgreed, Error as SchemeError,
    RangesProposal as SchemeProposal,
    codec::{Policy, RangesFile},
    keys::beside,
    private_ranges::RangesEvaluationKey,
};
use pyo3::{IntoPyObjectExt, prelude::*, types::PyBytes};

use crate::{
    arrays,
    errors::{Error, Result, weight, whole, whole_or_none},
    holder::Holder,
    job::PyJob,
    keys::PyPublicKey,
    pool::run,
    ranges::PyRanges,
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

/// Finds the ranges of tensors.
///
/// Args:
///     tensors: Arrays by name, or the path of a safetensors file.
///     weight: The client's weight, from 1, which no proposal of private ranges tells.
///     policy: "max", the largest magnitude, which clips nothing; "sigma:3", three times the root mean square;
///         "aciq", the range of the least error for values as of a Gaussian; "fixed:0.1".
///     bits: The bits of a quantised value, for "aciq".
///     integers: As of `SecretKey.encrypt`.
///     private: A client's key, to encrypt them for a job that agrees on ranges; None to return them in clear.
///     client: The client's number, where it shares the secret key.
///     job: That job; None for the key's own.
///
/// Returns:
///     `Ranges`, or with `private` a `RangesProposal`, which `merge_ranges` takes.
///
/// Raises:
///     NotFinite: A value is NaN or infinite.
///     NoRangesKey: The key has no secret of ranges.
#[pyfunction]
#[pyo3(name = "ranges", signature = (tensors, *, weight=1, policy="max", bits=16, integers="keep", private=None,
                                     client=None, job=None))]
#[expect(clippy::too_many_arguments)]
pub(crate) fn measure<'py>(
    py: Python<'py>,
    tensors: &Bound<'py, PyAny>,
    #[pyo3(from_py_with = weight)] weight: u64,
    policy: &str,
    #[pyo3(from_py_with = whole)] bits: u32,
    integers: &str,
    private: Option<&Bound<'py, PyAny>>,
    #[pyo3(from_py_with = whole_or_none)] client: Option<u16>,
    job: Option<&PyJob>,
) -> Result<Bound<'py, PyAny>> {
    let policy = parse(policy, bits)?;
    let update = arrays::take(tensors, integers)?;
    if let Some(key) = private {
        if weight != 1 {
            return Err(Error::parameter(
                "no proposal tells a weight: leave weight= out with private=",
            ));
        }
        let proposal = propose(py, (&update, policy), key, client, job)?;
        return Ok(proposal.into_bound_py_any(py)?);
    }
    if client.is_some() || job.is_some() {
        return Err(Error::parameter("client= and job= are for private="));
    }
    let measured =
        run(py, || Ok(PyRanges(RangesFile::measure(&update, policy, weight)?.agreement()?)))?;
    Ok(measured.into_bound_py_any(py)?)
}

fn parse(policy: &str, bits: u32) -> Result<Policy> {
    let bad =
        || Error::parameter(format!("policy={policy:?}: there are max, sigma:K, aciq and fixed:R"));
    let number = |text: &str| {
        text.parse::<f64>().ok().filter(|x| x.is_finite() && *x >= 0.0).ok_or_else(bad)
    };
    match policy.split_once(':') {
        None if policy == "max" => Ok(Policy::Max),
        None if policy == "aciq" => Ok(Policy::Aciq { bits }),
        Some(("sigma", multiple)) => Ok(Policy::Sigma(number(multiple)?)),
        Some(("fixed", range)) => Ok(Policy::Fixed(number(range)?)),
        _ => Err(bad()),
    }
}

/// Joins the ranges of several clients: the largest of each tensor, and the largest weight. Of private ones it finds
/// those that the job agrees on, and opens none.
///
/// Args:
///     ranges: Those of each client.
///     ranges_key: The key to find private ones with, if they are `RangesProposal`s.
///     job: The job that agrees on them; None for the one beside that key.
///
/// Returns:
///     `Ranges`, or with `ranges_key` `AgreedRanges`, which `open_ranges` opens.
///
/// Raises:
///     LayoutError: Their tensors differ.
///     TooFew: Fewer clients than the rank that the job agrees on.
///     JobMismatch, BeyondJob, DuplicateClient: A proposal is none of the job's.
#[pyfunction]
#[pyo3(signature = (ranges, *, ranges_key=None, job=None))]
pub(crate) fn merge_ranges<'py>(
    py: Python<'py>,
    ranges: &Bound<'py, PyAny>,
    ranges_key: Option<&PyRangesKey>,
    job: Option<&PyJob>,
) -> Result<Bound<'py, PyAny>> {
    if let Some(key) = ranges_key {
        let proposals: Vec<PyRef<'_, PyRangesProposal>> = ranges.extract()?;
        let agreed = merge(py, &proposals, key, job)?;
        return Ok(agreed.into_bound_py_any(py)?);
    }
    if job.is_some() {
        return Err(Error::parameter("job= is for ranges_key="));
    }
    let ranges: Vec<PyRef<'_, PyRanges>> = ranges.extract()?;
    let files: Vec<_> = ranges.iter().map(|ranges| ranges.file()).collect();
    Ok(PyRanges(RangesFile::merge(&files)?.agreement()?).into_bound_py_any(py)?)
}
