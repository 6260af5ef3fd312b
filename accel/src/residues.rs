//! Batches of residues modulo one odd modulus.

use std::sync::Arc;

use crate::modulus::Modulus;

/// `count` numbers below one [`Modulus`], item-major, each in `modulus.len_words()` words.
#[derive(Clone)]
pub struct Residues {
    modulus: Arc<Modulus>,
    words: Vec<u64>,
}

impl Residues {
    /// Makes `count` zeros: room for an output.
    #[must_use]
    pub fn zeros(modulus: Arc<Modulus>, count: usize) -> Self {
        let words = vec![0; count * modulus.len_words()];
        Self { modulus, words }
    }

    /// Takes public `words`.
    ///
    /// # Errors
    /// The index of the first item that is not below the modulus, or the number of whole items
    /// where the last one is incomplete.
    pub fn try_from_words(modulus: Arc<Modulus>, words: Vec<u64>) -> Result<Self, usize> {
        let each = modulus.len_words();
        match words.chunks(each).position(|item| !modulus.contains_vartime(item)) {
            Some(index) => Err(index),
            None => Ok(Self { modulus, words }),
        }
    }

    /// Returns the modulus that all items share.
    #[must_use]
    pub fn modulus(&self) -> &Arc<Modulus> {
        &self.modulus
    }

    /// Returns the number of residues.
    #[must_use]
    pub fn count(&self) -> usize {
        self.words.len() / self.modulus.len_words()
    }

    /// Returns all words, item-major.
    #[must_use]
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    /// Returns all words, to be overwritten with reduced values only.
    pub fn words_mut(&mut self) -> &mut [u64] {
        &mut self.words
    }
}
