//! Batched modular products and powers over any odd modulus.

use std::sync::Arc;

use ciphergram_accel::{Builder, Engine, Exponents, Modulus, Operand, Program, Residues, Secrecy};

use crate::{Error, error::OperandFault};

/// Multiplies and raises batches of public residues of one modulus on one engine.
pub struct ModArith {
    modulus: Arc<Modulus>,
    engine: Arc<dyn Engine>,
    mul: Program,
}

impl ModArith {
    /// Arithmetic modulo `modulus`.
    #[must_use]
    pub fn new(modulus: &Arc<Modulus>, engine: Arc<dyn Engine>) -> Self {
        let mut b = Builder::new("mod_mul");
        let (x, y) = (b.residues("a", modulus), b.residues("b", modulus));
        let product = b.mul("product", x, y);
        b.output(product);
        Self { modulus: modulus.clone(), engine, mul: b.build() }
    }

    /// Returns the program of [`ModArith::mod_exp`] for exponents of at most `bits` bits.
    #[must_use]
    pub fn mod_exp_program<S: Secrecy>(&self, bits: u32) -> Program {
        let mut b = Builder::new("mod_exp");
        let base = b.residues("base", &self.modulus);
        let e = b.exponents::<S>("e", bits);
        let power = b.pow("power", base, e);
        b.output(power);
        b.build()
    }

    fn check_modulus(
        &self,
        operation: &'static str,
        operand: &'static str,
        batch: &Residues,
    ) -> Result<(), Error> {
        if batch.modulus().words() == self.modulus.words() {
            return Ok(());
        }
        Err(Error::Operand { operation, operand, fault: OperandFault::Modulus })
    }

    /// Computes `a · b mod m` of each pair.
    ///
    /// # Errors
    /// Another modulus or number of items; the engine's.
    pub fn mod_mul(&self, a: &Residues, b: &Residues) -> Result<Residues, Error> {
        self.check_modulus("mod_mul", "a", a)?;
        self.check_modulus("mod_mul", "b", b)?;
        check_count("mod_mul", "b", b.count(), a.count())?;
        let mut out = Residues::zeros(self.modulus.clone(), a.count());
        let product = Operand::Out(out.words_mut());
        self.engine.run(&self.mul, &mut [a.into(), b.into(), product])?;
        Ok(out)
    }

    /// Computes `base^e mod m` of each pair, in time that does not depend on secret exponents.
    ///
    /// # Errors
    /// Another modulus or number of items; the engine's.
    pub fn mod_exp<S: Secrecy>(
        &self,
        bases: &Residues,
        exponents: &Exponents<S>,
    ) -> Result<Residues, Error>
    where
        for<'a> Operand<'a>: From<&'a Exponents<S>>,
    {
        self.check_modulus("mod_exp", "bases", bases)?;
        check_count("mod_exp", "exponents", exponents.count(), bases.count())?;
        let program = self.mod_exp_program::<S>(exponents.bits());
        let mut out = Residues::zeros(self.modulus.clone(), bases.count());
        let power = Operand::Out(out.words_mut());
        self.engine.run(&program, &mut [bases.into(), exponents.into(), power])?;
        Ok(out)
    }
}

fn check_count(
    operation: &'static str,
    operand: &'static str,
    found: usize,
    expected: usize,
) -> Result<(), Error> {
    if found == expected {
        return Ok(());
    }
    Err(Error::Operand { operation, operand, fault: OperandFault::Count { found, expected } })
}
