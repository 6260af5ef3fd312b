//! A random generator with the CPU engine's kernel of ChaCha20.

use std::convert::Infallible;

use rand_core::{TryCryptoRng, TryRng};
use zeroize::Zeroizing;

use crate::cpu::{Keystream, STREAM_WORDS, fastest_keystream};

const BYTES: usize = 8 * STREAM_WORDS;

/// Stream 0 of ChaCha20 under a key, the same as `rand_chacha`'s, and several times as fast where
/// the processor has wide vectors. Zeroized on drop.
pub struct StreamRng {
    keystream: Keystream,
    key: Zeroizing<[u64; 4]>,
    /// Words of the stream that were made so far.
    made: u64,
    bytes: Zeroizing<Box<[u8]>>,
    /// Bytes of those in memory that are used up.
    used: usize,
}

impl StreamRng {
    /// Begins the stream that `seed` names.
    #[must_use]
    pub fn from_seed(seed: &[u8; 32]) -> Self {
        Self::at(seed, 0)
    }

    /// Goes on in the stream that `seed` names after as many words of 32 bits.
    #[must_use]
    pub fn at(seed: &[u8; 32], words: u64) -> Self {
        let mut key = Zeroizing::new([0; 4]);
        for (word, bytes) in key.iter_mut().zip(seed.as_chunks().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        let bytes = Zeroizing::new(vec![0; BYTES].into());
        let each = BYTES as u64 / 4;
        let made = words / each * STREAM_WORDS as u64;
        let mut rng = Self { keystream: fastest_keystream(), key, made, bytes, used: BYTES };
        if !words.is_multiple_of(each) {
            rng.refill();
            rng.used = 4 * (words % each) as usize;
        }
        rng
    }

    fn refill(&mut self) {
        let mut words = Zeroizing::new([0; STREAM_WORDS]);
        (self.keystream)(&mut words, &*self.key, 0, self.made);
        for (bytes, word) in self.bytes.as_chunks_mut().0.iter_mut().zip(words.iter()) {
            *bytes = word.to_le_bytes();
        }
        self.made += STREAM_WORDS as u64;
        self.used = 0;
    }
}

impl TryRng for StreamRng {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        let mut bytes = [0; 4];
        self.try_fill_bytes(&mut bytes)?;
        Ok(u32::from_le_bytes(bytes))
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        let mut bytes = [0; 8];
        self.try_fill_bytes(&mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    fn try_fill_bytes(&mut self, mut out: &mut [u8]) -> Result<(), Infallible> {
        while !out.is_empty() {
            if self.used == BYTES {
                self.refill();
            }
            let count = out.len().min(BYTES - self.used);
            let (now, rest) = out.split_at_mut(count);
            now.copy_from_slice(&self.bytes[self.used..][..count]);
            // A word of 32 bits is used up as a whole.
            self.used += count.next_multiple_of(4);
            out = rest;
        }
        Ok(())
    }
}

impl TryCryptoRng for StreamRng {}

/// Returns a centred binomial of 2 × 21 bits, as the step `noise` draws it of a word: the ones among bits 0–20 less
/// those among bits 21–41. Constant time.
#[must_use]
pub fn centred_binomial(word: u64) -> i8 {
    const HALF: u64 = (1 << 21) - 1;
    (word & HALF).count_ones() as i8 - (word >> 21 & HALF).count_ones() as i8
}

#[cfg(test)]
mod tests {
    use rand_chacha::ChaCha20Rng;
    use rand_core::{Rng, SeedableRng};

    use super::*;

    #[test]
    fn it_is_the_stream_of_rand_chacha() {
        let seed = std::array::from_fn(|i| 7 * i as u8);
        let (mut ours, mut theirs) = (StreamRng::from_seed(&seed), ChaCha20Rng::from_seed(seed));
        for length in [0, 1, 4, 7, 8, 1000, 24, 1024, 3, 5000, 4096, 1021] {
            let (mut a, mut b) = (vec![0; length], vec![0; length]);
            ours.fill_bytes(&mut a);
            theirs.fill_bytes(&mut b);
            assert_eq!(a, b, "{length} bytes");
            assert_eq!(ours.next_u32(), theirs.next_u32());
            assert_eq!(ours.next_u64(), theirs.next_u64());
        }
    }

    #[test]
    fn it_goes_on_anywhere() {
        let seed = [9; 32];
        let mut all = vec![0; 4 * BYTES];
        StreamRng::from_seed(&seed).fill_bytes(&mut all);
        for words in [0, 1, 2, 7, BYTES / 4 - 1, BYTES / 4, BYTES / 4 + 1, 3 * BYTES / 4, 5000] {
            let rest = all.get(4 * words..).unwrap_or_default();
            let mut found = vec![0; rest.len()];
            StreamRng::at(&seed, words as u64).fill_bytes(&mut found);
            assert_eq!(found, rest, "after {words} words");
        }
    }
}
