//! Arithmetic that only counts: how many multiply instructions a program issues. Those by zeros that fill up rows are
//! not counted.

use std::{
    marker::PhantomData,
    ops::Range,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use super::backend::{Backend, FactorPair, Items, Limbs, Line, Results};

/// A backend of the same shape as `B` whose numbers are empty.
pub(super) struct Tally<'c, B> {
    count: &'c AtomicU64,
    shape: PhantomData<B>,
}

impl<'c, B> Tally<'c, B> {
    pub(super) fn new(count: &'c AtomicU64) -> Self {
        Self { count, shape: PhantomData }
    }
}

impl<B> Clone for Tally<'_, B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B> Copy for Tally<'_, B> {}

impl<B: Backend> Tally<'_, B> {
    fn add(self, products: usize, others: usize) {
        self.count.fetch_add(B::MULTIPLIES * products as u64 + others as u64, Relaxed);
    }
}

impl<B: Backend> Backend for Tally<'_, B> {
    type Word = ();
    type Digits = ();

    const LANES: usize = B::LANES;
    const LIMB_BITS: u32 = B::LIMB_BITS;
    const MULTIPLIES: u64 = B::MULTIPLIES;
    const ROWS: usize = B::ROWS;
    const KARATSUBA: usize = B::KARATSUBA;
    const PICK: f64 = B::PICK;

    fn zero(self) {}

    fn bias(multiple: &[u64]) -> Vec<u64> {
        multiple.to_vec()
    }

    fn mul_redc<const P: usize>(
        self,
        m: &Limbs,
        _out: &mut [()],
        _acc: &mut [()],
        _products: [FactorPair<'_, ()>; P],
    ) {
        // A row of each product and one of the quotient, and the quotient digits.
        self.add((P + 1) * m.len() * m.len(), m.len());
    }

    fn square(self, _acc: &mut [()], a: &[()]) {
        self.add(a.len() * (a.len() + 1) / 2, 0);
    }

    fn add_product(self, _acc: &mut [()], a: &[()], b: &[()]) {
        self.add(a.len() * b.len(), 0);
    }

    fn normalise(self, _acc: &mut [()]) {}

    fn double(self, _out: &mut [()], _a: &[()]) {}

    fn complement(self, _acc: &mut [()], _m: &Limbs) {}

    fn add_assign(self, _a: &mut [()], _b: &[()]) {}

    fn sub_assign(self, _a: &mut [()], _b: &[()]) {}

    fn reduce_once(self, _m: &[u64], _x: &mut [()]) {}

    fn negate(self, _x: &mut [()]) {}

    fn pick_own(self, _out: &mut [()], _table: &[()], _digits: &()) {}

    fn pick_shared(self, _out: &mut [()], _table: &[Line], _digits: &[()]) {}

    fn load(self, _out: &mut [()], _items: &Items<'_>, _first: usize, _shift: u32) {}

    fn store(self, _out: &mut Results<'_>, _part: Range<usize>, _x: &[()]) {}

    fn load_words(self, _out: &mut [()], _items: &Items<'_>, _first: usize) {}

    fn digits(self, _words: &[()], _at: usize, _bits: usize, _width: usize) {}

    fn burst(self) -> u64 {
        0
    }

    fn lane(_word: (), _lane: usize) -> u64 {
        0
    }

    fn lanes_of(self, _limbs: impl Fn(usize) -> u64) {}
}
