//! Arithmetic modulo one number, in two forms.
//!
//! **Plain** is Montgomery's: `x·R mod m`, one row of limbs as long as m; a product takes `4·L²`
//! multiplies for L limbs (two halves of a product of limbs, for the product and for the reduction).
//!
//! **Split** is for a modulus that is a square, and is explained [there](super::split). What takes
//! many products (powers, tables, simultaneous powers) is computed so where it can be.

use zeroize::Zeroizing;

use super::{
    backend::{Backend, Items, Limbs, Product, SLACK_BITS},
    split::Split,
};
use crate::modulus::{Modulus, inverse_mod_word, power_of_two_mod};

/// Some limbs of `LANES` numbers, or several such.
pub(super) type Group<B> = Zeroizing<Vec<<B as Backend>::Word>>;

/// A modulus and its constants.
pub(super) struct Field<B: Backend> {
    backend: B,
    /// Words of a residue in memory.
    words: usize,
    /// What R has beyond `2^(64 · words)`, in bits.
    shift: u32,
    plain: Limbs,
    /// `R mod m`.
    r: Group<B>,
    /// `R² mod m`.
    r_squared: Group<B>,
    /// `2^(64 · words) · R mod m`.
    piece: Group<B>,
    split: Option<Split<B>>,
}

/// Memory for the intermediates of a product.
pub(super) struct Room<B: Backend> {
    pub(super) acc: Group<B>,
    pub(super) a: Group<B>,
    pub(super) b: Group<B>,
}

/// `words` in limbs of `bits` bits.
pub(super) fn split_limbs(words: &[u64], bits: u32, count: usize) -> Vec<u64> {
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

/// A modulus in the limbs of a backend: enough of them for any number of as many words.
pub(super) fn limbs_of<B: Backend>(m: &Modulus) -> Limbs {
    let bits = (m.bits() + SLACK_BITS).max(64 * m.len_words() as u32);
    let count = bits.div_ceil(B::LIMB_BITS) as usize;
    let radix = B::LIMB_BITS * count as u32;
    // 2R + (m − 2R mod m), a multiple of m.
    let excess = Zeroizing::new(power_of_two_mod(radix + 1, m.words()));
    let multiple = add_power(&Zeroizing::new(subtract(m.words(), &excess)), radix + 1);
    let multiple = Zeroizing::new(split_limbs(&multiple, B::LIMB_BITS, count + 1));
    Limbs {
        m: split_limbs(m.words(), B::LIMB_BITS, count),
        neg_inverse: inverse_mod_word(m.words()[0]).wrapping_neg()
            & (u64::MAX >> (64 - B::LIMB_BITS)),
        bias: B::bias(&multiple),
    }
}

impl<B: Backend> Field<B> {
    pub(super) fn new(backend: B, m: &Modulus) -> Self {
        let plain = limbs_of::<B>(m);
        let radix = B::LIMB_BITS * plain.len() as u32;
        let memory = 64 * m.len_words() as u32;
        let power = |exponent: u32| {
            let words = Zeroizing::new(power_of_two_mod(exponent, m.words()));
            let limbs = Zeroizing::new(split_limbs(&words, B::LIMB_BITS, plain.len()));
            broadcast(backend, &limbs)
        };
        let (r, r_squared, piece) = (power(radix), power(2 * radix), power(memory + radix));
        let split = m.root().map(|root| Split::new(backend, m, root));
        Self {
            backend,
            words: m.len_words(),
            shift: radix - memory,
            plain,
            r,
            r_squared,
            piece,
            split,
        }
    }

    /// Room for products of this field.
    pub(super) fn room(&self) -> Room<B> {
        let halves = self.split.as_ref().map_or(0, |s| 2 * s.root.len());
        let limbs = self.plain.len().max(halves);
        let group = |count| Zeroizing::new(vec![self.backend.zero(); count]);
        Room { acc: group(2 * limbs + 2), a: group(limbs), b: group(limbs) }
    }

    /// Words of one number in plain form.
    pub(super) fn len(&self) -> usize {
        self.plain.len()
    }

    /// Words of one number in the form of chains.
    pub(super) fn chain_len(&self) -> usize {
        self.split.as_ref().map_or(self.plain.len(), |s| 2 * s.root.len())
    }

    /// Multiply instructions of one product of chains.
    pub(super) fn multiplies_of_product(&self) -> usize {
        match &self.split {
            Some(split) => 10 * split.root.len() * split.root.len(),
            None => 4 * self.len() * self.len(),
        }
    }

    /// The modulus, limb by limb.
    pub(super) fn limbs(&self) -> &[u64] {
        &self.plain.m
    }

    pub(super) fn r(&self) -> &[B::Word] {
        &self.r
    }

    pub(super) fn r_squared(&self) -> &[B::Word] {
        &self.r_squared
    }

    pub(super) fn piece(&self) -> &[B::Word] {
        &self.piece
    }

    // Plain form.

    /// Numbers of up to as many words as m, in limbs.
    pub(super) fn load(&self, out: &mut [B::Word], items: &Items<'_>, first: usize) {
        self.backend.load(out, items, first, 0);
    }

    /// The same times `R · 2^(−64 · words)`, so that a product with it divides by `2^(64 · words)`. Not
    /// lazy: the product is below 2m because `x · y / 2^(64 · words) < m`.
    pub(super) fn load_shifted(&self, out: &mut [B::Word], items: &Items<'_>, first: usize) {
        self.backend.load(out, items, first, self.shift);
    }

    /// Canonical words of a lazy number.
    pub(super) fn store(&self, out: &mut [u64], x: &mut [B::Word]) {
        self.backend.reduce_once(&self.plain.m, x);
        self.backend.store(out, self.words, 0..self.words, x);
    }

    /// `out = a·b·R⁻¹`, lazily.
    pub(super) fn mont(
        &self,
        out: &mut [B::Word],
        a: &[B::Word],
        b: &[B::Word],
        room: &mut Room<B>,
    ) {
        self.products(out, [(a, b)], room);
    }

    fn products<const P: usize>(
        &self,
        out: &mut [B::Word],
        pairs: [Product<'_, B::Word>; P],
        room: &mut Room<B>,
    ) {
        room.acc[..=self.len()].fill(self.backend.zero());
        self.backend.mul_redc(&self.plain, out, &mut room.acc, pairs);
    }

    /// `out = (a·b + c·d)·R⁻¹`, lazily.
    pub(super) fn mont_two(
        &self,
        out: &mut [B::Word],
        [(a, b), (c, d)]: [Product<'_, B::Word>; 2],
        room: &mut Room<B>,
    ) {
        self.products(out, [(a, b), (c, d)], room);
    }

    /// `−x·m⁻¹ mod R` of a number of at most twice as many limbs as m.
    pub(super) fn quotient(&self, out: &mut [B::Word], x: &[B::Word], room: &mut Room<B>) {
        let limbs = self.len();
        room.acc.fill(self.backend.zero());
        room.acc[..x.len()].copy_from_slice(x);
        self.backend.mul_redc(&self.plain, &mut room.a, &mut room.acc, []);
        out.copy_from_slice(&room.acc[..limbs]);
    }

    /// The arithmetic of pairs.
    pub(super) fn split(&self) -> &Split<B> {
        match &self.split {
            Some(split) => split,
            None => unreachable!("pairs are for squares"),
        }
    }

    // The form of chains: split if the modulus is a square, else plain.

    /// One.
    pub(super) fn one(&self) -> &[B::Word] {
        self.split.as_ref().map_or(&self.r, |split| &split.one)
    }

    /// Residues from memory.
    pub(super) fn enter(
        &self,
        out: &mut [B::Word],
        items: &Items<'_>,
        first: usize,
        room: &mut Room<B>,
    ) {
        let Some(split) = &self.split else {
            let mut x = std::mem::take(&mut room.a);
            self.load(&mut x, items, first);
            self.mont(out, &x, &self.r_squared, room);
            room.a = x;
            return;
        };
        let mut pair = std::mem::take(&mut room.a);
        let pair_len = self.chain_len();
        room.acc.fill(self.backend.zero());
        self.backend.load(&mut room.acc[..pair_len], items, first, 0);
        split.halve(self.backend, &mut pair, room);
        split.mul(self.backend, out, &pair[..pair_len], &split.r_cubed, room);
        room.a = pair;
    }

    /// Canonical words of residues, or of the digits of `pairs`.
    pub(super) fn leave(
        &self,
        out: &mut [u64],
        each: usize,
        x: &[B::Word],
        pairs: bool,
        room: &mut Room<B>,
    ) {
        let backend = self.backend;
        let mut t = std::mem::take(&mut room.a);
        match &self.split {
            None => {
                room.acc.fill(backend.zero());
                room.acc[..x.len()].copy_from_slice(x);
                backend.mul_redc(&self.plain, &mut t, &mut room.acc, []);
                self.store(out, &mut t);
            }
            Some(split) => {
                split.leave(backend, &mut t[..x.len()], x, room);
                if pairs {
                    split.store(backend, out, each, &t[..x.len()]);
                } else {
                    let joined = &mut room.acc[..x.len()];
                    split.join(backend, joined, &t[..x.len()]);
                    backend.store(out, each, 0..each, joined);
                }
            }
        }
        room.a = t;
    }

    /// `out = a·b`.
    pub(super) fn mul(
        &self,
        out: &mut [B::Word],
        a: &[B::Word],
        b: &[B::Word],
        room: &mut Room<B>,
    ) {
        match &self.split {
            Some(split) => split.mul(self.backend, out, a, b, room),
            None => self.mont(out, a, b, room),
        }
    }

    /// `out = a²`.
    pub(super) fn square(&self, out: &mut [B::Word], a: &[B::Word], room: &mut Room<B>) {
        match &self.split {
            Some(split) => split.square(self.backend, out, a, room),
            None => {
                self.backend.square(&mut room.acc, a);
                self.backend.mul_redc(&self.plain, out, &mut room.acc, []);
            }
        }
    }
}

/// The same number in every lane.
pub(super) fn broadcast<B: Backend>(backend: B, limbs: &[u64]) -> Group<B> {
    Zeroizing::new(limbs.iter().map(|&limb| backend.lanes_of(|_| limb)).collect())
}
