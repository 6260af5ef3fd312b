//! Fields of any width in little-endian words.

/// The `bits` bits of `words` from bit `at`, `bits` at most 64.
pub(crate) fn field(words: &[u64], at: usize, bits: u32) -> u64 {
    let (word, bit) = (at / 64, at % 64);
    let low = words[word] >> bit;
    let high = match words.get(word + 1) {
        Some(&next) if bit > 0 => next << (64 - bit),
        _ => 0,
    };
    (low | high) & (u64::MAX >> (64 - bits))
}

/// Adds `value` from bit `at` of `words`, where its bits must be zero; what passes the end is lost.
pub(crate) fn set_field(words: &mut [u64], at: usize, value: u64) {
    let (word, bit) = (at / 64, at % 64);
    words[word] |= value << bit;
    if let Some(next) = words.get_mut(word + 1).filter(|_| bit > 0) {
        *next |= value >> (64 - bit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn fields_round_trip(bits in 1u32..=64, count in 1usize..20, seed in any::<u64>()) {
            let mut words = vec![0; (bits as usize * count).div_ceil(64)];
            let value = |i: usize| {
                seed.wrapping_mul(2 * i as u64 + 1).rotate_left(i as u32) >> (64 - bits)
            };
            (0..count).for_each(|i| set_field(&mut words, i * bits as usize, value(i)));
            for i in 0..count {
                prop_assert_eq!(field(&words, i * bits as usize, bits), value(i));
            }
        }
    }
}
