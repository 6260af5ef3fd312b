//! Jobs.

use std::{path::PathBuf, sync::Arc};

use ciphergram_he::{
    self as he, Error as SchemeError,
    codec::TensorBits,
    job::PrivateRanges,
    private_ranges::{RangesSecret, Rank},
    threshold::OpenerId,
};
use pyo3::{
    exceptions::PyTypeError,
    prelude::*,
    types::{PyDict, PyMapping, PyString},
};

use crate::{
    errors::{Error, Result, warn, whole, whole_or_none},
    holder::Holder,
    keys::{PyClientKey, PyMember, PyPublicKey, PySecretKey},
};

/// The limits that all clients of a federation hold each other to: how many they are, how few a sum may be of, and how
/// large ranges and weights may be.
///
/// Args:
///     key: The public key; a secret one, or a client's own, of a job that agrees on ranges.
///     clients: The clients that take part; None for all that the key admits.
///     min_clients: The fewest contributors of a sum that is opened; None for two thirds of the clients, at least
///         three.
///     max_weight: The largest weight of a client; None for 100,000, or 1 if clients agree on ranges.
///     max_range: The largest range of a tensor that is rounded; None for 65,536, or 1,024 if clients agree on ranges.
///     ranges: "agree:2" to have clients agree on the second largest range of each tensor without showing theirs,
///         "agree:median" on the middle; "agree" on the second largest from four clients on, else the largest.
///     levels: The levels that such ranges are told apart in, 32 at most.
///     agree_every: The rounds over datagrams that they hold for.
///     clip_norm: "agree:median" to agree in the same way on an L2 norm that every client clips its update to.
///     bits: The bits, 8 to 48, that tensors of floats are summed in, in place of the key's, by name: {"head.*": 24},
///         in which * stands for any text. Of several that name a tensor, the last counts.
///
/// Raises:
///     ParameterError: There can be no such job.
///     NoRangesKey: The key has no secret of ranges.
#[pyclass(frozen, name = "Job", module = "ciphergram")]
#[derive(Clone)]
pub(crate) struct PyJob(pub(crate) Arc<he::Job>);

#[pymethods]
impl PyJob {
    #[new]
    #[pyo3(signature = (key, *, clients=None, min_clients=None, max_weight=None, max_range=None, ranges=None,
                        levels=None, agree_every=None, clip_norm=None, bits=None))]
    #[expect(clippy::too_many_arguments)]
    fn new(
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = whole_or_none)] clients: Option<u16>,
        #[pyo3(from_py_with = whole_or_none)] min_clients: Option<u16>,
        #[pyo3(from_py_with = whole_or_none)] max_weight: Option<u32>,
        max_range: Option<f64>,
        ranges: Option<&str>,
        #[pyo3(from_py_with = whole_or_none)] levels: Option<u8>,
        #[pyo3(from_py_with = whole_or_none)] agree_every: Option<u32>,
        clip_norm: Option<&str>,
        bits: Option<&Bound<'_, PyMapping>>,
    ) -> Result<Self> {
        let holder = Holder::of(key)?;
        let secret = ranges.map(|_| holder.ranges_secret()).transpose()?.flatten();
        let mut named = vec![];
        for pair in bits.map(PyMappingMethods::items).transpose()?.iter().flatten() {
            let (name, bits): (String, Bound<'_, PyAny>) = pair.extract()?;
            named.push(TensorBits { name, bits: whole(&bits)? });
        }
        let up_to = (max_weight, max_range);
        let private = GivenRanges { ranges, levels, agree_every, clip_norm };
        let given = GivenLimits { clients, min_clients, up_to, private, bits: named };
        given.job(py, holder.key.public(), secret)
    }

    /// Reads a job's file.
    ///
    /// Raises:
    ///     BadFrame: It is none.
    ///     JobMismatch: It was made under another key.
    #[staticmethod]
    fn load(path: PathBuf, key: &PyPublicKey) -> Result<Self> {
        Ok(Self(he::Job::load(&path, key.key())?.into()))
    }

    /// Writes the job's file.
    ///
    /// Raises:
    ///     Exists: There is such a file.
    fn save(&self, path: PathBuf) -> Result<()> {
        Ok(self.0.save(&path)?)
    }

    /// The job's id, as hexadecimal digits.
    #[getter]
    fn id(&self) -> String {
        self.0.id().to_string()
    }

    /// The number of clients.
    #[getter]
    fn clients(&self) -> u16 {
        self.0.limits().clients
    }

    /// The fewest contributors of a sum that is opened.
    #[getter]
    fn min_clients(&self) -> u16 {
        self.0.min_clients()
    }

    /// The largest weight of a client.
    #[getter]
    fn max_weight(&self) -> u32 {
        self.0.limits().max_weight
    }

    /// The largest range of a tensor.
    #[getter]
    fn max_range(&self) -> f64 {
        self.0.limits().max_range
    }

    /// Whether the job settles the range of every tensor.
    #[getter]
    fn settles_ranges(&self) -> bool {
        self.0.settles_ranges()
    }

    /// How clients agree on ranges without showing theirs, as "agree:2"; None if they show them.
    #[getter]
    fn private_ranges(&self) -> Option<String> {
        self.0.private_ranges().ok().map(|private| format!("agree:{}", private.rank))
    }

    /// Of each opener, by its place, the number of the client that it is as well; None of one that is no client. Empty
    /// where a key opens sums.
    #[getter]
    fn openers(&self) -> Vec<Option<u16>> {
        let Ok(all) = self.0.openers() else { return vec![] };
        let client = |opener: &OpenerId| {
            let place = all.members().iter().position(|member| *member == opener.id);
            place.map(|place| place as u16)
        };
        all.openers().iter().map(client).collect()
    }

    /// The openers whose answers open a sum; 0 where a key does.
    #[getter]
    fn open(&self) -> u8 {
        self.0.openers().map_or(0, |openers| openers.quorum().open)
    }

    /// The bits of tensors that are other than the key's, by name, in which * stands for any text.
    #[getter]
    fn bits<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyDict>> {
        let all = PyDict::new(py);
        for TensorBits { name, bits } in &self.0.limits().bits {
            all.set_item(name, bits)?;
        }
        Ok(all)
    }

    /// Returns the same job, of which this party opens no sum of fewer.
    pub(crate) fn requiring(&self, min_clients: u16) -> Result<Self> {
        let clients = self.0.limits().clients;
        if !(1..=clients).contains(&min_clients) {
            let text = format!("min_clients={min_clients}: a sum is of 1 to {clients} of the job");
            return Err(Error::parameter(text));
        }
        Ok(Self(Arc::new((*self.0).clone().requiring(min_clients))))
    }

    fn __reduce__(&self) -> PyResult<()> {
        let text = "a job is read with its key: pickle the public key, whose .job it is";
        Err(PyTypeError::new_err(text))
    }

    fn __repr__(&self) -> String {
        let he::Limits { clients, max_weight, max_range, .. } = self.0.limits();
        format!(
            "<Job {} of {clients} clients, at least {} to a sum, weights up to {max_weight}, ranges up to {max_range}>",
            self.0.id(),
            self.0.min_clients()
        )
    }

    fn __eq__(&self, other: &Self) -> bool {
        self.0.id() == other.0.id() && self.0.min_clients() == other.0.min_clients()
    }

    fn __hash__(&self, py: Python<'_>) -> PyResult<isize> {
        PyString::new(py, &self.id()).hash()
    }
}

/// The limits of a job as a caller says them; None for what is usual.
pub(crate) struct GivenLimits<'a> {
    pub(crate) clients: Option<u16>,
    pub(crate) min_clients: Option<u16>,
    /// The largest weight, and the largest range.
    pub(crate) up_to: (Option<u32>, Option<f64>),
    pub(crate) private: GivenRanges<'a>,
    pub(crate) bits: Vec<TensorBits>,
}

impl GivenLimits<'_> {
    /// Makes the job, and warns if its sums may be of so few that they tell of each.
    pub(crate) fn job(
        self,
        py: Python<'_>,
        key: &he::PublicKey,
        secret: Option<&RangesSecret>,
    ) -> Result<PyJob> {
        let mut limits = he::Limits::of_key(key);
        let clients = self.clients.unwrap_or(limits.clients);
        limits = limits.of_clients(clients, self.min_clients);
        limits.bits = self.bits;
        limits.private_ranges = self.private.of(clients, secret)?;
        let job = he::Job::new(key, limits.up_to(self.up_to.0, self.up_to.1)?)?;
        let few = job.min_clients();
        if few < ciphergram_nic::federation::FEW {
            let text = format!("sums of {few} are opened: one comes close to a single update");
            warn(py, Some(&text))?;
        }
        Ok(PyJob(job.into()))
    }
}

/// How clients agree on ranges, as a caller says it.
pub(crate) struct GivenRanges<'a> {
    pub(crate) ranges: Option<&'a str>,
    pub(crate) levels: Option<u8>,
    pub(crate) agree_every: Option<u32>,
    pub(crate) clip_norm: Option<&'a str>,
}

impl GivenRanges<'_> {
    /// Returns it as a job of so many clients has it, who share a secret.
    fn of(&self, clients: u16, secret: Option<&RangesSecret>) -> Result<Option<PrivateRanges>> {
        let Some(ranges) = self.ranges else {
            let alone = [
                ("levels=", self.levels.is_some()),
                ("agree_every=", self.agree_every.is_some()),
                ("clip_norm=", self.clip_norm.is_some()),
            ];
            return match alone.into_iter().find(|(_, is_given)| *is_given) {
                Some((name, _)) => Err(Error::parameter(format!("{name} is for ranges=\"agree\""))),
                None => Ok(None),
            };
        };
        let rank = |name: &str, text: &str| {
            let bad = |why| Error::parameter(format!("{name}={text:?}: {why}"));
            Rank::from_agree(text).map_err(bad)
        };
        let of_ranges = match ranges {
            "agree" => Rank::usual(clients),
            ranges => rank("ranges", ranges)?,
        };
        let clip_norm = self.clip_norm.map(|text| rank("clip_norm", text)).transpose()?;
        let usual = PrivateRanges::new(of_ranges, secret.ok_or(SchemeError::NoRangesSecret)?.id());
        Ok(Some(PrivateRanges {
            levels: self.levels.unwrap_or(usual.levels),
            agree_every: self.agree_every.unwrap_or(usual.agree_every),
            clip_norm,
            ..usual
        }))
    }
}

/// Gives classes of keys their job.
macro_rules! with_job {
    ($($class:ident),*) => {$(
        #[pymethods]
        impl $class {
            /// The job that it is used under unless another is given.
            #[getter]
            fn job(&self) -> Option<PyJob> {
                self.0.job.clone().map(PyJob)
            }
        }
    )*};
}
with_job!(PyPublicKey, PySecretKey, PyClientKey, PyMember);

impl Holder {
    /// Returns the job given, or the key's own.
    pub(crate) fn job(&self, given: Option<&PyJob>) -> Result<Arc<he::Job>> {
        given.map(|job| job.0.clone()).or_else(|| self.job.clone()).ok_or_else(|| {
            Error::Own("NoJob", "the key has no job beside it: give one as job=".into())
        })
    }
}
