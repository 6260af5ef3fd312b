//! The classes of keys of sums.

use std::path::{Path, PathBuf};

use ciphergram_he::{self as he, AnyKey, Destination};
use pyo3::{prelude::*, types::PyString};

use crate::{
    arrays::{self, Arrays},
    contribution::PyContribution,
    errors::{Error, Result, no_pickle, weight, weight_or_none, whole, whole_or_none},
    exchange::{PyAnnouncement, PyRoundTerms},
    holder::{GivenTerms, Holder},
    job::PyJob,
    opened,
    pool::run,
    sum::PySum,
};

/// The texts of a public key's file and of its job's.
type Texts = (String, Option<String>);

/// The half of a key that anyone may have: it sums, and opens nothing.
#[pyclass(frozen, name = "PublicKey", module = "ciphergram")]
#[derive(Clone)]
pub(crate) struct PyPublicKey(pub(crate) Holder);

impl PyPublicKey {
    /// Returns the public half of a key of any class.
    pub(crate) fn of(key: &Bound<'_, PyAny>) -> Result<Self> {
        Ok(Holder::of(key)?.public())
    }

    /// Reads a public key's file, and the job beside it.
    pub(crate) fn load(py: Python<'_>, path: &Path) -> Result<Self> {
        let key = run(py, || Ok(he::PublicKey::load(path)?))?;
        Ok(Self(Holder::of_file(AnyKey::Public(key), path, None, 1)?))
    }

    pub(crate) fn key(&self) -> &he::PublicKey {
        self.0.key.public()
    }
}

#[pymethods]
impl PyPublicKey {
    /// The key's id, as hexadecimal digits.
    #[getter]
    fn id(&self) -> String {
        self.0.id()
    }

    /// The scheme's name.
    #[getter]
    fn scheme(&self) -> &'static str {
        self.0.scheme()
    }

    /// The most contributors of a sum.
    #[getter]
    fn clients(&self) -> u32 {
        self.key().parameters().clients()
    }

    /// The bits of a quantised value.
    #[getter]
    fn bits(&self) -> u32 {
        self.key().parameters().bits()
    }

    /// The job that it is used under unless another is given.
    #[getter(job)]
    fn own_job(&self) -> Option<PyJob> {
        self.0.own_job()
    }

    /// Writes the key's file, which anyone may read.
    ///
    /// Raises:
    ///     Exists: There is such a file.
    fn save(&self, path: PathBuf) -> Result<()> {
        self.0.save(&path)
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
        let key = run(py, || Ok(AnyKey::from_json(key)?))?;
        if !matches!(key, AnyKey::Public(_)) {
            return Err(Error::Own("KeyKind", "this is the text of a secret key".into()));
        }
        let job = job.map(|job| he::Job::from_json(job, key.public())).transpose()?;
        Ok(Self(Holder::new(key, job.map(Into::into))))
    }

    /// Returns the texts of the key's file and of its job's.
    fn to_json(&self) -> Result<Texts> {
        let job = self.0.job.as_ref().map(|job| job.to_json()).transpose()?;
        Ok((self.key().to_json()?, job))
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> Result<(Bound<'py, PyAny>, Texts)> {
        Ok((py.get_type::<Self>().getattr("from_json")?, self.to_json()?))
    }

    fn __repr__(&self) -> String {
        self.0.describe("PublicKey", "")
    }

    fn __eq__(&self, other: &Self) -> bool {
        self.key().id() == other.key().id()
    }

    fn __hash__(&self, py: Python<'_>) -> PyResult<isize> {
        PyString::new(py, &self.id()).hash()
    }
}

/// The secret half of a key, which opens sums, and encrypts as any client.
#[pyclass(frozen, subclass, name = "SecretKey", module = "ciphergram")]
pub(crate) struct PySecretKey(pub(crate) Holder);

#[pymethods]
impl PySecretKey {
    /// The half that anyone may have.
    #[getter]
    pub(crate) fn public(&self) -> PyPublicKey {
        self.0.public()
    }

    /// The key's id, as hexadecimal digits.
    #[getter]
    fn id(&self) -> String {
        self.0.id()
    }

    /// The scheme's name.
    #[getter]
    fn scheme(&self) -> &'static str {
        self.0.scheme()
    }

    /// The job that it is used under unless another is given.
    #[getter]
    fn job(&self) -> Option<PyJob> {
        self.0.own_job()
    }

    /// Writes the key's file, which only its owner may read, and the record of its use beside it.
    ///
    /// Raises:
    ///     Exists: There is such a file.
    fn save(&self, path: PathBuf) -> Result<()> {
        self.0.save(&path)
    }

    /// Derives the key of one client, which encrypts and opens nothing.
    ///
    /// Raises:
    ///     KeyKind: Under this scheme clients share the secret key.
    ///     ClientNumberError: There is no such client.
    fn client(&self, #[pyo3(from_py_with = whole)] number: u16) -> Result<PyClientKey> {
        let key = self.0.key.secret()?.client_key(number)?;
        Ok(PyClientKey(self.0.with(AnyKey::Client(key.into(), None))))
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
        let update = arrays::take_clipped(py, tensors, clip, integers)?;
        let given = GivenTerms { ranges, weight, max_weight, round, terms, announcement };
        self.0.encrypt(py, Some(client), update, &given, (job, engine))
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
        let (update, _) = arrays::take_clipped(py, tensors, clip, integers)?;
        self.0.propose(py, Some(client), &update, weight, job)
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
        let (sum, job) = (PySum::of(sum)?, self.0.job(job)?);
        let sum = sum.get();
        sum.check_key(self.0.key.public())?;
        let mut arrays = Arrays::new(py, &sum.sum.agreement, like)?;
        let (inner, target) = (&sum.sum, &mut arrays);
        self.0.act(Some(0), &job, engine, |member| {
            py.detach(|| {
                let mut slices = target.slices();
                let to = Destination::Memory(&mut slices);
                Ok(member.open_sum(inner, opened::output(total), to)?)
            })
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
        self.0.describe("SecretKey", "")
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(no_pickle("a secret key"))
    }
}

/// A client's own key, which encrypts its updates and opens nothing.
#[pyclass(frozen, name = "ClientKey", module = "ciphergram")]
pub(crate) struct PyClientKey(pub(crate) Holder);

#[pymethods]
impl PyClientKey {
    /// The client's number, from 0.
    #[getter]
    fn number(&self) -> Result<u16> {
        Ok(self.0.key.as_client(None)?.number())
    }

    /// The half of the key that anyone may have.
    #[getter]
    fn public(&self) -> PyPublicKey {
        self.0.public()
    }

    /// The key's id, as hexadecimal digits.
    #[getter]
    fn id(&self) -> String {
        self.0.id()
    }

    /// The job that it is used under unless another is given.
    #[getter]
    fn job(&self) -> Option<PyJob> {
        self.0.own_job()
    }

    /// Writes the key's file, which only its owner may read, and the record of its use beside it.
    ///
    /// Raises:
    ///     Exists: There is such a file.
    fn save(&self, path: PathBuf) -> Result<()> {
        self.0.save(&path)
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
        let update = arrays::take_clipped(py, tensors, clip, integers)?;
        let given = GivenTerms { ranges, weight, max_weight, round, terms, announcement };
        self.0.encrypt(py, None, update, &given, (job, engine))
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
        let (update, _) = arrays::take_clipped(py, tensors, clip, integers)?;
        self.0.propose(py, None, &update, weight, job)
    }

    fn __repr__(&self) -> Result<String> {
        Ok(self.0.describe("ClientKey", &format!(", client {}", self.number()?)))
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(no_pickle("a client's key"))
    }
}
