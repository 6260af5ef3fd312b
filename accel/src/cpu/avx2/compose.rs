//! Integers of their residues. See [`composition`](crate::cpu::composition).

use std::arch::x86_64::{
    _mm256_floor_pd, _mm256_fmadd_pd, _mm256_max_pd, _mm256_setzero_pd as no_factor,
};

use zeroize::optimization_barrier;

use super::{
    all as splat,
    limbs::{self, BITS, LANES},
    rows::{HIGH_BITS, LOW_BITS, product},
    *,
};
use crate::{
    cpu::{
        composition::{SHORT, compose},
        rns::{Factor, Limb, Tables},
    },
    ring::MAX_PRIMES,
};

/// A prime q and its inverse, and `(Q/q)⁻¹` modulo it.
struct Prime {
    q: DoublePrime,
    inverse: LaneFactor,
}

impl Prime {
    #[inline]
    #[target_feature(enable = "avx2")]
    fn new(of: &Limb, inverse: Factor) -> Self {
        let inverse = LaneFactor::new(DoubleFactor::new(inverse.w, of.q()));
        Self { q: DoublePrime::new(of.q()), inverse }
    }

    #[inline]
    #[target_feature(enable = "avx2,fma")]
    fn factor(&self, residue: Quad) -> Double {
        self.q.residue(self.q.mul(to_double(residue), self.inverse))
    }

    #[inline]
    #[target_feature(enable = "avx2,fma")]
    fn add_fraction(&self, sum: Double, factor: Double) -> Double {
        _mm256_fmadd_pd(factor, self.q.inverse, sum)
    }
}

/// The whole part of a sum of fractions, which may be a little below zero.
#[inline]
#[target_feature(enable = "avx2")]
fn whole(sum: Double) -> Double {
    _mm256_floor_pd(_mm256_max_pd(sum, all(0.0)))
}

fn constant(limb: u64) -> u64 {
    (limb as f64).to_bits()
}

/// Returns the sums of both halves of factors of some numbers times limbs, bits of doubles, that are the same for all.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn column<const W: usize>(factors: &[[Double; W]], constants: &[u64]) -> [[Quad; W]; 2] {
    let start =
        |bits: u64| [limbs::all(bits.wrapping_mul(constants.len() as u64).wrapping_neg()); W];
    let (mut low, mut high) = (start(LOW_BITS), start(HIGH_BITS));
    for (factors, &limb) in factors.iter().zip(constants) {
        for (c, &factor) in factors.iter().enumerate() {
            let [l, h] = product(factor, all(f64::from_bits(limb)));
            (low[c], high[c]) = (limbs::add(low[c], l), limbs::add(high[c], h));
        }
    }
    [low, high]
}

compose!("avx2,fma");
