//! Limbs of 52 bits in eight lanes: what the loops over them are made of.

use std::arch::x86_64::{
    __mmask8, _mm_cvtsi64_si128, _mm512_and_si512 as and, _mm512_cmpge_epi64_mask,
    _mm512_maskz_mov_epi64 as only_where, _mm512_or_si512 as or, _mm512_shuffle_i64x2,
    _mm512_sll_epi64, _mm512_srl_epi64, _mm512_sub_epi64 as sub, _mm512_unpackhi_epi64,
    _mm512_unpacklo_epi64,
};
pub(super) use std::arch::x86_64::{_mm512_add_epi64 as add, _mm512_setzero_si512 as zero};

pub(super) use super::select::words;
use super::*;

limb_loops!("avx512f,avx512dq");

#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn group(words: &[u64; LANES]) -> Word {
    select::eight(words)
}

/// `x / 2^BITS`, rounded down, of a signed x.
#[inline]
#[target_feature(enable = "avx512f")]
fn carry_of(x: Word) -> Word {
    _mm512_srai_epi64::<BITS>(x)
}

#[inline]
#[target_feature(enable = "avx512f")]
fn left(x: Word, by: usize) -> Word {
    _mm512_sll_epi64(x, _mm_cvtsi64_si128(by as i64))
}

#[inline]
#[target_feature(enable = "avx512f")]
fn right(x: Word, by: usize) -> Word {
    _mm512_srl_epi64(x, _mm_cvtsi64_si128(by as i64))
}

#[inline]
#[target_feature(enable = "avx512f")]
fn not_negative(x: Word) -> __mmask8 {
    _mm512_cmpge_epi64_mask(x, zero())
}

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
