//! Sums of products of numbers below 2^52, eight at a time: see [`Dot`].

use std::arch::x86_64::_mm512_setr_epi64;

use super::{select::words, *};
use crate::dot::Dot;

/// Returns the kernels, if the processor has the instructions.
pub(in crate::cpu) fn dot() -> Option<Dot> {
    // They are handed out only here.
    Ifma::detect()
        .map(|_| Dot::new(|r, x| kernel!(of_u32(r, x)), |r, x, o| kernel!(of_i64(r, x, o))))
}

#[target_feature(enable = "avx512f,avx512ifma")]
fn of_u32(coefficients: &[u64], values: &[u32]) -> u128 {
    let count = coefficients.len().min(values.len());
    let ((coefficients, r), (values, x)) =
        (coefficients[..count].as_chunks::<8>(), values[..count].as_chunks::<8>());
    let mut halves = [_mm512_setzero_si512(); 2];
    for (r, x) in coefficients.iter().zip(values) {
        halves = add(halves, eight(r.map(|r| r as i64)), eight(x.map(i64::from)));
    }
    total(halves) + Dot::PORTABLE.of_u32(r, x)
}

#[target_feature(enable = "avx512f,avx512ifma")]
fn of_i64(coefficients: &[u64], values: &[i64], offset: i64) -> u128 {
    let count = coefficients.len().min(values.len());
    let ((coefficients, r), (values, x)) =
        (coefficients[..count].as_chunks::<8>(), values[..count].as_chunks::<8>());
    let (mut halves, offsets) = ([_mm512_setzero_si512(); 2], _mm512_set1_epi64(offset));
    for (r, x) in coefficients.iter().zip(values) {
        let x = _mm512_add_epi64(eight(*x), offsets);
        halves = add(halves, eight(r.map(|r| r as i64)), x);
    }
    total(halves) + Dot::PORTABLE.of_i64(r, x, offset)
}

/// Adds eight products to their low and high halves, lane by lane.
#[inline]
#[target_feature(enable = "avx512f,avx512ifma")]
fn add([lows, highs]: [Word; 2], r: Word, x: Word) -> [Word; 2] {
    [low(lows, r, x), high(highs, r, x)]
}

#[inline]
#[target_feature(enable = "avx512f")]
fn eight([a, b, c, d, e, f, g, h]: [i64; 8]) -> Word {
    _mm512_setr_epi64(a, b, c, d, e, f, g, h)
}

/// Adds all lanes.
fn total(halves: [Word; 2]) -> u128 {
    let [low, high] = halves.map(|half| words(half).into_iter().map(u128::from).sum::<u128>());
    low + (high << BITS)
}
