//! Keys made, and everything that is read from files and bytes.

use std::path::{Path, PathBuf};

use ciphergram_he::{
    self as he, AnyKey, Error as SchemeError, Scheme,
    frame::{Frame, Kind},
    keys::write_folder,
    params::Literal,
    private_ranges::{HAS_BOOTSTRAPS, RangesSecret},
};
use ciphergram_nic::federation::nodes::LocalNodes;
use pyo3::{IntoPyObjectExt, prelude::*, types::PyTuple};

use crate::{
    buffer::Frozen,
    contribution::PyContribution,
    errors::{Result, whole, whole_or_none},
    holder::Holder,
    job::{GivenLimits, GivenRanges},
    keys::{PyClientKey, PyMember, PyPublicKey, PySecretKey},
    paths::{read_file, replace, whole_folder},
    pool::run,
    private_ranges::PyRangesKey,
    sum::PySum,
};

/// All parts of a key, as `keygen` makes them: for one process, or to be saved and handed out. It is the secret key,
/// beside which the clients' own are.
#[pyclass(frozen, extends = PySecretKey, name = "Keys", module = "ciphergram")]
pub(crate) struct PyKeys {
    /// The clients' own keys, where they have such, in the order of their numbers.
    #[pyo3(get)]
    clients: Py<PyTuple>,
}

impl PyKeys {
    /// Takes the secret key, in memory or of a folder, with its ledger if that is elsewhere. Each file of a key has a
    /// record of its own.
    fn new(
        py: Python<'_>,
        secret: Holder,
        folder: Option<(&Path, Option<PathBuf>)>,
    ) -> Result<Py<Self>> {
        let (key, mut clients) = (secret.key.secret()?, vec![]);
        let numbers = if key.public().encrypts() { key.public().parameters().clients() } else { 0 };
        for number in 0..numbers as u16 {
            let client = AnyKey::Client(key.client_key(number)?.into(), None);
            clients.push(PyClientKey(match &folder {
                Some((folder, ledger)) => {
                    let file = folder.join(client_file(number));
                    Holder::of_file(client, &file, ledger.clone(), 1)?
                }
                None => Holder::new(client, secret.job.clone()),
            }));
        }
        let keys = Self { clients: PyTuple::new(py, clients)?.unbind() };
        let secret = PyClassInitializer::from(PySecretKey(secret));
        Ok(Py::new(py, secret.add_subclass(keys))?)
    }
}

/// The file of the secret key in a folder.
pub(crate) const SECRET: &str = "secret.json";

/// Returns the file of a client's own key in a folder.
fn client_file(number: u16) -> String {
    format!("clients/{number}.json")
}

#[pymethods]
impl PyKeys {
    /// The secret key alone.
    #[getter]
    fn secret(slf: &Bound<'_, Self>) -> PySecretKey {
        PySecretKey(slf.as_super().get().0.clone())
    }

    /// Writes the folder of the key, as `ciphergram keygen` does: whole or not at all.
    ///
    /// Raises:
    ///     Exists: There is such a folder.
    fn save(slf: &Bound<'_, Self>, path: PathBuf) -> Result<()> {
        let (secret, clients) = (&slf.as_super().get().0, slf.get().clients.bind(slf.py()));
        whole_folder(
            &path,
            |temporary| {
                write_folder(secret.key.secret()?, &*secret.job(None)?, temporary)?;
                LocalNodes::of_folder(temporary).draw()?;
                Ok(())
            },
            |placed| record(secret, clients, placed),
        )
    }

    /// Makes the key that an aggregator finds private ranges with: the one that `save` writes is as good.
    ///
    /// Raises:
    ///     NoRangesKey: The key has no secret of ranges, or the package was built without them.
    fn ranges_key(slf: &Bound<'_, Self>) -> Result<PyRangesKey> {
        PyRangesKey::generate(slf.py(), &slf.as_super().get().0)
    }

    fn __repr__(slf: &Bound<'_, Self>) -> String {
        slf.as_super().get().0.describe("Keys", "")
    }
}

/// Moves the records of a key and of its clients' own beside their files.
fn record(secret: &Holder, clients: &Bound<'_, PyTuple>, folder: &Path) -> Result<()> {
    secret.save_record(&folder.join(SECRET))?;
    for (number, client) in clients.iter().enumerate() {
        let client = Holder::of(&client)?;
        client.save_record(&folder.join(client_file(number as u16)))?;
    }
    Ok(())
}

/// Makes a key, and a job under it.
///
/// Args:
///     scheme: "ckks-sum", whose clients share the secret key; "paillier-3072", "paillier-2048" or "paillier-4096",
///         whose clients have keys of their own that open nothing.
///     clients: The most contributors of a sum.
///     bits: The bits of a quantised value, from 8 to 24.
///     min_clients, max_weight, max_range, ranges, levels, agree_every, clip_norm: As of `Job`; for `ranges` the key
///         has a secret of ranges.
///
/// Raises:
///     ParameterError: There is no such key or job.
///     NoRangesKey: The package was built without private ranges.
#[pyfunction]
#[pyo3(signature = (scheme="ckks-sum", *, clients, bits=16, min_clients=None, max_weight=None, max_range=None,
                    ranges=None, levels=None, agree_every=None, clip_norm=None))]
#[expect(clippy::too_many_arguments)]
pub(crate) fn keygen(
    py: Python<'_>,
    scheme: &str,
    #[pyo3(from_py_with = whole)] clients: u32,
    #[pyo3(from_py_with = whole)] bits: u32,
    #[pyo3(from_py_with = whole_or_none)] min_clients: Option<u16>,
    #[pyo3(from_py_with = whole_or_none)] max_weight: Option<u32>,
    max_range: Option<f64>,
    ranges: Option<&str>,
    #[pyo3(from_py_with = whole_or_none)] levels: Option<u8>,
    #[pyo3(from_py_with = whole_or_none)] agree_every: Option<u32>,
    clip_norm: Option<&str>,
) -> Result<Py<PyKeys>> {
    // Nobody could find what its clients would agree on.
    if ranges.is_some() && !HAS_BOOTSTRAPS {
        return Err(SchemeError::WithoutTfhe.into());
    }
    let scheme: Scheme = scheme.parse().map_err(SchemeError::from)?;
    let literal = Literal { scheme, clients, bits };
    let mut key = run(py, || Ok(he::SecretKey::generate(literal)?))?;
    if ranges.is_some() {
        key = key.with_ranges_secret(RangesSecret::draw()?);
    }
    let (up_to, bits) = ((max_weight, max_range), vec![]);
    let private = GivenRanges { ranges, levels, agree_every, clip_norm };
    let given = GivenLimits { clients: None, min_clients, up_to, private, bits };
    let job = given.job(py, key.public(), key.ranges_secret())?;
    let key = AnyKey::Secret(key.into(), None);
    PyKeys::new(py, Holder::new(key, Some(job.0)), None)
}

/// Reads a key's file, or the folder that `Keys.save` or `ciphergram keygen` wrote. Its job is the file `job.json`
/// beside it.
///
/// Args:
///     path: The file or folder.
///     ledger: The file that the use of its secret keys is recorded in; None for that which the environment variable
///         CIPHERGRAM_LEDGER names, or the one beside each key.
///
/// Raises:
///     BadFrame: It is none.
///     FileError: It cannot be read.
#[pyfunction]
#[pyo3(signature = (path, *, ledger=None))]
pub(crate) fn load_keys(
    py: Python<'_>,
    path: PathBuf,
    ledger: Option<PathBuf>,
) -> Result<Bound<'_, PyAny>> {
    let folder = path.is_dir();
    let file = if folder { path.join(SECRET) } else { path };
    let held = Holder::load(py, &file, ledger.clone(), 1)?;
    let loaded = match &*held.key.clone() {
        AnyKey::Secret(..) if folder => {
            held.job(None)?;
            let folder = file.parent().map(|folder| (folder, ledger));
            PyKeys::new(py, held, folder)?.into_bound_py_any(py)
        }
        AnyKey::Secret(..) => PySecretKey(held).into_bound_py_any(py),
        AnyKey::Client(..) => PyClientKey(held).into_bound_py_any(py),
        AnyKey::Public(_) => PyPublicKey(held).into_bound_py_any(py),
        AnyKey::Identity(..) => PyMember(held, file.into()).into_bound_py_any(py),
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
    read(data.py(), Frozen::new(data)?, key)
}

/// Reads the file of a contribution or a sum: see `loads`.
#[pyfunction]
#[pyo3(signature = (path, key=None))]
pub(crate) fn load<'py>(
    py: Python<'py>,
    path: PathBuf,
    key: Option<&Bound<'py, PyAny>>,
) -> Result<Bound<'py, PyAny>> {
    read_file(&path, |bytes| read(py, bytes.into(), key))
}

fn read<'py>(
    py: Python<'py>,
    bytes: Frozen,
    key: Option<&Bound<'py, PyAny>>,
) -> Result<Bound<'py, PyAny>> {
    let key = key.map(PyPublicKey::of).transpose()?;
    let loaded = run(py, || match Frame::parse(bytes.as_ref()).map_err(SchemeError::from)?.kind {
        Kind::Sum => PySum::read(bytes, key).map(Loaded::Sum),
        _ => PyContribution::read(bytes, key).map(Loaded::Contribution),
    })?;
    Ok(match loaded {
        Loaded::Sum(sum) => sum.into_bound_py_any(py)?,
        Loaded::Contribution(contribution) => contribution.into_bound_py_any(py)?,
    })
}

enum Loaded {
    Contribution(PyContribution),
    Sum(PySum),
}

/// Writes a contribution or a sum to a file; one of either that is there is replaced.
///
/// Raises:
///     BadFrame: It is neither.
///     Exists: The file is something else.
///     FileError: It cannot be written.
#[pyfunction]
pub(crate) fn save(contribution: &Bound<'_, PyAny>, path: PathBuf) -> Result<()> {
    let bytes = Frozen::new(contribution)?;
    Frame::parse(bytes.as_ref()).map_err(SchemeError::from)?;
    replace(&path, bytes.as_ref(), |found| Frame::parse(found).is_ok())
}
