//! Learning with errors modulo 2^64: what bits are encrypted under, and levels opened.
//!
//! A ciphertext is a mask of [`DIMENSION`] words and a body: the inner product of the mask and the secret, plus a
//! message in the upper bits and a little noise. Ciphertexts add up word by word. A mask that a client makes grows from
//! a seed, so that only the body travels.

use ciphergram_accel::random::StreamRng;
use rand_core::Rng;
use zeroize::Zeroizing;

use crate::{Error, random};

/// A parameter set of bootstraps: the fields of `tfhe`'s sets that matter here, under its names.
///
/// Security is at least 128 bits, and a bootstrap of a number from 0 to 15 with the noise of 25 results of earlier ones
/// fails with a probability below 2^-128.
#[cfg_attr(not(feature = "tfhe"), expect(dead_code, reason = "clients bootstrap nothing"))]
pub(super) struct LweParameters {
    /// The code by which files name it.
    pub(super) code: u8,
    /// Words of a mask between bootstraps, and coefficients of the polynomials that bootstraps turn.
    pub(super) polynomial_size: usize,
    /// Words of a mask that a bootstrap takes.
    pub(super) lwe_dimension: usize,
    /// Noise of a ciphertext of the latter: uniform from −2^b to 2^b.
    pub(super) lwe_noise_log2: u32,
    /// Noise of a fresh ciphertext, likewise.
    pub(super) glwe_noise_log2: u32,
    /// Bits and count of the digits that bootstraps decompose words to.
    pub(super) pbs_base_log: usize,
    pub(super) pbs_level: usize,
    /// Bits and count of the digits that switching keys decomposes words to.
    pub(super) ks_base_log: usize,
    pub(super) ks_level: usize,
}

/// The one parameter set.
///
/// # Source
/// `V1_4_PARAM_MESSAGE_2_CARRY_2_KS_PBS_TUNIFORM_2M128` of `tfhe` 1.8.2, with its bound of 2^-129.581 on failure at
/// noise of norm 5 and the centred modulus switch; 128-bit security by the lattice estimator.
pub(super) const PARAMETERS: LweParameters = LweParameters {
    code: 1,
    polynomial_size: DIMENSION,
    lwe_dimension: 918,
    lwe_noise_log2: 45,
    glwe_noise_log2: 17,
    pbs_base_log: 23,
    pbs_level: 1,
    ks_base_log: 4,
    ks_level: 4,
};

/// Words of a mask.
pub(super) const DIMENSION: usize = 2048;

/// The bit that 1 is encoded at: numbers from 0 to 15 lie below the uppermost bit.
pub(super) const UNIT_LOG2: u32 = 59;
/// The bit that a level is encoded at: those from −64 to 63 have room.
pub(super) const LEVEL_LOG2: u32 = 57;
/// Bits of a word that an answer keeps.
const KEPT_BITS: u32 = 16;

/// A secret key: words that are 0 or 1.
pub(super) type LweSecret = Zeroizing<Vec<u64>>;

/// Makes the masks that a seed names, one after the other.
fn masks(seed: &[u8; 32], first: usize) -> StreamRng {
    StreamRng::at(seed, 2 * (DIMENSION * first) as u64)
}

fn next_mask(masks: &mut StreamRng, mask: &mut [u64]) {
    masks.fill_bytes(bytemuck::cast_slice_mut(mask));
    mask.iter_mut().for_each(|word| *word = u64::from_le(*word));
}

/// Returns the inner product of a mask and a secret, without a branch on either.
fn inner(mask: &[u64], secret: &[u64]) -> u64 {
    let products = mask.iter().zip(secret).map(|(word, bit)| word & bit.wrapping_neg());
    products.fold(0, u64::wrapping_add)
}

/// Draws noise uniform from −2^b to 2^b, the two ends half as likely.
fn noise(rng: &mut StreamRng, log2: u32) -> u64 {
    let drawn = rng.next_u64() >> (64 - (log2 + 2));
    ((drawn >> 1) + (drawn & 1)).wrapping_sub(1 << log2)
}

/// Encrypts numbers from 0 to 15 under the masks that a fresh seed names, and returns the bodies.
///
/// # Errors
/// No randomness.
pub(super) fn encrypt(secret: &[u64], seed: &[u8; 32], numbers: &[u64]) -> Result<Vec<u64>, Error> {
    let mut rng = random::generator()?;
    let mut masks = masks(seed, 0);
    let mut mask = vec![0; DIMENSION];
    let bodies = numbers.iter().map(|&number| {
        next_mask(&mut masks, &mut mask);
        let noise = noise(&mut rng, PARAMETERS.glwe_noise_log2);
        inner(&mask, secret).wrapping_add(noise).wrapping_add(number << UNIT_LOG2)
    });
    Ok(bodies.collect())
}

/// Adds to a ciphertext the one with a body under a seed whose masks it is in place `index` of.
#[cfg(any(test, feature = "tfhe"))]
pub(super) fn add_seeded(sum: &mut [u64], seed: &[u8; 32], index: usize, body: u64) {
    let mut mask = [0; DIMENSION];
    next_mask(&mut masks(seed, index), &mut mask);
    let words = mask.iter().chain([&body]);
    sum.iter_mut().zip(words).for_each(|(sum, word)| *sum = sum.wrapping_add(*word));
}

/// Rounds the words of a ciphertext to the bits that an answer keeps: what a level is rounded off by is far below one.
#[cfg(any(test, feature = "tfhe"))]
pub(super) fn round(ciphertext: &[u64]) -> impl Iterator<Item = u16> + '_ {
    let half = 1 << (63 - KEPT_BITS);
    ciphertext.iter().map(move |word| (word.wrapping_add(half) >> (64 - KEPT_BITS)) as u16)
}

/// Opens a rounded ciphertext of a level, the nearest from −64 to 63.
pub(super) fn open_level(secret: &[u64], ciphertext: &[u16]) -> i16 {
    let Some((body, mask)) = ciphertext.split_last() else { return 0 };
    let products = mask.iter().zip(secret).map(|(word, bit)| word & (*bit as u16).wrapping_neg());
    let phase = body.wrapping_sub(products.fold(0, u16::wrapping_add));
    let below = LEVEL_LOG2 + KEPT_BITS - 64;
    (phase.wrapping_add(1 << (below - 1)) as i16) >> below
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret() -> LweSecret {
        let mut bits = random::keystream(&[3; 32], DIMENSION);
        bits.iter_mut().for_each(|word| *word &= 1);
        bits
    }

    fn phase(secret: &[u64], ciphertext: &[u64]) -> u64 {
        ciphertext[DIMENSION].wrapping_sub(inner(ciphertext, secret))
    }

    #[test]
    fn sums_of_ciphertexts_are_of_sums() {
        let (secret, seed) = (secret(), [5; 32]);
        let numbers: Vec<_> = (0..40).map(|i| i % 2).collect();
        let bodies = encrypt(&secret, &seed, &numbers).unwrap();
        let mut sum = vec![0; DIMENSION + 1];
        for (index, &body) in bodies.iter().enumerate().take(25) {
            add_seeded(&mut sum, &seed, index, body);
        }
        let error = phase(&secret, &sum).wrapping_sub(12 << UNIT_LOG2) as i64;
        assert!(error != 0 && error.unsigned_abs() < 25 << PARAMETERS.glwe_noise_log2, "{error}");
    }

    #[test]
    fn noise_is_uniform_to_its_ends() {
        let mut rng = StreamRng::from_seed(&[1; 32]);
        let mut counts = [0i32; 9];
        for _ in 0..80_000 {
            counts[(noise(&mut rng, 2).wrapping_add(4)) as usize] += 1;
        }
        // 16 cells, of which the ends have one each and the others two.
        for (i, count) in counts.into_iter().enumerate() {
            let expected = if i == 0 || i == 8 { 5_000 } else { 10_000 };
            assert!((count - expected).abs() < 600, "{counts:?}");
        }
    }

    #[test]
    fn levels_open_after_rounding() {
        let (secret, seed) = (secret(), [8; 32]);
        for level in -64i16..64 {
            let mut sum = vec![0; DIMENSION + 1];
            add_seeded(&mut sum, &seed, 7, 0);
            let noise = (level as u64) << 48;
            sum[DIMENSION] =
                inner(&sum, &secret).wrapping_add((level as u64) << LEVEL_LOG2).wrapping_add(noise);
            let rounded: Vec<_> = round(&sum).collect();
            assert_eq!(open_level(&secret, &rounded), level);
        }
    }
}
