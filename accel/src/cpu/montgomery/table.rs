//! Tables of numbers in the form of chains, of which digits pick: what is picked is such a number.

use rayon::prelude::*;
use zeroize::{Zeroize, Zeroizing};

use super::{super::backend::Line, Backend, Chain, Group, Montgomery, Number, Numbers, Running};

/// A table of `2^width` numbers for each lane: `[limb][entry]`.
pub(in crate::cpu) struct LaneTable<B: Backend>(Group<B>);

impl<B: Backend> LaneTable<B> {
    pub(in crate::cpu) fn new(
        m: &Montgomery<B>,
        entries: &Numbers<Chain, B>,
        width: usize,
    ) -> Self {
        let mut table = Zeroizing::new(vec![m.backend.zero(); m.chain_len() << width]);
        for (e, entry) in entries.iter().enumerate() {
            for (limb, &word) in entry.limbs().iter().enumerate() {
                table[limb << width | e] = word;
            }
        }
        Self(table)
    }

    /// Sets `out` to what the digit of each lane names.
    pub(in crate::cpu) fn pick(
        &self,
        m: &Montgomery<B>,
        out: &mut Numbers<Chain, B>,
        digits: &B::Digits,
    ) {
        m.backend.pick_own(out.limbs_mut(), &self.0, digits);
    }
}

/// Tables of `2^width` numbers, each for all lanes: `[table][limb][entry]`, so that a digit is
/// picked from neighbouring words.
pub(in crate::cpu) struct SharedTables {
    lines: Vec<Line>,
    width: usize,
    /// Lines of a table.
    each: usize,
}

impl Drop for SharedTables {
    fn drop(&mut self) {
        self.lines.zeroize();
    }
}

/// One of them.
pub(in crate::cpu) struct SharedTable<'a>(&'a [Line]);

impl SharedTables {
    /// Makes tables of zeros.
    pub(in crate::cpu) fn new<B: Backend>(m: &Montgomery<B>, width: usize, count: usize) -> Self {
        let each = m.chain_len() << (width - 3);
        Self { lines: vec![Line::default(); count * each], width, each }
    }

    pub(in crate::cpu) fn iter(&self) -> impl Iterator<Item = SharedTable<'_>> {
        self.lines.chunks_exact(self.each).map(SharedTable)
    }

    /// Sets each of `LANES` tables after the other to the powers of a lane of a base, times a
    /// factor, in parallel. `of` finds both by the index of the first table, and gets memory for
    /// them.
    pub(in crate::cpu) fn fill<B: Backend>(
        &mut self,
        m: &Montgomery<B>,
        of: impl Fn(usize, [&mut Numbers<Chain, B>; 2]) + Sync,
    ) {
        let (width, each) = (self.width, self.each);
        self.lines.par_chunks_mut(each * B::LANES).enumerate().for_each(|(block, lines)| {
            let (mut factor, mut base) = (m.chains(1), m.chains(1));
            of(block * B::LANES, [&mut factor, &mut base]);
            let mut entry = Running::new(m);
            entry.set(factor.view());
            spread(lines.chunks_exact_mut(each), width, &mut entry, base.view());
        });
    }

    /// Sets the first `LANES` tables to the powers of each lane of a base.
    pub(in crate::cpu) fn set_powers<B: Backend>(
        &mut self,
        entry: &mut Running<'_, B>,
        base: Number<'_, Chain, B>,
    ) {
        entry.set(entry.modulus().one());
        spread(self.lines.chunks_exact_mut(self.each), self.width, entry, base);
    }
}

/// Writes the first entry of each lane and its products with the powers of a base to a table.
fn spread<'t, B: Backend>(
    tables: impl Iterator<Item = &'t mut [Line]>,
    width: usize,
    entry: &mut Running<'_, B>,
    base: Number<'_, Chain, B>,
) {
    let mut tables: Vec<_> = tables.take(B::LANES).collect();
    for digit in 0..1 << width {
        if digit > 0 {
            entry.mul(base);
        }
        for (limb, &word) in entry.view().limbs().iter().enumerate() {
            let (line, place) = (limb << (width - 3) | digit >> 3, digit & 7);
            // Lanes last: a word leaves its register once, not for each lane.
            for (lane, table) in tables.iter_mut().enumerate() {
                table[line].0[place] = B::lane(word, lane);
            }
        }
    }
}

impl SharedTable<'_> {
    /// Sets the numbers of `out` from `first` on to what digits name, one digit of each lane for
    /// each.
    pub(in crate::cpu) fn pick<B: Backend>(
        &self,
        m: &Montgomery<B>,
        out: &mut Numbers<Chain, B>,
        first: usize,
        digits: &[B::Digits],
    ) {
        m.backend.pick_shared(out.limbs_from(first, digits.len()), self.0, digits);
    }
}
