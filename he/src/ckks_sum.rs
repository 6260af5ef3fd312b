//! `ckks-sum` and `ckks-sum-public`: RLWE with coefficient encoding, for sums that are exact.
//!
//! # The scheme
//! Of `ckks-sum`; the other differs as told [below](#a-public-key).
//!
//! Over `R = Z_Q[X]/(X^N + 1)` the secret `s` is uniform ternary; N = 4096 and Q is the product of
//! two primes of 50 bits, or N = 8192 and Q that of four, whichever takes fewer bytes a value (see
//! [`crate::params`]). A contribution has one public 32-byte seed, which with the index of a
//! polynomial names a uniform `a`. It sends `b = a·s + e + m·2^margin`, `e` a fresh centred
//! binomial of 2 × 21 bits and `m` the packed fields of each coefficient. Only `b` travels, in
//! coefficient form, ten residues to a 512-bit beat, cut to the coefficients that carry something:
//! this is what makes an upload smaller than the float32 it protects. The sum of `b`s decrypts with
//! the sum of `a`s. Rings differ in nothing but these numbers: beats travel and are added in the
//! fewest that hold whole coefficients, one beat of five or two.
//!
//! # Exactness
//! The noise of a sum is bounded for certain ([`Lattice`](crate::params::Lattice) holds the bound),
//! so rounding removes it always: decryption cannot fail, and what it reveals to a key holder is
//! the exact sum and nothing of the noise.
//!
//! # Security
//! Recovering anything from seeds and `b`s is ternary RLWE with `log₂ Q < 100` at N = 4096, or
//! `log₂ Q < 200` at N = 8192. The Homomorphic Encryption Standard allows 109 and 218 for 128-bit
//! security, and 101 and 202 against quantum computers.
//!
//! The standard's table is for noise of standard deviation about 3.2 (8/√(2π) = 3.19). Ours, the
//! number of ones among 21 random bits less that among 21 others, has √(42/4) = 3.24: not less.
//! - The attacks that the table counts (primal, dual, decoding) know the noise by its standard
//!   deviation alone: they look for short vectors, of which it tells the length. None is known to
//!   gain from a binomial's shape beside a rounded Gaussian's; ML-KEM (FIPS 203) stands on centred
//!   binomials of far smaller deviation.
//! - It is bounded, by 21. Attacks on bounded noise (S. Arora, R. Ge, 2011) solve equations of
//!   degree 43, one factor for each value that it takes: N unknowns have about N^43 monomials of
//!   that degree, and as many samples are needed to linearise them.
//! - A Gaussian has to be cut off somewhere, and its tail then is a chance of failing. Here the
//!   bound is a fact, and the proof of exactness is of every sum, not of most.
//! - Sampling is two counts of ones in one word of a ChaCha20 stream: no table, no rejection and no
//!   branch, so it takes the same time whatever it draws.
//!
//! # A public key
//! Under `ckks-sum-public`, for clients who must not hold the secret, the key itself is one such
//! sample: `b = a·s + e` with a uniform `a` that a seed in the key file names, and `e` as above. To
//! encrypt one polynomial a client draws a uniform ternary `u` and two of the same noise, `e₀` and `e₁`,
//! and sends `c₁ = a·u + e₁` and `c₀ = b·u + e₀ + m·2^margin`. Sums of both decrypt as
//! `c₀ − c₁·s = m·2^margin + e·u + e₀ − e₁·s`: nothing has to be expanded from seeds, and the program is
//! the same for any number of contributors. The price is a second polynomial on the wire, whole, since
//! a coefficient of `c₁·s` is of all coefficients of `c₁` (the *mask*: see
//! [`Geometry`](crate::params::Geometry)), and noise that products with ternary polynomials multiply:
//! at 64 clients a margin of 25 or 26 bits in place of 12. The bound still is one, for certain, so sums
//! are exact and decryption cannot fail.
//!
//! - **Without the secret** both halves hide `m`: the pairs `(a, b)`, then `(a, c₁)` and `(b, c₀)` are
//!   samples of ternary RLWE over the rings of the table above, first under `s`, then under `u`, each
//!   with noise of the standard's deviation (V. Lyubashevsky, C. Peikert, O. Regev, "On ideal lattices
//!   and learning with errors over rings", 2010). `u` is as near to uniform as 2^-64 a coefficient.
//! - **Whoever holds the secret** learns of a sum the exact integers, and of its noise, which is a sum
//!   too and independent of them. Of a single contribution it learns everything, as under `ckks-sum`: what
//!   is gained is that clients cannot read one another's.
//! - **Randomness** is three fresh keys a contribution, one each for `u`, `e₀` and `e₁`, and the index
//!   of the polynomial. One `u` in two ciphertexts would tell the difference of their messages, so what
//!   is resumed starts at a polynomial. The public seed of a contribution only names it.
//! - **Chosen ciphertexts.** Who may choose what is decrypted, and is told whether it was a sum, learns
//!   of the secret bit by bit, as under any scheme of this kind. Decrypt sums of an aggregator that is
//!   trusted to add, as all of this assumes, and do not tell strangers which of theirs did not open.
//!
//! # Seeds
//! A seed must never serve two contributions under one `ckks-sum` key: the difference of two `b`s of one `a`
//! is free of `s`. Nor one chunk twice: the average of many `b`s of one message is free of noise.
//! [`Ticket`](crate::seal::Ticket) and [`Sealer`](crate::Sealer) see to that.

mod public;

use std::sync::Arc;

use ciphergram_accel::{
    Builder, Engine, Operand, Polys, Program, Ring, beats, program::Ntt, random::StreamRng,
};
use rand_core::Rng;
use zeroize::{Zeroize, Zeroizing};

use crate::{Error, Parameters, random, seal::Seed};

pub use public::LatticePublic;
pub(crate) use public::{Encryptor as PublicEncryptor, mask_beats, stray_lane};

/// The ternary secret, kept as the seed that it expands from and in NTT form.
pub struct LatticeSecret {
    seed: Zeroizing<[u8; 32]>,
    ntt: Polys<Ntt>,
}

/// Beats of the chunks of one polynomial that carry values.
pub(crate) fn value_beats(parameters: &Parameters) -> usize {
    let g = parameters.geometry();
    g.value_chunks * g.chunk_bytes() / beats::BYTES
}

impl LatticeSecret {
    /// Expands the secret that `seed` names.
    ///
    /// # Errors
    /// The engine's.
    pub fn expand(seed: &[u8; 32], ring: &Arc<Ring>, engine: &dyn Engine) -> Result<Self, Error> {
        let mut key = blake3::derive_key("ciphergram 2026 ckks-sum ternary secret", seed);
        let mut rng = StreamRng::from_seed(&key);
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

    /// The program that encrypts one polynomial. To be shown and measured: whoever runs it with seeds
    /// of their own goes past what [`Ticket`](crate::seal::Ticket) guards.
    #[must_use]
    pub fn encrypt_program(&self, parameters: &Parameters) -> Program {
        let ring = self.ring();
        let mut b = Builder::new("ckks-sum.encrypt");
        let message = b.integers("message", ring.len_words());
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
        let packed = b.pack("beats", c, value_beats(parameters));
        b.output(packed);
        b.build()
    }

    /// The program that decrypts one polynomial of a sum of `contributors`.
    #[must_use]
    pub fn decrypt_program(&self, parameters: &Parameters, contributors: usize) -> Program {
        let ring = self.ring();
        let mut b = Builder::new("ckks-sum.decrypt");
        let packed = b.beats("beats", ring, value_beats(parameters));
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
fn ternary(rng: &mut StreamRng) -> i8 {
    loop {
        // Two bits at a time are 0, 1, 2, or 3 again.
        let draw = (rng.next_u32() & 3) as i8;
        if draw < 3 {
            return draw - 1;
        }
    }
}

/// The program that adds beats in place, the beats of one unit an item.
#[must_use]
pub fn sum_program(ring: &Arc<Ring>) -> Program {
    let unit = beats::beats_per_unit(ring.primes().len());
    let mut b = Builder::new("ckks-sum.sum");
    let sum = b.beat_sums("sum", ring, unit);
    let x = b.beats("x", ring, unit);
    let next = b.add_beats("next", sum, x);
    b.update(sum, next);
    b.build()
}

/// Encrypts the polynomials of one contribution under its seed, with a noise key of its own.
///
/// Only a [`Sealer`](crate::Sealer) has one: it sees to it that a seed serves once.
pub(crate) struct Encryptor {
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
    pub(crate) fn new(
        secret: &LatticeSecret,
        parameters: &Parameters,
        seed: &Seed,
    ) -> Result<Self, Error> {
        Ok(Self {
            program: secret.encrypt_program(parameters),
            seed: random::seed_words(seed.bytes()),
            noise_key: Zeroizing::new(random::seed_words(&*random::bytes::<32>()?)),
            beats: value_beats(parameters),
        })
    }

    /// Encrypts polynomial `index`, as many words of message for each coefficient as the ring has primes.
    ///
    /// # Errors
    /// The engine's.
    pub(crate) fn encrypt(
        &self,
        engine: &dyn Engine,
        index: u64,
        message: &[u64],
        out: &mut Vec<u64>,
    ) -> Result<(), Error> {
        out.resize(self.beats * beats::WORDS, 0);
        let mut operands = [
            Operand::SecretIn(message),
            Operand::In(&[index]),
            Operand::In(&self.seed),
            Operand::SecretIn(&*self.noise_key),
            Operand::Out(out),
        ];
        Ok(engine.run(&self.program, &mut operands)?)
    }
}

#[cfg(test)]
mod tests {
    use ciphergram_accel::ReferenceEngine;
    use num_bigint::{BigInt, Sign};

    use super::*;
    use crate::{
        Scheme,
        params::{Lattice, Literal},
        rounding::Rounding,
    };

    /// 195 · 21 = 2^12 − 1: the noise of a sum of so many has no slack within its margin of 13
    /// bits.
    const CLIENTS: u32 = 195;

    fn secret(parameters: &Parameters) -> LatticeSecret {
        let ring = &parameters.lattice().unwrap().ring;
        LatticeSecret::expand(&[7; 32], ring, &ReferenceEngine).unwrap()
    }

    fn words(x: &BigInt, count: usize) -> Vec<u64> {
        assert_ne!(x.sign(), Sign::Minus);
        let mut words = x.magnitude().to_u64_digits();
        words.resize(count, 0);
        words
    }

    /// The summed noise of `CLIENTS` contributions, each drawn by the step that draws it.
    fn drawn(secret: &LatticeSecret) -> Vec<i64> {
        let ring = secret.ring();
        let mut b = Builder::new("noise");
        let (key, index) = (b.secret_seed("key"), b.index("index"));
        let e = b.noise("e", ring, key, index);
        b.output(e);
        let indices: Vec<u64> = (0..u64::from(CLIENTS)).collect();
        let mut out = vec![0; indices.len() * ring.len_words()];
        let mut operands =
            [Operand::SecretIn(&[3; 4]), Operand::In(&indices), Operand::Out(&mut out)];
        ReferenceEngine.run(&b.build(), &mut operands).unwrap();
        let q = ring.primes()[0];
        let centred = |x: u64| if x > q / 2 { x as i64 - q as i64 } else { x as i64 };
        let each = |i| out.chunks(ring.len_words()).map(|e| centred(e[i])).sum();
        (0..ring.degree()).map(each).collect()
    }

    /// What comes of `message · 2^margin + noise` under the sum of all contributors' masks,
    /// decrypted and rounded: the whole way of a sum but that its noise is chosen.
    fn through(
        (secret, parameters): (&LatticeSecret, &Parameters),
        message: &[BigInt],
        noise: &[i64],
        margin_bits: u32,
    ) -> Vec<BigInt> {
        let ring = secret.ring();
        let (degree, limbs) = (ring.degree(), ring.primes().len());
        let q: BigInt = ring.primes().iter().map(|&q| BigInt::from(q)).product();
        let seeds: Vec<u64> = (0..4 * u64::from(CLIENTS)).collect();
        let mut integers = vec![0; ring.len_words()];
        for (i, (m, &e)) in message.iter().zip(noise).enumerate() {
            let x = words(&((&q + (m << margin_bits) + e) % &q), limbs);
            (0..limbs).for_each(|w| integers[w * degree + i] = x[w]);
        }
        let mut b = Builder::new("sum of encryptions");
        let (x, index) = (b.integers("x", ring.len_words()), b.index("index"));
        let seed = b.seeds("seeds", CLIENTS as usize);
        let s = b.secret_key("ŝ", ring, secret.ntt.words());
        let a = b.uniform("â", ring, seed, index);
        let product = b.poly_mul("âŝ", a, s);
        let mask = b.intt("as", product);
        let lifted = b.lift("lifted", ring, x);
        let sum = b.add("b", mask, lifted);
        let packed = b.pack("beats", sum, value_beats(parameters));
        b.output(packed);
        let mut sum = vec![0; value_beats(parameters) * beats::WORDS];
        let mut operands = [
            Operand::SecretIn(&integers),
            Operand::In(&[5]),
            Operand::In(&seeds),
            Operand::Out(&mut sum),
        ];
        ReferenceEngine.run(&b.build(), &mut operands).unwrap();
        let mut opened = vec![0; degree * limbs];
        let program = secret.decrypt_program(parameters, CLIENTS as usize);
        let mut operands =
            [Operand::In(&sum), Operand::In(&[5]), Operand::In(&seeds), Operand::Out(&mut opened)];
        ReferenceEngine.run(&program, &mut operands).unwrap();
        let lattice = parameters.lattice().unwrap();
        let lattice = Lattice { margin_bits, ..lattice.clone() };
        let big = |x: &[u64]| x.iter().rev().fold(BigInt::ZERO, |acc, &w| (acc << 64) + w);
        let word = |w: usize, i: usize| opened[w * degree + i];
        let round = |i: usize| match limbs {
            2 => big(&Rounding::<2>::new(&lattice).round(std::array::from_fn(|w| word(w, i)))),
            _ => big(&Rounding::<4>::new(&lattice).round(std::array::from_fn(|w| word(w, i)))),
        };
        (0..parameters.geometry().slots_per_chunk).map(round).collect()
    }

    #[test]
    fn the_bound_on_noise_is_enough_and_one_bit_less_is_not() {
        let literal = |bits| Literal { scheme: Scheme::CkksSum, clients: CLIENTS, bits };
        let chosen = Parameters::new(literal(16)).unwrap();
        let others = chosen.others();
        for parameters in others.iter().chain([&chosen]).map(Parameters::over_small_ring) {
            let (lattice, g) = (parameters.lattice().unwrap(), parameters.geometry());
            let secret = secret(&parameters);
            assert_eq!(lattice.noise_bound + 1, 1 << (lattice.margin_bits - 1), "no slack");
            let bound = lattice.noise_bound as i64;
            let degree = secret.ring().degree();
            // Nothing, everything, and something in every field.
            let most = u64::from(CLIENTS * 2 * parameters.half_steps());
            let fields = |value: &dyn Fn(u64) -> u64| {
                let field = |f: usize| BigInt::from(value(f as u64)) << (f * g.field_bits as usize);
                (0..g.fields_per_slot).map(field).sum::<BigInt>()
            };
            let message: Vec<_> = (0..degree as u64)
                .map(|i| match i % 3 {
                    0 => BigInt::ZERO,
                    1 => fields(&|_| most),
                    _ => fields(&|f| (i * 7919 + f * 104_729) % (most + 1)),
                })
                .collect();
            let open =
                |noise: &[i64], margin| through((&secret, &parameters), &message, noise, margin);
            let survives = |noise: &[i64], margin| {
                let found = open(noise, margin);
                assert_eq!(found.len(), g.slots_per_chunk);
                found.iter().zip(&message).all(|(a, b)| a == b)
            };
            let margin = lattice.margin_bits;
            let drawn = drawn(&secret);
            // Of 195 draws the deviation is 45; nothing is ten times that away.
            assert!(drawn.iter().all(|e| e.abs() < 450) && drawn.iter().any(|e| e.abs() > 45));
            assert!(survives(&drawn, margin));
            let mixed: Vec<_> =
                (0..degree).map(|i| if i % 2 == 0 { bound } else { -bound }).collect();
            for forced in [&vec![bound; degree], &vec![-bound; degree], &mixed] {
                assert!(survives(forced, margin), "all noise at its bound");
                assert!(!survives(forced, margin - 1), "a margin of one bit less");
            }
            // Nor does the bound leave room for one more.
            assert!(!survives(&vec![bound + 1; degree], margin));
        }
    }
}
