//! Keys made, and everything that is read from files and bytes.

use std::{fs, path::PathBuf, sync::Arc};

use ciphergram_he::{
    self as he, AnyKey, Error as SchemeError, Ledger, Limits, Scheme,
    frame::{Frame, Kind},
    keys::write_folder,
    params::Literal,
};
use ciphergram_nic::federation::nodes::LocalNodes;
use pyo3::{IntoPyObjectExt, exceptions::PyUserWarning, prelude::*, types::PyTuple};

use crate::{
    buffer::Borrowed,
    contribution::Contribution,
    errors::{Error, Result, no_pickle, whole, whole_or_none},
    job::Job,
    keys::{ClientKey, PublicKey, SecretKey, Use},
    pool::run,
    sum::Sum,
};

/// All parts of a key, as `keygen` makes them: for one process, or to be saved and handed out.
#[pyclass(frozen, module = "ciphergram")]
pub(crate) struct Keys {
    /// The secret key.
    #[pyo3(get)]
    secret: Py<SecretKey>,
    /// The public key.
    #[pyo3(get)]
    public: Py<PublicKey>,
    /// The clients' own keys, where they have such, in the order of their numbers.
    #[pyo3(get)]
    clients: Py<PyTuple>,
    /// The job.
    #[pyo3(get)]
    job: Job,
}

impl Keys {
    fn new(py: Python<'_>, key: he::SecretKey, job: Job, ledger: Ledger) -> Result<Self> {
        let used = Use { job: Some(job.0.clone()), ledger };
        let mut clients = vec![];
        if key.public().encrypts() {
            for number in 0..key.public().parameters().clients() as u16 {
                let key = Arc::new(key.client_key(number)?);
                clients.push(ClientKey { key, used: used.clone() }.into_py_any(py)?);
            }
        }
        let public = PublicKey { key: key.public().clone(), job: used.job.clone() };
        Ok(Self {
            secret: Py::new(py, SecretKey { key: key.into(), used })?,
            public: Py::new(py, public)?,
            clients: PyTuple::new(py, clients)?.unbind(),
            job,
        })
    }
}

#[pymethods]
impl Keys {
    /// Writes the folder of the key, as `ciphergram keygen` does: whole or not at all.
    ///
    /// Raises:
    ///     Exists: There is such a folder.
    fn save(&self, folder: PathBuf) -> Result<()> {
        let secret = self.secret.get();
        if folder.exists() {
            return Err(SchemeError::Exists { path: folder }.into());
        }
        let here = |e: std::io::Error| SchemeError::from(e).within(folder.display());
        let mut temporary = folder.clone().into_os_string();
        temporary.push(format!(".{}.tmp", std::process::id()));
        let temporary = PathBuf::from(temporary);
        fs::create_dir(&temporary).map_err(here)?;
        let write = || {
            write_folder(&secret.key, &self.job.0, &temporary)?;
            LocalNodes::of_folder(&temporary).draw()?;
            Ok(fs::rename(&temporary, &folder).map_err(here)?)
        };
        if let Err(error) = write() {
            // What is left of it is of no use to anyone.
            let _ = fs::remove_dir_all(&temporary);
            return Err(error);
        }
        Ok(secret.used.ledger.move_beside(&folder.join("secret.json"))?)
    }

    /// Encrypts a client's update with the secret key: see `SecretKey.encrypt`.
    #[pyo3(signature = (tensors, **options))]
    fn encrypt<'py>(
        &self,
        py: Python<'py>,
        tensors: &Bound<'py, PyAny>,
        options: Option<&Bound<'py, pyo3::types::PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.secret.bind(py).call_method("encrypt", (tensors,), options)
    }

    /// Proposes ranges for a round: see `SecretKey.propose`.
    #[pyo3(signature = (tensors, **options))]
    fn propose<'py>(
        &self,
        py: Python<'py>,
        tensors: &Bound<'py, PyAny>,
        options: Option<&Bound<'py, pyo3::types::PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.secret.bind(py).call_method("propose", (tensors,), options)
    }

    /// Opens a sum: see `SecretKey.decrypt`.
    #[pyo3(signature = (sum, **options))]
    fn decrypt<'py>(
        &self,
        py: Python<'py>,
        sum: &Bound<'py, PyAny>,
        options: Option<&Bound<'py, pyo3::types::PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.secret.bind(py).call_method("decrypt", (sum,), options)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let secret = self.secret.bind(py).repr()?;
        Ok(secret.to_string().replacen("SecretKey", "Keys", 1))
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(no_pickle("a key"))
    }
}

/// Makes a key, and a job under it.
///
/// Args:
///     scheme: "ckks-sum", whose clients share the secret key; "ckks-sum-public" or "paillier-3072", whose clients
///         have keys of their own that open nothing; "paillier-2048" or "paillier-4096".
///     clients: The most contributors of a sum.
///     bits: The bits of a quantised value, from 8 to 24.
///     min_clients: The fewest contributors of a sum that is opened; None for three, or all if they are fewer.
///     max_weight: The largest weight of a client.
///     max_range: The largest range of a tensor.
///
/// Raises:
///     ParameterError: There is no such key or job.
#[pyfunction]
#[pyo3(signature = (scheme="ckks-sum", *, clients, bits=16, min_clients=None, max_weight=100_000, max_range=10.0))]
pub(crate) fn keygen(
    py: Python<'_>,
    scheme: &str,
    #[pyo3(from_py_with = whole)] clients: u32,
    #[pyo3(from_py_with = whole)] bits: u32,
    #[pyo3(from_py_with = whole_or_none)] min_clients: Option<u16>,
    #[pyo3(from_py_with = whole)] max_weight: u32,
    max_range: f64,
) -> Result<Keys> {
    let scheme: Scheme = scheme.parse().map_err(SchemeError::from)?;
    let literal = Literal { scheme, clients, bits };
    let key = run(py, || Ok(he::SecretKey::generate(literal)?))?;
    let mut limits = Limits::of_key(key.public());
    limits.min_clients = min_clients.unwrap_or(limits.min_clients);
    (limits.max_weight, limits.max_range) = (max_weight, max_range);
    let job = Job::make(py, key.public(), limits)?;
    Keys::new(py, key, job, Ledger::in_memory())
}

/// Reads a key's file, or the folder that `Keys.save` or `ciphergram keygen` wrote. Its job is the file `job.json`
/// beside it.
///
/// Raises:
///     BadFrame: It is none.
///     FileError: It cannot be read.
#[pyfunction]
pub(crate) fn load_keys(py: Python<'_>, path: PathBuf) -> Result<Bound<'_, PyAny>> {
    let folder = path.is_dir();
    let file = if folder { path.join("secret.json") } else { path };
    let key = run(py, || Ok(AnyKey::load(&file)?))?;
    if let Some(warning) = key.warning() {
        let text = std::ffi::CString::new(warning).unwrap_or_default();
        PyErr::warn(py, &py.get_type::<PyUserWarning>(), &text, 1)?;
    }
    let used = Use::beside(&file, key.public())?;
    let loaded = match key {
        AnyKey::Secret(key, _) if folder => {
            let job = Job(used.job(None)?);
            Keys::new(py, *key, job, used.ledger)?.into_bound_py_any(py)
        }
        AnyKey::Secret(key, _) => SecretKey { key: Arc::from(key), used }.into_bound_py_any(py),
        AnyKey::Client(key, _) => ClientKey { key: Arc::from(key), used }.into_bound_py_any(py),
        AnyKey::Public(key) => PublicKey { key, job: used.job }.into_bound_py_any(py),
    };
    Ok(loaded?)
}

/// Reads the bytes of a contribution or a sum.
///
/// Args:
///     data: Bytes, or anything with the buffer protocol.
///     key: The key that it is to be of; what is read without one can be sent on and summed, but not added by `+`.
///
/// Raises:
///     BadFrame: The bytes are cut, changed, or something else.
///     KeyMismatch: It was made under another key.
#[pyfunction]
#[pyo3(signature = (data, key=None))]
pub(crate) fn loads<'py>(
    data: &Bound<'py, PyAny>,
    key: Option<&Bound<'py, PyAny>>,
) -> Result<Bound<'py, PyAny>> {
    read(data.py(), Borrowed::new(data)?.as_ref().to_vec(), key)
}

/// Reads the file of a contribution or a sum: see `loads`.
#[pyfunction]
#[pyo3(signature = (path, key=None))]
pub(crate) fn load<'py>(
    py: Python<'py>,
    path: PathBuf,
    key: Option<&Bound<'py, PyAny>>,
) -> Result<Bound<'py, PyAny>> {
    let here = |e: SchemeError| Error::from(e.within(path.display()));
    let bytes = fs::read(&path).map_err(|e| here(e.into()))?;
    read(py, bytes, key).map_err(|error| match error {
        Error::Scheme(error) => here(error),
        error => error,
    })
}

fn read<'py>(
    py: Python<'py>,
    bytes: Vec<u8>,
    key: Option<&Bound<'py, PyAny>>,
) -> Result<Bound<'py, PyAny>> {
    let key = key.map(PublicKey::of).transpose()?;
    match Frame::parse(&bytes).map_err(SchemeError::from)?.kind {
        Kind::Sum => Ok(Sum::read(bytes, key)?.into_bound_py_any(py)?),
        _ => Ok(Contribution::read(bytes, key)?.into_bound_py_any(py)?),
    }
}

/// Writes a contribution or a sum to a file; one that is there is replaced.
///
/// Raises:
///     FileError: It cannot be written.
#[pyfunction]
pub(crate) fn save(contribution: &Bound<'_, PyAny>, path: PathBuf) -> Result<()> {
    let bytes = Borrowed::new(contribution)?;
    fs::write(&path, bytes.as_ref()).map_err(|e| SchemeError::from(e).within(path.display()))?;
    Ok(())
}
