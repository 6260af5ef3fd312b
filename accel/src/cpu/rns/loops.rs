//! The loops over residues: for any processor, one residue at a time, with `u128` products. A processor may have its
//! own.

use rand_core::Rng as _;
use zeroize::Zeroizing;

use super::{
    BLOCKS, Factor, LIFTED, Limb, Phase, RUN, STREAM_WORDS, Tables, Turn, WeightRow, mask, mul_lazy,
};
use crate::{
    beats,
    ring::{LanePrimes, MAX_PRIMES, subtract_once},
    streams,
};

/// Barrett reduction: no division, no branch.
///
/// # Bound
/// For `x < 2^(2·bits)` the estimate `⌊⌊x / 2^(bits−1)⌋·mu / 2^(bits+1)⌋` is the quotient or at
/// most 2 less, so two conditional subtractions finish. With `bits ≤ 50` its product is below
/// 2^102.
///
/// # Source
/// A. Menezes et al., "Handbook of Applied Cryptography", algorithm 14.42.
#[inline(always)]
fn reduce(x: u128, limb: &Limb) -> u64 {
    let q = limb.q();
    let estimate = (((x >> (limb.bits - 1)) * u128::from(limb.mu)) >> (limb.bits + 1)) as u64;
    let rest = (x as u64).wrapping_sub(estimate.wrapping_mul(q));
    subtract_once(subtract_once(rest, q), q)
}

/// Cooley–Tukey butterflies.
///
/// # Bound
/// Values stay below 4q < 2^52: `u` is brought below 2q, the product is below 2q, so `u + v`
/// and `u − v + 2q` are below 4q.
fn forward(a: &mut [u64], limb: &Limb) {
    let ([twiddles, _], q, n) = (limb.integers(), limb.q(), a.len());
    let mut half = n / 2;
    while half > 0 {
        let first = n / (2 * half);
        for (index, block) in a.chunks_exact_mut(2 * half).enumerate() {
            let twiddle = twiddles.get(first + index);
            let (low, high) = block.split_at_mut(half);
            for (x, y) in low.iter_mut().zip(high) {
                let (u, v) = (subtract_once(*x, 2 * q), mul_lazy(*y, twiddle, q));
                (*x, *y) = (u + v, u + 2 * q - v);
            }
        }
        half /= 2;
    }
    a.iter_mut().for_each(|x| *x = subtract_once(subtract_once(*x, 2 * q), q));
}

/// Gentleman–Sande butterflies.
///
/// # Bound
/// Values stay below 2q: the sum is brought below 2q, the lazy product is.
fn inverse(a: &mut [u64], limb: &Limb) {
    let ([_, twiddles], q, n) = (limb.integers(), limb.q(), a.len());
    let mut half = 1;
    while half < n {
        let first = n / (2 * half);
        for (index, block) in a.chunks_exact_mut(2 * half).enumerate() {
            let twiddle = twiddles.get(first + index);
            let (low, high) = block.split_at_mut(half);
            for (x, y) in low.iter_mut().zip(high) {
                let (u, v) = (*x, *y);
                *x = subtract_once(u + v, 2 * q);
                *y = mul_lazy(u + 2 * q - v, twiddle, q);
            }
        }
        half *= 2;
    }
    a.iter_mut().for_each(|x| *x = subtract_once(mul_lazy(*x, limb.n_inverse, q), q));
}

/// `(x − y) / p`, below 2q.
#[inline(always)]
fn divided(x: u64, y: u64, limb: &Limb, p_inverse: Factor) -> u64 {
    let difference = x + 2 * limb.q() - mul_lazy(y, limb.one(), limb.q());
    mul_lazy(difference, p_inverse, limb.q())
}

/// Numbers that are computed with side by side: of one, a digit waits for the digit before it. A line of the cache has
/// eight words of a row.
const COLUMNS: usize = 8;

/// Words of such numbers: rows are words, residues or digits of all of them.
type Columns = [[u64; COLUMNS]; MAX_PRIMES];

/// Reads columns `first ..` of rows of n words.
fn read_columns(block: &mut Columns, rows: &[u64], n: usize, first: usize) {
    for (own, row) in block.iter_mut().zip(rows.chunks_exact(n)) {
        own.copy_from_slice(&row[first..][..COLUMNS]);
    }
}

/// Turns the residues of numbers into their digits in mixed radix, the primes.
///
/// # Source
/// H. Garner, "The residue number system", 1959.
#[inline(always)]
fn to_digits(block: &mut Columns, limbs: &[Limb]) {
    for (j, limb) in limbs.iter().enumerate() {
        let (before, rest) = block.split_at_mut(j);
        for (digits, &inverse) in before.iter().zip(&limb.prime_inverses) {
            for (x, &digit) in rest[0].iter_mut().zip(digits) {
                *x = divided(*x, digit, limb, inverse);
            }
        }
        rest[0].iter_mut().for_each(|x| *x = subtract_once(*x, limb.q()));
    }
}

/// Returns `sum mod q`, for a sum below 2^119, q below 2^50, and 1 and 2^64 as factors.
#[inline(always)]
fn reduce_sum(sum: u128, [one, radix]: [Factor; 2], q: u64) -> u64 {
    let rest = mul_lazy((sum >> 64) as u64, radix, q) + mul_lazy(sum as u64, one, q);
    subtract_once(subtract_once(rest, 2 * q), q)
}

/// Lifts integers to one prime: each word times its power of the radix, with one reduction. Word `w` of integer `i` is
/// `integers[w · out.len() + i]`.
///
/// # Bound
/// At most 24 products are below 2^64 · 2^50 each, and the sign's part is below 2^50: their sum is below 2^119.
fn lift(out: &mut [u64], integers: &[u64], limb: &Limb, signed: bool) {
    let (q, n) = (limb.q(), out.len());
    let count = integers.len() / n;
    // What stands above the top word, 0 or −1, times its power.
    let above = q - limb.word_powers[count];
    let factors = [limb.one(), limb.radix_powers[1]];
    for first in (0..n).step_by(COLUMNS) {
        let mut sums = [0u128; COLUMNS];
        let mut top = &[0; COLUMNS][..];
        for (row, &power) in integers.chunks_exact(n).zip(&limb.word_powers) {
            top = &row[first..][..COLUMNS];
            let products = top.iter().map(|&word| u128::from(word) * u128::from(power));
            sums.iter_mut().zip(products).for_each(|(sum, product)| *sum += product);
        }
        let sums = sums.iter().zip(top).map(|(sum, top)| {
            let sign = above & (u64::from(signed) & top >> 63).wrapping_neg();
            reduce_sum(sum + u128::from(sign), factors, q)
        });
        out[first..][..COLUMNS].iter_mut().zip(sums).for_each(|(out, x)| *out = x);
    }
}

/// Loops over residues, which are below their prime q before and after, q below 2^50.
pub(in crate::cpu) trait Rns: Copy + Send + Sync + 'static {
    /// The power of two that quotients of constant factors are scaled by; see [`Factor`]. Integers
    /// are cut into digits of as many bits.
    const QUOTIENT_BITS: u32 = 64;

    /// `out = a + b`.
    fn add(self, out: &mut [u64], a: &[u64], b: &[u64], q: u64) {
        out.iter_mut().zip(a).zip(b).for_each(|((o, x), y)| *o = subtract_once(x + y, q));
    }

    /// `out = a − b`.
    fn sub(self, out: &mut [u64], a: &[u64], b: &[u64], q: u64) {
        out.iter_mut().zip(a).zip(b).for_each(|((o, x), y)| *o = subtract_once(x + q - y, q));
    }

    /// `out = a · b`.
    fn mul(self, out: &mut [u64], a: &[u64], b: &[u64], limb: &Limb) {
        for ((out, &a), &b) in out.iter_mut().zip(a).zip(b) {
            *out = reduce(u128::from(a) * u128::from(b), limb);
        }
    }

    /// Moves values; see [`Turn`].
    fn turn_values(self, out: &mut [u64], a: &[u64], turn: &Turn) {
        let (places, (out, a)) =
            (turn.places(), (out.as_chunks_mut::<8>().0, a.as_chunks::<8>().0));
        turn.each_group(8 * a.len(), |to, from, places_of| {
            out[to] = places[places_of].map(|place| a[from][usize::from(place)]);
        });
    }

    /// `out = a · factor`.
    fn scale(self, out: &mut [u64], a: &[u64], q: u64, factor: Factor) {
        out.iter_mut().zip(a).for_each(|(o, &a)| *o = subtract_once(mul_lazy(a, factor, q), q));
    }

    /// `out = Σ a_i · b_i`, of at most [`MAX_TERMS`] pairs.
    ///
    /// # Bound
    /// Sixteen products are below 2^104: high words below 2^40, which a factor takes like any.
    fn mul_sum(self, out: &mut [u64], pairs: &[[&[u64]; 2]], limb: &Limb) {
        let (q, radix) = (limb.q(), limb.radix_powers[1]);
        for (i, out) in out.iter_mut().enumerate() {
            let product = |[a, b]: &[&[u64]; 2]| u128::from(a[i]) * u128::from(b[i]);
            let sum: u128 = pairs.iter().map(product).sum();
            let high = mul_lazy((sum >> 64) as u64, radix, q);
            let rest = subtract_once(high + mul_lazy(sum as u64, limb.one(), q), 2 * q);
            *out = subtract_once(rest, q);
        }
    }

    /// Transforms to NTT form.
    fn forward(self, out: &mut [u64], a: &[u64], limb: &Limb) {
        out.copy_from_slice(a);
        forward(out, limb);
    }

    /// Transforms from NTT form.
    fn inverse(self, out: &mut [u64], a: &[u64], limb: &Limb) {
        out.copy_from_slice(a);
        inverse(out, limb);
    }

    /// Makes words `at ..` of the [stream of secrets](streams::secret) number `stream` under `key`; `at` is a multiple
    /// of [`STREAM_WORDS`].
    fn keystream(self, out: &mut [u64; STREAM_WORDS], key: &[u64], stream: u64, at: u64) {
        let mut rng = streams::secret(key, stream, at);
        out.iter_mut().for_each(|word| *word = rng.next_u64());
    }

    /// Adds the draws of the blocks from `block` on, a run, if each is below the prime of its lane; else adds nothing
    /// and gives false. Variable time.
    fn add_draws(
        self,
        _sum: &mut [u64; RUN],
        _seed: &[u64],
        _stream: u64,
        _block: u64,
        _primes: &[u64; beats::LANES],
    ) -> bool {
        false
    }

    /// Adds to residues, [`BLOCKS`] of each prime, sums of `count` draws each, at most
    /// [`TOGETHER`](super::TOGETHER).
    fn take_draws(
        self,
        out: &mut [u64],
        sum: &[u64; RUN],
        count: usize,
        primes: &[u64; beats::LANES],
    ) {
        for ((out, sum), &q) in out.chunks_exact_mut(BLOCKS).zip(sum.chunks(BLOCKS)).zip(primes) {
            for (out, sum) in out.iter_mut().zip(sum) {
                *out += sum;
                for shift in (0..=count.ilog2()).rev() {
                    *out = subtract_once(*out, q << shift);
                }
            }
        }
    }

    /// Converts integers of one word to residues of one prime.
    fn lift(self, out: &mut [u64], integers: &[u64], limb: &Limb, signed: bool) {
        lift(out, integers, limb, signed);
    }

    /// Converts integers to residues of all primes: word `w` of integer `i` is at `w · N + i`. Words of one lie a
    /// multiple of N apart, and so in the same few lines of a cache: [`LIFTED`] integers are brought together for all
    /// primes.
    fn lift_all(self, out: &mut [u64], integers: &[u64], tables: &Tables, signed: bool) {
        let n = out.len() / tables.limbs().len();
        let count = LIFTED.min(n);
        let mut tile = Zeroizing::new([0; LIFTED * MAX_PRIMES]);
        let tile = &mut tile[..integers.len() / n * count];
        for first in (0..n).step_by(count) {
            for (tile, words) in tile.chunks_exact_mut(count).zip(integers.chunks_exact(n)) {
                tile.copy_from_slice(&words[first..][..count]);
            }
            for (out, limb) in out.chunks_exact_mut(n).zip(tables.limbs()) {
                lift(&mut out[first..][..count], tile, limb, signed);
            }
        }
    }

    /// Converts residues of all primes to integers of as many words as primes, which lie as for [`Rns::lift_all`].
    ///
    /// Horner's rule over digits in mixed radix. What has been added up of j digits has at most j words.
    fn compose(self, out: &mut [u64], poly: &[u64], tables: &Tables) {
        let limbs = tables.limbs();
        let n = poly.len() / limbs.len();
        let mut digits = [[0; COLUMNS]; MAX_PRIMES];
        let mut words = digits;
        for first in (0..n).step_by(COLUMNS) {
            read_columns(&mut digits, poly, n, first);
            to_digits(&mut digits, limbs);
            words[..limbs.len()].fill([0; COLUMNS]);
            for (j, limb) in limbs.iter().enumerate().rev() {
                let mut carries = digits[j];
                for row in &mut words[..limbs.len() - j] {
                    for (word, carry) in row.iter_mut().zip(&mut carries) {
                        let x = u128::from(*word) * u128::from(limb.q()) + u128::from(*carry);
                        (*word, *carry) = (x as u64, (x >> 64) as u64);
                    }
                }
            }
            for (out, words) in out.chunks_exact_mut(n).zip(&words) {
                out[first..][..COLUMNS].copy_from_slice(words);
            }
        }
    }

    /// Converts residues of all primes to those of the primes of `rows`. See `BaseExtension`.
    ///
    /// # Bound
    /// At most 24 products are below 2^50 · 2^50 each.
    fn base_extend(self, out: &mut [u64], poly: &[u64], tables: &Tables, rows: &[WeightRow]) {
        let limbs = tables.limbs();
        let n = poly.len() / limbs.len();
        let mut digits = [[0; COLUMNS]; MAX_PRIMES];
        for first in (0..n).step_by(COLUMNS) {
            read_columns(&mut digits, poly, n, first);
            for (digits, limb) in digits.iter_mut().zip(limbs) {
                let half = limb.q() / 2;
                digits.iter_mut().for_each(|x| *x = subtract_once(*x + half, limb.q()));
            }
            to_digits(&mut digits, limbs);
            for (out, row) in out.chunks_exact_mut(n).zip(rows) {
                let mut sums = [u128::from(row.shift); COLUMNS];
                for (digits, weight) in digits.iter().zip(&row.weights) {
                    let products = digits.iter().map(|&x| u128::from(x) * u128::from(weight.w));
                    sums.iter_mut().zip(products).for_each(|(sum, product)| *sum += product);
                }
                let factors = [row.weights[0], row.radix];
                let out = out[first..][..COLUMNS].iter_mut();
                out.zip(sums).for_each(|(out, sum)| *out = reduce_sum(sum, factors, row.q));
            }
        }
    }

    /// Packs lanes into beats, ten to each. Ten more may be read.
    fn pack(self, out: &mut [u64], lanes: &[u64]) {
        out.fill(0);
        let lanes = lanes.chunks_exact(beats::LANES);
        for (beat, lanes) in out.chunks_exact_mut(beats::WORDS).zip(lanes) {
            lanes.iter().enumerate().for_each(|(i, &lane)| beats::set_lane(beat, i, lane));
        }
    }

    /// Unpacks beats to lanes. Ten more may be written.
    fn unpack(self, lanes: &mut [u64], words: &[u64]) {
        let lanes = lanes.chunks_exact_mut(beats::LANES);
        for (lanes, beat) in lanes.zip(words.chunks_exact(beats::WORDS)) {
            lanes.iter_mut().enumerate().for_each(|(i, lane)| *lane = beats::lane(beat, i));
        }
    }

    /// Finds, for each of some items of as many beats, the first lane that is not below its prime,
    /// or the number of its lanes where all are; see `Builder::first_bad_lane`. `primes` are those
    /// of the first lanes, again and again, from one item to the next. Variable time.
    ///
    /// The top bit of a difference is set where a lane is too large; nothing branches within a good
    /// beat.
    fn first_bad_lanes(self, out: &mut [u64], words: &[u64], primes: &[u64]) {
        let mut largest = [[0; beats::LANES]; MAX_PRIMES];
        for (phase, largest) in largest.iter_mut().enumerate().take(primes.len()) {
            *largest = std::array::from_fn(|lane| primes[(phase + lane) % primes.len()] - 1);
        }
        let mut phase = Phase::new(primes.len());
        let words = words.as_chunks::<{ beats::WORDS }>().0;
        let each = words.len().checked_div(out.len()).unwrap_or(0).max(1);
        let none = (each * beats::LANES) as u64;
        out.fill(none);
        for (index, beat) in words.iter().enumerate() {
            let spare = beat[beats::WORDS - 1] & 3 << 62;
            let (mut over, largest) = (spare, &largest[phase.next()]);
            for (lane, largest) in largest.iter().enumerate() {
                over |= largest.wrapping_sub(beats::lane(beat, lane)) & 1 << 63;
            }
            if over != 0 && out[index / each] == none {
                let is_bad = |&lane: &usize| beats::lane(beat, lane) > largest[lane];
                let bad = (0..beats::LANES).find(is_bad).filter(|_| spare == 0);
                let lane = bad.unwrap_or(beats::LANES - 1);
                out[index / each] = (index % each * beats::LANES + lane) as u64;
            }
        }
    }

    /// Adds the lanes of beats to words of their own; see [`beats::add_lanes`]. Variable time.
    ///
    /// The top bit of a difference is set where a lane is below its prime.
    fn add_lanes(self, sums: &mut [u64], words: &[u64], primes: &[LanePrimes]) {
        let Some((bad, sums)) = sums.split_last_mut() else { return };
        let beats = words.as_chunks::<{ beats::WORDS }>().0;
        let sums = sums.as_chunks_mut::<{ beats::LANES }>().0.iter_mut();
        for ((sums, beat), primes) in sums.zip(beats).zip(primes.iter().cycle()) {
            let mut good = 0;
            for ((lane, sum), &q) in sums.iter_mut().enumerate().zip(primes) {
                let x = beats::lane(beat, lane);
                *sum = sum.wrapping_add(x);
                good += x.wrapping_sub(q) >> 63;
            }
            let spare = u64::from(beat[beats::WORDS - 1] >> 62 != 0);
            *bad = bad.wrapping_add(beats::LANES as u64 - good + spare);
        }
    }

    /// Lane by lane `out = a + b`; `primes` are those of the first lanes, again and again.
    ///
    /// Every lane holds a residue below 2^50, so a sum fits its 51 bits before it is reduced.
    fn add_beats(self, out: &mut [u64], a: &[u64], b: &[u64], primes: &[u64]) {
        out.fill(0);
        let mut primes = primes.iter().cycle();
        let pairs = a.chunks_exact(beats::WORDS).zip(b.chunks_exact(beats::WORDS));
        for (out, (a, b)) in out.chunks_exact_mut(beats::WORDS).zip(pairs) {
            for (lane, &q) in (0..beats::LANES).zip(primes.by_ref()) {
                let sum = beats::lane(a, lane) + beats::lane(b, lane);
                beats::set_lane(out, lane, subtract_once(sum, q));
            }
        }
    }
}

/// Adds the draws of run number `run` of the public stream, each below the prime of its lane. Variable time.
pub(super) fn add_draws<B: Rns>(
    backend: B,
    sum: &mut [u64; RUN],
    seed: &[u64],
    stream: u64,
    run: u64,
    primes: &[u64; beats::LANES],
) {
    if backend.add_draws(sum, seed, stream, run * BLOCKS as u64, primes) {
        return;
    }
    let mut rng = streams::public(seed, stream, run * STREAM_WORDS as u64);
    let words: [_; STREAM_WORDS] = std::array::from_fn(|_| rng.next_u64());
    let blocks = words.as_chunks::<{ beats::WORDS }>().0;
    for (place, sum) in sum.iter_mut().enumerate() {
        let q = primes[place / BLOCKS];
        let draw = beats::lane(&blocks[place % BLOCKS], place / BLOCKS) & mask(q);
        let second = || second_draw(seed, stream, run * RUN as u64 + place as u64, q);
        *sum += if draw < q { draw } else { second() };
    }
}

/// Makes the residue of a place whose first draw is not below its prime.
#[cold]
fn second_draw(seed: &[u64], index: u64, place: u64, q: u64) -> u64 {
    let mut rng = streams::public(seed, index, ((1 << 32) + place) * beats::WORDS as u64);
    let [low, high] = std::array::from_fn(|_| u128::from(rng.next_u64()));
    ((high << 64 | low) % u128::from(q)) as u64
}
