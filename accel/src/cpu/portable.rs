//! Any processor: one number at a time, limbs of 64 bits, `u128` products.

mod rows;

use std::{hint::black_box, ops::Range};

use zeroize::Zeroizing;

use super::{
    backend::{Backend, FactorPair, Items, Limbs, Line, Results},
    rns::Rns,
};

/// Needs nothing of the processor.
#[derive(Clone, Copy)]
pub(super) struct Portable;

/// A digit: a mask for each entry, all ones for the one that it names.
pub(super) struct DigitMasks {
    masks: Zeroizing<Vec<u64>>,
}

impl DigitMasks {
    fn new(value: u64, width: usize) -> Self {
        let mask = |index: u64| {
            let difference = index ^ value;
            ((difference | difference.wrapping_neg()) >> 63).wrapping_sub(1)
        };
        let masks = (0..1 << width).map(mask).collect();
        // What made them is out of the compiler's sight, so they stay masks and become no branch.
        Self { masks: Zeroizing::new(black_box(masks)) }
    }

    /// Returns the entry that the digit names, reading every entry.
    fn pick(&self, entries: &[u64]) -> u64 {
        entries.iter().zip(&*self.masks).fold(0, |picked, (entry, mask)| picked | entry & mask)
    }

    /// The same of eight entries at a time, for vectors: one after the other they take four times as long.
    fn pick_of_lines(&self, lines: &[Line]) -> u64 {
        let (masks, mut picked) = (self.masks.as_chunks::<8>().0, [0; 8]);
        for (Line(entries), masks) in lines.iter().zip(masks) {
            for i in 0..8 {
                picked[i] |= entries[i] & masks[i];
            }
        }
        picked.iter().fold(0, |all, word| all | word)
    }
}

impl Rns for Portable {}

impl Backend for Portable {
    type Word = u64;
    type Digits = DigitMasks;

    const LANES: usize = 1;
    const LIMB_BITS: u32 = 64;
    const MULTIPLIES: u64 = 1;
    const ROWS: usize = rows::ROWS;
    const KARATSUBA: usize = 40;
    const PICK: f64 = 6.0;

    fn zero(self) -> u64 {
        0
    }

    fn bias(multiple: &[u64]) -> Vec<u64> {
        multiple.to_vec()
    }

    fn mul_redc<const P: usize>(
        self,
        m: &Limbs,
        out: &mut [u64],
        acc: &mut [u64],
        products: [FactorPair<'_, u64>; P],
    ) {
        let h = m.len();
        if P > 0 {
            acc[h + 1..2 * h].fill(0);
        }
        let products = products.map(|(a, b)| (&a[..h], &b[..h]));
        rows::mul_redc(&m.m, m.neg_inverse[0], &mut acc[..2 * h], products);
        out[..h].copy_from_slice(&acc[h..2 * h]);
    }

    fn square(self, acc: &mut [u64], a: &[u64]) {
        rows::square(&mut acc[..2 * a.len()], a);
    }

    fn add_product(self, acc: &mut [u64], a: &[u64], b: &[u64]) {
        rows::add_product(acc, a, b);
    }

    fn normalise(self, _acc: &mut [u64]) {}

    fn double(self, out: &mut [u64], a: &[u64]) {
        let mut carry = 0;
        for (out, &x) in out.iter_mut().zip(a) {
            (*out, carry) = (x << 1 | carry, x >> 63);
        }
    }

    fn complement(self, acc: &mut [u64], m: &Limbs) {
        acc[m.len()] = 0;
        let mut borrow = 0;
        for (x, &bias) in acc.iter_mut().zip(&m.bias) {
            (*x, borrow) = subtract(bias, *x, borrow);
        }
    }

    fn add_assign(self, a: &mut [u64], b: &[u64]) {
        ripple(a, b, u64::carrying_add);
    }

    fn sub_assign(self, a: &mut [u64], b: &[u64]) {
        ripple(a, b, u64::borrowing_sub);
    }

    fn reduce_once(self, m: &[u64], x: &mut [u64]) -> u64 {
        let mut borrow = 0;
        for (&x, &m) in x.iter().zip(m) {
            borrow = subtract(x, m, borrow).1;
        }
        let large = black_box(borrow.wrapping_sub(1));
        let mut borrow = 0;
        for (x, &m) in x.iter_mut().zip(m) {
            (*x, borrow) = subtract(*x, m & large, borrow);
        }
        large & 1
    }

    fn negate(self, x: &mut [u64]) {
        let mut borrow = 0;
        for x in x {
            (*x, borrow) = subtract(0, *x, borrow);
        }
    }

    fn pick_own(self, out: &mut [u64], table: &[u64], digit: &DigitMasks) {
        for (out, entries) in out.iter_mut().zip(table.chunks_exact(digit.masks.len())) {
            *out = digit.pick(entries);
        }
    }

    fn pick_shared(self, out: &mut [u64], table: &[Line], digits: &[DigitMasks]) {
        let Some(first) = digits.first() else { return };
        let len = out.len() / digits.len();
        for (limb, lines) in table.chunks_exact(first.masks.len() / 8).enumerate() {
            for (out, digit) in out.chunks_exact_mut(len).zip(digits) {
                out[limb] = digit.pick_of_lines(lines);
            }
        }
    }

    fn load(self, out: &mut [u64], items: &Items<'_>, first: usize, shift: u32) {
        let item = items.item(first);
        let word = |i: Option<usize>| i.and_then(|i| item.get(i)).copied().unwrap_or(0);
        let (up, bits) = ((shift / 64) as usize, shift % 64);
        for (l, out) in out.iter_mut().enumerate() {
            let (high, low) = (word(l.checked_sub(up)), word(l.checked_sub(up + 1)));
            *out = if bits == 0 { high } else { high << bits | low >> (64 - bits) };
        }
    }

    fn store(self, out: &mut Results<'_>, part: Range<usize>, x: &[u64]) {
        let out = &mut out.words[part];
        let used = out.len().min(x.len());
        out[..used].copy_from_slice(&x[..used]);
        out[used..].fill(0);
    }

    fn load_words(self, out: &mut [u64], items: &Items<'_>, first: usize) {
        out.copy_from_slice(items.item(first));
    }

    fn digits(self, words: &[u64], at: usize, bits: usize, width: usize) -> DigitMasks {
        let (word, bit) = (at / 64, at % 64);
        let next = words.get(word + 1).copied().unwrap_or(0);
        let both = u128::from(words[word]) | u128::from(next) << 64;
        DigitMasks::new((both >> bit) as u64 & ((1 << bits) - 1), width)
    }

    fn burst(self) -> u64 {
        const CHAINS: usize = 8;
        const ROUNDS: u64 = 1 << 19;
        let mut chains = black_box([3u64; CHAINS]);
        let factor = black_box(u64::MAX / 5);
        for _ in 0..ROUNDS {
            for x in &mut chains {
                let product = u128::from(*x) * u128::from(factor);
                *x = product as u64 ^ (product >> 64) as u64;
            }
        }
        black_box(chains);
        CHAINS as u64 * ROUNDS
    }

    fn lane(word: u64, _lane: usize) -> u64 {
        word
    }

    fn lanes_of(self, limbs: impl Fn(usize) -> u64) -> u64 {
        limbs(0)
    }
}

/// `a = step(a, b, carry)` from word to word, four at a time: between those the carry is a flag.
#[inline(always)]
fn ripple(a: &mut [u64], b: &[u64], step: impl Fn(u64, u64, bool) -> (u64, bool)) {
    let (both, above) = a.split_at_mut(b.len());
    let ((fours, rest), (b_fours, b_rest)) = (both.as_chunks_mut::<4>(), b.as_chunks::<4>());
    let mut carry = false;
    for (x, y) in fours.iter_mut().zip(b_fours) {
        for i in 0..4 {
            (x[i], carry) = step(x[i], y[i], carry);
        }
    }
    for (x, &y) in rest.iter_mut().zip(b_rest) {
        (*x, carry) = step(*x, y, carry);
    }
    for x in above {
        (*x, carry) = step(*x, 0, carry);
    }
}

/// `a − b − borrow`, and the borrow of it.
fn subtract(a: u64, b: u64, borrow: u64) -> (u64, u64) {
    let difference = u128::from(a).wrapping_sub(u128::from(b) + u128::from(borrow));
    (difference as u64, (difference >> 127) as u64)
}
