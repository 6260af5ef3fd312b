//! Arithmetic modulo one number, in two forms.
//!
//! **Plain** is Montgomery's: `x·R mod m`, one row of limbs as long as m; a product takes `4·L²`
//! multiplies for L limbs (two halves of a product of limbs, for the product and for the
//! reduction). A single product of ordinary numbers would take two of those, and is computed
//! [another way](barrett).
//!
//! **Split** is for a modulus that is a square, and is explained [there](split). What takes
//! many products (powers, tables, simultaneous powers) is computed so where it can be, and calls
//! whichever it is the form of [chains](chain).
//!
//! # Lazy numbers
//! `R = 2^(LIMB_BITS · limbs)` is at least 64 m ([`SLACK_BITS`]). Numbers are *lazy*: below 2m, not
//! below m. With inputs below 2m, `T = a·b` gives `(T + Q·m) / R < 4m²/R + m ≤ (1 + 1/16) m`. Two
//! products and a complement, at most 2R + m and only ever modulo the root of a square, leave less
//! than `8m²/R + 2 + m/R + m ≤ (1 + 1/8) m + 3`. Both are below 2m again, so that no product of a
//! chain needs a comparison. Only [`Montgomery::reduce`], on the way out, makes a number canonical.
//!
//! A number's [type](number) is its form, and the operations here take and give no other.
//! No file beyond these calls a kernel with the limbs of a number.

mod barrett;
mod chain;
mod number;
mod product_sum;
mod split;
mod table;

use zeroize::Zeroizing;

use super::backend::{Backend, FactorPair, Items, Limbs, Results, SLACK_BITS};
use crate::modulus::{Modulus, divide_power_of_two, inverse_mod_word, power_of_two_mod};
use barrett::Barrett;
pub(super) use chain::Running;
use number::Group;
pub(super) use number::{Any, Canonical, Chain, Lazy, Number, Numbers};
use product_sum::ProductSum;
use split::SquareModulus;
pub(super) use table::{LaneTable, SharedTable, SharedTables};

/// A modulus and its constants, in the limbs of a backend.
pub(super) struct Montgomery<B: Backend> {
    backend: B,
    /// Bits of R beyond `2^(64 · words)`.
    shift: u32,
    modulus: Limbs,
    /// m, in every lane.
    lanes: Group<B>,
    /// `R mod m`.
    r: Numbers<Canonical, B>,
    /// `R² mod m`.
    r_squared: Numbers<Canonical, B>,
    /// `2^(64 · words) · R mod m`.
    piece: Numbers<Canonical, B>,
    split: Option<Box<SquareModulus<B>>>,
    barrett: Barrett<B>,
}

/// Memory for the intermediates of one operation.
pub(super) struct Room<B: Backend> {
    acc: ProductSum<B>,
    a: Group<B>,
    b: Group<B>,
}

/// `words` in limbs of `bits` bits.
fn split_limbs(words: &[u64], bits: u32, count: usize) -> Vec<u64> {
    let limb = |i: usize| {
        let (word, bit) = (i * bits as usize / 64, i * bits as usize % 64);
        let get = |i: usize| u128::from(words.get(i).copied().unwrap_or(0));
        let both = get(word) | get(word + 1) << 64;
        (both >> bit) as u64 & (u64::MAX >> (64 - bits))
    };
    (0..count).map(limb).collect()
}

/// `x + 2^exponent`, for `x` below that.
fn add_power(x: &[u64], exponent: u32) -> Zeroizing<Vec<u64>> {
    let (word, bit) = ((exponent / 64) as usize, exponent % 64);
    let mut sum = Zeroizing::new(vec![0; x.len().max(word + 1)]);
    sum[..x.len()].copy_from_slice(x);
    sum[word] += 1 << bit;
    sum
}

/// `m − x` for `x ≤ m`. Constant time.
pub(super) fn subtract(m: &[u64], x: &[u64]) -> Vec<u64> {
    let mut borrow = 0;
    let step = |(&m, &x): (&u64, &u64)| {
        let difference = u128::from(m).wrapping_sub(u128::from(x) + borrow);
        borrow = difference >> 127;
        difference as u64
    };
    m.iter().zip(x).map(step).collect()
}

/// Returns a modulus in the limbs of a backend: enough of them for any number of as many words.
fn limbs_of<B: Backend>(m: &Modulus) -> Limbs {
    let bits = (m.bits() + SLACK_BITS).max(64 * m.len_words() as u32);
    let count = bits.div_ceil(B::LIMB_BITS) as usize;
    let radix = B::LIMB_BITS * count as u32;
    // 2R + (m − 2R mod m), a multiple of m.
    let excess = Zeroizing::new(power_of_two_mod(radix + 1, m.words()));
    let multiple = add_power(&Zeroizing::new(subtract(m.words(), &excess)), radix + 1);
    let multiple = Zeroizing::new(split_limbs(&multiple, B::LIMB_BITS, count + 1));
    let m = split_limbs(m.words(), B::LIMB_BITS, count);
    Limbs {
        neg_inverse: neg_inverse(&m, B::LIMB_BITS, B::ROWS.min(count)),
        m,
        bias: B::bias(&multiple),
    }
}

/// `-m⁻¹` modulo some limbs, in limbs: each is what makes one more limb of `1 + m·(those so far)` vanish.
fn neg_inverse(m: &[u64], bits: u32, count: usize) -> Vec<u64> {
    let mask = u64::MAX >> (64 - bits);
    let inverse = inverse_mod_word(m[0]).wrapping_neg();
    let (mut digits, mut rest) = (Vec::with_capacity(count), Zeroizing::new(vec![0; count]));
    rest[0] = 1;
    for at in 0..count {
        let (digit, mut carry) = (inverse.wrapping_mul(rest[at]) & mask, 0);
        for (rest, &limb) in rest[at..].iter_mut().zip(m) {
            let sum = u128::from(limb) * u128::from(digit) + u128::from(*rest) + carry;
            (*rest, carry) = (sum as u64 & mask, sum >> bits);
        }
        digits.push(digit);
    }
    digits
}

/// Returns some limbs, the same in every lane.
fn in_lanes<B: Backend>(backend: B, limbs: &[u64]) -> Group<B> {
    Zeroizing::new(limbs.iter().map(|&limb| backend.lanes_of(|_| limb)).collect())
}

/// Returns a number below m, in words, as `len` limbs, the same in every lane.
fn constant<B: Backend>(backend: B, words: &[u64], len: usize) -> Numbers<Canonical, B> {
    let limbs = Zeroizing::new(split_limbs(words, B::LIMB_BITS, len));
    let mut number = Numbers::new(backend, len, 1);
    number.limbs_mut().copy_from_slice(&in_lanes(backend, &limbs));
    number
}

/// `2^exponent mod m`, likewise.
fn power_of_two<B: Backend>(
    backend: B,
    exponent: u32,
    m: &Modulus,
    len: usize,
) -> Numbers<Canonical, B> {
    let words = Zeroizing::new(power_of_two_mod(exponent, m.words()));
    constant(backend, &words, len)
}

impl<B: Backend> Montgomery<B> {
    pub(super) fn new(backend: B, m: &Modulus) -> Self {
        let modulus = limbs_of::<B>(m);
        let radix = B::LIMB_BITS * modulus.len() as u32;
        let memory = 64 * m.len_words() as u32;
        let power = |exponent| power_of_two(backend, exponent, m, modulus.len());
        let (r, piece) = (power(radix), power(memory + radix));
        let (quotient, remainder) = divide_power_of_two(2 * radix, m.words());
        let r_squared = constant(backend, &remainder, modulus.len());
        let barrett = Barrett::new(backend, m, radix, &quotient);
        let lanes = in_lanes(backend, &modulus.m);
        let split = m.root().map(|root| Box::new(SquareModulus::new(backend, m, root)));
        let shift = radix - memory;
        Self { backend, shift, modulus, lanes, r, r_squared, piece, split, barrett }
    }

    /// Makes room for any operation modulo this number.
    pub(super) fn room(&self) -> Room<B> {
        let limbs = self.len().max(self.chain_len());
        let group = || Zeroizing::new(vec![self.backend.zero(); limbs]);
        Room { acc: ProductSum::new(self.backend, limbs), a: group(), b: group() }
    }

    pub(super) fn backend(&self) -> B {
        self.backend
    }

    /// Returns the limbs of one number in plain form.
    pub(super) fn len(&self) -> usize {
        self.modulus.len()
    }

    /// Makes memory for one number.
    pub(super) fn number<F>(&self) -> Numbers<F, B> {
        Numbers::new(self.backend, self.len(), 1)
    }

    /// Makes memory for a number below the product of this modulus and another.
    pub(super) fn wide(&self, other: &Self) -> Numbers<Any, B> {
        Numbers::new(self.backend, self.len() + other.len(), 1)
    }

    pub(super) fn r(&self) -> Number<'_, Canonical, B> {
        self.r.view()
    }

    pub(super) fn r_squared(&self) -> Number<'_, Canonical, B> {
        self.r_squared.view()
    }

    pub(super) fn piece(&self) -> Number<'_, Canonical, B> {
        self.piece.view()
    }

    /// Returns the arithmetic of pairs.
    pub(super) fn split(&self) -> &SquareModulus<B> {
        match &self.split {
            Some(split) => split,
            None => unreachable!("pairs are for squares"),
        }
    }

    /// Loads residues, which are canonical in memory.
    pub(super) fn load<'o>(
        &self,
        out: &'o mut Numbers<Lazy, B>,
        items: &Items<'_>,
        first: usize,
    ) -> Number<'o, Canonical, B> {
        self.backend.load(out.limbs_mut(), items, first, 0);
        Number::new(out.view().limbs())
    }

    /// Loads numbers of at most the words of m, which may be more than m.
    pub(super) fn load_any(&self, out: &mut Numbers<Any, B>, items: &Items<'_>, first: usize) {
        self.backend.load(out.limbs_mut(), items, first, 0);
    }

    pub(super) fn reduce<'x>(&self, x: &'x mut Numbers<Lazy, B>) -> Number<'x, Canonical, B> {
        self.backend.reduce_once(&self.modulus.m, x.limbs_mut());
        Number::new(x.view().limbs())
    }

    pub(super) fn store(&self, mut out: Results<'_>, x: Number<'_, Canonical, B>) {
        let each = out.each;
        self.backend.store(&mut out, 0..each, x.limbs());
    }

    fn products<const P: usize>(
        &self,
        acc: &mut ProductSum<B>,
        out: &mut [B::Word],
        products: [FactorPair<'_, B::Word>; P],
    ) {
        acc.start(self.backend, &self.modulus).mul_redc(out, products);
    }

    /// `out = a·b·R⁻¹`.
    pub(super) fn mont(
        &self,
        out: &mut Numbers<Lazy, B>,
        a: Number<'_, Lazy, B>,
        b: Number<'_, Lazy, B>,
        room: &mut Room<B>,
    ) {
        self.products(&mut room.acc, out.limbs_mut(), [(a.limbs(), b.limbs())]);
    }

    /// `out = a·b·2^(−64 · words)`.
    ///
    /// # Bound
    /// Of a the product takes `a · R · 2^(−64 · words)`, which is below R but not lazy. The result
    /// is below m, since a and b are, and with the `Q·m / R` of the reduction below 2m.
    pub(super) fn mont_words(
        &self,
        out: &mut Numbers<Lazy, B>,
        (a, first): (&Items<'_>, usize),
        b: Number<'_, Canonical, B>,
        room: &mut Room<B>,
    ) {
        let shifted = &mut room.a[..self.len()];
        self.backend.load(shifted, a, first, self.shift);
        self.products(&mut room.acc, out.limbs_mut(), [(shifted, b.limbs())]);
    }

    /// `out = (a·b + c·d)·R⁻¹`.
    ///
    /// # Bound
    /// Each product over R is below m, and with the `Q·m / R` of the reduction all is below 3m,
    /// which one subtraction makes lazy.
    pub(super) fn mont_two(
        &self,
        out: &mut Numbers<Lazy, B>,
        products: [(Number<'_, Any, B>, Number<'_, Canonical, B>); 2],
        room: &mut Room<B>,
    ) {
        let products = products.map(|(any, factor)| (any.limbs(), factor.limbs()));
        self.products(&mut room.acc, out.limbs_mut(), products);
        self.backend.reduce_once(&self.modulus.m, out.limbs_mut());
    }

    /// `low + high·m`: the number with these digits, canonical modulo the product of m and what
    /// `high` is canonical modulo.
    pub(super) fn join<'o>(
        &self,
        out: &'o mut Numbers<Any, B>,
        [low, high]: [Number<'_, Canonical, B>; 2],
    ) -> Number<'o, Canonical, B> {
        self.join_limbs(out.limbs_mut(), [low, high])
    }

    fn join_limbs<'o>(
        &self,
        out: &'o mut [B::Word],
        [low, high]: [Number<'_, Canonical, B>; 2],
    ) -> Number<'o, Canonical, B> {
        out.fill(self.backend.zero());
        self.backend.add_product(out, high.limbs(), &self.lanes);
        self.backend.add_assign(out, low.limbs());
        Number::new(out)
    }

    /// `(x − rest) / m`, for numbers below m² that leave `rest`: canonical modulo m.
    ///
    /// The Montgomery quotient of `rest − x` is `(x − rest)·m⁻¹ mod R`, which is the answer since
    /// that is below R; and only the limbs of x below R have a part in it.
    pub(super) fn divide<'o>(
        &self,
        out: &'o mut Numbers<Lazy, B>,
        (x, first): (&Items<'_>, usize),
        rest: Number<'_, Canonical, B>,
        room: &mut Room<B>,
    ) -> Number<'o, Canonical, B> {
        let limbs = out.limbs_mut();
        self.backend.load(limbs, x, first, 0);
        self.backend.negate(limbs);
        self.backend.add_assign(limbs, rest.limbs());
        let sum = room.acc.holding(self.backend, &self.modulus, limbs);
        limbs.copy_from_slice(sum.redc(&mut room.a[..self.modulus.len()]).limbs());
        Number::new(limbs)
    }
}
