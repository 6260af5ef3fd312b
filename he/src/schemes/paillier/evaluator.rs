//! Operations on batches of ciphertexts without the secret key.

mod matvec;
mod powers;
mod segments;

use std::sync::Arc;

use ciphergram_accel::{Builder, Engine, Operand, Program, Public, Secret};

use self::powers::Powers;
use super::{
    Ciphertexts, PaillierModulus, Plaintexts, Scalars,
    ciphertexts::product_power,
    modulus::one,
    words::{gather, scatter},
};
use crate::{Error, error::OperandFault};

/// Adds, multiplies and sums batches of ciphertexts under one modulus on one engine.
///
/// Each operation is a program, built once. What it makes decrypts as named below; what it makes is
/// not masked anew, so it hides its operands only from those who have not seen them: add an
/// encryption of 0 where that matters.
///
/// # Errors
/// All operations refuse operands of another modulus, or of another number of items, and sums those
/// of another scale, as [`Error::Operand`], and pass on what the engine refuses; below stands what
/// else they refuse.
pub struct Evaluator {
    modulus: PaillierModulus,
    engine: Arc<dyn Engine>,
    add: Program,
    add_plain: Program,
    /// By scalars of one word, and of the size of n.
    powers: [Powers; 2],
    invert: Program,
}

impl Evaluator {
    /// Makes an evaluator of ciphertexts under `modulus`.
    #[must_use]
    pub fn new(modulus: &PaillierModulus, engine: Arc<dyn Engine>) -> Self {
        let n_squared = modulus.n_squared();
        let mut b = Builder::new("paillier.add");
        let (x, y) = (b.pairs("a", n_squared), b.pairs("b", n_squared));
        let sum = b.pair_mul("sum", x, y);
        b.output(sum);
        let add = b.build();
        let mut b = Builder::new("paillier.add_plain");
        let c = b.pairs("c", n_squared);
        let m = b.integers("m", modulus.n().len_words());
        let plain = b.one_plus_mn_pair("plain", m, n_squared);
        let sum = b.pair_mul("sum", c, plain);
        b.output(sum);
        let add_plain = b.build();
        Self {
            add,
            add_plain,
            powers: [64, modulus.n().bits()].map(|bits| Powers::new(modulus, bits)),
            invert: powers::invert_program(modulus),
            modulus: modulus.clone(),
            engine,
        }
    }

    /// Returns the programs that the operations run, each under a name of its own. Those of
    /// [`Evaluator::matvec`] depend on the matrix: see [`Evaluator::matvec_program`].
    #[must_use]
    pub fn programs(&self) -> Vec<&Program> {
        let (scale, product) = (self.modulus.scale_program(), self.modulus.product_program());
        let pairs = self.modulus.pairs();
        let mut all = vec![&self.add, &pairs.add_assign, &self.add_plain, scale, product];
        all.extend([&pairs.split, &pairs.join, &pairs.correct]);
        all.extend(self.powers.iter().flat_map(Powers::programs));
        all.push(&self.invert);
        all
    }

    fn check(
        &self,
        operation: &'static str,
        operand: &'static str,
        modulus: &PaillierModulus,
        [found, expected]: [usize; 2],
    ) -> Result<(), Error> {
        let fault = if !self.modulus.is_same(modulus) {
            OperandFault::Modulus
        } else if found != expected {
            OperandFault::Count { found, expected }
        } else {
            return Ok(());
        };
        Err(Error::Operand { operation, operand, fault })
    }

    fn check_pair(
        &self,
        operation: &'static str,
        a: &Ciphertexts,
        b: &Ciphertexts,
    ) -> Result<(), Error> {
        self.check(operation, "a", a.modulus(), [a.count(), a.count()])?;
        self.check(operation, "b", b.modulus(), [b.count(), a.count()])?;
        check_scale(operation, "b", [b.scale(), a.scale()])
    }

    /// Room for `count` ciphertexts.
    fn room(&self, count: usize) -> Vec<u64> {
        vec![0; count * self.modulus.ciphertext_words()]
    }

    fn made(&self, words: Vec<u64>) -> Ciphertexts {
        Ciphertexts::ordinary(&self.modulus, words)
    }

    /// Makes a batch ordinary, in place: one product of pairs an item, none if the power is 0.
    ///
    /// # Errors
    /// Another modulus; the engine's.
    pub fn correct(&self, c: &mut Ciphertexts) -> Result<(), Error> {
        self.check("correct", "c", c.modulus(), [0, 0])?;
        c.correct(&*self.engine)
    }

    fn corrected(&self, c: &Ciphertexts) -> Result<Ciphertexts, Error> {
        Ok(self.made(c.to_ordinary(&*self.engine)?.into_owned()).at_scale(c.scale()))
    }

    /// Computes `a + b mod n` of each pair: one product of pairs of digits.
    ///
    /// # Errors
    /// See [`Evaluator`].
    pub fn add(&self, a: &Ciphertexts, b: &Ciphertexts) -> Result<Ciphertexts, Error> {
        self.check_pair("add", a, b)?;
        let Some(power) = product_power(a.power(), b.power()) else {
            return self.add(&self.corrected(a)?, &self.corrected(b)?);
        };
        let (mut out, scale) = (self.room(a.count()), a.scale());
        let (a, b) = (a.to_pairs(&*self.engine)?, b.to_pairs(&*self.engine)?);
        let mut operands = [Operand::In(&a), Operand::In(&b), Operand::Out(&mut out)];
        self.engine.run(&self.add, &mut operands)?;
        Ok(Ciphertexts::pairs(&self.modulus, out, power).at_scale(scale))
    }

    /// [`Evaluator::add`] with the sums in the place of `a`.
    ///
    /// # Errors
    /// See [`Evaluator`]; `a` is as it was then.
    pub fn add_assign(&self, a: &mut Ciphertexts, b: &Ciphertexts) -> Result<(), Error> {
        self.check_pair("add_assign", a, b)?;
        let Some(sum_power) = product_power(a.power(), b.power()) else {
            a.correct(&*self.engine)?;
            return self.add_assign(a, &self.corrected(b)?);
        };
        let b = b.to_pairs(&*self.engine)?;
        let (words, power) = a.pairs_mut(&*self.engine)?;
        let mut operands = [Operand::InOut(words), Operand::In(&b)];
        self.engine.run(&self.modulus.pairs().add_assign, &mut operands)?;
        *power = sum_power;
        Ok(())
    }

    /// Computes `c + m mod n` of each pair: one product by `1 + m·n`, whose digits are 1 and m.
    /// Constant time in `m`.
    ///
    /// # Errors
    /// See [`Evaluator`].
    pub fn add_plain(&self, c: &Ciphertexts, m: &Plaintexts) -> Result<Ciphertexts, Error> {
        self.check("add_plain", "c", c.modulus(), [0, 0])?;
        self.check("add_plain", "m", m.modulus(), [m.count(), c.count()])?;
        check_scale("add_plain", "m", [m.scale(), c.scale()])?;
        let Some(power) = product_power(c.power(), 0) else {
            return self.add_plain(&self.corrected(c)?, m);
        };
        let mut out = self.room(c.count());
        let c = c.to_pairs(&*self.engine)?;
        let mut operands = [Operand::In(&c), Operand::SecretIn(m.words()), Operand::Out(&mut out)];
        self.engine.run(&self.add_plain, &mut operands)?;
        Ok(Ciphertexts::pairs(&self.modulus, out, power).at_scale(m.scale()))
    }

    /// Returns the sum of the whole batch, one ciphertext; of none, the number 1, which decrypts to
    /// 0 and hides nothing.
    ///
    /// # Errors
    /// See [`Evaluator`].
    pub fn sum(&self, c: &Ciphertexts) -> Result<Ciphertexts, Error> {
        self.check("sum", "c", c.modulus(), [0, 0])?;
        let items: Vec<_> = (0..c.count()).collect();
        self.segment_sum(c, (&items, &vec![0; c.count()]), 1)
    }

    /// Computes `c · s mod n` of each pair, for public scalars, whose scale is added to that of `c`.
    /// Takes time by the length of each scalar: none for 0 and 1, and an inverse, which many share,
    /// for a negative one.
    ///
    /// # Errors
    /// See [`Evaluator`]; a ciphertext that is not coprime to n under a negative scalar.
    pub fn mul_plain_public(
        &self,
        c: &Ciphertexts,
        scalars: &Scalars<Public>,
    ) -> Result<Ciphertexts, Error> {
        const OPERATION: &str = "mul_plain_public";
        self.powers(OPERATION, c, scalars)?;
        let k = self.modulus.ciphertext_words();
        let mut product = c.clone().at_scale(c.scale().saturating_add(scalars.scale()));
        let signs = scalars.negative().unwrap_or_default();
        let negative: Vec<_> = (0..signs.len()).filter(|&i| signs[i] == 1).collect();
        if !negative.is_empty() {
            let words = product.ordinary_mut(&*self.engine)?;
            let inverses = self.invert(OPERATION, &gather(words, k, &negative), |i| negative[i])?;
            scatter(words, k, &negative, &inverses);
        }
        let lengths = scalars.lengths();
        let zeros: Vec<_> = (0..c.count()).filter(|&i| lengths[i] == 0).collect();
        if !zeros.is_empty() {
            let words = product.ordinary_mut(&*self.engine)?;
            zeros.iter().for_each(|&i| words[i * k..][..k].copy_from_slice(&one(k)));
        }
        self.raise(&mut product, scalars, &lengths)?;
        Ok(product)
    }

    /// Raises the ciphertexts whose scalars are longer than a bit to their magnitudes.
    fn raise(
        &self,
        c: &mut Ciphertexts,
        scalars: &Scalars<Public>,
        lengths: &[usize],
    ) -> Result<(), Error> {
        // Sorted, since an engine takes several at a time, in the time of the longest.
        let mut long: Vec<_> = (0..lengths.len()).filter(|&i| lengths[i] > 1).collect();
        long.sort_by_key(|&i| lengths[i]);
        let Some(&longest) = long.last() else { return Ok(()) };
        let powers = &self.powers[usize::from(lengths[longest] > 64)];
        let exponents = scalars.magnitudes_of(&long, powers.bits.div_ceil(64) as usize);
        let k = self.modulus.ciphertext_words();
        let words = c.ordinary_mut(&*self.engine)?;
        let (bases, mut out) = (gather(words, k, &long), self.room(long.len()));
        let mut operands = [Operand::In(&bases), Operand::In(&exponents), Operand::Out(&mut out)];
        self.engine.run(&powers.public, &mut operands)?;
        scatter(words, k, &long, &out);
        Ok(())
    }

    /// Computes [`Evaluator::mul_plain_public`] for secret scalars, in constant time. If there are
    /// signs, every ciphertext is inverted, and which of the two is raised does not show.
    ///
    /// # Errors
    /// See [`Evaluator`]; a ciphertext that is not coprime to n, if there are signs.
    pub fn mul_plain(
        &self,
        c: &Ciphertexts,
        scalars: &Scalars<Secret>,
    ) -> Result<Ciphertexts, Error> {
        const OPERATION: &str = "mul_plain";
        let powers = self.powers(OPERATION, c, scalars)?;
        let bases = c.to_ordinary(&*self.engine)?;
        let mut out = self.room(c.count());
        let exponents = Operand::SecretIn(scalars.magnitudes());
        if let Some(negative) = scalars.negative() {
            let inverses = self.invert(OPERATION, &bases, |place| place)?;
            let (bases, inverses) = (Operand::In(&bases), Operand::In(&inverses));
            let negative = Operand::SecretIn(negative);
            let mut operands = [bases, inverses, negative, exponents, Operand::Out(&mut out)];
            self.engine.run(&powers.signed, &mut operands)?;
        } else {
            let mut operands = [Operand::In(&bases), exponents, Operand::Out(&mut out)];
            self.engine.run(&powers.secret, &mut operands)?;
        }
        Ok(self.made(out).at_scale(c.scale().saturating_add(scalars.scale())))
    }
}

/// Refuses an operand of another scale.
fn check_scale(
    operation: &'static str,
    operand: &'static str,
    [found, expected]: [u32; 2],
) -> Result<(), Error> {
    if found == expected {
        return Ok(());
    }
    Err(Error::Operand { operation, operand, fault: OperandFault::Scale { found, expected } })
}
