//! The exchange before a round whose ranges nobody knows yet.

use ciphergram_he::{
    self as he, Error as SchemeError, Update,
    error::with_remedy,
    exchange::{Announcement as SchemeAnnouncement, RoundTerms as SchemeTerms},
};
use pyo3::{prelude::*, types::PyBytes};

use crate::{
    arrays,
    errors::{Result, weight, whole},
    hints,
    holder::Holder,
    job::PyJob,
    keys::{PyClientKey, PyMember, PyPublicKey, PySecretKey},
    pool::run,
    private_ranges::PyRangesKey,
    ranges::PyRanges,
};

/// A client's proposal for a round: its ranges and its weight, rounded up to powers of two, or, under a job that agrees
/// on ranges, its ranges encrypted. Its bytes travel, and `from_bytes` reads them.
#[pyclass(frozen, name = "Announcement", module = "ciphergram")]
pub(crate) struct PyAnnouncement {
    pub(crate) announcement: SchemeAnnouncement,
    /// The client's number.
    #[pyo3(get)]
    pub(crate) client: u16,
    pub(crate) bytes: Vec<u8>,
}

#[pymethods]
impl PyAnnouncement {
    /// Reads the bytes of an announcement of a client, made under a key.
    ///
    /// Raises:
    ///     BadFrame: They are none.
    ///     KeyMismatch: It was made under another key.
    #[staticmethod]
    fn from_bytes(
        bytes: &[u8],
        key: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = whole)] client: u16,
    ) -> Result<Self> {
        let key = Holder::of(key)?.key;
        let announcement = SchemeAnnouncement::from_bytes(bytes, key.public())?;
        Ok(Self { announcement, client, bytes: bytes.to_vec() })
    }

    /// The lowest number of a round that the client still contributes to.
    #[getter]
    fn round(&self) -> u64 {
        self.announcement.lowest_round
    }

    /// The ranges and the largest weight that it proposes.
    #[getter]
    fn ranges(&self) -> PyRanges {
        PyRanges(self.announcement.agreement.clone())
    }

    fn __bytes__<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.bytes)
    }

    fn __repr__(&self) -> String {
        format!("<Announcement of client {} from round {} on>", self.client, self.round())
    }
}

/// The terms of a round: its number, and the ranges that its updates are sealed under.
#[pyclass(frozen, name = "RoundTerms", module = "ciphergram")]
pub(crate) struct PyRoundTerms {
    pub(crate) terms: SchemeTerms,
    /// The clients that cannot take part, each with the reason; known to who made the terms alone.
    #[pyo3(get)]
    left_out: Vec<(u16, String)>,
    bytes: Vec<u8>,
}

#[pymethods]
impl PyRoundTerms {
    /// Reads the bytes of terms made under a key.
    ///
    /// Raises:
    ///     BadFrame: They are none.
    ///     KeyMismatch: They were made under another key.
    #[staticmethod]
    fn from_bytes(bytes: &[u8], key: &Bound<'_, PyAny>) -> Result<Self> {
        let key = Holder::of(key)?.key;
        let terms = SchemeTerms::from_bytes(bytes, key.public())?;
        Ok(Self { terms, left_out: vec![], bytes: bytes.to_vec() })
    }

    /// The round's number.
    #[getter]
    fn round(&self) -> u64 {
        self.terms.round
    }

    /// The ranges and the largest weight; the largest ranges of the job, if clients agree on private ones.
    #[getter]
    fn ranges(&self) -> PyRanges {
        PyRanges(self.terms.agreement.clone())
    }

    /// The numbers of the clients that take part, ascending.
    #[getter]
    fn participants(&self) -> Vec<u16> {
        self.terms.participants.iter().map(|c| c.number).collect()
    }

    fn __bytes__<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.bytes)
    }

    fn __repr__(&self) -> String {
        format!("<RoundTerms of round {}, clients {:?}>", self.round(), self.participants())
    }
}

/// Joins the announcements of clients to the terms of a round. Takes public material only.
///
/// Args:
///     announcements: One of each client.
///     public: The public key.
///     job: The job; None for the key's own.
///     ranges_key: The key to find ranges with, if clients agree on them without showing theirs.
///
/// Raises:
///     TooFew: There is none, or fewer than the rank that the job agrees on.
///     JobMismatch, BeyondJob, LayoutError: No client is left that the job admits.
///     NoRangesKey: The job agrees on ranges, and there is no key to find them with.
#[pyfunction]
#[pyo3(signature = (announcements, public, *, job=None, ranges_key=None))]
pub(crate) fn join_round(
    py: Python<'_>,
    announcements: Vec<PyRef<'_, PyAnnouncement>>,
    public: &Bound<'_, PyAny>,
    job: Option<&PyJob>,
    ranges_key: Option<&PyRangesKey>,
) -> Result<PyRoundTerms> {
    let public = PyPublicKey::of(public)?;
    let job = public.0.job(job)?;
    let announced: Vec<_> =
        announcements.iter().map(|a| (a.client, a.announcement.clone())).collect();
    if announced.is_empty() {
        return Err(SchemeError::NothingToSum.into());
    }
    let he::exchange::Joined { mut terms, left_out } = SchemeTerms::join(&job, &announced)?;
    if job.private_ranges().is_ok() {
        let key = &ranges_key.ok_or(SchemeError::NoRangesKey)?.key;
        let found = run(py, || Ok(terms.find_ranges(key, &job, &announced, &|_| {})?))?;
        terms.private_ranges = Some(found);
    }
    let left_out =
        left_out.into_iter().map(|(client, why)| (client, with_remedy(&why, hints::remedy(&why))));
    let bytes = terms.to_bytes(public.key());
    Ok(PyRoundTerms { terms, left_out: left_out.collect(), bytes })
}

#[pymethods]
impl PySecretKey {
    /// Proposes ranges for a round, of which the terms are made: `join_round`.
    ///
    /// The proposal shows the largest magnitude of each tensor, and the weight, both rounded up to powers of two.
    ///
    /// Args:
    ///     tensors, client, weight, clip, integers, job: As in `encrypt`.
    ///
    /// Raises:
    ///     NotFinite, DtypeError, LayoutError, WeightError, BeyondJob: As in `encrypt`.
    #[pyo3(signature = (tensors, *, client, weight=1, clip=None, integers="keep", job=None))]
    #[expect(clippy::too_many_arguments)]
    fn propose(
        &self,
        py: Python<'_>,
        tensors: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = whole)] client: u16,
        #[pyo3(from_py_with = weight)] weight: u64,
        clip: Option<f64>,
        integers: &str,
        job: Option<&PyJob>,
    ) -> Result<PyAnnouncement> {
        let (update, _) = arrays::take_clipped(py, tensors, clip, integers)?;
        self.0.propose(py, Some(client), &update, weight, job)
    }
}

#[pymethods]
impl PyClientKey {
    /// Proposes ranges for a round: see `SecretKey.propose`.
    #[pyo3(signature = (tensors, *, weight=1, clip=None, integers="keep", job=None))]
    fn propose(
        &self,
        py: Python<'_>,
        tensors: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = weight)] weight: u64,
        clip: Option<f64>,
        integers: &str,
        job: Option<&PyJob>,
    ) -> Result<PyAnnouncement> {
        let (update, _) = arrays::take_clipped(py, tensors, clip, integers)?;
        self.0.propose(py, None, &update, weight, job)
    }
}

#[pymethods]
impl PyMember {
    /// Proposes ranges for a round: see `SecretKey.propose`.
    #[pyo3(signature = (tensors, *, weight=1, clip=None, integers="keep", job=None))]
    fn propose(
        &self,
        py: Python<'_>,
        tensors: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = weight)] weight: u64,
        clip: Option<f64>,
        integers: &str,
        job: Option<&PyJob>,
    ) -> Result<PyAnnouncement> {
        let (update, _) = arrays::take_clipped(py, tensors, clip, integers)?;
        self.0.propose(py, None, &update, weight, job)
    }
}

impl Holder {
    /// Proposes ranges and a weight for a round.
    fn propose(
        &self,
        py: Python<'_>,
        number: Option<u16>,
        update: &Update,
        exact: u64,
        job: Option<&PyJob>,
    ) -> Result<PyAnnouncement> {
        let job = self.job(job)?;
        // The exact weight stays with the client.
        let largest = u64::from(job.limits().max_weight);
        let weight = exact.checked_next_power_of_two().unwrap_or(exact);
        let weight = if exact <= largest { weight.min(largest) } else { exact };
        self.act(number, &job, "cpu", |member| {
            let announcement =
                run(py, || Ok(member.propose(he::Seed::draw()?, update, weight)?))?;
            let (client, bytes) = (member.key.number(), announcement.to_bytes(member.key.public()));
            Ok(PyAnnouncement { announcement, client, bytes })
        })
    }
}
