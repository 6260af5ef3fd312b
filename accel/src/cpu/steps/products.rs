//! Products of residues.

use super::super::{
    backend::{Backend, Items, Results},
    montgomery::{Lazy, Montgomery, Numbers, Room},
};

pub(super) fn mul<B: Backend>(m: &Montgomery<B>, out: Results<'_>, a: &Items<'_>, b: &Items<'_>) {
    let mut space = m.space();
    let [mut x, mut y, mut z] = [(); 3].map(|()| m.number());
    for (first, out) in out.groups(B::LANES) {
        let factors = [m.load(&mut x, a, first), m.load(&mut y, b, first)];
        m.ordinary(&mut z, factors, &mut space);
        m.store(out, m.reduce(&mut z));
    }
}

pub(super) fn mont_mul<B: Backend>(
    m: &Montgomery<B>,
    out: Results<'_>,
    a: &Items<'_>,
    b: &Items<'_>,
) {
    let mut room = m.room();
    let [mut y, mut z] = [(); 2].map(|()| m.number());
    for (first, out) in out.groups(B::LANES) {
        let b = m.load(&mut y, b, first);
        m.mont_words(&mut z, (a, first), b, &mut room);
        m.store(out, m.reduce(&mut z));
    }
}

pub(super) fn pair_mul<B: Backend>(
    m: &Montgomery<B>,
    out: Results<'_>,
    a: &Items<'_>,
    b: &Items<'_>,
) {
    let (split, mut room) = (m.split(), m.room());
    let [mut low, mut high] = [(); 2].map(|()| split.root().number());
    let mut z = split.pair();
    for (first, out) in out.groups(B::LANES) {
        let b = split.load([&mut low, &mut high], b, first);
        split.store(out, split.mont_words(&mut z, (a, first), b, &mut room));
    }
}

/// Products of ordinary numbers each take one R away; a last one with `R^rows` gives them back.
pub(super) fn product<B: Backend>(m: &Montgomery<B>, out: Results<'_>, rows: &Items<'_>) {
    let mut room = m.room();
    let [mut acc, mut x, mut next] = [(); 3].map(|()| m.number());
    let (each, count) = (out.each, rows.each / out.each);
    let radices = radix_power(m, count, &mut room);
    for (first, out) in out.groups(B::LANES) {
        for row in 0..count {
            let row_of_all = rows.part(row * each..(row + 1) * each);
            let x = m.load(&mut x, &row_of_all, first).lazy();
            if row == 0 {
                acc.set(0, x);
            } else {
                m.mont(&mut next, acc.view(), x, &mut room);
                std::mem::swap(&mut acc, &mut next);
            }
        }
        m.mont(&mut next, acc.view(), radices.view(), &mut room);
        m.store(out, m.reduce(&mut next));
    }
}

/// `R^power mod m`, for a power of at least 1.
fn radix_power<B: Backend>(
    m: &Montgomery<B>,
    power: usize,
    room: &mut Room<B>,
) -> Numbers<Lazy, B> {
    // In Montgomery form this is R to the power − 1.
    let [mut acc, mut next] = [(); 2].map(|()| m.number());
    acc.set(0, m.r().lazy());
    for bit in (0..usize::BITS - (power - 1).leading_zeros()).rev() {
        m.mont(&mut next, acc.view(), acc.view(), room);
        std::mem::swap(&mut acc, &mut next);
        if (power - 1) >> bit & 1 == 1 {
            m.mont(&mut next, acc.view(), m.r_squared().lazy(), room);
            std::mem::swap(&mut acc, &mut next);
        }
    }
    acc
}
