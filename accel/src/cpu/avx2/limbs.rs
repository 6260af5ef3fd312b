//! Limbs of 51 bits in four lanes: what the loops over them are made of. Limbs in an accumulator are signed.

pub(super) use std::arch::x86_64::{
    _mm256_add_epi64 as add, _mm256_and_si256 as and, _mm256_setzero_si256 as zero,
    _mm256_sub_epi64 as sub,
};
use std::{
    arch::x86_64::{
        _mm_cvtsi64_si128, _mm256_and_si256 as only_where, _mm256_cmpgt_epi64,
        _mm256_or_si256 as or, _mm256_permute2x128_si256, _mm256_sll_epi64, _mm256_srl_epi64,
        _mm256_srli_epi64, _mm256_unpackhi_epi64, _mm256_unpacklo_epi64,
    },
    ops::Range,
};

use super::select::LaneDigits;
pub(super) use super::{Quad as Word, four as group, words};
use crate::cpu::{
    backend::{Items, Limbs, Results},
    limb_loops::limb_loops,
};

pub(super) const LANES: usize = 4;
pub(super) const BITS: u32 = 51;
pub(super) const MASK: u64 = (1 << BITS) - 1;

limb_loops!("avx2");

#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn all(limb: u64) -> Word {
    std::arch::x86_64::_mm256_set1_epi64x(limb as i64)
}

/// `x / 2^BITS`, rounded down, of a signed x within ± 2^62: these processors have no such shift.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn carry_of(x: Word) -> Word {
    sub(_mm256_srli_epi64::<{ BITS as i32 }>(add(x, all(1 << 62))), all(1 << (62 - BITS)))
}

#[inline]
#[target_feature(enable = "avx2")]
fn left(x: Word, by: usize) -> Word {
    _mm256_sll_epi64(x, _mm_cvtsi64_si128(by as i64))
}

#[inline]
#[target_feature(enable = "avx2")]
fn right(x: Word, by: usize) -> Word {
    _mm256_srl_epi64(x, _mm_cvtsi64_si128(by as i64))
}

/// Returns all ones where x is not negative.
#[inline]
#[target_feature(enable = "avx2")]
fn not_negative(x: Word) -> Word {
    _mm256_cmpgt_epi64(x, all(u64::MAX))
}

/// Transposes four vectors of four words.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn transpose([a, b, c, d]: [Word; 4]) -> [Word; 4] {
    let low = [_mm256_unpacklo_epi64(a, b), _mm256_unpacklo_epi64(c, d)];
    let high = [_mm256_unpackhi_epi64(a, b), _mm256_unpackhi_epi64(c, d)];
    let first = |[x, y]: [Word; 2]| _mm256_permute2x128_si256::<0x20>(x, y);
    let second = |[x, y]: [Word; 2]| _mm256_permute2x128_si256::<0x31>(x, y);
    [first(low), first(high), second(low), second(high)]
}
