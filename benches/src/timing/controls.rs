//! Controls: leaks that a run must see, or it sees nothing. They are the three that are planted the most
//! easily: an early exit, a branch on a bit, a table that a secret indexes.

use std::hint::black_box;

use ciphergram_accel::random::StreamRng;

use super::{
    BATCH,
    subject::{Subject, Words, uniform_into},
};

/// Words of the compared buffers: 512 bytes, the size of a ciphertext.
const WORDS: usize = 64;

/// Times a comparison that returns at the first difference: of equal buffers in class A, of buffers
/// whose first words differ in class B. The classic leak.
#[must_use]
pub fn compare<'a>(rng: &mut StreamRng) -> Box<dyn Subject + 'a> {
    let mut secret = vec![0; WORDS];
    uniform_into(&mut secret, rng);
    let draw = |[_, b]: &mut [Vec<u64>; 2], rng: &mut StreamRng| uniform_into(b, rng);
    let candidates = [secret.clone(), secret.clone()];
    let run = move |guess: &[u64]| {
        black_box(is_equal_vartime(black_box(guess), &secret));
        Ok(())
    };
    Box::new(Words::new(candidates, draw, run))
}

#[inline(never)]
fn is_equal_vartime(a: &[u64], b: &[u64]) -> bool {
    for (a, b) in a.iter().zip(b) {
        if black_box(a) != b {
            return false;
        }
    }
    true
}

/// Times powers of 64-bit words by squares and products, a product only where a bit is set: exponents are 0
/// in class A, uniform in class B.
#[must_use]
pub fn branch<'a>() -> Box<dyn Subject + 'a> {
    uniform_against_zeros(|exponents| {
        exponents.iter().for_each(|&e| {
            black_box(power_vartime(black_box(3), e));
        });
    })
}

#[inline(never)]
fn power_vartime(base: u64, exponent: u64) -> u64 {
    (0..u64::BITS).rev().fold(1u64, |power, bit| {
        let square = power.wrapping_mul(power);
        // What the compiler cannot see through stays a branch.
        if exponent >> bit & 1 == 1 { black_box(square.wrapping_mul(base)) } else { square }
    })
}

/// Entries of a table beyond any cache: 64 MiB, a line of cache each.
const COLD_ENTRIES: usize = 1 << 20;
/// Entries of a table as [powers](super::powers) have, which stays in the nearest cache.
const CACHED_ENTRIES: usize = 1 << 5;
/// Words of an entry.
const ENTRY_WORDS: usize = 8;

/// Times a table that a secret indexes, larger than caches: entry 0 in class A, uniform ones in class B.
#[must_use]
pub fn cold_table<'a>() -> Box<dyn Subject + 'a> {
    let table = table(COLD_ENTRIES);
    uniform_against_zeros(move |digits| {
        black_box(pick_vartime(&table, digits));
    })
}

/// Runs the same over a table that was just read, as one is that was just made: every entry is in the
/// nearest cache, and takes the same time.
#[must_use]
pub fn cached_table<'a>() -> Box<dyn Subject + 'a> {
    let table = table(CACHED_ENTRIES);
    uniform_against_zeros(move |digits| {
        black_box(table.iter().fold(0, |sum, word| sum ^ word));
        black_box(pick_vartime(black_box(&table), digits));
    })
}

fn table(entries: usize) -> Vec<u64> {
    (0..(entries * ENTRY_WORDS) as u64).collect()
}

#[inline(never)]
fn pick_vartime(table: &[u64], digits: &[u64]) -> u64 {
    // Entries are a power of two: a division would take another time for other digits.
    let last = table.len() / ENTRY_WORDS - 1;
    digits.iter().fold(0, |sum, &digit| sum ^ table[(digit as usize & last) * ENTRY_WORDS])
}

/// Makes a subject of secret words: zeros in class A, uniform in class B.
fn uniform_against_zeros<'a>(operation: impl Fn(&[u64]) + 'a) -> Box<dyn Subject + 'a> {
    let draw = |[_, b]: &mut [Vec<u64>; 2], rng: &mut StreamRng| uniform_into(b, rng);
    let run = move |words: &[u64]| {
        operation(black_box(words));
        Ok(())
    };
    Box::new(Words::new([vec![0; BATCH], vec![0; BATCH]], draw, run))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::timing::{
        catalogue::ALL,
        crops::Crops,
        measure::{measure, warm_up},
        subject::Setup,
    };

    /// The test of times can fail: it finds each of the leaks, in far fewer samples than a run takes.
    #[test]
    fn planted_leaks_are_found() {
        let (setup, mut rng) = (Setup::new().unwrap(), StreamRng::from_seed(&[4; 32]));
        for control in ["control-compare", "control-branch", "control-table"] {
            let test = ALL.iter().find(|test| test.name == control).unwrap();
            let mut subject = (test.make)(&setup, &mut rng).unwrap();
            warm_up(&mut *subject, &mut rng).unwrap();
            let samples = measure(&mut *subject, 5_000, Duration::MAX, &mut rng).unwrap();
            let finding = Crops::new(samples.times).strongest().unwrap();
            assert!(finding.leaks(), "{control}: {finding:?}");
        }
    }

    #[test]
    fn the_power_is_one_and_entries_are_picked() {
        assert_eq!(pick_vartime(&table(4), &[1, 6]), 8 ^ 16);
        let powers = [0, 1, 5, 1 << 63].map(|e| power_vartime(3, e));
        assert_eq!(powers, [1, 3, 243, (0..63).fold(3u64, |power, _| power.wrapping_mul(power))]);
    }

    #[test]
    fn the_comparison_compares() {
        assert!(is_equal_vartime(&[1, 2], &[1, 2]));
        assert!(!is_equal_vartime(&[1, 2], &[1, 3]));
    }
}
