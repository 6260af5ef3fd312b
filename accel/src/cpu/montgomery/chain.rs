//! The form of chains: split if the modulus is a square, else plain. One interface to both.

use super::{Backend, Chain, Items, Montgomery, Number, Numbers, Results, Room};

impl<B: Backend> Montgomery<B> {
    /// Returns the limbs of one number in the form of chains.
    pub(in crate::cpu) fn chain_len(&self) -> usize {
        self.split.as_ref().map_or(self.len(), |split| 2 * split.root().len())
    }

    /// Counts the multiply instructions of one product of chains.
    pub(in crate::cpu) fn multiplies_of_product(&self) -> usize {
        match &self.split {
            Some(split) => 10 * split.root().len() * split.root().len(),
            None => 4 * self.len() * self.len(),
        }
    }

    /// Makes memory for numbers in the form of chains.
    pub(in crate::cpu) fn chains(&self, count: usize) -> Numbers<Chain, B> {
        Numbers::new(self.backend, self.chain_len(), count)
    }

    /// Sets each lane of a number to the same lane of another, or to zero.
    pub(in crate::cpu) fn gather<'x>(
        &self,
        out: &mut Numbers<Chain, B>,
        of: impl Fn(usize) -> Option<Number<'x, Chain, B>>,
    ) where
        B: 'x,
    {
        for (limb, word) in out.limbs_mut().iter_mut().enumerate() {
            let limb_of = |lane| of(lane).map_or(0, |x| B::lane(x.limbs()[limb], lane));
            *word = self.backend.lanes_of(limb_of);
        }
    }

    /// One.
    pub(in crate::cpu) fn one(&self) -> Number<'_, Chain, B> {
        match &self.split {
            Some(split) => split.one.view(),
            None => Number::new(self.r.view().limbs()),
        }
    }

    /// Loads residues from memory.
    pub(in crate::cpu) fn enter(
        &self,
        out: &mut Numbers<Chain, B>,
        items: &Items<'_>,
        first: usize,
        room: &mut Room<B>,
    ) {
        match &self.split {
            Some(split) => split.enter(out, items, first, room),
            None => {
                let x = &mut room.a[..self.len()];
                self.backend.load(x, items, first, 0);
                let r_squared = self.r_squared.view().limbs();
                self.products(&mut room.acc, out.limbs_mut(), [(x, r_squared)]);
            }
        }
    }

    /// Stores canonical words of residues, or of their digits.
    pub(in crate::cpu) fn leave(
        &self,
        out: Results<'_>,
        x: Number<'_, Chain, B>,
        room: &mut Room<B>,
    ) {
        match &self.split {
            Some(split) => split.leave(out, x, room),
            None => {
                let t = &mut room.a[..self.len()];
                room.acc.holding(self.backend, &self.modulus, x.limbs()).redc(t);
                // At most m.
                self.backend.reduce_once(&self.modulus.m, t);
                self.store(out, Number::new(t));
            }
        }
    }

    /// `out = a·b`.
    pub(in crate::cpu) fn mul(
        &self,
        out: &mut Numbers<Chain, B>,
        a: Number<'_, Chain, B>,
        b: Number<'_, Chain, B>,
        room: &mut Room<B>,
    ) {
        match &self.split {
            Some(split) => split.mul(out, a, b, room),
            None => {
                self.products(&mut room.acc, out.limbs_mut(), [(a.limbs(), b.limbs())]);
            }
        }
    }

    /// `out = a²`.
    fn square(&self, out: &mut Numbers<Chain, B>, a: Number<'_, Chain, B>, room: &mut Room<B>) {
        match &self.split {
            Some(split) => split.square(out, a, room),
            None => {
                let sum = room.acc.square(self.backend, &self.modulus, a.limbs());
                sum.redc(out.limbs_mut());
            }
        }
    }
}

/// A number that one product after the other replaces, and the memory for that.
pub(in crate::cpu) struct Running<'m, B: Backend> {
    m: &'m Montgomery<B>,
    value: Numbers<Chain, B>,
    next: Numbers<Chain, B>,
    room: Room<B>,
}

impl<'m, B: Backend> Running<'m, B> {
    pub(in crate::cpu) fn new(m: &'m Montgomery<B>) -> Self {
        Self { m, value: m.chains(1), next: m.chains(1), room: m.room() }
    }

    pub(in crate::cpu) fn modulus(&self) -> &'m Montgomery<B> {
        self.m
    }

    pub(in crate::cpu) fn view(&self) -> Number<'_, Chain, B> {
        self.value.view()
    }

    pub(in crate::cpu) fn set(&mut self, x: Number<'_, Chain, B>) {
        self.value.set(0, x);
    }

    pub(in crate::cpu) fn enter(&mut self, items: &Items<'_>, first: usize) {
        self.m.enter(&mut self.value, items, first, &mut self.room);
    }

    pub(in crate::cpu) fn leave(&mut self, out: Results<'_>) {
        self.m.leave(out, self.value.view(), &mut self.room);
    }

    pub(in crate::cpu) fn mul(&mut self, by: Number<'_, Chain, B>) {
        self.m.mul(&mut self.next, by, self.value.view(), &mut self.room);
        std::mem::swap(&mut self.value, &mut self.next);
    }

    /// Multiplies one of some numbers, which is neither read nor left here.
    pub(in crate::cpu) fn multiply(
        &mut self,
        numbers: &mut Numbers<Chain, B>,
        index: usize,
        by: Number<'_, Chain, B>,
    ) {
        self.m.mul(&mut self.next, by, numbers.at(index), &mut self.room);
        numbers.set(index, self.next.view());
    }

    pub(in crate::cpu) fn square(&mut self, times: usize) {
        for _ in 0..times {
            self.m.square(&mut self.next, self.value.view(), &mut self.room);
            std::mem::swap(&mut self.value, &mut self.next);
        }
    }
}
