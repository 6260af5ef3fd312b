//! Lazy arithmetic modulo a prime of a ring, eight residues at a time.
//!
//! # Bound
//! Primes are below 2^50, so what is below 4q is below 2^52, which the multipliers take whole.

use std::arch::x86_64::_mm512_min_epu64;

use super::*;
use crate::cpu::rns::Factor;

/// A constant factor in all lanes.
#[derive(Clone, Copy)]
pub(super) struct Wide {
    pub(super) w: Word,
    pub(super) quotient: Word,
}

impl Wide {
    #[inline]
    #[target_feature(enable = "avx512f")]
    pub(super) fn new(factor: Factor) -> Self {
        Self { w: all(factor.w), quotient: all(factor.quotient) }
    }
}

/// `x·w mod q`, below 2q, for x below 2^52; `minus_q` is `2^52 − q`.
#[inline]
#[target_feature(enable = "avx512f,avx512ifma")]
pub(super) fn mul_lazy(x: Word, factor: Wide, minus_q: Word) -> Word {
    _mm512_and_si512(mul_modulo_word(x, factor, minus_q), all(MASK))
}

/// The same modulo 2^52: what is above that is of no meaning, in x as in the result.
#[inline]
#[target_feature(enable = "avx512f,avx512ifma")]
pub(super) fn mul_modulo_word(x: Word, factor: Wide, minus_q: Word) -> Word {
    let zero = _mm512_setzero_si512();
    let estimate = high(zero, x, factor.quotient);
    // −estimate·q modulo 2^52, as a sum.
    low(low(zero, x, factor.w), estimate, minus_q)
}

/// `x − m` where that is not negative, else x: the smaller as unsigned words.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn subtract_once(x: Word, m: Word) -> Word {
    _mm512_min_epu64(x, _mm512_sub_epi64(x, m))
}

/// `2^52 − q` in all lanes.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn minus(q: u64) -> Word {
    all((1 << BITS) - q)
}
