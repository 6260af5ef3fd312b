//! Numbers in limbs, with their form as their type.
//!
//! Only this module's parent and its files make a [`Number`] of limbs; all others get one from an
//! operation, which knows its form. Memory starts as zeros, which are a number of any form, and
//! takes numbers of its own form alone.

use std::marker::PhantomData;

use zeroize::Zeroizing;

use super::Backend;

/// Some limbs of `LANES` numbers, or several such: memory of no form.
pub(super) type Group<B> = Zeroizing<Vec<<B as Backend>::Word>>;

/// The form of a number below m. All that leaves for memory is, and all that comes from there.
pub(in crate::cpu) enum Canonical {}

/// The form of a number below 2m: what products take and give.
pub(in crate::cpu) enum Lazy {}

/// The form of a number that only fits its limbs: below R, for the R of as many limbs.
pub(in crate::cpu) enum Any {}

/// The form of chains of products: lazy and times R, modulo a square as two
/// [digits](super::split), which no operation on a single number may take.
pub(in crate::cpu) enum Chain {}

/// A group of `LANES` numbers of the form `F`.
pub(in crate::cpu) struct Number<'a, F, B: Backend> {
    limbs: &'a [B::Word],
    form: PhantomData<F>,
}

impl<F, B: Backend> Clone for Number<'_, F, B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<F, B: Backend> Copy for Number<'_, F, B> {}

impl<'a, F, B: Backend> Number<'a, F, B> {
    /// Takes limbs that have the form, which is the caller's duty.
    pub(super) fn new(limbs: &'a [B::Word]) -> Self {
        Self { limbs, form: PhantomData }
    }

    pub(super) fn limbs(self) -> &'a [B::Word] {
        self.limbs
    }
}

impl<'a, B: Backend> Number<'a, Canonical, B> {
    /// Forgets that it is below m: it is below 2m as well.
    pub(in crate::cpu) fn lazy(self) -> Number<'a, Lazy, B> {
        Number::new(self.limbs)
    }
}

impl<'a, B: Backend> Number<'a, Lazy, B> {
    /// Forgets that it is below 2m: it is below R as well.
    pub(in crate::cpu) fn any(self) -> Number<'a, Any, B> {
        Number::new(self.limbs)
    }
}

/// Memory for groups of numbers of the form `F`, one group after the other.
pub(in crate::cpu) struct Numbers<F, B: Backend> {
    limbs: Group<B>,
    /// Limbs of one number.
    len: usize,
    form: PhantomData<F>,
}

impl<F, B: Backend> Numbers<F, B> {
    /// Zeros.
    pub(in crate::cpu) fn new(backend: B, len: usize, count: usize) -> Self {
        let limbs = Zeroizing::new(vec![backend.zero(); len * count]);
        Self { limbs, len, form: PhantomData }
    }

    /// Returns the first number, or the only one.
    pub(in crate::cpu) fn view(&self) -> Number<'_, F, B> {
        self.at(0)
    }

    pub(in crate::cpu) fn at(&self, index: usize) -> Number<'_, F, B> {
        Number::new(&self.limbs[index * self.len..][..self.len])
    }

    pub(in crate::cpu) fn iter(&self) -> impl DoubleEndedIterator<Item = Number<'_, F, B>> {
        self.limbs.chunks_exact(self.len).map(Number::new)
    }

    pub(in crate::cpu) fn set(&mut self, index: usize, x: Number<'_, F, B>) {
        self.limbs_from(index, 1).copy_from_slice(x.limbs);
    }

    /// Returns the limbs of the first, to be overwritten by a number of the form.
    pub(super) fn limbs_mut(&mut self) -> &mut [B::Word] {
        self.limbs_from(0, 1)
    }

    /// Returns the limbs of `count` numbers, likewise.
    pub(super) fn limbs_from(&mut self, index: usize, count: usize) -> &mut [B::Word] {
        &mut self.limbs[index * self.len..][..count * self.len]
    }
}
