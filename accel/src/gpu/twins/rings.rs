//! Kernels over polynomials and beats: numbers of 64 bits, all residues reduced.

use num_bigint::BigUint;

use super::{Grid, joined};
use crate::{
    beats,
    gpu::shaders::RingParams,
    reference::{centred_binomial, draws, stream, ternary as ternary_of},
    ring::{mul_mod_vartime, pow_mod_vartime},
};

/// Numbers of 64 bits in words of 32.
struct Wide<'g>(&'g [u32]);

impl Wide<'_> {
    fn get(&self, index: usize) -> u64 {
        joined(&self.0[2 * index..])
    }

    fn slice(&self, first: usize, count: usize) -> Vec<u64> {
        (first..first + count).map(|index| self.get(index)).collect()
    }
}

/// The parameters and constants of a ring.
struct Ring<'g> {
    p: RingParams,
    n: usize,
    limbs: usize,
    constants: Wide<'g>,
}

impl<'g> Ring<'g> {
    fn of(params: &[u32], constants: &'g [u32]) -> Self {
        let [count, log_degree, limbs, a_stride, b_stride, first_stage, rest @ ..] =
            <[u32; 13]>::try_from(params).unwrap();
        let [stages, log_columns, beats, words, first_seed, first_limb, end_limb] = rest;
        let p = RingParams {
            count,
            log_degree,
            limbs,
            a_stride,
            b_stride,
            first_stage,
            stages,
            log_columns,
            beats,
            words,
            first_seed,
            first_limb,
            end_limb,
        };
        let ring =
            Self { p, n: 1 << log_degree, limbs: limbs as usize, constants: Wide(constants) };
        for limb in 0..ring.limbs {
            let minus = ring.constants.get(8 * limb + 1);
            assert_eq!(ring.q(limb).wrapping_mul(minus), u64::MAX, "−1/q");
            let [radix, one] = [2, 4].map(|at| ring.factor(8 * limb + at, 1, limb));
            let q = ring.q(limb);
            assert_eq!((radix, one), (((1u128 << 64) % u128::from(q)) as u64, 1));
            assert_eq!(mul_mod_vartime(ring.degree_inverse(limb), ring.n as u64 % q, q), 1);
        }
        ring
    }

    fn q(&self, limb: usize) -> u64 {
        self.constants.get(8 * limb)
    }

    /// Returns a constant factor of a prime; its quotient, for `x · w` without a division, lies
    /// `quotient` behind it.
    fn factor(&self, at: usize, quotient: usize, limb: usize) -> u64 {
        let w = self.constants.get(at);
        let expected = (u128::from(w) << 64) / u128::from(self.q(limb));
        assert_eq!(u128::from(self.constants.get(at + quotient)), expected, "a quotient");
        w
    }

    /// Returns a factor w as transforms take it: w · 2^30 in pieces of 30 bits, and `second` behind
    /// it w · 2^60.
    fn piecewise(&self, at: usize, second: usize, limb: usize) -> u64 {
        let q = self.q(limb);
        let [first, second] = [at, at + second].map(|at| {
            let pieces = self.constants.get(at);
            let x = ((pieces >> 32) << 30) + (pieces & 0xffff_ffff);
            assert!(pieces & 0xc000_0000 == 0 && x < q, "pieces");
            x
        });
        let radix = (1 << 30) % q;
        assert_eq!(second, mul_mod_vartime(first, radix, q), "a factor of the high piece");
        mul_mod_vartime(first, pow_mod_vartime(radix, q - 2, q), q)
    }

    fn degree_inverse(&self, limb: usize) -> u64 {
        self.piecewise(8 * limb + 6, 1, limb)
    }

    /// ψ^brv(index) of table 0, its inverse of table 1, where that at 1 is times N⁻¹.
    fn twiddle(&self, limb: usize, table: usize, index: usize) -> u64 {
        let tables = 8 * self.limbs + (4 * limb + 2 * table) * self.n;
        self.piecewise(tables + index, self.n, limb)
    }

    fn item_words(&self) -> usize {
        self.n * self.limbs
    }
}

fn put(out: &mut [u32], index: usize, x: u64) {
    out[2 * index] = x as u32;
    out[2 * index + 1] = (x >> 32) as u32;
}

/// Residue by residue, of a and b.
fn pairwise(grid: &mut Grid<'_>, f: impl Fn(u64, u64, u64) -> u64) {
    let ring = Ring::of(grid.params, grid.constants);
    for at in 0..ring.p.count as usize {
        let (item, place) = (at / ring.item_words(), at % ring.item_words());
        let x = Wide(grid.a).get(item * ring.p.a_stride as usize + place);
        let y = Wide(grid.b).get(item * ring.p.b_stride as usize + place);
        put(grid.out, at, f(x, y, ring.q(place / ring.n)));
    }
}

/// `a + b mod q`.
pub(super) fn poly_add(grid: &mut Grid<'_>) {
    pairwise(grid, |x, y, q| (x + y) % q);
}

/// `a − b mod q`.
pub(super) fn poly_sub(grid: &mut Grid<'_>) {
    pairwise(grid, |x, y, q| (x + q - y) % q);
}

/// `a · b mod q`, added to what is there where `words` is 1.
pub(super) fn poly_mul(grid: &mut Grid<'_>) {
    let words = grid.params[9];
    let before = grid.out.to_vec();
    pairwise(grid, mul_mod_vartime);
    if words == 1 {
        let ring = Ring::of(grid.params, grid.constants);
        for at in 0..ring.p.count as usize {
            let q = ring.q(at / ring.n % ring.limbs);
            put(grid.out, at, (Wide(&before).get(at) + Wide(grid.out).get(at)) % q);
        }
    }
}

/// `a · w mod q`: the factors of all primes, each with its quotient, are at b.
pub(super) fn scale(grid: &mut Grid<'_>) {
    let ring = Ring::of(grid.params, grid.constants);
    for at in 0..ring.p.count as usize {
        let (item, place) = (at / ring.item_words(), at % ring.item_words());
        let (limb, q) = (place / ring.n, ring.q(place / ring.n));
        let w = Wide(grid.b).get(2 * limb);
        let quotient = (u128::from(w) << 64) / u128::from(q);
        assert_eq!(u128::from(Wide(grid.b).get(2 * limb + 1)), quotient, "a quotient");
        let x = Wide(grid.a).get(item * ring.p.a_stride as usize + place);
        put(grid.out, at, mul_mod_vartime(x, w, q));
    }
}

/// Limbs of a and b, as the constants say.
pub(super) fn limbs(grid: &mut Grid<'_>) {
    let [count, log_degree, limbs, a_stride, b_stride] =
        [0, 1, 2, 3, 4].map(|at| grid.params[at] as usize);
    for at in 0..count {
        let (item, limb) = ((at >> log_degree) / limbs, (at >> log_degree) % limbs);
        let (operand, source) = (grid.constants[2 * limb], grid.constants[2 * limb + 1] as usize);
        let place = (source << log_degree) + at % (1 << log_degree);
        let x = match operand {
            0 => Wide(grid.a).get(item * a_stride + place),
            _ => Wide(grid.b).get(item * b_stride + place),
        };
        put(grid.out, at, x);
    }
}

/// The integer of each coefficient, word w at w · N, modulo each prime; of two's complement where
/// `stages` is 1.
pub(super) fn lift(grid: &mut Grid<'_>) {
    let ring = Ring::of(grid.params, grid.constants);
    for at in 0..ring.p.count as usize {
        let (item, place) = (at / ring.item_words(), at % ring.item_words());
        let q = ring.q(place / ring.n);
        let start = item * ring.p.a_stride as usize + place % ring.n;
        let words = ring.p.words as usize;
        let word = |w: usize| Wide(grid.a).get(start + w * ring.n);
        let step =
            |x: u64, word: u64| ((u128::from(x) << 64 | u128::from(word)) % u128::from(q)) as u64;
        let x = (0..words).rev().map(word).fold(0, step);
        let is_negative = ring.p.stages == 1 && word(words - 1) >> 63 == 1;
        let radix = if is_negative { (0..words).fold(1 % q, |x, _| step(x, 0)) } else { 0 };
        put(grid.out, at, (x + q - radix) % q);
    }
}

/// Returns the integer below the product of all primes that has these residues: for each prime in
/// turn, what is to be added of the product of those before it.
fn integer(ring: &Ring<'_>, a: &[u32], item: usize, i: usize) -> BigUint {
    let inverses = 8 * ring.limbs + 4 * ring.limbs * ring.n;
    let (mut x, mut product) = (BigUint::ZERO, BigUint::from(1u8));
    for limb in 0..ring.limbs {
        let q = ring.q(limb);
        for other in (0..ring.limbs).filter(|&other| other != limb) {
            let inverse = ring.factor(inverses + 2 * (ring.limbs * limb + other), 1, limb);
            assert_eq!(mul_mod_vartime(inverse, ring.q(other) % q, q), 1);
        }
        let residue = Wide(a).get(item * ring.p.a_stride as usize + limb * ring.n + i);
        let inverse = pow_mod_vartime(remainder(&product, q), q - 2, q);
        let digit = mul_mod_vartime((residue + q - remainder(&x, q)) % q, inverse, q);
        x += &product * digit;
        product *= q;
    }
    x
}

fn remainder(x: &BigUint, q: u64) -> u64 {
    (x % q).to_u64_digits().first().copied().unwrap_or(0)
}

/// Returns the words that `make` makes of the integers of `count` coefficients.
fn of_integers(grid: &mut Grid<'_>, count: usize, make: impl Fn(&Ring<'_>, BigUint) -> Vec<u64>) {
    let ring = Ring::of(grid.params, grid.constants);
    for (item, i) in (0..count).map(|at| (at / ring.n, at % ring.n)) {
        let words = make(&ring, integer(&ring, grid.a, item, i));
        for (w, &word) in words.iter().enumerate() {
            put(grid.out, (item * words.len() + w) * ring.n + i, word);
        }
    }
}

/// The integers themselves.
pub(super) fn compose(grid: &mut Grid<'_>) {
    of_integers(grid, grid.params[0] as usize, |ring, x| {
        let mut words = x.to_u64_digits();
        words.resize(ring.limbs, 0);
        words
    });
}

/// Modulo the primes that are first in the rows at b; what is above half of Q stands for less than
/// 0.
pub(super) fn base_extend(grid: &mut Grid<'_>) {
    let b = Wide(grid.b);
    of_integers(grid, grid.params[0] as usize, |ring, x| {
        let all: BigUint = (0..ring.limbs).map(|limb| ring.q(limb)).product();
        let primes = (0..ring.p.words as usize).map(|k| b.get(2 * (ring.limbs + 1) * k));
        let residue = |p: u64| match &x + &x < all {
            true => remainder(&x, p),
            false => (p - remainder(&(&all - &x), p)) % p,
        };
        primes.map(residue).collect()
    });
}

/// Over the last prime, to the nearest, modulo the others.
pub(super) fn rescale(grid: &mut Grid<'_>) {
    let last = grid.params[2] as usize - 1;
    of_integers(grid, grid.params[0] as usize / last, |ring, x| {
        let p = ring.q(last);
        let rounded = (x + p / 2) / p;
        (0..last).map(|limb| remainder(&rounded, ring.q(limb))).collect()
    });
}

/// a(X^g). Coefficient i goes to `X^(i·g)`, where `words` is 1/g; the value at a root to where the
/// g-th power is that root, where `words` is g.
pub(super) fn automorphism(grid: &mut Grid<'_>) {
    let ring = Ring::of(grid.params, grid.constants);
    let (n, order, w) = (ring.n, 2 * ring.n, ring.p.words as usize);
    let inverse = (1..order).find(|g| g * w % order == 1).unwrap();
    let exponents: Vec<_> =
        (0..n).map(|i| 2 * (i.reverse_bits() >> (n.leading_zeros() + 1)) + 1).collect();
    for poly in 0..ring.p.count as usize / n {
        let (item, limb) = (poly / ring.limbs, poly % ring.limbs);
        let q = ring.q(limb);
        let a = Wide(grid.a).slice(item * ring.p.a_stride as usize + limb * n, n);
        for (i, &x) in a.iter().enumerate() {
            let (to, x) = match ring.p.stages {
                0 if i * inverse % order < n => (i * inverse % n, x),
                0 => (i * inverse % n, (q - x) % q),
                _ => {
                    let root = exponents[i] * inverse % order;
                    (exponents.iter().position(|&e| e == root).unwrap(), x)
                }
            };
            put(grid.out, poly * n + to, x);
        }
    }
}

/// Beats of an item whose lane k is `lane(item, k)`.
fn into_beats(grid: &mut Grid<'_>, lane: impl Fn(&Ring<'_>, usize, usize) -> u64) {
    let ring = Ring::of(grid.params, grid.constants);
    let each = ring.p.beats as usize;
    for beat in 0..ring.p.count as usize / beats::WORDS {
        let mut words = [0; beats::WORDS];
        for index in 0..beats::LANES {
            let value = lane(&ring, beat / each, beat % each * beats::LANES + index);
            beats::set_lane(&mut words, index, value);
        }
        for (w, word) in words.into_iter().enumerate() {
            put(grid.out, beat * beats::WORDS + w, word);
        }
    }
}

fn lane_of(words: &[u32], start: usize, k: usize) -> u64 {
    let beat = Wide(words).slice(start + k / beats::LANES * beats::WORDS, beats::WORDS);
    beats::lane(&beat, k % beats::LANES)
}

/// The residues of one coefficient after those of another, then zeros.
pub(super) fn pack(grid: &mut Grid<'_>) {
    let a = grid.a;
    into_beats(grid, |ring, item, k| match k < ring.item_words() {
        true => {
            let place = k % ring.limbs * ring.n + k / ring.limbs;
            Wide(a).get(item * ring.p.a_stride as usize + place)
        }
        false => 0,
    });
}

/// Coefficients of lanes, then zeros.
pub(super) fn unpack(grid: &mut Grid<'_>) {
    let ring = Ring::of(grid.params, grid.constants);
    for at in 0..ring.p.count as usize {
        let (item, place) = (at / ring.item_words(), at % ring.item_words());
        let k = place % ring.n * ring.limbs + place / ring.n;
        let value = match k < ring.p.beats as usize * beats::LANES {
            true => lane_of(grid.a, item * ring.p.a_stride as usize, k),
            false => 0,
        };
        put(grid.out, at, value);
    }
}

/// Adds, lane by lane, `a + b mod q`.
pub(super) fn add_beats(grid: &mut Grid<'_>) {
    let (a, b) = (grid.a, grid.b);
    into_beats(grid, |ring, item, k| {
        let x = lane_of(a, item * ring.p.a_stride as usize, k);
        let y = lane_of(b, item * ring.p.b_stride as usize, k);
        (x + y) % ring.q(k % ring.limbs)
    });
}

/// Eight coefficients a thread, each drawn from a number of the stream that the key a and the index
/// b name.
fn small(grid: &mut Grid<'_>, draw: fn(u64) -> i64) {
    use rand_core::Rng;
    let ring = Ring::of(grid.params, grid.constants);
    for item in 0..ring.p.count as usize * 8 / ring.n {
        let key = Wide(grid.a).slice(item * ring.p.a_stride as usize, 4);
        let mut random = stream(&key, Wide(grid.b).get(item * ring.p.b_stride as usize));
        for i in 0..ring.n {
            let value = draw(random.next_u64());
            for limb in 0..ring.limbs {
                let residue = value.rem_euclid(ring.q(limb) as i64) as u64;
                put(grid.out, (item * ring.limbs + limb) * ring.n + i, residue);
            }
        }
    }
}

/// Ones among 21 bits less those among 21 others.
pub(super) fn noise(grid: &mut Grid<'_>) {
    small(grid, centred_binomial);
}

/// `⌊3w / 2^64⌋ − 1`.
pub(super) fn ternary(grid: &mut Grid<'_>) {
    small(grid, ternary_of);
}

/// The sum of the uniform polynomials of some seeds of a, some limbs of them, added to what is there but for the first.
/// The state tells how many draws the limbs before took.
pub(super) fn uniform(grid: &mut Grid<'_>) {
    let ring = Ring::of(grid.params, grid.constants);
    let [first, end] = [ring.p.first_limb, ring.p.end_limb].map(|limb| limb as usize);
    for item in 0..ring.p.count as usize {
        let index = Wide(grid.b).get(item * ring.p.b_stride as usize);
        for seed in ring.p.first_seed..ring.p.first_seed + ring.p.words {
            let key = item * ring.p.a_stride as usize + 4 * seed as usize;
            let mut used = if first == 0 { 0 } else { grid.state[item] };
            let draws = draws(stream(&Wide(grid.a).slice(key, 4), index)).skip(used as usize);
            let mut draws = draws.inspect(|_| used += 1);
            for place in first * ring.n..end * ring.n {
                let q = ring.q(place / ring.n);
                let mask = (1 << (64 - q.leading_zeros())) - 1;
                let draw = draws.by_ref().map(|draw| draw & mask).find(|&draw| draw < q).unwrap();
                let at = item * ring.item_words() + place;
                let before = if seed == 0 { 0 } else { Wide(grid.out).get(at) };
                put(grid.out, at, (before + draw) % q);
            }
            drop(draws);
            if end < ring.limbs {
                grid.state[item] = used;
            }
        }
    }
}

/// Runs some stages of the transform of all polynomials, one after the other in `order`:
/// `butterfly` makes of two residues two others. Its arguments: both, the twiddle factor, what sums
/// are times (1 but in the last stage back), and q.
fn stages(
    grid: &mut Grid<'_>,
    table: usize,
    order: impl Iterator<Item = u32> + Clone,
    butterfly: fn([u64; 2], u64, u64, u64) -> [u64; 2],
) {
    let ring = Ring::of(grid.params, grid.constants);
    let residues = (ring.p.count as usize) << (ring.p.stages + ring.p.log_columns);
    for poly in 0..residues / ring.n {
        let limb = poly % ring.limbs;
        let q = ring.q(limb);
        let mut x = Wide(grid.a).slice(poly * ring.n, ring.n);
        for stage in order.clone() {
            for (block, residues) in x.chunks_mut(ring.n >> stage).enumerate() {
                let w = ring.twiddle(limb, table, (1 << stage) + block);
                let scale = if table == 1 && stage == 0 { ring.degree_inverse(limb) } else { 1 };
                let (upper, lower) = residues.split_at_mut(residues.len() / 2);
                for (u, v) in upper.iter_mut().zip(lower) {
                    [*u, *v] = butterfly([*u, *v], w, scale, q);
                }
            }
        }
        for (i, x) in x.into_iter().enumerate() {
            put(grid.out, poly * ring.n + i, x);
        }
    }
}

/// Returns the range of stages of a pass.
fn pass(grid: &Grid<'_>) -> std::ops::Range<u32> {
    let RingParams { first_stage, stages, .. } = Ring::of(grid.params, grid.constants).p;
    first_stage..first_stage + stages
}

/// Of u and v: u + w·v and u − w·v.
pub(super) fn ntt(grid: &mut Grid<'_>) {
    let pass = pass(grid);
    stages(grid, 0, pass, |[u, v], w, _, q| {
        let v = mul_mod_vartime(v, w, q);
        [(u + v) % q, (u + q - v) % q]
    });
}

/// Of u and v: u + v and (u − v) / w, in the last stage of all over N.
pub(super) fn intt(grid: &mut Grid<'_>) {
    let pass = pass(grid);
    stages(grid, 1, pass.rev(), |[u, v], w, scale, q| {
        [mul_mod_vartime(u + v, scale, q), mul_mod_vartime(u + q - v, w, q)]
    });
}

/// Returns whether a pass of a transform wrote the same: all but the last may leave residues that
/// are not reduced.
pub(super) fn are_same(
    (params, constants): (&[u32], &[u32]),
    expected: &[u32],
    found: &[u32],
) -> bool {
    let ring = Ring::of(params, constants);
    let is_last = ring.p.log_columns == 0;
    let same = |at: usize| {
        let [x, y] = [expected, found].map(|words| Wide(words).get(at));
        x == y || !is_last && x.abs_diff(y) % ring.q(at / ring.n % ring.limbs) == 0
    };
    expected.len() == found.len() && (0..expected.len() / 2).all(same)
}

/// Eight chains of `x + low(x) · thread` from the thread's number on, summed.
pub(super) fn limit(grid: &mut Grid<'_>) {
    let (threads, rounds) = (grid.params[0], grid.params[9]);
    for (thread, out) in (0..threads).zip(grid.out.chunks_mut(2)) {
        let chain = |from: u32| {
            (0..rounds).fold(u64::from(from), |x, _| {
                x.wrapping_add(u64::from(x as u32) * u64::from(thread))
            })
        };
        let sum = (0..8).map(|j| chain(thread + j)).fold(0, u64::wrapping_add);
        out.copy_from_slice(&[sum as u32, (sum >> 32) as u32]);
    }
}
