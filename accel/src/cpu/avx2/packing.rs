//! Lanes of beats, two beats at a time: twenty lanes are five registers.

use std::arch::x86_64::{
    __m128i, _mm_loadu_si128, _mm256_add_epi64, _mm256_and_si256, _mm256_cmpgt_epi64,
    _mm256_set_m128i, _mm256_set1_epi64x, _mm256_setr_epi8, _mm256_setr_epi64x,
    _mm256_setzero_si256, _mm256_shuffle_epi8, _mm256_srlv_epi64, _mm256_sub_epi64,
};

use super::*;
use crate::{
    beats::{BYTES, LANE_BITS, LANES, WORDS},
    ring::LanePrimes,
};

/// Bytes of a beat that hold two lanes.
const PAIR_BYTES: usize = 16;

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
fn four_lanes<const QUARTET: usize>(beats: &[[u64; WORDS]; 2]) -> Word {
    let lane = |index: usize| (4 * QUARTET + index) % LANES;
    let pair =
        |index: usize| sixteen(&beats[(4 * QUARTET + index) / LANES], first_byte(lane(index) / 2));
    let bytes = _mm256_set_m128i(pair(2), pair(0));
    let byte = |index: usize, more: usize| (place(lane(index)).0 + more) as i8;
    let pick = |i: usize| byte(i / 8, i % 8);
    let pick = _mm256_setr_epi8(
        pick(0),
        pick(1),
        pick(2),
        pick(3),
        pick(4),
        pick(5),
        pick(6),
        pick(7),
        pick(8),
        pick(9),
        pick(10),
        pick(11),
        pick(12),
        pick(13),
        pick(14),
        pick(15),
        pick(16),
        pick(17),
        pick(18),
        pick(19),
        pick(20),
        pick(21),
        pick(22),
        pick(23),
        pick(24),
        pick(25),
        pick(26),
        pick(27),
        pick(28),
        pick(29),
        pick(30),
        pick(31),
    );
    let bit = |index: usize| place(lane(index)).1 as i64;
    let shifts = _mm256_setr_epi64x(bit(0), bit(1), bit(2), bit(3));
    let words = _mm256_srlv_epi64(_mm256_shuffle_epi8(bytes, pick), shifts);
    _mm256_and_si256(words, _mm256_set1_epi64x((1 << LANE_BITS) - 1))
}

/// Adds four lanes to their sums, and returns −1 for each that is below its prime.
#[inline]
#[target_feature(enable = "avx2")]
fn add_four<const QUARTET: usize>(
    sums: &mut [u64; 2 * LANES],
    beats: &[[u64; WORDS]; 2],
    primes: &[u64; 2 * LANES],
) -> Word {
    let lanes = four_lanes::<QUARTET>(beats);
    let sums = &mut sums.as_chunks_mut::<4>().0[QUARTET];
    *sums = words(_mm256_add_epi64(four(sums), lanes));
    _mm256_cmpgt_epi64(four(&primes.as_chunks::<4>().0[QUARTET]), lanes)
}

/// See [`Rns::add_lanes`](crate::cpu::rns::Rns::add_lanes).
#[target_feature(enable = "avx2")]
pub(super) fn add_lanes(sums: &mut [u64], words_in: &[u64], mut primes: LanePrimes<'_>) {
    let Some((bad, sums)) = sums.split_last_mut() else { return };
    let (pairs, last) = words_in.as_chunks::<WORDS>().0.as_chunks::<2>();
    let (sums, last_sums) = sums.as_chunks_mut::<{ 2 * LANES }>();
    let (mut good, mut spare) = (_mm256_setzero_si256(), 0);
    for (sums, beats) in sums.iter_mut().zip(pairs) {
        let Some(primes) = primes.next(2).first_chunk() else {
            unreachable!("primes of twenty lanes")
        };
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
    *bad = bad.wrapping_add(lanes - words(good).iter().sum::<u64>() + spare);
    // One beat may be left: its lanes beside zeros, which are residues.
    if let Some(&beat) = last.first() {
        let (beats, mut lanes) = ([beat, [0; WORDS]], [0; 2 * LANES + 1]);
        lanes[..LANES].copy_from_slice(last_sums);
        lanes[2 * LANES] = *bad;
        let all = beats.as_flattened();
        add_lanes(&mut lanes, all, primes);
        last_sums.copy_from_slice(&lanes[..LANES]);
        *bad = lanes[2 * LANES];
    }
}
