//! Arithmetic modulo a square, as all large moduli of Paillier are.
//!
//! With `m = s²` of L limbs and s of `h = L/2`, a number is a pair `x₀ + x₁·s`, not unique while
//! both halves are lazy. Montgomery reduction of `a₀·b₀` modulo s leaves a quotient that is worth
//! keeping: from `a₀·b₀ + Q·s = R·t`,
//!
//! ```text
//! (a₀ + a₁s)(b₀ + b₁s) ≡ R·t + (a₀b₁ + a₁b₀ − Q)·s   (mod s²)
//! ```
//!
//! so after division by R the pair of the product is `t` and the Montgomery reduction of
//! `a₀b₁ + a₁b₀ − Q` modulo s. That is five half-size pieces of `2·h²` multiplies each, `2.5·L²` in
//! all, and for a square, where `a₀²` costs half and `2·a₀a₁` is one product, `1.75·L²` in place of
//! `3·L²`.
//!
//! A pair in memory, or about to go there, is two canonical numbers modulo s, the digits of a
//! number below s².

use super::{
    Any, Backend, Canonical, Chain, Items, Lazy, Montgomery, Number, Numbers, ProductSum, Results,
    Room, power_of_two, product_sum::WideSum,
};
use crate::modulus::Modulus;

/// The constants of a square.
pub(in crate::cpu) struct SquareModulus<B: Backend> {
    root: Montgomery<B>,
    /// The pair of `R³`, for the R of the root.
    r_cubed: Numbers<Chain, B>,
    /// The pair of `R`.
    pub(super) one: Numbers<Chain, B>,
}

impl<B: Backend> SquareModulus<B> {
    pub(super) fn new(backend: B, m: &Modulus, root: &Modulus) -> Self {
        let root = Montgomery::new(backend, root);
        let h = root.len();
        let zero = || Numbers::new(backend, 2 * h, 1);
        let mut split = Self { root, r_cubed: zero(), one: zero() };
        let radix = B::LIMB_BITS * h as u32;
        let mut acc = ProductSum::new(backend, 2 * h);
        // Halving divides by R.
        let mut pair_of = |exponent| {
            let power = power_of_two(backend, exponent, m, 2 * h);
            let mut pair = zero();
            let sum = acc.holding(backend, &split.root.modulus, power.view().limbs());
            split.halve(pair.limbs_mut(), sum);
            pair
        };
        let (r_cubed, one) = (pair_of(4 * radix), pair_of(2 * radix));
        (split.r_cubed, split.one) = (r_cubed, one);
        split
    }

    /// Returns the arithmetic of digits.
    pub(in crate::cpu) fn root(&self) -> &Montgomery<B> {
        &self.root
    }

    /// Makes memory for a number below the square.
    pub(in crate::cpu) fn pair<F>(&self) -> Numbers<F, B> {
        Numbers::new(self.root.backend, 2 * self.root.len(), 1)
    }

    fn halves<'a>(&self, x: &'a [B::Word]) -> [&'a [B::Word]; 2] {
        let (low, high) = x.split_at(self.root.len());
        [low, high]
    }

    /// Returns the lazy pair of `x·R⁻¹`: `x + Q·s = R·t`, so `x·R⁻¹ ≡ t − Q·R⁻¹·s`.
    fn halve(&self, out: &mut [B::Word], x: WideSum<'_, B>) {
        let (low, high) = out.split_at_mut(self.root.len());
        x.redc(low).complement().whole().redc(high);
    }

    /// Multiplies lazy pairs to a lazy pair.
    fn product(
        &self,
        acc: &mut ProductSum<B>,
        out: &mut [B::Word],
        [a0, a1]: [&[B::Word]; 2],
        [b0, b1]: [&[B::Word]; 2],
    ) {
        let (low, high) = out.split_at_mut(self.root.len());
        let start = acc.start(self.root.backend, &self.root.modulus);
        start.mul_redc(low, [(a0, b0)]).complement().mul_redc(high, [(a0, b1), (a1, b0)]);
    }

    pub(super) fn mul(
        &self,
        out: &mut Numbers<Chain, B>,
        a: Number<'_, Chain, B>,
        b: Number<'_, Chain, B>,
        room: &mut Room<B>,
    ) {
        let (a, b) = (self.halves(a.limbs()), self.halves(b.limbs()));
        self.product(&mut room.acc, out.limbs_mut(), a, b);
    }

    pub(super) fn square(
        &self,
        out: &mut Numbers<Chain, B>,
        a: Number<'_, Chain, B>,
        room: &mut Room<B>,
    ) {
        let Montgomery { backend, modulus, .. } = &self.root;
        let [a0, a1] = self.halves(a.limbs());
        let (low, high) = out.limbs_mut().split_at_mut(modulus.len());
        let start = room.acc.square(*backend, modulus, a0).redc(low).complement();
        // As large a product as two of lazy numbers.
        let twice = &mut room.b[..modulus.len()];
        backend.double(twice, a1);
        start.mul_redc(high, [(a0, twice)]);
    }

    /// Makes a pair in Montgomery form of a number below the square.
    pub(super) fn enter(
        &self,
        out: &mut Numbers<Chain, B>,
        items: &Items<'_>,
        first: usize,
        room: &mut Room<B>,
    ) {
        let Montgomery { backend, modulus, .. } = &self.root;
        let pair = &mut room.a[..2 * modulus.len()];
        self.halve(pair, room.acc.load(*backend, modulus, items, first));
        let r_cubed = self.halves(self.r_cubed.view().limbs());
        self.product(&mut room.acc, out.limbs_mut(), self.halves(pair), r_cubed);
    }

    /// Stores the digits of a pair in Montgomery form, or the number that has them.
    ///
    /// Before they are reduced the low half is at most s, the high one at most s + 2: the
    /// complement is at most 2R + s, a lazy x₁ below 2s.
    pub(super) fn leave(&self, out: Results<'_>, x: Number<'_, Chain, B>, room: &mut Room<B>) {
        let Montgomery { backend, modulus, .. } = &self.root;
        let h = modulus.len();
        let [x0, x1] = self.halves(x.limbs());
        let (low, high) = room.a[..2 * h].split_at_mut(h);
        let sum = room.acc.holding(*backend, modulus, x0);
        sum.redc(low).complement().plus(x1).redc(high);
        let digits = self.reduce(&mut room.a[..2 * h]);
        if out.pairs {
            self.store(out, digits);
        } else {
            self.root.store(out, self.root.join_limbs(&mut room.b[..2 * h], digits));
        }
    }

    /// Makes both halves of a pair canonical, digits of one number below s².
    ///
    /// # Bound
    /// The low digit is below 2s, so it carries 1 at most. The high one of a lazy pair is below 2s.
    /// Of a [product by words](Split::mont_words) it is below 3s − 2: with `W = 2^(64·words)`, a
    /// shifted product over R is at most `(s − 1)²/W`, two of them at most 2s − 4 if `s > W/2` and
    /// s − 1 otherwise, and complement and quotient add less than s + 2. Two subtractions suffice.
    fn reduce<'a>(&self, pair: &'a mut [B::Word]) -> [Number<'a, Canonical, B>; 2] {
        let Montgomery { backend, modulus, .. } = &self.root;
        let (low, high) = pair.split_at_mut(modulus.len());
        let excess = backend.reduce_once(&modulus.m, low);
        backend.add_assign(high, &[excess]);
        backend.reduce_once(&modulus.m, high);
        backend.reduce_once(&modulus.m, high);
        [Number::new(low), Number::new(high)]
    }

    /// Returns digit `index` of items.
    fn digit<'a>(items: &Items<'a>, index: usize) -> Items<'a> {
        let each = items.each / 2;
        items.part(index * each..(index + 1) * each)
    }

    pub(in crate::cpu) fn load<'o>(
        &self,
        [low, high]: [&'o mut Numbers<Lazy, B>; 2],
        items: &Items<'_>,
        first: usize,
    ) -> [Number<'o, Canonical, B>; 2] {
        let load = |out, index| self.root.load(out, &Self::digit(items, index), first);
        [load(low, 0), load(high, 1)]
    }

    /// `a·b·2^(−64 · words)`, for the words of s.
    pub(in crate::cpu) fn mont_words<'o>(
        &self,
        out: &'o mut Numbers<Any, B>,
        (a, first): (&Items<'_>, usize),
        b: [Number<'_, Canonical, B>; 2],
        room: &mut Room<B>,
    ) -> [Number<'o, Canonical, B>; 2] {
        let Montgomery { backend, modulus, shift, .. } = &self.root;
        let shifted = &mut room.a[..2 * modulus.len()];
        for (index, half) in shifted.chunks_exact_mut(modulus.len()).enumerate() {
            backend.load(half, &Self::digit(a, index), first, *shift);
        }
        let b = b.map(Number::limbs);
        self.product(&mut room.acc, out.limbs_mut(), self.halves(shifted), b);
        self.reduce(out.limbs_mut())
    }

    pub(in crate::cpu) fn store(
        &self,
        mut out: Results<'_>,
        [low, high]: [Number<'_, Canonical, B>; 2],
    ) {
        let (half, each) = (out.each / 2, out.each);
        self.root.backend.store(&mut out, 0..half, low.limbs());
        self.root.backend.store(&mut out, half..each, high.limbs());
    }
}
