//! Between words of 64 bits, item by item, and limbs of 52, lane by lane.

use std::arch::x86_64::{
    _mm_cvtsi64_si128, _mm512_shrdv_epi64, _mm512_shuffle_i64x2, _mm512_sll_epi64,
    _mm512_srl_epi64, _mm512_unpackhi_epi64, _mm512_unpacklo_epi64,
};

use zeroize::Zeroizing;

use super::*;

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

/// Returns eight words of an item from `at` on, zeros past its end.
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

/// See [`Backend::load`]: limb `l` is bits `52·l − shift ..` of the item, which lie in two words. A
/// shift is at most 64.
#[target_feature(enable = "avx512f,avx512vbmi2")]
pub(super) fn load(out: &mut [Word], items: &Items<'_>, first: usize, shift: u32) {
    let lanes: [&[u64]; 8] = std::array::from_fn(|lane| items.item(first + lane));
    let mask = _mm512_set1_epi64(MASK);
    // Eight words, and the one before them.
    let mut window = Zeroizing::new([_mm512_setzero_si512(); 9]);
    let mut rest = out.iter_mut();
    // The first bit of the next limb, from the first word of the window.
    let mut at = 64 - i64::from(shift);
    // Past the last word there are zeros.
    for block in 0..=items.each.div_ceil(8) {
        let rows = std::array::from_fn(|lane| words_of(lanes[lane], 8 * block));
        window[1..].copy_from_slice(&transpose(rows));
        while at < 8 * 64 {
            let Some(out) = rest.next() else { return };
            let (word, bit) = ((at / 64) as usize, _mm512_set1_epi64(at % 64));
            let limb = _mm512_shrdv_epi64(window[word], window[word + 1], bit);
            *out = _mm512_and_si512(limb, mask);
            at += i64::from(BITS);
        }
        at -= 8 * 64;
        window[0] = window[8];
    }
    rest.for_each(|out| *out = _mm512_setzero_si512());
}

/// See [`Backend::store`]: bits `64·w ..` lie in two or three limbs.
#[target_feature(enable = "avx512f")]
pub(super) fn store(out: &mut Results<'_>, part: Range<usize>, x: &[Word]) {
    let zero = _mm512_setzero_si512();
    let up = |l: usize, by: i64| match x.get(l) {
        Some(&limb) => _mm512_sll_epi64(limb, _mm_cvtsi64_si128(by)),
        None => zero,
    };
    for at in (0..part.len()).step_by(8) {
        let columns = std::array::from_fn(|j| {
            let bit = 64 * (at + j);
            let (l, off) = (bit / BITS as usize, (bit % BITS as usize) as i64);
            let first = x.get(l).map_or(zero, |&x| _mm512_srl_epi64(x, _mm_cvtsi64_si128(off)));
            // A shift by 64 or more gives zero.
            _mm512_or_si512(first, _mm512_or_si512(up(l + 1, 52 - off), up(l + 2, 104 - off)))
        });
        let rows = transpose(columns);
        for (item, row) in out.words.chunks_mut(out.each).zip(rows) {
            let item = &mut item[part.clone()][at..];
            match item.first_chunk_mut::<8>() {
                Some(words) => *words = select::words(row),
                None => item.copy_from_slice(&select::words(row)[..item.len()]),
            }
        }
    }
}

/// See [`Backend::digits`].
#[target_feature(enable = "avx512f,avx512dq")]
pub(super) fn digits(words: &[Word], at: usize, bits: usize, width: usize) -> LaneDigits {
    let (word, bit) = (at / 64, (at % 64) as i64);
    let next = words.get(word + 1).map_or(_mm512_setzero_si512(), |&w| w);
    let below = _mm512_srl_epi64(words[word], _mm_cvtsi64_si128(bit));
    let above = _mm512_sll_epi64(next, _mm_cvtsi64_si128(64 - bit));
    let index = _mm512_or_si512(below, above);
    LaneDigits::new(_mm512_and_si512(index, _mm512_set1_epi64((1 << bits) - 1)), width)
}

pub(super) fn lane(x: Word, lane: usize) -> u64 {
    select::words(x)[lane]
}
