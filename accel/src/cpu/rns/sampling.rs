//! Random polynomials from ChaCha20 streams.

use rand_chacha::ChaCha20Rng;
use rand_core::{Rng, SeedableRng};
use zeroize::Zeroizing;

use super::{Rns, STREAM_WORDS};
use crate::ring::{Ring, subtract_once};

/// The ChaCha20 stream number `index` under `key`, from its word `at` on.
pub(super) fn stream(key: &[u64], index: u64, at: u64) -> ChaCha20Rng {
    let mut bytes = Zeroizing::new([0u8; 32]);
    for (bytes, word) in bytes.chunks_exact_mut(8).zip(key) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    let mut rng = ChaCha20Rng::from_seed(*bytes);
    rng.set_stream(index);
    rng.set_word_pos(2 * u128::from(at));
    rng
}

/// Seeds whose draws are added together, so that residues are read and written once for all.
const TOGETHER: usize = 16;

/// Adds the uniform polynomials of all seeds. Variable time: seeds are public.
///
/// A draw that is not below its prime is drawn again, and so moves all that follow it. The primes that
/// are used lie so close below a power of two that this hardly ever happens: draws are added in runs,
/// and one by one from the first run that has such a draw.
pub(super) fn uniform<B: Rns>(backend: B, ring: &Ring, out: &mut [u64], seeds: &[u64], index: u64) {
    out.fill(0);
    let mut draws = [0; STREAM_WORDS];
    let in_runs = ring.degree().is_multiple_of(STREAM_WORDS);
    for seeds in seeds.chunks(4 * TOGETHER) {
        let seeds = seeds.as_chunks::<4>().0;
        // Where each seed's runs end.
        let mut ends = [if in_runs { out.len() } else { 0 }; TOGETHER];
        for (run, residues) in out.chunks_exact_mut(STREAM_WORDS).enumerate() {
            let at = run * STREAM_WORDS;
            let q = ring.primes()[at / ring.degree()];
            for (seed, end) in seeds.iter().zip(&mut ends) {
                if at < *end {
                    backend.keystream(&mut draws, seed, index, at as u64);
                    if !backend.add_draws(residues, &draws, q) {
                        *end = at;
                    }
                }
            }
        }
        for (seed, &end) in seeds.iter().zip(&ends) {
            uniform_from(ring, out, seed, index, end);
        }
    }
}

/// Adds what one seed names from residue `at` on, before which no draw was rejected.
fn uniform_from(ring: &Ring, out: &mut [u64], seed: &[u64], index: u64, at: usize) {
    if at == out.len() {
        return;
    }
    let mut rng = stream(seed, index, at as u64);
    for (place, residue) in out.iter_mut().enumerate().skip(at) {
        let q = ring.primes()[place / ring.degree()];
        let mask = u64::MAX >> q.leading_zeros();
        let mut draw = rng.next_u64() & mask;
        while draw >= q {
            draw = rng.next_u64() & mask;
        }
        *residue = subtract_once(*residue + draw, q);
    }
}

/// Small coefficients, each as `draw` makes it of one word, the same in every limb. Constant time.
pub(super) fn small<B: Rns>(
    backend: B,
    draw: fn(B, &mut [u64], &[u64], u64),
    ring: &Ring,
    out: &mut [u64],
    key: &[u64],
    index: u64,
) {
    let n = ring.degree();
    let mut random = Zeroizing::new([0; STREAM_WORDS]);
    for first in (0..n).step_by(STREAM_WORDS) {
        let run = first..n.min(first + STREAM_WORDS);
        backend.keystream(&mut random, key, index, first as u64);
        for (limb, &q) in out.chunks_exact_mut(n).zip(ring.primes()) {
            draw(backend, &mut limb[run.clone()], &random[..run.len()], q);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::cpu::portable::Portable;

    /// Words of one run in blocks.
    const RUN: u64 = STREAM_WORDS as u64 / 8;

    /// Four runs from word `at` on, each asked for alone, of which the generator makes one stream.
    fn check<B: Rns>(backend: B, seed: [u8; 32], number: u64, at: u64) {
        let mut rng = ChaCha20Rng::from_seed(seed);
        rng.set_stream(number);
        rng.set_word_pos(2 * u128::from(at));
        let key: Vec<u64> = seed.as_chunks().0.iter().map(|b| u64::from_le_bytes(*b)).collect();
        for run in 0..4 {
            let expected: Vec<u64> = (0..STREAM_WORDS).map(|_| rng.next_u64()).collect();
            let mut found = [0; STREAM_WORDS];
            backend.keystream(&mut found, &key, number, at + run * STREAM_WORDS as u64);
            assert_eq!(found[..], expected, "run {run} from word {at} of stream {number}");
        }
    }

    fn check_all(seed: [u8; 32], number: u64, block: u64) {
        check(Portable, seed, number, 8 * block);
        #[cfg(target_arch = "x86_64")]
        if let Some(ifma) = crate::cpu::ifma::Ifma::detect() {
            check(ifma, seed, number, 8 * block);
        }
    }

    #[test]
    fn streams_start_and_go_on_past_the_lower_half_of_the_counter() {
        let seed = std::array::from_fn(|i| 255 - i as u8);
        let borders = [0, 1 << 31, (1 << 32) - 2 * RUN, 1 << 32, (5 << 32) - RUN, (1 << 59) - RUN];
        for number in [0, 1, (1 << 32) - 1, 1 << 32, u64::MAX] {
            borders.into_iter().for_each(|block| check_all(seed, number, block));
        }
    }

    fn check_digits<B: Rns>(backend: B) {
        let (third, q) = (u64::MAX / 3, 193);
        let words = [0, third, third + 1, 2 * third, 2 * third + 1, u64::MAX, 1 << 63, 1];
        let mut digits = [7; 8];
        backend.ternary(&mut digits, &words, q);
        assert_eq!(digits, [q - 1, q - 1, 0, 0, 1, 1, 0, q - 1]);
    }

    #[test]
    fn words_around_the_thirds_give_the_right_digits() {
        check_digits(Portable);
        #[cfg(target_arch = "x86_64")]
        if let Some(ifma) = crate::cpu::ifma::Ifma::detect() {
            check_digits(ifma);
        }
    }

    proptest! {
        #[test]
        fn streams_are_those_of_the_generator(
            seed in any::<[u8; 32]>(),
            number in prop_oneof![Just(0), Just(1), Just(u64::MAX), any::<u64>()],
            run in prop_oneof![0u64..1000, 0u64..1 << 55],
        ) {
            check_all(seed, number, run * RUN);
        }
    }
}
