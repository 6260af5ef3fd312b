//! Random streams that polynomials are drawn from, named by a key and a number.
//!
//! Noise and ternary secrets come from ChaCha20. Uniform polynomials and their seeds are public: their stream hides
//! nothing, must only look random, and is ChaCha8, in half of the time. The best attacks known reach seven rounds, in
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

/// Returns the stream of secrets with this number under a key, from its word `word` of 64 bits on.
pub(crate) fn secret(key: &[u64], number: u64, word: u64) -> ChaCha20Rng {
    let mut rng = ChaCha20Rng::from_seed(*bytes(key));
    rng.set_stream(number);
    rng.set_word_pos(2 * u128::from(word));
    rng
}

/// Returns the public stream with this number that a seed names, from its word `word` of 64 bits on.
pub(crate) fn public(seed: &[u64], number: u64, word: u64) -> ChaCha8Rng {
    let mut rng = ChaCha8Rng::from_seed(*bytes(seed));
    rng.set_stream(number);
    rng.set_word_pos(2 * u128::from(word));
    rng
}

fn bytes(key: &[u64]) -> Zeroizing<[u8; 32]> {
    let mut bytes = Zeroizing::new([0; 32]);
    for (bytes, word) in bytes.as_chunks_mut().0.iter_mut().zip(key) {
        *bytes = word.to_le_bytes();
    }
    bytes
}
