//! The loops over residues of the primes of a ring, eight at a time.

use std::arch::x86_64::{
    _MM_HINT_T1, _mm_prefetch, _mm512_permutexvar_epi64, _mm512_sllv_epi64, _mm512_srlv_epi64,
};

use zeroize::Zeroizing;

use super::{
    chacha, compose,
    lazy::{Wide, minus, mul_lazy, subtract_once},
    ntt, packing,
    select::{eight, words},
    *,
};
use crate::{
    beats::LANES,
    cpu::rns::{Factor, LIFTED, Limb, RUN, Rns, STREAM_WORDS, Tables, Turn, WeightRow},
    ring::{LanePrimes, MAX_PRIMES},
};

/// Fills the vectors of `$out`, four side by side while there are as many: `$f` makes them from number `$first` on.
macro_rules! side_by_side {
    ($out:expr, |$first:ident| $f:expr) => {
        let (fours, rest) = $out.as_chunks_mut::<8>().0.as_chunks_mut::<4>();
        let done = 4 * fours.len();
        for (i, out) in fours.iter_mut().enumerate() {
            let $first = 4 * i;
            *out = $f;
        }
        for (i, out) in rest.iter_mut().enumerate() {
            let $first = done + i;
            [*out] = $f;
        }
    };
}

/// Applies `$f` to vectors of eight of `$a` and `$b`. Degrees of rings are multiples of sixteen.
macro_rules! each_eight {
    ($out:expr, $a:expr, $b:expr, |$x:ident, $y:ident| $f:expr) => {
        let (a, b) = ($a.as_chunks::<8>().0, $b.as_chunks::<8>().0);
        for ((out, a), b) in $out.as_chunks_mut::<8>().0.iter_mut().zip(a).zip(b) {
            let ($x, $y) = (eight(a), eight(b));
            *out = words($f);
        }
    };
}

#[target_feature(enable = "avx512f")]
fn add(out: &mut [u64], a: &[u64], b: &[u64], q: u64) {
    let q = all(q);
    each_eight!(out, a, b, |x, y| subtract_once(_mm512_add_epi64(x, y), q));
}

#[target_feature(enable = "avx512f")]
fn sub(out: &mut [u64], a: &[u64], b: &[u64], q: u64) {
    let q = all(q);
    each_eight!(out, a, b, |x, y| subtract_once(_mm512_sub_epi64(_mm512_add_epi64(x, q), y), q));
}

/// Barrett's reduction of `h·2^52 + l`, with `mu` scaled so that the estimate is a high half.
///
/// # Bound
/// The estimate is the quotient or at most 2 less, as in the portable path: the rest is below 3q.
#[target_feature(enable = "avx512f,avx512ifma")]
fn mul(out: &mut [u64], a: &[u64], b: &[u64], limb: &Limb) {
    let (q, minus_q, zero) = (all(limb.q()), minus(limb.q()), _mm512_setzero_si512());
    let mu = all(limb.mu << (BITS - 1 - limb.bits));
    let (up, down) = (all(u64::from(BITS + 1 - limb.bits)), all(u64::from(limb.bits - 1)));
    each_eight!(out, a, b, |x, y| {
        let (l, h) = (low(zero, x, y), high(zero, x, y));
        let top = _mm512_or_si512(_mm512_sllv_epi64(h, up), _mm512_srlv_epi64(l, down));
        let rest = low(l, high(zero, top, mu), minus_q);
        let rest = _mm512_and_si512(rest, all(MASK));
        subtract_once(subtract_once(rest, q), q)
    });
}

#[target_feature(enable = "avx512f,avx512ifma")]
fn scale(out: &mut [u64], a: &[u64], q: u64, factor: Factor) {
    let (factor, minus_q, q) = (Wide::new(factor), minus(q), all(q));
    each_eight!(out, a, a, |x, _y| subtract_once(mul_lazy(x, factor, minus_q), q));
}

/// See [`Rns::turn_values`].
#[target_feature(enable = "avx512f")]
fn turn_values(out: &mut [u64], a: &[u64], turn: &Turn) {
    let places = turn.places().map(|places| eight(&places.map(u64::from)));
    let (out, a) = (out.as_chunks_mut::<8>().0, a.as_chunks::<8>().0);
    turn.each_group(8 * a.len(), |to, from, places_of| {
        out[to] = words(_mm512_permutexvar_epi64(places[places_of], eight(&a[from])));
    });
}

/// See [`Rns::mul_sum`].
///
/// # Bound
/// Sixteen products are below 2^104, so once the low halves have carried, the high ones are below
/// 2^52. Both rests are below 2q.
#[target_feature(enable = "avx512f,avx512ifma")]
fn mul_sum(out: &mut [u64], pairs: &[[&[u64]; 2]], limb: &Limb) {
    side_by_side!(out, |first| sums_of(pairs, first, limb));
}

/// Words that a sum of products asks for before it needs them: a page.
const AHEAD: usize = 512;

/// Asks for what is `ahead` words behind the first, into the second level of cache: what all operands of a sum ask
/// for would not fit the first. That nothing may be there does not matter.
#[inline]
#[target_feature(enable = "avx512f")]
fn prefetch(words: &[u64], ahead: usize) {
    _mm_prefetch::<_MM_HINT_T1>(words.as_ptr().wrapping_add(ahead).cast());
}

/// Sums `COUNT` vectors side by side, from number `first` on: sums wait for themselves.
#[inline]
#[target_feature(enable = "avx512f,avx512ifma")]
fn sums_of<const COUNT: usize>(
    pairs: &[[&[u64]; 2]],
    first: usize,
    limb: &Limb,
) -> [[u64; 8]; COUNT] {
    let (zero, minus_q, mask) = (_mm512_setzero_si512(), minus(limb.q()), all(MASK));
    let [one, radix] = [limb.one(), limb.radix_powers[1]].map(|factor| Wide::new(factor));
    let [mut l, mut h] = [[zero; COUNT]; 2];
    for &[a, b] in pairs {
        let (a, b) = (vectors::<COUNT>(a, first), vectors::<COUNT>(b, first));
        for i in 0..COUNT {
            // Keys come from far, and as many streams as these the processor does not follow by itself.
            prefetch(&a[i], AHEAD);
            prefetch(&b[i], AHEAD);
            let (a, b) = (eight(&a[i]), eight(&b[i]));
            (l[i], h[i]) = (low(l[i], a, b), high(h[i], a, b));
        }
    }
    let mut sums = [[0; 8]; COUNT];
    for ((sum, l), h) in sums.iter_mut().zip(l).zip(h) {
        let h = mul_lazy(_mm512_add_epi64(h, carry_of(l)), radix, minus_q);
        let l = mul_lazy(_mm512_and_si512(l, mask), one, minus_q);
        let rest = subtract_once(_mm512_add_epi64(h, l), all(2 * limb.q()));
        *sum = words(subtract_once(rest, all(limb.q())));
    }
    sums
}

/// Returns `COUNT` vectors of words, from number `first` on, whose sums stay in registers.
#[inline(always)]
fn vectors<const COUNT: usize>(words: &[u64], first: usize) -> &[[u64; 8]; COUNT] {
    crate::words::run(words.as_chunks().0, first)
}

/// Returns how many primes there are: from nine on kernels are compiled for some numbers alone, and take fewer too.
#[inline(always)]
fn known<const MOST: usize>(count: usize) -> usize {
    if MOST <= 8 { MOST } else { count }
}

/// The digits of 52 bits of a word, and its sign, each times its power of the radix.
///
/// # Bound
/// Products are below 2q, the sign's part below q.
#[target_feature(enable = "avx512f,avx512ifma")]
fn lift(out: &mut [u64], integers: &[u64], limb: &Limb, signed: bool) {
    let (minus_q, mask) = (minus(limb.q()), all(MASK));
    let powers = [limb.radix_powers[0], limb.radix_powers[1]].map(|power| Wide::new(power));
    let above = all(if signed { limb.q() - limb.word_powers[1] } else { 0 });
    each_eight!(out, integers, integers, |x, _y| {
        let sign = _mm512_and_si512(above, _mm512_srai_epi64::<63>(x));
        let digits = [_mm512_and_si512(x, mask), carry_of(x)];
        let sum = (0..2).fold(sign, |sum, digit| {
            _mm512_add_epi64(sum, mul_lazy(digits[digit], powers[digit], minus_q))
        });
        let sum = subtract_once(subtract_once(sum, all(4 * limb.q())), all(2 * limb.q()));
        subtract_once(sum, all(limb.q()))
    });
}

/// Digits of 52 bits of the most words.
const DIGITS: usize = (64 * MAX_PRIMES).div_ceil(BITS as usize);

/// See [`Rns::lift_all`]: integers are cut into digits of 52 bits once for all primes.
#[target_feature(enable = "avx512f,avx512ifma")]
fn lift_all(out: &mut [u64], integers: &[u64], tables: &Tables, signed: bool) {
    let (n, limbs) = (out.len() / tables.limbs().len(), tables.limbs());
    let (count, each) = (LIFTED.min(n), integers.len() / n);
    let mut digits = Zeroizing::new([0; LIFTED * DIGITS]);
    let digits = &mut digits[..(64 * each).div_ceil(BITS as usize) * count];
    for first in (0..n).step_by(count) {
        let row = |w: usize| &integers[w * n + first..][..count];
        for (digit, out) in digits.chunks_exact_mut(count).enumerate() {
            let (w, bit) = (digit * BITS as usize / 64, digit as u64 * u64::from(BITS) % 64);
            // A shift by 64 gives zero.
            let (next, up) = if w + 1 < each { (row(w + 1), 64 - bit) } else { (row(w), 64) };
            each_eight!(out, row(w), next, |x, y| {
                let x = _mm512_srlv_epi64(x, all(bit));
                let x = _mm512_or_si512(x, _mm512_sllv_epi64(y, all(up)));
                _mm512_and_si512(x, all(MASK))
            });
        }
        let signs = signed.then(|| row(each - 1));
        for (out, limb) in out.chunks_exact_mut(n).zip(limbs) {
            let above = signs.map(|signs| (signs, limb.q() - limb.word_powers[each]));
            side_by_side!(out[first..][..count], |at| lifted((digits, count), at, above, limb));
        }
    }
}

/// Lifts `COUNT` vectors of integers side by side, from number `first` on: each digit times its power of the radix.
/// `digits` are rows of `row` words; `above` the top words of signed integers, and what a negative one adds.
///
/// # Bound
/// Each of at most thirty products is below 2q, the sign's part below q: their sum is below 64q, and 32q, 16q … q are
/// taken away as often as they can be.
#[inline]
#[target_feature(enable = "avx512f,avx512ifma")]
fn lifted<const COUNT: usize>(
    (digits, row): (&[u64], usize),
    first: usize,
    above: Option<(&[u64], u64)>,
    limb: &Limb,
) -> [[u64; 8]; COUNT] {
    let minus_q = minus(limb.q());
    let vector = |words: &[u64], i: usize| eight(&words[8 * (first + i)..][..8]);
    let mut sums = [_mm512_setzero_si512(); COUNT];
    if let Some((signs, power)) = above {
        for (i, sum) in sums.iter_mut().enumerate() {
            let sign = _mm512_srai_epi64::<63>(vector(signs, i));
            *sum = _mm512_and_si512(all(power), sign);
        }
    }
    for (digits, &power) in digits.chunks_exact(row).zip(&limb.radix_powers) {
        let power = Wide::new(power);
        for (i, sum) in sums.iter_mut().enumerate() {
            *sum = _mm512_add_epi64(*sum, mul_lazy(vector(digits, i), power, minus_q));
        }
    }
    for shift in (0..=(2 * digits.len() / row).ilog2()).rev() {
        for sum in &mut sums {
            *sum = subtract_once(*sum, all(limb.q() << shift));
        }
    }
    sums.map(words)
}

/// `(x − y) / p`, below 2q, for x below 2^51 and y below p, of `p_bits`.
///
/// # Bound
/// If p has no more bits than q, it is below 2q, and y with it: no product has to bring it there.
#[inline]
#[target_feature(enable = "avx512f,avx512ifma")]
fn divided(x: Word, y: Word, limb: &Limb, (p_bits, p_inverse): (u32, Factor)) -> Word {
    let (twice, minus_q) = (all(2 * limb.q()), minus(limb.q()));
    let other = match p_bits <= limb.bits {
        true => y,
        false => mul_lazy(y, Wide::new(limb.one()), minus_q),
    };
    let difference = _mm512_sub_epi64(_mm512_add_epi64(x, twice), other);
    mul_lazy(difference, Wide::new(p_inverse), minus_q)
}

/// Turns the residues of numbers, `WIDE` vectors of them, into their digits in mixed radix, the
/// primes, as in the portable path.
#[inline]
#[target_feature(enable = "avx512f,avx512ifma")]
fn to_digits<const L: usize, const WIDE: usize>(x: &mut [[Word; WIDE]; L], limbs: &[Limb]) {
    for j in 0..known::<L>(limbs.len()) {
        let limb = &limbs[j];
        for k in 0..j {
            let (before, inverse) = (x[k], (limbs[k].bits, limb.prime_inverses[k]));
            for (x, before) in x[j].iter_mut().zip(before) {
                *x = divided(*x, before, limb, inverse);
            }
        }
        x[j].iter_mut().for_each(|x| *x = subtract_once(*x, all(limb.q())));
    }
}

/// See [`Rns::base_extend`]. Degrees of rings are multiples of sixteen, and mostly of 32.
#[target_feature(enable = "avx512f,avx512ifma")]
fn base_extend<const L: usize>(out: &mut [u64], poly: &[u64], tables: &Tables, rows: &[WeightRow]) {
    let n = poly.len() / known::<L>(tables.limbs().len());
    if n.is_multiple_of(32) {
        base_extend_by::<L, 4>(out, poly, n, tables, rows);
    } else {
        base_extend_by::<L, 2>(out, poly, n, tables, rows);
    }
}

/// Extends `WIDE` vectors at a time: a digit waits for the one before it, and constants are loaded
/// once for all of them.
///
/// # Bound
/// A sum and a term, each below 2q, are below 2^52; digits are below 2^50, whatever prime they are of, so one with a
/// sum and a shift, below q, is as well.
#[inline]
#[target_feature(enable = "avx512f,avx512ifma")]
fn base_extend_by<const L: usize, const WIDE: usize>(
    out: &mut [u64],
    poly: &[u64],
    n: usize,
    tables: &Tables,
    rows: &[WeightRow],
) {
    let limbs = tables.limbs();
    for i in (0..n).step_by(8 * WIDE) {
        let mut digits = [[_mm512_setzero_si512(); WIDE]; L];
        for ((digit, residues), limb) in digits.iter_mut().zip(poly.chunks_exact(n)).zip(limbs) {
            let (half, q) = (all(limb.q() / 2), all(limb.q()));
            for (digit, x) in digit.iter_mut().zip(residues[i..].as_chunks::<8>().0) {
                *digit = subtract_once(_mm512_add_epi64(eight(x), half), q);
            }
        }
        to_digits(&mut digits, limbs);
        for (out, row) in out.chunks_exact_mut(n).zip(rows) {
            let (minus_q, twice) = (minus(row.q), all(2 * row.q));
            // The first weight is 1: its digit waits for what the others come to.
            let (one, weights) = (Wide::new(row.weights[0]), &row.weights[1..]);
            let mut sums = [_mm512_setzero_si512(); WIDE];
            for (j, (digit, &weight)) in digits[1..].iter().zip(weights).enumerate() {
                let weight = Wide::new(weight);
                for (sum, &digit) in sums.iter_mut().zip(digit) {
                    let term = mul_lazy(digit, weight, minus_q);
                    *sum = match j {
                        0 => term,
                        _ => subtract_once(_mm512_add_epi64(*sum, term), twice),
                    };
                }
            }
            let sums = sums.into_iter().zip(digits[0]);
            for (out, (sum, digit)) in out[i..].as_chunks_mut::<8>().0.iter_mut().zip(sums) {
                let sum = _mm512_add_epi64(_mm512_add_epi64(sum, digit), all(row.shift));
                *out = words(subtract_once(mul_lazy(sum, one, minus_q), all(row.q)));
            }
        }
    }
}

/// Calls a kernel for a number of primes known at compile time.
macro_rules! by_count {
    ($count:expr, $f:ident($($arg:expr),*)) => {
        match $count {
            1 => $f::<1>($($arg),*),
            2 => $f::<2>($($arg),*),
            3 => $f::<3>($($arg),*),
            4 => $f::<4>($($arg),*),
            5 => $f::<5>($($arg),*),
            6 => $f::<6>($($arg),*),
            7 => $f::<7>($($arg),*),
            8 => $f::<8>($($arg),*),
            9..=12 => $f::<12>($($arg),*),
            13..=16 => $f::<16>($($arg),*),
            17..=20 => $f::<20>($($arg),*),
            21..=24 => $f::<24>($($arg),*),
            count => unreachable!("{count} primes of a ring"),
        }
    };
}

impl Rns for Ifma {
    const QUOTIENT_BITS: u32 = BITS;

    fn add(self, out: &mut [u64], a: &[u64], b: &[u64], q: u64) {
        kernel!(add(out, a, b, q));
    }

    fn sub(self, out: &mut [u64], a: &[u64], b: &[u64], q: u64) {
        kernel!(sub(out, a, b, q));
    }

    fn mul(self, out: &mut [u64], a: &[u64], b: &[u64], limb: &Limb) {
        kernel!(mul(out, a, b, limb));
    }

    fn turn_values(self, out: &mut [u64], a: &[u64], turn: &Turn) {
        kernel!(turn_values(out, a, turn));
    }

    fn scale(self, out: &mut [u64], a: &[u64], q: u64, factor: Factor) {
        kernel!(scale(out, a, q, factor));
    }

    fn mul_sum(self, out: &mut [u64], pairs: &[[&[u64]; 2]], limb: &Limb) {
        kernel!(mul_sum(out, pairs, limb));
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
        kernel!(lift(out, integers, limb, signed));
    }

    fn lift_all(self, out: &mut [u64], integers: &[u64], tables: &Tables, signed: bool) {
        kernel!(lift_all(out, integers, tables, signed));
    }

    fn compose(self, out: &mut [u64], poly: &[u64], tables: &Tables) {
        kernel!(compose::compose(out, poly, tables));
    }

    fn base_extend(self, out: &mut [u64], poly: &[u64], tables: &Tables, rows: &[WeightRow]) {
        kernel!(by_count!(tables.limbs().len(), base_extend(out, poly, tables, rows)));
    }

    fn pack(self, out: &mut [u64], lanes: &[u64]) {
        kernel!(packing::pack(out, lanes));
    }

    fn unpack(self, lanes: &mut [u64], words: &[u64]) {
        kernel!(packing::unpack(lanes, words));
    }

    fn first_bad_lanes(self, out: &mut [u64], words: &[u64], primes: &[u64]) {
        kernel!(packing::first_bad_lanes(out, words, primes));
    }

    fn add_lanes(self, sums: &mut [u64], words: &[u64], primes: &[LanePrimes]) {
        kernel!(packing::add_lanes(sums, words, primes));
    }

    fn add_beats(self, out: &mut [u64], a: &[u64], b: &[u64], primes: &[u64]) {
        kernel!(packing::add_beats(out, a, b, primes));
    }
}
