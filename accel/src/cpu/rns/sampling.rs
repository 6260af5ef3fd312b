//! Random polynomials from [streams](crate::streams).

use zeroize::Zeroizing;

use super::{BLOCKS, RUN, Rns, STREAM_WORDS, TOGETHER, loops::add_draws};
use crate::ring::Ring;

/// Adds the uniform polynomials of all seeds, in runs of draws. Variable time: seeds are public.
pub(super) fn uniform<B: Rns>(backend: B, ring: &Ring, out: &mut [u64], seeds: &[u64], index: u64) {
    let prime = |place: usize| ring.primes()[place / ring.degree()];
    let last = out.len() - 1;
    for (run, residues) in out.chunks_mut(RUN).enumerate() {
        residues.fill(0);
        let at = run * RUN;
        // Degrees are multiples of sixteen. The last run may have lanes to spare.
        let primes = std::array::from_fn(|lane| prime(last.min(at + lane * BLOCKS)));
        for seeds in seeds.chunks(4 * TOGETHER) {
            let mut sum = [0; RUN];
            for seed in seeds.as_chunks::<4>().0 {
                add_draws(backend, &mut sum, seed, index, run as u64, &primes);
            }
            backend.take_draws(residues, &sum, seeds.len() / 4, &primes);
        }
    }
}

/// Makes small coefficients, each the difference of the two numbers that `draw` makes of one word, the same in every
/// limb. Constant time.
pub(super) fn small<B: Rns>(
    backend: B,
    draw: fn(u64) -> [u64; 2],
    ring: &Ring,
    out: &mut [u64],
    key: &[u64],
    index: u64,
) {
    let n = ring.degree();
    let [mut more, mut less] = [(); 2].map(|()| Zeroizing::new([0; STREAM_WORDS]));
    for first in (0..n).step_by(STREAM_WORDS) {
        let run = first..n.min(first + STREAM_WORDS);
        backend.keystream(&mut more, key, index, first as u64);
        more.iter_mut().zip(less.iter_mut()).for_each(|(word, less)| [*word, *less] = draw(*word));
        for (limb, &q) in out.chunks_exact_mut(n).zip(ring.primes()) {
            backend.sub(&mut limb[run.clone()], &more[..run.len()], &less[..run.len()], q);
        }
    }
}

/// Noise of a random word, as [`centred_binomial`](crate::random::centred_binomial) but two counts: bits of both halves
/// are added at once, by what vectors of any processor can do.
pub(super) fn noise(word: u64) -> [u64; 2] {
    const HALF: u64 = (1 << 21) - 1;
    let x = word & HALF | (word >> 21 & HALF) << 32;
    let pairs = x - (x >> 1 & 0x5555_5555_5555_5555);
    let fours = (pairs & 0x3333_3333_3333_3333) + (pairs >> 2 & 0x3333_3333_3333_3333);
    let bytes = (fours + (fours >> 4)) & 0x0f0f_0f0f_0f0f_0f0f;
    let sums = bytes + (bytes >> 8) + (bytes >> 16);
    [sums & 0x1f, sums >> 32 & 0x1f]
}

/// A ternary coefficient of a random word; see `Builder::ternary`.
pub(super) fn ternary(word: u64) -> [u64; 2] {
    [((3 * u128::from(word)) >> 64) as u64, 1]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rand_core::Rng;

    use rand_chacha::ChaCha20Rng;
    use rand_core::SeedableRng as _;

    use super::*;
    use crate::{beats, cpu::portable::Portable, random::centred_binomial};

    const RUN: u64 = BLOCKS as u64;

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
        #[cfg(target_arch = "x86_64")]
        if let Some(avx2) = crate::cpu::avx2::Avx2::detect() {
            check(avx2, seed, number, 8 * block);
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

    /// Adds the draws of four runs, most of whose primes let some draws pass, or all.
    fn check_draws<B: Rns>(backend: B, stream: u64, run: u64) {
        let key = [1, u64::MAX, 3 << 40, 4];
        for q in [(1 << 50) - 27, (1 << 49) + 21, 97] {
            let mut primes = [(1 << 50) - 27; beats::LANES];
            primes[7] = q;
            for run in run..run + 4 {
                let (mut expected, mut found) = ([5; super::RUN], [5; super::RUN]);
                add_draws(Portable, &mut expected, &key, stream, run, &primes);
                add_draws(backend, &mut found, &key, stream, run, &primes);
                assert_eq!(expected, found, "{q}, run {run} of stream {stream}");
                let (mut taken, mut own) = ([9; super::RUN], [9; super::RUN]);
                Portable.take_draws(&mut taken, &expected, 1, &primes);
                backend.take_draws(&mut own, &found, 1, &primes);
                assert_eq!(taken, own, "{q}, run {run} of stream {stream}");
            }
        }
    }

    #[test]
    fn draws_are_those_of_any_processor() {
        for (stream, block) in [(0, 0), (u64::MAX, (1 << 31) - RUN), (1, (1 << 32) - 2 * RUN)] {
            #[cfg(target_arch = "x86_64")]
            if let Some(ifma) = crate::cpu::ifma::Ifma::detect() {
                check_draws(ifma, stream, block / RUN);
            }
            #[cfg(target_arch = "x86_64")]
            if let Some(avx2) = crate::cpu::avx2::Avx2::detect() {
                check_draws(avx2, stream, block / RUN);
            }
        }
    }

    #[test]
    fn ones_are_counted_in_each_run_of_bits() {
        for word in [0, u64::MAX, 1, 1 << 20, 1 << 21, 1 << 41, 1 << 42, 0x1f_ffff, 0x1f_ffff << 21]
        {
            let [more, less] = noise(word);
            assert_eq!(more as i8 - less as i8, centred_binomial(word), "{word:x}");
        }
    }

    #[test]
    fn words_around_the_thirds_give_the_right_digits() {
        let third = u64::MAX / 3;
        let words = [0, third, third + 1, 2 * third, 2 * third + 1, u64::MAX, 1 << 63, 1];
        let digits = words.map(|word| ternary(word)[0]);
        assert_eq!(digits, [0, 0, 1, 1, 2, 2, 1, 0]);
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
