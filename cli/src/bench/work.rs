//! A batch of each operation.

use std::{hint::black_box, sync::Arc};

use ciphergram_accel::{Engine, Exponents, Modulus, Public, Residues, Secret, random::StreamRng};
use ciphergram_he::{
    Error, ModArith,
    paillier::{Ciphertexts, Encryptor, Evaluator, Matrix, PaillierModulus, Plaintexts, Scalars},
};
use rand_core::Rng;

use super::{
    key::Key,
    metered::Metered,
    operation::{MATRIX_BITS, MATRIX_COLUMNS, Operation},
    sampling::Work,
};
use crate::failure::Failure;

/// Makes batches under one key for one engine.
pub(super) struct Workshop<'k> {
    pub(super) key: &'k Key,
    pub(super) engine: Arc<Metered>,
    pub(super) rng: StreamRng,
}

/// Keeps what was computed from being left out, and passes errors on.
fn done<T>(result: Result<T, Error>) -> Result<(), Failure> {
    black_box(result?);
    Ok(())
}

impl<'k> Workshop<'k> {
    /// Returns a batch of `count` of `operation`; of a matrix product, `count` entries in whole
    /// rows.
    pub(super) fn work(
        &mut self,
        operation: Operation,
        count: usize,
    ) -> Result<Box<dyn Work + 'k>, Failure> {
        let modulus = self.key.modulus()?;
        let evaluator = Evaluator::new(modulus, self.engine.clone());
        Ok(match operation {
            Operation::Encrypt => {
                let encryptor = Encryptor::new(modulus, &*self.engine)?;
                self.encrypt(encryptor, count)?
            }
            Operation::EncryptOwner => {
                let encryptor = Encryptor::for_owner(self.key.secret()?, &*self.engine)?;
                self.encrypt(encryptor, count)?
            }
            Operation::Decrypt => self.decrypt(count)?,
            Operation::Add => {
                let (a, b) = (self.ciphertexts(count)?, self.ciphertexts(count)?);
                Box::new(move || done(evaluator.add(&a, &b)))
            }
            Operation::AddPlain => {
                let (c, m) = (self.ciphertexts(count)?, self.plaintexts(count)?);
                Box::new(move || done(evaluator.add_plain(&c, &m)))
            }
            Operation::MulPlain => {
                let c = self.ciphertexts(count)?;
                let scalars = Scalars::<Secret>::from_u64(&self.words(count, 1, 64));
                Box::new(move || done(evaluator.mul_plain(&c, &scalars)))
            }
            Operation::Sum => {
                let c = self.ciphertexts(count)?;
                Box::new(move || done(evaluator.sum(&c)))
            }
            Operation::Matvec => {
                let c = self.ciphertexts(MATRIX_COLUMNS)?;
                let rows = count / MATRIX_COLUMNS;
                let entries = self.words(rows * MATRIX_COLUMNS, 1, MATRIX_BITS);
                let signed = |&entry: &u64| i64::from(entry as u16 as i16);
                let entries: Vec<_> = entries.iter().map(signed).collect();
                let matrix = Matrix::secret(rows, MATRIX_COLUMNS, &entries, MATRIX_BITS)?;
                Box::new(move || done(evaluator.matvec(&c, &matrix)))
            }
            Operation::ModExp => self.mod_exp(count)?,
            Operation::ModMul => {
                let (a, b) = (self.residues(count)?, self.residues(count)?);
                let arithmetic = ModArith::new(modulus.n_squared(), self.engine.clone());
                Box::new(move || done(arithmetic.mod_mul(&a, &b)))
            }
            Operation::Correct => {
                let (batch, other) = (self.ciphertexts(count)?, self.ciphertexts(count)?);
                Box::new(Correct { evaluator, batch, other })
            }
        })
    }

    /// Returns a batch of what a matrix product does for each of `count` entries, one by one: a
    /// multiplication by a secret unsigned scalar of as many bits, and an addition. Signs would
    /// make it slower.
    pub(super) fn singles(&mut self, count: usize) -> Result<Box<dyn Work + 'k>, Failure> {
        let modulus = self.key.modulus()?;
        let evaluator = Evaluator::new(modulus, self.engine.clone());
        let arithmetic = ModArith::new(modulus.n_squared(), self.engine.clone());
        let (a, b) = (self.ciphertexts(count)?, self.ciphertexts(count)?);
        let bases = self.residues(count)?;
        let entries = Exponents::<Secret>::new(MATRIX_BITS, self.words(count, 1, MATRIX_BITS));
        Ok(Box::new(move || {
            done(arithmetic.mod_exp(&bases, &entries))?;
            done(evaluator.add(&a, &b))
        }))
    }

    fn encrypt(
        &mut self,
        mut encryptor: Encryptor,
        count: usize,
    ) -> Result<Box<dyn Work + 'k>, Failure> {
        let (plain, engine) = (self.plaintexts(count)?, self.engine.clone());
        Ok(Box::new(move || done(encryptor.encrypt(&*engine, &plain))))
    }

    /// Checks once that what is timed gives back the plaintexts.
    fn decrypt(&mut self, count: usize) -> Result<Box<dyn Work + 'k>, Failure> {
        let (secret, modulus) = (self.key.secret()?, self.key.modulus()?);
        let (plain, engine) = (self.plaintexts(count)?, self.engine.clone());
        let mut encryptor = Encryptor::for_owner(secret, &*engine)?;
        let words = encryptor.encrypt(&*engine, &plain)?.into_words(&*engine)?;
        let decrypt = move || {
            let ciphertexts = Ciphertexts::try_from_words(modulus, words.clone())?;
            secret.decrypt(&*engine, &ciphertexts)
        };
        if decrypt()?.words() != plain.words() {
            let text = format!("the engine {} decrypts to other plaintexts", self.engine.name());
            return Err(Failure::Work(text));
        }
        Ok(Box::new(move || done(decrypt())))
    }

    /// Public exponents of exactly the bits of n.
    fn mod_exp(&mut self, count: usize) -> Result<Box<dyn Work + 'k>, Failure> {
        let (bits, modulus) = (self.key.bits, self.key.modulus()?);
        let mut words = self.words(count, modulus.n().len_words(), bits);
        for exponent in words.chunks_mut(modulus.n().len_words()) {
            if let Some(top) = exponent.last_mut() {
                *top |= 1 << ((bits - 1) % 64);
            }
        }
        let (bases, exponents) = (self.residues(count)?, Exponents::<Public>::new(bits, words));
        let arithmetic = ModArith::new(modulus.n_squared(), self.engine.clone());
        Ok(Box::new(move || done(arithmetic.mod_exp(&bases, &exponents))))
    }

    /// Returns `count` random numbers of `each` words and at most `bits` bits, which end in the
    /// last word.
    fn words(&mut self, count: usize, each: usize, bits: u32) -> Vec<u64> {
        let mut words: Vec<_> = (0..count * each).map(|_| self.rng.next_u64()).collect();
        let unused = 64 * each as u32 - bits;
        words.chunks_mut(each).filter_map(<[u64]>::last_mut).for_each(|top| *top >>= unused);
        words
    }

    /// Random plaintexts of all the bits that packed fields may have: n has one more.
    fn plaintexts(&mut self, count: usize) -> Result<Plaintexts, Failure> {
        let modulus = self.key.modulus()?;
        let words = self.words(count, modulus.n().len_words(), self.key.bits - 1);
        Ok(Plaintexts::try_from_words(modulus, words.into())?)
    }

    /// Random ciphertexts, for any number coprime to n is one, in the form that an addition leaves.
    fn ciphertexts(&mut self, count: usize) -> Result<Ciphertexts, Failure> {
        let modulus = self.key.modulus()?;
        let mut random = || Ciphertexts::try_from_words(modulus, self.below(count, modulus));
        let (a, b) = (random()?, random()?);
        Ok(Evaluator::new(modulus, self.engine.clone()).add(&a, &b)?)
    }

    fn residues(&mut self, count: usize) -> Result<Residues, Failure> {
        let modulus = self.key.modulus()?;
        let words = self.below(count, modulus);
        let n_squared: &Arc<Modulus> = modulus.n_squared();
        let fault = |index| Failure::Work(format!("residue {index} is not below n²"));
        Residues::try_from_words(n_squared.clone(), words).map_err(fault)
    }

    /// Numbers below n². Since both primes are above `1.25 · 2^(bits/2 − 1)`, n² has at least one
    /// bit less than twice the bits of n.
    fn below(&mut self, count: usize, modulus: &PaillierModulus) -> Vec<u64> {
        self.words(count, modulus.ciphertext_words(), 2 * self.key.bits - 2)
    }
}

/// Corrects one batch again and again: an addition before each time gives it something to correct.
struct Correct {
    evaluator: Evaluator,
    batch: Ciphertexts,
    other: Ciphertexts,
}

impl Work for Correct {
    fn prepare(&mut self) -> Result<(), Failure> {
        Ok(self.evaluator.add_assign(&mut self.batch, &self.other)?)
    }

    fn run(&mut self) -> Result<(), Failure> {
        Ok(self.evaluator.correct(&mut self.batch)?)
    }
}
