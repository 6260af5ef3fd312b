//! Exponentiation: fixed windows for secret exponents, and tables for fixed bases.

use zeroize::Zeroizing;

use super::montgomery::{enter, leave, mont_mul, one};
use crate::{modulus::Modulus, program::FixedBase};

/// Bits of a window. Five make `e/5` products beside the squarings, and a table row of 32 residues
/// (16 KiB at 4096 bits) that a constant-time scan reads in a tenth of a product.
const WINDOW: usize = 5;
const ENTRIES: usize = 1 << WINDOW;

/// Bits `WINDOW·index ..` of a little-endian number.
fn window(exponent: &[u64], index: usize) -> u64 {
    let (word, bit) = (WINDOW * index / 64, WINDOW * index % 64);
    let high = exponent.get(word + 1).map_or(0, |&w| if bit == 0 { 0 } else { w << (64 - bit) });
    ((exponent[word] >> bit) | high) & (ENTRIES as u64 - 1)
}

/// Copies row `digit` of `table` to `out`, reading every row.
fn select(out: &mut [u64], table: &[u64], digit: u64) {
    out.fill(0);
    for (index, row) in table.chunks_exact(out.len()).enumerate() {
        // All ones exactly for the wanted row, without a comparison that could become a branch.
        let difference = index as u64 ^ digit;
        let mask = ((difference | difference.wrapping_neg()) >> 63).wrapping_sub(1);
        let mask = std::hint::black_box(mask);
        out.iter_mut().zip(row).for_each(|(o, &w)| *o |= w & mask);
    }
}

/// The rows `base^0 .. base^31` in Montgomery form, from `base` in Montgomery form.
fn fill_row(m: &Modulus, row: &mut [u64], base: &[u64]) {
    let k = m.len_words();
    one(m, &mut row[..k]);
    for entry in 1..ENTRIES {
        let (before, rest) = row.split_at_mut(entry * k);
        mont_mul(m, &mut rest[..k], &before[(entry - 1) * k..], base);
    }
}

/// `out = base^exponent mod m`; constant time in both if `secret`, else in the base only.
pub(super) fn pow(m: &Modulus, out: &mut [u64], base: &[u64], exponent: &[u64], secret: bool) {
    let k = m.len_words();
    let mut room = Zeroizing::new(vec![0u64; (ENTRIES + 3) * k]);
    let (table, rest) = room.split_at_mut(ENTRIES * k);
    let (acc, rest) = rest.split_at_mut(k);
    let (factor, next) = rest.split_at_mut(k);
    enter(m, factor, base);
    fill_row(m, table, factor);
    one(m, acc);
    for index in (0..(64 * exponent.len()).div_ceil(WINDOW)).rev() {
        for _ in 0..WINDOW {
            mont_mul(m, next, acc, acc);
            acc.copy_from_slice(next);
        }
        let digit = window(exponent, index);
        if secret {
            select(factor, table, digit);
        } else {
            factor.copy_from_slice(&table[digit as usize * k..][..k]);
        }
        mont_mul(m, next, acc, factor);
        acc.copy_from_slice(next);
    }
    leave(m, out, acc);
}

/// `base^(digit · 32^window)` for every window and digit, in Montgomery form.
pub(super) struct PowerTable {
    rows: Vec<u64>,
}

impl PowerTable {
    pub(super) fn new(fixed: &FixedBase) -> Self {
        let m = fixed.modulus();
        let k = m.len_words();
        let windows = (fixed.exponent_bits().div_ceil(64) as usize * 64).div_ceil(WINDOW);
        let mut rows = vec![0; windows * ENTRIES * k];
        let (mut base, mut next) = (vec![0; k], vec![0; k]);
        enter(m, &mut base, fixed.base());
        for row in rows.chunks_exact_mut(ENTRIES * k) {
            fill_row(m, row, &base);
            mont_mul(m, &mut next, &row[(ENTRIES - 1) * k..], &base);
            base.copy_from_slice(&next);
        }
        Self { rows }
    }

    /// `out = base^exponent`: one product a window, no squarings. Constant time.
    pub(super) fn pow(&self, m: &Modulus, out: &mut [u64], exponent: &[u64]) {
        let k = m.len_words();
        let mut room = Zeroizing::new(vec![0u64; 3 * k]);
        let (acc, rest) = room.split_at_mut(k);
        let (factor, next) = rest.split_at_mut(k);
        one(m, acc);
        for (index, row) in self.rows.chunks_exact(ENTRIES * k).enumerate() {
            select(factor, row, window(exponent, index));
            mont_mul(m, next, acc, factor);
            acc.copy_from_slice(next);
        }
        leave(m, out, acc);
    }
}
