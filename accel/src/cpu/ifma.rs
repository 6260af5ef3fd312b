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
mod convert;
mod dot;
mod lazy;
mod ntt;
mod packing;
mod rns;
mod rows;
mod select;

use std::{
    arch::x86_64::{
        __m512i, _mm512_add_epi64, _mm512_and_si512, _mm512_cmpge_epi64_mask,
        _mm512_madd52hi_epu64, _mm512_madd52lo_epu64, _mm512_mask_sub_epi64,
        _mm512_maskz_set1_epi64, _mm512_or_si512, _mm512_set1_epi64, _mm512_setzero_si512,
        _mm512_slli_epi64, _mm512_srai_epi64, _mm512_srli_epi64, _mm512_sub_epi64,
    },
    ops::Range,
};

use super::backend::{Backend, FactorPair, Items, Limbs, Line, Results};
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
            && is_x86_feature_detected!("avx512vbmi2")
            && is_x86_feature_detected!("avx512vpopcntdq");
        there.then_some(Self(()))
    }
}

type Word = __m512i;

const BITS: u32 = 52;
const MASK: i64 = (1 << BITS) - 1;

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

impl Backend for Ifma {
    type Word = Word;
    type Digits = LaneDigits;

    const LANES: usize = 8;
    const LIMB_BITS: u32 = BITS;
    const MULTIPLIES: u64 = 2;
    const ROWS: usize = rows::ROWS;
    const KARATSUBA: usize = usize::MAX;
    const PICK: f64 = 2.0;

    fn zero(self) -> Word {
        kernel!(_mm512_setzero_si512())
    }

    /// Returns the limbs from which any limb can be subtracted: each has borrowed one from the
    /// next.
    fn bias(multiple: &[u64]) -> Vec<u64> {
        let top = multiple.len() - 1;
        let borrowed = |(i, &limb): (usize, &u64)| match i {
            0 => limb + (1 << BITS),
            i if i < top => limb + MASK as u64,
            _ => limb - 1,
        };
        multiple.iter().enumerate().map(borrowed).collect()
    }

    fn mul_redc<const P: usize>(
        self,
        m: &Limbs,
        out: &mut [Word],
        acc: &mut [Word],
        products: [FactorPair<'_, Word>; P],
    ) {
        kernel!(rows::mul_redc(m, out, acc, products));
    }

    fn square(self, acc: &mut [Word], a: &[Word]) {
        kernel!(rows::square(acc, a));
    }

    fn add_product(self, acc: &mut [Word], a: &[Word], b: &[Word]) {
        kernel!(rows::add_product(acc, a, b));
    }

    fn normalise(self, acc: &mut [Word]) {
        kernel!(rows::add_assign(acc, &[]));
    }

    fn double(self, out: &mut [Word], a: &[Word]) {
        kernel!(rows::double(out, a));
    }

    fn complement(self, acc: &mut [Word], m: &Limbs) {
        kernel!(rows::complement(acc, m));
    }

    fn add_assign(self, a: &mut [Word], b: &[Word]) {
        kernel!(rows::add_assign(a, b));
    }

    fn sub_assign(self, a: &mut [Word], b: &[Word]) {
        kernel!(rows::sub_assign(a, b));
    }

    fn reduce_once(self, m: &[u64], x: &mut [Word]) -> Word {
        kernel!(rows::reduce_once(m, x))
    }

    fn negate(self, x: &mut [Word]) {
        kernel!(rows::negate(x));
    }

    fn pick_own(self, out: &mut [Word], table: &[Word], digits: &LaneDigits) {
        kernel!(select::pick_own(out, table, digits));
    }

    fn pick_shared(self, out: &mut [Word], table: &[Line], digits: &[LaneDigits]) {
        kernel!(select::pick_shared(out, table, digits));
    }

    fn load(self, out: &mut [Word], items: &Items<'_>, first: usize, shift: u32) {
        kernel!(convert::load(out, items, first, shift));
    }

    fn store(self, out: &mut Results<'_>, part: Range<usize>, x: &[Word]) {
        kernel!(convert::store(out, part, x));
    }

    fn load_words(self, out: &mut [Word], items: &Items<'_>, first: usize) {
        kernel!(convert::load_words(out, items, first));
    }

    fn digits(self, words: &[Word], at: usize, bits: usize, width: usize) -> LaneDigits {
        kernel!(convert::digits(words, at, bits, width))
    }

    fn burst(self) -> u64 {
        kernel!(rows::burst())
    }

    fn lane(word: Word, lane: usize) -> u64 {
        convert::lane(word, lane)
    }

    fn lanes_of(self, limbs: impl Fn(usize) -> u64) -> Word {
        let limbs: [u64; 8] = std::array::from_fn(limbs);
        kernel!(select::eight(&limbs))
    }
}
