//! Keys that switch from one secret to another.

use ciphergram_accel::{Ring, program::Constant};

use super::parameters::Parameters;

/// A key that switches from one secret to another, digit by digit.
pub(super) struct SwitchingKey {
    /// What second halves expand from.
    pub(super) seed: [u8; 32],
    /// In NTT form, for each digit both halves over all primes.
    pub(super) words: Constant,
    /// Words of one half.
    pub(super) each: usize,
}

impl SwitchingKey {
    /// Makes a key of zeros, for programs that are shown.
    pub(super) fn zeros(set: &Parameters) -> Self {
        let each = set.whole().len_words();
        let digits = set.level(set.top_level()).digits.len();
        Self { seed: [0; 32], words: Constant::new(vec![0; 2 * digits * each]), each }
    }

    /// Returns a half of a digit over the first primes, those of `ring`.
    pub(super) fn words(&self, digit: usize, part: usize, ring: &Ring) -> Constant {
        self.words.part((2 * digit + part) * self.each, ring.len_words())
    }
}
