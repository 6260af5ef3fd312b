//! `ckks-sum`: symmetric encryption under seeds. See the [schemes](super).

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use ciphergram_accel::{Builder, Engine, Operand, Program, beats};
use zeroize::Zeroizing;

use super::{
    parameters::RlweParameters,
    polynomials::{DecryptPolynomial, EncryptPolynomial, GroupEncryptor, opener},
    secret::{OF_SUMS, RlweSecret},
};
use crate::{
    Error,
    contributors::{Contributor, ContributorSet},
    ids::Seed,
    random,
    schemes::{Encryptor, Opener, Scratch, SecretScheme},
};

/// The secret half. The public one has no key material, only the parameters of what is summed.
pub(crate) struct Secret {
    secret: RlweSecret,
    parameters: Arc<RlweParameters>,
}

impl Secret {
    /// Expands the secret that `seed` names.
    ///
    /// # Errors
    /// The engine's.
    pub(crate) fn expand(
        seed: &[u8; 32],
        parameters: &Arc<RlweParameters>,
        engine: &dyn Engine,
    ) -> Result<Self, Error> {
        let secret = RlweSecret::expand(seed, OF_SUMS, &parameters.ring, engine)?;
        Ok(Self { secret, parameters: parameters.clone() })
    }

    /// Returns the seed, for the key file.
    pub(crate) fn seed(&self) -> &[u8; 32] {
        self.secret.seed()
    }
}

impl SecretScheme for Secret {
    fn encryptor(&self, _: &dyn Engine, seed: &Seed) -> Result<Box<dyn Encryptor>, Error> {
        let polynomials = Encryption {
            program: encrypt_program(&self.secret, &self.parameters),
            seed: random::seed_words(seed.bytes()),
            noise_key: Zeroizing::new(random::seed_words(&*random::bytes::<32>()?)),
            beats: self.parameters.value_beats(),
        };
        Ok(Box::new(GroupEncryptor { parameters: self.parameters.clone(), polynomials }))
    }

    fn encrypt_program(&self, _: &dyn Engine) -> Result<Arc<Program>, Error> {
        Ok(encrypt_program(&self.secret, &self.parameters).into())
    }

    fn decrypt_program(&self, contributors: usize) -> Arc<Program> {
        decrypt_program(&self.secret, &self.parameters, contributors).into()
    }

    fn opener(&self, contributors: &BTreeSet<usize>) -> Box<dyn Opener + '_> {
        let program = |&count| (count, decrypt_program(&self.secret, &self.parameters, count));
        let programs = contributors.iter().map(program).collect();
        opener(&self.parameters, Decryption { programs })
    }
}

/// The polynomials of one contribution under its seed, with a noise key of its own.
struct Encryption {
    program: Program,
    seed: [u64; 4],
    noise_key: Zeroizing<[u64; 4]>,
    beats: usize,
}

impl EncryptPolynomial for Encryption {
    fn encrypt(
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

/// The programs that decrypt one sum, by the number of contributors.
struct Decryption {
    programs: BTreeMap<usize, Program>,
}

impl DecryptPolynomial for Decryption {
    fn decrypt(
        &self,
        engine: &dyn Engine,
        index: u64,
        (contributors, set): (&[Contributor], &ContributorSet),
        scratch: &mut Scratch,
    ) -> Result<(), Error> {
        let Scratch { words, seeds, integers, .. } = scratch;
        seeds.clear();
        seeds.extend(set.iter().flat_map(|i| random::seed_words(contributors[i].seed.bytes())));
        let mut operands =
            [Operand::In(words), Operand::In(&[index]), Operand::In(seeds), Operand::Out(integers)];
        Ok(engine.run(&self.programs[&set.count()], &mut operands)?)
    }
}

/// Builds the program that encrypts one polynomial. To be shown and measured: running it with seeds of
/// one's own goes past what [`Ticket`](crate::Ticket) guards.
fn encrypt_program(secret: &RlweSecret, parameters: &RlweParameters) -> Program {
    let ring = secret.ring();
    let mut b = Builder::new("ckks-sum.encrypt");
    let message = b.integers("message", ring.len_words());
    let index = b.index("index");
    let seed = b.seeds("seed", 1);
    let noise_key = b.secret_seed("noise_key");
    let s = b.secret_key("ŝ", ring, secret.ntt());
    let a = b.uniform("â", ring, seed, index);
    let product = b.poly_mul("âŝ", a, s);
    let mask = b.intt("as", product);
    let e = b.noise("e", ring, noise_key, index);
    let noisy = b.add("as+e", mask, e);
    let m = b.lift("m", ring, message);
    let c = b.add("b", noisy, m);
    let packed = b.pack("beats", c, parameters.value_beats());
    b.output(packed);
    b.build()
}

/// Builds the program that decrypts one polynomial of a sum of `contributors`.
fn decrypt_program(
    secret: &RlweSecret,
    parameters: &RlweParameters,
    contributors: usize,
) -> Program {
    let ring = secret.ring();
    let mut b = Builder::new("ckks-sum.decrypt");
    let packed = b.beats("beats", ring, parameters.value_beats());
    let index = b.index("index");
    let seeds = b.seeds("seeds", contributors);
    let s = b.secret_key("ŝ", ring, secret.ntt());
    let sum = b.unpack("b", packed);
    let a = b.uniform("â", ring, seeds, index);
    let product = b.poly_mul("âŝ", a, s);
    let mask = b.intt("as", product);
    let noisy = b.sub("m+e", sum, mask);
    let integers = b.compose("integers", noisy);
    b.output(integers);
    b.build()
}

#[cfg(test)]
mod tests {
    use ciphergram_accel::ReferenceEngine;
    use num_bigint::{BigInt, Sign};

    use super::*;
    use crate::{Parameters, Scheme, params::Literal, schemes::rlwe::rounding::Rounding};

    /// 195 · 21 = 2^12 − 1: the noise of a sum of that many has no slack within its margin of 13
    /// bits.
    const CLIENTS: u32 = 195;

    fn secret(parameters: &Parameters) -> RlweSecret {
        let ring = &parameters.rlwe().unwrap().ring;
        RlweSecret::expand(&[7; 32], OF_SUMS, ring, &ReferenceEngine).unwrap()
    }

    fn words(x: &BigInt, count: usize) -> Vec<u64> {
        assert_ne!(x.sign(), Sign::Minus);
        let mut words = x.magnitude().to_u64_digits();
        words.resize(count, 0);
        words
    }

    /// Returns the summed noise of `CLIENTS` contributions, each drawn by the step that draws it.
    fn drawn(secret: &RlweSecret) -> Vec<i64> {
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

    /// Sends `message · 2^margin + noise` through, under the sum of all contributors' masks,
    /// decrypted and rounded: the whole way of a sum but that its noise is chosen.
    fn through(
        (secret, parameters): (&RlweSecret, &Parameters),
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
        let s = b.secret_key("ŝ", ring, secret.ntt());
        let a = b.uniform("â", ring, seed, index);
        let product = b.poly_mul("âŝ", a, s);
        let mask = b.intt("as", product);
        let lifted = b.lift("lifted", ring, x);
        let sum = b.add("b", mask, lifted);
        let packed = b.pack("beats", sum, parameters.rlwe().unwrap().value_beats());
        b.output(packed);
        let mut sum = vec![0; parameters.rlwe().unwrap().value_beats() * beats::WORDS];
        let mut operands = [
            Operand::SecretIn(&integers),
            Operand::In(&[5]),
            Operand::In(&seeds),
            Operand::Out(&mut sum),
        ];
        ReferenceEngine.run(&b.build(), &mut operands).unwrap();
        let mut opened = vec![0; degree * limbs];
        let program = decrypt_program(secret, parameters.rlwe().unwrap(), CLIENTS as usize);
        let mut operands =
            [Operand::In(&sum), Operand::In(&[5]), Operand::In(&seeds), Operand::Out(&mut opened)];
        ReferenceEngine.run(&program, &mut operands).unwrap();
        let rlwe = parameters.rlwe().unwrap();
        let rlwe = RlweParameters { margin_bits, ..(**rlwe).clone() };
        let big = |x: &[u64]| x.iter().rev().fold(BigInt::ZERO, |acc, &w| (acc << 64) + w);
        let word = |w: usize, i: usize| opened[w * degree + i];
        let round = |i: usize| match limbs {
            2 => big(&Rounding::<2>::new(&rlwe).round(std::array::from_fn(|w| word(w, i)))),
            _ => big(&Rounding::<4>::new(&rlwe).round(std::array::from_fn(|w| word(w, i)))),
        };
        (0..parameters.geometry().slots_per_chunk).map(round).collect()
    }

    #[test]
    fn the_bound_on_noise_is_enough_and_one_bit_less_is_not() {
        let literal = |bits| Literal { scheme: Scheme::CkksSum, clients: CLIENTS, bits };
        let chosen = Parameters::new(literal(16)).unwrap();
        let others = chosen.others();
        for parameters in others.iter().chain([&chosen]).map(Parameters::over_small_ring) {
            let (rlwe, g) = (parameters.rlwe().unwrap(), parameters.geometry());
            let secret = secret(&parameters);
            assert_eq!(rlwe.noise_bound + 1, 1 << (rlwe.margin_bits - 1), "no slack");
            let bound = rlwe.noise_bound as i64;
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
            let margin = rlwe.margin_bits;
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
