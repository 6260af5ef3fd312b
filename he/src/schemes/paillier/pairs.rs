//! Ciphertexts as their digits in base n: into that form, and out of it with a power of the radix.

use std::sync::Arc;

use ciphergram_accel::{Builder, Engine, Modulus, Operand, Program, RunError};

use super::radix::RadixPowers;

/// The programs of a modulus' pairs, and the powers of their radix that were needed.
pub(super) struct Pairs {
    n_squared: Arc<Modulus>,
    pub(super) split: Program,
    pub(super) join: Program,
    pub(super) correct: Program,
    pub(super) add_assign: Program,
    radix_powers: RadixPowers,
}

impl Pairs {
    pub(super) fn new(n_squared: &Arc<Modulus>) -> Self {
        let mut b = Builder::new("paillier.split");
        let c = b.residues("c", n_squared);
        let pair = b.split("pair", c);
        b.output(pair);
        let split = b.build();

        let mut b = Builder::new("paillier.join");
        let pair = b.pairs("pair", n_squared);
        let c = b.join("c", pair);
        b.output(c);
        let join = b.build();

        let mut b = Builder::new("paillier.correct");
        let pair = b.pairs("pair", n_squared);
        let radix = b.shared_pair("radix", n_squared);
        let ordinary = b.pair_mul("ordinary", pair, radix);
        let c = b.join("c", ordinary);
        b.output(c);
        let correct = b.build();

        let mut b = Builder::new("paillier.add_assign");
        let sum = b.pair_sums("sum", n_squared);
        let c = b.pairs("c", n_squared);
        let product = b.pair_mul("product", sum, c);
        b.update(sum, product);
        let add_assign = b.build();

        let (n_squared, radix_powers) = (n_squared.clone(), RadixPowers::default());
        Self { n_squared, split, join, correct, add_assign, radix_powers }
    }

    /// Ordinary ciphertexts as pairs of the power 0.
    pub(super) fn split(&self, engine: &dyn Engine, words: &[u64]) -> Result<Vec<u64>, RunError> {
        let mut out = vec![0; words.len()];
        engine.run(&self.split, &mut [Operand::In(words), Operand::Out(&mut out)])?;
        Ok(out)
    }

    /// Returns the ordinary ciphertexts `c` of pairs that hold `c · R^power`, for a power that is
    /// at most 0: one product by `R^(1 − power)`, if it is not 0, and what the digits make.
    pub(super) fn join(
        &self,
        engine: &dyn Engine,
        words: &[u64],
        power: i32,
    ) -> Result<Vec<u64>, RunError> {
        let mut out = vec![0; words.len()];
        if power == 0 {
            engine.run(&self.join, &mut [Operand::In(words), Operand::Out(&mut out)])?;
        } else {
            let radix = self.radix_power(engine, 1i32.abs_diff(power))?;
            let mut operands = [Operand::In(words), Operand::In(&radix), Operand::Out(&mut out)];
            engine.run(&self.correct, &mut operands)?;
        }
        Ok(out)
    }

    /// Returns the pair of `R^power`.
    pub(super) fn radix_power(
        &self,
        engine: &dyn Engine,
        power: u32,
    ) -> Result<Arc<[u64]>, RunError> {
        let make = || self.split(engine, &self.n_squared.pair_radix_power(power));
        self.radix_powers.get(power, make)
    }
}
