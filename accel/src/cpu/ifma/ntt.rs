//! The number-theoretic transform, eight butterflies at a time.
//!
//! Stages whose blocks are sixteen or more go two at a time, in registers, and where their number
//! is odd that of the whole polynomial by itself; the last three forward, and the first three back,
//! are done on sixteen neighbours that permutes put in place. A block that does not fit the first level of cache is
//! done quarter by quarter, all stages of each: otherwise every second stage reads and writes all of the polynomial.

use std::arch::x86_64::{
    _mm512_permutex2var_epi64, _mm512_permutexvar_epi64, _mm512_setr_epi64, _mm512_shuffle_i64x2,
    _mm512_unpackhi_epi64, _mm512_unpacklo_epi64,
};

use super::{
    lazy::{Wide, minus, mul_lazy, mul_modulo_word, subtract_once},
    select::{eight, words},
    *,
};
use crate::cpu::rns::{IntegerFactors, Limb, quarters};

/// Bits of a prime that leaves room for all stages forward: numbers grow by 2q in each of at most sixteen, from below q
/// to below 33q, and so stay below 2^52.
const ROOMY_BITS: u32 = 46;

/// q in the forms that butterflies want. `ROOMY` is that it has at most [`ROOMY_BITS`].
#[derive(Clone, Copy)]
struct VectorPrime<const ROOMY: bool> {
    q: Word,
    twice: Word,
    minus: Word,
}

impl<const ROOMY: bool> VectorPrime<ROOMY> {
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn new(q: u64) -> Self {
        Self { q: all(q), twice: all(2 * q), minus: minus(q) }
    }

    /// Cooley and Tukey's: `(x + wy, x − wy)`, below 4q from below 4q.
    ///
    /// Where there is room, more than 2q from what x is, modulo 2^52: the multipliers take no more of it, so nothing is
    /// taken away and nothing masked before the end.
    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma")]
    fn forward(self, [x, y]: [Word; 2], w: Wide) -> [Word; 2] {
        let (u, v) = if ROOMY {
            (x, mul_modulo_word(y, w, self.minus))
        } else {
            (subtract_once(x, self.twice), mul_lazy(y, w, self.minus))
        };
        let raised = _mm512_add_epi64(u, self.twice);
        [_mm512_add_epi64(u, v), _mm512_sub_epi64(raised, v)]
    }

    /// Reduces what the last stage forward leaves.
    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma")]
    fn reduce(self, x: Word, one: Wide) -> Word {
        let below_twice = if ROOMY {
            let estimate = high(_mm512_setzero_si512(), x, one.quotient);
            _mm512_and_si512(low(x, estimate, self.minus), all(MASK))
        } else {
            subtract_once(x, self.twice)
        };
        subtract_once(below_twice, self.q)
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

/// Vectors of a block that stays in the first level of cache: 16 KiB, and as much again for its factors.
const CACHED: usize = 256;

/// Returns whether the stages whose blocks are sixteen or more are odd in number.
fn has_odd_stage(n: usize) -> bool {
    (n / 16).trailing_zeros().is_multiple_of(2)
}

/// Transforms `a` to NTT form.
#[target_feature(enable = "avx512f,avx512ifma")]
pub(super) fn forward(out: &mut [u64], a: &[u64], limb: &Limb) {
    if limb.bits <= ROOMY_BITS {
        forward_with(out, a, VectorPrime::<true>::new(limb.q()), limb);
    } else {
        forward_with(out, a, VectorPrime::<false>::new(limb.q()), limb);
    }
}

#[target_feature(enable = "avx512f,avx512ifma")]
fn forward_with<const ROOMY: bool>(
    out: &mut [u64],
    a: &[u64],
    prime: VectorPrime<ROOMY>,
    limb: &Limb,
) {
    let [twiddles, _] = limb.integers();
    let odd = has_odd_stage(a.len());
    let (out, a) = (out.as_chunks_mut::<8>().0, a.as_chunks::<8>().0);
    // The first stage, or the first two, of the one block that all of it is.
    let parts = if odd {
        let (w, half) = (Wide::new(twiddles.get(1)), a.len() / 2);
        for i in 0..half {
            let x = prime.forward([eight(&a[i]), eight(&a[half + i])], w);
            (out[i], out[half + i]) = (words(x[0]), words(x[1]));
        }
        2
    } else {
        let quarter = a.len() / 4;
        let factors = two_stage_factors(twiddles, 1);
        for i in 0..quarter {
            let x = std::array::from_fn(|part| eight(&a[part * quarter + i]));
            let x = forward_fours(prime, x, factors);
            (0..4).for_each(|part| out[part * quarter + i] = words(x[part]));
        }
        4
    };
    let length = out.len() / parts;
    if length < 2 {
        return last_stages(out, 1, prime, limb);
    }
    for (node, part) in (parts..).zip(out.chunks_exact_mut(length)) {
        forward_block(part, node, prime, limb);
    }
}

/// The two stages of a block of four numbers: the factor of the first, and both of the second.
#[inline]
#[target_feature(enable = "avx512f,avx512ifma")]
fn forward_fours<const ROOMY: bool>(
    prime: VectorPrime<ROOMY>,
    [a, b, c, d]: [Word; 4],
    [w, v0, v1]: [Wide; 3],
) -> [Word; 4] {
    let ([a, c], [b, d]) = (prime.forward([a, c], w), prime.forward([b, d], w));
    let ([a, b], [c, d]) = (prime.forward([a, b], v0), prime.forward([c, d], v1));
    [a, b, c, d]
}

/// See [`forward_fours`].
#[inline]
#[target_feature(enable = "avx512f,avx512ifma")]
fn inverse_fours(
    prime: VectorPrime<false>,
    [a, b, c, d]: [Word; 4],
    [w, v0, v1]: [Wide; 3],
) -> [Word; 4] {
    let ([a, b], [c, d]) = (prime.inverse([a, b], v0), prime.inverse([c, d], v1));
    let ([a, c], [b, d]) = (prime.inverse([a, c], w), prime.inverse([b, d], w));
    [a, b, c, d]
}

/// Returns the factors of two stages of a block: blocks are numbered as the nodes of a tree, 1 the
/// whole, 2i and 2i + 1 the halves of i.
#[inline]
#[target_feature(enable = "avx512f")]
fn two_stage_factors(factors: &IntegerFactors, node: usize) -> [Wide; 3] {
    [node, 2 * node, 2 * node + 1].map(|node| Wide::new(factors.get(node)))
}

/// Runs all stages of a block: one that does not fit the cache quarter after quarter.
#[target_feature(enable = "avx512f,avx512ifma")]
fn forward_block<const ROOMY: bool>(
    data: &mut Eights,
    node: usize,
    prime: VectorPrime<ROOMY>,
    limb: &Limb,
) {
    let [twiddles, _] = limb.integers();
    if data.len() > CACHED {
        let factors = two_stage_factors(twiddles, node);
        by_fours(data, |x| forward_fours(prime, x, factors));
        let quarters = quarters(data);
        for (part, quarter) in quarters.into_iter().enumerate() {
            forward_block(quarter, 4 * node + part, prime, limb);
        }
        return;
    }
    // Blocks of the next stage: down to eight numbers.
    let mut blocks = 1;
    while data.len() > blocks {
        let length = data.len() / blocks;
        for (node, block) in (blocks * node..).zip(data.chunks_exact_mut(length)) {
            let factors = two_stage_factors(twiddles, node);
            by_fours(block, |x| forward_fours(prime, x, factors));
        }
        blocks *= 4;
    }
    last_stages(data, node, prime, limb);
}

/// Sixteen neighbours.
type PackedPair = [[u64; 8]; 2];

/// Pairs that take the last stages side by side: the steps of one wait for each other.
const PAIRS: usize = 4;

/// Runs the last three stages of a block, of blocks of eight, four and two numbers.
#[inline]
#[target_feature(enable = "avx512f,avx512ifma")]
fn last_stages<const ROOMY: bool>(
    data: &mut Eights,
    node: usize,
    prime: VectorPrime<ROOMY>,
    limb: &Limb,
) {
    let first = node * data.len();
    let (fours, rest) = data.as_chunks_mut::<2>().0.as_chunks_mut::<PAIRS>();
    for (pairs, first) in fours.iter_mut().zip((first..).step_by(2 * PAIRS)) {
        last_of_pairs(pairs, first, prime, limb);
    }
    for (pair, first) in rest.iter_mut().zip((first..).step_by(2)) {
        last_of_pairs(std::array::from_mut(pair), first, prime, limb);
    }
}

/// See [`last_stages`]: for the blocks of eight from number `first` on.
#[inline]
#[target_feature(enable = "avx512f,avx512ifma")]
fn last_of_pairs<const ROOMY: bool, const COUNT: usize>(
    pairs: &mut [PackedPair; COUNT],
    first: usize,
    prime: VectorPrime<ROOMY>,
    limb: &Limb,
) {
    let ([twiddles, _], one) = (limb.integers(), Wide::new(limb.one()));
    let mut x = pairs.map(|[x, y]| {
        let (x, y) = (eight(&x), eight(&y));
        [_mm512_shuffle_i64x2::<0x44>(x, y), _mm512_shuffle_i64x2::<0xee>(x, y)]
    });
    for (i, x) in x.iter_mut().enumerate() {
        *x = fours_to_twos(prime.forward(*x, two(twiddles, first + 2 * i)));
    }
    for (i, x) in x.iter_mut().enumerate() {
        *x = twos_to_ones(prime.forward(*x, four(twiddles, 2 * first + 4 * i)));
    }
    for (i, x) in x.iter_mut().enumerate() {
        *x = prime.forward(*x, eight_of(twiddles, 4 * first + 8 * i));
    }
    for ([a, b], x) in pairs.iter_mut().zip(x) {
        let [x, y] = [prime.reduce(x[0], one), prime.reduce(x[1], one)];
        let (low, high) = (_mm512_unpacklo_epi64(x, y), _mm512_unpackhi_epi64(x, y));
        let first = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11);
        let second = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
        *a = words(_mm512_permutex2var_epi64(low, first, high));
        *b = words(_mm512_permutex2var_epi64(low, second, high));
    }
}

/// Transforms `a` from NTT form.
#[target_feature(enable = "avx512f,avx512ifma")]
pub(super) fn inverse(out: &mut [u64], a: &[u64], limb: &Limb) {
    let (prime, [_, twiddles]) = (VectorPrime::<false>::new(limb.q()), limb.integers());
    let odd = has_odd_stage(a.len());
    let (out, a) = (out.as_chunks_mut::<8>().0, a.as_chunks::<8>().0);
    let parts = if odd { 2 } else { 4 };
    let length = a.len() / parts;
    if length < 2 {
        first_stages(out, a, 1, prime, limb);
    } else {
        let blocks = out.chunks_exact_mut(length).zip(a.chunks_exact(length));
        for (node, (out, a)) in (parts..).zip(blocks) {
            inverse_block(out, a, node, prime, limb);
        }
    }
    // The last stage, or the last two, and over N.
    let (q, scale) = (all(limb.q()), Wide::new(limb.n_inverse));
    let finish = |x| words(subtract_once(mul_lazy(x, scale, prime.minus), q));
    if odd {
        let w = Wide::new(twiddles.get(1));
        let (low, high) = out.split_at_mut(length);
        for (x, y) in low.iter_mut().zip(high) {
            let [p, q] = prime.inverse([eight(x), eight(y)], w);
            (*x, *y) = (finish(p), finish(q));
        }
    } else {
        let factors = two_stage_factors(twiddles, 1);
        let [a, b, c, d] = quarters(out);
        for (((a, b), c), d) in a.iter_mut().zip(b).zip(c).zip(d) {
            let x = [eight(a), eight(b), eight(c), eight(d)];
            let x = inverse_fours(prime, x, factors);
            (*a, *b, *c, *d) = (finish(x[0]), finish(x[1]), finish(x[2]), finish(x[3]));
        }
    }
}

/// Runs all stages of a block, back: see [`forward_block`].
#[target_feature(enable = "avx512f,avx512ifma")]
fn inverse_block(
    out: &mut Eights,
    a: &Eights,
    node: usize,
    prime: VectorPrime<false>,
    limb: &Limb,
) {
    let [_, twiddles] = limb.integers();
    if out.len() > CACHED {
        let quarter = a.len() / 4;
        for (part, out) in quarters(out).into_iter().enumerate() {
            let a = &a[part * quarter..][..quarter];
            inverse_block(out, a, 4 * node + part, prime, limb);
        }
        let factors = two_stage_factors(twiddles, node);
        by_fours(out, |x| inverse_fours(prime, x, factors));
        return;
    }
    first_stages(out, a, node, prime, limb);
    let mut blocks = out.len() / 4;
    while blocks >= 1 {
        let length = out.len() / blocks;
        for (node, block) in (blocks * node..).zip(out.chunks_exact_mut(length)) {
            let factors = two_stage_factors(twiddles, node);
            by_fours(block, |x| inverse_fours(prime, x, factors));
        }
        blocks /= 4;
    }
}

/// Runs the first three stages of a block, back.
#[inline]
#[target_feature(enable = "avx512f,avx512ifma")]
fn first_stages(out: &mut Eights, a: &Eights, node: usize, prime: VectorPrime<false>, limb: &Limb) {
    let ([_, twiddles], first) = (limb.integers(), node * out.len());
    let pairs = out.as_chunks_mut::<2>().0.iter_mut().zip(a.as_chunks::<2>().0);
    for (i, (out, [x, y])) in pairs.enumerate() {
        let (x, y) = (eight(x), eight(y));
        let even = _mm512_setr_epi64(0, 2, 4, 6, 8, 10, 12, 14);
        let odd = _mm512_setr_epi64(1, 3, 5, 7, 9, 11, 13, 15);
        let x = [_mm512_permutex2var_epi64(x, even, y), _mm512_permutex2var_epi64(x, odd, y)];
        let x = twos_to_ones(prime.inverse(x, eight_of(twiddles, 4 * first + 8 * i)));
        let x = fours_to_twos(prime.inverse(x, four(twiddles, 2 * first + 4 * i)));
        let [x, y] = prime.inverse(x, two(twiddles, first + 2 * i));
        *out =
            [words(_mm512_shuffle_i64x2::<0x44>(x, y)), words(_mm512_shuffle_i64x2::<0xee>(x, y))];
    }
}

/// Runs two stages of a block at once: `butterflies` takes four numbers, a quarter of it apart.
#[inline]
#[target_feature(enable = "avx512f,avx512ifma")]
fn by_fours(block: &mut Eights, butterflies: impl Fn([Word; 4]) -> [Word; 4]) {
    let [a, b, c, d] = quarters(block);
    for (((a, b), c), d) in a.iter_mut().zip(b).zip(c).zip(d) {
        let x = butterflies([eight(a), eight(b), eight(c), eight(d)]);
        (*a, *b, *c, *d) = (words(x[0]), words(x[1]), words(x[2]), words(x[3]));
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
fn two(factors: &IntegerFactors, first: usize) -> Wide {
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
fn four(factors: &IntegerFactors, first: usize) -> Wide {
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
fn eight_of(factors: &IntegerFactors, first: usize) -> Wide {
    let [w, quotient] = factors.run::<8>(first);
    Wide { w: eight(w), quotient: eight(quotient) }
}
