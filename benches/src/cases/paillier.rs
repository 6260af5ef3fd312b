//! Batches under Paillier's scheme.

use std::sync::Arc;

use ciphergram_accel::{
    Builder, Engine as _, Exponents, Operand, Program, Public, Residues, Secrecy, Secret,
    random::StreamRng,
};
use ciphergram_he::{
    Parameters, Scheme,
    paillier::{
        Ciphertexts, Encryptor, Evaluator, Matrix, PaillierModulus, PaillierSecret, Plaintexts,
        Scalars,
    },
    params::Literal,
};
use rand_core::Rng;

use super::{
    engine::Metered,
    sampling::{Work, timed},
};
use crate::Failure;

/// The size of n that is for comparison with papers only, in bits.
pub const INSECURE_BITS: u32 = 1024;
/// Ciphertexts of the vector of a matrix product, and bits of an entry of the matrix, with its sign.
pub(super) const MATRIX_COLUMNS: usize = 256;
const MATRIX_BITS: u32 = 16;

/// A key, and the values that a plaintext of it carries.
pub(super) struct Key {
    pub(super) bits: u32,
    /// Gradient values of 16 bits in a plaintext, with headroom for 64 clients.
    pub(super) values: usize,
    secret: PaillierSecret,
}

/// The first primes that are 3 mod 4 from the integer parts of `π · 2^510` and `e · 2^510` on: no key to protect
/// anything with, as everybody sees. Nothing here generates keys of this size, and no time depends on which it is.
const PUBLISHED: [&str; 2] = [
    "c90fdaa22168c234c4c6628b80dc1cd129024e088a67cc74020bbea63b139b22\
     514a08798e3404ddef9519b3cd3a431b302b0a6df25f14374fe1356d6d51c5ef",
    "adf85458a2bb4a9aafdc5620273d3cf1d8b9c583ce2d3695a9e13641146433fb\
     cc939dce249b3ef97d2fe363630c75d8f681b202aec4617ad3df1ed5d5fd6597",
];

impl Key {
    /// Returns a key of `bits` bits: a fresh one, or below 2048 bits the one that is public.
    ///
    /// # Errors
    /// There are no keys of that size; no randomness.
    pub(super) fn of_bits(bits: u32) -> Result<Self, Failure> {
        let is_public = bits == INSECURE_BITS;
        let scheme = Scheme::ALL.into_iter().find(|s| s.modulus_bits() == Some(bits));
        let scheme = scheme.or(is_public.then_some(Scheme::Paillier2048));
        let scheme = scheme.ok_or_else(|| format!("no keys of {bits} bits"))?;
        let parameters = Parameters::new(Literal { scheme, clients: 64, bits: 16 })?;
        let values = ((bits - 1) / parameters.geometry().field_bits) as usize;
        if !is_public {
            return Ok(Self { bits, values, secret: PaillierSecret::generate(bits)? });
        }
        let words = |text: &str| {
            let word = |place| u64::from_str_radix(&text[place..][..16], 16);
            (0..8).rev().map(|i| word(16 * i)).collect::<Result<Vec<_>, _>>()
        };
        let [p, q] = PUBLISHED.map(words);
        let secret = PaillierSecret::new(&p?, &q?, bits, true);
        Ok(Self { bits, values, secret: secret? })
    }
}

/// Makes batches under one key for one engine.
pub(super) struct Shop {
    pub(super) key: Arc<Key>,
    pub(super) engine: Arc<Metered>,
    pub(super) rng: StreamRng,
}

impl Shop {
    fn modulus(&self) -> &PaillierModulus {
        self.key.secret.modulus()
    }

    fn evaluator(&self) -> Evaluator {
        Evaluator::new(self.modulus(), self.engine.clone())
    }

    /// Returns the program that raises numbers modulo n² to exponents of `bits` bits.
    fn power<S: Secrecy>(&self, bits: u32) -> Program {
        let mut b = Builder::new("mod_exp");
        let base = b.residues("base", self.modulus().n_squared());
        let e = b.exponents::<S>("e", bits);
        let power = b.pow("power", base, e);
        b.output(power);
        b.build()
    }

    pub(super) fn encrypt(&mut self, owner: bool, count: usize) -> Result<Work<'static>, Failure> {
        let (plain, engine) = (self.plaintexts(count)?, self.engine.clone());
        let mut encryptor = match owner {
            true => Encryptor::for_owner(&self.key.secret, &*engine)?,
            false => Encryptor::new(self.modulus(), &*engine)?,
        };
        Ok(timed(move || encryptor.encrypt(&*engine, &plain)))
    }

    /// Checks once that what is timed gives back the plaintexts.
    pub(super) fn decrypt(&mut self, count: usize) -> Result<Work<'static>, Failure> {
        let plain = self.plaintexts(count)?;
        let (key, engine) = (self.key.clone(), self.engine.clone());
        let mut encryptor = Encryptor::for_owner(&key.secret, &*engine)?;
        let words = encryptor.encrypt(&*engine, &plain)?.into_words(&*engine)?;
        let decrypt = move || {
            let ciphertexts = Ciphertexts::try_from_words(key.secret.modulus(), words.clone())?;
            key.secret.decrypt(&*engine, &ciphertexts)
        };
        if decrypt()?.words() != plain.words() {
            let text = format!("the engine {} decrypts to other plaintexts", self.engine.name());
            return Err(text.into());
        }
        Ok(timed(decrypt))
    }

    pub(super) fn add(&mut self, count: usize) -> Result<Work<'static>, Failure> {
        let (evaluator, a, b) =
            (self.evaluator(), self.ciphertexts(count)?, self.ciphertexts(count)?);
        Ok(timed(move || evaluator.add(&a, &b)))
    }

    pub(super) fn add_plain(&mut self, count: usize) -> Result<Work<'static>, Failure> {
        let (evaluator, c, m) =
            (self.evaluator(), self.ciphertexts(count)?, self.plaintexts(count)?);
        Ok(timed(move || evaluator.add_plain(&c, &m)))
    }

    pub(super) fn sum(&mut self, count: usize) -> Result<Work<'static>, Failure> {
        let (evaluator, c) = (self.evaluator(), self.ciphertexts(count)?);
        Ok(timed(move || evaluator.sum(&c)))
    }

    pub(super) fn mod_mul(&mut self, count: usize) -> Result<Work<'static>, Failure> {
        let mut b = Builder::new("mod_mul");
        let [x, y] = ["x", "y"].map(|name| b.residues(name, self.modulus().n_squared()));
        let product = b.mul("product", x, y);
        b.output(product);
        let (program, engine) = (b.build(), self.engine.clone());
        let (x, y, mut out) = (self.residues(count)?, self.residues(count)?, self.residues(count)?);
        let product = move || {
            let out = Operand::Out(out.words_mut());
            engine.run(&program, &mut [(&x).into(), (&y).into(), out])
        };
        Ok(timed(product))
    }

    pub(super) fn mul_plain(&mut self, count: usize) -> Result<Work<'static>, Failure> {
        let (evaluator, c) = (self.evaluator(), self.ciphertexts(count)?);
        let scalars = Scalars::<Secret>::from_u64(&self.words(count, 1, 64));
        Ok(timed(move || evaluator.mul_plain(&c, &scalars)))
    }

    /// Multiplies by a matrix of `count` entries in whole rows.
    pub(super) fn matvec(&mut self, count: usize) -> Result<Work<'static>, Failure> {
        let (evaluator, c) = (self.evaluator(), self.ciphertexts(MATRIX_COLUMNS)?);
        let entries = self.words(count, 1, MATRIX_BITS);
        let entries: Vec<_> = entries.iter().map(|&entry| i64::from(entry as u16 as i16)).collect();
        let rows = count / MATRIX_COLUMNS;
        let matrix = Matrix::secret(rows, MATRIX_COLUMNS, &entries, MATRIX_BITS)?;
        Ok(timed(move || evaluator.matvec(&c, &matrix)))
    }

    /// Does what a matrix product does for each of `count` entries, one by one: a multiplication by a secret unsigned
    /// scalar of as many bits, and an addition. Signs would make it slower.
    pub(super) fn singles(&mut self, count: usize) -> Result<Work<'static>, Failure> {
        let (evaluator, program) = (self.evaluator(), self.power::<Secret>(MATRIX_BITS));
        let (a, b) = (self.ciphertexts(count)?, self.ciphertexts(count)?);
        let (bases, mut out, engine) =
            (self.residues(count)?, self.residues(count)?, self.engine.clone());
        let entries = Exponents::<Secret>::new(MATRIX_BITS, self.words(count, 1, MATRIX_BITS));
        Ok(timed(move || {
            let power = Operand::Out(out.words_mut());
            engine.run(&program, &mut [(&bases).into(), (&entries).into(), power])?;
            evaluator.add(&a, &b)
        }))
    }

    /// Public exponents of exactly the bits of n.
    pub(super) fn mod_exp(&mut self, count: usize) -> Result<Work<'static>, Failure> {
        let (bits, each) = (self.key.bits, self.modulus().n().len_words());
        let mut words = self.words(count, each, bits);
        let tops = words.chunks_mut(each).filter_map(<[u64]>::last_mut);
        tops.for_each(|top| *top |= 1 << ((bits - 1) % 64));
        let (bases, exponents) = (self.residues(count)?, Exponents::<Public>::new(bits, words));
        let (program, engine, mut out) =
            (self.power::<Public>(bits), self.engine.clone(), self.residues(count)?);
        let power = move || {
            let out = Operand::Out(out.words_mut());
            engine.run(&program, &mut [(&bases).into(), (&exponents).into(), out])
        };
        Ok(timed(power))
    }

    /// Corrects one batch again and again: an addition before each time gives it something to correct.
    pub(super) fn correct(&mut self, count: usize) -> Result<Work<'static>, Failure> {
        let (mut batch, other) = (self.ciphertexts(count)?, self.ciphertexts(count)?);
        let evaluator = self.evaluator();
        let before = Evaluator::new(self.modulus(), self.engine.uncounted());
        Ok(Box::new(move || {
            before.add_assign(&mut batch, &other)?;
            timed(|| evaluator.correct(&mut batch))()
        }))
    }

    /// Returns `count` random numbers of `each` words and at most `bits` bits, which end in the last word.
    fn words(&mut self, count: usize, each: usize, bits: u32) -> Vec<u64> {
        let mut words: Vec<_> = (0..count * each).map(|_| self.rng.next_u64()).collect();
        let unused = 64 * each as u32 - bits;
        words.chunks_mut(each).filter_map(<[u64]>::last_mut).for_each(|top| *top >>= unused);
        words
    }

    /// Random plaintexts of all the bits that packed fields may have: n has one more.
    fn plaintexts(&mut self, count: usize) -> Result<Plaintexts, Failure> {
        let words = self.words(count, self.modulus().n().len_words(), self.key.bits - 1);
        Ok(Plaintexts::try_from_words(self.modulus(), words.into())?)
    }

    /// Random ciphertexts, for any number coprime to n is one, in the form that an addition leaves.
    fn ciphertexts(&mut self, count: usize) -> Result<Ciphertexts, Failure> {
        let words = [self.below(count), self.below(count)];
        let [a, b] = words.map(|words| Ciphertexts::try_from_words(self.modulus(), words));
        let (a, b) = (a?, b?);
        Ok(self.evaluator().add(&a, &b)?)
    }

    fn residues(&mut self, count: usize) -> Result<Residues, Failure> {
        let words = self.below(count);
        let fault = |index| format!("residue {index} is not below n²");
        Ok(Residues::try_from_words(self.modulus().n_squared().clone(), words).map_err(fault)?)
    }

    /// Numbers below n². Since both primes are above `1.25 · 2^(bits/2 − 1)`, n² has at least one bit less than twice
    /// the bits of n.
    fn below(&mut self, count: usize) -> Vec<u64> {
        self.words(count, self.modulus().ciphertext_words(), 2 * self.key.bits - 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_key_is_a_key() {
        let Ok(key) = Key::of_bits(INSECURE_BITS) else { panic!("no key") };
        assert_eq!((key.values, key.secret.modulus().n().bits()), (46, 1024));
        assert!(Key::of_bits(1536).is_err());
    }
}
