//! Batches of exponents, and whether they may be looked at.

use std::marker::PhantomData;

use zeroize::Zeroize;

/// Whether a value may influence the time that an engine takes. Sealed: [`Secret`] or [`Public`].
pub trait Secrecy: sealed::Marker + 'static {
    /// True for [`Secret`].
    const SECRET: bool;
}

/// A value that must not influence timing or memory access patterns.
pub enum Secret {}

/// A value that everyone may know; engines may take variable-time paths over it.
pub enum Public {}

impl Secrecy for Secret {
    const SECRET: bool = true;
}

impl Secrecy for Public {
    const SECRET: bool = false;
}

impl sealed::Marker for Secret {}
impl sealed::Marker for Public {}

/// Keeps the traits of markers to those of this crate.
pub(crate) mod sealed {
    pub trait Marker {}
}

/// Returns the bits of a public number, whose lowest word is the first. It takes time by them.
#[must_use]
pub fn bit_length(words: &[u64]) -> usize {
    let top = words.iter().rposition(|&word| word != 0);
    top.map_or(0, |top| 64 * (top + 1) - words[top].leading_zeros() as usize)
}

/// A batch of exponents of at most `bits` bits each, in `ceil(bits / 64)` words.
///
/// `Exponents<Secret>` has no `Debug`; the words of either are zeroized on drop.
pub struct Exponents<S: Secrecy> {
    bits: u32,
    words: Vec<u64>,
    secrecy: PhantomData<S>,
}

impl<S: Secrecy> Exponents<S> {
    /// Takes `words`, item-major.
    ///
    /// # Panics
    /// If `words` does not hold whole exponents.
    #[must_use]
    pub fn new(bits: u32, words: Vec<u64>) -> Self {
        let each = bits.div_ceil(64) as usize;
        assert!(each > 0 && words.len().is_multiple_of(each), "whole exponents of {bits} bits");
        Self { bits, words, secrecy: PhantomData }
    }

    /// Returns the bound on every exponent, in bits. Secret exponents always take the time of this
    /// many.
    #[must_use]
    pub fn bits(&self) -> u32 {
        self.bits
    }

    /// Returns the number of exponents.
    #[must_use]
    pub fn count(&self) -> usize {
        self.words.len() / self.bits.div_ceil(64) as usize
    }

    pub(crate) fn words(&self) -> &[u64] {
        &self.words
    }
}

impl<S: Secrecy> Drop for Exponents<S> {
    fn drop(&mut self) {
        self.words.zeroize();
    }
}
