//! Keys for vectors: who encrypts, who decrypts, and who computes.

use std::{
    fs,
    io::Read as _,
    path::{Path, PathBuf},
    str::FromStr as _,
    sync::{Arc, OnceLock},
};

use ciphergram_he::{
    self as he, Error as SchemeError, KeyFile, LevelledKey,
    ckks::{self, Parameters, Preset, Rotation},
    frame::MAGIC,
    keys::write_new,
    vectors::Recipe,
};
use pyo3::{
    IntoPyObjectExt, PyTypeCheck,
    prelude::*,
    types::{PyBytes, PyString},
};

use super::{Context, ENGINE, PyVector, scheme, vector};
use crate::{
    arrays::NumberArrays,
    buffer::{self, Frozen, Pickle},
    errors::{Error, Result, no_pickle, warn, whole},
    files::SECRET,
    paths::{read_file, whole_folder},
    pool::run,
};

/// The files of a key in a folder, beside that of the secret one.
const PUBLIC: &str = "public.json";
const EVALUATION: &str = "evaluation.cgk";

/// A key that encrypts, and what is done under it without an evaluation key, made when it is first needed.
#[derive(Clone)]
pub(crate) struct KeyHalf {
    pub(super) key: Arc<LevelledKey>,
    bare: Arc<OnceLock<Context>>,
}

impl KeyHalf {
    fn new(key: LevelledKey) -> Self {
        Self { key: Arc::new(key), bare: Arc::default() }
    }

    /// Returns what sums vectors under it.
    pub(super) fn context(&self) -> Context {
        let bare = || Context::of(ckks::EvaluationKeys::none(self.key.public()));
        self.bare.get_or_init(bare).clone()
    }

    fn id(&self) -> String {
        self.key.public().id().to_string()
    }

    fn scheme(&self) -> Result<&'static str> {
        scheme(self.key.public().parameters())
    }

    fn slots(&self) -> usize {
        self.key.public().parameters().slots()
    }

    fn levels(&self) -> usize {
        self.key.public().parameters().top_level()
    }

    /// Encrypts numbers, to be computed with by a context.
    fn encrypt(
        &self,
        values: &Bound<'_, PyAny>,
        range: Option<f64>,
        context: Context,
    ) -> Result<PyVector> {
        if let Some(range) = range.filter(|range| !range.is_finite() || *range <= 0.0) {
            return Err(Error::parameter(format!("range={range}: it must be a positive number")));
        }
        let numbers = NumberArrays::take(values)?;
        let recipe = Recipe { range, layout: vector::layout(&numbers.shape) };
        let update = numbers.into_update()?;
        let key = &self.key;
        let vector = run(values.py(), || {
            Ok(he::vectors::Vector::encrypt(key, &update, &recipe, &*ENGINE)?)
        })?;
        Ok(PyVector::new(vector, context))
    }
}

/// Takes rotations: numbers of slots, and words as the command line has them.
fn rotations(given: &Bound<'_, PyAny>) -> Result<Vec<Rotation>> {
    let word = |text: &str| {
        Rotation::from_str(text)
            .map_err(|known| Error::parameter(format!("rotations={text:?}: there are {known}")))
    };
    if let Ok(text) = given.cast::<PyString>() {
        return Ok(vec![word(text.to_cow()?.as_ref())?]);
    }
    let mut asked = vec![];
    for one in given.try_iter()? {
        let one = one?;
        asked.push(match one.cast::<PyString>() {
            Ok(text) => word(text.to_cow()?.as_ref())?,
            Err(_) => Rotation::By(whole(&one)?),
        });
    }
    Ok(asked)
}

/// Makes evaluation keys for rotations.
fn evaluation_keys(key: &ckks::LevelledSecret, asked: &[Rotation]) -> Result<ckks::EvaluationKeys> {
    let steps = Rotation::steps(asked, key.parameters());
    let steps = steps.map_err(|why| Error::parameter(format!("rotations=: {why}")))?;
    let keys = key.evaluation_keys(&steps, &*ENGINE)?;
    match asked.contains(&Rotation::Conjugate) {
        true => Ok(key.with_conjugate(keys, &*ENGINE)?),
        false => Ok(keys),
    }
}

/// The half of a key that anyone may have: it encrypts, and decrypts nothing.
#[pyclass(frozen, name = "PublicKey", module = "ciphergram.ckks")]
pub(crate) struct PyCkksPublicKey(pub(super) KeyHalf);

#[pymethods]
impl PyCkksPublicKey {
    /// The key's id, as hexadecimal digits.
    #[getter]
    fn id(&self) -> String {
        self.0.id()
    }

    /// The name of its preset.
    #[getter]
    fn scheme(&self) -> Result<&'static str> {
        self.0.scheme()
    }

    /// The values of a ciphertext.
    #[getter]
    fn slots(&self) -> usize {
        self.0.slots()
    }

    /// Products in a row that a fresh vector has room for.
    #[getter]
    fn levels(&self) -> usize {
        self.0.levels()
    }

    /// Encrypts numbers: see `SecretKey.encrypt`. The ciphertexts are twice as large.
    #[pyo3(signature = (values, *, range=None))]
    fn encrypt(&self, values: &Bound<'_, PyAny>, range: Option<f64>) -> Result<PyVector> {
        self.0.encrypt(values, range, self.0.context())
    }

    /// Writes the key's file, which anyone may read.
    ///
    /// Raises:
    ///     Exists: There is such a file.
    fn save(&self, path: PathBuf) -> Result<()> {
        Ok(self.0.key.public().save(&path)?)
    }

    /// Reads the text of a key's file.
    ///
    /// Raises:
    ///     BadFrame: It is none. KeyKind: The key is more than public, or not for vectors.
    #[staticmethod]
    fn from_json(py: Python<'_>, key: &str) -> Result<Self> {
        match run(py, || Ok(KeyFile::from_json(key)?))? {
            KeyFile::Levelled(key @ LevelledKey::Public(_), _) => Ok(Self(KeyHalf::new(key))),
            KeyFile::Levelled(..) => {
                Err(Error::Own("KeyKind", "this is the text of a secret key".into()))
            }
            KeyFile::Sums(_) => Err(Error::Own("KeyKind", OF_SUMS.into())),
        }
    }

    /// Returns the text of the key's file.
    fn to_json(&self) -> Result<String> {
        Ok(self.0.key.public().to_json()?)
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> Result<(Bound<'py, PyAny>, (String,))> {
        Ok((py.get_type::<Self>().getattr("from_json")?, (self.to_json()?,)))
    }

    fn __repr__(&self) -> Result<String> {
        Ok(format!("<PublicKey {} of {}>", self.0.id(), self.0.scheme()?))
    }

    fn __eq__(&self, other: &Self) -> bool {
        self.0.id() == other.0.id()
    }

    fn __hash__(&self, py: Python<'_>) -> PyResult<isize> {
        PyString::new(py, &self.id()).hash()
    }
}

/// The secret half of a key, which decrypts.
#[pyclass(frozen, name = "SecretKey", module = "ciphergram.ckks")]
pub(crate) struct PyCkksSecretKey(pub(super) KeyHalf);

#[pymethods]
impl PyCkksSecretKey {
    /// The half that anyone may have.
    #[getter]
    fn public(&self) -> PyCkksPublicKey {
        PyCkksPublicKey(KeyHalf::new(LevelledKey::Public(self.0.key.public().clone())))
    }

    /// The key's id, as hexadecimal digits.
    #[getter]
    fn id(&self) -> String {
        self.0.id()
    }

    /// The name of its preset.
    #[getter]
    fn scheme(&self) -> Result<&'static str> {
        self.0.scheme()
    }

    /// The values of a ciphertext.
    #[getter]
    fn slots(&self) -> usize {
        self.0.slots()
    }

    /// Products in a row that a fresh vector has room for.
    #[getter]
    fn levels(&self) -> usize {
        self.0.levels()
    }

    /// Makes evaluation keys, for whoever computes: for products, and for rotations.
    ///
    /// Args:
    ///     rotations: Numbers of values to rotate by, "sum" for sums of all values, and "matrix:10x64" for products by
    ///         a matrix of 10 rows and 64 columns, which a vector of 64 values is multiplied by.
    ///
    /// Raises:
    ///     ParameterError: There are no such rotations.
    #[pyo3(signature = (rotations=None))]
    fn evaluation_keys(
        &self,
        py: Python<'_>,
        rotations: Option<&Bound<'_, PyAny>>,
    ) -> Result<PyEvaluationKeys> {
        let asked = rotations.map(self::rotations).transpose()?.unwrap_or_default();
        let context = run(py, || Ok(Context::of(evaluation_keys(self.0.key.secret()?, &asked)?)))?;
        Ok(PyEvaluationKeys::new(context))
    }

    /// Encrypts numbers.
    ///
    /// Args:
    ///     values: A number, or an array of numbers of any shape, as many as you like: they are cut into ciphertexts.
    ///     range: The largest magnitude of a value, which is public; None for that of these, rounded up to a power of
    ///         two.
    ///
    /// Raises:
    ///     NotFinite: A value is NaN or infinite.
    ///     Overflow: A value is beyond the range.
    ///     DtypeError: They are no numbers. LayoutError: There are none.
    ///     ParameterError: There is no such range.
    #[pyo3(signature = (values, *, range=None))]
    fn encrypt(&self, values: &Bound<'_, PyAny>, range: Option<f64>) -> Result<PyVector> {
        self.0.encrypt(values, range, self.0.context())
    }

    /// Decrypts a vector to float64, for key holders alone: what it is off by tells of the secret key, and whoever
    /// computed it reads that. For sums that anyone may see there is "ckks-sum", which is exact.
    ///
    /// Args:
    ///     vector: The vector, or the bytes of its file.
    ///
    /// Raises:
    ///     KeyMismatch: It is under another key.
    fn decrypt<'py>(&self, vector: &Bound<'py, PyAny>) -> Result<Bound<'py, PyAny>> {
        vector::open(&self.0.key, vector)
    }

    /// Writes the key's file, which only its owner may read.
    ///
    /// Raises:
    ///     Exists: There is such a file.
    fn save(&self, path: PathBuf) -> Result<()> {
        Ok(self.0.key.secret()?.save(&path)?)
    }

    fn __repr__(&self) -> Result<String> {
        Ok(format!("<SecretKey {} of {}>", self.0.id(), self.0.scheme()?))
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(no_pickle("a secret key"))
    }
}

/// Keys to compute on vectors with. They tell nothing of what is encrypted; whoever computes has them.
#[pyclass(frozen, name = "EvaluationKeys", module = "ciphergram.ckks")]
pub(crate) struct PyEvaluationKeys {
    pub(super) context: Context,
    /// The bytes of its file, once they were asked for.
    frame: OnceLock<Frozen>,
}

impl PyEvaluationKeys {
    fn new(context: Context) -> Self {
        Self { context, frame: OnceLock::new() }
    }

    /// Reads the file's bytes, made for a key if one is given.
    fn read(bytes: &[u8]) -> Result<Self> {
        Ok(Self::new(Context::of(ckks::EvaluationKeys::from_bytes(bytes, &*ENGINE)?)))
    }

    fn keys(&self) -> &ckks::EvaluationKeys {
        self.context.evaluator.keys()
    }

    fn frame(&self) -> Result<&[u8]> {
        buffer::once(&self.frame, || Ok(self.keys().to_bytes()?))
    }
}

#[pymethods]
impl PyEvaluationKeys {
    /// The id of the key that they are for.
    #[getter]
    fn id(&self) -> String {
        self.context.id()
    }

    /// The name of its preset.
    #[getter]
    fn scheme(&self) -> Result<&'static str> {
        scheme(self.keys().parameters())
    }

    /// The rotations that there are keys for, in values to the left.
    #[getter]
    fn rotations(&self) -> Vec<i64> {
        self.keys().rotations()
    }

    /// Whether there is a key for products.
    #[getter]
    fn products(&self) -> bool {
        self.keys().others()[0]
    }

    /// The number of bytes.
    #[getter]
    fn nbytes(&self) -> Result<usize> {
        Ok(self.frame()?.len())
    }

    fn __bytes__<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, self.frame()?))
    }

    /// Reads the bytes of the keys' file.
    ///
    /// Raises:
    ///     BadFrame: They are cut, changed, or something else.
    #[staticmethod]
    fn from_bytes(data: &Bound<'_, PyAny>) -> Result<Self> {
        let bytes = Frozen::new(data)?;
        run(data.py(), || Self::read(bytes.as_ref()))
    }

    /// Writes the keys' file, which anyone may read.
    ///
    /// Raises:
    ///     Exists: There is such a file.
    fn save(&self, path: PathBuf) -> Result<()> {
        Ok(write_new(&path, self.frame()?, 0o644)?)
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> Result<Pickle<'py>> {
        Ok((py.get_type::<Self>().getattr("from_bytes")?, (self.__bytes__(py)?,)))
    }

    fn __repr__(&self) -> Result<String> {
        let (id, turns) = (self.id(), self.rotations().len());
        let products = if self.products() { "products and " } else { "" };
        Ok(format!("<EvaluationKeys {id} of {}, {products}{turns} rotations>", self.scheme()?))
    }
}

/// All parts of a key, as `keygen` makes them: for one process, or to be saved and handed out.
#[pyclass(frozen, name = "Keys", module = "ciphergram.ckks")]
pub(crate) struct PyCkksKeys {
    /// The secret key, which decrypts.
    #[pyo3(get)]
    secret: Py<PyCkksSecretKey>,
    /// The public key, which encrypts.
    #[pyo3(get)]
    public: Py<PyCkksPublicKey>,
    /// The keys of whoever computes.
    #[pyo3(get)]
    evaluation: Py<PyEvaluationKeys>,
}

impl PyCkksKeys {
    fn new(
        secret: Bound<'_, PyCkksSecretKey>,
        evaluation: Bound<'_, PyEvaluationKeys>,
    ) -> Result<Self> {
        evaluation.get().context.check(secret.get().id())?;
        let public = Py::new(secret.py(), secret.get().public())?;
        Ok(Self { secret: secret.unbind(), public, evaluation: evaluation.unbind() })
    }

    /// Returns what computes under it.
    pub(super) fn context(&self, py: Python<'_>) -> Context {
        self.evaluation.bind(py).get().context.clone()
    }
}

#[pymethods]
impl PyCkksKeys {
    /// Encrypts numbers to compute with: see `SecretKey.encrypt`.
    #[pyo3(signature = (values, *, range=None))]
    fn encrypt(&self, values: &Bound<'_, PyAny>, range: Option<f64>) -> Result<PyVector> {
        let py = values.py();
        self.secret.bind(py).get().0.encrypt(values, range, self.context(py))
    }

    /// Decrypts a vector: see `SecretKey.decrypt`.
    fn decrypt<'py>(&self, vector: &Bound<'py, PyAny>) -> Result<Bound<'py, PyAny>> {
        self.secret.bind(vector.py()).get().decrypt(vector)
    }

    /// Writes the folder of the key, as `ciphergram keygen` does: whole or not at all.
    ///
    /// Raises:
    ///     Exists: There is such a folder.
    fn save(&self, py: Python<'_>, folder: PathBuf) -> Result<()> {
        let key = &self.secret.bind(py).get().0.key;
        let evaluation = self.evaluation.bind(py).get();
        let write = |temporary: &Path| {
            key.public().save(&temporary.join(PUBLIC))?;
            key.secret()?.save(&temporary.join(SECRET))?;
            evaluation.save(temporary.join(EVALUATION))
        };
        whole_folder(&folder, write, |_| Ok(()))
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let secret = self.secret.bind(py).repr()?;
        Ok(secret.to_string().replacen("SecretKey", "Keys", 1))
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(no_pickle("a key"))
    }
}

/// Makes a key for vectors, and keys to compute with under it.
///
/// Args:
///     scheme: "ckks-4096x1", "ckks-4096x2", "ckks-8192x7" or "ckks-16384x14": the values of a ciphertext, and the
///         products in a row that there is room for.
///     rotations: Numbers of values to rotate by, "sum" for sums of all values, and "matrix:10x64" for products by a
///         matrix of 10 rows and 64 columns, which a vector of 64 values is multiplied by.
///
/// Raises:
///     ParameterError: There is no such scheme, or no such rotation.
#[pyfunction]
#[pyo3(signature = (scheme, *, rotations=None))]
pub(crate) fn keygen(
    py: Python<'_>,
    scheme: &str,
    rotations: Option<&Bound<'_, PyAny>>,
) -> Result<PyCkksKeys> {
    let preset: Preset = scheme.parse().map_err(SchemeError::from)?;
    let asked = rotations.map(self::rotations).transpose()?.unwrap_or_default();
    let (key, context) = run(py, || {
        let parameters = Arc::new(Parameters::preset(preset));
        let key = ckks::LevelledSecret::generate(&parameters, &*ENGINE)?;
        let context = Context::of(evaluation_keys(&key, &asked)?);
        Ok((key, context))
    })?;
    let secret = PyCkksSecretKey(KeyHalf::new(LevelledKey::Secret(key.into())));
    PyCkksKeys::new(Bound::new(py, secret)?, Bound::new(py, PyEvaluationKeys::new(context))?)
}

/// Reads a key's file, `secret.json`, `public.json` or `evaluation.cgk`, or the folder that `Keys.save` or `ciphergram
/// keygen` wrote.
///
/// Raises:
///     BadFrame: It is none.
///     KeyKind: It is a key of sums, which `ciphergram.load_keys` reads.
///     FileError: It cannot be read.
#[pyfunction]
pub(crate) fn load_keys(py: Python<'_>, path: PathBuf) -> Result<Bound<'_, PyAny>> {
    if !path.is_dir() {
        return read(py, &path);
    }
    let secret = read_as::<PyCkksSecretKey>(py, &path.join(SECRET), "secret key")?;
    let file = path.join(EVALUATION);
    let evaluation = if file.is_file() {
        read_as(py, &file, "evaluation key")?
    } else {
        let none = ckks::EvaluationKeys::none(secret.get().0.key.public());
        Bound::new(py, PyEvaluationKeys::new(Context::of(none)))?
    };
    Ok(PyCkksKeys::new(secret, evaluation)?.into_bound_py_any(py)?)
}

/// Reads a file of a key, of one class alone.
fn read_as<'py, T: PyTypeCheck>(py: Python<'py>, path: &Path, what: &str) -> Result<Bound<'py, T>> {
    read(py, path)?
        .cast_into()
        .map_err(|_| Error::Own("KeyKind", format!("{}: is no {what}", path.display())))
}

/// Reads a file of a key. Errors name it.
fn read<'py>(py: Python<'py>, path: &Path) -> Result<Bound<'py, PyAny>> {
    // What may be secret is read by the crate beneath alone, which wipes it.
    let mut start = vec![];
    let file = fs::File::open(path);
    let read = file.and_then(|file| file.take(MAGIC.len() as u64).read_to_end(&mut start));
    read.map_err(|e| SchemeError::from(e).within(path.display()))?;
    if start == MAGIC {
        let keys = read_file(path, |bytes| run(py, || PyEvaluationKeys::read(&bytes)))?;
        return Ok(keys.into_bound_py_any(py)?);
    }
    let file = run(py, || Ok(KeyFile::load(path)?))?;
    warn(py, file.warning())?;
    let loaded = match file {
        KeyFile::Levelled(key @ LevelledKey::Public(_), _) => {
            PyCkksPublicKey(KeyHalf::new(key)).into_bound_py_any(py)
        }
        KeyFile::Levelled(key, _) => PyCkksSecretKey(KeyHalf::new(key)).into_bound_py_any(py),
        KeyFile::Sums(_) => {
            return Err(Error::Own("KeyKind", format!("{}: {OF_SUMS}", path.display())));
        }
    };
    Ok(loaded?)
}

/// What a key of another kind is.
const OF_SUMS: &str = "it is a key of sums, which ciphergram.load_keys reads";
