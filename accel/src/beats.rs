//! The wire form of RNS residues: ten 51-bit lanes to a 512-bit beat.
//!
//! Lane `i` of a beat occupies bits `51·i .. 51·(i+1)`; bits 510 and 511 are zero. A residue has at
//! most 50 bits, so a lane also holds the carry of one addition. The same beat is an AVX-512
//! register, a shader's load and one cycle of a NIC's 512-bit bus. Residues lie coefficient-major:
//! the limbs of coefficient 0, then those of coefficient 1, so lane `i` of a run of beats belongs
//! to limb `i mod L`.

/// Residues in one beat.
pub const LANES: usize = 10;
/// Bits of one lane.
pub const LANE_BITS: usize = 51;
/// `u64` words of one beat.
pub const WORDS: usize = 8;
/// Bytes of one beat on the wire.
pub const BYTES: usize = 64;

const LANE_MASK: u64 = (1 << LANE_BITS) - 1;

/// Returns the fewest beats that hold whole coefficients of `limbs` residues each: what a
/// coefficient begins or ends with never stands in another unit.
#[must_use]
pub fn beats_per_unit(limbs: usize) -> usize {
    (1..limbs).find(|count| (count * LANES).is_multiple_of(limbs)).unwrap_or(limbs)
}

/// Returns lane `index` of one beat.
#[inline]
#[must_use]
pub fn lane(beat: &[u64], index: usize) -> u64 {
    let (word, bit) = (LANE_BITS * index / 64, LANE_BITS * index % 64);
    let low = beat[word] >> bit;
    let high = if bit + LANE_BITS > 64 { beat[word + 1] << (64 - bit) } else { 0 };
    (low | high) & LANE_MASK
}

/// Adds `value` into lane `index`, which must be zero.
pub fn set_lane(beat: &mut [u64], index: usize, value: u64) {
    let (word, bit) = (LANE_BITS * index / 64, LANE_BITS * index % 64);
    beat[word] |= value << bit;
    if bit + LANE_BITS > 64 {
        beat[word + 1] |= value >> (64 - bit);
    }
}

/// Returns the first lane of `words` (whole beats) that is not below its prime, if any; a beat with
/// one of its two spare bits set counts as one whose last lane is bad. The step
/// [`first_bad_lane`](crate::Builder::first_bad_lane) is quicker.
#[must_use]
pub fn first_bad_lane(words: &[u64], primes: &[u64]) -> Option<usize> {
    words.chunks(WORDS).enumerate().find_map(|(b, beat)| {
        let spare = beat.len() < WORDS || beat[WORDS - 1] >> 62 != 0;
        let bad = |&i: &usize| lane(beat, i) >= primes[(b * LANES + i) % primes.len()];
        if spare {
            Some(b * LANES + LANES - 1)
        } else {
            (0..LANES).find(bad).map(|i| b * LANES + i)
        }
    })
}

/// The most additions of a residue, which is below 2^50, that a word has room for.
pub const MAX_ADDITIONS: u32 = 1 << 14;

/// Returns the words of sums of the lanes of `beats` beats: one for each lane, and one that counts what is no residue.
#[must_use]
pub fn lane_words(beats: usize) -> usize {
    beats * LANES + 1
}

/// Adds the lanes of `words` (whole beats) to words of their own, wrapping; and to one behind them the number of lanes
/// that are not below their prime, and of beats with one of their spare bits set. So [`take_lanes`] can take back what
/// was out of range. The definition; the step [`add_lanes`](crate::Builder::add_lanes) is quicker.
pub fn add_lanes(sums: &mut [u64], words: &[u64], primes: &[u64]) {
    each_lane(sums, words, primes, u64::wrapping_add);
}

/// Reduces sums of lanes, and packs them into `out` (whole beats).
pub fn reduce_lanes(out: &mut [u64], sums: &[u64], primes: &[u64]) {
    out.fill(0);
    let mut primes = primes.iter().cycle();
    for (beat, sums) in out.chunks_exact_mut(WORDS).zip(sums.chunks_exact(LANES)) {
        for ((index, sum), q) in sums.iter().enumerate().zip(primes.by_ref()) {
            set_lane(beat, index, sum % q);
        }
    }
}

/// Undoes [`add_lanes`].
pub fn take_lanes(sums: &mut [u64], words: &[u64], primes: &[u64]) {
    each_lane(sums, words, primes, u64::wrapping_sub);
}

fn each_lane(sums: &mut [u64], words: &[u64], primes: &[u64], f: fn(u64, u64) -> u64) {
    let Some((bad, sums)) = sums.split_last_mut() else { return };
    let mut primes = primes.iter().cycle();
    for (sums, beat) in sums.chunks_exact_mut(LANES).zip(words.chunks_exact(WORDS)) {
        *bad = f(*bad, u64::from(beat[WORDS - 1] >> 62 != 0));
        for ((index, sum), &q) in sums.iter_mut().enumerate().zip(primes.by_ref()) {
            let lane = lane(beat, index);
            *sum = f(*sum, lane);
            *bad = f(*bad, u64::from(lane >= q));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{Beats, ring::Ring};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn lanes_round_trip(values in prop::array::uniform10(0u64..1 << 51)) {
            let mut beat = [0u64; WORDS];
            values.iter().enumerate().for_each(|(i, &v)| set_lane(&mut beat, i, v));
            prop_assert_eq!(beat[7] >> 62, 0);
            for (i, &v) in values.iter().enumerate() {
                prop_assert_eq!(lane(&beat, i), v);
            }
        }
    }

    #[test]
    fn units_hold_whole_coefficients() {
        assert_eq!([1, 2, 3, 4, 5, 6, 7, 8].map(beats_per_unit), [1, 1, 3, 2, 1, 3, 7, 4]);
    }

    #[test]
    fn bad_lanes_are_found_by_index() {
        let ring = Arc::new(Ring::new(16, &[193, 257]).unwrap());
        let mut words = vec![0u64; 2 * WORDS];
        set_lane(&mut words[WORDS..], 3, 256);
        assert_eq!(first_bad_lane(&words, ring.primes()), None);
        set_lane(&mut words[WORDS..], 4, 193);
        assert_eq!(first_bad_lane(&words, ring.primes()), Some(14));
        words[7] = 1 << 63;
        assert_eq!(first_bad_lane(&words, ring.primes()), Some(9));
        assert_eq!(Beats::try_from_words(ring.clone(), words).err(), Some(9));
        assert_eq!(Beats::try_from_words(ring, vec![0; 7]).err(), Some(9));
    }
}
