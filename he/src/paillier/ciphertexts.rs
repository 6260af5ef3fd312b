//! Batches of ciphertexts, and the power of the Montgomery radix that they carry.

use std::borrow::Cow;

use ciphergram_accel::{Engine, RunError};

use super::PaillierModulus;
use crate::{Error, error::OperandFault};

/// Ciphertexts under one modulus, item-major in memory.
///
/// # The power of the radix
/// A Montgomery product of `a` and `b` is `a · b · R⁻¹ mod n²` with `R = 2^(64 · words of n²)`, half
/// the work of `a · b mod n²`. So the words of a batch are not its ciphertexts `c` themselves but
/// `c · R^power mod n²`, with one power for the whole batch: the product of batches of powers i and j
/// has the power `i + j − 1`, and no word of it needs correcting. The power starts at 0 and is never
/// positive.
///
/// One more product, by `R^(1 − power)`, gives ordinary ciphertexts. The words can be had in no other
/// form: [`Ciphertexts::into_words`] and decryption correct them first.
#[derive(Clone)]
pub struct Ciphertexts {
    modulus: PaillierModulus,
    words: Vec<u64>,
    power: i32,
}

impl Ciphertexts {
    /// Takes ordinary ciphertexts of `modulus.ciphertext_words()` words each. That they share no
    /// factor with n is checked where it matters: where one must be inverted, and in sums of
    /// contributions.
    ///
    /// # Errors
    /// An incomplete item; one that is 0 or not below n², by its index.
    pub fn try_from_words(modulus: &PaillierModulus, words: Vec<u64>) -> Result<Self, Error> {
        let fault = |fault| Error::Operand { operation: "ciphertexts", operand: "words", fault };
        let (found, each) = (words.len(), modulus.ciphertext_words());
        if !found.is_multiple_of(each) {
            return Err(fault(OperandFault::Words { found, each }));
        }
        match modulus.range_fault(&words) {
            Some(bad) => Err(fault(OperandFault::Ciphertext(bad))),
            None => Ok(Self::from_parts(modulus, words, 0)),
        }
    }

    /// Takes whole reduced items of this power.
    pub(crate) fn from_parts(modulus: &PaillierModulus, words: Vec<u64>, power: i32) -> Self {
        Self { modulus: modulus.clone(), words, power }
    }

    /// The modulus that all items share.
    #[must_use]
    pub fn modulus(&self) -> &PaillierModulus {
        &self.modulus
    }

    /// The number of ciphertexts.
    #[must_use]
    pub fn count(&self) -> usize {
        self.words.len() / self.modulus.ciphertext_words()
    }

    /// The power of R that every item carries: 0 for ordinary ones, else negative.
    #[must_use]
    pub fn power(&self) -> i32 {
        self.power
    }

    /// Makes the batch ordinary, in place: one Montgomery product an item, none if it is already.
    ///
    /// # Errors
    /// The engine's.
    pub fn correct(&mut self, engine: &dyn Engine) -> Result<(), Error> {
        self.modulus.correct(engine, &mut self.words, self.power)?;
        self.power = 0;
        Ok(())
    }

    /// The words of the ordinary ciphertexts, item-major: what may be stored or sent.
    ///
    /// # Errors
    /// The engine's.
    pub fn into_words(mut self, engine: &dyn Engine) -> Result<Vec<u64>, Error> {
        self.correct(engine)?;
        Ok(self.words)
    }

    /// The words of the ordinary ciphertexts: these or, if they need correcting, a copy.
    pub(super) fn ordinary(&self, engine: &dyn Engine) -> Result<Cow<'_, [u64]>, RunError> {
        let mut words = Cow::Borrowed(&*self.words);
        if self.power != 0 {
            self.modulus.correct(engine, words.to_mut(), self.power)?;
        }
        Ok(words)
    }

    /// The words with their power of R in them, for whoever keeps account of it.
    pub(super) fn raw(&self) -> &[u64] {
        &self.words
    }

    /// The words with their power of R in them, and that power.
    pub(super) fn raw_mut(&mut self) -> (&mut [u64], &mut i32) {
        (&mut self.words, &mut self.power)
    }
}

/// The power of the radix that a Montgomery product of batches of these powers has; none where it
/// would not fit, after billions of products, and the batches must be corrected first.
pub(super) fn product_power(a: i32, b: i32) -> Option<i32> {
    a.checked_add(b)?.checked_sub(1)
}
