//! The builder: each method appends one value and returns its typed handle.

mod polynomials;

use std::{marker::PhantomData, sync::Arc};

pub use self::polynomials::MAX_TERMS;
use super::{Constant, Crt, FixedBase, Kind, Places, Program, Source, Spread, Step, Value, Work};
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
        let places = Places::default();
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

    fn modulus(&self, var: Var<Residue>) -> Arc<Modulus> {
        match self.kind(var) {
            Kind::Residues { modulus, .. } => modulus,
            _ => unreachable!("a residue handle names residues"),
        }
    }

    fn ring<T>(&self, var: Var<T>) -> Arc<Ring> {
        match self.kind(var) {
            Kind::Polys { ring, .. } | Kind::Beats { ring, .. } | Kind::Lanes { ring, .. } => ring,
            _ => unreachable!("a polynomial handle names polynomials"),
        }
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

    /// Returns the kind of a value that must be one residue an item.
    fn single(&self, var: Var<Residue>) -> Kind {
        let kind = self.kind(var);
        assert!(matches!(kind, Kind::Residues { rows: 1, .. }), "one residue an item");
        kind
    }

    /// Returns the kind of two values that must be one residue each, of the same modulus.
    fn pair(&self, name: &str, a: Var<Residue>, b: Var<Residue>) -> Kind {
        let (kind, _) = (self.single(a), self.single(b));
        assert!(Arc::ptr_eq(&self.modulus(a), &self.modulus(b)), "{name}: one modulus");
        kind
    }

    /// Adds `a · b mod m`.
    pub fn mul(&mut self, name: &str, a: Var<Residue>, b: Var<Residue>) -> Var<Residue> {
        let kind = self.pair(name, a, b);
        self.step(name, kind, Step::Mul, &[a.index, b.index])
    }

    /// Adds `a · b · R⁻¹ mod m` with `R = 2^(64 · words of m)`: about the work of [`Builder::mul`],
    /// more from 3072 bits on, on the portable path. The caller keeps account of the power of R.
    /// See [`Modulus::radix_power`].
    pub fn mont_mul(&mut self, name: &str, a: Var<Residue>, b: Var<Residue>) -> Var<Residue> {
        let kind = self.pair(name, a, b);
        self.step(name, kind, Step::MontMul, &[a.index, b.index])
    }

    /// Adds the inverse of `a`, which must be public; 0 where there is none.
    pub fn invert(&mut self, name: &str, a: Var<Residue>) -> Var<Residue> {
        let kind = self.single(a);
        assert!(!self.program.values[a.index].secret, "{name}: inversion takes variable time");
        self.step(name, kind, Step::Invert, &[a.index])
    }

    /// Adds `a` where `bit` is 1, else `b`.
    pub fn choose(
        &mut self,
        name: &str,
        bit: Var<Exponent<Secret>>,
        a: Var<Residue>,
        b: Var<Residue>,
    ) -> Var<Residue> {
        let kind = self.pair(name, a, b);
        assert!(matches!(self.kind(bit), Kind::Exponents { bits: 1, count: 1 }), "{name}: one bit");
        self.step(name, kind, Step::Choose, &[bit.index, a.index, b.index])
    }

    /// Adds the product over all rows i of `bases_i^(exponents_i)`.
    pub fn dot<S: Secrecy>(
        &mut self,
        name: &str,
        bases: Var<Residue>,
        exponents: Var<Exponent<S>>,
    ) -> Var<Residue> {
        let (kind, exponent_kind) = (self.kind(bases), self.kind(exponents));
        let (Kind::Residues { modulus, rows }, Kind::Exponents { count, .. }) =
            (kind, exponent_kind)
        else {
            unreachable!("the handles name residues and exponents")
        };
        assert_eq!(rows, count, "{name}: an exponent for each base");
        let source = &self.program.values[bases.index].source;
        let shared = matches!(source, Source::Input { spread: Spread::Shared });
        assert!(shared, "{name}: the batch shares the bases");
        let kind = Kind::Residues { modulus, rows: 1 };
        let step = Step::Dot { secret: S::SECRET };
        self.step(name, kind, step, &[bases.index, exponents.index])
    }

    /// Returns the kind of the pairs of a residue, whose modulus must be a square.
    fn pair_kind(name: &str, modulus: Arc<Modulus>) -> Kind {
        assert!(modulus.root().is_some(), "{name}: pairs are for squares");
        Kind::Pairs { modulus }
    }

    /// Adds a public input of one pair each.
    pub fn pairs(&mut self, name: &str, square: &Arc<Modulus>) -> Var<Pair> {
        self.input(name, Self::pair_kind(name, square.clone()), Spread::Each, false)
    }

    /// Adds a public input of one pair that the whole batch shares.
    pub fn shared_pair(&mut self, name: &str, square: &Arc<Modulus>) -> Var<Pair> {
        self.input(name, Self::pair_kind(name, square.clone()), Spread::Shared, false)
    }

    /// Adds an accumulator of one pair each: see [`Builder::update`].
    pub fn pair_sums(&mut self, name: &str, square: &Arc<Modulus>) -> Var<Pair> {
        self.input(name, Self::pair_kind(name, square.clone()), Spread::Update, false)
    }

    /// Adds a residue below s² as its digits in base s.
    pub fn split(&mut self, name: &str, a: Var<Residue>) -> Var<Pair> {
        self.single(a);
        let kind = Self::pair_kind(name, self.modulus(a));
        self.step(name, kind, Step::Split, &[a.index])
    }

    /// Adds the residue below s² with these digits in base s.
    pub fn join(&mut self, name: &str, a: Var<Pair>) -> Var<Residue> {
        let Kind::Pairs { modulus } = self.kind(a) else {
            unreachable!("a pair handle names pairs")
        };
        self.step(name, Kind::Residues { modulus, rows: 1 }, Step::Join, &[a.index])
    }

    /// Adds `a · b · R⁻¹ mod s²` with `R = 2^(64 · words of s)`: five eighths of the work of
    /// [`Builder::mont_mul`], whose R is another.
    pub fn pair_mul(&mut self, name: &str, a: Var<Pair>, b: Var<Pair>) -> Var<Pair> {
        let kind = self.kind(a);
        assert!(kind.is_same(&self.kind(b)), "{name}: one modulus");
        self.step(name, kind, Step::PairMul, &[a.index, b.index])
    }

    /// Adds the product of all rows of `a`.
    pub fn product(&mut self, name: &str, a: Var<Residue>) -> Var<Residue> {
        let kind = Kind::Residues { modulus: self.modulus(a), rows: 1 };
        self.step(name, kind, Step::Product, &[a.index])
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
        let kind = Kind::Residues { modulus: n_squared.clone(), rows: 1 };
        self.step(name, kind, Step::OnePlusMn { n: n.clone() }, &[x.index])
    }

    /// Adds [`Builder::one_plus_mn`] as a pair: its digits in base n are 1 and `x`.
    pub fn one_plus_mn_pair(
        &mut self,
        name: &str,
        x: Var<Integer>,
        n_squared: &Arc<Modulus>,
    ) -> Var<Pair> {
        let kind = Self::pair_kind(name, n_squared.clone());
        let Some(n) = n_squared.root().cloned() else { unreachable!("the kind has looked") };
        assert_eq!(self.kind(x).words(), n.len_words(), "{name}: plaintexts are below n");
        self.step(name, kind, Step::OnePlusMn { n }, &[x.index])
    }

    /// Adds `base^e mod m`.
    pub fn pow<S: Secrecy>(
        &mut self,
        name: &str,
        base: Var<Residue>,
        e: Var<Exponent<S>>,
    ) -> Var<Residue> {
        let kind = self.single(base);
        assert!(matches!(self.kind(e), Kind::Exponents { count: 1, .. }), "{name}: one exponent");
        self.step(name, kind, Step::Pow { secret: S::SECRET }, &[base.index, e.index])
    }

    /// Adds `base^e mod m` for a fixed base; the exponent is treated as secret.
    pub fn pow_fixed_base(
        &mut self,
        name: &str,
        base: &Arc<FixedBase>,
        e: Var<Exponent<Secret>>,
    ) -> Var<Residue> {
        let kind = Kind::Residues { modulus: base.modulus.clone(), rows: 1 };
        self.fixed_power(name, kind, base, e)
    }

    /// Adds [`Builder::pow_fixed_base`] as a pair, modulo a square.
    pub fn pow_fixed_base_pair(
        &mut self,
        name: &str,
        base: &Arc<FixedBase>,
        e: Var<Exponent<Secret>>,
    ) -> Var<Pair> {
        self.fixed_power(name, Self::pair_kind(name, base.modulus.clone()), base, e)
    }

    fn fixed_power<T>(
        &mut self,
        name: &str,
        kind: Kind,
        base: &Arc<FixedBase>,
        e: Var<Exponent<Secret>>,
    ) -> Var<T> {
        let Kind::Exponents { bits, count: 1 } = self.kind(e) else {
            panic!("{name}: one exponent")
        };
        assert_eq!(bits, base.exponent_bits, "{name}: exponents have the bits of the table");
        self.step(name, kind, Step::PowFixedBase { base: base.clone() }, &[e.index])
    }

    /// Adds `x mod m`.
    pub fn reduce(&mut self, name: &str, x: Var<Residue>, m: &Arc<Modulus>) -> Var<Residue> {
        self.single(x);
        let kind = Kind::Residues { modulus: m.clone(), rows: 1 };
        self.step(name, kind, Step::Reduce, &[x.index])
    }

    /// Adds `(x − 1) / p` for a residue `x ≡ 1 mod p` of p².
    pub fn l_quotient(&mut self, name: &str, x: Var<Residue>, p: &Arc<Modulus>) -> Var<Residue> {
        self.single(x);
        let kind = Kind::Residues { modulus: p.clone(), rows: 1 };
        self.step(name, kind, Step::LQuotient, &[x.index])
    }

    /// Adds the number below `p·q` that is `a` mod p and `b` mod q, in `words` words.
    pub fn crt_join(
        &mut self,
        name: &str,
        (a, b): (Var<Residue>, Var<Residue>),
        crt: &Arc<Crt>,
        words: usize,
    ) -> Var<Integer> {
        assert!(Arc::ptr_eq(&self.modulus(a), &crt.p) && Arc::ptr_eq(&self.modulus(b), &crt.q));
        let step = Step::CrtJoin { crt: crt.clone() };
        self.step(name, Kind::Integers { words }, step, &[a.index, b.index])
    }

    /// Adds the residue of `p·q` that is `a` mod p and `b` mod q.
    pub fn crt_join_residues(
        &mut self,
        name: &str,
        (a, b): (Var<Residue>, Var<Residue>),
        crt: &Arc<Crt>,
        product: &Arc<Modulus>,
    ) -> Var<Residue> {
        let joined = self.crt_join(name, (a, b), crt, product.len_words());
        // The same step: only what its result is said to be differs.
        self.program.values[joined.index].kind =
            Kind::Residues { modulus: product.clone(), rows: 1 };
        Var { index: joined.index, kind: PhantomData }
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
        let (places, work) = (Places::new(&self.program), Work::new(&self.program));
        let shape = self.program.hash_shape();
        Program { places, work, shape, ..self.program }
    }
}
