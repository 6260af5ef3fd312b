//! Sets of small numbers, one bit each.

/// Returns whether `at` is in the set.
pub(super) fn has(words: &[u64], at: usize) -> bool {
    words.get(at / 64).is_some_and(|word| word >> (at % 64) & 1 == 1)
}

/// Adds `at` to the set, whose words reach that far.
pub(super) fn set(words: &mut [u64], at: usize) {
    words[at / 64] |= 1 << (at % 64);
}
