//! Keys, and what is done with each kind.

mod contributing;

use std::{
    hash::{DefaultHasher, Hash as _, Hasher as _},
    path::{Path, PathBuf},
    process,
    sync::{Arc, OnceLock},
};

use ciphergram_he::{self as he, Destination, KeyRef, Ledger};
use pyo3::prelude::*;

use self::contributing::Contributing;
use crate::{
    arrays::Arrays,
    contribution::PyContribution,
    errors::{Error, Result, no_pickle, weight, weight_or_none, whole, whole_or_none},
    exchange::{PyAnnouncement, PyRoundTerms},
    job::PyJob,
    opened,
    pool::{self, run},
    sum::PySum,
};

/// The job that a key is used under, and the record of its use: the same for all that came of one key.
#[derive(Clone)]
pub(crate) struct Use {
    pub(crate) job: Option<Arc<he::Job>>,
    ledger: Ledger,
    /// The file of the ledger, once there is one.
    file: Arc<OnceLock<PathBuf>>,
    /// The process that the ledger is of.
    owner: u32,
}

impl Use {
    /// Begins the use of a key that no file has.
    pub(crate) fn in_memory(job: Arc<he::Job>) -> Self {
        Self {
            job: Some(job),
            ledger: Ledger::in_memory(),
            file: Arc::default(),
            owner: process::id(),
        }
    }

    /// Finds what is beside a key's file, and the ledger, which a person may have put elsewhere. It is for `rounds`
    /// rounds at a time.
    pub(crate) fn of_file(
        path: &Path,
        key: &he::PublicKey,
        ledger: Option<PathBuf>,
        rounds: u64,
    ) -> Result<Self> {
        let job = job_beside(path, key)?;
        let file = Ledger::path_of(path, ledger)?;
        let ledger = Ledger::reserving(file.clone(), rounds);
        Ok(Self { job, ledger, file: Arc::new(OnceLock::from(file)), owner: process::id() })
    }

    /// Returns the record. A process that was forked reads it anew: locks of its parent may be held for ever.
    pub(crate) fn ledger(&self) -> Result<Ledger> {
        if self.owner == process::id() {
            return Ok(self.ledger.clone());
        }
        self.file.get().cloned().map(Ledger::at).ok_or_else(|| {
            let text = format!(
                "no file has this key, and the record of its use is in the memory of process {}: save it, and load it \
                 here",
                self.owner
            );
            Error::Own("ForkedError", text)
        })
    }

    /// Saves the record beside the file that the key was saved to by `save`; that is removed if it cannot be.
    pub(crate) fn save(
        &self,
        path: &Path,
        save: impl FnOnce() -> Result<(), he::Error>,
    ) -> Result<()> {
        let ledger = self.ledger()?;
        save()?;
        let file = ledger.move_beside(path).inspect_err(|_| {
            // Without its record it could seal to a round twice.
            let _ = std::fs::remove_file(path);
        })?;
        // One that has a file keeps that.
        let _ = self.file.set(file);
        Ok(())
    }

    /// Returns the job given, or the key's own.
    pub(crate) fn job(&self, given: Option<&PyJob>) -> Result<Arc<he::Job>> {
        given.map(|job| job.0.clone()).or_else(|| self.job.clone()).ok_or_else(no_job)
    }
}

/// Reads the job beside a key's file, if there is one.
pub(crate) fn job_beside(path: &Path, key: &he::PublicKey) -> Result<Option<Arc<he::Job>>> {
    let job = he::keys::beside(path, "job.json");
    Ok(job.is_file().then(|| he::Job::load(&job, key)).transpose()?.map(Arc::new))
}

/// The texts of a public key's file and of its job's.
type Texts = (String, Option<String>);

/// The half of a key that anyone may have: it sums, and opens nothing.
#[pyclass(frozen, name = "PublicKey", module = "ciphergram")]
#[derive(Clone)]
pub(crate) struct PyPublicKey {
    pub(crate) key: he::PublicKey,
    pub(crate) job: Option<Arc<he::Job>>,
}

impl PyPublicKey {
    /// Returns the job given, or the key's own.
    pub(crate) fn job(&self, given: Option<&PyJob>) -> Result<Arc<he::Job>> {
        given.map(|job| job.0.clone()).or_else(|| self.job.clone()).ok_or_else(no_job)
    }

    /// Returns the public half of a key of any kind.
    pub(crate) fn of(key: &Bound<'_, PyAny>) -> Result<Self> {
        if let Ok(key) = key.cast::<Self>() {
            return Ok(key.get().clone());
        }
        if let Ok(key) = key.cast::<PySecretKey>() {
            return Ok(key.get().public());
        }
        if let Ok(key) = key.cast::<PyClientKey>() {
            return Ok(key.get().public());
        }
        Err(Error::Own("KeyKind", format!("{} is no key", key.get_type().name()?)))
    }
}

fn no_job() -> Error {
    Error::Own("NoJob", "the key has no job beside it: give one as job=".into())
}

#[pymethods]
impl PyPublicKey {
    /// The key's id, as hexadecimal digits.
    #[getter]
    fn id(&self) -> String {
        self.key.id().to_string()
    }

    /// The scheme's name.
    #[getter]
    fn scheme(&self) -> &'static str {
        self.key.parameters().scheme().name()
    }

    /// The most contributors of a sum.
    #[getter]
    fn clients(&self) -> u32 {
        self.key.parameters().clients()
    }

    /// The bits of a quantised value.
    #[getter]
    fn bits(&self) -> u32 {
        self.key.parameters().bits()
    }

    /// The job that it is used under unless another is given.
    #[getter(job)]
    fn own_job(&self) -> Option<PyJob> {
        self.job.clone().map(PyJob)
    }

    /// Writes the key's file, which anyone may read.
    ///
    /// Raises:
    ///     Exists: There is such a file.
    fn save(&self, path: PathBuf) -> Result<()> {
        Ok(self.key.save(&path)?)
    }

    /// Encrypts integers from −n/3 to n/3 under a Paillier key, each as one ciphertext, in the shape that they have.
    ///
    /// Raises:
    ///     KeyKind: The key is not of Paillier.
    ///     Overflow: An integer is too large. DtypeError: it is none.
    fn encrypt_ints<'py>(
        slf: &Bound<'py, Self>,
        xs: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("ciphergram._ints")?.call_method1("encrypt_ints", (slf, xs))
    }

    /// Encrypts numbers, rounded to multiples of `2**-scale`, under a Paillier key.
    ///
    /// Raises:
    ///     KeyKind: The key is not of Paillier. ParameterError: The scale is beyond 1,000.
    ///     NotFinite: A number is NaN or infinite. Overflow: Times `2**scale` it is beyond n/3.
    ///     DtypeError: It is none.
    #[pyo3(signature = (xs, scale=40))]
    fn encrypt_floats<'py>(
        slf: &Bound<'py, Self>,
        xs: &Bound<'py, PyAny>,
        #[pyo3(from_py_with = whole)] scale: u32,
    ) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("ciphergram._ints")?.call_method1("encrypt_floats", (slf, xs, scale))
    }

    /// Reads the texts of a key's file and of its job's.
    ///
    /// Raises:
    ///     BadFrame: They are none. KeyKind: The key is more than public.
    #[staticmethod]
    #[pyo3(signature = (key, job=None))]
    fn from_json(py: Python<'_>, key: &str, job: Option<&str>) -> Result<Self> {
        let he::AnyKey::Public(key) = run(py, || Ok(he::AnyKey::from_json(key)?))? else {
            return Err(Error::Own("KeyKind", "this is the text of a secret key".into()));
        };
        let job = job.map(|job| he::Job::from_json(job, &key)).transpose()?.map(Arc::new);
        Ok(Self { key, job })
    }

    /// Returns the texts of the key's file and of its job's.
    fn to_json(&self) -> Result<Texts> {
        let job = self.job.as_ref().map(|job| job.to_json()).transpose()?;
        Ok((self.key.to_json()?, job))
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> Result<(Bound<'py, PyAny>, Texts)> {
        Ok((py.get_type::<Self>().getattr("from_json")?, self.to_json()?))
    }

    fn __repr__(&self) -> String {
        describe("PublicKey", &self.key, "")
    }

    fn __eq__(&self, other: &Self) -> bool {
        self.key.id() == other.key.id()
    }

    fn __hash__(&self) -> u64 {
        hash(self.key.id())
    }
}

/// Returns a hash of an id.
pub(crate) fn hash(id: impl ToString) -> u64 {
    let mut hasher = DefaultHasher::new();
    id.to_string().hash(&mut hasher);
    hasher.finish()
}

fn describe(class: &str, key: &he::PublicKey, more: &str) -> String {
    let parameters = key.parameters();
    let (scheme, clients, bits) = (parameters.scheme(), parameters.clients(), parameters.bits());
    format!("<{class} {} of {scheme}, {clients} clients, {bits} bits{more}>", key.id())
}

/// The secret half of a key, which opens sums, and encrypts as any client.
#[pyclass(frozen, subclass, name = "SecretKey", module = "ciphergram")]
pub(crate) struct PySecretKey {
    pub(crate) key: Arc<he::SecretKey>,
    pub(crate) used: Use,
}

#[pymethods]
impl PySecretKey {
    /// The half that anyone may have.
    #[getter]
    pub(crate) fn public(&self) -> PyPublicKey {
        PyPublicKey { key: self.key.public().clone(), job: self.used.job.clone() }
    }

    /// The key's id, as hexadecimal digits.
    #[getter]
    fn id(&self) -> String {
        self.key.public().id().to_string()
    }

    /// The scheme's name.
    #[getter]
    fn scheme(&self) -> &'static str {
        self.key.public().parameters().scheme().name()
    }

    /// The job that it is used under unless another is given.
    #[getter]
    fn job(&self) -> Option<PyJob> {
        self.used.job.clone().map(PyJob)
    }

    /// Writes the key's file, which only its owner may read, and the record of its use beside it.
    ///
    /// Raises:
    ///     Exists: There is such a file.
    fn save(&self, path: PathBuf) -> Result<()> {
        self.used.save(&path, || self.key.save(&path))
    }

    /// Derives the key of one client, which encrypts and opens nothing.
    ///
    /// Raises:
    ///     KeyKind: Under this scheme clients share the secret key.
    ///     ClientNumberError: There is no such client.
    fn client(&self, #[pyo3(from_py_with = whole)] number: u16) -> Result<PyClientKey> {
        let key = Arc::new(self.key.client_key(number)?);
        Ok(PyClientKey { key, used: self.used.clone() })
    }

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
        let given = Contributing {
            tensors,
            ranges,
            weight,
            round,
            max_weight,
            clip,
            integers,
            terms,
            announcement,
            job,
            engine,
        };
        given.encrypt(py, self.key.as_client(client), &self.used)
    }

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
        let given = Contributing::proposed(tensors, weight, clip, integers, job);
        given.propose(py, self.key.as_client(client), &self.used)
    }

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
        let sum = PySum::of(sum)?;
        sum.check_key(self.key.public())?;
        let (job, engine) = (self.used.job(job)?, crate::engines::engine(engine)?);
        let mut arrays = Arrays::new(py, &sum.sum.agreement, like)?;
        let (ledger, threads) = (self.used.ledger()?, Some(pool::pool()?));
        let key = self.key.as_client(0);
        let member = he::Member { threads, ..he::Member::new(key, &job, &ledger, engine) };
        let (inner, target) = (&sum.sum, &mut arrays);
        py.detach(|| {
            let mut slices = target.slices();
            let to = Destination::Memory(&mut slices);
            member.open_sum(inner, opened::output(total), to)
        })?;
        opened::opened(py, arrays, &sum.sum, total, None)
    }

    /// Opens encrypted integers: a list of them, nested as the array has axes; one alone is a list too.
    ///
    /// Raises:
    ///     KeyMismatch: They are under another key. DtypeError: They are fixed-point numbers.
    ///     Overflow: A result is beyond a third of n.
    fn decrypt_ints<'py>(
        slf: &Bound<'py, Self>,
        array: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("ciphergram._ints")?.call_method1("decrypt_ints", (slf, array))
    }

    /// Opens encrypted numbers as float64, each the nearest one, in an array of their shape.
    ///
    /// Raises:
    ///     KeyMismatch: They are under another key.
    ///     Overflow: A result is beyond a third of n, or beyond all floats.
    fn decrypt_floats<'py>(
        slf: &Bound<'py, Self>,
        array: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("ciphergram._ints")?.call_method1("decrypt_floats", (slf, array))
    }

    fn __repr__(&self) -> String {
        self.described("SecretKey")
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(no_pickle("a secret key"))
    }
}

impl PySecretKey {
    /// Describes a key of this class or of one that extends it.
    pub(crate) fn described(&self, class: &str) -> String {
        describe(class, self.key.public(), "")
    }
}

/// A client's own key, which encrypts its updates and opens nothing.
#[pyclass(frozen, name = "ClientKey", module = "ciphergram")]
pub(crate) struct PyClientKey {
    pub(crate) key: Arc<he::ClientKey>,
    pub(crate) used: Use,
}

#[pymethods]
impl PyClientKey {
    /// The client's number, from 0.
    #[getter]
    fn number(&self) -> u16 {
        self.key.number()
    }

    /// The half of the key that anyone may have.
    #[getter]
    fn public(&self) -> PyPublicKey {
        PyPublicKey { key: self.key.public().clone(), job: self.used.job.clone() }
    }

    /// The key's id, as hexadecimal digits.
    #[getter]
    fn id(&self) -> String {
        self.key.public().id().to_string()
    }

    /// The job that it is used under unless another is given.
    #[getter]
    fn job(&self) -> Option<PyJob> {
        self.used.job.clone().map(PyJob)
    }

    /// Writes the key's file, which only its owner may read, and the record of its use beside it.
    ///
    /// Raises:
    ///     Exists: There is such a file.
    fn save(&self, path: PathBuf) -> Result<()> {
        self.used.save(&path, || self.key.save(&path))
    }

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
        let given = Contributing {
            tensors,
            ranges,
            weight,
            round,
            max_weight,
            clip,
            integers,
            terms,
            announcement,
            job,
            engine,
        };
        given.encrypt(py, KeyRef::Client(&self.key), &self.used)
    }

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
        let given = Contributing::proposed(tensors, weight, clip, integers, job);
        given.propose(py, KeyRef::Client(&self.key), &self.used)
    }

    fn __repr__(&self) -> String {
        describe("ClientKey", self.key.public(), &format!(", client {}", self.key.number()))
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(no_pickle("a client's key"))
    }
}
