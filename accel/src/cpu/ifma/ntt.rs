//! The number-theoretic transform, eight butterflies at a time.
//!
//! Stages whose blocks are sixteen or more go two at a time, in registers, and where their number
//! is odd that of the whole polynomial by itself; the last three forward, and the first three back,
//! are done on sixteen neighbours that permutes put in place.

use std::arch::x86_64::{
    _mm512_permutex2var_epi64, _mm512_permutexvar_epi64, _mm512_setr_epi64, _mm512_shuffle_i64x2,
    _mm512_unpackhi_epi64, _mm512_unpacklo_epi64,
};

use super::{
    lazy::{Wide, minus, mul_lazy, subtract_once},
    select::{eight, words},
    *,
};
use crate::cpu::rns::{Factors, Limb};

/// q in the forms that butterflies want.
#[derive(Clone, Copy)]
struct Prime {
    twice: Word,
    minus: Word,
}

impl Prime {
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn new(q: u64) -> Self {
        Self { twice: all(2 * q), minus: minus(q) }
    }

    /// Cooley and Tukey's: `(x + wy, x − wy)`, below 4q from below 4q.
    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma")]
    fn forward(self, [x, y]: [Word; 2], w: Wide) -> [Word; 2] {
        let (u, v) = (subtract_once(x, self.twice), mul_lazy(y, w, self.minus));
        let raised = _mm512_add_epi64(u, self.twice);
        [_mm512_add_epi64(u, v), _mm512_sub_epi64(raised, v)]
    }

    /// Gentleman and Sande's: `(x + y, w·(x − y))`, below 2q from below 2q.
    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma")]
    fn inverse(self, [x, y]: [Word; 2], w: Wide) -> [Word; 2] {
        let difference = _mm512_sub_epi64(_mm512_add_epi64(x, self.twice), y);
        let sum = subtract_once(_mm512_add_epi64(x, y), self.twice);
        [sum, mul_lazy(difference, w, self.minus)]
    }
}

type Eights = [[u64; 8]];

/// Returns the four quarters of a block.
#[inline]
fn quarters(block: &mut Eights) -> [&mut Eights; 4] {
    let quarter = block.len() / 4;
    let (low, high) = block.split_at_mut(2 * quarter);
    let ((a, b), (c, d)) = (low.split_at_mut(quarter), high.split_at_mut(quarter));
    [a, b, c, d]
}

/// Transforms to NTT form, in place.
#[target_feature(enable = "avx512f,avx512ifma")]
pub(super) fn forward(a: &mut [u64], limb: &Limb) {
    let (n, prime, twiddles) = (a.len(), Prime::new(limb.q()), &limb.forward);
    let data = a.as_chunks_mut::<8>().0;
    // Blocks of the next stage, of n / blocks numbers: down to sixteen.
    let mut blocks = 1;
    if has_odd_stage(n) {
        by_twos(data, twiddles, |x, w| prime.forward(x, w));
        blocks = 2;
    }
    while n / blocks > 16 {
        by_fours(data, blocks, twiddles, |[a, b, c, d], w, [v0, v1]| {
            let ([a, c], [b, d]) = (prime.forward([a, c], w), prime.forward([b, d], w));
            let ([a, b], [c, d]) = (prime.forward([a, b], v0), prime.forward([c, d], v1));
            [a, b, c, d]
        });
        blocks *= 4;
    }
    let q = all(limb.q());
    for (i, [a, b]) in data.as_chunks_mut::<2>().0.iter_mut().enumerate() {
        let (x, y) = (eight(a), eight(b));
        let x = [_mm512_shuffle_i64x2::<0x44>(x, y), _mm512_shuffle_i64x2::<0xee>(x, y)];
        let x = fours_to_twos(prime.forward(x, two(twiddles, n / 8 + 2 * i)));
        let x = twos_to_ones(prime.forward(x, four(twiddles, n / 4 + 4 * i)));
        let [x, y] = prime.forward(x, eight_of(twiddles, n / 2 + 8 * i));
        let x = subtract_once(subtract_once(x, prime.twice), q);
        let y = subtract_once(subtract_once(y, prime.twice), q);
        let (low, high) = (_mm512_unpacklo_epi64(x, y), _mm512_unpackhi_epi64(x, y));
        let first = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11);
        let second = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
        *a = words(_mm512_permutex2var_epi64(low, first, high));
        *b = words(_mm512_permutex2var_epi64(low, second, high));
    }
}

/// Transforms from NTT form, in place.
#[target_feature(enable = "avx512f,avx512ifma")]
pub(super) fn inverse(a: &mut [u64], limb: &Limb) {
    let (n, prime, twiddles) = (a.len(), Prime::new(limb.q()), &limb.inverse);
    let data = a.as_chunks_mut::<8>().0;
    for (i, [a, b]) in data.as_chunks_mut::<2>().0.iter_mut().enumerate() {
        let (x, y) = (eight(a), eight(b));
        let even = _mm512_setr_epi64(0, 2, 4, 6, 8, 10, 12, 14);
        let odd = _mm512_setr_epi64(1, 3, 5, 7, 9, 11, 13, 15);
        let x = [_mm512_permutex2var_epi64(x, even, y), _mm512_permutex2var_epi64(x, odd, y)];
        let x = twos_to_ones(prime.inverse(x, eight_of(twiddles, n / 2 + 8 * i)));
        let x = fours_to_twos(prime.inverse(x, four(twiddles, n / 4 + 4 * i)));
        let [x, y] = prime.inverse(x, two(twiddles, n / 8 + 2 * i));
        *a = words(_mm512_shuffle_i64x2::<0x44>(x, y));
        *b = words(_mm512_shuffle_i64x2::<0xee>(x, y));
    }
    // Blocks of the second of the next two stages.
    let mut blocks = n / 32;
    while blocks >= 1 {
        by_fours(data, blocks, twiddles, |[a, b, c, d], w, [v0, v1]| {
            let ([a, b], [c, d]) = (prime.inverse([a, b], v0), prime.inverse([c, d], v1));
            let ([a, c], [b, d]) = (prime.inverse([a, c], w), prime.inverse([b, d], w));
            [a, b, c, d]
        });
        blocks /= 4;
    }
    let (q, scale) = (all(limb.q()), Wide::new(limb.n_inverse));
    if has_odd_stage(n) {
        by_twos(data, twiddles, |x, w| prime.inverse(x, w));
    }
    for x in data {
        *x = words(subtract_once(mul_lazy(eight(x), scale, prime.minus), q));
    }
}

/// Returns whether the stages whose blocks are sixteen or more are odd in number.
fn has_odd_stage(n: usize) -> bool {
    (n / 16).trailing_zeros().is_multiple_of(2)
}

/// Runs the stage of one block.
#[inline]
#[target_feature(enable = "avx512f,avx512ifma")]
fn by_twos(data: &mut Eights, factors: &Factors, butterfly: impl Fn([Word; 2], Wide) -> [Word; 2]) {
    let w = Wide::new(factors.get(1));
    let (low, high) = data.split_at_mut(data.len() / 2);
    for (x, y) in low.iter_mut().zip(high) {
        let [p, q] = butterfly([eight(x), eight(y)], w);
        (*x, *y) = (words(p), words(q));
    }
}

/// Runs two stages at once: `butterflies` takes four numbers, a quarter of a block apart, the
/// factor of the stage of `blocks` blocks, and the two of the stage of twice as many.
#[inline]
#[target_feature(enable = "avx512f,avx512ifma")]
fn by_fours(
    data: &mut Eights,
    blocks: usize,
    factors: &Factors,
    butterflies: impl Fn([Word; 4], Wide, [Wide; 2]) -> [Word; 4],
) {
    let length = data.len() / blocks;
    for (i, block) in (blocks..).zip(data.chunks_exact_mut(length)) {
        let w = Wide::new(factors.get(i));
        let v = [Wide::new(factors.get(2 * i)), Wide::new(factors.get(2 * i + 1))];
        let [a, b, c, d] = quarters(block);
        for (((a, b), c), d) in a.iter_mut().zip(b).zip(c).zip(d) {
            let x = butterflies([eight(a), eight(b), eight(c), eight(d)], w, v);
            (*a, *b, *c, *d) = (words(x[0]), words(x[1]), words(x[2]), words(x[3]));
        }
    }
}

/// Turns pairs of fours, `[a0..4 b0..4]` and `[a4..8 b4..8]`, to pairs of twos, and back.
#[inline]
#[target_feature(enable = "avx512f")]
fn fours_to_twos([x, y]: [Word; 2]) -> [Word; 2] {
    let low = _mm512_setr_epi64(0, 1, 8, 9, 4, 5, 12, 13);
    let high = _mm512_setr_epi64(2, 3, 10, 11, 6, 7, 14, 15);
    [_mm512_permutex2var_epi64(x, low, y), _mm512_permutex2var_epi64(x, high, y)]
}

/// Turns pairs of twos into pairs of ones, and back.
#[inline]
#[target_feature(enable = "avx512f")]
fn twos_to_ones([x, y]: [Word; 2]) -> [Word; 2] {
    [_mm512_unpacklo_epi64(x, y), _mm512_unpackhi_epi64(x, y)]
}

/// Returns two factors, each for four lanes.
#[inline]
#[target_feature(enable = "avx512f")]
fn two(factors: &Factors, first: usize) -> Wide {
    let [w, quotient] = factors.run::<2>(first);
    let spread = |x: &[u64; 2]| {
        let (a, b) = (x[0] as i64, x[1] as i64);
        _mm512_setr_epi64(a, a, a, a, b, b, b, b)
    };
    Wide { w: spread(w), quotient: spread(quotient) }
}

/// Returns four factors, each for two lanes.
#[inline]
#[target_feature(enable = "avx512f")]
fn four(factors: &Factors, first: usize) -> Wide {
    let [w, quotient] = factors.run::<4>(first);
    let places = _mm512_setr_epi64(0, 0, 1, 1, 2, 2, 3, 3);
    let spread = |x: &[u64; 4]| {
        let [a, b, c, d] = x.map(|x| x as i64);
        _mm512_permutexvar_epi64(places, _mm512_setr_epi64(a, b, c, d, 0, 0, 0, 0))
    };
    Wide { w: spread(w), quotient: spread(quotient) }
}

/// Returns eight factors.
#[inline]
#[target_feature(enable = "avx512f")]
fn eight_of(factors: &Factors, first: usize) -> Wide {
    let [w, quotient] = factors.run::<8>(first);
    Wide { w: eight(w), quotient: eight(quotient) }
}
