//! Batches of plaintexts.

use ciphergram_accel::Secret;
use zeroize::Zeroizing;

use super::{
    PaillierModulus, Scalars, fixed_point,
    words::{first_not_below, is_below, negate_if, sign},
};
use crate::{Error, error::OperandFault};

/// Numbers below n, each in as many words as n, item-major: integers, or fixed-point numbers of one
/// [scale](super::Ciphertexts::scale). Zeroized on drop, without `Debug`.
///
/// Sums and products of plaintexts are taken mod n. A negative number m stands as `n − |m|`, so that
/// signed results come out right as long as they lie between `−n/2` and `n/2`.
pub struct Plaintexts {
    modulus: PaillierModulus,
    words: Zeroizing<Vec<u64>>,
    scale: u32,
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
        Self::from_reduced(modulus, words)
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
        Self::from_reduced(modulus, words)
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
            return Err(fault(OperandFault::TooLarge { index, why: "is not below n".into() }));
        }
        Ok(Self::from_reduced(modulus, words))
    }

    /// Takes whole items that are below n for certain.
    pub(crate) fn from_reduced(modulus: &PaillierModulus, words: Zeroizing<Vec<u64>>) -> Self {
        Self { modulus: modulus.clone(), words, scale: 0 }
    }

    /// Takes signed numbers, at their scale. Constant time unless one is refused.
    ///
    /// # Errors
    /// An integer that is a third of n or beyond, by its index. A sum or a product whose plaintext
    /// is out of these bounds is known to have overflowed.
    pub fn try_from_scalars(
        modulus: &PaillierModulus,
        scalars: &Scalars<Secret>,
    ) -> Result<Self, Error> {
        let (n, k, each) = (modulus.n().words(), modulus.n().len_words(), scalars.len_words());
        let mut words = Zeroizing::new(vec![0; scalars.count() * k]);
        let magnitudes = scalars.magnitudes().chunks(each);
        words.chunks_mut(k).zip(magnitudes).for_each(|(item, m)| item[..each].copy_from_slice(m));
        if let Some(index) = first_not_below(&words, &third(n)) {
            return Err(fault(OperandFault::beyond_third(index)));
        }
        if let Some(signs) = scalars.negative() {
            for (item, &negative) in words.chunks_mut(k).zip(signs) {
                // Zero has no sign: n itself would not be below n.
                let bits = item.iter().fold(0, |bits, &word| bits | word);
                negate_if(negative & (bits | bits.wrapping_neg()) >> 63, item, n);
            }
        }
        Ok(Self::from_reduced(modulus, words).at_scale(scalars.scale()))
    }

    /// Returns the same integers as fixed-point numbers `k / 2^scale`.
    pub(super) fn at_scale(self, scale: u32) -> Self {
        Self { scale, ..self }
    }

    /// Returns the binary digits after the point: 0 of integers.
    #[must_use]
    pub fn scale(&self) -> u32 {
        self.scale
    }

    /// Returns the magnitudes, and a word of 1 for each negative one and 0 for the rest, of numbers
    /// within a third of n. Constant time unless one is refused.
    fn signed(&self) -> Result<[Zeroizing<Vec<u64>>; 2], Error> {
        let (n, k) = (self.modulus.n().words(), self.modulus.n().len_words());
        let third = third(n);
        let mut magnitudes = self.words.clone();
        let mut signs = Zeroizing::new(Vec::with_capacity(self.count()));
        for (index, item) in magnitudes.chunks_mut(k).enumerate() {
            let negative = u64::from(!is_below(item, &third));
            negate_if(negative, item, n);
            if !is_below(item, &third) {
                return Err(fault(OperandFault::beyond_third(index)));
            }
            signs.push(negative);
        }
        Ok([magnitudes, signs])
    }

    /// Returns the signed integers in two's complement, in as many words each as n has. Constant
    /// time unless one is refused.
    ///
    /// # Errors
    /// One is a third of n or beyond, by its index: something overflowed.
    pub fn to_twos_complement(&self) -> Result<Zeroizing<Vec<u64>>, Error> {
        let k = self.modulus.n().len_words();
        let [mut words, signs] = self.signed()?;
        for (item, &negative) in words.chunks_mut(k).zip(signs.iter()) {
            let mut carry = u128::from(negative);
            for word in item {
                carry += u128::from(*word ^ negative.wrapping_neg());
                *word = carry as u64;
                carry >>= 64;
            }
        }
        Ok(words)
    }

    /// Returns the numbers `k / 2^scale`, each rounded to the nearest float. Time depends on their
    /// sizes.
    ///
    /// # Errors
    /// An integer is a third of n or beyond, or a number beyond all floats, by its index.
    pub fn to_f64(&self) -> Result<Zeroizing<Vec<f64>>, Error> {
        let [words, signs] = self.signed()?;
        let mut values = Zeroizing::new(Vec::with_capacity(self.count()));
        let items = words.chunks(self.modulus.n().len_words()).zip(signs.iter());
        for (index, (item, &negative)) in items.enumerate() {
            let value = fixed_point::to_f64(item, self.scale);
            if value.is_infinite() {
                return Err(fault(OperandFault::beyond_bits(index, 1024)));
            }
            values.push(if negative == 1 { -value } else { value });
        }
        Ok(values)
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
                return Err(fault(OperandFault::beyond_bits(index, 64)));
            }
            // Two's complement: all bits turned and one added where it is negative.
            let value = (magnitude[0] ^ negative.wrapping_neg()).wrapping_add(negative);
            out.push(value as i64);
        }
        Ok(out)
    }
}

/// Returns n / 3, rounded down. What lies between it and n less it is no one's plaintext: sums that
/// overflow are found there.
fn third(n: &[u64]) -> Vec<u64> {
    let (mut out, mut rest) = (n.to_vec(), 0);
    for word in out.iter_mut().rev() {
        let part = rest << 64 | u128::from(*word);
        *word = (part / 3) as u64;
        rest = part % 3;
    }
    out
}
