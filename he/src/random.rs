//! Randomness from the operating system.

use ciphergram_accel::random::StreamRng;
use rand_core::Rng;
use zeroize::Zeroizing;

use crate::Error;

/// Returns `N` fresh bytes.
///
/// # Errors
/// [`Error::Randomness`] if the operating system has none.
pub fn bytes<const N: usize>() -> Result<Zeroizing<[u8; N]>, Error> {
    let mut out = Zeroizing::new([0; N]);
    getrandom::fill(out.as_mut()).map_err(|_| Error::Randomness)?;
    Ok(out)
}

/// Returns a cryptographic generator under a fresh key.
///
/// # Errors
/// [`Error::Randomness`] if the operating system has none.
pub fn generator() -> Result<StreamRng, Error> {
    Ok(StreamRng::from_seed(&*bytes::<32>()?))
}

/// Returns the first `count` words of the ChaCha20 stream under `key`.
pub(crate) fn keystream(key: &[u8; 32], count: usize) -> Zeroizing<Vec<u64>> {
    let mut words = Zeroizing::new(vec![0u64; count]);
    StreamRng::from_seed(key).fill_bytes(bytemuck::cast_slice_mut(&mut words));
    words.iter_mut().for_each(|word| *word = u64::from_le(*word));
    words
}

/// Returns the difference of the numbers of ones in bits 0–20 and 21–41 of a word: what programs draw noise as.
/// Constant time.
pub(crate) fn centred_binomial(word: u64) -> i8 {
    const HALF: u64 = (1 << 21) - 1;
    (word & HALF).count_ones() as i8 - (word >> 21 & HALF).count_ones() as i8
}

/// Returns 32 bytes as four little-endian words: the form of seeds in programs.
#[must_use]
pub fn seed_words(seed: &[u8; 32]) -> [u64; 4] {
    let mut words = [0; 4];
    for (word, bytes) in words.iter_mut().zip(seed.as_chunks::<8>().0) {
        *word = u64::from_le_bytes(*bytes);
    }
    words
}
