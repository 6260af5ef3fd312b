//! Powers of bases that change from item to item.

use super::{
    super::{
        backend::{Backend, Items, Results},
        montgomery::{Chain, LaneTable, Montgomery, Number, Numbers, Running},
    },
    ExponentBatch, ExponentWords,
};
use crate::exponents::bit_length;

/// Returns the bits of a digit of an exponent that differs from lane to lane: `bits / width`
/// products beside the squarings, and a table of `2^width` numbers for each lane to fill and to
/// keep in cache.
fn own_width(bits: usize, public: bool) -> usize {
    let most = if bits < 1280 { 4 } else { 5 };
    let products = |width: &usize| (1 << width) + bits.div_ceil(*width);
    if public { (1..=most).min_by_key(products).unwrap_or(most) } else { most }
}

/// Returns the bits of the longest of the public exponents in a group.
fn longest(exponents: &ExponentBatch<'_>, first: usize, lanes: usize) -> usize {
    let lanes = first..first + lanes;
    let longest = lanes.map(|lane| bit_length(exponents.items.item(lane))).max();
    longest.unwrap_or(0).min(exponents.bits)
}

/// `out = base^exponent` for every item.
pub(in crate::cpu) fn pow<B: Backend>(
    m: &Montgomery<B>,
    out: Results<'_>,
    bases: &Items<'_>,
    exponents: &ExponentBatch<'_>,
) {
    let (mut x, mut base) = (Running::new(m), m.chains(1));
    for (first, out) in out.groups(B::LANES) {
        x.enter(bases, first);
        base.set(0, x.view());
        if exponents.public && (exponents.items.shared || B::LANES == 1) {
            sliding(&mut x, base.view(), exponents.items.item(first));
        } else {
            windows(&mut x, base.view(), exponents, first);
        }
        x.leave(out);
    }
}

/// Computes by fixed windows, one table for each lane: over all bits of secret exponents, and over
/// those of the longest in the group of public ones.
fn windows<B: Backend>(
    x: &mut Running<'_, B>,
    base: Number<'_, Chain, B>,
    powers: &ExponentBatch<'_>,
    first: usize,
) {
    let m = x.modulus();
    let bits = if powers.public { longest(powers, first, B::LANES) } else { powers.bits };
    if bits == 0 {
        return x.set(m.one());
    }
    let width = own_width(bits, powers.public);
    let table = LaneTable::new(m, &powers_of(x, base, width), width);
    let exponents = ExponentWords::load(m.backend(), &powers.items, (bits, 1), (first, 1));
    let mut factor = m.chains(1);
    let count = bits.div_ceil(width);
    for window in (0..count).rev() {
        let digit = exponents.digit(0, window * width, width);
        table.pick(m, &mut factor, &digit);
        if window + 1 == count {
            x.set(factor.view());
        } else {
            x.square(width);
            x.mul(factor.view());
        }
    }
}

/// `base^0 .. base^(2^width − 1)`.
fn powers_of<B: Backend>(
    x: &mut Running<'_, B>,
    base: Number<'_, Chain, B>,
    width: usize,
) -> Numbers<Chain, B> {
    let mut entries = x.modulus().chains(1 << width);
    entries.set(0, x.modulus().one());
    entries.set(1, base);
    for e in 2..1 << width {
        if e % 2 == 0 {
            x.set(entries.at(e / 2));
            x.square(1);
        } else {
            x.mul(base);
        }
        entries.set(e, x.view());
    }
    entries
}

/// Computes by sliding windows over one public exponent.
fn sliding<B: Backend>(x: &mut Running<'_, B>, base: Number<'_, Chain, B>, exponent: &[u64]) {
    let m = x.modulus();
    let bit = |i: usize| exponent[i / 64] >> (i % 64) & 1 == 1;
    let Some(top) = (0..64 * exponent.len()).rev().find(|&i| bit(i)) else {
        return x.set(m.one());
    };
    let width = match top {
        0..24 => 2,
        24..96 => 4,
        96..512 => 5,
        _ => 6,
    };
    let (mut square, mut odd) = (m.chains(1), m.chains(1 << (width - 1)));
    x.set(base);
    x.square(1);
    square.set(0, x.view());
    x.set(base);
    odd.set(0, base);
    for e in 1..1 << (width - 1) {
        x.mul(square.view());
        odd.set(e, x.view());
    }
    let mut started = false;
    let mut at = top as isize;
    while at >= 0 {
        let (mut digit, mut taken) = (0, 1);
        if bit(at as usize) {
            // The longest run of at most `width` bits that ends in a one.
            let low = (at - width as isize + 1).max(0);
            let low = (low..=at).find(|&i| bit(i as usize)).unwrap_or(at);
            taken = at - low + 1;
            digit = (low..=at).rev().fold(0, |d, i| 2 * d + usize::from(bit(i as usize)));
        }
        if started {
            x.square(taken as usize);
        }
        if digit > 0 {
            let entry = odd.at(digit / 2);
            if started {
                x.mul(entry);
            } else {
                x.set(entry);
                started = true;
            }
        }
        at -= taken;
    }
}
