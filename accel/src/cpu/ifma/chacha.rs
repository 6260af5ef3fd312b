//! ChaCha20, sixteen blocks side by side.
//!
//! # Source
//! D. J. Bernstein, "ChaCha, a variant of Salsa20", 2008; with a counter and a stream number of 64
//! bits each, as `rand_chacha` has them.

use std::arch::x86_64::{
    _mm512_add_epi32, _mm512_cmpge_epu64_mask, _mm512_rol_epi32, _mm512_set1_epi32,
    _mm512_setr_epi32, _mm512_shrdv_epi32, _mm512_shuffle_i32x4, _mm512_unpackhi_epi32,
    _mm512_unpackhi_epi64, _mm512_unpacklo_epi32, _mm512_unpacklo_epi64, _mm512_xor_si512,
};

use zeroize::optimization_barrier;

use super::{
    lazy::subtract_once,
    select::{eight, words},
    *,
};
use crate::{
    beats::{LANE_BITS, LANES},
    cpu::rns::{BLOCKS, RUN, STREAM_WORDS, TOGETHER, mask},
};

/// "expand 32-byte k".
const CONSTANTS: [u32; 4] = [0x6170_7865, 0x3320_646e, 0x7962_2d32, 0x6b20_6574];

/// Returns the sixteen blocks from `block` on, a multiple of sixteen, of the stream number
/// `stream`: a vector for each of their words of 32 bits, the blocks in the order of `places`.
#[inline]
#[target_feature(enable = "avx512f")]
fn blocks(key: &[u64], stream: u64, block: u64, places: Word) -> [Word; 16] {
    let set = |x: u32| _mm512_set1_epi32(x as i32);
    let mut start = [_mm512_setzero_si512(); 16];
    for i in 0..4 {
        start[i] = set(CONSTANTS[i]);
        start[4 + 2 * i] = set(key[i] as u32);
        start[5 + 2 * i] = set((key[i] >> 32) as u32);
    }
    // The lower half does not pass its end within sixteen blocks.
    start[12] = _mm512_add_epi32(set(block as u32), places);
    start[13] = set((block >> 32) as u32);
    start[14] = set(stream as u32);
    start[15] = set((stream >> 32) as u32);
    let mut x = start;
    for _ in 0..10 {
        for i in 0..4 {
            quarter_round(&mut x, [i, 4 + i, 8 + i, 12 + i]);
        }
        for i in 0..4 {
            quarter_round(&mut x, [i, 4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4]);
        }
    }
    for i in 0..16 {
        x[i] = _mm512_add_epi32(x[i], start[i]);
    }
    // The key may be that of noise.
    start.fill(_mm512_setzero_si512());
    optimization_barrier(&start);
    x
}

/// See [`Rns::keystream`](crate::cpu::rns::Rns::keystream).
#[target_feature(enable = "avx512f")]
pub(super) fn keystream(out: &mut [u64; STREAM_WORDS], key: &[u64], stream: u64, block: u64) {
    let places = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    let x = blocks(key, stream, block, places);
    let blocks = out.as_chunks_mut::<8>().0;
    // Words 4g .. 4g + 4 of blocks j, j + 4, j + 8 and j + 12, in the quarters of a vector.
    let mut fours = [[_mm512_setzero_si512(); 4]; 4];
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

/// Adds the draws of [`Rns::add_draws`](crate::cpu::rns::Rns::add_draws) if each is below its prime; else adds nothing
/// and gives false. A lane begins in the same bit of every block, so that a pair of shifts takes it out of all sixteen.
#[target_feature(enable = "avx512f,avx512vbmi2")]
pub(super) fn add_draws(
    sum: &mut [u64; RUN],
    key: &[u64],
    stream: u64,
    block: u64,
    primes: &[u64; LANES],
) -> bool {
    // Halves of numbers are joined two by two within each quarter of a vector, which so gives eight
    // neighbours.
    let places = _mm512_setr_epi32(0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15);
    let x = blocks(key, stream, block, places);
    let mut draws = [_mm512_setzero_si512(); RUN / 8];
    let mut rejected = 0;
    for (lane, &q) in primes.iter().enumerate() {
        let (word, bit) = (LANE_BITS * lane / 32, LANE_BITS * lane % 32);
        let right = _mm512_set1_epi32(bit as i32);
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
            *sum = words(_mm512_add_epi64(eight(sum), draw));
        }
    }
    rejected == 0
}

/// See [`Rns::take_draws`](crate::cpu::rns::Rns::take_draws).
#[target_feature(enable = "avx512f")]
pub(super) fn take_draws(out: &mut [u64], sum: &[u64; RUN], primes: &[u64; LANES]) {
    let runs = out.as_chunks_mut::<BLOCKS>().0.iter_mut().zip(sum.as_chunks::<BLOCKS>().0);
    for ((out, sum), &q) in runs.zip(primes) {
        for (out, sum) in out.as_chunks_mut::<8>().0.iter_mut().zip(sum.as_chunks::<8>().0) {
            let mut x = _mm512_add_epi64(eight(out), eight(sum));
            for shift in (0..=TOGETHER.ilog2()).rev() {
                x = subtract_once(x, all(q << shift));
            }
            *out = words(x);
        }
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn quarter_round(x: &mut [Word; 16], [a, b, c, d]: [usize; 4]) {
    x[a] = _mm512_add_epi32(x[a], x[b]);
    x[d] = _mm512_rol_epi32::<16>(_mm512_xor_si512(x[d], x[a]));
    x[c] = _mm512_add_epi32(x[c], x[d]);
    x[b] = _mm512_rol_epi32::<12>(_mm512_xor_si512(x[b], x[c]));
    x[a] = _mm512_add_epi32(x[a], x[b]);
    x[d] = _mm512_rol_epi32::<8>(_mm512_xor_si512(x[d], x[a]));
    x[c] = _mm512_add_epi32(x[c], x[d]);
    x[b] = _mm512_rol_epi32::<7>(_mm512_xor_si512(x[b], x[c]));
}
