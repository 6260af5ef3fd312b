//! Entries of tables by secret digits: every entry is read, permutes and blends pick.

use std::arch::x86_64::{
    __mmask8, _mm512_mask_blend_epi64, _mm512_permutex2var_epi64, _mm512_setr_epi64,
    _mm512_test_epi64_mask,
};

use super::*;

/// The widest digit: tables of 512 entries.
const MAX_WIDTH: usize = 9;

/// A digit of each lane.
pub(in crate::cpu) struct Digits {
    index: Word,
    /// For each bit, the lanes whose digit has it.
    bits: [__mmask8; MAX_WIDTH],
    pub(super) width: usize,
}

impl Digits {
    #[target_feature(enable = "avx512f")]
    pub(super) fn new(index: Word, width: usize) -> Self {
        let mut bits = [0; MAX_WIDTH];
        for (place, mask) in bits.iter_mut().enumerate().take(width) {
            *mask = _mm512_test_epi64_mask(index, _mm512_set1_epi64(1 << place));
        }
        Self { index, bits, width }
    }
}

/// Limb `i` of a factor.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn limb(factor: &Factor<'_, Ifma>, i: usize) -> Word {
    match factor {
        Factor::Group(group) => group[i],
        Factor::Own { table, digits } => {
            let entries = &table[i << digits.width..][..1 << digits.width];
            match digits.width {
                4 => own::<16>(entries, digits),
                5 => own::<32>(entries, digits),
                _ => unreachable!("tables of lanes have digits of 4 or 5 bits"),
            }
        }
        Factor::Shared { table, digits } => {
            let entries = &table[i << digits.width..][..1 << digits.width];
            match digits.width {
                4 => shared::<1>(entries, digits),
                5 => shared::<2>(entries, digits),
                6 => shared::<4>(entries, digits),
                7 => shared::<8>(entries, digits),
                8 => shared::<16>(entries, digits),
                9 => shared::<32>(entries, digits),
                _ => unreachable!("tables for all lanes have digits of 4 to 9 bits"),
            }
        }
    }
}

/// Halves the candidates by one bit of the digit after the other, from bit `first`.
#[inline]
#[target_feature(enable = "avx512f")]
fn halve<const N: usize>(mut candidates: [Word; N], digits: &Digits, first: usize) -> Word {
    let (mut count, mut place) = (N / 2, first);
    while count > 0 {
        for i in 0..count {
            let (even, odd) = (candidates[2 * i], candidates[2 * i + 1]);
            candidates[i] = _mm512_mask_blend_epi64(digits.bits[place], even, odd);
        }
        (count, place) = (count / 2, place + 1);
    }
    candidates[0]
}

/// One of `N` entries of each lane's own.
#[target_feature(enable = "avx512f")]
fn own<const N: usize>(entries: &[Word], digits: &Digits) -> Word {
    let mut candidates = [_mm512_setzero_si512(); N];
    candidates.copy_from_slice(entries);
    halve(candidates, digits, 0)
}

/// One of `16·N` entries that all lanes share: the permute takes the low four bits of the digit.
#[target_feature(enable = "avx512f")]
fn shared<const N: usize>(entries: &[u64], digits: &Digits) -> Word {
    let mut candidates = [_mm512_setzero_si512(); N];
    for (candidate, entries) in candidates.iter_mut().zip(entries.chunks_exact(16)) {
        let (first, second) = entries.split_at(8);
        *candidate = _mm512_permutex2var_epi64(eight(first), digits.index, eight(second));
    }
    halve(candidates, digits, 4)
}

/// Eight words as a vector.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn eight(w: &[u64]) -> Word {
    let w: &[u64; 8] = match w.try_into() {
        Ok(w) => w,
        Err(_) => unreachable!("eight words"),
    };
    let [a, b, c, d, e, f, g, h] = w.map(|w| w as i64);
    _mm512_setr_epi64(a, b, c, d, e, f, g, h)
}
