//! AVX-512 IFMA: eight numbers side by side, limbs of 52 bits.
//!
//! The two multiply-accumulate instructions, low and high half of a product, are all there is to
//! issue; the rest of every loop hides behind them. Limbs in an accumulator are redundant: words of
//! 64 bits that carry into each other only at the end.
//!
//! # Bound
//! A word of an accumulator takes, for each of at most 158 limbs, low and high halves below 2^52 of
//! at most three products, beside what it starts with (below 2^54) and a carry: below
//! `158 · 6 · 2^52 + 2^54 + 2^12 < 2^62`. A square is left as it is, as much as one product would
//! add. There are two limbs at least, since a word takes two.

// Nothing here takes a pointer. What is unsafe is calling code that needs the instructions, which
// the token proves are there, and reading a vector as the eight integers that it is.
#![allow(unsafe_code, reason = "instructions that not every processor has")]

/// Calls a kernel, which a token in hand makes safe.
macro_rules! kernel {
    ($call:expr) => {
        // SAFETY: the processor has the instructions: an `Ifma` is made only after asking it.
        unsafe { $call }
    };
}

mod chacha;
mod compose;
mod dot;
mod lazy;
mod limbs;
mod ntt;
mod packing;
mod rns;
mod rows;
mod select;

use std::{
    arch::x86_64::{
        __m512i, _mm512_add_epi64, _mm512_and_si512, _mm512_madd52hi_epu64, _mm512_madd52lo_epu64,
        _mm512_or_si512, _mm512_set1_epi64, _mm512_setzero_si512, _mm512_srai_epi64,
        _mm512_srli_epi64, _mm512_sub_epi64,
    },
    ops::Range,
};

use super::{
    backend::{Backend, FactorPair, Items, Limbs, Line, Results},
    limb_loops::{limb_loops, vector_backend},
};
pub(super) use dot::dot;
pub(super) use select::LaneDigits;

/// Proof that the processor has the instructions.
#[derive(Clone, Copy)]
pub(super) struct Ifma(());

impl Ifma {
    /// Asks the processor.
    pub(super) fn detect() -> Option<Self> {
        let there = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512ifma")
            && is_x86_feature_detected!("avx512vbmi")
            && is_x86_feature_detected!("avx512vbmi2");
        there.then_some(Self(()))
    }
}

type Word = __m512i;

const LANES: usize = 8;
const BITS: u32 = 52;
const MASK: u64 = (1 << BITS) - 1;

#[inline]
#[target_feature(enable = "avx512f,avx512ifma")]
fn low(x: Word, a: Word, b: Word) -> Word {
    _mm512_madd52lo_epu64(x, a, b)
}

#[inline]
#[target_feature(enable = "avx512f,avx512ifma")]
fn high(x: Word, a: Word, b: Word) -> Word {
    _mm512_madd52hi_epu64(x, a, b)
}

#[inline]
#[target_feature(enable = "avx512f")]
fn all(limb: u64) -> Word {
    _mm512_set1_epi64(limb as i64)
}

#[inline]
#[target_feature(enable = "avx512f")]
fn carry_of(x: Word) -> Word {
    _mm512_srli_epi64::<BITS>(x)
}

vector_backend!(Ifma, PICK = 2.0);
