//! AVX2 and FMA: four residues of polynomials side by side, as doubles, or four [big numbers](numbers).
//!
//! These processors have no product of 64 bits in vectors, but one of doubles whose rounding a second instruction
//! undoes: `h = x·w` is rounded, `l = x·w − h` is exact, and so is what is left of both without the nearest multiple of
//! q. Four residues take six instructions, where one takes three multiplications of words.
//!
//! # Bound
//! Primes are below 2^50, and everything modulo one is an integer below `8q ≤ 2^53`, which a double holds. Factors
//! are within `± q / 2`, and their ratio to q is right to 2^-54. A product's quotient is off by at most `|x| / 2^54`
//! for that and by as much again for its own rounding, so [`DoublePrime::mul`] leaves at most `q · (1/2 + B / 8)` of
//! an x within `± q · B`, B at most 8; of any x within ± 2^51, whatever q is, less than q.
//!
//! Instructions take the same time whatever the numbers, of which none is denormal.

// What is unsafe is calling code that needs the instructions, which the token proves are there, reading a vector as the
// four numbers that it is, and one read of bytes that are no whole words, in `packing`.
#![allow(unsafe_code, reason = "instructions that not every processor has")]

/// Calls a kernel, which a token in hand makes safe.
macro_rules! kernel {
    ($call:expr) => {
        // SAFETY: the processor has the instructions: an `Avx2` is made only after asking it.
        unsafe { $call }
    };
}

mod chacha;
mod compose;
mod limbs;
mod ntt;
mod numbers;
mod packing;
mod rns;
mod rows;
mod select;

use std::{
    arch::x86_64::{
        __m256d, __m256i, _CMP_LT_OQ, _MM_FROUND_NO_EXC, _MM_FROUND_TO_NEAREST_INT, _mm256_add_pd,
        _mm256_and_pd, _mm256_blendv_pd, _mm256_castpd_si256, _mm256_castsi256_pd, _mm256_cmp_pd,
        _mm256_fmsub_pd, _mm256_fnmadd_pd, _mm256_mul_pd, _mm256_or_si256, _mm256_round_pd,
        _mm256_set1_epi64x, _mm256_set1_pd, _mm256_setzero_pd, _mm256_sub_epi64, _mm256_sub_pd,
        _mm256_xor_si256,
    },
    mem::transmute,
};

use super::rns::DoubleFactor;

/// Proof that the processor has the instructions.
#[derive(Clone, Copy)]
pub(super) struct Avx2(());

impl Avx2 {
    /// Asks the processor.
    pub(super) fn detect() -> Option<Self> {
        let there = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
        there.then_some(Self(()))
    }
}

type Quad = __m256i;
type Double = __m256d;

/// 2^52, whose lowest bit counts ones, as a double.
const MAGIC: f64 = (1u64 << 52) as f64;

/// Reads four words.
#[inline]
#[target_feature(enable = "avx2")]
fn four(words: &[u64; 4]) -> Quad {
    // SAFETY: four words are 256 bits, of which any are a vector.
    unsafe { transmute::<[u64; 4], Quad>(*words) }
}

/// Returns the four words.
#[inline(always)]
fn words(x: Quad) -> [u64; 4] {
    // SAFETY: as above.
    unsafe { transmute::<Quad, [u64; 4]>(x) }
}

/// Reads four doubles as they lie between stages.
#[inline]
#[target_feature(enable = "avx2")]
fn doubles_of(bits: &[u64; 4]) -> Double {
    _mm256_castsi256_pd(four(bits))
}

/// Returns the bits of four doubles.
#[inline]
#[target_feature(enable = "avx2")]
fn bits_of(x: Double) -> [u64; 4] {
    words(_mm256_castpd_si256(x))
}

#[inline]
#[target_feature(enable = "avx2")]
fn all(x: f64) -> Double {
    _mm256_set1_pd(x)
}

/// `x` where it is not negative, else `y`, as signed words.
#[inline]
#[target_feature(enable = "avx2")]
fn not_negative(x: Quad, y: Quad) -> Quad {
    let [x, y] = [x, y].map(|x| _mm256_castsi256_pd(x));
    _mm256_castpd_si256(_mm256_blendv_pd(x, y, x))
}

/// `x − m` where that is not negative, else x.
#[inline]
#[target_feature(enable = "avx2")]
fn subtract_once(x: Quad, m: Quad) -> Quad {
    not_negative(_mm256_sub_epi64(x, m), x)
}

/// Converts integers below 2^52.
#[inline]
#[target_feature(enable = "avx2")]
fn to_double(x: Quad) -> Double {
    let magic = _mm256_set1_epi64x(MAGIC.to_bits() as i64);
    _mm256_sub_pd(_mm256_castsi256_pd(_mm256_or_si256(x, magic)), all(MAGIC))
}

/// Converts doubles that are integers from 0 to below 2^52.
#[inline]
#[target_feature(enable = "avx2")]
fn to_word(x: Double) -> Quad {
    let magic = _mm256_set1_epi64x(MAGIC.to_bits() as i64);
    _mm256_xor_si256(_mm256_castpd_si256(_mm256_add_pd(x, all(MAGIC))), magic)
}

/// A constant factor in all lanes, or one in each.
#[derive(Clone, Copy)]
struct LaneFactor {
    w: Double,
    ratio: Double,
}

impl LaneFactor {
    #[inline]
    #[target_feature(enable = "avx2")]
    fn new(factor: DoubleFactor) -> Self {
        Self { w: all(factor.w), ratio: all(factor.ratio) }
    }
}

/// A prime and its inverse.
#[derive(Clone, Copy)]
struct DoublePrime {
    q: Double,
    inverse: Double,
}

impl DoublePrime {
    #[inline]
    #[target_feature(enable = "avx2")]
    fn new(q: u64) -> Self {
        Self { q: all(q as f64), inverse: all(1.0 / q as f64) }
    }

    /// `x·w` modulo q: see the [bound](self).
    #[inline]
    #[target_feature(enable = "avx2,fma")]
    fn mul(self, x: Double, factor: LaneFactor) -> Double {
        let quotient = round(_mm256_mul_pd(x, factor.ratio));
        self.rest(x, factor.w, quotient)
    }

    /// `x·y` modulo q, within ± 0.9 q, of residues.
    ///
    /// # Bound
    /// The quotient is below 2^50, and its three roundings are each off by at most 2^-53 of it: by less than 0.4.
    #[inline]
    #[target_feature(enable = "avx2,fma")]
    fn product(self, x: Double, y: Double) -> Double {
        let quotient = round(_mm256_mul_pd(_mm256_mul_pd(x, y), self.inverse));
        self.rest(x, y, quotient)
    }

    /// `x·y − quotient·q`, exactly.
    #[inline]
    #[target_feature(enable = "avx2,fma")]
    fn rest(self, x: Double, y: Double, quotient: Double) -> Double {
        let high = _mm256_mul_pd(x, y);
        let low = _mm256_fmsub_pd(x, y, high);
        _mm256_add_pd(_mm256_fnmadd_pd(quotient, self.q, high), low)
    }

    /// x modulo q within ± q / 2, and a little more.
    #[inline]
    #[target_feature(enable = "avx2,fma")]
    fn reduce(self, x: Double) -> Double {
        _mm256_fnmadd_pd(round(_mm256_mul_pd(x, self.inverse)), self.q, x)
    }

    /// The residue of x within ± q.
    #[inline]
    #[target_feature(enable = "avx2,fma")]
    fn residue(self, x: Double) -> Double {
        let is_negative = _mm256_cmp_pd::<_CMP_LT_OQ>(x, _mm256_setzero_pd());
        _mm256_add_pd(x, _mm256_and_pd(is_negative, self.q))
    }
}

/// Rounds to the nearest integers.
#[inline]
#[target_feature(enable = "avx2")]
fn round(x: Double) -> Double {
    _mm256_round_pd::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(x)
}
