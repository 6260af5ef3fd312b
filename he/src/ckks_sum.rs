//! `ckks-sum`: RLWE with coefficient encoding, for sums that are exact.
//!
//! # The scheme
//! Over `R = Z_Q[X]/(X^N + 1)`, N = 4096, Q the product of two 50-bit primes, the secret `s` is
//! uniform ternary. A contribution has one public 32-byte seed, which with the index of a polynomial
//! names a uniform `a`. It sends `b = a·s + e + m·2^margin`, `e` a fresh centred binomial of 2 × 21
//! bits and `m` the packed fields of each coefficient. Only `b` travels, in coefficient form, ten
//! residues to a 512-bit beat, cut to the coefficients that carry something: this is what makes an
//! upload smaller than the float32 it protects. The sum of `b`s decrypts with the sum of `a`s.
//!
//! # Exactness
//! The noise of a sum is bounded for certain (see [`crate::params`]), so rounding
//! removes it always: decryption cannot fail, and what it reveals to a key holder is the exact sum
//! and nothing of the noise.
//!
//! # Security
//! Ternary RLWE with `log₂ Q < 100` at N = 4096: the Homomorphic Encryption Standard allows 109 for
//! 128-bit security (101 against quantum computers). The noise has standard deviation 3.24. A seed
//! must never serve two contributions under one key; a [`Sealer`](crate::Sealer) draws its own.

use std::sync::Arc;

use ciphergram_accel::{Builder, Engine, Operand, Polys, Program, Ring, beats, program::Ntt};
use rand_chacha::ChaCha20Rng;
use rand_core::{Rng, SeedableRng};
use zeroize::{Zeroize, Zeroizing};

use crate::{Error, Parameters, random};

/// The ternary secret, kept as the seed that it expands from and in NTT form.
pub struct LatticeSecret {
    seed: Zeroizing<[u8; 32]>,
    ntt: Polys<Ntt>,
}

/// Whole chunks that one polynomial holds; the few coefficients left over stay unused, so that no
/// chunk spans two polynomials.
pub(crate) fn chunks_per_polynomial(parameters: &Parameters, ring: &Ring) -> usize {
    ring.degree() / parameters.geometry().slots_per_chunk
}

/// Beats of the chunks of one polynomial.
pub(crate) fn beats_per_polynomial(parameters: &Parameters, ring: &Ring) -> usize {
    let coefficients =
        chunks_per_polynomial(parameters, ring) * parameters.geometry().slots_per_chunk;
    beats::beats_for(coefficients, ring.primes().len())
}

impl LatticeSecret {
    /// Expands the secret that `seed` names.
    ///
    /// # Errors
    /// The engine's.
    pub fn expand(seed: &[u8; 32], ring: &Arc<Ring>, engine: &dyn Engine) -> Result<Self, Error> {
        let mut key = blake3::derive_key("ciphergram 2026 ckks-sum ternary secret", seed);
        let mut rng = ChaCha20Rng::from_seed(key);
        key.zeroize();
        let mut s = Zeroizing::new(vec![0i8; ring.degree()]);
        s.iter_mut().for_each(|c| *c = ternary(&mut rng));
        let coefficients = Polys::from_small(ring.clone(), &s);
        let mut b = Builder::new("ckks-sum.key");
        let a = b.coefficients("s", ring);
        let t = b.ntt("ŝ", a);
        b.output(t);
        let mut ntt = Polys::<Ntt>::zeros(ring.clone(), 1);
        let mut operands = [Operand::from(&coefficients), Operand::Out(ntt.words_mut())];
        engine.run(&b.build(), &mut operands)?;
        Ok(Self { seed: Zeroizing::new(*seed), ntt })
    }

    /// The seed, for the key file.
    pub(crate) fn seed(&self) -> &[u8; 32] {
        &self.seed
    }

    fn ring(&self) -> &Arc<Ring> {
        self.ntt.ring()
    }

    /// The program that encrypts one polynomial.
    #[must_use]
    pub fn encrypt_program(&self, parameters: &Parameters) -> Program {
        let ring = self.ring();
        let mut b = Builder::new("ckks-sum.encrypt");
        let message = b.integers("message", 2 * ring.degree());
        let index = b.index("index");
        let seed = b.seeds("seed", 1);
        let noise_key = b.secret_seed("noise_key");
        let s = b.secret_key("ŝ", ring, self.ntt.words());
        let a = b.uniform("â", ring, seed, index);
        let product = b.poly_mul("âŝ", a, s);
        let mask = b.intt("as", product);
        let e = b.noise("e", ring, noise_key, index);
        let noisy = b.add("as+e", mask, e);
        let m = b.lift("m", ring, message);
        let c = b.add("b", noisy, m);
        let packed = b.pack("beats", c, beats_per_polynomial(parameters, ring));
        b.output(packed);
        b.build()
    }

    /// The program that decrypts one polynomial of a sum of `contributors`.
    #[must_use]
    pub fn decrypt_program(&self, parameters: &Parameters, contributors: usize) -> Program {
        let ring = self.ring();
        let mut b = Builder::new("ckks-sum.decrypt");
        let packed = b.beats("beats", ring, beats_per_polynomial(parameters, ring));
        let index = b.index("index");
        let seeds = b.seeds("seeds", contributors);
        let s = b.secret_key("ŝ", ring, self.ntt.words());
        let sum = b.unpack("b", packed);
        let a = b.uniform("â", ring, seeds, index);
        let product = b.poly_mul("âŝ", a, s);
        let mask = b.intt("as", product);
        let noisy = b.sub("m+e", sum, mask);
        let integers = b.compose("integers", noisy);
        b.output(integers);
        b.build()
    }
}

/// −1, 0 or 1 with equal chance. What is rejected says nothing about what is kept.
fn ternary(rng: &mut ChaCha20Rng) -> i8 {
    loop {
        // Two bits at a time are 0, 1, 2, or 3 again.
        let draw = (rng.next_u32() & 3) as i8;
        if draw < 3 {
            return draw - 1;
        }
    }
}

/// The program that adds beats in place, one beat an item.
#[must_use]
pub fn sum_program(ring: &Arc<Ring>) -> Program {
    let mut b = Builder::new("ckks-sum.sum");
    let sum = b.beat_sums("sum", ring, 1);
    let x = b.beats("x", ring, 1);
    let next = b.add_beats("next", sum, x);
    b.update(sum, next);
    b.build()
}

/// Encrypts the polynomials of one contribution under its seed, with a noise key of its own.
pub struct Encryptor {
    program: Program,
    seed: [u64; 4],
    noise_key: Zeroizing<[u64; 4]>,
    beats: usize,
}

impl Encryptor {
    /// An encryptor of the contribution that `seed` names, with fresh noise.
    ///
    /// # Errors
    /// No randomness.
    pub fn new(
        secret: &LatticeSecret,
        parameters: &Parameters,
        seed: &[u8; 32],
    ) -> Result<Self, Error> {
        Ok(Self {
            program: secret.encrypt_program(parameters),
            seed: random::seed_words(seed),
            noise_key: Zeroizing::new(random::seed_words(&*random::bytes::<32>()?)),
            beats: beats_per_polynomial(parameters, secret.ring()),
        })
    }

    /// Encrypts polynomials `first ..`, two words of message for each coefficient.
    ///
    /// # Errors
    /// The engine's.
    pub fn encrypt(
        &self,
        engine: &dyn Engine,
        first: u64,
        message: &[u64],
        count: usize,
    ) -> Result<Vec<u64>, Error> {
        let indices: Vec<u64> = (first..).take(count).collect();
        let mut out = vec![0; count * self.beats * beats::WORDS];
        let mut operands = [
            Operand::SecretIn(message),
            Operand::In(&indices),
            Operand::In(&self.seed),
            Operand::SecretIn(&*self.noise_key),
            Operand::Out(&mut out),
        ];
        engine.run(&self.program, &mut operands)?;
        Ok(out)
    }
}
