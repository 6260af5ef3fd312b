//! Between words of 64 bits, item by item, and limbs of 52, lane by lane.

use std::arch::x86_64::{
    _mm_cvtsi64_si128, _mm512_shuffle_i64x2, _mm512_sll_epi64, _mm512_srl_epi64,
    _mm512_unpackhi_epi64, _mm512_unpacklo_epi64,
};

use super::*;
use crate::modulus::MAX_MODULUS_BITS;

/// Words of the largest item: a product of two residues.
const MAX_WORDS: usize = 2 * MAX_MODULUS_BITS as usize / 64;

/// Transposes eight vectors of eight words.
#[inline]
#[target_feature(enable = "avx512f")]
fn transpose(r: [Word; 8]) -> [Word; 8] {
    // Pairs of rows, then quarters.
    let low = |i: usize| _mm512_unpacklo_epi64(r[2 * i], r[2 * i + 1]);
    let high = |i: usize| _mm512_unpackhi_epi64(r[2 * i], r[2 * i + 1]);
    let quarters = |t: [Word; 4]| {
        let even = |a, b| _mm512_shuffle_i64x2::<0b10_00_10_00>(a, b);
        let odd = |a, b| _mm512_shuffle_i64x2::<0b11_01_11_01>(a, b);
        let (e, o) = ([even(t[0], t[1]), even(t[2], t[3])], [odd(t[0], t[1]), odd(t[2], t[3])]);
        [even(e[0], e[1]), even(o[0], o[1]), odd(e[0], e[1]), odd(o[0], o[1])]
    };
    let even = quarters([low(0), low(1), low(2), low(3)]);
    let odd = quarters([high(0), high(1), high(2), high(3)]);
    [even[0], odd[0], even[1], odd[1], even[2], odd[2], even[3], odd[3]]
}

/// Eight words of an item from `at` on, zeros past its end.
#[inline]
#[target_feature(enable = "avx512f")]
fn words_of(item: &[u64], at: usize) -> Word {
    match item.get(at..at + 8) {
        Some(words) => select::eight(words),
        None => {
            let mut words = [0; 8];
            let rest = item.get(at..).unwrap_or(&[]);
            words[..rest.len()].copy_from_slice(rest);
            select::eight(&words)
        }
    }
}

/// See [`Backend::load_words`].
#[target_feature(enable = "avx512f")]
pub(super) fn load_words(out: &mut [Word], items: &Items<'_>, first: usize) {
    let lanes: [&[u64]; 8] = std::array::from_fn(|lane| items.item(first + lane));
    for (block, out) in out.chunks_mut(8).enumerate() {
        let mut rows = [_mm512_setzero_si512(); 8];
        rows.iter_mut().zip(&lanes).for_each(|(row, item)| *row = words_of(item, 8 * block));
        let columns = transpose(rows);
        out.copy_from_slice(&columns[..out.len()]);
    }
}

/// See [`Backend::load`]: limb `l` is bits `52·l − shift ..` of the item.
#[target_feature(enable = "avx512f")]
pub(super) fn load(out: &mut [Word], items: &Items<'_>, first: usize, shift: u32) {
    let zero = _mm512_setzero_si512();
    let mut room = [zero; MAX_WORDS];
    let words = &mut room[..items.each];
    load_words(words, items, first);
    let word = |i: i64| usize::try_from(i).ok().and_then(|i| words.get(i)).map_or(zero, |&w| w);
    for (l, out) in out.iter_mut().enumerate() {
        let at = i64::from(BITS) * l as i64 - i64::from(shift);
        let (i, bit) = (at.div_euclid(64), at.rem_euclid(64));
        let below = _mm512_srl_epi64(word(i), _mm_cvtsi64_si128(bit));
        // A shift by 64 gives zero.
        let above = _mm512_sll_epi64(word(i + 1), _mm_cvtsi64_si128(64 - bit));
        *out = _mm512_and_si512(_mm512_or_si512(below, above), _mm512_set1_epi64(MASK));
    }
    wipe(words);
}

/// See [`Backend::store`].
#[target_feature(enable = "avx512f")]
pub(super) fn store(out: &mut [u64], each: usize, x: &[Word]) {
    let zero = _mm512_setzero_si512();
    let limb = |l: usize| x.get(l).map_or(zero, |&x| x);
    let up = |l: usize, by: i64| _mm512_sll_epi64(limb(l), _mm_cvtsi64_si128(by));
    for at in (0..each).step_by(8) {
        let mut columns = [zero; 8];
        for (j, column) in columns.iter_mut().enumerate() {
            let bit = 64 * (at + j);
            let (l, off) = (bit / BITS as usize, (bit % BITS as usize) as i64);
            let first = _mm512_srl_epi64(limb(l), _mm_cvtsi64_si128(off));
            let next = _mm512_or_si512(up(l + 1, 52 - off), up(l + 2, 104 - off));
            *column = _mm512_or_si512(first, next);
        }
        let rows = transpose(columns);
        let words = (each - at).min(8);
        for (item, row) in out.chunks_mut(each).zip(rows) {
            item[at..at + words].copy_from_slice(&lanes(row)[..words]);
        }
    }
}

/// See [`Backend::digits`].
#[target_feature(enable = "avx512f,avx512dq")]
pub(super) fn digits(words: &[Word], at: usize, bits: usize, width: usize) -> Digits {
    let (word, bit) = (at / 64, (at % 64) as i64);
    let next = words.get(word + 1).map_or(_mm512_setzero_si512(), |&w| w);
    let below = _mm512_srl_epi64(words[word], _mm_cvtsi64_si128(bit));
    let above = _mm512_sll_epi64(next, _mm_cvtsi64_si128(64 - bit));
    let index = _mm512_or_si512(below, above);
    Digits::new(_mm512_and_si512(index, _mm512_set1_epi64((1 << bits) - 1)), width)
}

fn lanes(x: Word) -> [u64; 8] {
    // SAFETY: both are 64 bytes, and all bit patterns are valid in both.
    unsafe { std::mem::transmute::<Word, [u64; 8]>(x) }
}

pub(super) fn lane(x: Word, lane: usize) -> u64 {
    lanes(x)[lane]
}
