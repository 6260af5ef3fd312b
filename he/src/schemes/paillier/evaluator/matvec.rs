//! The product of a matrix of integers and a vector of ciphertexts.

use ciphergram_accel::{Builder, Operand, Program, Public, Secrecy};

use super::{Evaluator, powers::powers};
use crate::{
    Error,
    error::{CiphertextFault, OperandFault},
    schemes::paillier::{Ciphertexts, Matrix, modulus::one, scalars::operand},
};

const OPERATION: &str = "matvec";

impl Evaluator {
    /// Returns the program of [`Evaluator::matvec`] for a matrix of this shape and bound: each
    /// row's product of powers, over bases that all rows share. Of a single row, which has nobody
    /// to share with, each power alone: engines compute several items at a time, and the columns
    /// are items then.
    ///
    /// # Panics
    /// If there are several rows and no columns.
    #[must_use]
    pub fn matvec_program<S: Secrecy>(&self, matrix: &Matrix<S>) -> Program {
        let (columns, bits) = (matrix.columns(), matrix.bits());
        if matrix.rows() == 1 {
            return powers::<S>(Builder::new("paillier.matvec_row"), &self.modulus, bits);
        }
        let mut b = Builder::new("paillier.matvec");
        let c = b.shared_residues("c", self.modulus.n_squared(), columns);
        let u = b.exponent_rows::<S>("u", bits, columns);
        let y = b.dot("y", c, u);
        b.output(y);
        b.build()
    }

    /// Computes `y_j = Σ_i m_ji · c_i mod n` for each row j of the matrix, one scalar of the row
    /// for each ciphertext of the vector, whose scales are added; the zero that hides nothing, 1, for a matrix without
    /// columns. Constant time in the entries of a secret matrix.
    ///
    /// A matrix with signs is raised by `2^(bits − 1)` to be none, and every row corrected by the
    /// common factor `(Π c_i)^(−2^(bits − 1))`.
    ///
    /// # Errors
    /// See [`Evaluator`]; a ciphertext that is not coprime to n, if the matrix has signs.
    pub fn matvec<S: Secrecy>(
        &self,
        vector: &Ciphertexts,
        matrix: &Matrix<S>,
    ) -> Result<Ciphertexts, Error> {
        let (rows, columns) = (matrix.rows(), matrix.columns());
        self.check(OPERATION, "vector", vector.modulus(), [vector.count(), columns])?;
        let scale = vector.scale().saturating_add(matrix.scale());
        if rows == 0 || columns == 0 {
            let k = self.modulus.ciphertext_words();
            return Ok(self.made((0..rows).flat_map(|_| one(k)).collect()).at_scale(scale));
        }
        let bases = vector.to_ordinary(&*self.engine)?;
        let mut out = self.room(if rows == 1 { columns } else { rows });
        let exponents = operand::<S>(matrix.exponents());
        let mut operands = [Operand::In(&bases), exponents, Operand::Out(&mut out)];
        self.engine.run(&self.matvec_program(matrix), &mut operands)?;
        if rows == 1 {
            out = self.modulus.product(&*self.engine, &out)?;
        }
        if matrix.is_signed() {
            self.lower(&mut out, &bases, matrix.bits())?;
        }
        Ok(self.made(out).at_scale(scale))
    }

    /// Takes from every row what raising the entries added.
    fn lower(&self, y: &mut [u64], vector: &[u64], bits: u32) -> Result<(), Error> {
        let mut b = Builder::new("paillier.matvec_offset");
        let total = b.residues("total", self.modulus.n_squared());
        let e = b.public_exponent("e", bits, &[1 << (bits - 1)]);
        let raised = b.pow::<Public>("raised", total, e);
        let offset = b.invert("offset", raised);
        b.output(offset);
        let total = self.modulus.product(&*self.engine, vector)?;
        let mut offset = self.room(1);
        self.engine.run(&b.build(), &mut [Operand::In(&total), Operand::Out(&mut offset)])?;
        if offset.iter().all(|&word| word == 0) {
            let found = self.modulus.coprimality_fault(&*self.engine, vector)?;
            let bad = found.unwrap_or(CiphertextFault::not_coprime(0));
            let fault = OperandFault::Ciphertext(bad);
            return Err(Error::Operand { operation: OPERATION, operand: "vector", fault });
        }
        // With one R in the factor, a Montgomery product is an ordinary one.
        let (radix, scale) = (self.modulus.radix_power(2), self.modulus.scale_program());
        self.engine.run(scale, &mut [Operand::InOut(&mut offset), Operand::In(&radix)])?;
        self.engine.run(scale, &mut [Operand::InOut(y), Operand::In(&offset)])?;
        Ok(())
    }
}
