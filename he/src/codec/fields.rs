//! Fields of one width, one after the other in little-endian words.

/// The layout of the fields of a slot.
pub(crate) struct Fields {
    skipped: usize,
    bits: u32,
}

impl Fields {
    /// Fields of `bits` bits, from 1 to 63, above `skipped` bits.
    pub(crate) fn new(skipped: u32, bits: u32) -> Self {
        Self { skipped: skipped as usize, bits }
    }

    /// Returns the word and the bit of it where field `index` starts.
    fn place(&self, index: usize) -> (usize, u32) {
        let at = self.skipped + index * self.bits as usize;
        (at / 64, at as u32 % 64)
    }

    /// Adds values to `words`, which must be zero there, from field `first` on.
    #[inline]
    pub(crate) fn set(&self, words: &mut [u64], first: usize, values: &[u32]) {
        let (mut word, mut bit) = self.place(first);
        let mut held = words.get(word).copied().unwrap_or(0);
        for &value in values {
            held |= u64::from(value) << bit;
            bit += self.bits;
            if bit >= 64 {
                words[word] = held;
                (word, bit) = (word + 1, bit - 64);
                // What did not fit; nothing if all did.
                held = u64::from(value) >> (self.bits - bit);
            }
        }
        if let Some(word) = words.get_mut(word) {
            *word = held;
        }
    }

    /// Returns the fields of `words` from `first` on; zeros past the end.
    #[inline]
    pub(crate) fn take<'a>(
        &self,
        words: &'a [u64],
        first: usize,
    ) -> impl Iterator<Item = u64> + use<'a> {
        let (bits, (mut word, mut bit)) = (self.bits, self.place(first));
        let mask = (1 << bits) - 1;
        std::iter::repeat_with(move || {
            let at = |word: usize| words.get(word).copied().unwrap_or(0);
            let field = (at(word) >> bit | at(word + 1) << 1 << (63 - bit)) & mask;
            bit += bits;
            (word, bit) = (word + bit as usize / 64, bit % 64);
            field
        })
    }

    /// Returns the bits from field `first` on, joined by OR: zero if all are.
    pub(crate) fn any_from(&self, words: &[u64], first: usize) -> u64 {
        let (word, bit) = self.place(first);
        let Some((low, above)) = words.get(word..).and_then(<[u64]>::split_first) else { return 0 };
        above.iter().fold(low >> bit, |any, word| any | word)
    }
}

/// Adds `value` from bit `bit` on; what passes the end is zero.
pub(crate) fn add_bits(words: &mut [u64], bit: u32, value: u128) {
    let (word, bit) = (bit as usize / 64, bit % 64);
    let parts = [
        (value as u64) << bit,
        (value >> 1 >> (63 - bit)) as u64,
        (value >> 64 >> 1 >> (63 - bit)) as u64,
    ];
    for (word, part) in words.iter_mut().skip(word).zip(parts) {
        *word |= part;
    }
}

/// Returns bits `from .. from + count` of `words`, at most 128.
pub(crate) fn bits_at(words: &[u64], from: u32, count: u32) -> u128 {
    let (word, bit) = (from as usize / 64, from % 64);
    let [low, middle, high] =
        [word, word + 1, word + 2].map(|word| words.get(word).map_or(0, |&word| word.into()));
    let all = (low | middle << 64) >> bit | (high << 1 << (127 - bit));
    all & u128::MAX.checked_shr(128 - count).unwrap_or(0)
}

/// Returns whether bits `from .. to` of `words` are all zero.
pub(crate) fn is_zero_between(words: &[u64], from: usize, to: usize) -> bool {
    let any = words.iter().enumerate().fold(0, |any, (i, word)| {
        // The part of this word that is meant.
        let [start, end] = [from, to].map(|bit| bit.clamp(64 * i, 64 * i + 64) - 64 * i);
        any | if start < end { (word >> start) << (64 - (end - start)) } else { 0 }
    });
    any == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn fields_round_trip(
            bits in 1u32..=32,
            skipped in 0u32..130,
            count in 1usize..20,
            first in 0usize..20,
            seed in any::<u32>(),
        ) {
            let first = first % count;
            let fields = Fields::new(skipped, bits);
            let mut words = vec![0; (skipped as usize + bits as usize * count).div_ceil(64)];
            let value = |i: usize| {
                seed.wrapping_mul(2 * i as u32 + 1).rotate_left(i as u32) >> (32 - bits)
            };
            let values: Vec<_> = (first..count).map(value).collect();
            fields.set(&mut words, first, &values);
            let bit = |at: usize| words[at / 64] >> (at % 64) & 1;
            let start = skipped as usize + first * bits as usize;
            prop_assert!((0..start).all(|at| bit(at) == 0));
            for (i, value) in values.iter().enumerate() {
                for b in 0..bits as usize {
                    prop_assert_eq!(bit(start + i * bits as usize + b), u64::from(value >> b & 1));
                }
            }
            let last = count - 1;
            prop_assert_eq!(fields.any_from(&words, last) == 0, values[last - first] == 0);
            prop_assert_eq!(fields.any_from(&words, count), 0);
            // Behind them another slot, all ones.
            let ones = [&words[..], &[u64::MAX; 2]].concat();
            prop_assert!(fields.any_from(&ones, last) != 0);
            for (i, &value) in (first..).zip(&values) {
                prop_assert_eq!(fields.take(&words, i).next(), Some(value.into()));
            }
            let all: Vec<_> = fields.take(&ones, first).take(values.len()).collect();
            prop_assert!(all.iter().eq(&values.iter().map(|&value| value.into()).collect::<Vec<u64>>()));
            prop_assert_eq!(fields.take(&ones, 64 * ones.len()).next(), Some(0));
        }
    }

    proptest! {
        #[test]
        fn bits_are_where_they_were_added(
            value in any::<u128>(), bits in 1u32..=128, at in 0u32..200, word in any::<u64>(),
        ) {
            let value = value >> (128 - bits);
            let mut words = [0; 6];
            add_bits(&mut words, at, value);
            prop_assert_eq!(bits_at(&words, at, bits), value);
            prop_assert_eq!(bits_at(&words, at, 0), 0);
            prop_assert!(is_zero_between(&words, 0, at as usize));
            prop_assert!(is_zero_between(&words, (at + bits) as usize, 384));
            // Beside other bits.
            words[0] |= word & ((1u64 << at.min(63)) - 1);
            words[5] = word;
            prop_assert_eq!(bits_at(&words, at, bits.min(320 - at)), value & (u128::MAX >> (128 - bits.min(320 - at))));
        }
    }

    #[test]
    fn every_bit_between_is_seen_and_none_beside() {
        for bit in 0..192 {
            let mut words = [0u64; 3];
            words[bit / 64] |= 1 << (bit % 64);
            for (from, to) in [(0, 192), (5, 5), (64, 128), (63, 65), (100, 192), (1, 191)] {
                let seen = (from..to).contains(&bit);
                assert_eq!(is_zero_between(&words, from, to), !seen, "{bit} of {from} .. {to}");
            }
        }
    }
}
