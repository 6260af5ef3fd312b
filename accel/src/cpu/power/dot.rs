//! Products of many powers at once.

use super::{
    super::{
        backend::{Backend, Items, Results},
        montgomery::{Montgomery, SharedTables},
    },
    ExponentBatch, ExponentWords, GROUPS, Picker,
};

/// `out = Π base_i^(e_i)` for every item, over bases that the batch shares.
///
/// Each base multiplies into one product for each digit, so its table is read while it is in
/// cache and thrown away; at the end the digits are joined by squarings, once for all bases.
///
/// # Source
/// E. G. Straus, "Addition chains of vectors", 1964, with loops exchanged.
pub(in crate::cpu) fn dot<B: Backend>(
    m: &Montgomery<B>,
    out: Results<'_>,
    bases: &Items<'_>,
    exponents: &ExponentBatch<'_>,
) {
    let (bits, rows) = (exponents.bits, bases.words.len() / bases.each);
    let groups = out.count(B::LANES);
    let cost = |w: &usize| bits.div_ceil(*w) * groups * B::LANES + (1 << w);
    let width = (4..=8).min_by_key(cost).unwrap_or(4);
    let windows = bits.div_ceil(width);
    let exponents = ExponentWords::load(m.backend(), &exponents.items, (bits, rows), (0, groups));
    let (mut picker, mut base) = (Picker::new(m), m.chains(1));
    // Of each group the windows, lowest first.
    let mut products = m.chains(groups * windows);
    let mut tables = SharedTables::new(m, width, B::LANES);
    for first in (0..rows).step_by(B::LANES) {
        picker.x.enter(bases, first);
        base.set(0, picker.x.view());
        tables.set_powers(&mut picker.x, base.view());
        for (row, table) in (first..rows).zip(tables.iter()) {
            let digit = |index: usize| {
                let (group, window) = (index / windows, index % windows);
                exponents.digit(group * rows + row, window * width, width)
            };
            for start in (0..groups * windows).step_by(GROUPS) {
                let range = start..(groups * windows).min(start + GROUPS);
                picker.multiply(&mut products, range, row == 0, &table, digit);
            }
        }
    }
    let x = &mut picker.x;
    for (group, (_, out)) in out.groups(B::LANES).enumerate() {
        for window in (0..windows).rev() {
            let digit = products.at(group * windows + window);
            if window + 1 == windows {
                x.set(digit);
            } else {
                x.square(width);
                x.mul(digit);
            }
        }
        x.leave(out);
    }
}
