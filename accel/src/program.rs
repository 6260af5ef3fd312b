//! Programs: straight-line dataflows over batches.
//!
//! A program is a list of typed values. Each value is an input, a constant or the result of one
//! [`Step`] over earlier values; some are outputs. It describes what happens to **one item** of
//! every batch; an engine applies it to all items. There is no control flow, so what a program does
//! can be printed, scheduled, or wired into hardware.
//!
//! Programs are built with a [`Builder`], whose handles carry their kind as a Rust type, and
//! printed with `Display`. They hold the constants of a key, so they have no `Debug`, and constants
//! are zeroized with the last program that has them and never printed.

mod builder;
mod places;
mod step;
mod text;

use std::{
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::Arc,
};

use zeroize::Zeroizing;

pub use builder::{
    Beat, Builder, Coeff, Exponent, Integer, Lanes, MAX_TERMS, Ntt, Pair, Residue, Seed, Var,
};
pub(crate) use places::{PrimeOperand, PrimeStep, Task, ValuePlace, ValuePlaces};
pub use step::{
    LaneOp, LaneStep, LimbOp, LimbStep, PairOp, ResidueOp, ResidueStep, RingOp, RingStep, Step,
};

use crate::{
    beats,
    modulus::Modulus,
    ring::{Ring, mul_mod_vartime},
    words::Words,
};

/// The kind of one item of a value.
#[derive(Clone)]
pub enum Kind {
    /// Any little-endian integer, or several side by side, of `words` words in all.
    Integers {
        /// Words of one item.
        words: usize,
    },
    /// `rows` residues below a modulus.
    Residues {
        /// The modulus.
        modulus: Arc<Modulus>,
        /// Residues in one item.
        rows: usize,
    },
    /// A residue below a square s², as its two digits in base s: `x₀ + x₁·s`, both below s.
    Pairs {
        /// The square.
        modulus: Arc<Modulus>,
        /// s.
        root: Arc<Modulus>,
    },
    /// `count` exponents.
    Exponents {
        /// The bound on the size of each.
        bits: u32,
        /// Exponents in one item.
        count: usize,
    },
    /// One polynomial, `[limb][coefficient]`.
    Polys {
        /// The ring.
        ring: Arc<Ring>,
        /// Whether in NTT form.
        ntt: bool,
    },
    /// `count` beats of ten residues, starting at limb 0 of a coefficient.
    Beats {
        /// The ring.
        ring: Arc<Ring>,
        /// Beats in one item.
        count: usize,
    },
    /// Sums of the lanes of `count` beats, a word each, not reduced; and a word behind them: how many of the lanes
    /// added were no residues. See [`beats::add_lanes`].
    Lanes {
        /// The ring.
        ring: Arc<Ring>,
        /// Beats in one item.
        count: usize,
    },
    /// `count` ChaCha keys of 32 bytes.
    Seeds {
        /// Keys in one item.
        count: usize,
    },
}

impl Kind {
    /// Returns whether items of both mean the same: equal shapes over one modulus or ring.
    #[must_use]
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.words() == other.words()
            && match (self, other) {
                (Self::Residues { modulus: a, .. }, Self::Residues { modulus: b, .. })
                | (Self::Pairs { modulus: a, .. }, Self::Pairs { modulus: b, .. }) => {
                    Arc::ptr_eq(a, b)
                }
                (Self::Polys { ring: a, ntt: x }, Self::Polys { ring: b, ntt: y }) => {
                    Arc::ptr_eq(a, b) && x == y
                }
                (Self::Beats { ring: a, .. }, Self::Beats { ring: b, .. })
                | (Self::Lanes { ring: a, .. }, Self::Lanes { ring: b, .. }) => Arc::ptr_eq(a, b),
                _ => std::mem::discriminant(self) == std::mem::discriminant(other),
            }
    }

    /// Returns the words of one item.
    #[must_use]
    pub fn words(&self) -> usize {
        match self {
            Self::Integers { words } => *words,
            Self::Residues { modulus, rows } => modulus.len_words() * rows,
            Self::Pairs { root, .. } => 2 * root.len_words(),
            Self::Exponents { bits, count } => bits.div_ceil(64) as usize * count,
            Self::Polys { ring, .. } => ring.len_words(),
            Self::Beats { count, .. } => count * beats::WORDS,
            Self::Lanes { count, .. } => beats::lane_words(*count),
            Self::Seeds { count } => count * 4,
        }
    }
}

/// The layout of an input over the batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spread {
    /// One item for each item of the batch.
    Each,
    /// One item that the whole batch shares.
    Shared,
    /// One item each, read at the start and overwritten at the end: an accumulator.
    Update,
}

/// The base of [`ResidueOp::PowFixedBase`]: engines keep a table of its powers.
pub struct FixedBase {
    name: String,
    modulus: Arc<Modulus>,
    base: Zeroizing<Vec<u64>>,
    factor: Option<Zeroizing<Vec<u64>>>,
    exponent_bits: u32,
}

impl FixedBase {
    /// Makes a base below the modulus, for exponents of at most `exponent_bits` bits. `name` is
    /// for the text form.
    ///
    /// # Panics
    /// If `base` has another length than the modulus, or `exponent_bits` is 0.
    #[must_use]
    pub fn new(name: &str, modulus: Arc<Modulus>, base: &[u64], exponent_bits: u32) -> Self {
        assert!(base.len() == modulus.len_words() && exponent_bits > 0, "a residue and a bound");
        let base = Zeroizing::new(base.to_vec());
        Self { name: name.into(), modulus, base, factor: None, exponent_bits }
    }

    /// Multiplies every power by `factor`, which costs nothing: it goes into the table.
    /// A factor R, say, makes up for a Montgomery product that follows.
    ///
    /// # Panics
    /// If `factor` has another length than the modulus.
    #[must_use]
    pub fn times(mut self, factor: &[u64]) -> Self {
        assert_eq!(factor.len(), self.modulus.len_words(), "a residue");
        self.factor = Some(Zeroizing::new(factor.to_vec()));
        self
    }

    /// Returns the modulus.
    #[must_use]
    pub fn modulus(&self) -> &Arc<Modulus> {
        &self.modulus
    }

    /// Returns the bound on exponents, in bits.
    #[must_use]
    pub fn exponent_bits(&self) -> u32 {
        self.exponent_bits
    }

    pub(crate) fn base(&self) -> &[u64] {
        &self.base
    }

    pub(crate) fn factor(&self) -> Option<&[u64]> {
        self.factor.as_ref().map(|factor| factor.as_slice())
    }
}

/// The constants of [`ResidueStep::CrtJoin`].
pub struct Crt {
    p: Arc<Modulus>,
    q: Arc<Modulus>,
    p_inverse: Zeroizing<Vec<u64>>,
}

impl Crt {
    /// Makes the constants for p and q; `p_inverse` is `p⁻¹ mod q`, in the words of q.
    ///
    /// # Panics
    /// If the length differs, or p has more words than q.
    #[must_use]
    pub fn new(p: Arc<Modulus>, q: Arc<Modulus>, p_inverse: &[u64]) -> Self {
        assert!(p.len_words() <= q.len_words(), "p has no more words than q");
        assert_eq!(p_inverse.len(), q.len_words(), "a residue of q");
        Self { p, q, p_inverse: Zeroizing::new(p_inverse.to_vec()) }
    }

    pub(crate) fn p(&self) -> &Arc<Modulus> {
        &self.p
    }

    pub(crate) fn q(&self) -> &Arc<Modulus> {
        &self.q
    }

    /// Returns `p⁻¹ mod q`, as secret as p and q.
    #[must_use]
    pub fn p_inverse(&self) -> &[u64] {
        &self.p_inverse
    }
}

/// The constants of [`RingOp::BaseExtend`]. All public.
///
/// A number below Q has digits `v_j` in the mixed radix of its primes: it is the sum of `v_j · q_0
/// … q_(j−1)`. The digits of `y = x + (Q − 1) / 2` give a centred x modulo any prime with nothing
/// to compare: `x = Σ v_j · q_0 … q_(j−1) − (Q − 1) / 2`. And a residue of y is that of x plus
/// `(q_j − 1) / 2`, which is (Q − 1) / 2 modulo `q_j`: both are −1/2.
///
/// # Cost
/// Of k primes, digits take k·(k − 1)/2 products a number, and each prime of `to` k more. Doubles in place of digits
/// (Halevi, Polyakov and Shoup, 2019) take k products and a sum of k doubles, and k + 1 products for each prime: from 1
/// to t primes t here and 1 + 2t there, from 2 to 8 17 and 26, from 5 to 15 85 and 95, from 8 to 8 92 and 80. But
/// doubles are off near ±Q/2, where a number may get a multiple of Q, and engines that round otherwise would differ.
pub struct BaseExtension {
    rows: Vec<ExtensionRow>,
}

/// How residues of one prime are made of digits: `Σ v_j · weights_j + shift`.
pub(crate) struct ExtensionRow {
    pub(crate) prime: u64,
    pub(crate) shift: u64,
    pub(crate) weights: Vec<u64>,
}

impl BaseExtension {
    fn new(from: &Ring, to: &Ring) -> Self {
        let row = |&p: &u64| {
            let (mut weights, mut weight, mut half) = (vec![], 1, 0);
            for &q in from.primes() {
                // (Q − 1) / 2 has the digits (q_j − 1) / 2.
                half = (half + mul_mod_vartime(weight, q / 2, p)) % p;
                weights.push(weight);
                weight = mul_mod_vartime(weight, q, p);
            }
            ExtensionRow { prime: p, shift: (p - half) % p, weights }
        };
        Self { rows: to.primes().iter().map(row).collect() }
    }

    /// Returns the rows, one for each prime of the result.
    pub(crate) fn rows(&self) -> &[ExtensionRow] {
        &self.rows
    }
}

/// The constants of [`LimbOp::Scale`], each below its prime. All public.
pub struct ScaleFactors(Vec<u64>);

impl ScaleFactors {
    /// Returns the factors, in limb order.
    pub(crate) fn words(&self) -> &[u64] {
        &self.0
    }
}

/// Numbers that programs have in common, and hold once: a key is one of these.
#[derive(Clone)]
pub struct Constant {
    words: Arc<Zeroizing<Words>>,
    first: usize,
    count: usize,
}

impl Constant {
    /// Takes words.
    #[must_use]
    pub fn new(words: Vec<u64>) -> Self {
        let count = words.len();
        let words = Zeroizing::new(words);
        Self { words: Arc::new(Zeroizing::new(Words::from(&words[..]))), first: 0, count }
    }

    /// Makes `count` words that `fill` writes in place: large ones need not be copied, and wiped behind that.
    ///
    /// # Errors
    /// Those of `fill`.
    pub fn filled<E>(
        count: usize,
        fill: impl FnOnce(&mut [u64]) -> Result<(), E>,
    ) -> Result<Self, E> {
        let mut words = Zeroizing::new(Words::zeros(count));
        fill(&mut words)?;
        Ok(Self { words: Arc::new(words), first: 0, count })
    }

    /// Returns `count` of its words, from word `first` on, in the same memory.
    ///
    /// # Panics
    /// If there are no such words.
    #[must_use]
    pub fn part(&self, first: usize, count: usize) -> Self {
        assert!(first + count <= self.count, "a part of a constant lies in it");
        Self { words: self.words.clone(), first: self.first + first, count }
    }

    /// Returns the words.
    #[must_use]
    pub fn words(&self) -> &[u64] {
        &self.words[self.first..][..self.count]
    }
}

/// The source of a value.
pub enum Source {
    /// An operand of the run.
    Input {
        /// How the operand's items are laid over the batch.
        spread: Spread,
    },
    /// One item, fixed when the program was built.
    Constant(Constant),
    /// The result of a step.
    Step {
        /// The operation.
        step: Step,
        /// Indices of its operands among the program's values.
        operands: Vec<usize>,
    },
}

/// One value of a program.
pub struct Value {
    /// Its name in the text form.
    pub name: String,
    /// The kind of one item.
    pub kind: Kind,
    /// Its source.
    pub source: Source,
    /// Whether it must not influence timing: a secret input or constant, or a result of one.
    pub secret: bool,
}

/// A straight-line dataflow over one item of every operand. See the [module](self) documentation.
pub struct Program {
    name: String,
    values: Vec<Value>,
    /// Results, in the order of the output operands.
    outputs: Vec<usize>,
    /// (input with [`Spread::Update`], the value that replaces it).
    updates: Vec<(usize, usize)>,
    places: ValuePlaces,
    work: Work,
    shape: u64,
}

/// The kind of work of a program, by which hosts cut batches. Found when it is built: short runs would feel the search.
#[derive(Clone, Copy)]
pub(crate) enum Work {
    /// Beats and their lanes alone, at most `of_item` of them in a value of one item, 1 at least.
    Beats { of_item: usize },
    /// Polynomials, and no big residues.
    Polynomials,
    /// Big residues: whether a step takes many products for each item, and whether one is a simultaneous power.
    Residues { powers: bool, dot: bool },
}

impl Work {
    fn new(program: &Program) -> Self {
        let any = |is: fn(&Step) -> bool| program.steps().any(is);
        if any(Step::is_of_residues) {
            let dot = any(|step| {
                let Step::Residue(ResidueStep::Residue { op, .. }) = step else { return false };
                matches!(op, ResidueOp::Dot { .. })
            });
            return Self::Residues { powers: any(Step::is_of_powers), dot };
        }
        if !program.steps().all(|step| matches!(step, Step::Lane(_))) {
            return Self::Polynomials;
        }
        let beats = |value: &Value| match value.kind {
            Kind::Beats { count, .. } | Kind::Lanes { count, .. } => count,
            _ => 1,
        };
        Self::Beats { of_item: program.values().iter().map(beats).fold(1, usize::max) }
    }
}

impl Program {
    /// Returns the name, such as `paillier.encrypt`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns all values, operands before results.
    #[must_use]
    pub fn values(&self) -> &[Value] {
        &self.values
    }

    /// Returns the indices of the outputs.
    #[must_use]
    pub fn outputs(&self) -> &[usize] {
        &self.outputs
    }

    /// Returns pairs of accumulator input and the value that replaces it.
    #[must_use]
    pub fn updates(&self) -> &[(usize, usize)] {
        &self.updates
    }

    /// Returns a hash of the name, steps and sizes in words and bits: all that the time of a run
    /// depends on. Keys and numbers do not count.
    pub(crate) fn shape(&self) -> u64 {
        self.shape
    }

    fn hash_shape(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.name.hash(&mut hasher);
        self.steps().for_each(|step| step.name().hash(&mut hasher));
        for Value { kind, .. } in &self.values {
            kind.words().hash(&mut hasher);
            if let Kind::Exponents { bits, .. } = kind {
                bits.hash(&mut hasher);
            }
        }
        hasher.finish()
    }

    /// Returns the places of values on the host.
    pub(crate) fn places(&self) -> &ValuePlaces {
        &self.places
    }

    /// Returns the kind of its work.
    pub(crate) fn work(&self) -> Work {
        self.work
    }

    /// Returns the layout over the batch of the value that operand `operand` binds, if it is an
    /// input.
    pub(crate) fn spread(&self, operand: usize) -> Option<Spread> {
        match self.values[self.places.bound[operand]].source {
            Source::Input { spread } => Some(spread),
            _ => None,
        }
    }

    /// Returns indices and spreads of the inputs, in operand order.
    pub fn inputs(&self) -> impl Iterator<Item = (usize, Spread)> + '_ {
        self.values.iter().enumerate().filter_map(|(i, v)| match v.source {
            Source::Input { spread } => Some((i, spread)),
            _ => None,
        })
    }

    /// Returns the steps, in order.
    pub fn steps(&self) -> impl Iterator<Item = &Step> {
        self.values.iter().filter_map(|v| match &v.source {
            Source::Step { step, .. } => Some(step),
            _ => None,
        })
    }

    /// Returns the transforms of residues of one prime that an item takes: the unit in which work
    /// over polynomials is counted.
    #[must_use]
    pub fn transforms(&self) -> usize {
        let of = |step: &Step| match step {
            Step::Limb(LimbStep { op: LimbOp::Ntt | LimbOp::Intt, ring, .. }) => {
                ring.primes().len()
            }
            _ => 0,
        };
        self.steps().map(of).sum()
    }

    /// Returns whether any input or constant is secret, so that memory where secrets come to lie must be wiped.
    #[must_use]
    pub fn has_secrets(&self) -> bool {
        self.values.iter().any(|v| v.secret)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Public;

    /// Exponents of a few bits take less time than those of many in as many words.
    #[test]
    fn programs_of_other_exponents_are_of_another_shape() {
        let m = Arc::new(Modulus::new("m", &[7]).unwrap());
        let [a, b, c] = [8, 64, 8].map(|bits| {
            let mut b = Builder::new("power");
            let (x, e) = (b.residues("x", &m), b.exponents::<Public>("e", bits));
            let power = b.pow("power", x, e);
            b.output(power);
            b.build().shape()
        });
        assert!(a != b && a == c);
    }
}
