//! Products, squares and reduction, two rows at a time.

use super::*;

#[inline]
#[target_feature(enable = "avx512f,avx512ifma")]
fn low(x: Word, a: Word, b: Word) -> Word {
    _mm512_madd52lo_epu64(x, a, b)
}

#[inline]
#[target_feature(enable = "avx512f,avx512ifma")]
fn high(x: Word, a: Word, b: Word) -> Word {
    _mm512_madd52hi_epu64(x, a, b)
}

#[inline]
#[target_feature(enable = "avx512f")]
fn all(limb: u64) -> Word {
    _mm512_set1_epi64(limb as i64)
}

#[inline]
#[target_feature(enable = "avx512f")]
fn carry_of(x: Word) -> Word {
    _mm512_srli_epi64::<BITS>(x)
}

/// See [`Backend::mul_redc`].
///
/// Row `i` adds `a_i · b` and `q_i · m` at limb `i`, where `q_i` makes that limb vanish. Two rows go
/// together, column by column: eight multiply-accumulates for each load and store of the
/// accumulator, and no column waits for another. A finished limb of the accumulator keeps its `q`.
#[target_feature(enable = "avx512f,avx512dq,avx512ifma")]
pub(super) fn mul_redc<const P: usize>(
    m: &Limbs,
    out: &mut [Word],
    acc: &mut [Word],
    pairs: [Product<'_, Word>; P],
    fresh: bool,
) {
    let limbs = m.len();
    let (acc, m_limbs) = (&mut acc[..2 * limbs], &m.m[..limbs]);
    let zero = _mm512_setzero_si512();
    let mut b: [&[Word]; P] = [&[]; P];
    (0..P).for_each(|p| b[p] = &pairs[p].1[..limbs]);
    let inverse = all(m.neg_inverse);
    let mut i = 0;
    while i + 1 < limbs {
        let fresh = fresh && i == 0;
        let held = |word: Word| if fresh { zero } else { word };
        let (row, top) = acc[i..].split_at_mut(limbs);
        let (mut a0, mut a1, mut b0, mut b1) = ([zero; P], [zero; P], [zero; P], [zero; P]);
        // Columns 0 and 1, which tell the quotient digits.
        let mut x = held(row[0]);
        for p in 0..P {
            (a0[p], a1[p]) = (pairs[p].0[i], pairs[p].0[i + 1]);
            (b0[p], b1[p]) = (b[p][0], b[p][1]);
            x = low(x, a0[p], b0[p]);
        }
        let (mut m0, mut m1) = (all(m_limbs[0]), all(m_limbs[1]));
        let q0 = low(zero, x, inverse);
        let mut y = _mm512_add_epi64(held(row[1]), carry_of(low(x, q0, m0)));
        for p in 0..P {
            y = low(low(high(y, a0[p], b0[p]), a0[p], b1[p]), a1[p], b0[p]);
        }
        y = low(high(y, q0, m0), q0, m1);
        let q1 = low(zero, y, inverse);
        let mut carry = carry_of(low(y, q1, m0));
        (row[0], row[1]) = (q0, q1);
        for c in 2..limbs {
            let (mut x, mut y) = (_mm512_add_epi64(held(row[c]), carry), zero);
            carry = zero;
            for p in 0..P {
                let b2 = b[p][c];
                x = low(low(x, a0[p], b2), a1[p], b1[p]);
                y = high(high(y, a0[p], b1[p]), a1[p], b0[p]);
                (b0[p], b1[p]) = (b1[p], b2);
            }
            let m2 = all(m_limbs[c]);
            x = low(low(x, q0, m2), q1, m1);
            y = high(high(y, q0, m1), q1, m0);
            (m0, m1) = (m1, m2);
            row[c] = _mm512_add_epi64(x, y);
        }
        // What is above the accumulator's limbs so far is stale if there are pairs.
        let above = |at: usize| if P == 0 || i + at == 0 { held(top[at]) } else { zero };
        let (mut x, mut y) = (_mm512_add_epi64(above(0), carry), above(1));
        for p in 0..P {
            x = high(low(high(x, a0[p], b1[p]), a1[p], b1[p]), a1[p], b0[p]);
            y = high(y, a1[p], b1[p]);
        }
        top[0] = high(low(high(x, q0, m1), q1, m1), q1, m0);
        top[1] = high(y, q1, m1);
        i += 2;
    }
    if i < limbs {
        let row = &mut acc[i..];
        let mut a: [Word; P] = [zero; P];
        let mut x = row[0];
        for p in 0..P {
            a[p] = pairs[p].0[i];
            x = low(x, a[p], b[p][0]);
        }
        let q = low(zero, x, inverse);
        let mut carry = carry_of(low(x, q, all(m_limbs[0])));
        row[0] = q;
        for c in 1..limbs {
            let mut x = _mm512_add_epi64(row[c], carry);
            for p in 0..P {
                x = high(low(x, a[p], b[p][c]), a[p], b[p][c - 1]);
            }
            row[c] = high(low(x, q, all(m_limbs[c])), q, all(m_limbs[c - 1]));
            carry = zero;
        }
        let mut x = if P == 0 { row[limbs] } else { zero };
        for p in 0..P {
            x = high(x, a[p], b[p][limbs - 1]);
        }
        row[limbs] = high(x, q, all(m_limbs[limbs - 1]));
    }
    normalise(out, &acc[limbs..]);
}

/// Carries every limb into the next; what passes the end is lost.
#[inline]
#[target_feature(enable = "avx512f")]
fn normalise(out: &mut [Word], x: &[Word]) {
    let mut carry = _mm512_setzero_si512();
    for (out, &x) in out.iter_mut().zip(x) {
        let sum = _mm512_add_epi64(x, carry);
        *out = _mm512_and_si512(sum, all(MASK as u64));
        carry = carry_of(sum);
    }
}

/// See [`Backend::square`]: products of different limbs two rows at a time, doubled, and the squares.
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
    for (pair, &x) in acc.chunks_exact_mut(2).zip(a) {
        pair[0] = low(_mm512_add_epi64(pair[0], pair[0]), x, x);
        pair[1] = high(_mm512_add_epi64(pair[1], pair[1]), x, x);
    }
}

/// See [`Backend::mul_wide`].
#[target_feature(enable = "avx512f,avx512ifma")]
pub(super) fn mul_wide(acc: &mut [Word], a: &[Word], b: &[u64]) {
    let zero = _mm512_setzero_si512();
    let acc = &mut acc[..a.len() + b.len()];
    acc.fill(zero);
    for (i, &limb) in b.iter().enumerate() {
        let (b, mut carry) = (all(limb), zero);
        for (cell, &a) in acc[i..].iter_mut().zip(a) {
            *cell = low(_mm512_add_epi64(*cell, carry), a, b);
            carry = high(zero, a, b);
        }
        acc[i + a.len()] = carry;
    }
    add_assign(acc, &[]);
}

/// See [`Backend::double`].
#[target_feature(enable = "avx512f")]
pub(super) fn double(out: &mut [Word], a: &[Word]) {
    let mut carry = _mm512_setzero_si512();
    for (out, &x) in out.iter_mut().zip(a) {
        let twice = _mm512_or_si512(_mm512_slli_epi64::<1>(x), carry);
        *out = _mm512_and_si512(twice, all(MASK as u64));
        carry = _mm512_srli_epi64::<{ BITS - 1 }>(x);
    }
}

/// See [`Backend::complement`]. No limb borrows: those of the bias are large enough.
#[target_feature(enable = "avx512f")]
pub(super) fn complement(acc: &mut [Word], m: &Limbs) {
    let limbs = m.len();
    for (x, &bias) in acc[..limbs].iter_mut().zip(&m.bias) {
        *x = _mm512_sub_epi64(all(bias), *x);
    }
    acc[limbs] = all(m.bias[limbs]);
}

/// See [`Backend::add_assign`].
#[target_feature(enable = "avx512f")]
pub(super) fn add_assign(a: &mut [Word], b: &[Word]) {
    let mut carry = _mm512_setzero_si512();
    for (i, x) in a.iter_mut().enumerate() {
        let mut sum = _mm512_add_epi64(*x, carry);
        if let Some(&b) = b.get(i) {
            sum = _mm512_add_epi64(sum, b);
        }
        *x = _mm512_and_si512(sum, all(MASK as u64));
        carry = carry_of(sum);
    }
}

/// See [`Backend::reduce_once`]: the borrow of `x − m` tells which to keep.
#[target_feature(enable = "avx512f")]
pub(super) fn reduce_once(m: &[u64], x: &mut [Word]) -> Word {
    let mut borrow = _mm512_setzero_si512();
    for (&x, &m) in x.iter().zip(m) {
        let difference = _mm512_add_epi64(_mm512_sub_epi64(x, all(m)), borrow);
        borrow = _mm512_srai_epi64::<BITS>(difference);
    }
    let large = _mm512_cmpge_epi64_mask(borrow, _mm512_setzero_si512());
    let mut borrow = _mm512_setzero_si512();
    for (x, &m) in x.iter_mut().zip(m) {
        let difference = _mm512_mask_sub_epi64(*x, large, *x, all(m));
        let difference = _mm512_add_epi64(difference, borrow);
        *x = _mm512_and_si512(difference, all(MASK as u64));
        borrow = _mm512_srai_epi64::<BITS>(difference);
    }
    _mm512_maskz_set1_epi64(large, 1)
}

/// See [`Backend::negate`].
#[target_feature(enable = "avx512f")]
pub(super) fn negate(x: &mut [Word]) {
    let mut borrow = _mm512_setzero_si512();
    for x in x {
        let difference = _mm512_sub_epi64(borrow, *x);
        *x = _mm512_and_si512(difference, all(MASK as u64));
        borrow = _mm512_srai_epi64::<BITS>(difference);
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
