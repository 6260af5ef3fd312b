//! Sets of small numbers, one bit each.

use std::ops::Range;

/// Returns whether `at` is in the set.
pub(super) fn has(words: &[u64], at: usize) -> bool {
    words.get(at / 64).is_some_and(|word| word >> (at % 64) & 1 == 1)
}

/// Adds `at` to the set, whose words reach that far.
pub(super) fn set(words: &mut [u64], at: usize) {
    words[at / 64] |= 1 << (at % 64);
}

/// Returns whether all of a range is in the set.
pub(super) fn has_all(words: &[u64], range: Range<usize>) -> bool {
    masks(range).all(|(at, mask)| words.get(at).is_some_and(|word| word & mask == mask))
}

/// Returns whether any of a range is in the set.
pub(super) fn has_any(words: &[u64], range: Range<usize>) -> bool {
    masks(range).any(|(at, mask)| words.get(at).is_some_and(|word| word & mask != 0))
}

/// Adds a range to the set, whose words reach that far; returns how many were not there.
pub(super) fn set_all(words: &mut [u64], range: Range<usize>) -> u32 {
    let added = masks(range).map(|(at, mask)| {
        let fresh = mask & !words[at];
        words[at] |= mask;
        fresh.count_ones()
    });
    added.sum()
}

/// Iterates over the words of a range, each with the bits that are in it.
fn masks(range: Range<usize>) -> impl Iterator<Item = (usize, u64)> {
    let Range { start, end } = range;
    let words = if start < end { start / 64..end.div_ceil(64) } else { 0..0 };
    words.map(move |word| {
        let (first, last) = (start.saturating_sub(64 * word), (end - 64 * word).min(64));
        (word, u64::MAX << first & u64::MAX >> (64 - last))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_their_numbers() {
        for (start, end) in
            [(0, 0), (3, 3), (0, 64), (5, 9), (60, 70), (64, 192), (1, 191), (150, 149)]
        {
            let mut words = [0; 3];
            for at in [7, 63, 130] {
                set(&mut words, at);
            }
            let before = words;
            let all = || start..end;
            assert_eq!(has_all(&words, all()), all().all(|at| has(&words, at)), "{start} {end}");
            assert_eq!(has_any(&words, all()), all().any(|at| has(&words, at)), "{start} {end}");
            let fresh = all().filter(|at| !has(&words, *at)).count();
            assert_eq!(set_all(&mut words, all()) as usize, fresh, "{start} {end}");
            assert!(
                (0..192).all(|at| has(&words, at) == (all().contains(&at) || has(&before, at)))
            );
        }
        assert!(!has_all(&[u64::MAX], 60..65) && !has_any(&[0], 60..65));
    }
}
