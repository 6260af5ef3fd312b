//! ChaCha, sixteen blocks side by side. See [`chacha`](crate::cpu::chacha).

use std::arch::x86_64::{
    _mm512_add_epi32 as add, _mm512_add_epi64 as add_words, _mm512_cmpge_epu64_mask,
    _mm512_rol_epi32 as rotate, _mm512_set1_epi32 as splat, _mm512_setr_epi32,
    _mm512_setzero_si512 as zero, _mm512_shrdv_epi32, _mm512_shuffle_i32x4, _mm512_unpackhi_epi32,
    _mm512_unpackhi_epi64, _mm512_unpacklo_epi32, _mm512_unpacklo_epi64, _mm512_xor_si512 as xor,
};

use zeroize::optimization_barrier;

use super::{
    lazy::subtract_once,
    select::{eight as group, words},
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

chacha!("avx512f");

/// See [`Rns::keystream`](crate::cpu::rns::Rns::keystream).
#[target_feature(enable = "avx512f")]
pub(super) fn keystream(out: &mut [u64; STREAM_WORDS], key: &[u64], stream: u64, block: u64) {
    let places = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    let x = blocks::<SECRET_ROUNDS>(key, stream, block, places);
    let blocks = out.as_chunks_mut::<8>().0;
    // Words 4g .. 4g + 4 of blocks j, j + 4, j + 8 and j + 12, in the quarters of a vector.
    let mut fours = [[zero(); 4]; 4];
    for g in 0..4 {
        let [a, b, c, d] = [x[4 * g], x[4 * g + 1], x[4 * g + 2], x[4 * g + 3]];
        let (e, f) = (_mm512_unpacklo_epi32(a, b), _mm512_unpacklo_epi32(c, d));
        let (h, k) = (_mm512_unpackhi_epi32(a, b), _mm512_unpackhi_epi32(c, d));
        fours[0][g] = _mm512_unpacklo_epi64(e, f);
        fours[1][g] = _mm512_unpackhi_epi64(e, f);
        fours[2][g] = _mm512_unpacklo_epi64(h, k);
        fours[3][g] = _mm512_unpackhi_epi64(h, k);
    }
    for j in 0..4 {
        let [a, b, c, d] = fours[j];
        let (e, f) = (_mm512_shuffle_i32x4::<0x44>(a, b), _mm512_shuffle_i32x4::<0x44>(c, d));
        let (g, h) = (_mm512_shuffle_i32x4::<0xee>(a, b), _mm512_shuffle_i32x4::<0xee>(c, d));
        blocks[j] = words(_mm512_shuffle_i32x4::<0x88>(e, f));
        blocks[4 + j] = words(_mm512_shuffle_i32x4::<0xdd>(e, f));
        blocks[8 + j] = words(_mm512_shuffle_i32x4::<0x88>(g, h));
        blocks[12 + j] = words(_mm512_shuffle_i32x4::<0xdd>(g, h));
    }
}

/// See [`Rns::add_draws`](crate::cpu::rns::Rns::add_draws). A lane begins in the same bit of every block, so that a
/// pair of shifts takes it out of all sixteen.
#[target_feature(enable = "avx512f,avx512vbmi2")]
pub(super) fn add_draws(
    sum: &mut [u64; RUN],
    seed: &[u64],
    stream: u64,
    block: u64,
    primes: &[u64; beats::LANES],
) -> bool {
    // Halves of numbers are joined two by two within each quarter of a vector, which so gives eight
    // neighbours.
    let places = _mm512_setr_epi32(0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15);
    let x = blocks::<PUBLIC_ROUNDS>(seed, stream, block, places);
    let mut draws = [zero(); RUN / 8];
    let mut rejected = 0;
    for (lane, &q) in primes.iter().enumerate() {
        let (word, bit) = (LANE_BITS * lane / 32, LANE_BITS * lane % 32);
        let right = splat(bit as i32);
        let low = _mm512_shrdv_epi32(x[word], x[word + 1], right);
        // What is above a lane, or past the end, is masked away.
        let high = _mm512_shrdv_epi32(x[word + 1], x[(word + 2) % 16], right);
        let pair = [_mm512_unpacklo_epi32(low, high), _mm512_unpackhi_epi32(low, high)];
        for (draw, both) in draws[2 * lane..2 * lane + 2].iter_mut().zip(pair) {
            *draw = _mm512_and_si512(both, all(mask(q)));
            rejected |= _mm512_cmpge_epu64_mask(*draw, all(q));
        }
    }
    if rejected == 0 {
        for (sum, draw) in sum.as_chunks_mut::<8>().0.iter_mut().zip(draws) {
            *sum = words(add_words(group(sum), draw));
        }
    }
    rejected == 0
}
