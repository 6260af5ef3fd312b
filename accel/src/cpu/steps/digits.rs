//! Between numbers and their digits: remainders, quotients, and numbers put together of both.

use zeroize::Zeroizing;

use super::super::{
    backend::{Backend, Items, Results},
    montgomery::{Any, Canonical, Lazy, Montgomery, Number, Numbers, Room, subtract},
};
use crate::program::Crt;

/// Remainders modulo m of numbers of any length, by Horner's rule over pieces of as many words as
/// m: `acc · 2^(64·words) + piece`, both products of one Montgomery reduction.
struct Horner<'m, B: Backend> {
    m: &'m Montgomery<B>,
    /// Words of a piece.
    words: usize,
    top: Numbers<Any, B>,
    piece: Numbers<Any, B>,
    acc: Numbers<Lazy, B>,
    next: Numbers<Lazy, B>,
    room: Room<B>,
}

impl<'m, B: Backend> Horner<'m, B> {
    fn new(m: &'m Montgomery<B>, words: usize) -> Self {
        let (top, piece, acc, next) = (m.number(), m.number(), m.number(), m.number());
        Self { m, words, top, piece, acc, next, room: m.room() }
    }

    fn remainder(&mut self, x: &Items<'_>, first: usize) -> Number<'_, Canonical, B> {
        let m = self.m;
        let piece_of = |index: usize| x.part(index * self.words..(index + 1) * self.words);
        // The highest piece, but where there is no other: then it stays zero.
        let mut rest = x.each.div_ceil(self.words);
        if rest > 1 {
            rest -= 1;
            m.load_any(&mut self.top, &piece_of(rest), first);
        }
        for index in (0..rest).rev() {
            m.load_any(&mut self.piece, &piece_of(index), first);
            let acc = if index + 1 == rest { self.top.view() } else { self.acc.view().any() };
            let products = [(acc, m.piece()), (self.piece.view(), m.r())];
            m.mont_two(&mut self.next, products, &mut self.room);
            std::mem::swap(&mut self.acc, &mut self.next);
        }
        m.reduce(&mut self.acc)
    }
}

pub(super) fn reduce<B: Backend>(m: &Montgomery<B>, out: Results<'_>, x: &Items<'_>) {
    let mut horner = Horner::new(m, out.each);
    for (first, out) in out.groups(B::LANES) {
        m.store(out, horner.remainder(x, first));
    }
}

/// `x mod s`, and `(x − x mod s) / s`.
pub(super) fn split<B: Backend>(m: &Montgomery<B>, out: Results<'_>, x: &Items<'_>) {
    let split = m.split();
    let root = split.root();
    let (mut horner, mut room) = (Horner::new(root, out.each / 2), root.room());
    let mut high = root.number();
    for (first, out) in out.groups(B::LANES) {
        let low = horner.remainder(x, first);
        let high = root.divide(&mut high, (x, first), low, &mut room);
        split.store(out, [low, high]);
    }
}

/// `x₀ + x₁·s`.
pub(super) fn join<B: Backend>(m: &Montgomery<B>, out: Results<'_>, pairs: &Items<'_>) {
    let split = m.split();
    let root = split.root();
    let ([mut low, mut high], mut wide) = ([(); 2].map(|()| root.number()), split.pair());
    for (first, out) in out.groups(B::LANES) {
        let digits = split.load([&mut low, &mut high], pairs, first);
        root.store(out, root.join(&mut wide, digits));
    }
}

/// 1 in every lane.
fn one<'o, B: Backend>(
    m: &Montgomery<B>,
    out: &'o mut Numbers<Lazy, B>,
) -> Number<'o, Canonical, B> {
    m.load(out, &Items::shared(&[1]), 0)
}

/// The number with digits 1 and x.
pub(super) fn one_plus_mn<B: Backend>(n: &Montgomery<B>, out: Results<'_>, x: &Items<'_>) {
    let ([mut low, mut high], mut wide) = ([(); 2].map(|()| n.number()), n.wide(n));
    let one = one(n, &mut low);
    for (first, out) in out.groups(B::LANES) {
        let x = n.load(&mut high, x, first);
        n.store(out, n.join(&mut wide, [one, x]));
    }
}

/// The digits 1 and x.
pub(super) fn one_plus_mn_pair(out: Results<'_>, x: &Items<'_>) {
    for (index, out) in out.groups(1) {
        let (low, high) = out.words.split_at_mut(out.each / 2);
        low.fill(0);
        low[0] = 1;
        high.copy_from_slice(x.item(index));
    }
}

/// `(x − 1) / p`.
pub(super) fn l_quotient<B: Backend>(p: &Montgomery<B>, out: Results<'_>, x: &Items<'_>) {
    let ([mut unit, mut quotient], mut room) = ([(); 2].map(|()| p.number()), p.room());
    let one = one(p, &mut unit);
    for (first, out) in out.groups(B::LANES) {
        p.store(out, p.divide(&mut quotient, (x, first), one, &mut room));
    }
}

/// `a + p · ((b − a) · p⁻¹ mod q)`. Modulo q, a is any number: p has no more words than q.
pub(super) fn crt_join<B: Backend>(
    [p, q]: [&Montgomery<B>; 2],
    crt: &Crt,
    out: Results<'_>,
    a: &Items<'_>,
    b: &Items<'_>,
) {
    let mut room = q.room();
    // ±p⁻¹·R, so that a product with it is ±p⁻¹ times a number.
    let negative = Zeroizing::new(subtract(crt.q().words(), crt.p_inverse()));
    let [mut plus, mut minus, mut x] = [(); 3].map(|()| q.number());
    for (words, constant) in [(crt.p_inverse(), &mut plus), (&*negative, &mut minus)] {
        let x = q.load(&mut x, &Items::shared(words), 0);
        q.mont(constant, x.lazy(), q.r_squared().lazy(), &mut room);
    }
    let (plus, minus) = (q.reduce(&mut plus), q.reduce(&mut minus));
    let [mut x, mut y] = [(); 2].map(|()| q.number());
    let (mut low, mut high, mut wide) = (p.number(), q.number(), p.wide(q));
    for (first, out) in out.groups(B::LANES) {
        q.load_any(&mut x, a, first);
        q.load_any(&mut y, b, first);
        q.mont_two(&mut high, [(y.view(), plus), (x.view(), minus)], &mut room);
        let digits = [p.load(&mut low, a, first), q.reduce(&mut high)];
        p.store(out, p.join(&mut wide, digits));
    }
}
