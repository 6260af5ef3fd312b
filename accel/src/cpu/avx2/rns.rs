//! The loops over residues of the primes of a ring, four at a time. Those that gain nothing are as for any processor.

use std::{
    arch::x86_64::{_mm256_add_epi64, _mm256_cmpgt_epi64, _mm256_sub_epi64},
    slice,
};

use zeroize::optimization_barrier;

use super::{chacha, compose, limbs, packing, *};
use crate::{
    beats::LANES,
    cpu::rns::{Factor, Limb, RUN, Rns, STREAM_WORDS, Tables, WeightRow},
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

#[target_feature(enable = "avx2")]
fn add(out: &mut [u64], a: &[u64], b: &[u64], q: u64) {
    let q = _mm256_set1_epi64x(q as i64);
    each_four!(out, a, b, |x, y| subtract_once(_mm256_add_epi64(x, y), q));
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

/// Vectors of numbers that are computed with side by side: of one number, a digit waits for the digit before it.
const COLUMNS: usize = 4;

/// Residues or digits of such numbers, four to a vector.
type DoubleColumns = [[Double; COLUMNS]; MAX_PRIMES];

/// Adds to residues, within one prime, digits times constant factors.
///
/// # Bound
/// A product of a digit, below 2^50, is within 0.7 q, whatever prime the digit is of: eight of them, and what those
/// before left, are within 8q.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn add_products(
    sums: &mut [Double; COLUMNS],
    digits: &[[Double; COLUMNS]],
    factors: &[DoubleFactor],
    prime: DoublePrime,
) {
    for (digits, factors) in digits.chunks(LAZY_TERMS).zip(factors.chunks(LAZY_TERMS)) {
        for (digits, &factor) in digits.iter().zip(factors) {
            let factor = LaneFactor::new(factor);
            for (sum, &digit) in sums.iter_mut().zip(digits) {
                *sum = _mm256_add_pd(*sum, prime.mul(digit, factor));
            }
        }
        sums.iter_mut().for_each(|sum| *sum = prime.reduce(*sum));
    }
}

/// Returns rows of constant factors, each modulo one prime, as doubles.
fn double_factors<'a, const COUNT: usize>(
    rows: impl Iterator<Item = (&'a [Factor], u64)>,
) -> [[DoubleFactor; COUNT]; MAX_PRIMES] {
    let mut doubles = [[DoubleFactor { w: 0.0, ratio: 0.0 }; COUNT]; MAX_PRIMES];
    for (doubles, (factors, q)) in doubles.iter_mut().zip(rows) {
        let factors = factors.iter().map(|factor| DoubleFactor::new(factor.w, q));
        doubles.iter_mut().zip(factors).for_each(|(double, factor)| *double = factor);
    }
    doubles
}

/// Bits of the digits that integers are cut into.
const DIGIT_BITS: usize = 50;
/// Digits of the most words.
const DIGITS: usize = (64 * MAX_PRIMES).div_ceil(DIGIT_BITS);

/// See [`Rns::lift_all`]: each digit times its power of the radix.
#[target_feature(enable = "avx2,fma")]
fn lift_all(out: &mut [u64], integers: &[u64], primes: &[Limb], signed: bool) {
    let n = out.len() / primes.len();
    let each = integers.len() / n;
    let count = (64 * each).div_ceil(DIGIT_BITS);
    let powers =
        double_factors::<DIGITS>(primes.iter().map(|of| (&of.radix_powers[..count], of.q())));
    let mut rows = [[limbs::zero(); COLUMNS]; MAX_PRIMES + 1];
    let mut digits = [[_mm256_setzero_pd(); COLUMNS]; DIGITS];
    for first in (0..n).step_by(4 * COLUMNS) {
        for (row, integers) in rows.iter_mut().zip(integers.chunks_exact(n)) {
            for (row, words) in row.iter_mut().zip(integers[first..].as_chunks::<4>().0) {
                *row = four(words);
            }
        }
        for (i, digit) in digits[..count].iter_mut().enumerate() {
            let (word, bit) = (DIGIT_BITS * i / 64, DIGIT_BITS * i % 64);
            let both = rows[word].iter().zip(&rows[word + 1]);
            for (digit, (&low, &high)) in digit.iter_mut().zip(both) {
                let bits = limbs::bits_from(&[low, high], bit);
                *digit = to_double(limbs::and(bits, limbs::all((1 << DIGIT_BITS) - 1)));
            }
        }
        for ((out, of), powers) in out.chunks_exact_mut(n).zip(primes).zip(&powers) {
            // What stands above the top word of a negative integer, −1, times its power.
            let above = if signed { of.q() - of.word_powers[each] } else { 0 };
            let mut sums = rows[each - 1].map(|top| {
                let is_negative = _mm256_cmpgt_epi64(limbs::zero(), top);
                _mm256_and_pd(_mm256_castsi256_pd(is_negative), all(above as f64))
            });
            let prime = DoublePrime::new(of.q());
            add_products(&mut sums, &digits[..count], powers, prime);
            for (out, sum) in out[first..].as_chunks_mut::<4>().0.iter_mut().zip(sums) {
                *out = words(to_word(prime.residue(sum)));
            }
        }
    }
    rows.fill([limbs::zero(); COLUMNS]);
    digits.fill([_mm256_setzero_pd(); COLUMNS]);
    optimization_barrier(&rows);
    optimization_barrier(&digits);
}

/// Turns the residues of numbers into their digits in mixed radix, the primes, as in the portable path.
///
/// # Bound
/// A residue or rest is within one prime, a digit below another: their difference is within 2^51.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn to_digits(block: &mut DoubleColumns, limbs: &[Limb], inverses: &[[DoubleFactor; MAX_PRIMES]]) {
    for ((j, limb), inverses) in limbs.iter().enumerate().zip(inverses) {
        let prime = DoublePrime::new(limb.q());
        let (before, rest) = block.split_at_mut(j);
        for (digits, &inverse) in before.iter().zip(inverses) {
            let inverse = LaneFactor::new(inverse);
            for (x, &digit) in rest[0].iter_mut().zip(digits) {
                *x = prime.mul(_mm256_sub_pd(*x, digit), inverse);
            }
        }
        rest[0].iter_mut().for_each(|x| *x = prime.residue(*x));
    }
}

/// See [`Rns::base_extend`]. Degrees of rings are multiples of sixteen.
#[target_feature(enable = "avx2,fma")]
fn base_extend(out: &mut [u64], poly: &[u64], tables: &Tables, rows: &[WeightRow]) {
    let limbs = tables.limbs();
    let n = poly.len() / limbs.len();
    let inverses = double_factors(limbs.iter().map(|limb| (&limb.prime_inverses[..], limb.q())));
    let weights = double_factors::<MAX_PRIMES>(rows.iter().map(|row| (&row.weights[..], row.q)));
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
        for ((out, row), weights) in out.chunks_exact_mut(n).zip(rows).zip(&weights) {
            let prime = DoublePrime::new(row.q);
            let mut sums = [all(row.shift as f64); COLUMNS];
            add_products(&mut sums, &digits[..limbs.len()], weights, prime);
            for (out, sum) in out[first..].as_chunks_mut::<4>().0.iter_mut().zip(sums) {
                *out = words(to_word(prime.residue(sum)));
            }
        }
    }
}

impl Rns for Avx2 {
    // Powers of the radix are all that is taken of it: loops for any processor that multiply would want 64.
    const QUOTIENT_BITS: u32 = DIGIT_BITS as u32;

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

    fn keystream(self, out: &mut [u64; STREAM_WORDS], key: &[u64], stream: u64, at: u64) {
        kernel!(chacha::keystream(out, key, stream, at / 8));
    }

    fn add_draws(
        self,
        sum: &mut [u64; RUN],
        seed: &[u64],
        stream: u64,
        block: u64,
        primes: &[u64; LANES],
    ) -> bool {
        kernel!(chacha::add_draws(sum, seed, stream, block, primes))
    }

    fn take_draws(self, out: &mut [u64], sum: &[u64; RUN], count: usize, primes: &[u64; LANES]) {
        kernel!(chacha::take_draws(out, sum, count, primes));
    }

    fn lift(self, out: &mut [u64], integers: &[u64], limb: &Limb, signed: bool) {
        kernel!(lift_all(out, integers, slice::from_ref(limb), signed));
    }

    fn lift_all(self, out: &mut [u64], integers: &[u64], tables: &Tables, signed: bool) {
        kernel!(lift_all(out, integers, tables.limbs(), signed));
    }

    fn compose(self, out: &mut [u64], poly: &[u64], tables: &Tables) {
        kernel!(compose::compose(out, poly, tables));
    }

    fn base_extend(self, out: &mut [u64], poly: &[u64], tables: &Tables, rows: &[WeightRow]) {
        kernel!(base_extend(out, poly, tables, rows));
    }

    fn add_lanes(self, sums: &mut [u64], words: &[u64], primes: &[LanePrimes]) {
        kernel!(packing::add_lanes(sums, words, primes));
    }
}
