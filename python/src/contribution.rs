//! Contributions: one client's encrypted update each.

use std::ffi::c_int;

use ciphergram_he::{
    self as he, Error as SchemeError, Member, Update, codec::most_clipped, frame::Frame,
};
use pyo3::{
    ffi,
    prelude::*,
    types::{PyBytes, PyDict},
};

use crate::{
    arrays,
    buffer::{self, Frozen, Pickle},
    errors::{Error, Result, warn, warn_clipped, weight_or_none, whole, whole_or_none},
    exchange::{PyAnnouncement, PyRoundTerms},
    holder::Holder,
    job::PyJob,
    keys::{PyClientKey, PyMember, PyPublicKey, PySecretKey},
    opened,
    pool::run,
    ranges::{self, PyRanges},
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
    pub(crate) public: Option<PyPublicKey>,
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

#[pymethods]
impl PySecretKey {
    /// Encrypts a client's update for one round.
    ///
    /// Args:
    ///     tensors: Arrays of floats by name, of any shapes, or the path of a safetensors file.
    ///     client: The client's number, from 0.
    ///     ranges: What values are clipped to: one range, a range for each tensor, or `Ranges` that all share. None
    ///         if the job settles them.
    ///     weight: The weight of this update, from 1; it travels encrypted. None, at all clients alike, is 1 of 1.
    ///     round: The round's number; None for the next that this client has not contributed to.
    ///     max_weight: The largest weight of any client, if `weight` is given and ranges come without it; None for the
    ///         job's. The closer weights are to it, the finer is the mean.
    ///     clip: Clips values to this magnitude first.
    ///     integers: "keep" to leave tensors of integers and truth values out of the sum, "sum" to sum them exactly, or
    ///         "refuse".
    ///     terms: The terms of a round that clients were asked for, with `announcement`.
    ///     announcement: What this client answered when it was asked.
    ///     job: The job; None for the key's own.
    ///     engine: "cpu", "gpu" or "auto".
    ///
    /// Raises:
    ///     NotFinite: A value is NaN or infinite.
    ///     DtypeError: A tensor is of a type that cannot be summed.
    ///     LayoutError: The tensors are not those of the ranges or the job.
    ///     WeightError: The weight is not from 1 to the largest.
    ///     RoundOver: This client has contributed to that round, or a later one.
    ///     BeyondJob: The job does not admit these ranges.
    #[pyo3(signature = (tensors, *, client, ranges=None, weight=None, round=None, max_weight=None, clip=None,
                        integers="keep", terms=None, announcement=None, job=None, engine="cpu"))]
    #[expect(clippy::too_many_arguments)]
    fn encrypt(
        &self,
        py: Python<'_>,
        tensors: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = whole)] client: u16,
        ranges: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = weight_or_none)] weight: Option<u64>,
        #[pyo3(from_py_with = whole_or_none)] round: Option<u64>,
        #[pyo3(from_py_with = whole_or_none)] max_weight: Option<u32>,
        clip: Option<f64>,
        integers: &str,
        terms: Option<&PyRoundTerms>,
        announcement: Option<&PyAnnouncement>,
        job: Option<&PyJob>,
        engine: &str,
    ) -> Result<PyContribution> {
        let update = arrays::take_clipped(py, tensors, clip, integers)?;
        let given = GivenTerms { ranges, weight, max_weight, round, terms, announcement };
        self.0.encrypt(py, Some(client), update, &given, (job, engine))
    }
}

#[pymethods]
impl PyClientKey {
    /// Encrypts this client's update for one round: see `SecretKey.encrypt`.
    #[pyo3(signature = (tensors, *, ranges=None, weight=None, round=None, max_weight=None, clip=None,
                        integers="keep", terms=None, announcement=None, job=None, engine="cpu"))]
    #[expect(clippy::too_many_arguments)]
    fn encrypt(
        &self,
        py: Python<'_>,
        tensors: &Bound<'_, PyAny>,
        ranges: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = weight_or_none)] weight: Option<u64>,
        #[pyo3(from_py_with = whole_or_none)] round: Option<u64>,
        #[pyo3(from_py_with = whole_or_none)] max_weight: Option<u32>,
        clip: Option<f64>,
        integers: &str,
        terms: Option<&PyRoundTerms>,
        announcement: Option<&PyAnnouncement>,
        job: Option<&PyJob>,
        engine: &str,
    ) -> Result<PyContribution> {
        let update = arrays::take_clipped(py, tensors, clip, integers)?;
        let given = GivenTerms { ranges, weight, max_weight, round, terms, announcement };
        self.0.encrypt(py, None, update, &given, (job, engine))
    }
}

#[pymethods]
impl PyMember {
    /// Encrypts this client's update for one round: see `SecretKey.encrypt`.
    ///
    /// Raises:
    ///     OpenerError: The prekey of an opener has expired.
    #[pyo3(signature = (tensors, *, ranges=None, weight=None, round=None, max_weight=None, clip=None,
                        integers="keep", terms=None, announcement=None, job=None, engine="cpu"))]
    #[expect(clippy::too_many_arguments)]
    fn encrypt(
        &self,
        py: Python<'_>,
        tensors: &Bound<'_, PyAny>,
        ranges: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = weight_or_none)] weight: Option<u64>,
        #[pyo3(from_py_with = whole_or_none)] round: Option<u64>,
        #[pyo3(from_py_with = whole_or_none)] max_weight: Option<u32>,
        clip: Option<f64>,
        integers: &str,
        terms: Option<&PyRoundTerms>,
        announcement: Option<&PyAnnouncement>,
        job: Option<&PyJob>,
        engine: &str,
    ) -> Result<PyContribution> {
        let update = arrays::take_clipped(py, tensors, clip, integers)?;
        let given = GivenTerms { ranges, weight, max_weight, round, terms, announcement };
        self.0.encrypt(py, None, update, &given, (job, engine))
    }
}

impl Holder {
    /// Encrypts an update, of which a count of values for each tensor was clipped before.
    fn encrypt(
        &self,
        py: Python<'_>,
        number: Option<u16>,
        (update, outside): (Update, Vec<usize>),
        given: &GivenTerms<'_, '_>,
        (job, engine): (Option<&PyJob>, &str),
    ) -> Result<PyContribution> {
        let job = self.job(job)?;
        let (contribution, clipped) = self.act(number, &job, engine, |member| {
            let (round, agreement) = given.settle(member, &update)?;
            let weight = given.weight.unwrap_or(1);
            if !given.says_max_weight() {
                let bits = self.key.public().parameters().bits();
                warn(py, coarse(weight, agreement.max_weight(), bits).as_deref())?;
            }
            let public = self.public_of(Some(job.clone()));
            run(py, || {
                let sealer = member.seal(&update, weight, &agreement, round)?;
                let (round, clipped) = (sealer.round(), sealer.clipped().to_vec());
                let mut bytes = Vec::with_capacity(sealer.chunks().total_bytes() + 4096);
                sealer.write_to(&mut bytes)?;
                let most = most_clipped(&outside, &clipped);
                let sealed = (bytes, round, agreement, most);
                Ok((PyContribution::sealed(member, sealed, public), clipped))
            })
        })?;
        warn_clipped(py, &clipped);
        Ok(contribution)
    }
}

/// The terms that an update is encrypted under, as a caller gives them.
struct GivenTerms<'a, 'py> {
    ranges: Option<&'a Bound<'py, PyAny>>,
    weight: Option<u64>,
    max_weight: Option<u32>,
    round: Option<u64>,
    terms: Option<&'a PyRoundTerms>,
    announcement: Option<&'a PyAnnouncement>,
}

impl GivenTerms<'_, '_> {
    /// Returns the number of the round, if it is not the next one, and the agreement that it is sealed under.
    fn settle(&self, member: &Member<'_>, update: &Update) -> Result<(Option<u64>, he::Agreement)> {
        let (key, job) = (member.key, member.job);
        match (self.terms, self.announcement) {
            (Some(terms), Some(own)) => {
                let terms = terms.terms.clone().opened(job, key.ranges_secret(), None)?;
                terms.check(key, &own.announcement, job)?;
                Ok((Some(terms.round), terms.agreement))
            }
            (None, None) => {
                let ranges = (self.ranges, self.max_weight);
                let specs = update.specs();
                Ok((self.round, ranges::agreement(ranges, self.weight.is_some(), job, &specs)?))
            }
            _ => Err(Error::parameter("terms= and announcement= belong together")),
        }
    }

    /// Returns whether the caller said a largest weight, here or in ranges that are shared, and meant it.
    fn says_max_weight(&self) -> bool {
        let is_shared = self.ranges.is_some_and(|ranges| ranges.is_instance_of::<PyRanges>());
        self.max_weight.is_some() || self.terms.is_some() || is_shared
    }
}

/// Returns what to warn of where a weight is so far below the largest that values lose more than four bits.
fn coarse(weight: u64, max_weight: u32, bits: u32) -> Option<String> {
    let lost = (f64::from(max_weight) / weight as f64).log2();
    (lost > 4.0).then(|| {
        let left = (f64::from(bits) - lost).max(0.0);
        format!(
            "weights up to {max_weight} leave {left:.0} of {bits} bits of a value of this weight: say max_weight=, the \
             largest of any client, of the job or here"
        )
    })
}
