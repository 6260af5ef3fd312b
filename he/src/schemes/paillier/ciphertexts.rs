//! Batches of ciphertexts, and the power of the Montgomery radix that they carry.

use std::borrow::Cow;

use ciphergram_accel::{Engine, RunError};

use super::{PaillierModulus, words::gather};
use crate::{Error, error::OperandFault};

/// Ciphertexts under one modulus, item-major in memory: encrypted integers, or fixed-point numbers of
/// one [scale](Ciphertexts::scale).
///
/// # Pairs, and the power of the radix
/// Ordinary ciphertexts are numbers below n². Encryptions under short masks and sums are kept in
/// another form: as their digits in base n, a pair, for a product of two pairs is `a · b · R⁻¹ mod n²`
/// with `R = 2^(64 · words of n)` and costs about a third of `a · b mod n²`. So what a batch holds
/// is not its ciphertexts `c` themselves but `c · R^power`, with one power for the whole batch: the
/// product of batches of powers i and j has the power `i + j − 1`, and nothing of it needs
/// correcting. The power starts at 0 and never exceeds it.
///
/// One more product, by `R^(1 − power)`, and the number that the digits make, give ordinary
/// ciphertexts. The words can be had in no other form: [`Ciphertexts::into_words`] and decryption
/// see to it.
#[derive(Clone)]
pub struct Ciphertexts {
    modulus: PaillierModulus,
    words: Vec<u64>,
    form: Form,
    scale: u32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Ordinary,
    Pairs { power: i32 },
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
            None => Ok(Self::ordinary(modulus, words)),
        }
    }

    /// Takes whole ciphertexts below n².
    pub(super) fn ordinary(modulus: &PaillierModulus, words: Vec<u64>) -> Self {
        Self { modulus: modulus.clone(), words, form: Form::Ordinary, scale: 0 }
    }

    /// Takes whole reduced pairs of this power.
    pub(super) fn pairs(modulus: &PaillierModulus, words: Vec<u64>, power: i32) -> Self {
        Self { modulus: modulus.clone(), words, form: Form::Pairs { power }, scale: 0 }
    }

    /// Returns the same integers as fixed-point numbers `k / 2^scale`.
    #[must_use]
    pub fn at_scale(self, scale: u32) -> Self {
        Self { scale, ..self }
    }

    /// Returns the binary digits after the point: 0 of integers.
    #[must_use]
    pub fn scale(&self) -> u32 {
        self.scale
    }

    /// Returns copies of the items of these indices, in this order, any of them as often as named.
    ///
    /// # Errors
    /// An index that names none.
    pub fn take(&self, indices: &[usize]) -> Result<Self, Error> {
        check_indices("take", "indices", indices, self.count())?;
        let words = gather(&self.words, self.modulus.ciphertext_words(), indices);
        Ok(Self { modulus: self.modulus.clone(), words, ..*self })
    }

    /// Returns all items of some batches, one batch after the other.
    ///
    /// # Errors
    /// A batch of another modulus or scale than the first; the engine's.
    pub fn concatenate(engine: &dyn Engine, first: &Self, rest: &[&Self]) -> Result<Self, Error> {
        let fault = |fault| Error::Operand { operation: "concatenate", operand: "rest", fault };
        for other in rest {
            if !first.modulus.is_same(&other.modulus) {
                return Err(fault(OperandFault::Modulus));
            }
            let (found, expected) = (other.scale, first.scale);
            if found != expected {
                return Err(fault(OperandFault::Scale { found, expected }));
            }
        }
        if rest.iter().all(|other| other.form == first.form) {
            let words = rest.iter().fold(first.words.clone(), |mut words, other| {
                words.extend_from_slice(&other.words);
                words
            });
            return Ok(Self { modulus: first.modulus.clone(), words, ..*first });
        }
        let mut words = first.to_ordinary(engine)?.into_owned();
        for other in rest {
            words.extend_from_slice(&other.to_ordinary(engine)?);
        }
        Ok(Self::ordinary(&first.modulus, words).at_scale(first.scale))
    }

    /// Returns the modulus that all items share.
    #[must_use]
    pub fn modulus(&self) -> &PaillierModulus {
        &self.modulus
    }

    /// Returns the number of ciphertexts.
    #[must_use]
    pub fn count(&self) -> usize {
        self.words.len() / self.modulus.ciphertext_words()
    }

    /// Returns the power of R that every item carries: 0 for ordinary ones, else negative.
    #[must_use]
    pub fn power(&self) -> i32 {
        match self.form {
            Form::Ordinary => 0,
            Form::Pairs { power } => power,
        }
    }

    /// Makes the batch ordinary, in place: one product an item, none if it is already.
    ///
    /// # Errors
    /// The engine's.
    pub fn correct(&mut self, engine: &dyn Engine) -> Result<(), Error> {
        if let Cow::Owned(words) = self.to_ordinary(engine)? {
            (self.words, self.form) = (words, Form::Ordinary);
        }
        Ok(())
    }

    /// Returns the words of the ordinary ciphertexts, item-major: what may be stored or sent.
    ///
    /// # Errors
    /// The engine's.
    pub fn into_words(mut self, engine: &dyn Engine) -> Result<Vec<u64>, Error> {
        self.correct(engine)?;
        Ok(self.words)
    }

    /// Returns the words of the ordinary ciphertexts: these, or a copy that was made so.
    pub(super) fn to_ordinary(&self, engine: &dyn Engine) -> Result<Cow<'_, [u64]>, RunError> {
        match self.form {
            Form::Ordinary => Ok(Cow::Borrowed(&self.words)),
            Form::Pairs { power } => {
                self.modulus.pairs().join(engine, &self.words, power).map(Cow::Owned)
            }
        }
    }

    /// Returns the words of pairs that carry [`Ciphertexts::power`]: these, or a copy that was made
    /// so.
    pub(super) fn to_pairs(&self, engine: &dyn Engine) -> Result<Cow<'_, [u64]>, RunError> {
        match self.form {
            Form::Ordinary => self.modulus.pairs().split(engine, &self.words).map(Cow::Owned),
            Form::Pairs { .. } => Ok(Cow::Borrowed(&self.words)),
        }
    }

    /// Makes the batch ordinary in place, and gives its words.
    pub(super) fn ordinary_mut(&mut self, engine: &dyn Engine) -> Result<&mut [u64], Error> {
        self.correct(engine)?;
        Ok(&mut self.words)
    }

    /// Turns the batch to pairs in place, and gives their words and their power.
    pub(super) fn pairs_mut(
        &mut self,
        engine: &dyn Engine,
    ) -> Result<(&mut [u64], &mut i32), RunError> {
        if self.form == Form::Ordinary {
            self.words = self.modulus.pairs().split(engine, &self.words)?;
            self.form = Form::Pairs { power: 0 };
        }
        match &mut self.form {
            Form::Pairs { power } => Ok((&mut self.words, power)),
            Form::Ordinary => unreachable!("just made pairs"),
        }
    }
}

/// Refuses an index that is not below `count`.
pub(super) fn check_indices(
    operation: &'static str,
    operand: &'static str,
    indices: &[usize],
    count: usize,
) -> Result<(), Error> {
    let Some(&index) = indices.iter().find(|&&index| index >= count) else { return Ok(()) };
    Err(Error::Operand { operation, operand, fault: OperandFault::NoItem { index, count } })
}

/// Returns the power of the radix that a Montgomery product of batches of these powers has; none
/// where it would not fit, after billions of products, and the batches must be corrected first.
pub(super) fn product_power(a: i32, b: i32) -> Option<i32> {
    a.checked_add(b)?.checked_sub(1)
}
