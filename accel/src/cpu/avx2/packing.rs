//! Lanes of beats, two beats at a time: twenty lanes are five registers.

use std::arch::x86_64::{
    __m128i, _mm_loadu_si128, _mm256_add_epi64, _mm256_and_si256, _mm256_cmpgt_epi64,
    _mm256_set_m128i, _mm256_set1_epi64x, _mm256_setzero_si256, _mm256_shuffle_epi8,
    _mm256_srlv_epi64, _mm256_sub_epi64,
};

use super::*;
use crate::{
    beats::{BYTES, LANE_BITS, LANES, WORDS},
    cpu::{portable::Portable, rns::Rns},
    ring::LanePrimes,
};

/// Bytes of a beat that hold two lanes.
const PAIR_BYTES: usize = 16;
/// Registers that the lanes of two beats fill.
const QUARTETS: usize = 2 * LANES / 4;

/// Returns the byte of a beat from which sixteen hold lanes `2·pair` and the one behind it.
const fn first_byte(pair: usize) -> usize {
    let byte = 2 * pair * LANE_BITS / 8;
    if byte + PAIR_BYTES > BYTES { BYTES - PAIR_BYTES } else { byte }
}

/// Returns, among those sixteen, the byte from which eight hold a lane, and the bit that it begins at.
const fn place(lane: usize) -> (usize, usize) {
    let first = first_byte(lane / 2);
    let byte = LANE_BITS * lane / 8 - first;
    let byte = if byte + 8 > PAIR_BYTES { PAIR_BYTES - 8 } else { byte };
    (byte, LANE_BITS * lane - 8 * (first + byte))
}

/// For four lanes of the twenty of two beats each, the bytes that hold them.
const BYTES_OF: [[u64; 4]; QUARTETS] = {
    let mut bytes = [[0; 4]; QUARTETS];
    let mut k = 0;
    while k < 2 * LANES {
        let mut i = 0;
        while i < 8 {
            bytes[k / 4][k % 4] |= ((place(k % LANES).0 + i) as u64) << (8 * i);
            i += 1;
        }
        k += 1;
    }
    bytes
};

/// The bit of these that each of them begins at.
const STARTS: [[u64; 4]; QUARTETS] = {
    let mut starts = [[0; 4]; QUARTETS];
    let mut k = 0;
    while k < 2 * LANES {
        starts[k / 4][k % 4] = place(k % LANES).1 as u64;
        k += 1;
    }
    starts
};

/// Returns sixteen bytes of a beat.
#[inline]
#[target_feature(enable = "avx2")]
fn sixteen(beat: &[u64; WORDS], byte: usize) -> __m128i {
    assert!(byte + PAIR_BYTES <= BYTES, "bytes of one beat");
    // SAFETY: the bytes are within the beat, and may be read from any address.
    unsafe { _mm_loadu_si128(beat.as_ptr().byte_add(byte).cast()) }
}

/// Returns lanes `4·QUARTET ..` of the twenty of two beats.
#[inline]
#[target_feature(enable = "avx2")]
fn four_lanes<const QUARTET: usize>(beats: &[[u64; WORDS]; 2]) -> Quad {
    let pair = |lane: usize| sixteen(&beats[lane / LANES], first_byte(lane % LANES / 2));
    let bytes = _mm256_set_m128i(pair(4 * QUARTET + 2), pair(4 * QUARTET));
    let words = _mm256_shuffle_epi8(bytes, four(&BYTES_OF[QUARTET]));
    let words = _mm256_srlv_epi64(words, four(&STARTS[QUARTET]));
    _mm256_and_si256(words, _mm256_set1_epi64x((1 << LANE_BITS) - 1))
}

/// Adds four lanes to their sums, and returns −1 for each that is below its prime.
#[inline]
#[target_feature(enable = "avx2")]
fn add_four<const QUARTET: usize>(
    sums: &mut [u64; 2 * LANES],
    beats: &[[u64; WORDS]; 2],
    primes: &LanePrimes,
) -> Quad {
    let lanes = four_lanes::<QUARTET>(beats);
    let sums = &mut sums.as_chunks_mut::<4>().0[QUARTET];
    *sums = words(_mm256_add_epi64(four(sums), lanes));
    _mm256_cmpgt_epi64(four(&primes.as_chunks::<4>().0[QUARTET]), lanes)
}

/// See [`Rns::add_lanes`].
#[target_feature(enable = "avx2")]
pub(super) fn add_lanes(sums: &mut [u64], words_in: &[u64], primes: &[LanePrimes]) {
    let (pairs, last) = words_in.as_chunks::<WORDS>().0.as_chunks::<2>();
    let (sums, last_sums) = sums.split_at_mut(pairs.len() * 2 * LANES);
    let sums = sums.as_chunks_mut::<{ 2 * LANES }>().0.iter_mut();
    let (mut good, mut spare) = (_mm256_setzero_si256(), 0);
    for ((sums, beats), primes) in sums.zip(pairs).zip(primes.iter().cycle().step_by(2)) {
        let below = [
            add_four::<0>(sums, beats, primes),
            add_four::<1>(sums, beats, primes),
            add_four::<2>(sums, beats, primes),
            add_four::<3>(sums, beats, primes),
            add_four::<4>(sums, beats, primes),
        ];
        below.into_iter().for_each(|below| good = _mm256_sub_epi64(good, below));
        spare += beats.iter().filter(|beat| beat[WORDS - 1] >> 62 != 0).count() as u64;
    }
    let lanes = (pairs.len() * 2 * LANES) as u64;
    let bad = lanes - words(good).iter().sum::<u64>() + spare;
    // One beat may be left, and the word that counts is behind its sums.
    let primes = &primes[2 * pairs.len() % primes.len()..];
    Portable.add_lanes(last_sums, last.as_flattened(), primes);
    if let Some(count) = last_sums.last_mut() {
        *count = count.wrapping_add(bad);
    }
}
