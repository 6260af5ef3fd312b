//! Products, squares and reduction, two rows of limbs at a time.

use super::*;

/// Columns of a tile: as many chains of multiply-accumulates as keep two units busy.
const TILE: usize = 8;

/// Rows of a product without reduction that go together.
pub(super) const ROWS: usize = 4;

/// Two rows of a product and its reduction: `a_i · b` and `q_i · m`, for limbs `i` and `i + 1`.
#[derive(Clone, Copy)]
struct Rows<const P: usize> {
    a: [[Word; 2]; P],
    q: [Word; 2],
    /// The carry of the first two columns into the third.
    carry: Word,
}

impl<const P: usize> Rows<P> {
    /// Finds the `q` that make the first two columns vanish, which start as `x` and `y`.
    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma")]
    fn new(m: &Limbs, [mut x, mut y]: [Word; 2], a: [[Word; 2]; P], b: [&[Word]; P]) -> Self {
        let (zero, inverse) = (_mm512_setzero_si512(), all(m.neg_inverse[0]));
        let (m0, m1) = (all(m.m[0]), all(m.m[1]));
        for p in 0..P {
            x = low(x, a[p][0], b[p][0]);
            y = low(low(high(y, a[p][0], b[p][0]), a[p][0], b[p][1]), a[p][1], b[p][0]);
        }
        let q0 = low(zero, x, inverse);
        y = low(high(y, q0, m0), q0, m1);
        y = _mm512_add_epi64(y, carry_of(low(x, q0, m0)));
        let q1 = low(zero, y, inverse);
        Self { a, q: [q0, q1], carry: carry_of(low(y, q1, m0)) }
    }

    /// Adds to `cells`, which are columns `at ..`, all that falls there; `at` is 2 at least.
    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma")]
    fn add<const C: usize>(&self, cells: &mut [Word; C], m: &[u64], b: [&[Word]; P], at: usize) {
        let m = &m[at - 2..at + C];
        let mut x = *cells;
        // Column c of row r has the lower half for limb c − r and the upper half for the one below.
        for r in 0..2 {
            for p in 0..P {
                let b = &b[p][at - 2..at + C];
                for c in 0..C {
                    x[c] = low(x[c], self.a[p][r], b[c + 2 - r]);
                }
                for c in 0..C {
                    x[c] = high(x[c], self.a[p][r], b[c + 1 - r]);
                }
            }
            for c in 0..C {
                x[c] = low(x[c], self.q[r], all(m[c + 2 - r]));
            }
            for c in 0..C {
                x[c] = high(x[c], self.q[r], all(m[c + 1 - r]));
            }
        }
        *cells = x;
    }

    /// Returns the two columns above the last limbs, which start as `x` and `y`.
    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma")]
    fn top(&self, [mut x, mut y]: [Word; 2], m: &[u64], b: [&[Word]; P]) -> [Word; 2] {
        let last = m.len() - 1;
        let (m0, m1) = (all(m[last - 1]), all(m[last]));
        for (&[a0, a1], b) in self.a.iter().zip(&b) {
            let (b0, b1) = (b[last - 1], b[last]);
            (x, y) = (high(low(high(x, a0, b1), a1, b1), a1, b0), high(y, a1, b1));
        }
        let [q0, q1] = self.q;
        [high(low(high(x, q0, m1), q1, m1), q1, m0), high(y, q1, m1)]
    }
}

/// See [`Backend::mul_redc`].
///
/// Row `i` adds `a_i · b` and `q_i · m` at limb `i`, where `q_i` makes that limb vanish. Two rows
/// go together, a tile of columns at a time, each column a chain of its own. The next rows' `q`, a
/// long chain, are begun as soon as the columns that they depend on are there, and are found while
/// the other columns are added. A finished limb of the accumulator keeps its `q`.
#[target_feature(enable = "avx512f,avx512dq,avx512ifma")]
pub(super) fn mul_redc<const P: usize>(
    m: &Limbs,
    out: &mut [Word],
    acc: &mut [Word],
    products: [FactorPair<'_, Word>; P],
) {
    let limbs = m.len();
    let acc = &mut acc[..2 * limbs];
    let zero = _mm512_setzero_si512();
    let (mut a, mut b): ([&[Word]; P], [&[Word]; P]) = ([&[]; P], [&[]; P]);
    for p in 0..P {
        (a[p], b[p]) = (&products[p].0[..limbs], &products[p].1[..limbs]);
    }
    let limbs_of_a = |i: usize| {
        let mut limbs = [[zero; 2]; P];
        for p in 0..P {
            limbs[p] = [a[p][i], a[p][i + 1]];
        }
        limbs
    };
    let mut rows = Rows::new(m, [acc[0], acc[1]], limbs_of_a(0), b);
    for i in (0..limbs - 1).step_by(2) {
        let (row, top) = acc[i..].split_at_mut(limbs);
        let now = rows;
        row[..2].copy_from_slice(&now.q);
        // What is above the accumulator's limbs so far is stale if there are products.
        let above = |at: usize| if P == 0 || i + at == 0 { top[at] } else { zero };
        let mut high = [above(0), above(1)];
        let third = row.get_mut(2).unwrap_or(&mut high[0]);
        *third = _mm512_add_epi64(*third, now.carry);
        let (tiles, rest) = row[2..].as_chunks_mut::<TILE>();
        let mut at = 2;
        for cells in tiles {
            now.add(cells, &m.m, b, at);
            if at == 2 && i + 3 < limbs {
                rows = Rows::new(m, [cells[0], cells[1]], limbs_of_a(i + 2), b);
            }
            at += TILE;
        }
        for cells in rest.as_chunks_mut::<1>().0 {
            now.add(cells, &m.m, b, at);
            at += 1;
        }
        if limbs < 2 + TILE && i + 3 < limbs {
            rows = Rows::new(m, [row[2], row[3]], limbs_of_a(i + 2), b);
        }
        top[..2].copy_from_slice(&now.top(high, &m.m, b));
    }
    if limbs % 2 == 1 {
        last_row(m, &mut acc[limbs - 1..], a, b);
    }
    limbs::normalise(out, &acc[limbs..]);
}

/// Adds the last row of an odd number of them.
#[inline]
#[target_feature(enable = "avx512f,avx512ifma")]
fn last_row<const P: usize>(m: &Limbs, row: &mut [Word], a: [&[Word]; P], b: [&[Word]; P]) {
    let last = m.len() - 1;
    let zero = _mm512_setzero_si512();
    let mut x = row[0];
    (0..P).for_each(|p| x = low(x, a[p][last], b[p][0]));
    let q = low(zero, x, all(m.neg_inverse[0]));
    let mut carry = carry_of(low(x, q, all(m.m[0])));
    row[0] = q;
    for c in 1..=last {
        let mut x = _mm512_add_epi64(row[c], carry);
        for p in 0..P {
            x = high(low(x, a[p][last], b[p][c]), a[p][last], b[p][c - 1]);
        }
        row[c] = high(low(x, q, all(m.m[c])), q, all(m.m[c - 1]));
        carry = zero;
    }
    let mut x = if P == 0 { row[last + 1] } else { zero };
    (0..P).for_each(|p| x = high(x, a[p][last], b[p][last]));
    row[last + 1] = high(x, q, all(m.m[last]));
}

/// See [`Backend::square`]: products of different limbs two rows at a time, doubled, and the
/// squares.
#[target_feature(enable = "avx512f,avx512ifma")]
pub(super) fn square(acc: &mut [Word], a: &[Word]) {
    let limbs = a.len();
    let acc = &mut acc[..2 * limbs];
    let zero = _mm512_setzero_si512();
    // Each row writes the limbs above those of the rows before it, and adds to the others.
    acc[..limbs].fill(zero);
    acc[2 * limbs - 1] = zero;
    for i in (0..limbs - 1).step_by(2) {
        let (u, v) = (a[i], a[i + 1]);
        acc[2 * i + 1] = low(acc[2 * i + 1], u, v);
        let (mut x, mut y) = (high(zero, u, v), zero);
        let (row, top) = acc[2 * i + 2..].split_at_mut(limbs - i - 2);
        for (cell, &w) in row.iter_mut().zip(&a[i + 2..]) {
            *cell = low(_mm512_add_epi64(*cell, x), u, w);
            x = low(high(y, u, w), v, w);
            y = high(zero, v, w);
        }
        (top[0], top[1]) = (x, y);
    }
    for (cells, &x) in acc.chunks_exact_mut(2).zip(a) {
        cells[0] = low(_mm512_add_epi64(cells[0], cells[0]), x, x);
        cells[1] = high(_mm512_add_epi64(cells[1], cells[1]), x, x);
    }
}

/// See [`Backend::add_product`].
#[target_feature(enable = "avx512f,avx512ifma")]
pub(super) fn add_product(acc: &mut [Word], a: &[Word], b: &[Word]) {
    let acc = &mut acc[..a.len() + b.len()];
    for (i, limbs) in a.chunks(ROWS).enumerate() {
        let mut rows = [_mm512_setzero_si512(); ROWS];
        rows[..limbs.len()].copy_from_slice(limbs);
        add_rows(&mut acc[i * ROWS..], rows, b);
    }
}

/// `acc += a·b`, a column at a time: processors look far enough ahead to have several under way.
/// Limbs of a without a column are zero.
#[inline]
#[target_feature(enable = "avx512f,avx512ifma")]
fn add_rows(acc: &mut [Word], a: [Word; ROWS], b: &[Word]) {
    let (len, end) = (b.len(), acc.len().min(b.len() + ROWS));
    // Columns that not all rows have limbs for, in both halves.
    for c in (0..ROWS.min(end)).chain(len.max(ROWS)..end) {
        let mut x = acc[c];
        for (r, &a) in a.iter().enumerate() {
            if let Some(&b) = b.get(c.wrapping_sub(r)) {
                x = low(x, a, b);
            }
            if let Some(&b) = b.get(c.wrapping_sub(r + 1)) {
                x = high(x, a, b);
            }
        }
        acc[c] = x;
    }
    for (cell, b) in acc[ROWS.min(len)..].iter_mut().zip(b.array_windows::<{ ROWS + 1 }>()) {
        let mut x = *cell;
        for r in 0..ROWS {
            x = high(low(x, a[r], b[ROWS - r]), a[r], b[ROWS - 1 - r]);
        }
        *cell = x;
    }
}

/// See [`Backend::burst`]: enough independent chains to fill both units.
#[target_feature(enable = "avx512f,avx512ifma")]
pub(super) fn burst() -> u64 {
    const CHAINS: usize = 16;
    const ROUNDS: usize = 1 << 18;
    let (a, b) = (all(std::hint::black_box(3)), all(std::hint::black_box(5)));
    let mut chains = [_mm512_setzero_si512(); CHAINS];
    for _ in 0..ROUNDS {
        chains.iter_mut().for_each(|x| *x = low(*x, a, b));
    }
    std::hint::black_box(chains);
    (CHAINS * ROUNDS) as u64
}
