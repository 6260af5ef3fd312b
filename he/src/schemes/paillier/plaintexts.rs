//! Batches of plaintexts.

use zeroize::Zeroizing;

use super::{
    PaillierModulus,
    words::{first_not_below, is_below, negate_if},
};
use crate::{Error, error::OperandFault};

/// Numbers below n, each in as many words as n, item-major. Zeroized on drop, without `Debug`.
///
/// Sums and products of plaintexts are taken mod n. A negative number m stands as `n − |m|`, so that
/// signed results come out right as long as they lie between `−n/2` and `n/2`.
pub struct Plaintexts {
    modulus: PaillierModulus,
    words: Zeroizing<Vec<u64>>,
}

fn fault(fault: OperandFault) -> Error {
    Error::Operand { operation: "plaintexts", operand: "words", fault }
}

impl Plaintexts {
    /// Plaintexts of one word.
    #[must_use]
    pub fn from_u64(modulus: &PaillierModulus, values: &[u64]) -> Self {
        let k = modulus.n().len_words();
        let mut words = Zeroizing::new(vec![0; values.len() * k]);
        words.chunks_mut(k).zip(values).for_each(|(item, &value)| item[0] = value);
        Self { modulus: modulus.clone(), words }
    }

    /// Signed plaintexts of one word. Constant time.
    #[must_use]
    pub fn from_i64(modulus: &PaillierModulus, values: &[i64]) -> Self {
        let k = modulus.n().len_words();
        let mut words = Zeroizing::new(vec![0; values.len() * k]);
        for (item, &value) in words.chunks_mut(k).zip(values) {
            item[0] = value.unsigned_abs();
            negate_if(sign(value), item, modulus.n().words());
        }
        Self { modulus: modulus.clone(), words }
    }

    /// Takes `words`, as many for each plaintext as n has. Constant time unless one is refused.
    ///
    /// # Errors
    /// An incomplete item; one that is not below n, by its index.
    pub fn try_from_words(
        modulus: &PaillierModulus,
        words: Zeroizing<Vec<u64>>,
    ) -> Result<Self, Error> {
        let (found, each) = (words.len(), modulus.n().len_words());
        if !found.is_multiple_of(each) {
            return Err(fault(OperandFault::Words { found, each }));
        }
        if let Some(index) = first_not_below(&words, modulus.n().words()) {
            return Err(fault(OperandFault::NotBelow { index, bound: "n" }));
        }
        Ok(Self::from_reduced(modulus, words))
    }

    /// Takes whole items that are below n for certain.
    pub(crate) fn from_reduced(modulus: &PaillierModulus, words: Zeroizing<Vec<u64>>) -> Self {
        Self { modulus: modulus.clone(), words }
    }

    /// Returns the modulus that all items share.
    #[must_use]
    pub fn modulus(&self) -> &PaillierModulus {
        &self.modulus
    }

    /// Returns the number of plaintexts.
    #[must_use]
    pub fn count(&self) -> usize {
        self.words.len() / self.modulus.n().len_words()
    }

    /// Returns all words, item-major.
    #[must_use]
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    /// Returns the signed numbers that they stand for. Constant time unless one does not fit.
    ///
    /// # Errors
    /// One lies outside `−2^63 .. 2^63`, by its index.
    pub fn to_i64(&self) -> Result<Zeroizing<Vec<i64>>, Error> {
        let (n, k) = (self.modulus.n().words(), self.modulus.n().len_words());
        let mut out = Zeroizing::new(Vec::with_capacity(self.count()));
        let mut magnitude = Zeroizing::new(vec![0; k]);
        for (index, item) in self.words.chunks(k).enumerate() {
            magnitude.copy_from_slice(item);
            negate_if(1, &mut magnitude, n);
            // The nearer one to zero of m and m − n.
            let negative = u64::from(is_below(&magnitude, item));
            negate_if(1 - negative, &mut magnitude, n);
            let rest = magnitude[1..].iter().fold(0, |rest, &word| rest | word);
            if rest != 0 || magnitude[0] > (1 << 63) - 1 + negative {
                return Err(fault(OperandFault::TooLarge { index, bits: 64 }));
            }
            // Two's complement: all bits turned and one added where it is negative.
            let value = (magnitude[0] ^ negative.wrapping_neg()).wrapping_add(negative);
            out.push(value as i64);
        }
        Ok(out)
    }
}

/// Returns 1 for a negative number, else 0.
pub(super) fn sign(value: i64) -> u64 {
    value as u64 >> 63
}
