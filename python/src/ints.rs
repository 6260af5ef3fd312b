//! Ciphertexts under Paillier, in one row: `ciphergram/_ints.py` makes arrays of them.

use std::sync::{Arc, Mutex, PoisonError};

use ciphergram_accel::Secrecy;
use ciphergram_he::{
    self as he, Error as SchemeError,
    paillier::{Ciphertexts, Encryptor, Evaluator, Matrix, PaillierModulus, Plaintexts, Scalars},
};
use pyo3::{prelude::*, types::PyBytes};
use zeroize::Zeroizing;

use crate::{
    engines::engine,
    errors::{Error, Result, whole},
    keys::{PyPublicKey, PySecretKey},
    pool::run,
};

/// Ciphertexts of numbers of one scale, and their key.
#[pyclass(frozen, name = "Ciphertexts", module = "ciphergram._native")]
pub(crate) struct PyCiphertexts {
    ciphertexts: Ciphertexts,
    /// The key that they are under.
    #[pyo3(get)]
    public: PyPublicKey,
}

/// Numbers in clear: their bytes; the words of each integer, in two's complement, or 0 of floats; the scale that floats
/// are rounded at.
type PlainNumbers<'py> = (Bound<'py, PyBytes>, usize, u32);

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

fn to_words(bytes: &[u8]) -> Zeroizing<Vec<u64>> {
    let words = bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word));
    words.collect::<Vec<_>>().into()
}

fn to_floats(bytes: &[u8]) -> Zeroizing<Vec<f64>> {
    let words = bytes.as_chunks::<8>().0.iter().map(|word| f64::from_le_bytes(*word));
    words.collect::<Vec<_>>().into()
}

fn to_bytes<'py>(py: Python<'py>, words: impl Iterator<Item = u64>) -> Bound<'py, PyBytes> {
    PyBytes::new(py, &Zeroizing::new(words.flat_map(u64::to_le_bytes).collect::<Vec<_>>()))
}

/// Returns places of ciphertexts, or segments.
fn to_indices(bytes: &[u8]) -> Vec<usize> {
    // What is negative is beyond all there are.
    to_words(bytes).iter().map(|&index| usize::try_from(index).unwrap_or(usize::MAX)).collect()
}

fn scalars<S: Secrecy>(
    (bytes, each, scale): &PlainNumbers<'_>,
    modulus: &PaillierModulus,
) -> Result<Scalars<S>> {
    Ok(match *each {
        0 => Scalars::from_f64(modulus, &to_floats(bytes.as_bytes()), *scale)?,
        each => Scalars::from_twos_complement(modulus, &to_words(bytes.as_bytes()), each)?,
    })
}

#[pymethods]
impl PyCiphertexts {
    /// Encrypts numbers.
    #[staticmethod]
    fn encrypt(py: Python<'_>, public: &PyPublicKey, given: PlainNumbers<'_>) -> Result<Self> {
        let (modulus, engine) = (modulus(public.key())?, engine("cpu")?);
        let plain = Plaintexts::try_from_scalars(modulus, &scalars(&given, modulus)?)?;
        let ciphertexts =
            run(py, || Ok(Encryptor::new(modulus, &*engine)?.encrypt(&*engine, &plain)?))?;
        Ok(Self { ciphertexts, public: public.clone() })
    }

    /// Decrypts numbers, as integers in two's complement or as floats; gives their bytes and those of one.
    fn open<'py>(
        &self,
        py: Python<'py>,
        key: &PySecretKey,
        floats: bool,
    ) -> Result<(Bound<'py, PyBytes>, usize)> {
        let (key, engine) = (&key.0, engine("cpu")?);
        let modulus = modulus(key.key.public())?;
        let secret = key.key.secret()?.paillier().ok_or(SchemeError::NoSumKey)?;
        self.check_under(key.id(), modulus)?;
        let scale = self.scale();
        if scale != 0 && !floats {
            let text = format!("these are numbers of scale {scale}: decrypt_floats opens them");
            return Err(Error::Own("DtypeError", text));
        }
        let plain = run(py, || Ok(secret.decrypt(&*engine, &self.ciphertexts)?))?;
        if floats {
            let values = plain.to_f64()?;
            return Ok((to_bytes(py, values.iter().map(|value| value.to_bits())), 8));
        }
        let words = plain.to_twos_complement()?;
        Ok((to_bytes(py, words.iter().copied()), 8 * modulus.n().len_words()))
    }

    /// Takes ciphertexts as integers of `each` words in two's complement.
    #[staticmethod]
    fn from_bytes(
        bytes: &Bound<'_, PyBytes>,
        each: usize,
        public: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = whole)] scale: u32,
    ) -> Result<Self> {
        let public = PyPublicKey::of(public)?;
        let modulus = modulus(public.key())?;
        let bad = |text| Error::Own("BadCiphertext", text);
        let (given, k) = (to_words(bytes.as_bytes()), modulus.ciphertext_words());
        let mut words = vec![];
        for (index, item) in given.chunks(each.max(1)).enumerate() {
            let (own, beyond) = item.split_at(each.min(k));
            // Negative integers and those of more words than n².
            if item.last().is_some_and(|top| top >> 63 == 1) || beyond.iter().any(|&word| word != 0)
            {
                return Err(bad(format!("item {index} is no ciphertext of this key")));
            }
            words.extend_from_slice(own);
            words.resize((index + 1) * k, 0);
        }
        let ciphertexts =
            Ciphertexts::try_from_words(modulus, words).map_err(|e| bad(e.to_string()))?;
        Ok(Self { ciphertexts: ciphertexts.at_scale(scale), public })
    }

    /// Returns the ciphertexts as bytes, and the bytes of one.
    fn to_bytes<'py>(&self, py: Python<'py>) -> Result<(Bound<'py, PyBytes>, usize)> {
        let engine = engine("cpu")?;
        let words = run(py, || Ok(self.ciphertexts.clone().into_words(&*engine)?))?;
        Ok((to_bytes(py, words.into_iter()), 8 * self.modulus().ciphertext_words()))
    }

    /// The name of the key.
    #[getter]
    fn key_id(&self) -> String {
        self.public.0.id()
    }

    /// The binary digits after the point.
    #[getter]
    fn scale(&self) -> u32 {
        self.ciphertexts.scale()
    }

    fn __len__(&self) -> usize {
        self.ciphertexts.count()
    }

    /// Returns those of these places, each a word.
    fn take(&self, places: &Bound<'_, PyBytes>) -> Result<Self> {
        Ok(self.with(self.ciphertexts.take(&to_indices(places.as_bytes()))?))
    }

    /// Returns these and then those of others.
    fn concatenate(&self, py: Python<'_>, others: Vec<PyRef<'_, Self>>) -> Result<Self> {
        for other in &others {
            other.check_under(self.key_id(), self.modulus())?;
        }
        let rest: Vec<_> = others.iter().map(|other| &other.ciphertexts).collect();
        let engine = engine("cpu")?;
        let all = run(py, || Ok(Ciphertexts::concatenate(&*engine, &self.ciphertexts, &rest)?))?;
        Ok(self.with(all))
    }

    /// Adds them pair by pair.
    fn add(&self, py: Python<'_>, other: &Self) -> Result<Self> {
        other.check_under(self.key_id(), self.modulus())?;
        self.compute(py, |evaluator, own| evaluator.add(own, &other.ciphertexts))
    }

    /// Adds numbers in clear pair by pair, or subtracts them.
    fn add_plain(&self, py: Python<'_>, given: PlainNumbers<'_>, negate: bool) -> Result<Self> {
        let scalars = scalars(&given, self.modulus())?;
        let scalars = if negate { scalars.negated() } else { scalars };
        let plain = Plaintexts::try_from_scalars(self.modulus(), &scalars)?;
        self.compute(py, |evaluator, own| evaluator.add_plain(own, &plain))
    }

    /// Multiplies them by public numbers pair by pair.
    fn mul(&self, py: Python<'_>, given: PlainNumbers<'_>) -> Result<Self> {
        let scalars = scalars(&given, self.modulus())?;
        self.compute(py, |evaluator, own| evaluator.mul_plain_public(own, &scalars))
    }

    /// Returns the product of a public matrix of `rows` rows and these.
    fn matvec(&self, py: Python<'_>, given: PlainNumbers<'_>, rows: usize) -> Result<Self> {
        let (columns, (bytes, each, scale)) = (self.__len__(), given);
        let bytes = bytes.as_bytes();
        let matrix = match each {
            0 => Matrix::public_from_f64(rows, columns, &to_floats(bytes), scale)?,
            1 => {
                let entries: Vec<_> = to_words(bytes).iter().map(|&word| word as i64).collect();
                Matrix::public(rows, columns, &entries)?
            }
            _ => return Err(Error::Own("Overflow", "an entry is beyond 64 bits".into())),
        };
        self.compute(py, |evaluator, own| evaluator.matvec(own, &matrix))
    }

    /// Returns the sum of those of each segment, one of which is named for each ciphertext.
    fn segment_sum(
        &self,
        py: Python<'_>,
        segments: &Bound<'_, PyBytes>,
        count: usize,
    ) -> Result<Self> {
        let segments = to_indices(segments.as_bytes());
        let items: Vec<_> = (0..self.__len__()).collect();
        self.compute(py, |evaluator, own| evaluator.segment_sum(own, (&items, &segments), count))
    }
}

impl PyCiphertexts {
    fn modulus(&self) -> &PaillierModulus {
        self.ciphertexts.modulus()
    }

    /// Refuses to go on under another key than theirs.
    fn check_under(&self, expected: String, modulus: &PaillierModulus) -> Result<()> {
        if self.modulus().n().words() == modulus.n().words() {
            return Ok(());
        }
        let found = self.key_id();
        Err(SchemeError::KeyMismatch { what: "it was made under key", found, expected }.into())
    }

    fn with(&self, ciphertexts: Ciphertexts) -> Self {
        Self { ciphertexts, public: self.public.clone() }
    }

    /// Computes with them, on threads of our own.
    fn compute(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&Evaluator, &Ciphertexts) -> Result<Ciphertexts, SchemeError> + Send,
    ) -> Result<Self> {
        let evaluator = self.evaluator()?;
        Ok(self.with(run(py, || Ok(work(&evaluator, &self.ciphertexts)?))?))
    }

    /// Returns what computes under this key, kept from one call to the next.
    fn evaluator(&self) -> Result<Arc<Evaluator>> {
        /// The last one made, of the key of this id, in a process.
        static LAST: Mutex<Option<(u32, String, Arc<Evaluator>)>> = Mutex::new(None);
        let (process, id) = (std::process::id(), self.key_id());
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
