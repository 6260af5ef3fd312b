//! Batches of RNS polynomials, and of their wire form.

use std::{marker::PhantomData, sync::Arc};

use zeroize::Zeroize;

use crate::{
    beats,
    exponents::sealed,
    program::{Coeff, Ntt},
    ring::Ring,
};

/// The two forms of a polynomial: [`Coeff`] and [`Ntt`].
pub trait Domain: sealed::Marker + 'static {
    /// Whether it is that of values, [`Ntt`].
    const NTT: bool;
}
impl Domain for Coeff {
    const NTT: bool = false;
}
impl Domain for Ntt {
    const NTT: bool = true;
}

impl sealed::Marker for Coeff {}
impl sealed::Marker for Ntt {}

/// `count` polynomials over a [`Ring`], laid out `[item][limb][coefficient]`, every coefficient
/// below its limb's prime. No `Debug`, zeroized on drop: a secret key is one of these.
pub struct Polys<D: Domain> {
    ring: Arc<Ring>,
    words: Vec<u64>,
    domain: PhantomData<D>,
}

impl<D: Domain> Polys<D> {
    /// Makes `count` zero polynomials: room for an output.
    #[must_use]
    pub fn zeros(ring: Arc<Ring>, count: usize) -> Self {
        let words = vec![0; count * ring.len_words()];
        Self { ring, words, domain: PhantomData }
    }

    /// Returns the ring that all items share.
    #[must_use]
    pub fn ring(&self) -> &Arc<Ring> {
        &self.ring
    }

    /// Returns the number of polynomials.
    #[must_use]
    pub fn count(&self) -> usize {
        self.words.len() / self.ring.len_words()
    }

    /// Returns all words, `[item][limb][coefficient]`.
    #[must_use]
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    /// Takes all words.
    #[must_use]
    pub fn into_words(mut self) -> Vec<u64> {
        std::mem::take(&mut self.words)
    }

    /// Returns all words, to be overwritten with reduced values only.
    pub fn words_mut(&mut self) -> &mut [u64] {
        &mut self.words
    }
}

impl<D: Domain> Drop for Polys<D> {
    fn drop(&mut self) {
        self.words.zeroize();
    }
}

/// A batch of beats over a [`Ring`]: public ciphertext words in wire form.
#[derive(Clone, Debug)]
pub struct Beats {
    ring: Arc<Ring>,
    words: Vec<u64>,
}

impl Beats {
    /// Makes `count` zero beats: the empty sum, or room for an output.
    #[must_use]
    pub fn zeros(ring: Arc<Ring>, count: usize) -> Self {
        Self { ring, words: vec![0; count * beats::WORDS] }
    }

    /// Takes `words` that start at limb 0 of a coefficient.
    ///
    /// # Errors
    /// The index of the first lane that is not below its prime.
    pub fn try_from_words(ring: Arc<Ring>, words: Vec<u64>) -> Result<Self, usize> {
        match beats::first_bad_lane(&words, ring.primes()) {
            Some(lane) => Err(lane),
            None => Ok(Self { ring, words }),
        }
    }

    /// Returns the ring whose residues these are.
    #[must_use]
    pub fn ring(&self) -> &Arc<Ring> {
        &self.ring
    }

    /// Returns the number of beats.
    #[must_use]
    pub fn count(&self) -> usize {
        self.words.len() / beats::WORDS
    }

    /// Returns all words, eight to a beat.
    #[must_use]
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    /// Returns all words, to be overwritten with reduced lanes only.
    pub fn words_mut(&mut self) -> &mut [u64] {
        &mut self.words
    }
}
