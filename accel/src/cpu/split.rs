//! Arithmetic modulo a square, as all large moduli of Paillier are.
//!
//! With `m = s²` of L limbs and s of `h = L/2`, a number is a pair `x₀ + x₁·s`, not unique while both
//! halves are lazy. Montgomery reduction of `a₀·b₀` modulo s leaves a quotient that is worth keeping: from `a₀·b₀ + Q·s = R·t`,
//!
//! ```text
//! (a₀ + a₁s)(b₀ + b₁s) ≡ R·t + (a₀b₁ + a₁b₀ − Q)·s   (mod s²)
//! ```
//!
//! so after division by R the pair of the product is `t` and the Montgomery reduction of
//! `a₀b₁ + a₁b₀ − Q` modulo s. That is five half-size pieces of `2·h²` multiplies each, `2.5·L²` in
//! all, and for a square, where `a₀²` costs half and `2·a₀a₁` is one product, `1.75·L²` in place of
//! `3·L²`.

use zeroize::Zeroizing;

use super::{
    backend::{Backend, Items, Limbs},
    field::{Group, Room, broadcast, limbs_of, split_limbs},
};
use crate::modulus::{Modulus, power_of_two_mod};

/// The constants of a square.
pub(super) struct Split<B: Backend> {
    pub(super) root: Limbs,
    /// The pair of `R³`, for the R of the root.
    pub(super) r_cubed: Group<B>,
    /// The pair of `R`.
    pub(super) one: Group<B>,
}

impl<B: Backend> Split<B> {
    pub(super) fn new(backend: B, m: &Modulus, root: &Modulus) -> Self {
        let root = limbs_of::<B>(root);
        let h = root.len();
        let zeros = || Zeroizing::new(vec![backend.zero(); 2 * h]);
        let mut split = Self { root, r_cubed: zeros(), one: zeros() };
        let radix = B::LIMB_BITS * h as u32;
        let mut room =
            Room { acc: Zeroizing::new(vec![backend.zero(); 4 * h + 2]), a: zeros(), b: zeros() };
        // Halving divides by R.
        for (exponent, target) in [(4 * radix, 0), (2 * radix, 1)] {
            let words = Zeroizing::new(power_of_two_mod(exponent, m.words()));
            let limbs = Zeroizing::new(split_limbs(&words, B::LIMB_BITS, 2 * h));
            room.acc.fill(backend.zero());
            room.acc[..2 * h].copy_from_slice(&broadcast(backend, &limbs));
            let mut pair = zeros();
            split.halve(backend, &mut pair, &mut room);
            *[&mut split.r_cubed, &mut split.one][target] = pair;
        }
        split
    }

    /// The pair of `x·R⁻¹` for the x in the accumulator, which is zero above it: `x + Q·s = R·t`, so
    /// `x·R⁻¹ ≡ t − Q·R⁻¹·s`.
    pub(super) fn halve(&self, backend: B, out: &mut [B::Word], room: &mut Room<B>) {
        let h = self.root.len();
        let (low, high) = out[..2 * h].split_at_mut(h);
        backend.mul_redc(&self.root, low, &mut room.acc, []);
        backend.complement(&mut room.acc, &self.root);
        room.acc[h + 1..].fill(backend.zero());
        backend.mul_redc(&self.root, high, &mut room.acc, []);
    }

    pub(super) fn mul(
        &self,
        backend: B,
        out: &mut [B::Word],
        a: &[B::Word],
        b: &[B::Word],
        room: &mut Room<B>,
    ) {
        let h = self.root.len();
        let ((a0, a1), (b0, b1)) = (a.split_at(h), b.split_at(h));
        let (low, high) = out.split_at_mut(h);
        room.acc[..=h].fill(backend.zero());
        backend.mul_redc(&self.root, low, &mut room.acc, [(a0, b0)]);
        backend.complement(&mut room.acc, &self.root);
        backend.mul_redc(&self.root, high, &mut room.acc, [(a0, b1), (a1, b0)]);
    }

    pub(super) fn square(
        &self,
        backend: B,
        out: &mut [B::Word],
        a: &[B::Word],
        room: &mut Room<B>,
    ) {
        let h = self.root.len();
        let (a0, a1) = a.split_at(h);
        let (low, high) = out.split_at_mut(h);
        backend.square(&mut room.acc, a0);
        backend.mul_redc(&self.root, low, &mut room.acc, []);
        backend.complement(&mut room.acc, &self.root);
        let twice = &mut room.b[..h];
        backend.double(twice, a1);
        backend.mul_redc(&self.root, high, &mut room.acc, [(a0, twice)]);
    }

    /// The canonical digits of a pair in Montgomery form.
    ///
    /// Before they are reduced the low half is at most s, the high one at most s + 2: the complement is
    /// at most 2R + s, a lazy x₁ below 2s.
    pub(super) fn leave(&self, backend: B, out: &mut [B::Word], x: &[B::Word], room: &mut Room<B>) {
        let h = self.root.len();
        let (x0, x1) = x.split_at(h);
        let (low, high) = out.split_at_mut(h);
        room.acc.fill(backend.zero());
        room.acc[..h].copy_from_slice(x0);
        backend.mul_redc(&self.root, low, &mut room.acc, []);
        backend.complement(&mut room.acc, &self.root);
        room.acc[h + 1..].fill(backend.zero());
        backend.add_assign(&mut room.acc[..h + 2], x1);
        backend.mul_redc(&self.root, high, &mut room.acc, []);
        self.reduce(backend, out);
    }

    /// The number with these canonical digits.
    pub(super) fn join(&self, backend: B, out: &mut [B::Word], pair: &[B::Word]) {
        let (low, high) = pair.split_at(self.root.len());
        backend.mul_wide(out, high, &self.root.m);
        backend.add_assign(out, low);
    }

    /// Makes both halves of a lazy pair canonical, digits of one number below s².
    ///
    /// # Bound
    /// The low digit is below 2s, so it carries 1 at most. The high one of a lazy pair is below 2s.
    /// Of a product with a shifted pair it is below 3s − 2: with `W = 2^(64·words)`, a shifted product
    /// over R is at most `(s − 1)²/W`, two of them at most 2s − 4 if `s > W/2` and s − 1 otherwise,
    /// and complement and quotient add less than s + 2. Two subtractions suffice.
    pub(super) fn reduce(&self, backend: B, pair: &mut [B::Word]) {
        let (low, high) = pair.split_at_mut(self.root.len());
        let excess = backend.reduce_once(&self.root.m, low);
        backend.add_assign(high, &[excess]);
        backend.reduce_once(&self.root.m, high);
        backend.reduce_once(&self.root.m, high);
    }

    /// Pairs from memory, times `R · 2^(−64 · words)` if `shifted`, which a product takes away.
    pub(super) fn load(
        &self,
        backend: B,
        out: &mut [B::Word],
        items: &Items<'_>,
        first: usize,
        shifted: bool,
    ) {
        let each = items.each / 2;
        let excess = B::LIMB_BITS * self.root.len() as u32 - 64 * each as u32;
        for (digit, out) in out.chunks_exact_mut(self.root.len()).enumerate() {
            let words = items.words.get(digit * each..).unwrap_or(&[]);
            let digits = Items { words, each, ..*items };
            backend.load(out, &digits, first, if shifted { excess } else { 0 });
        }
    }

    /// Canonical pairs to memory, `each` words.
    pub(super) fn store(&self, backend: B, out: &mut [u64], each: usize, pair: &[B::Word]) {
        let (low, high) = pair.split_at(self.root.len());
        backend.store(out, each, 0..each / 2, low);
        backend.store(out, each, each / 2..each, high);
    }
}
