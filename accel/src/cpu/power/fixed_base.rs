//! Powers of a base known beforehand.

use super::{
    super::{
        backend::{Backend, Items, Results},
        montgomery::{Montgomery, Running, SharedTables},
    },
    ExponentWords, GROUPS, Picker,
};
use crate::program::FixedBase;

/// The most bytes of one table of a fixed base.
const TABLE_BYTES: usize = 64_000_000;

/// `base^(digit · 2^(width · window))` for every window and digit, one table for each window, which
/// serves many numbers while it is in cache.
pub(in crate::cpu) struct PowerTable {
    width: usize,
    bits: usize,
    windows: SharedTables,
}

/// Returns the width of digits for exponents of `bits` bits: the cheapest of those whose table
/// fits.
///
/// # Cost model
/// Each digit costs a product of `multiplies` and the picking of `limbs` limbs among `2^width`
/// entries. Picking goes on beside multiplying, up to a point: it is charged `B::PICK` multiplies
/// for sixteen entries of a limb.
fn fixed_width<B: Backend>(bits: usize, limbs: usize, multiplies: usize) -> usize {
    let cost = |w: &usize| {
        bits.div_ceil(*w) as f64 * (multiplies as f64 + B::PICK * (limbs << w) as f64 / 16.0)
    };
    let fits = |w: &usize| bits.div_ceil(*w) * (limbs << w) * 8 <= TABLE_BYTES;
    (4..=9).filter(fits).min_by(|a, b| cost(a).total_cmp(&cost(b))).unwrap_or(4)
}

impl PowerTable {
    /// Computes every entry: for `LANES` windows side by side, all digits.
    pub(in crate::cpu) fn new<B: Backend>(m: &Montgomery<B>, fixed: &FixedBase) -> Self {
        let bits = fixed.exponent_bits() as usize;
        let width = fixed_width::<B>(bits, m.chain_len(), m.multiplies_of_product());
        let count = bits.div_ceil(width);
        // The factor is in the first window.
        let mut x = Running::new(m);
        let mut first_factor = m.chains(1);
        match fixed.factor() {
            Some(words) => x.enter(&Items::shared(words), 0),
            None => x.set(m.one()),
        }
        first_factor.set(0, x.view());
        // The first power of each window.
        let mut firsts = m.chains(count);
        x.enter(&Items::shared(fixed.base()), 0);
        for window in 0..count {
            if window > 0 {
                x.square(width);
            }
            firsts.set(window, x.view());
        }
        let mut windows = SharedTables::new(m, width, count);
        windows.fill(m, |first, [factor, base]| {
            let factor_of = |lane| if first + lane == 0 { first_factor.view() } else { m.one() };
            m.gather(factor, |lane| Some(factor_of(lane)));
            m.gather(base, |lane| (first + lane < count).then(|| firsts.at(first + lane)));
        });
        Self { width, bits, windows }
    }

    /// `out = base^exponent` for every item: one product a window, no squarings.
    pub(in crate::cpu) fn pow<B: Backend>(
        &self,
        m: &Montgomery<B>,
        out: Results<'_>,
        exponents: &Items<'_>,
    ) {
        let groups = out.count(B::LANES);
        let exponents = ExponentWords::load(m.backend(), exponents, (self.bits, 1), (0, groups));
        let (mut picker, mut products) = (Picker::new(m), m.chains(groups));
        for (window, table) in self.windows.iter().enumerate() {
            let digit = |group| exponents.digit(group, window * self.width, self.width);
            for first in (0..groups).step_by(GROUPS) {
                let range = first..groups.min(first + GROUPS);
                picker.multiply(&mut products, range, window == 0, &table, digit);
            }
        }
        for ((_, out), product) in out.groups(B::LANES).zip(products.iter()) {
            picker.x.set(product);
            picker.x.leave(out);
        }
    }
}
