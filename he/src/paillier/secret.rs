//! The secret factors and decryption.

use std::sync::{Arc, OnceLock};

use ciphergram_accel::{
    Builder, Engine, Modulus, Operand, Program,
    program::{Crt, Residue, Var},
    random::StreamRng,
};
use crypto_bigint::{BoxedUint, ConcatenatingMul, Odd};
use crypto_primes::{Flavor, is_prime};
use zeroize::Zeroizing;

use super::{
    Ciphertexts, ModulusFault, PaillierModulus, Plaintexts, keygen::totients_share_only_two,
    masks::Masks,
};
use crate::{Error, error::OperandFault};

/// p and q, and what is derived from them once: the program that decrypts, and the owner's masks.
pub struct PaillierSecret {
    modulus: PaillierModulus,
    moduli: Moduli,
    decrypt: Program,
    masks: OnceLock<Arc<Masks>>,
}

/// p and q, their squares, and what joins residues of the squares.
pub(super) struct Moduli {
    p: Arc<Modulus>,
    q: Arc<Modulus>,
    pub(super) p_squared: Arc<Modulus>,
    pub(super) q_squared: Arc<Modulus>,
    pub(super) squares: Arc<Crt>,
}

impl Moduli {
    fn new(p: &BoxedUint, q: &BoxedUint) -> Option<Self> {
        let named = |name: &str, x: &BoxedUint| Modulus::new(name, x.as_words()).ok().map(Arc::new);
        let (p, q) = (named("p", p)?, named("q", q)?);
        let square =
            |name: &str, root: &Arc<Modulus>| Modulus::square(name, root).ok().map(Arc::new);
        let (p_squared, q_squared) = (square("p²", &p)?, square("q²", &q)?);
        let inverse = inverse(&secret_big(p_squared.words()), &secret_big(q_squared.words()))?;
        let squares = Arc::new(Crt::new(p_squared.clone(), q_squared.clone(), &inverse));
        Some(Self { p, q, p_squared, q_squared, squares })
    }
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
        let moduli = Moduli::new(&big_p, &big_q).ok_or(ModulusFault::NotPrime)?;
        let decrypt = decrypt_program(&modulus, (&big_p, &big_q), &moduli);
        let decrypt = decrypt.ok_or(ModulusFault::NotPrime)?;
        Ok(Self { modulus, moduli, decrypt, masks: OnceLock::new() })
    }

    /// The public part.
    #[must_use]
    pub fn modulus(&self) -> &PaillierModulus {
        &self.modulus
    }

    /// p and q, for the key file.
    pub(crate) fn factors(&self) -> (&[u64], &[u64]) {
        (self.moduli.p.words(), self.moduli.q.words())
    }

    pub(super) fn moduli(&self) -> &Moduli {
        &self.moduli
    }

    /// How the owner masks: drawn and built once, so that engines keep one table.
    pub(super) fn masks(
        &self,
        engine: &dyn Engine,
        rng: &mut StreamRng,
    ) -> Result<Arc<Masks>, Error> {
        if let Some(masks) = self.masks.get() {
            return Ok(masks.clone());
        }
        let masks = Arc::new(Masks::for_owner(self, engine, rng)?);
        Ok(self.masks.get_or_init(|| masks).clone())
    }

    /// The program of decryption.
    #[must_use]
    pub fn decrypt_program(&self) -> &Program {
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
        self.decrypt_words(engine, &ciphertexts.to_ordinary(engine)?)
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

pub(super) fn secret_big(words: &[u64]) -> Zeroizing<BoxedUint> {
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
fn decrypt_program(
    modulus: &PaillierModulus,
    (p, q): (&BoxedUint, &BoxedUint),
    Moduli { p: mp, q: mq, p_squared, q_squared, .. }: &Moduli,
) -> Option<Program> {
    let mut b = Builder::new("paillier.decrypt");
    let c = b.residues("c", modulus.n_squared());
    let a = leg(&mut b, c, ["cp", "xp", "lp", "mp", "p"], (p, q), (mp, p_squared))?;
    let d = leg(&mut b, c, ["cq", "xq", "lq", "mq", "q"], (q, p), (mq, q_squared))?;
    let crt = Arc::new(Crt::new(mp.clone(), mq.clone(), &inverse(p, q)?));
    let m = b.crt_join("m", (a, d), &crt, modulus.n().len_words());
    b.output(m);
    Some(b.build())
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
