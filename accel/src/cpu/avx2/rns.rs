//! The loops over residues of the primes of a ring, four at a time. Those that gain nothing from doubles are as for
//! any processor.

use std::arch::x86_64::{_mm256_add_epi64, _mm256_blendv_pd, _mm256_sub_epi64};

use super::{packing, *};
use crate::{
    cpu::rns::{Factor, Limb, Rns, Tables, WeightRow},
    ring::{LanePrimes, MAX_PRIMES},
};

/// Applies `$f` to vectors of four of `$a` and `$b`. Degrees of rings are multiples of sixteen.
macro_rules! each_four {
    ($out:expr, $a:expr, $b:expr, |$x:ident, $y:ident| $f:expr) => {
        let (a, b) = ($a.as_chunks::<4>().0, $b.as_chunks::<4>().0);
        for ((out, a), b) in $out.as_chunks_mut::<4>().0.iter_mut().zip(a).zip(b) {
            let ($x, $y) = (four(a), four(b));
            *out = words($f);
        }
    };
}

/// `x` where it is not negative, else `y`, as signed words.
#[inline]
#[target_feature(enable = "avx2")]
fn not_negative(x: Quad, y: Quad) -> Quad {
    let [x, y] = [x, y].map(|x| _mm256_castsi256_pd(x));
    _mm256_castpd_si256(_mm256_blendv_pd(x, y, x))
}

#[target_feature(enable = "avx2")]
fn add(out: &mut [u64], a: &[u64], b: &[u64], q: u64) {
    let q = _mm256_set1_epi64x(q as i64);
    each_four!(out, a, b, |x, y| {
        let sum = _mm256_add_epi64(x, y);
        not_negative(_mm256_sub_epi64(sum, q), sum)
    });
}

#[target_feature(enable = "avx2")]
fn sub(out: &mut [u64], a: &[u64], b: &[u64], q: u64) {
    let q = _mm256_set1_epi64x(q as i64);
    each_four!(out, a, b, |x, y| {
        let difference = _mm256_sub_epi64(x, y);
        not_negative(difference, _mm256_add_epi64(difference, q))
    });
}

#[target_feature(enable = "avx2,fma")]
fn mul(out: &mut [u64], a: &[u64], b: &[u64], q: u64) {
    let prime = DoublePrime::new(q);
    each_four!(out, a, b, |x, y| {
        to_word(prime.residue(prime.product(to_double(x), to_double(y))))
    });
}

#[target_feature(enable = "avx2,fma")]
fn scale(out: &mut [u64], a: &[u64], q: u64, factor: Factor) {
    let (prime, factor) = (DoublePrime::new(q), LaneFactor::new(DoubleFactor::new(factor.w, q)));
    each_four!(out, a, a, |x, _y| to_word(prime.residue(prime.mul(to_double(x), factor))));
}

/// Products that are added before their sum is reduced: with what is left of the sum before they are within 8q.
const LAZY_TERMS: usize = 8;

#[target_feature(enable = "avx2,fma")]
fn mul_sum(out: &mut [u64], pairs: &[[&[u64]; 2]], q: u64) {
    let prime = DoublePrime::new(q);
    for (i, out) in out.as_chunks_mut::<4>().0.iter_mut().enumerate() {
        let mut sum = _mm256_setzero_pd();
        for pairs in pairs.chunks(LAZY_TERMS) {
            for [a, b] in pairs {
                let [x, y] = [a, b].map(|words| to_double(four(&words.as_chunks::<4>().0[i])));
                sum = _mm256_add_pd(sum, prime.product(x, y));
            }
            sum = prime.reduce(sum);
        }
        *out = words(to_word(prime.residue(sum)));
    }
}

/// Numbers that are computed with side by side: of one, a digit waits for the digit before it.
const COLUMNS: usize = 4;

/// Residues or digits of such numbers, four to a vector.
type DoubleColumns = [[Double; COLUMNS]; MAX_PRIMES];

/// The inverses that digits in mixed radix take: of prime k modulo prime j, k below j.
struct Inverses([[DoubleFactor; MAX_PRIMES]; MAX_PRIMES]);

impl Inverses {
    fn new(limbs: &[Limb]) -> Self {
        let mut all = [[DoubleFactor { w: 0.0, ratio: 0.0 }; MAX_PRIMES]; MAX_PRIMES];
        for (j, (own, limb)) in all.iter_mut().zip(limbs).enumerate() {
            for (own, inverse) in own.iter_mut().zip(&limb.prime_inverses[..j]) {
                *own = DoubleFactor::new(inverse.w, limb.q());
            }
        }
        Self(all)
    }
}

/// Turns the residues of numbers into their digits in mixed radix, the primes, as in the portable path.
///
/// # Bound
/// A residue or rest is within one prime, a digit below another: their difference is within 2^51.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn to_digits(block: &mut DoubleColumns, limbs: &[Limb], inverses: &Inverses) {
    for (j, limb) in limbs.iter().enumerate() {
        let prime = DoublePrime::new(limb.q());
        let (before, rest) = block.split_at_mut(j);
        for (digits, &inverse) in before.iter().zip(&inverses.0[j]) {
            let inverse = LaneFactor::new(inverse);
            for (x, &digit) in rest[0].iter_mut().zip(digits) {
                *x = prime.mul(_mm256_sub_pd(*x, digit), inverse);
            }
        }
        rest[0].iter_mut().for_each(|x| *x = prime.residue(*x));
    }
}

/// See [`Rns::base_extend`]. Degrees of rings are multiples of sixteen.
///
/// # Bound
/// A product of a digit is within 0.7 q, whatever prime the digit is of: eight of them, and what those before left, at
/// first a residue, are within 8q.
#[target_feature(enable = "avx2,fma")]
fn base_extend(out: &mut [u64], poly: &[u64], tables: &Tables, rows: &[WeightRow]) {
    let limbs = tables.limbs();
    let (n, inverses) = (poly.len() / limbs.len(), Inverses::new(limbs));
    let mut digits = [[_mm256_setzero_pd(); COLUMNS]; MAX_PRIMES];
    for first in (0..n).step_by(4 * COLUMNS) {
        for ((digits, residues), limb) in digits.iter_mut().zip(poly.chunks_exact(n)).zip(limbs) {
            let (q, half) = (all(limb.q() as f64), all((limb.q() / 2) as f64));
            let prime = DoublePrime::new(limb.q());
            for (digit, x) in digits.iter_mut().zip(residues[first..].as_chunks::<4>().0) {
                // Half more, modulo q.
                let raised = _mm256_sub_pd(_mm256_add_pd(to_double(four(x)), half), q);
                *digit = prime.residue(raised);
            }
        }
        to_digits(&mut digits, limbs, &inverses);
        for (out, row) in out.chunks_exact_mut(n).zip(rows) {
            let prime = DoublePrime::new(row.q);
            let mut sums = [all(row.shift as f64); COLUMNS];
            for (digits, weights) in digits.chunks(LAZY_TERMS).zip(row.weights.chunks(LAZY_TERMS)) {
                for (digits, weight) in digits.iter().zip(weights) {
                    let weight = LaneFactor::new(DoubleFactor::new(weight.w, row.q));
                    for (sum, &digit) in sums.iter_mut().zip(digits) {
                        *sum = _mm256_add_pd(*sum, prime.mul(digit, weight));
                    }
                }
                sums.iter_mut().for_each(|sum| *sum = prime.reduce(*sum));
            }
            for (out, sum) in out[first..].as_chunks_mut::<4>().0.iter_mut().zip(sums) {
                *out = words(to_word(prime.residue(sum)));
            }
        }
    }
}

impl Rns for Avx2 {
    fn add(self, out: &mut [u64], a: &[u64], b: &[u64], q: u64) {
        kernel!(add(out, a, b, q));
    }

    fn sub(self, out: &mut [u64], a: &[u64], b: &[u64], q: u64) {
        kernel!(sub(out, a, b, q));
    }

    fn mul(self, out: &mut [u64], a: &[u64], b: &[u64], limb: &Limb) {
        kernel!(mul(out, a, b, limb.q()));
    }

    fn scale(self, out: &mut [u64], a: &[u64], q: u64, factor: Factor) {
        kernel!(scale(out, a, q, factor));
    }

    fn mul_sum(self, out: &mut [u64], pairs: &[[&[u64]; 2]], limb: &Limb) {
        kernel!(mul_sum(out, pairs, limb.q()));
    }

    fn forward(self, out: &mut [u64], a: &[u64], limb: &Limb) {
        kernel!(ntt::forward(out, a, limb));
    }

    fn inverse(self, out: &mut [u64], a: &[u64], limb: &Limb) {
        kernel!(ntt::inverse(out, a, limb));
    }

    fn base_extend(self, out: &mut [u64], poly: &[u64], tables: &Tables, rows: &[WeightRow]) {
        kernel!(base_extend(out, poly, tables, rows));
    }

    fn add_lanes(self, sums: &mut [u64], words: &[u64], primes: &[LanePrimes]) {
        kernel!(packing::add_lanes(sums, words, primes));
    }
}
