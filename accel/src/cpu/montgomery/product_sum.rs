//! Sums of products, whose limbs are redundant: words that carry into each other only at the end.
//!
//! One memory serves a whole product and says what it holds by its type. It [starts](Start) as a
//! short number that products are added to, or is a [whole sum](Sum) already; reduction leaves a
//! [quotient](Quotient) there, whose complement is a start again.

use zeroize::Zeroizing;

use super::{Backend, Group, Items, Limbs, Product};

/// Memory for sums of products modulo numbers of a number of limbs, or fewer.
pub(super) struct ProductSum<B: Backend>(Group<B>);

/// The words of a product sum, and what they are to be reduced by.
struct Words<'a, B: Backend> {
    backend: B,
    m: &'a Limbs,
    words: &'a mut [B::Word],
}

/// A number of one limb more than m; what is above may be stale.
pub(super) struct Start<'a, B: Backend>(Words<'a, B>);

/// A number of twice the limbs of m.
pub(super) struct Sum<'a, B: Backend>(Words<'a, B>);

/// A Montgomery quotient, below R; what is above is stale.
pub(super) struct Quotient<'a, B: Backend>(Words<'a, B>);

impl<B: Backend> ProductSum<B> {
    pub(super) fn new(backend: B, limbs: usize) -> Self {
        Self(Zeroizing::new(vec![backend.zero(); 2 * limbs + 2]))
    }

    fn words<'a>(&'a mut self, backend: B, m: &'a Limbs) -> Words<'a, B> {
        Words { backend, m, words: &mut self.0 }
    }

    /// Starts at zero, for products.
    pub(super) fn start<'a>(&'a mut self, backend: B, m: &'a Limbs) -> Start<'a, B> {
        self.0[..=m.len()].fill(backend.zero());
        Start(self.words(backend, m))
    }

    /// Returns a number of at most twice as many limbs as m.
    pub(super) fn holding<'a>(&'a mut self, backend: B, m: &'a Limbs, x: &[B::Word]) -> Sum<'a, B> {
        self.0.fill(backend.zero());
        self.0[..x.len()].copy_from_slice(x);
        Sum(self.words(backend, m))
    }

    /// Returns the items of at most twice as many limbs as m.
    pub(super) fn load<'a>(
        &'a mut self,
        backend: B,
        m: &'a Limbs,
        items: &Items<'_>,
        first: usize,
    ) -> Sum<'a, B> {
        self.0.fill(backend.zero());
        backend.load(&mut self.0[..2 * m.len()], items, first, 0);
        Sum(self.words(backend, m))
    }

    /// `a²`, for `a` of as many limbs as m.
    pub(super) fn square<'a>(&'a mut self, backend: B, m: &'a Limbs, a: &[B::Word]) -> Sum<'a, B> {
        backend.square(&mut self.0, a);
        Sum(self.words(backend, m))
    }
}

impl<'a, B: Backend> Start<'a, B> {
    /// `out = (T + Q·m) / R` for `T = self + Σ a·b`.
    pub(super) fn mul_redc<const P: usize>(
        self,
        out: &mut [B::Word],
        products: [Product<'_, B::Word>; P],
    ) -> Quotient<'a, B> {
        // Without products the words above would count.
        const { assert!(P > 0) };
        let Words { backend, m, words } = self.0;
        backend.mul_redc(m, out, words, products);
        Quotient(Words { backend, m, words })
    }

    /// Takes the number as a whole, with zeros above.
    pub(super) fn whole(self) -> Sum<'a, B> {
        let Words { backend, m, words } = self.0;
        words[m.len() + 1..].fill(backend.zero());
        Sum(Words { backend, m, words })
    }

    /// Returns the sum with a number of at most as many limbs as m.
    pub(super) fn plus(self, x: &[B::Word]) -> Sum<'a, B> {
        let Sum(Words { backend, m, words }) = self.whole();
        backend.add_assign(&mut words[..m.len() + 2], x);
        Sum(Words { backend, m, words })
    }
}

impl<'a, B: Backend> Sum<'a, B> {
    /// `out = (T + Q·m) / R`.
    pub(super) fn redc(self, out: &mut [B::Word]) -> Quotient<'a, B> {
        let Words { backend, m, words } = self.0;
        backend.mul_redc(m, out, words, []);
        Quotient(Words { backend, m, words })
    }
}

impl<'a, B: Backend> Quotient<'a, B> {
    /// Returns a number that is `−Q mod m`, at most 2R + m.
    pub(super) fn complement(self) -> Start<'a, B> {
        let Words { backend, m, words } = self.0;
        backend.complement(words, m);
        Start(Words { backend, m, words })
    }

    pub(super) fn limbs(self) -> &'a [B::Word] {
        let Words { m, words, .. } = self.0;
        &words[..m.len()]
    }
}
