//! Beats, one at a time: a beat is a register.

use std::arch::x86_64::{
    _mm512_cmpge_epu64_mask, _mm512_permutex2var_epi64, _mm512_permutexvar_epi8, _mm512_setr_epi64,
    _mm512_sllv_epi64, _mm512_srlv_epi64, _mm512_test_epi64_mask,
};

use super::{
    lazy::subtract_once,
    select::{eight, words},
    *,
};
use crate::{
    beats::{LANE_BITS, LANES, WORDS},
    cpu::rns::Phase,
    ring::{LanePrimes, MAX_PRIMES},
};

/// The ten lanes of a beat: eight, and two with what may be anything above.
type BeatLanes = [Word; 2];

/// Returns eight numbers as a vector, to permute or to shift by.
#[inline]
#[target_feature(enable = "avx512f")]
fn places(f: [usize; 8]) -> Word {
    let [a, b, c, d, e, f, g, h] = f.map(|x| x as i64);
    _mm512_setr_epi64(a, b, c, d, e, f, g, h)
}

/// For each word of a beat, the first of its lanes and that lane's lowest bit that is in it.
const FIRST: [(usize, usize); WORDS] = {
    let mut first = [(0, 0); WORDS];
    let mut w = 0;
    while w < WORDS {
        first[w] = (64 * w / LANE_BITS, 64 * w % LANE_BITS);
        w += 1;
    }
    first
};

/// For each byte of sixteen lanes, of which ten are there, where it is in a beat: the eight bytes
/// from the one that a lane starts in hold all of it. Past the end it is any.
const BYTES: [[u64; 8]; 2] = {
    let mut bytes = [[0; 8]; 2];
    let mut k = 0;
    while k < LANES {
        let mut i = 0;
        while i < 8 {
            bytes[k / 8][k % 8] |= ((LANE_BITS * k / 8 + i) as u64 % 64) << (8 * i);
            i += 1;
        }
        k += 1;
    }
    bytes
};

/// The bit of its first byte that each of them starts with.
const STARTS: [[u64; 8]; 2] = {
    let mut starts = [[0; 8]; 2];
    let mut k = 0;
    while k < LANES {
        starts[k / 8][k % 8] = (LANE_BITS * k % 8) as u64;
        k += 1;
    }
    starts
};

#[inline]
#[target_feature(enable = "avx512f")]
fn pack_beat([low, high]: BeatLanes) -> Word {
    let lane =
        |k: usize| _mm512_permutex2var_epi64(low, places(FIRST.map(|(lane, _)| lane + k)), high);
    // A shift by 64 or more gives zero. The last word has two lanes, and no third one.
    let right = places(FIRST.map(|(_, bit)| bit));
    let left = places(FIRST.map(|(_, bit)| LANE_BITS - bit));
    let third = |(lane, bit)| if lane + 2 < LANES { 2 * LANE_BITS - bit } else { 64 };
    let further = places(FIRST.map(third));
    let two = _mm512_or_si512(_mm512_srlv_epi64(lane(0), right), _mm512_sllv_epi64(lane(1), left));
    _mm512_or_si512(two, _mm512_sllv_epi64(lane(2), further))
}

#[inline]
#[target_feature(enable = "avx512f,avx512vbmi")]
fn unpack_beat(beat: Word) -> BeatLanes {
    let mask = all((1 << LANE_BITS) - 1);
    let mut lanes = [beat; 2];
    for ((lanes, bytes), start) in lanes.iter_mut().zip(&BYTES).zip(&STARTS) {
        let bytes = _mm512_permutexvar_epi8(eight(bytes), beat);
        *lanes = _mm512_and_si512(_mm512_srlv_epi64(bytes, eight(start)), mask);
    }
    lanes
}

/// See [`Rns::pack`](crate::cpu::rns::Rns::pack).
#[target_feature(enable = "avx512f")]
pub(super) fn pack(out: &mut [u64], lanes: &[u64]) {
    for (index, beat) in out.as_chunks_mut::<WORDS>().0.iter_mut().enumerate() {
        let lanes = &lanes[index * LANES..][..16];
        *beat = words(pack_beat([eight(&lanes[..8]), eight(&lanes[8..])]));
    }
}

/// See [`Rns::unpack`](crate::cpu::rns::Rns::unpack).
#[target_feature(enable = "avx512f,avx512vbmi")]
pub(super) fn unpack(lanes: &mut [u64], words_in: &[u64]) {
    for (index, beat) in words_in.as_chunks::<WORDS>().0.iter().enumerate() {
        let [low, high] = unpack_beat(eight(beat));
        let lanes = &mut lanes[index * LANES..][..16];
        lanes[..8].copy_from_slice(&words(low));
        lanes[8..].copy_from_slice(&words(high));
    }
}

/// Returns the primes of the lanes of a beat that starts with each of `primes`.
#[inline]
#[target_feature(enable = "avx512f")]
fn phases(primes: &[u64]) -> [BeatLanes; MAX_PRIMES] {
    let mut lanes = [0; MAX_PRIMES + 16];
    lanes.iter_mut().zip(primes.iter().cycle()).for_each(|(lane, &q)| *lane = q);
    let mut phases = [[_mm512_setzero_si512(); 2]; MAX_PRIMES];
    for (phase, q) in phases.iter_mut().enumerate().take(primes.len()) {
        *q = [eight(&lanes[phase..][..8]), eight(&lanes[phase + 8..][..8])];
    }
    phases
}

/// See [`Rns::first_bad_lanes`](crate::cpu::rns::Rns::first_bad_lanes).
#[target_feature(enable = "avx512f,avx512vbmi")]
pub(super) fn first_bad_lanes(out: &mut [u64], words: &[u64], primes: &[u64]) {
    let (phases, mut phase) = (phases(primes), Phase::new(primes.len()));
    // The bits that are in no lane.
    let spare = _mm512_setr_epi64(0, 0, 0, 0, 0, 0, 0, 3 << 62);
    let beats = words.as_chunks::<WORDS>().0;
    let each = beats.len().checked_div(out.len()).unwrap_or(0).max(1);
    let none = (each * LANES) as u64;
    out.fill(none);
    for (index, beat) in beats.iter().enumerate() {
        let (beat, q) = (eight(beat), phases[phase.next()]);
        let [low, high] = unpack_beat(beat);
        let large = [_mm512_cmpge_epu64_mask(low, q[0]), _mm512_cmpge_epu64_mask(high, q[1])];
        let spare = _mm512_test_epi64_mask(beat, spare);
        if large[0] | (large[1] & 0b11) | spare != 0 && out[index / each] == none {
            let bad = u32::from(large[0]) | u32::from(large[1] & 0b11) << 8;
            let lane = if spare != 0 { LANES - 1 } else { bad.trailing_zeros() as usize };
            out[index / each] = (index % each * LANES + lane) as u64;
        }
    }
}

/// See [`Rns::add_lanes`](crate::cpu::rns::Rns::add_lanes).
#[target_feature(enable = "avx512f,avx512vbmi")]
pub(super) fn add_lanes(sums: &mut [u64], words_in: &[u64], primes: &[LanePrimes]) {
    let Some((bad, sums)) = sums.split_last_mut() else { return };
    let mut count = 0;
    let beats = words_in.as_chunks::<WORDS>().0;
    let sums = sums.as_chunks_mut::<LANES>().0.iter_mut();
    for ((sums, beat), q) in sums.zip(beats).zip(primes.iter().cycle()) {
        let [low, high] = unpack_beat(eight(beat));
        let large = [
            _mm512_cmpge_epu64_mask(low, eight(&q[..8])),
            _mm512_cmpge_epu64_mask(high, eight(&q[8..][..8])) & 0b11,
        ];
        let sum = words(_mm512_add_epi64(low, eight(&sums[..8])));
        let [a, b, ..] = words(high);
        sums[8] = sums[8].wrapping_add(a);
        sums[9] = sums[9].wrapping_add(b);
        sums[..8].copy_from_slice(&sum);
        let spare = u32::from(beat[WORDS - 1] >> 62 != 0);
        count += large[0].count_ones() + large[1].count_ones() + spare;
    }
    *bad = bad.wrapping_add(count.into());
}

/// See [`Rns::add_beats`](crate::cpu::rns::Rns::add_beats). Every lane holds a residue below 2^50,
/// so a sum fits its 51 bits before it is reduced.
#[target_feature(enable = "avx512f,avx512vbmi")]
pub(super) fn add_beats(out: &mut [u64], a: &[u64], b: &[u64], primes: &[u64]) {
    let phases = phases(primes);
    let mut phase = Phase::new(primes.len());
    let (a, b) = (a.as_chunks::<WORDS>().0, b.as_chunks::<WORDS>().0);
    for ((out, a), b) in out.as_chunks_mut::<WORDS>().0.iter_mut().zip(a).zip(b) {
        let (x, y, q) = (unpack_beat(eight(a)), unpack_beat(eight(b)), phases[phase.next()]);
        let low = subtract_once(_mm512_add_epi64(x[0], y[0]), q[0]);
        let high = subtract_once(_mm512_add_epi64(x[1], y[1]), q[1]);
        *out = words(pack_beat([low, high]));
    }
}
