//! The builder: each method appends one value and returns its typed handle.

mod polynomials;

use std::{marker::PhantomData, sync::Arc};

pub use self::polynomials::MAX_TERMS;
use super::{
    Constant, Crt, FixedBase, Kind, PairOp, Program, ResidueOp, ResidueStep, Source, Spread, Step,
    Value, ValuePlaces, Work,
};
use crate::{
    exponents::{Public, Secrecy, Secret},
    modulus::Modulus,
    ring::Ring,
};

/// A handle to a value of kind `T` in the program under construction.
pub struct Var<T> {
    index: usize,
    kind: PhantomData<T>,
}

impl<T> Clone for Var<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Var<T> {}

/// Marks integers.
pub enum Integer {}
/// Marks residues.
pub enum Residue {}
/// Marks residues as pairs of digits.
pub enum Pair {}
/// Marks exponents, secret or public.
pub struct Exponent<S>(PhantomData<S>);
/// Marks polynomials in coefficient form.
pub enum Coeff {}
/// Marks polynomials in NTT form.
pub enum Ntt {}
/// Marks beats.
pub enum Beat {}
/// Marks sums of lanes.
pub enum Lanes {}
/// Marks seeds, secret or public.
pub struct Seed<S>(PhantomData<S>);

/// Builds a [`Program`]. Operand order is the order of the input calls, then of the outputs.
///
/// Shapes are checked as steps are added; a mismatch is a programming error and panics.
pub struct Builder {
    program: Program,
}

impl Builder {
    /// Begins an empty program.
    #[must_use]
    pub fn new(name: &str) -> Self {
        let places = ValuePlaces::default();
        let (values, outputs, updates) = (vec![], vec![], vec![]);
        let (work, shape) = (Work::Polynomials, 0);
        Self {
            program: Program { name: name.into(), values, outputs, updates, places, work, shape },
        }
    }

    fn push<T>(&mut self, name: &str, kind: Kind, source: Source, secret: bool) -> Var<T> {
        self.program.values.push(Value { name: name.into(), kind, source, secret });
        Var { index: self.program.values.len() - 1, kind: PhantomData }
    }

    fn input<T>(&mut self, name: &str, kind: Kind, spread: Spread, secret: bool) -> Var<T> {
        self.push(name, kind, Source::Input { spread }, secret)
    }

    fn constant<T>(&mut self, name: &str, kind: Kind, words: &[u64], secret: bool) -> Var<T> {
        self.shared_constant(name, kind, &Constant::new(words.to_vec()), secret)
    }

    fn shared_constant<T>(
        &mut self,
        name: &str,
        kind: Kind,
        of: &Constant,
        secret: bool,
    ) -> Var<T> {
        assert_eq!(kind.words(), of.words().len(), "constant {name} holds one item");
        self.push(name, kind, Source::Constant(of.clone()), secret)
    }

    fn step<T>(&mut self, name: &str, kind: Kind, step: Step, operands: &[usize]) -> Var<T> {
        assert!(kind.words() > 0, "{name}: an item has words");
        // What comes of a secret is one.
        let secret = operands.iter().any(|&operand| self.program.values[operand].secret);
        self.push(name, kind, Source::Step { step, operands: operands.to_vec() }, secret)
    }

    fn kind<T>(&self, var: Var<T>) -> Kind {
        self.program.values[var.index].kind.clone()
    }

    /// Returns what the kind of a value says; its handle has the type of such kinds.
    fn of_kind<T, U>(&self, var: Var<T>, get: impl FnOnce(&Kind) -> Option<U>) -> U {
        match get(&self.program.values[var.index].kind) {
            Some(found) => found,
            None => unreachable!("a handle is of the kind that it names"),
        }
    }

    fn modulus(&self, var: Var<Residue>) -> Arc<Modulus> {
        self.of_kind(var, |kind| match kind {
            Kind::Residues { modulus, .. } => Some(modulus.clone()),
            _ => None,
        })
    }

    fn ring<T>(&self, var: Var<T>) -> Arc<Ring> {
        self.of_kind(var, |kind| match kind {
            Kind::Polys { ring, .. } | Kind::Beats { ring, .. } | Kind::Lanes { ring, .. } => {
                Some(ring.clone())
            }
            _ => None,
        })
    }

    /// Returns the square of pairs, and its root.
    fn square(&self, var: Var<Pair>) -> [Arc<Modulus>; 2] {
        self.of_kind(var, |kind| match kind {
            Kind::Pairs { modulus, root } => Some([modulus.clone(), root.clone()]),
            _ => None,
        })
    }

    /// Returns the bound on exponents, and how many are in an item.
    fn exponent_size<S>(&self, var: Var<Exponent<S>>) -> (u32, usize) {
        self.of_kind(var, |kind| match kind {
            Kind::Exponents { bits, count } => Some((*bits, *count)),
            _ => None,
        })
    }

    /// Adds a step that makes one residue an item.
    fn residue(
        &mut self,
        name: &str,
        modulus: &Arc<Modulus>,
        op: ResidueOp,
        operands: &[usize],
    ) -> Var<Residue> {
        let kind = Kind::Residues { modulus: modulus.clone(), rows: 1 };
        let step = ResidueStep::Residue { op, modulus: modulus.clone() };
        self.step(name, kind, Step::Residue(step), operands)
    }

    /// Adds a step that makes a pair.
    fn new_pair(
        &mut self,
        name: &str,
        [square, root]: [Arc<Modulus>; 2],
        op: PairOp,
        operands: &[usize],
    ) -> Var<Pair> {
        let kind = Kind::Pairs { modulus: square.clone(), root: root.clone() };
        self.step(name, kind, Step::Residue(ResidueStep::Pair { op, square, root }), operands)
    }

    /// Adds an input of integers of `words` words, secret.
    pub fn integers(&mut self, name: &str, words: usize) -> Var<Integer> {
        self.input(name, Kind::Integers { words }, Spread::Each, true)
    }

    /// Adds an input of one public word each: the index of a polynomial or of a datagram.
    pub fn index(&mut self, name: &str) -> Var<Integer> {
        self.input(name, Kind::Integers { words: 1 }, Spread::Each, false)
    }

    /// Adds a public input of one residue each.
    pub fn residues(&mut self, name: &str, modulus: &Arc<Modulus>) -> Var<Residue> {
        self.residue_rows(name, modulus, 1)
    }

    /// Adds a public input of `rows` residues each, for [`Builder::product`].
    pub fn residue_rows(&mut self, name: &str, m: &Arc<Modulus>, rows: usize) -> Var<Residue> {
        self.input(name, Kind::Residues { modulus: m.clone(), rows }, Spread::Each, false)
    }

    /// Adds a secret input of one residue each.
    pub fn secret_residues(&mut self, name: &str, modulus: &Arc<Modulus>) -> Var<Residue> {
        let kind = Kind::Residues { modulus: modulus.clone(), rows: 1 };
        self.input(name, kind, Spread::Each, true)
    }

    /// Adds `rows` public residues that the whole batch shares, for [`Builder::dot`].
    pub fn shared_residues(&mut self, name: &str, m: &Arc<Modulus>, rows: usize) -> Var<Residue> {
        self.input(name, Kind::Residues { modulus: m.clone(), rows }, Spread::Shared, false)
    }

    /// Adds an accumulator of one residue each: see [`Builder::update`].
    pub fn residue_sums(&mut self, name: &str, modulus: &Arc<Modulus>) -> Var<Residue> {
        let kind = Kind::Residues { modulus: modulus.clone(), rows: 1 };
        self.input(name, kind, Spread::Update, false)
    }

    /// Adds an input of one exponent each, of at most `bits` bits.
    pub fn exponents<S: Secrecy>(&mut self, name: &str, bits: u32) -> Var<Exponent<S>> {
        self.exponent_rows(name, bits, 1)
    }

    /// Adds an input of `count` exponents each, of at most `bits` bits, for [`Builder::dot`].
    pub fn exponent_rows<S: Secrecy>(
        &mut self,
        name: &str,
        bits: u32,
        count: usize,
    ) -> Var<Exponent<S>> {
        self.input(name, Kind::Exponents { bits, count }, Spread::Each, S::SECRET)
    }

    /// Adds a secret input of one bit each, in a word of 0 or 1.
    pub fn secret_bits(&mut self, name: &str) -> Var<Exponent<Secret>> {
        self.exponents(name, 1)
    }

    /// Adds a constant secret residue.
    pub fn secret_residue(
        &mut self,
        name: &str,
        modulus: &Arc<Modulus>,
        words: &[u64],
    ) -> Var<Residue> {
        let kind = Kind::Residues { modulus: modulus.clone(), rows: 1 };
        self.constant(name, kind, words, true)
    }

    /// Adds a constant secret exponent.
    pub fn secret_exponent(
        &mut self,
        name: &str,
        bits: u32,
        words: &[u64],
    ) -> Var<Exponent<Secret>> {
        self.constant(name, Kind::Exponents { bits, count: 1 }, words, true)
    }

    /// Adds a constant public exponent.
    pub fn public_exponent(
        &mut self,
        name: &str,
        bits: u32,
        words: &[u64],
    ) -> Var<Exponent<Public>> {
        self.constant(name, Kind::Exponents { bits, count: 1 }, words, false)
    }

    /// Returns the modulus of a value that must be one residue an item.
    fn single(&self, var: Var<Residue>) -> Arc<Modulus> {
        assert!(matches!(self.kind(var), Kind::Residues { rows: 1, .. }), "one residue an item");
        self.modulus(var)
    }

    /// Returns the modulus of two values that must be one residue each, of the same modulus.
    fn both(&self, name: &str, a: Var<Residue>, b: Var<Residue>) -> Arc<Modulus> {
        let (m, other) = (self.single(a), self.single(b));
        assert!(Arc::ptr_eq(&m, &other), "{name}: one modulus");
        m
    }

    /// Adds `a · b mod m`.
    pub fn mul(&mut self, name: &str, a: Var<Residue>, b: Var<Residue>) -> Var<Residue> {
        let m = self.both(name, a, b);
        self.residue(name, &m, ResidueOp::Mul, &[a.index, b.index])
    }

    /// Adds `a · b · R⁻¹ mod m` with `R = 2^(64 · words of m)`: about the work of [`Builder::mul`],
    /// more from 3072 bits on, on the portable path. The caller keeps account of the power of R.
    /// See [`Modulus::radix_power`].
    pub fn mont_mul(&mut self, name: &str, a: Var<Residue>, b: Var<Residue>) -> Var<Residue> {
        let m = self.both(name, a, b);
        self.residue(name, &m, ResidueOp::MontMul, &[a.index, b.index])
    }

    /// Adds the inverse of `a`, which must be public; 0 where there is none.
    pub fn invert(&mut self, name: &str, a: Var<Residue>) -> Var<Residue> {
        let m = self.single(a);
        assert!(!self.program.values[a.index].secret, "{name}: inversion takes variable time");
        self.residue(name, &m, ResidueOp::Invert, &[a.index])
    }

    /// Adds `a` where `bit` is 1, else `b`.
    pub fn choose(
        &mut self,
        name: &str,
        bit: Var<Exponent<Secret>>,
        a: Var<Residue>,
        b: Var<Residue>,
    ) -> Var<Residue> {
        let m = self.both(name, a, b);
        assert_eq!(self.exponent_size(bit), (1, 1), "{name}: one bit");
        self.residue(name, &m, ResidueOp::Choose, &[bit.index, a.index, b.index])
    }

    /// Adds the product over all rows i of `bases_i^(exponents_i)`.
    pub fn dot<S: Secrecy>(
        &mut self,
        name: &str,
        bases: Var<Residue>,
        exponents: Var<Exponent<S>>,
    ) -> Var<Residue> {
        let (modulus, (bits, count)) = (self.modulus(bases), self.exponent_size(exponents));
        let rows = self.kind(bases).words() / modulus.len_words();
        assert_eq!(rows, count, "{name}: an exponent for each base");
        let source = &self.program.values[bases.index].source;
        let shared = matches!(source, Source::Input { spread: Spread::Shared });
        assert!(shared, "{name}: the batch shares the bases");
        let op = ResidueOp::Dot { secret: S::SECRET, bits };
        self.residue(name, &modulus, op, &[bases.index, exponents.index])
    }

    /// Returns a modulus that must be a square, and its root.
    fn squared(name: &str, square: &Arc<Modulus>) -> [Arc<Modulus>; 2] {
        let Some(root) = square.root() else { panic!("{name}: pairs are for squares") };
        [square.clone(), root.clone()]
    }

    fn pair_kind(name: &str, square: &Arc<Modulus>) -> Kind {
        let [modulus, root] = Self::squared(name, square);
        Kind::Pairs { modulus, root }
    }

    /// Adds a public input of one pair each.
    pub fn pairs(&mut self, name: &str, square: &Arc<Modulus>) -> Var<Pair> {
        self.input(name, Self::pair_kind(name, square), Spread::Each, false)
    }

    /// Adds a public input of one pair that the whole batch shares.
    pub fn shared_pair(&mut self, name: &str, square: &Arc<Modulus>) -> Var<Pair> {
        self.input(name, Self::pair_kind(name, square), Spread::Shared, false)
    }

    /// Adds an accumulator of one pair each: see [`Builder::update`].
    pub fn pair_sums(&mut self, name: &str, square: &Arc<Modulus>) -> Var<Pair> {
        self.input(name, Self::pair_kind(name, square), Spread::Update, false)
    }

    /// Adds a residue below s² as its digits in base s.
    pub fn split(&mut self, name: &str, a: Var<Residue>) -> Var<Pair> {
        let square = Self::squared(name, &self.single(a));
        self.new_pair(name, square, PairOp::Split, &[a.index])
    }

    /// Adds the residue below s² with these digits in base s.
    pub fn join(&mut self, name: &str, a: Var<Pair>) -> Var<Residue> {
        let [square, root] = self.square(a);
        self.residue(name, &square, ResidueOp::Join { root }, &[a.index])
    }

    /// Adds `a · b · R⁻¹ mod s²` with `R = 2^(64 · words of s)`: five eighths of the work of
    /// [`Builder::mont_mul`], whose R is another.
    pub fn pair_mul(&mut self, name: &str, a: Var<Pair>, b: Var<Pair>) -> Var<Pair> {
        assert!(self.kind(a).is_same(&self.kind(b)), "{name}: one modulus");
        self.new_pair(name, self.square(a), PairOp::Mul, &[a.index, b.index])
    }

    /// Adds the product of all rows of `a`.
    pub fn product(&mut self, name: &str, a: Var<Residue>) -> Var<Residue> {
        let m = self.modulus(a);
        self.residue(name, &m, ResidueOp::Product, &[a.index])
    }

    /// Adds `1 + x·n mod n²`: the encryption of `x` without a mask. `x < n` is the caller's duty.
    pub fn one_plus_mn(
        &mut self,
        name: &str,
        x: Var<Integer>,
        n: &Arc<Modulus>,
        n_squared: &Arc<Modulus>,
    ) -> Var<Residue> {
        assert_eq!(self.kind(x).words(), n.len_words(), "{name}: plaintexts are below n");
        self.residue(name, n_squared, ResidueOp::OnePlusMn { n: n.clone() }, &[x.index])
    }

    /// Adds [`Builder::one_plus_mn`] as a pair: its digits in base n are 1 and `x`.
    pub fn one_plus_mn_pair(
        &mut self,
        name: &str,
        x: Var<Integer>,
        n_squared: &Arc<Modulus>,
    ) -> Var<Pair> {
        let [square, n] = Self::squared(name, n_squared);
        assert_eq!(self.kind(x).words(), n.len_words(), "{name}: plaintexts are below n");
        self.new_pair(name, [square, n], PairOp::OnePlusMn, &[x.index])
    }

    /// Adds `base^e mod m`.
    pub fn pow<S: Secrecy>(
        &mut self,
        name: &str,
        base: Var<Residue>,
        e: Var<Exponent<S>>,
    ) -> Var<Residue> {
        let (m, (bits, count)) = (self.single(base), self.exponent_size(e));
        assert_eq!(count, 1, "{name}: one exponent");
        self.residue(name, &m, ResidueOp::Pow { secret: S::SECRET, bits }, &[base.index, e.index])
    }

    /// Adds `base^e mod m` for a fixed base; the exponent is treated as secret.
    pub fn pow_fixed_base(
        &mut self,
        name: &str,
        base: &Arc<FixedBase>,
        e: Var<Exponent<Secret>>,
    ) -> Var<Residue> {
        self.check_fixed_power(name, base, e);
        self.residue(
            name,
            &base.modulus,
            ResidueOp::PowFixedBase { base: base.clone() },
            &[e.index],
        )
    }

    /// Adds [`Builder::pow_fixed_base`] as a pair, modulo a square.
    pub fn pow_fixed_base_pair(
        &mut self,
        name: &str,
        base: &Arc<FixedBase>,
        e: Var<Exponent<Secret>>,
    ) -> Var<Pair> {
        self.check_fixed_power(name, base, e);
        let square = Self::squared(name, &base.modulus);
        self.new_pair(name, square, PairOp::PowFixedBase { base: base.clone() }, &[e.index])
    }

    fn check_fixed_power(&self, name: &str, base: &FixedBase, e: Var<Exponent<Secret>>) {
        let (bits, count) = self.exponent_size(e);
        assert_eq!(count, 1, "{name}: one exponent");
        assert_eq!(bits, base.exponent_bits, "{name}: exponents have the bits of the table");
    }

    /// Adds `x mod m`.
    pub fn reduce(&mut self, name: &str, x: Var<Residue>, m: &Arc<Modulus>) -> Var<Residue> {
        self.single(x);
        self.residue(name, m, ResidueOp::Reduce, &[x.index])
    }

    /// Adds `(x − 1) / p` for a residue `x ≡ 1 mod p` of p².
    pub fn l_quotient(&mut self, name: &str, x: Var<Residue>, p: &Arc<Modulus>) -> Var<Residue> {
        self.single(x);
        self.residue(name, p, ResidueOp::LQuotient, &[x.index])
    }

    /// Adds the number below `p·q` that is `a` mod p and `b` mod q, in `words` words.
    pub fn crt_join(
        &mut self,
        name: &str,
        (a, b): (Var<Residue>, Var<Residue>),
        crt: &Arc<Crt>,
        words: usize,
    ) -> Var<Integer> {
        self.recombination(name, (a, b), crt, Kind::Integers { words })
    }

    /// Adds the residue of `p·q` that is `a` mod p and `b` mod q.
    pub fn crt_join_residues(
        &mut self,
        name: &str,
        (a, b): (Var<Residue>, Var<Residue>),
        crt: &Arc<Crt>,
        product: &Arc<Modulus>,
    ) -> Var<Residue> {
        let kind = Kind::Residues { modulus: product.clone(), rows: 1 };
        self.recombination(name, (a, b), crt, kind)
    }

    fn recombination<T>(
        &mut self,
        name: &str,
        (a, b): (Var<Residue>, Var<Residue>),
        crt: &Arc<Crt>,
        kind: Kind,
    ) -> Var<T> {
        assert!(Arc::ptr_eq(&self.modulus(a), &crt.p) && Arc::ptr_eq(&self.modulus(b), &crt.q));
        let step = Step::Residue(ResidueStep::CrtJoin { crt: crt.clone() });
        self.step(name, kind, step, &[a.index, b.index])
    }

    fn is_step<T>(&self, value: Var<T>) -> bool {
        matches!(self.program.values[value.index].source, Source::Step { .. })
    }

    /// Makes `value`, the result of a step, the next output operand.
    pub fn output<T>(&mut self, value: Var<T>) {
        assert!(self.is_step(value), "an output is the result of a step");
        self.leaves_once(value.index);
        self.program.outputs.push(value.index);
    }

    /// Makes `value`, the result of a step, replace the accumulator `target` in place.
    pub fn update<T>(&mut self, target: Var<T>, value: Var<T>) {
        let source = &self.program.values[target.index].source;
        assert!(matches!(source, Source::Input { spread: Spread::Update }), "an accumulator");
        assert!(self.is_step(value), "an update is the result of a step");
        assert!(self.kind(target).is_same(&self.kind(value)), "equal kinds");
        let mut updates = self.program.updates.iter();
        assert!(updates.all(|update| update.0 != target.index), "an accumulator is updated once");
        self.leaves_once(value.index);
        self.program.updates.push((target.index, value.index));
    }

    /// A value has one place in memory.
    fn leaves_once(&self, value: usize) {
        let updates = self.program.updates.iter().map(|&(_, value)| value);
        let left = self.program.outputs.iter().copied().chain(updates).any(|left| left == value);
        assert!(!left, "a value leaves a program once");
    }

    /// Returns the finished program.
    #[must_use]
    pub fn build(self) -> Program {
        let (places, work) = (ValuePlaces::new(&self.program), Work::new(&self.program));
        let shape = self.program.hash_shape();
        Program { places, work, shape, ..self.program }
    }
}
