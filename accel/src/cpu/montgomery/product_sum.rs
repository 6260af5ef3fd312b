//! Sums of products, whose limbs are redundant: words that carry into each other only at the end.
//!
//! One memory serves a whole product and says what it holds by its type. It [starts](Start) as a
//! short number that products are added to, or is a [whole sum](Sum) already; reduction leaves a
//! [quotient](Quotient) there, whose complement is a start again.

use zeroize::Zeroizing;

use super::{Backend, FactorPair, Group, Items, Limbs};

/// Memory for sums of products modulo numbers of a number of limbs, or fewer.
pub(super) struct ProductSum<B: Backend>(Group<B>);

/// The words of a product sum, and what they are to be reduced by.
struct Unreduced<'a, B: Backend> {
    backend: B,
    m: &'a Limbs,
    words: &'a mut [B::Word],
}

/// A number of one limb more than m; what is above may be stale.
pub(super) struct Start<'a, B: Backend>(Unreduced<'a, B>);

/// A number of twice the limbs of m.
pub(super) struct WideSum<'a, B: Backend>(Unreduced<'a, B>);

/// A Montgomery quotient, below R; what is above is stale.
pub(super) struct MontgomeryQuotient<'a, B: Backend>(Unreduced<'a, B>);

impl<B: Backend> ProductSum<B> {
    pub(super) fn new(backend: B, limbs: usize) -> Self {
        Self(Zeroizing::new(vec![backend.zero(); 2 * limbs + 2]))
    }

    fn words<'a>(&'a mut self, backend: B, m: &'a Limbs) -> Unreduced<'a, B> {
        Unreduced { backend, m, words: &mut self.0 }
    }

    /// Starts at zero, for products.
    pub(super) fn start<'a>(&'a mut self, backend: B, m: &'a Limbs) -> Start<'a, B> {
        self.0[..=m.len()].fill(backend.zero());
        Start(self.words(backend, m))
    }

    /// Returns a number of at most twice as many limbs as m.
    pub(super) fn holding<'a>(
        &'a mut self,
        backend: B,
        m: &'a Limbs,
        x: &[B::Word],
    ) -> WideSum<'a, B> {
        self.0.fill(backend.zero());
        self.0[..x.len()].copy_from_slice(x);
        WideSum(self.words(backend, m))
    }

    /// Returns the items of at most twice as many limbs as m.
    pub(super) fn load<'a>(
        &'a mut self,
        backend: B,
        m: &'a Limbs,
        items: &Items<'_>,
        first: usize,
    ) -> WideSum<'a, B> {
        self.0.fill(backend.zero());
        backend.load(&mut self.0[..2 * m.len()], items, first, 0);
        WideSum(self.words(backend, m))
    }

    /// `a²`, for `a` of as many limbs as m.
    pub(super) fn square<'a>(
        &'a mut self,
        backend: B,
        m: &'a Limbs,
        a: &[B::Word],
    ) -> WideSum<'a, B> {
        backend.square(&mut self.0, a);
        WideSum(self.words(backend, m))
    }
}

impl<'a, B: Backend> Start<'a, B> {
    /// `out = (T + Q·m) / R` for `T = self + Σ a·b`.
    pub(super) fn mul_redc<const P: usize>(
        self,
        out: &mut [B::Word],
        products: [FactorPair<'_, B::Word>; P],
    ) -> MontgomeryQuotient<'a, B> {
        // Without products the words above would count.
        const { assert!(P > 0) };
        let Unreduced { backend, m, words } = self.0;
        backend.mul_redc(m, out, words, products);
        MontgomeryQuotient(Unreduced { backend, m, words })
    }

    /// Takes the number as a whole, with zeros above.
    pub(super) fn whole(self) -> WideSum<'a, B> {
        let Unreduced { backend, m, words } = self.0;
        words[m.len() + 1..].fill(backend.zero());
        WideSum(Unreduced { backend, m, words })
    }

    /// Returns the sum with a number of at most as many limbs as m.
    pub(super) fn plus(self, x: &[B::Word]) -> WideSum<'a, B> {
        let WideSum(Unreduced { backend, m, words }) = self.whole();
        backend.add_assign(&mut words[..m.len() + 2], x);
        WideSum(Unreduced { backend, m, words })
    }
}

impl<'a, B: Backend> WideSum<'a, B> {
    /// `out = (T + Q·m) / R`.
    pub(super) fn redc(self, out: &mut [B::Word]) -> MontgomeryQuotient<'a, B> {
        let Unreduced { backend, m, words } = self.0;
        backend.mul_redc(m, out, words, []);
        MontgomeryQuotient(Unreduced { backend, m, words })
    }
}

impl<'a, B: Backend> MontgomeryQuotient<'a, B> {
    /// Returns a number that is `−Q mod m`, at most 2R + m.
    pub(super) fn complement(self) -> Start<'a, B> {
        let Unreduced { backend, m, words } = self.0;
        backend.complement(words, m);
        Start(Unreduced { backend, m, words })
    }

    pub(super) fn limbs(self) -> &'a [B::Word] {
        let Unreduced { m, words, .. } = self.0;
        &words[..m.len()]
    }
}
