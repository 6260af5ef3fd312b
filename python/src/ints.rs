//! Integers under Paillier: one ciphertext each.

use std::sync::{Arc, Mutex, PoisonError};

use ciphergram_he::{
    self as he, Error as SchemeError,
    paillier::{Ciphertexts, Encryptor, Evaluator, PaillierModulus, Plaintexts, Scalars},
};
use pyo3::{prelude::*, types::PyBytes};

use crate::{
    engines::engine,
    errors::{Error, Result},
    keys::{PublicKey, SecretKey},
    pool::run,
};

/// Encrypted integers, one Paillier ciphertext each, from −n/3 to n/3. They add up, and can be multiplied by public
/// integers; a result beyond these bounds is an error when it is opened, or wraps around if it is far beyond.
#[pyclass(frozen, module = "ciphergram")]
pub(crate) struct EncryptedArray {
    ciphertexts: Ciphertexts,
    public: PublicKey,
}

/// Returns the Paillier half of a key.
fn modulus(key: &he::PublicKey) -> Result<&PaillierModulus> {
    key.paillier().ok_or_else(|| {
        let text = format!(
            "integers are encrypted under Paillier, and this is a {} key",
            key.parameters().scheme()
        );
        Error::Own("KeyKind", text)
    })
}

fn to_words(bytes: &[u8]) -> Vec<u64> {
    bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect()
}

fn to_bytes(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// Returns n as Python has it.
fn n<'py>(py: Python<'py>, modulus: &PaillierModulus) -> PyResult<Bound<'py, PyAny>> {
    let bytes = PyBytes::new(py, &to_bytes(modulus.n().words()));
    py.import("ciphergram._ints")?.call_method1("from_bytes", (bytes,))
}

/// Packs integers as plaintexts modulo n, in as many words each as n has.
fn plaintexts(xs: &Bound<'_, PyAny>, modulus: &PaillierModulus) -> Result<Plaintexts> {
    let (py, each) = (xs.py(), 8 * modulus.n().len_words());
    let glue = py.import("ciphergram._ints")?;
    let bytes: Vec<u8> = glue.call_method1("pack", (xs, n(py, modulus)?, each))?.extract()?;
    Ok(Plaintexts::try_from_words(modulus, to_words(&bytes).into())?)
}

/// Encrypts integers under a public key.
pub(crate) fn encrypt(
    py: Python<'_>,
    public: &PublicKey,
    xs: &Bound<'_, PyAny>,
) -> Result<EncryptedArray> {
    let (modulus, engine) = (modulus(&public.key)?, engine("cpu")?);
    let plain = plaintexts(xs, modulus)?;
    let ciphertexts =
        run(py, || Ok(Encryptor::new(modulus, &*engine)?.encrypt(&*engine, &plain)?))?;
    Ok(EncryptedArray { ciphertexts, public: public.clone() })
}

/// Opens integers with a secret key.
pub(crate) fn decrypt<'py>(
    py: Python<'py>,
    key: &SecretKey,
    array: &EncryptedArray,
) -> Result<Bound<'py, PyAny>> {
    let modulus = modulus(key.key.public())?;
    let engine = engine("cpu")?;
    let Some(secret) = key.key.paillier() else {
        return Err(SchemeError::NoSumKey.into());
    };
    array.check_under(key.key.public().id().to_string(), modulus)?;
    let plain = run(py, || Ok(secret.decrypt(&*engine, &array.ciphertexts)?))?;
    let bytes = PyBytes::new(py, &to_bytes(plain.words()));
    let each = 8 * modulus.n().len_words();
    let glue = py.import("ciphergram._ints")?;
    Ok(glue.call_method1("unpack", (bytes, n(py, modulus)?, each))?)
}

#[pymethods]
impl EncryptedArray {
    /// Tells numpy to leave operators between its arrays and this one to this one.
    #[classattr]
    fn __array_ufunc__() -> Option<()> {
        None
    }

    /// Takes ciphertexts as integers, from 1 to n² − 1, of whichever library.
    ///
    /// Args:
    ///     ciphertexts: The integers.
    ///     public: The key that they are under.
    ///
    /// Raises:
    ///     BadCiphertext: One is no ciphertext.
    ///     KeyKind: The key is not of Paillier.
    #[staticmethod]
    fn from_ints(ciphertexts: &Bound<'_, PyAny>, public: &Bound<'_, PyAny>) -> Result<Self> {
        let (py, public) = (ciphertexts.py(), PublicKey::of(public)?);
        let modulus = modulus(&public.key)?;
        let each = 8 * modulus.ciphertext_words();
        let glue = py.import("ciphergram._ints")?;
        let bytes: Vec<u8> =
            glue.call_method1("pack_ciphertexts", (ciphertexts, each))?.extract()?;
        let ciphertexts = Ciphertexts::try_from_words(modulus, to_words(&bytes));
        let ciphertexts = ciphertexts.map_err(|e| Error::Own("BadCiphertext", e.to_string()))?;
        Ok(Self { ciphertexts, public })
    }

    /// Returns the ciphertexts as integers.
    fn to_ints<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>> {
        let engine = engine("cpu")?;
        let each = 8 * self.modulus().ciphertext_words();
        let words = run(py, || Ok(self.ciphertexts.clone().into_words(&*engine)?))?;
        let bytes = PyBytes::new(py, &to_bytes(&words));
        Ok(py.import("ciphergram._ints")?.call_method1("split", (bytes, each))?)
    }

    /// The key that they are under.
    #[getter]
    fn public(&self) -> PublicKey {
        self.public.clone()
    }

    fn __len__(&self) -> usize {
        self.ciphertexts.count()
    }

    /// Adds encrypted integers pair by pair, or plain ones: one for each, or one for all.
    ///
    /// Raises:
    ///     KeyMismatch: The others are under another key.
    ///     LayoutError: There are fewer or more.
    ///     DtypeError, Overflow: As `PublicKey.encrypt_ints`.
    fn __add__(&self, other: &Bound<'_, PyAny>) -> Result<Self> {
        let (py, evaluator) = (other.py(), self.evaluator()?);
        let ciphertexts = match other.cast::<Self>() {
            Ok(other) => {
                let other = other.get();
                other.check_under(self.public.key.id().to_string(), self.modulus())?;
                let (own, found) = (self.__len__(), other.__len__());
                if own != found {
                    let text = format!("{found} integers for {own} that are encrypted");
                    return Err(Error::Own("LayoutError", text));
                }
                run(py, || Ok(evaluator.add(&self.ciphertexts, &other.ciphertexts)?))?
            }
            Err(_) => {
                let plain = self.summands(other)?;
                run(py, || Ok(evaluator.add_plain(&self.ciphertexts, &plain)?))?
            }
        };
        Ok(self.with(ciphertexts))
    }

    fn __radd__(&self, other: &Bound<'_, PyAny>) -> Result<Self> {
        self.__add__(other)
    }

    /// Multiplies by public integers: one for each, or one for all.
    ///
    /// Raises:
    ///     LayoutError: They are fewer or more.
    ///     DtypeError: One is no integer. Overflow: One is not below n.
    fn __mul__(&self, scalars: &Bound<'_, PyAny>) -> Result<Self> {
        let (py, modulus) = (scalars.py(), self.modulus());
        let each = 8 * modulus.n().len_words();
        let glue = py.import("ciphergram._ints")?;
        let given = (scalars, self.__len__(), n(py, modulus)?, each);
        let (magnitudes, negative): (Vec<u8>, Vec<bool>) =
            glue.call_method1("scalars", given)?.extract()?;
        let scalars =
            Scalars::try_from_words(modulus, to_words(&magnitudes).into(), Some(&negative))?;
        let evaluator = self.evaluator()?;
        let product = run(py, || Ok(evaluator.mul_plain_public(&self.ciphertexts, &scalars)?))?;
        Ok(self.with(product))
    }

    fn __rmul__(&self, scalars: &Bound<'_, PyAny>) -> Result<Self> {
        self.__mul__(scalars)
    }

    /// Returns the sum of all, as an array of one.
    fn sum(&self, py: Python<'_>) -> Result<Self> {
        let evaluator = self.evaluator()?;
        Ok(self.with(run(py, || Ok(evaluator.sum(&self.ciphertexts)?))?))
    }

    fn __repr__(&self) -> String {
        format!(
            "<EncryptedArray of {} integers under key {}>",
            self.__len__(),
            self.public.key.id()
        )
    }
}

impl EncryptedArray {
    fn modulus(&self) -> &PaillierModulus {
        self.ciphertexts.modulus()
    }

    /// Refuses to go on under another key than this array's.
    fn check_under(&self, expected: String, modulus: &PaillierModulus) -> Result<()> {
        if self.modulus().n().words() == modulus.n().words() {
            return Ok(());
        }
        let found = self.public.key.id().to_string();
        Err(SchemeError::KeyMismatch { found, expected }.into())
    }

    /// Packs integers to add: one for each of this array's, or one for all.
    fn summands(&self, given: &Bound<'_, PyAny>) -> Result<Plaintexts> {
        let (py, modulus) = (given.py(), self.modulus());
        let each = 8 * modulus.n().len_words();
        let given = (given, self.__len__(), n(py, modulus)?, each);
        let glue = py.import("ciphergram._ints")?;
        let bytes: Vec<u8> = glue.call_method1("summands", given)?.extract()?;
        Ok(Plaintexts::try_from_words(modulus, to_words(&bytes).into())?)
    }

    fn with(&self, ciphertexts: Ciphertexts) -> Self {
        Self { ciphertexts, public: self.public.clone() }
    }

    /// Returns what computes under this key, kept from one call to the next.
    fn evaluator(&self) -> Result<Arc<Evaluator>> {
        /// The last one made, of the key of this id, in a process.
        static LAST: Mutex<Option<(u32, String, Arc<Evaluator>)>> = Mutex::new(None);
        let (process, id) = (std::process::id(), self.public.key.id().to_string());
        let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((of, key, evaluator)) = &*last
            && (*of, key) == (process, &id)
        {
            return Ok(evaluator.clone());
        }
        let evaluator = Arc::new(Evaluator::new(self.modulus(), engine("cpu")?));
        *last = Some((process, id, evaluator.clone()));
        Ok(evaluator)
    }
}
