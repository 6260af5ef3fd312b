//! Programs that multiply ciphertexts by scalars: powers.

use ciphergram_accel::{Builder, Operand, Program, Public, Secrecy, Secret};

use super::Evaluator;
use crate::{
    Error,
    error::{CiphertextFault, OperandFault},
    schemes::paillier::{Ciphertexts, PaillierModulus, Scalars},
};

/// The programs for scalars of one bound on bits.
pub(super) struct Powers {
    pub(super) bits: u32,
    pub(super) public: Program,
    pub(super) secret: Program,
    pub(super) signed: Program,
}

impl Powers {
    pub(super) fn new(modulus: &PaillierModulus, bits: u32) -> Self {
        let n_squared = modulus.n_squared();
        let named = |name: &str| Builder::new(&format!("paillier.mul_plain_{name}_{bits}"));

        let mut b = named("signed");
        let (c, inverse) = (b.residues("c", n_squared), b.residues("inverse", n_squared));
        let negative = b.secret_bits("negative");
        let s = b.exponents::<Secret>("s", bits);
        let base = b.choose("base", negative, inverse, c);
        let product = b.pow("product", base, s);
        b.output(product);
        let signed = b.build();

        let (public, secret) = (named("public"), named("secret"));
        let public = powers::<Public>(public, modulus, bits);
        Self { bits, public, secret: powers::<Secret>(secret, modulus, bits), signed }
    }

    pub(super) fn programs(&self) -> [&Program; 3] {
        [&self.public, &self.secret, &self.signed]
    }
}

/// Computes `c^s` of each pair.
pub(super) fn powers<S: Secrecy>(mut b: Builder, modulus: &PaillierModulus, bits: u32) -> Program {
    let c = b.residues("c", modulus.n_squared());
    let s = b.exponents::<S>("s", bits);
    let product = b.pow("product", c, s);
    b.output(product);
    b.build()
}

/// Engines invert a batch for little more than the price of one and three products each.
pub(super) fn invert_program(modulus: &PaillierModulus) -> Program {
    let mut b = Builder::new("paillier.invert");
    let c = b.residues("c", modulus.n_squared());
    let inverse = b.invert("inverse", c);
    b.output(inverse);
    b.build()
}

impl Evaluator {
    /// Returns the inverses of ordinary ciphertexts. `index` gives their places in the operand, for
    /// errors.
    pub(super) fn invert(
        &self,
        operation: &'static str,
        words: &[u64],
        index: impl Fn(usize) -> usize,
    ) -> Result<Vec<u64>, Error> {
        let mut out = vec![0; words.len()];
        self.engine.run(&self.invert, &mut [Operand::In(words), Operand::Out(&mut out)])?;
        let mut inverses = out.chunks(self.modulus.ciphertext_words());
        match inverses.position(|inverse| inverse.iter().all(|&word| word == 0)) {
            Some(place) => {
                let bad = CiphertextFault::not_coprime(index(place));
                let fault = OperandFault::Ciphertext(bad);
                Err(Error::Operand { operation, operand: "c", fault })
            }
            None => Ok(out),
        }
    }

    /// Checks operands; gives the programs for scalars of this size.
    pub(super) fn powers<S: Secrecy>(
        &self,
        operation: &'static str,
        c: &Ciphertexts,
        scalars: &Scalars<S>,
    ) -> Result<&Powers, Error> {
        self.check(operation, "c", c.modulus(), [0, 0])?;
        self.check(operation, "scalars", c.modulus(), [scalars.count(), c.count()])?;
        let fault = OperandFault::Modulus;
        let found = self.powers.iter().find(|powers| powers.bits == scalars.bits());
        found.ok_or(Error::Operand { operation, operand: "scalars", fault })
    }
}
