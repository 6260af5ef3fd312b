//! Integers that ciphertexts are multiplied by: one for each, or a matrix of them.

use std::marker::PhantomData;

use ciphergram_accel::{Operand, Public, Secrecy, Secret};
use zeroize::Zeroizing;

use super::{PaillierModulus, plaintexts::sign, words::first_not_below};
use crate::{Error, error::OperandFault};

/// Returns `words` as an input of secrecy `S`.
pub(super) fn operand<S: Secrecy>(words: &[u64]) -> Operand<'_> {
    if S::SECRET { Operand::SecretIn(words) } else { Operand::In(words) }
}

/// Signed integers, one for each ciphertext of a batch. Zeroized on drop, without `Debug`.
///
/// [`Secret`] ones influence neither time nor memory access, signs included; [`Public`] ones cost
/// only what their own bits ask for.
pub struct Scalars<S: Secrecy> {
    bits: u32,
    magnitudes: Zeroizing<Vec<u64>>,
    /// A word of 1 for each negative one and 0 for the rest, if there are signs.
    negative: Option<Zeroizing<Vec<u64>>>,
    secrecy: PhantomData<S>,
}

impl<S: Secrecy> Scalars<S> {
    fn new(bits: u32, magnitudes: Vec<u64>, negative: Option<Vec<u64>>) -> Self {
        let (magnitudes, negative) = (Zeroizing::new(magnitudes), negative.map(Zeroizing::new));
        Self { bits, magnitudes, negative, secrecy: PhantomData }
    }

    /// Scalars of one word, none negative.
    #[must_use]
    pub fn from_u64(values: &[u64]) -> Self {
        Self::new(64, values.to_vec(), None)
    }

    /// Signed scalars of one word. Constant time.
    #[must_use]
    pub fn from_i64(values: &[i64]) -> Self {
        let magnitudes = values.iter().map(|v| v.unsigned_abs()).collect();
        Self::new(64, magnitudes, Some(values.iter().map(|&v| sign(v)).collect()))
    }

    /// Scalars of any size below n: magnitudes in as many words each as n has, and whether each is
    /// negative if any may be. Constant time unless one is refused.
    ///
    /// # Errors
    /// An incomplete magnitude; one that is not below n, by its index; another number of signs.
    pub fn try_from_words(
        modulus: &PaillierModulus,
        magnitudes: Zeroizing<Vec<u64>>,
        negative: Option<&[bool]>,
    ) -> Result<Self, Error> {
        let fault = |operand, fault| Error::Operand { operation: "scalars", operand, fault };
        let (found, each) = (magnitudes.len(), modulus.n().len_words());
        if !found.is_multiple_of(each) {
            return Err(fault("magnitudes", OperandFault::Words { found, each }));
        }
        if let Some(index) = first_not_below(&magnitudes, modulus.n().words()) {
            return Err(fault("magnitudes", OperandFault::NotBelow { index, bound: "n" }));
        }
        let (signs, expected) = (negative.map(<[bool]>::len), found / each);
        if let Some(found) = signs.filter(|&signs| signs != expected) {
            return Err(fault("signs", OperandFault::Count { found, expected }));
        }
        let negative = negative.map(|signs| signs.iter().map(|&s| u64::from(s)).collect());
        let negative = negative.map(Zeroizing::new);
        Ok(Self { bits: modulus.n().bits(), magnitudes, negative, secrecy: PhantomData })
    }

    /// Returns the number of scalars.
    #[must_use]
    pub fn count(&self) -> usize {
        self.magnitudes.len() / self.bits.div_ceil(64) as usize
    }

    /// Returns the bound on every magnitude, in bits: 64, or those of n.
    #[must_use]
    pub fn bits(&self) -> u32 {
        self.bits
    }

    /// Returns the magnitudes, item-major.
    pub(super) fn magnitudes(&self) -> &[u64] {
        &self.magnitudes
    }

    /// Returns the signs, if there are any.
    pub(super) fn negative(&self) -> Option<&[u64]> {
        self.negative.as_ref().map(|signs| signs.as_slice())
    }
}

/// A matrix of integers, row-major. Zeroized on drop, without `Debug`.
///
/// Exponents cannot be negative. A matrix with signs is held as `u = m + 2^(bits − 1)`, and what the
/// products have too much, `2^(bits − 1) · Σ c`, is the same for every row.
pub struct Matrix<S: Secrecy> {
    rows: usize,
    columns: usize,
    bits: u32,
    signed: bool,
    exponents: Zeroizing<Vec<u64>>,
    secrecy: PhantomData<S>,
}

impl Matrix<Public> {
    /// Makes a public matrix; the bound on its entries is the tightest one.
    ///
    /// # Errors
    /// Not `rows · columns` entries.
    pub fn public(rows: usize, columns: usize, entries: &[i64]) -> Result<Self, Error> {
        let signed = entries.iter().any(|&e| e < 0);
        // In two's complement: the bits past those that repeat the sign, and the sign.
        let bits = |&e: &i64| 64 - (e ^ (e >> 63)).leading_zeros() + u32::from(signed);
        let bits = entries.iter().map(bits).max().unwrap_or(0).max(1);
        Self::new([rows, columns], bits, signed, entries)
    }
}

impl Matrix<Secret> {
    /// Makes a secret matrix of entries from `−2^(bits − 1)` up to `2^(bits − 1) − 1`. `bits` is
    /// public, from 1 to 64; the fewer, the faster. Constant time unless an entry is refused.
    ///
    /// # Errors
    /// Not `rows · columns` entries; an entry beyond `bits`, by its flat index.
    pub fn secret(rows: usize, columns: usize, entries: &[i64], bits: u32) -> Result<Self, Error> {
        Self::new([rows, columns], bits.clamp(1, 64), true, entries)
    }
}

impl<S: Secrecy> Matrix<S> {
    fn new(
        [rows, columns]: [usize; 2],
        bits: u32,
        signed: bool,
        entries: &[i64],
    ) -> Result<Self, Error> {
        let fault = |fault| Error::Operand { operation: "matrix", operand: "entries", fault };
        let (found, expected) = (entries.len(), rows.saturating_mul(columns));
        if found != expected {
            return Err(fault(OperandFault::Count { found, expected }));
        }
        let offset = u64::from(signed) << (bits - 1);
        let raise = |&e: &i64| (e as u64).wrapping_add(offset);
        let exponents = Zeroizing::new(entries.iter().map(raise).collect::<Vec<_>>());
        if let Some(index) = exponents.iter().position(|&u| u > u64::MAX >> (64 - bits)) {
            return Err(fault(OperandFault::TooLarge { index, bits }));
        }
        Ok(Self { rows, columns, bits, signed, exponents, secrecy: PhantomData })
    }

    /// Returns the number of rows: ciphertexts of the result.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Returns the number of columns: ciphertexts of the vector.
    #[must_use]
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Returns the bound on every entry, in bits; with the sign if there are signs.
    #[must_use]
    pub fn bits(&self) -> u32 {
        self.bits
    }

    /// Returns whether exponents are raised by `2^(bits − 1)`.
    pub(super) fn is_signed(&self) -> bool {
        self.signed
    }

    /// Returns the exponents, row-major.
    pub(super) fn exponents(&self) -> &[u64] {
        &self.exponents
    }
}
