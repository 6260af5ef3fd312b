//! Powers: of changing bases, of one base known beforehand, and products of many powers at once.
//!
//! Secret exponents take fixed windows, and what a digit names is picked by reading every entry of
//! a table. Public exponents take time by their length, or by that of the longest in their group;
//! by sliding windows where there is one lane, or one exponent for all.

mod dot;
mod fixed_base;
mod windows;

use std::ops::Range;

use zeroize::Zeroizing;

use super::{
    backend::{Backend, Items},
    montgomery::{Chain, Montgomery, Numbers, Running, SharedTable},
};
pub(super) use dot::dot;
pub(super) use fixed_base::PowerTable;
pub(super) use windows::pow;

/// Groups for which entries are picked at once: their numbers stay in the second level of cache,
/// and the entries of a limb in the first while all pick.
const GROUPS: usize = 16;

/// A batch of exponents of at most `bits` bits.
pub(super) struct ExponentBatch<'a> {
    pub(super) items: Items<'a>,
    pub(super) bits: usize,
    /// Whether the time may depend on them.
    pub(super) public: bool,
}

/// Exponents with the words of `LANES` items side by side, to take digits from.
struct ExponentWords<B: Backend> {
    backend: B,
    words: Zeroizing<Vec<B::Word>>,
    /// Words of one exponent.
    each: usize,
    bits: usize,
}

impl<B: Backend> ExponentWords<B> {
    /// Returns the exponents of the groups from item `first` on, of `rows` exponents an item.
    fn load(
        backend: B,
        items: &Items<'_>,
        (bits, rows): (usize, usize),
        (first, groups): (usize, usize),
    ) -> Self {
        let mut words = Zeroizing::new(vec![backend.zero(); groups * items.each]);
        for (index, words) in words.chunks_exact_mut(items.each).enumerate() {
            backend.load_words(words, items, first + index * B::LANES);
        }
        Self { backend, words, each: items.each / rows, bits }
    }

    /// Returns bits `at .. at + width`, as far as there are, of an exponent of each lane.
    fn digit(&self, index: usize, at: usize, width: usize) -> B::Digits {
        let words = &self.words[index * self.each..][..self.each];
        self.backend.digits(words, at, width.min(self.bits - at), width)
    }
}

/// Multiplies running products by entries of tables for all lanes.
struct Picker<'m, B: Backend> {
    x: Running<'m, B>,
    /// The entries for [`GROUPS`] products.
    picked: Numbers<Chain, B>,
}

impl<'m, B: Backend> Picker<'m, B> {
    fn new(m: &'m Montgomery<B>) -> Self {
        Self { x: Running::new(m), picked: m.chains(GROUPS) }
    }

    /// Multiplies some of the products, at most [`GROUPS`], by the entries that their digits name,
    /// or sets them to those where they are `fresh`.
    fn multiply(
        &mut self,
        products: &mut Numbers<Chain, B>,
        range: Range<usize>,
        fresh: bool,
        table: &SharedTable<'_>,
        digit: impl Fn(usize) -> B::Digits,
    ) {
        let m = self.x.modulus();
        let digits: Vec<_> = range.clone().map(digit).collect();
        if fresh {
            return table.pick(m, products, range.start, &digits);
        }
        table.pick(m, &mut self.picked, 0, &digits);
        for (index, factor) in range.zip(self.picked.iter()) {
            self.x.multiply(products, index, factor);
        }
    }
}
