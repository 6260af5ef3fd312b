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

/// Returns 32 bytes as four little-endian words: the form of seeds in programs.
#[must_use]
pub fn seed_words(seed: &[u8; 32]) -> [u64; 4] {
    let mut words = [0; 4];
    for (word, bytes) in words.iter_mut().zip(seed.as_chunks::<8>().0) {
        *word = u64::from_le_bytes(*bytes);
    }
    words
}
