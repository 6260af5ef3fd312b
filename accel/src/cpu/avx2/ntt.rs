//! The number-theoretic transform, four butterflies at a time.
//!
//! Between stages the polynomial is doubles, whose bits lie in the words of the result. Stages whose blocks are eight
//! or more go two at a time, in registers, and where their number is odd that of the whole polynomial by itself; the
//! last two forward, and the first two back, are done on eight neighbours. A block that does not fit the first level of
//! cache is done quarter by quarter, all stages of each.
//!
//! # Bound
//! Of q, forward: numbers within B are within `1/2 + 9B/8` after a stage, so from 1, or from 1/2 after a reduction,
//! they stay below 7 for six stages more: every third pass of two stages reduces first, and the last two stages do.
//! Back, from numbers within 1: sums of four are within 4, and reduced; products of differences of two sums are within
//! `1/2 + 4/8`, sums of two products within `2 · (1/2 + 2/8)`, and reduced too, and products of differences of these
//! within 1/2 + 1.5/8. So all are within 1 again.

use std::arch::x86_64::{
    _mm256_loadu_pd, _mm256_permute2f128_pd, _mm256_setr_pd, _mm256_unpackhi_pd, _mm256_unpacklo_pd,
};

use super::*;
use crate::cpu::rns::{DoubleFactors, Limb, quarters};

type Fours = [[u64; 4]];

/// Vectors of a block that stays in the first level of cache: 16 KiB.
const CACHED: usize = 512;

impl DoublePrime {
    /// Cooley and Tukey's: `(x + wy, x − wy)`.
    #[inline]
    #[target_feature(enable = "avx2,fma")]
    fn forward(self, [x, y]: [Double; 2], w: LaneFactor) -> [Double; 2] {
        let y = self.mul(y, w);
        [_mm256_add_pd(x, y), _mm256_sub_pd(x, y)]
    }

    /// Gentleman and Sande's: `(x + y, w·(x − y))`.
    #[inline]
    #[target_feature(enable = "avx2,fma")]
    fn inverse(self, [x, y]: [Double; 2], w: LaneFactor) -> [Double; 2] {
        [_mm256_add_pd(x, y), self.mul(_mm256_sub_pd(x, y), w)]
    }

    /// The two stages of a block of four numbers: the factor of the first, and both of the second.
    #[inline]
    #[target_feature(enable = "avx2,fma")]
    fn forward_fours(self, [a, b, c, d]: [Double; 4], [w, v0, v1]: [LaneFactor; 3]) -> [Double; 4] {
        let ([a, c], [b, d]) = (self.forward([a, c], w), self.forward([b, d], w));
        let ([a, b], [c, d]) = (self.forward([a, b], v0), self.forward([c, d], v1));
        [a, b, c, d]
    }

    /// See [`forward_fours`](Self::forward_fours). What was added up is reduced.
    #[inline]
    #[target_feature(enable = "avx2,fma")]
    fn inverse_fours(self, [a, b, c, d]: [Double; 4], [w, v0, v1]: [LaneFactor; 3]) -> [Double; 4] {
        let ([a, b], [c, d]) = (self.inverse([a, b], v0), self.inverse([c, d], v1));
        let ([a, c], [b, d]) = (self.inverse([a, c], w), self.inverse([b, d], w));
        [self.reduce(a), self.reduce(b), c, d]
    }
}

/// Returns whether the stages whose blocks are eight or more are odd in number.
fn has_odd_stage(n: usize) -> bool {
    n.trailing_zeros() % 2 == 1
}

/// Returns the factors of two stages of a block: blocks are numbered as the nodes of a tree, 1 the whole, 2i and
/// 2i + 1 the halves of i.
#[inline]
#[target_feature(enable = "avx2")]
fn two_stage_factors(factors: &DoubleFactors, node: usize) -> [LaneFactor; 3] {
    [node, 2 * node, 2 * node + 1].map(|node| LaneFactor::new(factors.get(node)))
}

/// Runs two stages of a block at once: `butterflies` takes four numbers, a quarter of it apart.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn by_fours(block: &mut Fours, butterflies: impl Fn([Double; 4]) -> [Double; 4]) {
    let [a, b, c, d] = quarters(block);
    for (((a, b), c), d) in a.iter_mut().zip(b).zip(c).zip(d) {
        let x = butterflies([doubles_of(a), doubles_of(b), doubles_of(c), doubles_of(d)]);
        [*a, *b, *c, *d] = x.map(|x| bits_of(x));
    }
}

/// Transforms `a` to NTT form.
#[target_feature(enable = "avx2,fma")]
pub(super) fn forward(out: &mut [u64], a: &[u64], limb: &Limb) {
    let (prime, [twiddles, _]) = (DoublePrime::new(limb.q()), limb.doubles());
    let odd = has_odd_stage(a.len());
    let (out, a) = (out.as_chunks_mut::<4>().0, a.as_chunks::<4>().0);
    // The first stage, or the first two, of the one block that all of it is.
    let parts = if odd {
        let (w, half) = (LaneFactor::new(twiddles.get(1)), a.len() / 2);
        for i in 0..half {
            let x = [i, half + i].map(|i| to_double(four(&a[i])));
            [out[i], out[half + i]] = prime.forward(x, w).map(|x| bits_of(x));
        }
        2
    } else {
        let (factors, quarter) = (two_stage_factors(twiddles, 1), a.len() / 4);
        for i in 0..quarter {
            let x = std::array::from_fn(|part| to_double(four(&a[part * quarter + i])));
            let x = prime.forward_fours(x, factors);
            (0..4).for_each(|part| out[part * quarter + i] = bits_of(x[part]));
        }
        4
    };
    let length = out.len() / parts;
    for (node, part) in (parts..).zip(out.chunks_exact_mut(length)) {
        forward_block(part, (node, 1), prime, twiddles);
    }
    // The last pass over pairs of vectors.
    last_stages(out, prime, twiddles);
}

/// Runs all stages of a block but the last two: one that does not fit the cache quarter after quarter. Node and number
/// of its first pass.
#[target_feature(enable = "avx2,fma")]
fn forward_block(
    data: &mut Fours,
    (node, pass): (usize, usize),
    prime: DoublePrime,
    twiddles: &DoubleFactors,
) {
    if data.len() > CACHED {
        forward_pass(data, (node, pass), prime, twiddles);
        for (part, quarter) in quarters(data).into_iter().enumerate() {
            forward_block(quarter, (4 * node + part, pass + 1), prime, twiddles);
        }
        return;
    }
    let (mut blocks, mut pass) = (1, pass);
    while data.len() > blocks {
        let length = data.len() / blocks;
        for (node, block) in (blocks * node..).zip(data.chunks_exact_mut(length)) {
            forward_pass(block, (node, pass), prime, twiddles);
        }
        (blocks, pass) = (4 * blocks, pass + 1);
    }
}

/// Runs two stages of a block; those of every third pass reduce first.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn forward_pass(
    block: &mut Fours,
    (node, pass): (usize, usize),
    prime: DoublePrime,
    twiddles: &DoubleFactors,
) {
    let factors = two_stage_factors(twiddles, node);
    if pass % 3 == 2 {
        by_fours(block, |x| prime.forward_fours(x.map(|x| prime.reduce(x)), factors));
    } else {
        by_fours(block, |x| prime.forward_fours(x, factors));
    }
}

/// Runs the last two stages, of blocks of four and two numbers.
#[target_feature(enable = "avx2,fma")]
fn last_stages(data: &mut Fours, prime: DoublePrime, twiddles: &DoubleFactors) {
    let first = data.len();
    for (i, [x, y]) in data.as_chunks_mut::<2>().0.iter_mut().enumerate() {
        let (a, b) = (prime.reduce(doubles_of(x)), prime.reduce(doubles_of(y)));
        let x2 = [_mm256_permute2f128_pd::<0x20>(a, b), _mm256_permute2f128_pd::<0x31>(a, b)];
        let x2 = prime.forward(x2, two(twiddles, first + 2 * i));
        let x2 = [_mm256_unpacklo_pd(x2[0], x2[1]), _mm256_unpackhi_pd(x2[0], x2[1])];
        let x2 = prime.forward(x2, four_of(twiddles, 2 * first + 4 * i));
        let x2 = x2.map(|x| prime.residue(prime.reduce(x)));
        let (low, high) = (_mm256_unpacklo_pd(x2[0], x2[1]), _mm256_unpackhi_pd(x2[0], x2[1]));
        *x = words(to_word(_mm256_permute2f128_pd::<0x20>(low, high)));
        *y = words(to_word(_mm256_permute2f128_pd::<0x31>(low, high)));
    }
}

/// Transforms `a` from NTT form.
#[target_feature(enable = "avx2,fma")]
pub(super) fn inverse(out: &mut [u64], a: &[u64], limb: &Limb) {
    let (prime, [_, twiddles]) = (DoublePrime::new(limb.q()), limb.doubles());
    let odd = has_odd_stage(a.len());
    let (out, a) = (out.as_chunks_mut::<4>().0, a.as_chunks::<4>().0);
    let parts = if odd { 2 } else { 4 };
    let length = a.len() / parts;
    first_stages(out, a, prime, twiddles);
    for (node, out) in (parts..).zip(out.chunks_exact_mut(length)) {
        inverse_block(out, node, prime, twiddles);
    }
    // The last stage, or the last two, and over N.
    let scale = LaneFactor::new(limb.n_inverse_double());
    let finish = |x| words(to_word(prime.residue(prime.mul(x, scale))));
    if odd {
        let w = LaneFactor::new(twiddles.get(1));
        let (low, high) = out.split_at_mut(length);
        for (x, y) in low.iter_mut().zip(high) {
            [*x, *y] = prime.inverse([doubles_of(x), doubles_of(y)], w).map(finish);
        }
    } else {
        let factors = two_stage_factors(twiddles, 1);
        let [a, b, c, d] = quarters(out);
        for (((a, b), c), d) in a.iter_mut().zip(b).zip(c).zip(d) {
            let x = [doubles_of(a), doubles_of(b), doubles_of(c), doubles_of(d)];
            [*a, *b, *c, *d] = prime.inverse_fours(x, factors).map(finish);
        }
    }
}

/// Runs all stages of a block but the first two, back: see [`forward_block`].
#[target_feature(enable = "avx2,fma")]
fn inverse_block(out: &mut Fours, node: usize, prime: DoublePrime, twiddles: &DoubleFactors) {
    if out.len() > CACHED {
        for (part, out) in quarters(out).into_iter().enumerate() {
            inverse_block(out, 4 * node + part, prime, twiddles);
        }
        let factors = two_stage_factors(twiddles, node);
        by_fours(out, |x| prime.inverse_fours(x, factors));
        return;
    }
    let mut blocks = out.len() / 4;
    while blocks >= 1 {
        let length = out.len() / blocks;
        for (node, block) in (blocks * node..).zip(out.chunks_exact_mut(length)) {
            let factors = two_stage_factors(twiddles, node);
            by_fours(block, |x| prime.inverse_fours(x, factors));
        }
        blocks /= 4;
    }
}

/// Runs the first two stages, back.
#[target_feature(enable = "avx2,fma")]
fn first_stages(out: &mut Fours, a: &Fours, prime: DoublePrime, twiddles: &DoubleFactors) {
    let first = a.len();
    let pairs = out.as_chunks_mut::<2>().0.iter_mut().zip(a.as_chunks::<2>().0);
    for (i, ([out_x, out_y], [x, y])) in pairs.enumerate() {
        let (x, y) = (to_double(four(x)), to_double(four(y)));
        let (low, high) =
            (_mm256_permute2f128_pd::<0x20>(x, y), _mm256_permute2f128_pd::<0x31>(x, y));
        let x2 = [_mm256_unpacklo_pd(low, high), _mm256_unpackhi_pd(low, high)];
        let x2 = prime.inverse(x2, four_of(twiddles, 2 * first + 4 * i));
        let x2 = [_mm256_unpacklo_pd(x2[0], x2[1]), _mm256_unpackhi_pd(x2[0], x2[1])];
        let [x, y] = prime.inverse(x2, two(twiddles, first + 2 * i));
        let x = prime.reduce(x);
        *out_x = bits_of(_mm256_permute2f128_pd::<0x20>(x, y));
        *out_y = bits_of(_mm256_permute2f128_pd::<0x31>(x, y));
    }
}

/// Returns two factors, each for two lanes.
#[inline]
#[target_feature(enable = "avx2")]
fn two(factors: &DoubleFactors, first: usize) -> LaneFactor {
    let [w, ratio] = factors.run::<2>(first);
    let spread = |&[a, b]: &[f64; 2]| _mm256_setr_pd(a, a, b, b);
    LaneFactor { w: spread(w), ratio: spread(ratio) }
}

/// Returns four factors.
#[inline]
#[target_feature(enable = "avx2")]
fn four_of(factors: &DoubleFactors, first: usize) -> LaneFactor {
    let [w, ratio] = factors.run::<4>(first);
    // SAFETY: four doubles are there.
    let load = |x: &[f64; 4]| unsafe { _mm256_loadu_pd(x.as_ptr()) };
    LaneFactor { w: load(w), ratio: load(ratio) }
}
