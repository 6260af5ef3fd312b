//! Entries of tables by secret digits: every entry is read, permutes and blends pick.

use std::arch::x86_64::{
    __mmask8, _mm512_mask_blend_epi64, _mm512_permutex2var_epi64, _mm512_setr_epi64,
    _mm512_test_epi64_mask,
};

use zeroize::Zeroize;

use super::*;

/// Groups that pick from a shared table at once: entries are loaded once for all of them.
const TOGETHER: usize = 2;

/// The widest digit: tables of 512 entries.
const MAX_WIDTH: usize = 9;

/// A digit of each lane.
pub(in crate::cpu) struct LaneDigits {
    index: Word,
    /// For each bit, the lanes whose digit has it.
    bits: [__mmask8; MAX_WIDTH],
    pub(super) width: usize,
}

impl Drop for LaneDigits {
    fn drop(&mut self) {
        self.index.zeroize();
        self.bits.zeroize();
    }
}

impl LaneDigits {
    #[target_feature(enable = "avx512f")]
    pub(super) fn new(index: Word, width: usize) -> Self {
        let mut bits = [0; MAX_WIDTH];
        for (place, mask) in bits.iter_mut().enumerate().take(width) {
            *mask = _mm512_test_epi64_mask(index, _mm512_set1_epi64(1 << place));
        }
        Self { index, bits, width }
    }
}

/// See [`Backend::pick_own`].
#[target_feature(enable = "avx512f")]
pub(super) fn pick_own(out: &mut [Word], table: &[Word], digits: &LaneDigits) {
    for (out, entries) in out.iter_mut().zip(table.chunks_exact(1 << digits.width)) {
        [*out] = match digits.width {
            1 => own_2(entries, [digits]),
            2 => own_4(entries, [digits]),
            3 => own_8(entries, [digits]),
            4 => own_16(entries, [digits]),
            5 => own_32(entries, [digits]),
            _ => unreachable!("tables of lanes have digits of 1 to 5 bits"),
        };
    }
}

/// See [`Backend::pick_shared`]: limb by limb, so that its entries are read from the first level of
/// cache for all groups but one.
#[target_feature(enable = "avx512f")]
pub(super) fn pick_shared(out: &mut [Word], table: &[Line], digits: &[LaneDigits]) {
    let Some(first) = digits.first() else { return };
    let len = out.len() / digits.len();
    for (limb, entries) in table.chunks_exact(1 << (first.width - 3)).enumerate() {
        for (out, digits) in out.chunks_mut(TOGETHER * len).zip(digits.chunks(TOGETHER)) {
            let digits = std::array::from_fn(|i| digits.get(i).unwrap_or(first));
            let picked = match first.width {
                4 => shared_16(entries, digits),
                5 => shared_32(entries, digits),
                6 => shared_64(entries, digits),
                7 => shared_128(entries, digits),
                8 => shared_256(entries, digits),
                9 => shared_512(entries, digits),
                _ => unreachable!("tables for all lanes have digits of 4 to 9 bits"),
            };
            for (out, picked) in out.chunks_exact_mut(len).zip(picked) {
                out[limb] = picked;
            }
        }
    }
}

/// One of the entries, by the halves that the highest bit of the digit selects. Written out, so
/// that the candidates stay in registers.
macro_rules! by_bit {
    ($place:literal, $whole:ident, $half:ident, $entry:ty, $together:expr) => {
        #[inline]
        #[target_feature(enable = "avx512f")]
        fn $whole(entries: &[$entry], digits: [&LaneDigits; $together]) -> [Word; $together] {
            let (low, high) = entries.split_at(entries.len() / 2);
            let (low, high) = ($half(low, digits), $half(high, digits));
            std::array::from_fn(|i| {
                _mm512_mask_blend_epi64(digits[i].bits[$place], low[i], high[i])
            })
        }
    };
}

#[inline]
#[target_feature(enable = "avx512f")]
fn own_1(entries: &[Word], _digits: [&LaneDigits; 1]) -> [Word; 1] {
    [entries[0]]
}

by_bit!(0, own_2, own_1, Word, 1);
by_bit!(1, own_4, own_2, Word, 1);
by_bit!(2, own_8, own_4, Word, 1);
by_bit!(3, own_16, own_8, Word, 1);
by_bit!(4, own_32, own_16, Word, 1);

/// Picks by permutes, which take the low four bits of a digit.
#[inline]
#[target_feature(enable = "avx512f")]
fn shared_16(entries: &[Line], digits: [&LaneDigits; TOGETHER]) -> [Word; TOGETHER] {
    let (low, high) = (eight(&entries[0].0), eight(&entries[1].0));
    digits.map(|digits| _mm512_permutex2var_epi64(low, digits.index, high))
}

by_bit!(4, shared_32, shared_16, Line, TOGETHER);
by_bit!(5, shared_64, shared_32, Line, TOGETHER);
by_bit!(6, shared_128, shared_64, Line, TOGETHER);
by_bit!(7, shared_256, shared_128, Line, TOGETHER);
by_bit!(8, shared_512, shared_256, Line, TOGETHER);

/// Returns eight words as a vector.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn eight(w: &[u64]) -> Word {
    let [a, b, c, d, e, f, g, h] = crate::words::run(w, 0).map(|w| w as i64);
    _mm512_setr_epi64(a, b, c, d, e, f, g, h)
}

/// Returns the eight integers of a vector.
#[inline(always)]
pub(super) fn words(x: Word) -> [u64; 8] {
    // SAFETY: both are 64 bytes of which every pattern is valid.
    unsafe { std::mem::transmute(x) }
}
