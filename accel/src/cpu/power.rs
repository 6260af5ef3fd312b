//! Powers: of changing bases, of one base known beforehand, and products of many powers at once.
//!
//! Secret exponents take fixed windows, and what a digit names is picked by reading every entry of a
//! table. Exponents that are public and the same for all take sliding windows.

use rayon::prelude::*;
use zeroize::Zeroize;

use super::{
    backend::{Backend, Items, Line},
    field::{Field, Group, Room},
};
use crate::program::FixedBase;

/// The most bytes of one table of a fixed base.
const TABLE_BYTES: usize = 64_000_000;

/// Bits of a digit of an exponent that differs from lane to lane: `bits / width` products beside the
/// squarings, and a table of `2^width` numbers for each lane to fill and to keep in cache.
fn own_width(bits: usize) -> usize {
    if bits < 1280 { 4 } else { 5 }
}

/// Groups for which entries are picked at once: their numbers stay in the second level of cache, and
/// the entries of a limb in the first while all pick.
const GROUPS: usize = 16;

/// A batch of exponents of at most `bits` bits.
pub(super) struct Powers<'a> {
    pub(super) items: Items<'a>,
    pub(super) bits: usize,
    /// Whether the time may depend on them.
    pub(super) public: bool,
}

fn group<B: Backend>(backend: B, len: usize) -> Group<B> {
    Group::<B>::new(vec![backend.zero(); len])
}

/// `out = base^exponent` for every item.
pub(super) fn pow<B: Backend>(
    backend: B,
    field: &Field<B>,
    out: &mut [u64],
    each: usize,
    bases: &Items<'_>,
    exponents: &Powers<'_>,
) {
    let len = field.chain_len();
    let mut room = field.room();
    let (mut base, mut acc) = (group(backend, len), group(backend, len));
    for (index, out) in out.chunks_mut(each * B::LANES).enumerate() {
        let first = index * B::LANES;
        field.enter(&mut base, bases, first, &mut room);
        if exponents.public && exponents.items.shared {
            sliding(backend, field, &mut acc, &base, exponents.items.words, &mut room);
        } else {
            windows(backend, field, &mut acc, &base, exponents, first, &mut room);
        }
        field.leave(out, each, &acc, false, &mut room);
    }
}

/// Fixed windows, one table for each lane.
fn windows<B: Backend>(
    backend: B,
    field: &Field<B>,
    acc: &mut Group<B>,
    base: &[B::Word],
    exponents: &Powers<'_>,
    first: usize,
    room: &mut Room<B>,
) {
    let (len, width) = (field.chain_len(), own_width(exponents.bits));
    let entries = powers_of(backend, field, base, width, room);
    let mut table = group(backend, len << width);
    for (e, entry) in entries.chunks_exact(len).enumerate() {
        entry.iter().enumerate().for_each(|(limb, &w)| table[limb << width | e] = w);
    }
    let mut words = group(backend, exponents.items.each);
    backend.load_words(&mut words, &exponents.items, first);
    let (mut next, mut factor) = (group(backend, len), group(backend, len));
    for window in (0..exponents.bits.div_ceil(width)).rev() {
        let bits = width.min(exponents.bits - window * width);
        let digits = backend.digits(&words, window * width, bits, width);
        if window + 1 == exponents.bits.div_ceil(width) {
            backend.pick_own(acc, &table, &digits);
            continue;
        }
        for _ in 0..width {
            field.square(&mut next, acc, room);
            std::mem::swap(acc, &mut next);
        }
        backend.pick_own(&mut factor, &table, &digits);
        field.mul(&mut next, &factor, acc, room);
        std::mem::swap(acc, &mut next);
    }
}

/// `base^0 .. base^(2^width − 1)`, one number after the other.
fn powers_of<B: Backend>(
    backend: B,
    field: &Field<B>,
    base: &[B::Word],
    width: usize,
    room: &mut Room<B>,
) -> Group<B> {
    let len = field.chain_len();
    let mut entries = group(backend, len << width);
    entries[..len].copy_from_slice(field.one());
    entries[len..2 * len].copy_from_slice(base);
    for e in 2..1 << width {
        let (before, rest) = entries.split_at_mut(e * len);
        if e % 2 == 0 {
            field.square(&mut rest[..len], &before[e / 2 * len..][..len], room);
        } else {
            field.mul(&mut rest[..len], base, &before[(e - 1) * len..], room);
        }
    }
    entries
}

/// Sliding windows over one public exponent.
fn sliding<B: Backend>(
    backend: B,
    field: &Field<B>,
    acc: &mut Group<B>,
    base: &[B::Word],
    exponent: &[u64],
    room: &mut Room<B>,
) {
    let len = field.chain_len();
    let bit = |i: usize| exponent[i / 64] >> (i % 64) & 1 == 1;
    let Some(top) = (0..64 * exponent.len()).rev().find(|&i| bit(i)) else {
        acc.copy_from_slice(field.one());
        return;
    };
    let width = match top {
        0..24 => 2,
        24..96 => 4,
        96..512 => 5,
        _ => 6,
    };
    // The odd powers.
    let mut square = group(backend, len);
    field.square(&mut square, base, room);
    let mut odd = group(backend, len << (width - 1));
    odd[..len].copy_from_slice(base);
    for e in 1..1 << (width - 1) {
        let (before, rest) = odd.split_at_mut(e * len);
        field.mul(&mut rest[..len], &square, &before[(e - 1) * len..], room);
    }
    let mut next = group(backend, len);
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
            for _ in 0..taken {
                field.square(&mut next, acc, room);
                std::mem::swap(acc, &mut next);
            }
        }
        if digit > 0 {
            let entry = &odd[digit / 2 * len..][..len];
            if started {
                field.mul(&mut next, entry, acc, room);
                std::mem::swap(acc, &mut next);
            } else {
                acc.copy_from_slice(entry);
                started = true;
            }
        }
        at -= taken;
    }
}

/// `base^(digit · 2^(width · window))` for every window and digit: `[window][limb][digit]`, so that a
/// digit is picked from neighbouring words, and a window serves many numbers while it is in cache.
pub(super) struct PowerTable {
    width: usize,
    bits: usize,
    rows: Vec<Line>,
}

impl Drop for PowerTable {
    fn drop(&mut self) {
        self.rows.zeroize();
    }
}

/// The width of digits for exponents of `bits` bits: the cheapest of those whose table fits.
///
/// # Cost model
/// Each digit costs a product of `multiplies` and the picking of `limbs` limbs among `2^width`
/// entries. Picking goes on beside multiplying, up to a point: it is charged `B::PICK` multiplies for
/// sixteen entries of a limb.
fn fixed_width<B: Backend>(bits: usize, limbs: usize, multiplies: usize) -> usize {
    let cost = |w: &usize| {
        bits.div_ceil(*w) as f64 * (multiplies as f64 + B::PICK * (limbs << w) as f64 / 16.0)
    };
    let fits = |w: &usize| bits.div_ceil(*w) * (limbs << w) * 8 <= TABLE_BYTES;
    (4..=9).filter(fits).min_by(|a, b| cost(a).total_cmp(&cost(b))).unwrap_or(4)
}

impl PowerTable {
    /// Computes every entry: for `LANES` windows side by side, all digits.
    pub(super) fn new<B: Backend>(backend: B, field: &Field<B>, fixed: &FixedBase) -> Self {
        let (len, bits) = (field.chain_len(), fixed.exponent_bits() as usize);
        let width = fixed_width::<B>(bits, len, field.multiplies_of_product());
        let windows = bits.div_ceil(width);
        let row = len << (width - 3);
        // The first power of each window.
        let mut room = field.room();
        let mut firsts = group(backend, windows * len);
        field.enter(&mut firsts[..len], &Items::shared(fixed.base()), 0, &mut room);
        // The factor is in the first window.
        let mut factor = group(backend, len);
        factor.copy_from_slice(field.one());
        if let Some(words) = fixed.factor() {
            field.enter(&mut factor, &Items::shared(words), 0, &mut room);
        }
        let mut next = group(backend, len);
        for window in 1..windows {
            let (before, rest) = firsts.split_at_mut(window * len);
            rest[..len].copy_from_slice(&before[(window - 1) * len..]);
            for _ in 0..width {
                field.square(&mut next, &rest[..len], &mut room);
                rest[..len].copy_from_slice(&next);
            }
        }
        let mut rows = vec![Line::default(); windows * row];
        rows.par_chunks_mut(row * B::LANES).enumerate().for_each(|(block, rows)| {
            let mut room = field.room();
            let (mut base, mut one) = (group(backend, len), group(backend, len));
            for (limb, (base, one)) in base.iter_mut().zip(one.iter_mut()).enumerate() {
                let window = |lane: usize| block * B::LANES + lane;
                let of = |lane: usize| firsts.get(window(lane) * len + limb);
                *base = backend.lanes_of(|lane| of(lane).map_or(0, |&w| B::lane(w, lane)));
                let first = |lane: usize| if window(lane) == 0 { &factor } else { field.one() };
                *one = backend.lanes_of(|lane| B::lane(first(lane)[limb], lane));
            }
            spread(backend, field, rows, width, (&one, &base), &mut room);
        });
        Self { width, bits, rows }
    }

    /// `out = base^exponent` for every item, or its digits of `pairs`: one product a window, no
    /// squarings.
    pub(super) fn pow<B: Backend>(
        &self,
        backend: B,
        field: &Field<B>,
        (out, each, pairs): (&mut [u64], usize, bool),
        exponents: &Items<'_>,
    ) {
        let len = field.chain_len();
        let groups = out.len().div_ceil(each * B::LANES);
        let mut picker = Picker::new(backend, field);
        let mut accs = group(backend, groups * len);
        let mut words = group(backend, groups * exponents.each);
        for (index, words) in words.chunks_exact_mut(exponents.each).enumerate() {
            backend.load_words(words, exponents, index * B::LANES);
        }
        for (window, row) in self.rows.chunks_exact(len << (self.width - 3)).enumerate() {
            let at = window * self.width;
            let bits = self.width.min(self.bits - at);
            let words = words.chunks(GROUPS * exponents.each);
            for (accs, words) in accs.chunks_mut(GROUPS * len).zip(words) {
                let digit = |words| backend.digits(words, at, bits, self.width);
                let digits: Vec<_> = words.chunks_exact(exponents.each).map(digit).collect();
                picker.multiply(accs, window == 0, row, &digits);
            }
        }
        for (out, acc) in out.chunks_mut(each * B::LANES).zip(accs.chunks_exact(len)) {
            field.leave(out, each, acc, pairs, &mut picker.room);
        }
    }
}

/// Multiplies running products by entries of tables for all lanes.
struct Picker<'f, B: Backend> {
    backend: B,
    field: &'f Field<B>,
    room: Room<B>,
    /// The entries for [`GROUPS`] groups.
    picked: Group<B>,
    next: Group<B>,
}

impl<'f, B: Backend> Picker<'f, B> {
    fn new(backend: B, field: &'f Field<B>) -> Self {
        let len = field.chain_len();
        let (picked, next) = (group(backend, GROUPS * len), group(backend, len));
        Self { backend, field, room: field.room(), picked, next }
    }

    /// Multiplies each of some groups by the entries that its digits name, or sets it to them where
    /// they are `fresh`.
    fn multiply(
        &mut self,
        accs: &mut [B::Word],
        fresh: bool,
        table: &[Line],
        digits: &[B::Digits],
    ) {
        if fresh {
            return self.backend.pick_shared(accs, table, digits);
        }
        let picked = &mut self.picked[..accs.len()];
        self.backend.pick_shared(picked, table, digits);
        let len = self.field.chain_len();
        for (acc, factor) in accs.chunks_exact_mut(len).zip(picked.chunks_exact(len)) {
            self.field.mul(&mut self.next, factor, acc, &mut self.room);
            acc.copy_from_slice(&self.next);
        }
    }
}

/// Writes the powers of each lane's base, times a factor, to a table of its own: `[limb][digit]`.
fn spread<B: Backend>(
    backend: B,
    field: &Field<B>,
    tables: &mut [Line],
    width: usize,
    (factor, base): (&[B::Word], &[B::Word]),
    room: &mut Room<B>,
) {
    let len = field.chain_len();
    let (mut entry, mut next) = (group(backend, len), group(backend, len));
    entry.copy_from_slice(factor);
    for digit in 0..1 << width {
        if digit > 0 {
            field.mul(&mut next, base, &entry, room);
            std::mem::swap(&mut entry, &mut next);
        }
        for (lane, table) in tables.chunks_exact_mut(len << (width - 3)).enumerate() {
            for (limb, &w) in entry.iter().enumerate() {
                table[limb << (width - 3) | digit >> 3].0[digit & 7] = B::lane(w, lane);
            }
        }
    }
}

/// `out = Π base_i^(e_i)` for every item, over bases that the batch shares.
///
/// Each base multiplies into one accumulator for each digit, so its table is read while it is in
/// cache and thrown away; at the end the digits are joined by squarings, once for all bases.
///
/// # Source
/// E. G. Straus, "Addition chains of vectors", 1964, with loops exchanged.
pub(super) fn dot<B: Backend>(
    backend: B,
    field: &Field<B>,
    out: &mut [u64],
    each: usize,
    bases: &Items<'_>,
    exponents: &Powers<'_>,
) {
    let len = field.chain_len();
    let rows = bases.words.len() / bases.each;
    let groups = out.len().div_ceil(each * B::LANES);
    let cost = |w: &usize| exponents.bits.div_ceil(*w) * groups * B::LANES + (1 << w);
    let width = (4..=8).min_by_key(cost).unwrap_or(4);
    let windows = exponents.bits.div_ceil(width);
    let words_each = exponents.items.each / rows;
    let mut picker = Picker::new(backend, field);
    let mut accs = group(backend, groups * windows * len);
    let mut words = group(backend, groups * exponents.items.each);
    for (index, words) in words.chunks_exact_mut(exponents.items.each).enumerate() {
        backend.load_words(words, &exponents.items, index * B::LANES);
    }
    let (mut base, mut next) = (group(backend, len), group(backend, len));
    let mut tables =
        zeroize::Zeroizing::new(vec![Line::default(); (len << (width - 3)) * B::LANES]);
    for first in (0..rows).step_by(B::LANES) {
        field.enter(&mut base, bases, first, &mut picker.room);
        spread(backend, field, &mut tables, width, (field.one(), &base), &mut picker.room);
        for (lane, table) in tables.chunks_exact(len << (width - 3)).take(rows - first).enumerate()
        {
            let row = first + lane;
            for (index, accs) in accs.chunks_mut(GROUPS * len).enumerate() {
                let digit = |i| {
                    let (g, at) = (i / windows, i % windows * width);
                    let words = &words[g * exponents.items.each + row * words_each..][..words_each];
                    backend.digits(words, at, width.min(exponents.bits - at), width)
                };
                let first = index * GROUPS;
                let digits: Vec<_> = (first..first + accs.len() / len).map(digit).collect();
                picker.multiply(accs, row == 0, table, &digits);
            }
        }
    }
    for (out, accs) in out.chunks_mut(each * B::LANES).zip(accs.chunks_exact(windows * len)) {
        let mut digits = accs.chunks_exact(len).rev();
        if let Some(top) = digits.next() {
            base.copy_from_slice(top);
        }
        for digit in digits {
            for _ in 0..width {
                field.square(&mut next, &base, &mut picker.room);
                std::mem::swap(&mut base, &mut next);
            }
            field.mul(&mut next, digit, &base, &mut picker.room);
            std::mem::swap(&mut base, &mut next);
        }
        field.leave(out, each, &base, false, &mut picker.room);
    }
}
