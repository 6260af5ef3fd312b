//! ChaCha, eight blocks side by side. See [`chacha`](crate::cpu::chacha).

use std::arch::x86_64::{
    _mm_cvtsi32_si128, _mm256_add_epi32 as add, _mm256_add_epi64 as add_words, _mm256_cmpgt_epi64,
    _mm256_movemask_pd, _mm256_or_si256 as or, _mm256_set1_epi32 as splat, _mm256_setr_epi32,
    _mm256_setzero_si256 as zero, _mm256_shuffle_epi8, _mm256_sll_epi32, _mm256_srl_epi32,
    _mm256_unpackhi_epi32, _mm256_unpacklo_epi32, _mm256_xor_si256 as xor,
};

use zeroize::optimization_barrier;

use super::{Quad as Word, four as group};
use super::{
    limbs::{LANES, all, and, transpose},
    *,
};
use crate::{
    beats::{self, LANE_BITS},
    cpu::{
        chacha::{CONSTANTS, chacha},
        rns::{BLOCKS, RUN, STREAM_WORDS, mask},
    },
    streams::{PUBLIC_ROUNDS, SECRET_ROUNDS},
};

chacha!("avx2");

/// Blocks that are computed side by side.
const WIDE: usize = 2 * LANES;

/// Rotates numbers of 32 bits to the left, by whole bytes in one instruction.
#[inline]
#[target_feature(enable = "avx2")]
fn rotate<const LEFT: i32>(x: Word) -> Word {
    match LEFT % 8 {
        0 => _mm256_shuffle_epi8(x, four(const { &rotated(LEFT as usize / 8) })),
        _ => shift(x, x, LEFT, 32 - LEFT),
    }
}

/// Shifts numbers of 32 bits, some to the left and others to the right, and joins them; a shift by 32 gives zero.
#[inline]
#[target_feature(enable = "avx2")]
fn shift(high: Word, low: Word, left: i32, right: i32) -> Word {
    let [left, right] = [left, right].map(|by| _mm_cvtsi32_si128(by));
    or(_mm256_sll_epi32(high, left), _mm256_srl_epi32(low, right))
}

/// Returns where each byte of a word of 32 bits that is rotated to the left by some bytes comes from, in two halves.
const fn rotated(left: usize) -> [u64; 4] {
    let mut places = [0; 4];
    let mut byte = 0;
    while byte < 16 {
        let from = byte / 4 * 4 + (byte + 4 - left) % 4;
        places[byte / 8] |= (from as u64) << (8 * (byte % 8));
        byte += 1;
    }
    [places[0], places[1], places[0], places[1]]
}

/// See [`Rns::keystream`](crate::cpu::rns::Rns::keystream).
#[target_feature(enable = "avx2")]
pub(super) fn keystream(out: &mut [u64; STREAM_WORDS], key: &[u64], stream: u64, block: u64) {
    for (half, out) in out.as_chunks_mut::<{ 8 * WIDE }>().0.iter_mut().enumerate() {
        let x = blocks::<SECRET_ROUNDS>(key, stream, block + (half * WIDE) as u64, neighbours());
        for first in [0, 4] {
            // Words of 64 bits of four blocks, and of the four behind them.
            let pairs: [[Word; 2]; 4] = std::array::from_fn(|i| {
                let (low, high) = (x[2 * (first + i)], x[2 * (first + i) + 1]);
                [_mm256_unpacklo_epi32(low, high), _mm256_unpackhi_epi32(low, high)]
            });
            for four in 0..2 {
                let rows = transpose(pairs.map(|pair| pair[four]));
                for (row, out) in rows.into_iter().zip(out[32 * four..].as_chunks_mut::<8>().0) {
                    out[first..][..LANES].copy_from_slice(&words(row));
                }
            }
        }
    }
}

/// The places of blocks whose halves of words are joined two by two within each half of a vector, which so gives four
/// neighbours.
#[inline]
#[target_feature(enable = "avx2")]
fn neighbours() -> Word {
    _mm256_setr_epi32(0, 1, 4, 5, 2, 3, 6, 7)
}

/// See [`Rns::add_draws`](crate::cpu::rns::Rns::add_draws). A lane begins in the same bit of every block, so that a
/// pair of shifts takes it out of all eight.
#[target_feature(enable = "avx2")]
pub(super) fn add_draws(
    sum: &mut [u64; RUN],
    seed: &[u64],
    stream: u64,
    block: u64,
    primes: &[u64; beats::LANES],
) -> bool {
    let mut draws = [zero(); RUN / 4];
    for half in 0..BLOCKS / WIDE {
        let x = blocks::<PUBLIC_ROUNDS>(seed, stream, block + (half * WIDE) as u64, neighbours());
        let mut are_below = all(u64::MAX);
        for (lane, &q) in primes.iter().enumerate() {
            let (word, bit) = (LANE_BITS * lane / 32, (LANE_BITS * lane % 32) as i32);
            // What is above a lane, or past the end, is masked away.
            let low = shift(x[word + 1], x[word], 32 - bit, bit);
            let high = shift(x[(word + 2) % 16], x[word + 1], 32 - bit, bit);
            let pair = [_mm256_unpacklo_epi32(low, high), _mm256_unpackhi_epi32(low, high)];
            let at = lane * BLOCKS / 4 + 2 * half;
            for (draw, both) in draws[at..at + 2].iter_mut().zip(pair) {
                *draw = and(both, all(mask(q)));
                are_below = and(are_below, _mm256_cmpgt_epi64(all(q), *draw));
            }
        }
        if _mm256_movemask_pd(_mm256_castsi256_pd(are_below)) != 0b1111 {
            return false;
        }
    }
    for (sum, draw) in sum.as_chunks_mut::<LANES>().0.iter_mut().zip(draws) {
        *sum = words(add_words(four(sum), draw));
    }
    true
}
