//! Sums of contributions, without a key that opens them.

use std::sync::{Mutex, PoisonError};

use ciphergram_he::{
    self as he, Error as SchemeError,
    frame::{Frame, Kind},
    threshold::OpenAnswer,
};
use pyo3::{prelude::*, types::PyBytes};

use crate::{
    buffer::Frozen,
    contribution::{PyContribution, unknown_key},
    errors::{Error, Result},
    job::PyJob,
    keys::PyPublicKey,
    paths::within,
    pool::run_with,
    sum::PySum,
};

/// A sum that contributions are added to one by one. One that is refused raises, and leaves the sum as it was.
///
/// Args:
///     public: The public key; a sum needs no other.
///     job: The job; None for the key's own.
///     engine: "cpu", "gpu" or "auto".
///
/// Raises:
///     NoJob: The key has no job, and none is given.
///     KeyKind: Nothing can be summed under this key.
#[pyclass(frozen, name = "Summing", module = "ciphergram")]
pub(crate) struct PySumming {
    public: PyPublicKey,
    /// None once it is finished.
    summing: Mutex<Option<he::Summing>>,
}

/// What may be added.
enum Summand {
    Contribution(Py<PyContribution>),
    Sum(Py<PySum>),
    /// The bytes of either.
    Bytes(Frozen),
}

impl Summand {
    fn of(object: &Bound<'_, PyAny>) -> Result<Self> {
        if let Ok(contribution) = object.cast::<PyContribution>() {
            return Ok(Self::Contribution(contribution.clone().unbind()));
        }
        if let Ok(sum) = object.cast::<PySum>() {
            return Ok(Self::Sum(sum.clone().unbind()));
        }
        Ok(Self::Bytes(Frozen::new(object)?))
    }

    fn add_to(&self, summing: &mut he::Summing, key: &he::PublicKey) -> Result<()> {
        match self {
            Self::Contribution(contribution) => add_bytes(summing, contribution.get().frame(), key),
            Self::Sum(sum) => {
                let sum = sum.get();
                sum.check_key(key)?;
                Ok(summing.add_sum(&sum.sum)?)
            }
            Self::Bytes(bytes) => add_bytes(summing, bytes.as_ref(), key),
        }
    }
}

/// Adds the contribution or sum that these are the bytes of.
fn add_bytes(summing: &mut he::Summing, bytes: &[u8], key: &he::PublicKey) -> Result<()> {
    let frame = Frame::parse(bytes).map_err(SchemeError::from)?;
    frame.check_key(key)?;
    match frame.kind {
        Kind::Sum => Ok(summing.add_sum(&he::Sum::from_frame(&frame)?)?),
        _ => Ok(summing.add(&he::Contribution::from_frame(&frame)?)?),
    }
}

#[pymethods]
impl PySumming {
    #[new]
    #[pyo3(signature = (public, *, job=None, engine="cpu"))]
    fn new(public: &Bound<'_, PyAny>, job: Option<&PyJob>, engine: &str) -> Result<Self> {
        Self::begin(PyPublicKey::of(public)?, job, engine)
    }

    /// Adds a contribution, a sum of others, or the bytes of either.
    ///
    /// Returns:
    ///     This sum.
    ///
    /// Raises:
    ///     BadFrame: The bytes are neither.
    ///     KeyMismatch, JobMismatch, RoundMismatch: It was made under another key, or for another job or round.
    ///     DuplicateClient: A client's contribution is in the sum already.
    ///     LayoutError, RangesDiffer: It is of other tensors or ranges than the first.
    ///     BadCiphertext: It is no ciphertext.
    fn add<'py>(slf: Bound<'py, Self>, part: &Bound<'_, PyAny>) -> Result<Bound<'py, Self>> {
        let part = Summand::of(part)?;
        let this = slf.get();
        this.add_part(slf.py(), &part)?;
        Ok(slf)
    }

    /// The number of contributions in it.
    fn __len__(&self) -> usize {
        let summing = self.summing.lock().unwrap_or_else(PoisonError::into_inner);
        summing.as_ref().map_or(0, |summing| summing.contributors().len())
    }

    /// Returns the sum of all that was added; nothing can be added after that.
    ///
    /// Raises:
    ///     TooFew: Nothing was added.
    fn finish(&self, py: Python<'_>) -> Result<PySum> {
        let public = self.public.clone();
        run_with(py, &self.summing, |summing| {
            Ok(PySum::new(summing.take().ok_or_else(finished)?.finish()?, public, None))
        })
    }

    /// Returns the requests to the openers of the job for the sum of all that was added, in their order: bytes for
    /// `Member.answer`. Each opener answers once a round, so they are asked when the sum is whole.
    ///
    /// Raises:
    ///     ParameterError: The sum is finished.
    fn requests<'py>(&self, py: Python<'py>) -> Result<Vec<Bound<'py, PyBytes>>> {
        let key = self.public.key();
        let requests = run_with(py, &self.summing, |summing| {
            let requests = summing.as_ref().ok_or_else(finished)?.requests();
            Ok(requests.iter().map(|request| request.to_bytes(key)).collect::<Vec<_>>())
        })?;
        Ok(requests.iter().map(|request| PyBytes::new(py, request)).collect())
    }

    /// Checks that an opener gave an answer about the sum of all that was added.
    ///
    /// Args:
    ///     answer: The bytes of an answer, of `Member.answer`.
    ///
    /// Returns:
    ///     The opener's place.
    ///
    /// Raises:
    ///     OpenerError: It is not its opener's own, or of another sum. BadFrame: It is none.
    ///     ParameterError: The sum is finished.
    fn check_answer(&self, py: Python<'_>, answer: &Bound<'_, PyAny>) -> Result<u8> {
        let answer = OpenAnswer::from_bytes(Frozen::new(answer)?.as_ref(), self.public.key())?;
        run_with(py, &self.summing, |summing| {
            Ok(summing.as_ref().ok_or_else(finished)?.check_answer(&answer)?)
        })?;
        Ok(answer.opener)
    }

    fn __repr__(&self) -> String {
        format!("<Summing of {} contributions>", self.__len__())
    }
}

impl PySumming {
    fn begin(public: PyPublicKey, job: Option<&PyJob>, engine: &str) -> Result<Self> {
        let job = public.0.job(job)?;
        let summing = he::Summing::new(public.key(), &job, crate::engines::engine(engine)?)?;
        Ok(Self { public, summing: Mutex::new(Some(summing)) })
    }

    fn add_part(&self, py: Python<'_>, part: &Summand) -> Result<()> {
        run_with(py, &self.summing, |summing| {
            let added = part.add_to(summing.as_mut().ok_or_else(finished)?, self.public.key());
            if let Err(Error::Scheme(SchemeError::Engine(_))) = added {
                // Half of it may be in.
                *summing = None;
            }
            added
        })
    }
}

fn finished() -> Error {
    Error::parameter("this sum is finished: begin another")
}

/// Returns the sum of contributions, sums, or the bytes of either.
///
/// Args:
///     contributions: At least one.
///     public: The public key; a sum needs no other.
///     job: The job; None for the key's own.
///     engine: "cpu", "gpu" or "auto".
///
/// Raises:
///     As `Summing.add`. The message names the first that is refused by its place.
#[pyfunction]
#[pyo3(signature = (contributions, public, *, job=None, engine="cpu"))]
pub(crate) fn aggregate(
    py: Python<'_>,
    contributions: &Bound<'_, PyAny>,
    public: &Bound<'_, PyAny>,
    job: Option<&PyJob>,
    engine: &str,
) -> Result<PySum> {
    let summing = PySumming::begin(PyPublicKey::of(public)?, job, engine)?;
    for (place, part) in contributions.try_iter()?.enumerate() {
        let part = Summand::of(&part?)?;
        let added = summing.add_part(py, &part);
        added.map_err(|error| within(error, format!("contribution {place}")))?;
    }
    summing.finish(py)
}

/// Returns the sum of two, under the key that the first was made or read with. A zero, which `sum` begins with, is no
/// part of it.
fn add(public: Option<&PyPublicKey>, two: [&Bound<'_, PyAny>; 2]) -> Result<PySum> {
    let public = public.ok_or_else(unknown_key)?.clone();
    let summing = PySumming::begin(public, None, "cpu")?;
    let py = two[0].py();
    for part in two.iter().filter(|part| !part.extract().is_ok_and(|number: i64| number == 0)) {
        summing.add_part(py, &Summand::of(part)?)?;
    }
    summing.finish(py)
}

#[pymethods]
impl PyContribution {
    /// Adds another contribution, or a sum.
    fn __add__(slf: &Bound<'_, Self>, other: &Bound<'_, PyAny>) -> Result<PySum> {
        add(slf.get().public.as_ref(), [slf.as_any(), other])
    }

    fn __radd__(slf: &Bound<'_, Self>, other: &Bound<'_, PyAny>) -> Result<PySum> {
        add(slf.get().public.as_ref(), [other, slf.as_any()])
    }
}

#[pymethods]
impl PySum {
    /// Adds a contribution, or another sum.
    fn __add__(slf: &Bound<'_, Self>, other: &Bound<'_, PyAny>) -> Result<Self> {
        add(slf.get().public.as_ref(), [slf.as_any(), other])
    }

    fn __radd__(slf: &Bound<'_, Self>, other: &Bound<'_, PyAny>) -> Result<Self> {
        add(slf.get().public.as_ref(), [other, slf.as_any()])
    }
}
