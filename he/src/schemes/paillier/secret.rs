//! The secret factors and decryption.

use std::sync::{Arc, OnceLock};

use ciphergram_accel::{
    Builder, Engine, Modulus, Operand, Program,
    program::{Crt, Residue, Var},
    random::StreamRng,
};
use crypto_bigint::{BoxedUint, ConcatenatingMul};
use crypto_primes::{Flavor, is_prime};
use zeroize::Zeroizing;

use super::{
    Ciphertexts, PaillierModulus, Plaintexts,
    factors::{Factors, inverse, secret_big, totients_share_only_two},
    masks::Masks,
};
use crate::{
    Error,
    error::{ModulusFault, OperandFault},
};

/// p and q, and what is derived from them once: the program that decrypts, and the owner's masks.
pub struct PaillierSecret {
    modulus: PaillierModulus,
    factors: Factors,
    decrypt: Arc<Program>,
    masks: OnceLock<Arc<Masks>>,
}

impl PaillierSecret {
    /// Checks the factors: both primes of half the size of n, `gcd(n, φ(n)) = 1`, and for `djn` the
    /// form that short masks need.
    ///
    /// # Errors
    /// See [`ModulusFault`].
    pub fn new(p: &[u64], q: &[u64], bits: u32, djn: bool) -> Result<Self, ModulusFault> {
        let (big_p, big_q) = (secret_big(p), secret_big(q));
        let half = |x: &BoxedUint| x.bits() == bits / 2 && is_prime(Flavor::Any, x);
        let words = (bits / 2).div_ceil(64) as usize;
        if p.len() != words || q.len() != words || !half(&big_p) || !half(&big_q) {
            return Err(ModulusFault::not_prime());
        }
        // Two distinct primes of one size: neither divides the other's predecessor, so
        // gcd(n, φ(n)) = 1.
        if *big_p == *big_q {
            return Err(ModulusFault::new("is not coprime to its totient"));
        }
        let blum = p[0] & 3 == 3 && q[0] & 3 == 3;
        if djn && !(blum && totients_share_only_two(&big_p, &big_q)) {
            return Err(ModulusFault::new("is not of the form that its key file declares"));
        }
        let n = big_p.concatenating_mul(&*big_q);
        let modulus = PaillierModulus::new(n.as_words(), bits, djn)?;
        let factors = Factors::new(&big_p, &big_q).ok_or_else(ModulusFault::not_prime)?;
        let decrypt = decrypt_program(&modulus, (&big_p, &big_q), &factors);
        let decrypt = decrypt.ok_or_else(ModulusFault::not_prime)?;
        Ok(Self { modulus, factors, decrypt, masks: OnceLock::new() })
    }

    /// Returns the public part.
    #[must_use]
    pub fn modulus(&self) -> &PaillierModulus {
        &self.modulus
    }

    /// p and q, for the key file.
    pub(crate) fn factors(&self) -> (&[u64], &[u64]) {
        (self.factors.p.words(), self.factors.q.words())
    }

    /// Returns the owner's masks: drawn and built once, so that engines keep one table.
    pub(super) fn masks(
        &self,
        engine: &dyn Engine,
        rng: &mut StreamRng,
    ) -> Result<Arc<Masks>, Error> {
        if let Some(masks) = self.masks.get() {
            return Ok(masks.clone());
        }
        let masks = Arc::new({
            let moduli = (self.modulus.n(), self.modulus.n_squared());
            Masks::for_owner(moduli, &self.factors, engine, rng)?
        });
        Ok(self.masks.get_or_init(|| masks).clone())
    }

    /// Returns the program of decryption.
    #[must_use]
    pub fn decrypt_program(&self) -> &Arc<Program> {
        &self.decrypt
    }

    /// Decrypts a batch, whose items must be coprime to n: others decrypt to anything. A batch that
    /// carries a power of the Montgomery radix is corrected first.
    ///
    /// # Errors
    /// Another modulus; the engine's.
    pub fn decrypt(
        &self,
        engine: &dyn Engine,
        ciphertexts: &Ciphertexts,
    ) -> Result<Plaintexts, Error> {
        if !self.modulus.is_same(ciphertexts.modulus()) {
            let (operation, operand, fault) = ("decrypt", "ciphertexts", OperandFault::Modulus);
            return Err(Error::Operand { operation, operand, fault });
        }
        let plain = self.decrypt_words(engine, &ciphertexts.to_ordinary(engine)?)?;
        Ok(plain.at_scale(ciphertexts.scale()))
    }

    /// Decrypts ordinary ciphertexts, which must be in range and coprime to n.
    pub(crate) fn decrypt_words(
        &self,
        engine: &dyn Engine,
        words: &[u64],
    ) -> Result<Plaintexts, Error> {
        let count = words.len() / self.modulus.ciphertext_words();
        let mut out = Zeroizing::new(vec![0; count * self.modulus.n().len_words()]);
        engine.run(&self.decrypt, &mut [Operand::In(words), Operand::Out(&mut out)])?;
        Ok(Plaintexts::from_reduced(&self.modulus, out))
    }
}

/// Decryption in two legs, joined by the Chinese remainder theorem.
///
/// Modulo p²: `L_p(c^(p−1)) · h_p mod p` with `L_p(x) = (x − 1)/p` and
/// `h_p = L_p((1 + n)^(p−1))⁻¹ = ((p − 1)·q mod p)⁻¹ = (−q)⁻¹ mod p`.
fn decrypt_program(
    modulus: &PaillierModulus,
    (p, q): (&BoxedUint, &BoxedUint),
    Factors { p: mp, q: mq, p_squared, q_squared, .. }: &Factors,
) -> Option<Arc<Program>> {
    let mut b = Builder::new("paillier.decrypt");
    let c = b.residues("c", modulus.n_squared());
    let a = leg(&mut b, c, ["cp", "xp", "lp", "mp", "p"], (p, q), (mp, p_squared))?;
    let d = leg(&mut b, c, ["cq", "xq", "lq", "mq", "q"], (q, p), (mq, q_squared))?;
    let crt = Arc::new(Crt::new(mp.clone(), mq.clone(), &inverse(p, q)?));
    let m = b.crt_join("m", (a, d), &crt, modulus.n().len_words());
    b.output(m);
    Some(b.build().into())
}

fn leg(
    b: &mut Builder,
    c: Var<Residue>,
    [reduced, power, quotient, result, prime]: [&str; 5],
    (p, q): (&BoxedUint, &BoxedUint),
    (modulus, squared): (&Arc<Modulus>, &Arc<Modulus>),
) -> Option<Var<Residue>> {
    let one = BoxedUint::one_with_precision(p.bits_precision());
    let p_1 = Zeroizing::new(p.wrapping_sub(&one));
    let q_mod_p = Zeroizing::new(q.rem(p.as_nz_vartime()?));
    let minus_q = Zeroizing::new(p.wrapping_sub(&*q_mod_p));
    let h = inverse(&minus_q, p)?;
    let e = b.secret_exponent(&format!("{prime}−1"), p.bits(), p_1.as_words());
    let h = b.secret_residue(&format!("h{prime}"), modulus, &h);
    let x = b.reduce(reduced, c, squared);
    let x = b.pow(power, x, e);
    let x = b.l_quotient(quotient, x, modulus);
    Some(b.mul(result, x, h))
}
