//! The classes of keys of sums. What is done with them is where its result is: jobs, proposals, contributions, sums.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use ciphergram_he::{self as he, AnyKey};
use pyo3::{prelude::*, types::PyString};

use crate::{
    errors::{Error, Result, no_pickle, whole},
    holder::Holder,
    pool::run,
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

    /// Writes the key's file, which only its owner may read, and the record of its use beside it.
    ///
    /// Raises:
    ///     Exists: There is such a file.
    fn save(&self, path: PathBuf) -> Result<()> {
        self.0.save(&path)
    }

    fn __repr__(&self) -> Result<String> {
        Ok(self.0.describe("ClientKey", &format!(", client {}", self.number()?)))
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(no_pickle("a client's key"))
    }
}

/// A member of jobs whose sums openers open: a client, an opener, or both. It opens nothing alone.
#[pyclass(frozen, name = "Member", module = "ciphergram")]
pub(crate) struct PyMember(
    pub(crate) Holder,
    /// Its file, beside which its prekeys are, each for one answer: locked while it answers.
    pub(crate) Mutex<PathBuf>,
);

#[pymethods]
impl PyMember {
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

    /// The scheme's name.
    #[getter]
    fn scheme(&self) -> &'static str {
        self.0.scheme()
    }

    /// The client's number in the job beside its file; None if it is no client there, or no job is.
    #[getter]
    fn number(&self) -> Result<Option<u16>> {
        self.0.job.as_ref().map_or(Ok(None), |job| self.0.number_in(job))
    }

    fn __repr__(&self) -> String {
        self.0.describe("Member", "")
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(no_pickle("a member's identity"))
    }
}

impl Holder {
    /// Takes the key of an object of any class of keys.
    pub(crate) fn of(object: &Bound<'_, PyAny>) -> Result<Self> {
        if let Ok(key) = object.cast::<PyPublicKey>() {
            return Ok(key.get().0.clone());
        }
        if let Ok(key) = object.cast::<PySecretKey>() {
            return Ok(key.get().0.clone());
        }
        if let Ok(key) = object.cast::<PyClientKey>() {
            return Ok(key.get().0.clone());
        }
        if let Ok(member) = object.cast::<PyMember>() {
            return Ok(member.get().0.clone());
        }
        Err(Error::Own("KeyKind", format!("{} is no key", object.get_type().name()?)))
    }

    /// Returns the half that anyone may have.
    pub(crate) fn public(&self) -> PyPublicKey {
        self.public_of(self.job.clone())
    }

    /// Returns the same half, to be used under a job.
    pub(crate) fn public_of(&self, job: Option<Arc<he::Job>>) -> PyPublicKey {
        PyPublicKey(Self::new(AnyKey::Public(self.key.public().clone()), job))
    }
}
