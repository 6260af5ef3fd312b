//! The steps over big residues, for blocks of items.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use crypto_bigint::BoxedUint;
use zeroize::Zeroizing;

use super::{
    backend::{Backend, Items},
    derived::Derived,
    field::{Field, Group, Room, subtract},
    power::{self, PowerTable, Powers},
    tally::Tally,
};
use crate::{
    interpret::{self, Arg},
    modulus::Modulus,
    program::{Crt, FixedBase, Kind, Program, Step},
};

/// The arithmetic of one kind of processor, and what it derives from long-lived constants.
pub(super) struct Steps<B: Backend> {
    pub(super) backend: B,
    fields: Derived<Modulus, Field<B>>,
    tables: Derived<FixedBase, PowerTable>,
}

/// The items of an argument.
fn items<'a>(arg: &Arg<'a>) -> Items<'a> {
    let (words, each) = (arg.words(), arg.kind.words());
    Items { words, each, stride: each, shared: arg.is_shared() }
}

impl<B: Backend> Steps<B> {
    pub(super) fn new(backend: B) -> Self {
        Self { backend, fields: Derived::default(), tables: Derived::default() }
    }

    fn field(&self, m: &Arc<Modulus>) -> Arc<Field<B>> {
        self.fields.get(m, |m| Field::new(self.backend, m))
    }

    fn group(&self, len: usize) -> Group<B> {
        Zeroizing::new(vec![self.backend.zero(); len])
    }

    fn table(&self, base: &Arc<FixedBase>) -> Arc<PowerTable> {
        self.tables
            .get(base, |base| PowerTable::new(self.backend, &self.field(base.modulus()), base))
    }

    /// Derives the tables of a program's constants, before its parts need them at once.
    pub(super) fn prepare(&self, program: &Program) {
        self.fields.sweep();
        self.tables.sweep();
        for step in program.steps() {
            if let Step::PowFixedBase { base } = step {
                self.table(base);
            }
        }
    }

    /// The multiply instructions a second of one thread: the best of some bursts.
    pub(super) fn multiply_rate(&self) -> f64 {
        let burst = || {
            let start = std::time::Instant::now();
            self.backend.burst() as f64 / start.elapsed().as_secs_f64()
        };
        (0..8).map(|_| burst()).fold(0.0, f64::max)
    }

    /// The multiply instructions that a program issues over `count` items on one thread: on several,
    /// what a part does once is done more often.
    pub(super) fn multiplies(program: &Program, count: usize, block: usize) -> u64 {
        let total = AtomicU64::new(0);
        let steps = Steps::new(Tally::<B>::new(&total));
        steps.prepare(program);
        let of_block = |items: usize| {
            total.store(0, Relaxed);
            interpret::walk(program, items, |step, kind, out, args| {
                if step.is_of_residues() {
                    steps.run(step, kind, out, args);
                }
            });
            total.load(Relaxed)
        };
        let parts = [(count / block, block), (1, count % block)];
        let needed = parts.into_iter().filter(|&(times, items)| times > 0 && items > 0);
        needed.map(|(times, items)| times as u64 * of_block(items)).sum()
    }

    /// Any step over residues.
    pub(super) fn run(&self, step: &Step, kind: &Kind, out: &mut [u64], args: &[Arg<'_>]) {
        let each = kind.words();
        let a = items(&args[0]);
        if let Step::CrtJoin { crt } = step {
            return self.crt_join(crt, out, each, &a, &items(&args[1]));
        }
        let (Kind::Residues { modulus: m, .. } | Kind::Pairs { modulus: m }) = kind else {
            unreachable!("{} makes residues", step.name())
        };
        let (field, pairs) = (&*self.field(m), matches!(kind, Kind::Pairs { .. }));
        match step {
            Step::Mul => self.mul(field, out, each, &a, &items(&args[1])),
            Step::MontMul => self.mont_mul(field, out, each, &a, &items(&args[1])),
            Step::Split => self.split(m, field, out, &a),
            Step::Join => self.join(field, out, each, &a),
            Step::PairMul => self.pair_mul(field, out, each, &a, &items(&args[1])),
            Step::Product => self.product(field, out, each, &a),
            Step::Invert => self.invert(m, field, out, &a),
            Step::Choose => choose(out, each, &a, &items(&args[1]), &items(&args[2])),
            Step::OnePlusMn { .. } if pairs => one_plus_mn_pair(out, each, &a),
            Step::OnePlusMn { n } => self.one_plus_mn(n, out, each, &a),
            Step::Pow { secret } => {
                let exponents = powers(&args[1], *secret);
                power::pow(self.backend, field, out, each, &a, &exponents);
            }
            Step::Dot { secret } => {
                let bases = Items::new(a.words, each);
                let exponents = powers(&args[1], *secret);
                power::dot(self.backend, field, out, each, &bases, &exponents);
            }
            Step::PowFixedBase { base } => {
                self.table(base).pow(self.backend, field, (out, each, pairs), &a);
            }
            Step::Reduce => self.reduce(field, out, each, &a),
            Step::LQuotient => self.l_quotient(field, out, each, &a),
            _ => unreachable!("{} makes no residues here", step.name()),
        }
    }

    /// Groups of `out`, with the index of their first item.
    fn groups<'a>(
        &self,
        out: &'a mut [u64],
        each: usize,
    ) -> impl Iterator<Item = (usize, &'a mut [u64])> {
        let indices = (0..).step_by(B::LANES);
        indices.zip(out.chunks_mut(each * B::LANES))
    }

    fn mul(&self, f: &Field<B>, out: &mut [u64], each: usize, a: &Items<'_>, b: &Items<'_>) {
        let mut room = f.room();
        let [mut x, mut y, mut z] = [(); 3].map(|()| self.group(f.len()));
        for (first, out) in self.groups(out, each) {
            f.load(&mut x, a, first);
            f.mont(&mut z, &x, f.r_squared(), &mut room);
            f.load(&mut y, b, first);
            f.mont(&mut x, &z, &y, &mut room);
            f.store(out, &mut x);
        }
    }

    fn mont_mul(&self, f: &Field<B>, out: &mut [u64], each: usize, a: &Items<'_>, b: &Items<'_>) {
        let mut room = f.room();
        let [mut x, mut y, mut z] = [(); 3].map(|()| self.group(f.len()));
        for (first, out) in self.groups(out, each) {
            f.load_shifted(&mut x, a, first);
            f.load(&mut y, b, first);
            f.mont(&mut z, &x, &y, &mut room);
            f.store(out, &mut z);
        }
    }

    fn pair_mul(&self, f: &Field<B>, out: &mut [u64], each: usize, a: &Items<'_>, b: &Items<'_>) {
        let split = f.split();
        let mut room = f.room();
        let [mut x, mut y, mut z] = [(); 3].map(|()| self.group(f.chain_len()));
        for (first, out) in self.groups(out, each) {
            split.load(self.backend, &mut x, a, first, true);
            split.load(self.backend, &mut y, b, first, false);
            split.mul(self.backend, &mut z, &x, &y, &mut room);
            split.reduce(self.backend, &mut z);
            split.store(self.backend, out, each, &z);
        }
    }

    /// `x₀ + x₁·s`.
    fn join(&self, f: &Field<B>, out: &mut [u64], each: usize, pairs: &Items<'_>) {
        let split = f.split();
        let [mut pair, mut wide] = [(); 2].map(|()| self.group(f.chain_len()));
        for (first, out) in self.groups(out, each) {
            split.load(self.backend, &mut pair, pairs, first, false);
            split.join(self.backend, &mut wide, &pair);
            self.backend.store(out, each, 0..each, &wide);
        }
    }

    /// `x mod s`, and `(x − x mod s) / s` as in `l_quotient`: both of x and of its remainder
    /// reduction modulo s leaves the quotient by s, but for the sign.
    fn split(&self, square: &Modulus, f: &Field<B>, out: &mut [u64], x: &Items<'_>) {
        let Some(root) = square.root() else { unreachable!("pairs are for squares") };
        let (split, f) = (f.split(), &*self.field(root));
        let words = root.len_words();
        let mut room = f.room();
        let h = f.len();
        let [mut pair, mut wide] = [(); 2].map(|()| self.group(2 * h));
        let [mut acc, mut piece, mut next] = [(); 3].map(|()| self.group(h));
        for (first, out) in self.groups(out, 2 * words) {
            self.horner(f, &mut acc, words, x, first, [&mut piece, &mut next], &mut room);
            self.backend.reduce_once(f.limbs(), &mut acc);
            self.backend.reduce_once(f.limbs(), &mut acc);
            self.backend.load(&mut wide, x, first, 0);
            let (low, high) = pair.split_at_mut(h);
            low.copy_from_slice(&acc);
            f.quotient(high, &wide, &mut room);
            self.backend.negate(high);
            f.quotient(&mut next, &acc, &mut room);
            self.backend.add_assign(high, &next);
            split.store(self.backend, out, 2 * words, &pair);
        }
    }

    /// Products of ordinary numbers each take one R away; a last one with `R^rows` gives them back.
    fn product(&self, f: &Field<B>, out: &mut [u64], each: usize, rows: &Items<'_>) {
        let mut room = f.room();
        let [mut acc, mut x, mut next] = [(); 3].map(|()| self.group(f.len()));
        let count = rows.each / each;
        let radices = self.radix_power(f, count, &mut room);
        for (first, out) in self.groups(out, each) {
            for row in 0..count {
                let words = rows.words.get(row * each..).unwrap_or(&[]);
                let items = Items { words, each, stride: rows.each, shared: rows.shared };
                f.load(&mut x, &items, first);
                if row == 0 {
                    acc.copy_from_slice(&x);
                } else {
                    f.mont(&mut next, &acc, &x, &mut room);
                    std::mem::swap(&mut acc, &mut next);
                }
            }
            f.mont(&mut next, &acc, &radices, &mut room);
            f.store(out, &mut next);
        }
    }

    /// `R^power mod m`, for a power of at least 1.
    fn radix_power(&self, f: &Field<B>, power: usize, room: &mut Room<B>) -> Group<B> {
        // In Montgomery form this is R to the power − 1.
        let [mut acc, mut next] = [(); 2].map(|()| self.group(f.len()));
        acc.copy_from_slice(f.r());
        for bit in (0..usize::BITS - (power - 1).leading_zeros()).rev() {
            f.mont(&mut next, &acc, &acc, room);
            std::mem::swap(&mut acc, &mut next);
            if (power - 1) >> bit & 1 == 1 {
                f.mont(&mut next, &acc, f.r_squared(), room);
                std::mem::swap(&mut acc, &mut next);
            }
        }
        acc
    }

    /// Products of pairs, of pairs of those, and so on, leave one number to invert; on the way back
    /// each inverse of a product gives those of its two factors. Where the last has none, each item
    /// is tried alone. For public numbers.
    ///
    /// # Source
    /// P. L. Montgomery, "Speeding the Pollard and elliptic curve methods of factorization", 1987,
    /// section 10.3.1, as a tree.
    fn invert(&self, m: &Modulus, f: &Field<B>, out: &mut [u64], a: &Items<'_>) {
        let each = m.len_words();
        if a.shared {
            out.chunks_mut(each).for_each(|out| invert_one(m, out, a.words));
            return;
        }
        if !self.invert_tree(m, f, out, a.words) {
            let pairs = out.chunks_mut(each).zip(a.words.chunks(each));
            pairs.for_each(|(out, a)| invert_one(m, out, a));
        }
    }

    fn invert_tree(&self, m: &Modulus, f: &Field<B>, out: &mut [u64], a: &[u64]) -> bool {
        let each = m.len_words();
        let count = a.len() / each;
        if count <= 1 {
            out.chunks_mut(each).for_each(|out| invert_one(m, out, a));
            return count == 0 || out.iter().any(|&w| w != 0);
        }
        // Items i and half + i are a pair; the middle one of an odd number is a pair with itself.
        let half = count / 2 * each;
        let upper = a.len() - half;
        let (x, y) = (Items::new(&a[..half], each), Items::new(&a[upper..], each));
        let mut products = vec![0; half];
        self.mul(f, &mut products, each, &x, &y);
        products.extend_from_slice(&a[half..upper]);
        let mut inverses = vec![0; products.len()];
        if !self.invert_tree(m, f, &mut inverses, &products) {
            return false;
        }
        let (pairs, middle) = inverses.split_at(half);
        let pairs = Items::new(pairs, each);
        self.mul(f, &mut out[..half], each, &pairs, &y);
        out[half..upper].copy_from_slice(middle);
        self.mul(f, &mut out[upper..], each, &pairs, &x);
        true
    }

    /// `1 + x·n ≤ 1 + (n − 1)·n < n²`, so no reduction is needed.
    fn one_plus_mn(&self, n: &Arc<Modulus>, out: &mut [u64], each: usize, x: &Items<'_>) {
        let f = &*self.field(n);
        let one = self.backend.lanes_of(|_| 1);
        let [mut plain, mut wide] = [f.len(), 2 * f.len()].map(|len| self.group(len));
        for (first, out) in self.groups(out, each) {
            f.load(&mut plain, x, first);
            self.backend.mul_wide(&mut wide, &plain, f.limbs());
            self.backend.add_assign(&mut wide, &[one]);
            self.backend.store(out, each, 0..each, &wide);
        }
    }

    fn reduce(&self, f: &Field<B>, out: &mut [u64], each: usize, x: &Items<'_>) {
        let mut room = f.room();
        let [mut acc, mut piece, mut next] = [(); 3].map(|()| self.group(f.len()));
        for (first, out) in self.groups(out, each) {
            self.horner(f, &mut acc, each, x, first, [&mut piece, &mut next], &mut room);
            self.backend.reduce_once(f.limbs(), &mut acc);
            f.store(out, &mut acc);
        }
    }

    /// `acc ≡ x mod m`, below 3m, by Horner's rule over pieces of as many words as m:
    /// `acc · 2^(64·words) + piece`, both products of one Montgomery reduction.
    ///
    /// # Bound
    /// A piece is below `2^(64·words) ≤ R`, the constants below m: each product over R is below m,
    /// and with the `Q·m / R` of the reduction all is below 3m.
    #[expect(clippy::too_many_arguments, reason = "with the memory for it")]
    fn horner(
        &self,
        f: &Field<B>,
        acc: &mut Group<B>,
        each: usize,
        x: &Items<'_>,
        first: usize,
        [piece, next]: [&mut Group<B>; 2],
        room: &mut Room<B>,
    ) {
        let load = |out: &mut Group<B>, index: usize| {
            let words = x.words.get(index * each..).unwrap_or(&[]);
            let items = Items { words, each: each.min(x.each - index * each), ..*x };
            f.load(out, &items, first);
        };
        // The highest piece, but where there is no other.
        let mut rest = x.each.div_ceil(each);
        acc.fill(self.backend.zero());
        if rest > 1 {
            rest -= 1;
            load(acc, rest);
        }
        for index in (0..rest).rev() {
            load(piece, index);
            f.mont_two(next, [(acc, f.piece()), (piece, f.r())], room);
            std::mem::swap(acc, next);
        }
    }

    /// `(x − 1) / p` exactly. Reduction of x modulo p leaves the quotient `−x·p⁻¹ mod R`, and that of
    /// 1 is `−p⁻¹`; their difference is `(x − 1)·p⁻¹ mod R`, which is the answer since that is below p.
    fn l_quotient(&self, f: &Field<B>, out: &mut [u64], each: usize, x: &Items<'_>) {
        let mut room = f.room();
        let [mut quotient, mut of_one] = [(); 2].map(|()| self.group(f.len()));
        let mut wide = self.group(2 * f.len());
        f.quotient(&mut of_one, &[self.backend.lanes_of(|_| 1)], &mut room);
        for (first, out) in self.groups(out, each) {
            self.backend.load(&mut wide, x, first, 0);
            f.quotient(&mut quotient, &wide, &mut room);
            self.backend.negate(&mut quotient);
            self.backend.add_assign(&mut quotient, &of_one);
            self.backend.store(out, each, 0..each, &quotient);
        }
    }

    /// `a + p · ((b − a) · p⁻¹ mod q)`.
    ///
    /// # Bound
    /// `a < 2^(64·words) ≤ R`, p having no more words than q; `b < q ≤ R/64`; the constants are
    /// products, below (1 + 1/64) q. So both products over R and the quotient's part are below 3q.
    fn crt_join(&self, crt: &Crt, out: &mut [u64], each: usize, a: &Items<'_>, b: &Items<'_>) {
        let (p, q) = (&*self.field(crt.p()), &*self.field(crt.q()));
        let mut room = q.room();
        let [mut x, mut y, mut h, mut plus, mut minus] = [(); 5].map(|()| self.group(q.len()));
        // ±p⁻¹·R, so that a product with it is ±p⁻¹ times a number.
        let negative = Zeroizing::new(subtract(crt.q().words(), crt.p_inverse()));
        for (words, constant) in [(crt.p_inverse(), &mut plus), (&negative, &mut minus)] {
            q.load(&mut x, &Items::shared(words), 0);
            q.mont(constant, &x, q.r_squared(), &mut room);
        }
        let mut low = self.group(p.len());
        let mut wide = self.group(p.len() + q.len());
        for (first, out) in self.groups(out, each) {
            q.load(&mut x, a, first);
            q.load(&mut y, b, first);
            q.mont_two(&mut h, [(&y, &plus), (&x, &minus)], &mut room);
            self.backend.reduce_once(q.limbs(), &mut h);
            self.backend.reduce_once(q.limbs(), &mut h);
            self.backend.mul_wide(&mut wide, &h, p.limbs());
            p.load(&mut low, a, first);
            self.backend.add_assign(&mut wide, &low);
            self.backend.store(out, each, 0..each, &wide);
        }
    }
}

/// A batch of exponents.
fn powers<'a>(arg: &Arg<'a>, secret: bool) -> Powers<'a> {
    let Kind::Exponents { bits, .. } = arg.kind else { unreachable!("powers take exponents") };
    Powers { items: items(arg), bits: *bits as usize, public: !secret }
}

/// By the library's greatest common divisor; 0 where there is no inverse. For public numbers.
fn invert_one(m: &Modulus, out: &mut [u64], a: &[u64]) {
    let a = BoxedUint::from_words(a.iter().copied());
    let odd = BoxedUint::from_words(m.words().iter().copied()).to_odd().into_option();
    let inverse = odd.and_then(|odd| a.invert_odd_mod_vartime(&odd).into_option());
    out.fill(0);
    if let Some(inverse) = inverse {
        out.copy_from_slice(inverse.as_words());
    }
}

/// The digits 1 and x.
fn one_plus_mn_pair(out: &mut [u64], each: usize, x: &Items<'_>) {
    for (index, out) in out.chunks_mut(each).enumerate() {
        let (low, high) = out.split_at_mut(each / 2);
        low.fill(0);
        low[0] = 1;
        high.copy_from_slice(x.item(index));
    }
}

/// `a` where the bit is 1, else `b`. Constant time.
fn choose(out: &mut [u64], each: usize, bits: &Items<'_>, a: &Items<'_>, b: &Items<'_>) {
    for (index, out) in out.chunks_mut(each).enumerate() {
        let bit = bits.item(index).first().map_or(0, |&bit| bit);
        let mask = std::hint::black_box(bit.wrapping_neg());
        let pairs = a.item(index).iter().zip(b.item(index));
        out.iter_mut().zip(pairs).for_each(|(o, (&a, &b))| *o = (a & mask) | (b & !mask));
    }
}
