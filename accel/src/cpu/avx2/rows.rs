//! Products, squares and reduction, three rows of limbs at a time.

use std::arch::x86_64::_mm256_fmadd_pd;

use super::{
    limbs::{BITS, MASK, Word, add, all as word, and, carry_of, sub, zero},
    *,
};
use crate::cpu::backend::{FactorPair, Limbs};

/// Rows that go together: with four, registers run out.
pub(super) const ROWS: usize = 3;

/// A double whose unit in the last place is 2^51: what is added to it is rounded to multiples of that.
const HIGH: f64 = (1u128 << (2 * BITS + 1)) as f64;
/// A double whose unit in the last place is one, far enough from the next power of two on either side.
const LOW: f64 = (3u64 << BITS) as f64;
pub(super) const HIGH_BITS: u64 = HIGH.to_bits();
pub(super) const LOW_BITS: u64 = LOW.to_bits();

/// Calls a function of as many rows as there are, at most [`ROWS`].
macro_rules! by_rows {
    ($count:expr, $f:ident$(::<$p:ident>)?($($arg:expr),*)) => {
        match $count {
            ROWS.. => $f::<ROWS$(, $p)?>($($arg),*),
            2 => $f::<2$(, $p)?>($($arg),*),
            _ => $f::<1$(, $p)?>($($arg),*),
        }
    };
}

/// The halves of products of limbs: `low + high·2^51`, each with the bits of its constant added.
///
/// # Bound
/// A product is below 2^102, so `HIGH` plus it is below 2^104, where doubles are 2^51 apart: the sum is rounded to
/// the nearest of them, and what its bits are above those of `HIGH` is the high half, from 0 to 2^51. What is left is
/// within ± 2^50, and with `LOW`, 3·2^51, an integer between 2^52 and 2^53, where doubles are one apart: exact.
/// `HIGH + LOW` is a multiple of 2^51, as the sum is, and their difference is below 2^103: exact, too.
#[inline]
#[target_feature(enable = "avx2,fma")]
pub(super) fn product(a: Double, b: Double) -> [Word; 2] {
    let high = _mm256_fmadd_pd(a, b, all(HIGH));
    let low = _mm256_fmadd_pd(a, b, _mm256_sub_pd(all(HIGH + LOW), high));
    [low, high].map(|half| _mm256_castpd_si256(half))
}

/// The same without the constants.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn halves(a: Double, b: Double) -> [Word; 2] {
    let [low, high] = product(a, b);
    [sub(low, word(LOW_BITS)), sub(high, word(HIGH_BITS))]
}

/// Some rows of a product, a column at a time: limb r of one factor times the whole other one, from place r on.
#[derive(Clone, Copy)]
struct Rows<const W: usize> {
    factors: [Double; W],
    /// The last limbs of the other factor, the latest first.
    window: [Double; W],
    /// The high halves of the last column, with `W` times the bits of [`HIGH`].
    high: Word,
}

impl<const W: usize> Rows<W> {
    #[inline]
    #[target_feature(enable = "avx2,fma")]
    fn new(factors: [Double; W]) -> Self {
        let high = word(HIGH_BITS.wrapping_mul(W as u64));
        Self { factors, window: [_mm256_setzero_pd(); W], high }
    }

    /// Takes the next limb of the other factor, and adds to a cell what falls there.
    #[inline]
    #[target_feature(enable = "avx2,fma")]
    fn step(&mut self, limb: Double, cell: &mut Word) {
        // One by one: as a whole the window would be moved through memory.
        (1..W).rev().for_each(|r| self.window[r] = self.window[r - 1]);
        self.window[0] = limb;
        // Of the low halves of this column and the high ones of the last.
        let constants = LOW_BITS.wrapping_add(HIGH_BITS).wrapping_mul(W as u64);
        let (mut low, mut highs) = (sub(add(*cell, self.high), word(constants)), zero());
        for r in 0..W {
            let [l, h] = product(self.factors[r], self.window[r]);
            (low, highs) = (add(low, l), add(highs, h));
        }
        (*cell, self.high) = (low, highs);
    }

    /// Adds to `cells` all that is left of the rows from some limbs of the other factor on; the `W` cells behind those
    /// of the limbs take what is above them.
    #[inline]
    #[target_feature(enable = "avx2,fma")]
    fn finish<L: Copy>(&mut self, cells: &mut [Word], limbs: &[L], of: impl Fn(L) -> Double) {
        let (cells, above) = cells.split_at_mut(limbs.len());
        // Four steps at a time, between which registers of the window need not move.
        let (fours, rest) = (cells.as_chunks_mut::<4>(), limbs.as_chunks::<4>());
        for (cells, limbs) in fours.0.iter_mut().zip(rest.0) {
            for i in 0..4 {
                self.step(of(limbs[i]), &mut cells[i]);
            }
        }
        for (cell, &limb) in fours.1.iter_mut().zip(rest.1) {
            self.step(of(limb), cell);
        }
        for cell in &mut above[..W - 1] {
            self.step(_mm256_setzero_pd(), cell);
        }
        let constants = HIGH_BITS.wrapping_mul(W as u64);
        above[W - 1] = add(above[W - 1], sub(self.high, word(constants)));
    }
}

/// Returns some limbs from a place on as doubles.
#[inline]
#[target_feature(enable = "avx2")]
fn doubles<const W: usize>(limbs: &[Word]) -> [Double; W] {
    let mut doubles = [_mm256_setzero_pd(); W];
    doubles.iter_mut().zip(limbs).for_each(|(double, &limb)| *double = to_double(limb));
    doubles
}

/// See [`Backend::mul_redc`]: three rows of each product and of the reduction at a time, whose first columns find the
/// digits of the quotient.
#[target_feature(enable = "avx2,fma")]
pub(super) fn mul_redc<const P: usize>(
    m: &Limbs,
    out: &mut [Word],
    acc: &mut [Word],
    products: [FactorPair<'_, Word>; P],
) {
    let limbs = m.len();
    let acc = &mut acc[..2 * limbs];
    if P > 0 {
        acc[limbs + 1..].fill(zero());
    }
    for at in (0..limbs).step_by(ROWS) {
        let products = products.map(|(a, b)| (&a[at..limbs], &b[..limbs]));
        by_rows!(limbs - at, reduce_rows::<P>(m, &mut acc[at..], products));
    }
    limbs::normalise(out, &acc[limbs..]);
}

/// Adds some rows of each product, and those of m that make as many limbs of the sum vanish: the digits of the
/// quotient take their place.
#[target_feature(enable = "avx2,fma")]
fn reduce_rows<const W: usize, const P: usize>(
    m: &Limbs,
    acc: &mut [Word],
    products: [FactorPair<'_, Word>; P],
) {
    let mut rows: [Rows<W>; P] = products.map(|(a, _)| Rows::new(doubles(a)));
    let (mut x, mut carry) = ([zero(); W], zero());
    for (c, x) in x.iter_mut().enumerate() {
        let mut cell = add(acc[c], carry);
        for (rows, (_, b)) in rows.iter_mut().zip(products) {
            rows.step(to_double(b[c]), &mut cell);
        }
        (*x, carry) = (and(cell, word(MASK)), carry_of(cell));
    }
    acc[W] = add(acc[W], carry);
    // All digits at once: one after the other they would take three times as long to be there.
    let (mut digits, mut carry) = (Rows::<W>::new(doubles(&x)), zero());
    for (digit, &limb) in acc.iter_mut().zip(&m.neg_inverse[..W]) {
        digits.step(to_double(word(limb)), &mut carry);
        (*digit, carry) = (and(carry, word(MASK)), carry_of(carry));
    }
    let (mut quotient, mut carry) = (Rows::<W>::new(doubles(&acc[..W])), zero());
    for (&x, &limb) in x.iter().zip(&m.m) {
        let mut cell = add(x, carry);
        quotient.step(to_double(word(limb)), &mut cell);
        carry = carry_of(cell);
    }
    acc[W] = add(acc[W], carry);
    for (rows, (_, b)) in rows.iter_mut().zip(products) {
        rows.finish(&mut acc[W..], &b[W..], |limb| to_double(limb));
    }
    quotient.finish(&mut acc[W..], &m.m[W..], |limb| to_double(word(limb)));
}

/// See [`Backend::square`]: products of different limbs, doubled, and the squares.
#[target_feature(enable = "avx2,fma")]
pub(super) fn square(acc: &mut [Word], a: &[Word]) {
    let acc = &mut acc[..2 * a.len()];
    acc.fill(zero());
    for at in (0..a.len()).step_by(ROWS) {
        let (rows, rest) = a[at..].split_at(ROWS.min(a.len() - at));
        for (i, &x) in rows.iter().enumerate() {
            for (j, &y) in rows.iter().enumerate().skip(i + 1) {
                add_halves(&mut acc[2 * at + i + j..], x, y);
            }
        }
        if !rest.is_empty() {
            let mut rows = Rows::<ROWS>::new(doubles(rows));
            rows.finish(&mut acc[2 * at + ROWS..], rest, |limb| to_double(limb));
        }
    }
    for (cells, &x) in acc.chunks_exact_mut(2).zip(a) {
        cells.iter_mut().for_each(|cell| *cell = add(*cell, *cell));
        add_halves(cells, x, x);
    }
}

/// Adds a product of limbs to two cells.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn add_halves(cells: &mut [Word], x: Word, y: Word) {
    let [low, high] = halves(to_double(x), to_double(y));
    (cells[0], cells[1]) = (add(cells[0], low), add(cells[1], high));
}

/// See [`Backend::add_product`].
#[target_feature(enable = "avx2,fma")]
pub(super) fn add_product(acc: &mut [Word], a: &[Word], b: &[Word]) {
    for (rows, at) in a.chunks(ROWS).zip((0..).step_by(ROWS)) {
        by_rows!(rows.len(), add_rows(&mut acc[at..], rows, b));
    }
}

#[target_feature(enable = "avx2,fma")]
fn add_rows<const W: usize>(acc: &mut [Word], a: &[Word], b: &[Word]) {
    Rows::<W>::new(doubles(a)).finish(acc, b, |limb| to_double(limb));
}

/// See [`Backend::burst`]: enough independent chains to fill both units.
#[target_feature(enable = "avx2,fma")]
pub(super) fn burst() -> u64 {
    const CHAINS: usize = 12;
    const ROUNDS: usize = 1 << 18;
    let (a, b) = (all(std::hint::black_box(0.5)), all(std::hint::black_box(3.0)));
    let mut chains = [_mm256_setzero_pd(); CHAINS];
    for _ in 0..ROUNDS {
        chains.iter_mut().for_each(|x| *x = _mm256_fmadd_pd(*x, a, b));
    }
    std::hint::black_box(chains);
    (CHAINS * ROUNDS) as u64
}
