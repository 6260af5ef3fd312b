//! The streams that polynomials are drawn from, which a key, a number and a place in the stream name.
//!
//! Noise and ternary secrets are hidden by theirs: ChaCha20. A uniform polynomial is public and so is its seed. Its
//! stream hides nothing and need only have no structure, which the polynomial would have too: ChaCha8, which takes half
//! of the time. What is known of the cipher tells seven rounds from random, with a secret key and at the cost of
//! more than 2^200 steps.
//!
//! # Source
//! D. J. Bernstein, "ChaCha, a variant of Salsa20", 2008; with a counter and a stream number of 64 bits each, as
//! `rand_chacha` has them. J.-P. Aumasson, "Too Much Crypto", 2019, for the margin of eight rounds.

use rand_chacha::{ChaCha8Rng, ChaCha20Rng};
use rand_core::SeedableRng as _;
use zeroize::Zeroizing;

/// Rounds of the streams of secrets.
#[cfg(target_arch = "x86_64")]
pub(crate) const SECRET_ROUNDS: usize = 20;
/// Rounds of the streams of uniform polynomials.
#[cfg(target_arch = "x86_64")]
pub(crate) const PUBLIC_ROUNDS: usize = 8;

macro_rules! stream {
    ($rng:ident, $key:expr, $number:expr, $word:expr) => {{
        let mut bytes = Zeroizing::new([0; 32]);
        for (bytes, word) in bytes.as_chunks_mut().0.iter_mut().zip($key) {
            *bytes = word.to_le_bytes();
        }
        let mut rng = $rng::from_seed(*bytes);
        rng.set_stream($number);
        rng.set_word_pos(2 * u128::from($word));
        rng
    }};
}

/// Returns the stream of secrets with this number under a key, from its word `word` of 64 bits on.
pub(crate) fn secret(key: &[u64], number: u64, word: u64) -> ChaCha20Rng {
    stream!(ChaCha20Rng, key, number, word)
}

/// Returns the public stream with this number that a seed names, from its word `word` of 64 bits on.
pub(crate) fn public(seed: &[u64], number: u64, word: u64) -> ChaCha8Rng {
    stream!(ChaCha8Rng, seed, number, word)
}
