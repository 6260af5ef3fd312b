//! Encryption: the programs, and an encryptor with a base and a generator of its own.

use std::sync::Arc;

use ciphergram_accel::{
    Builder, Engine, Exponents, Operand, Program, Public, Secret, program::FixedBase,
};
use crypto_bigint::{BoxedUint, NonZero, RandomMod};
use rand_chacha::ChaCha20Rng;
use rand_core::Rng;
use zeroize::Zeroizing;

use super::PaillierModulus;
use crate::{Error, random};

/// Encrypts batches under one modulus, every ciphertext with a fresh mask.
pub struct Encryptor {
    modulus: PaillierModulus,
    program: Program,
    rng: ChaCha20Rng,
}

impl Encryptor {
    /// Draws a base (for moduli of the form that short masks need) and a generator key.
    ///
    /// # Errors
    /// The engine's, or no randomness.
    pub fn new(modulus: &PaillierModulus, engine: &dyn Engine) -> Result<Self, Error> {
        let mut rng = random::generator()?;
        let program = if modulus.is_djn() {
            short_mask_program(modulus, engine, &mut rng)?
        } else {
            full_mask_program(modulus)
        };
        Ok(Self { modulus: modulus.clone(), program, rng })
    }

    /// The program of one encryption.
    #[must_use]
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// Encrypts plaintexts of as many words as n, each below n.
    ///
    /// # Errors
    /// The engine's.
    pub fn encrypt(&mut self, engine: &dyn Engine, plain: &[u64]) -> Result<Vec<u64>, Error> {
        let k = self.modulus.n().len_words();
        let count = plain.len() / k;
        let mut out = vec![0; count * self.modulus.ciphertext_words()];
        if self.modulus.is_djn() {
            let bits = self.modulus.n().bits() / 2;
            let words = (0..count * k / 2).map(|_| self.rng.next_u64()).collect();
            let masks = Exponents::<Secret>::new(bits, words);
            let mut operands =
                [Operand::SecretIn(plain), Operand::from(&masks), Operand::Out(&mut out)];
            engine.run(&self.program, &mut operands)?;
        } else {
            let mut masks = Zeroizing::new(vec![0; out.len()]);
            for mask in masks.chunks_mut(self.modulus.ciphertext_words()) {
                let r = uniform_below(self.modulus.n().words(), &mut self.rng)?;
                mask[..k].copy_from_slice(r.as_words());
            }
            let mut operands =
                [Operand::SecretIn(plain), Operand::SecretIn(&masks), Operand::Out(&mut out)];
            engine.run(&self.program, &mut operands)?;
        }
        Ok(out)
    }
}

/// A number uniform in `1 ..= n − 1`. That it shares a factor with n has the chance of guessing one.
fn uniform_below(n: &[u64], rng: &mut ChaCha20Rng) -> Result<Zeroizing<BoxedUint>, Error> {
    let n = BoxedUint::from_words(n.iter().copied());
    let n: NonZero<BoxedUint> = n.to_nz().into_option().ok_or(Error::Randomness)?;
    loop {
        let r = Zeroizing::new(BoxedUint::random_mod_vartime(rng, &n));
        if bool::from(r.is_nonzero()) {
            return Ok(r);
        }
    }
}

/// `(1 + m·n) · h_s^r` with `r` of half the bits of n. Draws `x` and computes `h_s = (−x²)ⁿ`.
fn short_mask_program(
    modulus: &PaillierModulus,
    engine: &dyn Engine,
    rng: &mut ChaCha20Rng,
) -> Result<Program, Error> {
    let (n, n_squared) = (modulus.n(), modulus.n_squared());
    let x = uniform_below(n.words(), rng)?;
    let big_n = BoxedUint::from_words(n.words().iter().copied());
    let nonzero = big_n.to_nz().into_option().ok_or(Error::Randomness)?;
    let h = Zeroizing::new(big_n.wrapping_sub(x.square_mod(&nonzero)));
    let mut base = Zeroizing::new(h.as_words().to_vec());
    base.resize(n_squared.len_words(), 0);

    let mut b = Builder::new("paillier.base");
    let h = b.secret_residues("h", n_squared);
    let e = b.public_exponent("n", n.bits(), n.words());
    let h_s = b.pow("h_s", h, e);
    b.output(h_s);
    let mut h_s = Zeroizing::new(vec![0; n_squared.len_words()]);
    engine.run(&b.build(), &mut [Operand::SecretIn(&base), Operand::Out(&mut h_s)])?;
    let base = Arc::new(FixedBase::new("h_s", n_squared.clone(), &h_s, n.bits() / 2));

    let mut b = Builder::new("paillier.encrypt");
    let m = b.integers("m", n.len_words());
    let r = b.exponents::<Secret>("r", n.bits() / 2);
    let plain = b.one_plus_mn("plain", m, n, n_squared);
    let mask = b.pow_fixed_base("mask", &base, r);
    let c = b.mul("c", plain, mask);
    b.output(c);
    Ok(b.build())
}

/// The program of `(1 + m·n) · rⁿ` with a mask `r` uniform below n, for moduli of unknown form.
#[must_use]
pub fn full_mask_program(modulus: &PaillierModulus) -> Program {
    let (n, n_squared) = (modulus.n(), modulus.n_squared());
    let mut b = Builder::new("paillier.encrypt");
    let m = b.integers("m", n.len_words());
    let r = b.secret_residues("r", n_squared);
    let e = b.public_exponent("n", n.bits(), n.words());
    let plain = b.one_plus_mn("plain", m, n, n_squared);
    let mask = b.pow::<Public>("mask", r, e);
    let c = b.mul("c", plain, mask);
    b.output(c);
    b.build()
}
