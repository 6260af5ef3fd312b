//! The secret factors and decryption.

use std::sync::Arc;

use ciphergram_accel::{
    Builder, Engine, Modulus, Operand, Program,
    program::{Crt, Residue, Var},
};
use crypto_bigint::{BoxedUint, ConcatenatingMul, ConcatenatingSquare, Odd};
use crypto_primes::{Flavor, is_prime};
use zeroize::Zeroizing;

use super::{ModulusFault, PaillierModulus, keygen::totients_share_only_two};
use crate::Error;

/// p and q, and the program that decrypts with them.
pub struct PaillierSecret {
    modulus: PaillierModulus,
    p: Zeroizing<Vec<u64>>,
    q: Zeroizing<Vec<u64>>,
    decrypt: Program,
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
        if p.len() != q.len() || !half(&big_p) || !half(&big_q) {
            return Err(ModulusFault::NotPrime);
        }
        // Two distinct primes of one size: neither divides the other's predecessor, so
        // gcd(n, φ(n)) = 1.
        if *big_p == *big_q {
            return Err(ModulusFault::Totient);
        }
        let blum = p[0] & 3 == 3 && q[0] & 3 == 3;
        if djn && !(blum && totients_share_only_two(&big_p, &big_q)) {
            return Err(ModulusFault::Form);
        }
        let n = big_p.concatenating_mul(&*big_q);
        let modulus = PaillierModulus::new(n.as_words(), bits, djn)?;
        let decrypt = decrypt_program(&modulus, &big_p, &big_q).ok_or(ModulusFault::NotPrime)?;
        let (p, q) = (Zeroizing::new(p.to_vec()), Zeroizing::new(q.to_vec()));
        Ok(Self { modulus, p, q, decrypt })
    }

    /// The public part.
    #[must_use]
    pub fn modulus(&self) -> &PaillierModulus {
        &self.modulus
    }

    /// p and q, for the key file.
    pub(crate) fn factors(&self) -> (&[u64], &[u64]) {
        (&self.p, &self.q)
    }

    /// The program of decryption.
    #[must_use]
    pub fn decrypt_program(&self) -> &Program {
        &self.decrypt
    }

    /// Decrypts a batch of ciphertexts, which must be in range and coprime to n.
    ///
    /// # Errors
    /// The engine's.
    pub fn decrypt(
        &self,
        engine: &dyn Engine,
        ciphertexts: &[u64],
    ) -> Result<Zeroizing<Vec<u64>>, Error> {
        let count = ciphertexts.len() / self.modulus.ciphertext_words();
        let mut out = Zeroizing::new(vec![0; count * self.modulus.n().len_words()]);
        engine.run(&self.decrypt, &mut [Operand::In(ciphertexts), Operand::Out(&mut out)])?;
        Ok(out)
    }
}

fn secret_big(words: &[u64]) -> Zeroizing<BoxedUint> {
    Zeroizing::new(BoxedUint::from_words(words.iter().copied()))
}

/// `a⁻¹ mod m`, in as many words as m.
fn inverse(a: &BoxedUint, m: &BoxedUint) -> Option<Zeroizing<Vec<u64>>> {
    let m: &Odd<BoxedUint> = m.as_odd_vartime()?;
    let reduced = Zeroizing::new(a.rem(m.as_nz_ref()));
    let inverse = Zeroizing::new(reduced.invert_odd_mod(m).into_option()?);
    Some(Zeroizing::new(inverse.as_words().to_vec()))
}

/// Decryption in two legs, joined by the Chinese remainder theorem.
///
/// Modulo p²: `L_p(c^(p−1)) · h_p mod p` with `L_p(x) = (x − 1)/p` and
/// `h_p = L_p((1 + n)^(p−1))⁻¹ = ((p − 1)·q mod p)⁻¹ = (−q)⁻¹ mod p`.
fn decrypt_program(modulus: &PaillierModulus, p: &BoxedUint, q: &BoxedUint) -> Option<Program> {
    let named = |name: &str, words: &[u64]| Modulus::new(name, words).ok().map(Arc::new);
    let (mp, mq) = (named("p", p.as_words())?, named("q", q.as_words())?);
    let mut b = Builder::new("paillier.decrypt");
    let c = b.residues("c", modulus.n_squared());
    let a = leg(&mut b, c, ["cp", "xp", "lp", "mp", "p"], p, q, &mp)?;
    let d = leg(&mut b, c, ["cq", "xq", "lq", "mq", "q"], q, p, &mq)?;
    let crt = Arc::new(Crt::new(mp, mq, &inverse(p, q)?));
    let m = b.crt_join("m", (a, d), &crt, modulus.n().len_words());
    b.output(m);
    Some(b.build())
}

fn leg(
    b: &mut Builder,
    c: Var<Residue>,
    [reduced, power, quotient, result, prime]: [&str; 5],
    p: &BoxedUint,
    q: &BoxedUint,
    modulus: &Arc<Modulus>,
) -> Option<Var<Residue>> {
    let square = Zeroizing::new(p.concatenating_square());
    let squared = Arc::new(Modulus::new(format!("{prime}²"), square.as_words()).ok()?);
    let one = BoxedUint::one_with_precision(p.bits_precision());
    let p_1 = Zeroizing::new(p.wrapping_sub(&one));
    let q_mod_p = Zeroizing::new(q.rem(p.as_nz_vartime()?));
    let minus_q = Zeroizing::new(p.wrapping_sub(&*q_mod_p));
    let h = inverse(&minus_q, p)?;
    let e = b.secret_exponent(&format!("{prime}−1"), p.bits(), p_1.as_words());
    let h = b.secret_residue(&format!("h{prime}"), modulus, &h);
    let x = b.reduce(reduced, c, &squared);
    let x = b.pow(power, x, e);
    let x = b.l_quotient(quotient, x, modulus);
    Some(b.mul(result, x, h))
}
