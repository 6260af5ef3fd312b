//! Integers of their residues. See [`composition`](crate::cpu::composition).

use std::arch::x86_64::{
    __m512d, _mm512_cvtepu64_pd, _mm512_cvttpd_epu64, _mm512_fmadd_pd, _mm512_max_pd,
    _mm512_set1_pd as splat, _mm512_setzero_pd, _mm512_setzero_si512 as no_factor,
};

use zeroize::optimization_barrier;

use super::{
    lazy::{Wide, minus, mul_lazy, subtract_once},
    *,
};
use crate::{
    cpu::{
        composition::{SHORT, compose},
        rns::{Factor, Limb, Tables},
    },
    ring::MAX_PRIMES,
};

/// A prime q, `(Q/q)⁻¹` modulo it, and 1/q.
struct Prime {
    q: Word,
    minus_q: Word,
    inverse: Wide,
    reciprocal: __m512d,
}

impl Prime {
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn new(of: &Limb, inverse: Factor) -> Self {
        let (q, minus_q) = (all(of.q()), minus(of.q()));
        Self { q, minus_q, inverse: Wide::new(inverse), reciprocal: splat(1.0 / of.q() as f64) }
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma")]
    fn factor(&self, residue: Word) -> Word {
        subtract_once(mul_lazy(residue, self.inverse, self.minus_q), self.q)
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512dq")]
    fn add_fraction(&self, sum: __m512d, factor: Word) -> __m512d {
        _mm512_fmadd_pd(_mm512_cvtepu64_pd(factor), self.reciprocal, sum)
    }
}

/// The whole part of a sum of fractions, which may be a little below zero.
#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
fn whole(sum: __m512d) -> Word {
    _mm512_cvttpd_epu64(_mm512_max_pd(sum, _mm512_setzero_pd()))
}

fn constant(limb: u64) -> u64 {
    limb
}

/// Returns the sums of both halves of factors of some numbers times limbs that are the same for all.
#[inline]
#[target_feature(enable = "avx512f,avx512ifma")]
fn column<const W: usize>(factors: &[[Word; W]], limbs: &[u64]) -> [[Word; W]; 2] {
    let [mut lows, mut highs] = [[limbs::zero(); W]; 2];
    for (factors, &limb) in factors.iter().zip(limbs) {
        let limb = all(limb);
        for (c, &factor) in factors.iter().enumerate() {
            (lows[c], highs[c]) = (low(lows[c], factor, limb), high(highs[c], factor, limb));
        }
    }
    [lows, highs]
}

compose!("avx512f,avx512dq,avx512ifma");
