//! `ckks-sum-public`: encryption by a public key. See the [schemes](super).

use std::{collections::BTreeSet, sync::Arc};

use ciphergram_accel::{Builder, Engine, Operand, Program, beats};
use zeroize::Zeroizing;

use super::{
    beats::{lanes_per_chunk, range_fault, stray_lane, sum_program},
    parameters::RlweParameters,
    polynomials::{DecryptPolynomial, EncryptPolynomial, GroupEncryptor, opener},
    secret::RlweSecret,
};
use crate::{
    Error,
    bytes::{to_bytes, to_words},
    contributors::ContributorSet,
    error::CiphertextFault,
    ids::Seed,
    params::Chunks,
    random,
    schemes::{Encryptor, Opener, PublicEncryption, PublicScheme, Scratch, SecretScheme},
};

/// The public half of a key: the seed of the uniform `a`, and `b = a·s + e`. Clones share it.
#[derive(Clone)]
pub(crate) struct Public(Arc<Shared>);

struct Shared {
    parameters: Arc<RlweParameters>,
    seed: [u8; 32],
    /// `b` in beats, as masks travel.
    packed: Vec<u8>,
    /// `a` and `b` in NTT form.
    ntt: [Vec<u64>; 2],
}

/// The secret half, and the public one that encrypts.
pub(crate) struct Secret {
    secret: RlweSecret,
    public: Public,
}

impl Secret {
    /// Expands the key that `seed` names.
    ///
    /// # Errors
    /// The engine's.
    pub(crate) fn expand(
        seed: &[u8; 32],
        parameters: &Arc<RlweParameters>,
        engine: &dyn Engine,
    ) -> Result<Self, Error> {
        let secret = RlweSecret::expand(seed, &parameters.ring, engine)?;
        let public = Public::derive(&secret, parameters, engine)?;
        Ok(Self { secret, public })
    }

    /// Returns the seed, for the key file.
    pub(crate) fn seed(&self) -> &[u8; 32] {
        self.secret.seed()
    }

    /// Returns the public half.
    pub(crate) fn public(&self) -> &Public {
        &self.public
    }

    fn parameters(&self) -> &RlweParameters {
        &self.public.0.parameters
    }
}

impl Public {
    /// Checks and expands what a key file holds.
    ///
    /// # Errors
    /// `b` has another length, a residue that is not below its prime, or more than the polynomial; or
    /// the engine's.
    pub(crate) fn new(
        parameters: &Arc<RlweParameters>,
        seed: &[u8; 32],
        packed: &[u8],
        engine: &dyn Engine,
    ) -> Result<Self, Error> {
        let invalid = |why: String| Error::Json { what: "key file", why };
        let ring = &parameters.ring;
        let expected = parameters.mask_beats() * beats::BYTES;
        if packed.len() != expected {
            let found = packed.len();
            return Err(invalid(format!("its polynomial b has {found} bytes, not {expected}")));
        }
        let words = to_words(packed);
        if let Some(lane) = parameters.range.first_bad_lane(engine, &words) {
            let why = format!("residue {lane} of its polynomial b is not below its prime");
            return Err(invalid(why));
        }
        if stray_lane(&words, ring.len_words()).is_some() {
            return Err(invalid("its polynomial b goes on past its end".into()));
        }
        let mut program = Builder::new("ckks-sum-public.expand");
        let packed_b = program.beats("beats", ring, parameters.mask_beats());
        let index = program.index("index");
        let seeds = program.seeds("seed", 1);
        let a = program.uniform("â", ring, seeds, index);
        let b = program.unpack("b", packed_b);
        let b = program.ntt("b̂", b);
        program.output(a);
        program.output(b);
        let mut ntt = [(); 2].map(|()| vec![0; ring.len_words()]);
        let [a, b] = &mut ntt;
        let mut operands = [
            Operand::In(&words),
            Operand::In(&[0]),
            Operand::In(&random::seed_words(seed)),
            Operand::Out(a),
            Operand::Out(b),
        ];
        engine.run(&program.build(), &mut operands)?;
        Ok(Self(Arc::new(Shared {
            parameters: parameters.clone(),
            seed: *seed,
            packed: packed.into(),
            ntt,
        })))
    }

    /// Returns the seed of `a`.
    pub(crate) fn seed(&self) -> &[u8; 32] {
        &self.0.seed
    }

    /// Returns `b` in beats.
    pub(crate) fn packed(&self) -> &[u8] {
        &self.0.packed
    }
}

impl Public {
    /// Derives the public half that belongs to a secret, the same at every call: the seed of `a` and the
    /// noise of `b` come of the secret's own seed, each by a derivation of its own.
    ///
    /// # Errors
    /// The engine's.
    fn derive(
        secret: &RlweSecret,
        parameters: &Arc<RlweParameters>,
        engine: &dyn Engine,
    ) -> Result<Self, Error> {
        let derive = |context| Zeroizing::new(blake3::derive_key(context, secret.seed()));
        let seed = *derive("ciphergram 2026 ckks-sum-public uniform seed");
        let noise_key = Zeroizing::new(random::seed_words(&derive(
            "ciphergram 2026 ckks-sum-public key noise",
        )));
        let ring = &parameters.ring;
        let mut program = Builder::new("ckks-sum-public.key");
        let index = program.index("index");
        let seeds = program.seeds("seed", 1);
        let key = program.secret_seed("noise_key");
        let s = program.secret_key("ŝ", ring, secret.ntt());
        let a = program.uniform("â", ring, seeds, index);
        let product = program.poly_mul("âŝ", a, s);
        let product = program.intt("as", product);
        let e = program.noise("e", ring, key, index);
        let b = program.add("b", product, e);
        let packed = program.pack("beats", b, parameters.mask_beats());
        program.output(packed);
        let mut packed = vec![0; parameters.mask_beats() * beats::WORDS];
        let mut operands = [
            Operand::In(&[0]),
            Operand::In(&random::seed_words(&seed)),
            Operand::SecretIn(&*noise_key),
            Operand::Out(&mut packed),
        ];
        engine.run(&program.build(), &mut operands)?;
        Self::new(parameters, &seed, &to_bytes(&packed), engine)
    }
}

impl PublicEncryption for Public {
    fn encryptor(&self, _: &dyn Engine) -> Result<Box<dyn Encryptor>, Error> {
        let parameters = self.0.parameters.clone();
        Ok(Box::new(GroupEncryptor { parameters, polynomials: Encryption::new(self)? }))
    }

    fn encrypt_program(&self, _: &dyn Engine) -> Result<Arc<Program>, Error> {
        Ok(encrypt_program(self).into())
    }
}

impl PublicScheme for Public {
    fn encryption(&self) -> Option<&dyn PublicEncryption> {
        Some(self)
    }

    fn sum_program(&self) -> Arc<Program> {
        sum_program(&self.0.parameters.ring)
    }

    fn places_per_chunk(&self, chunks: &Chunks) -> usize {
        lanes_per_chunk(chunks)
    }

    fn range_fault(
        &self,
        engine: &dyn Engine,
        chunks: &Chunks,
        first: u32,
        words: &[u64],
    ) -> Option<CiphertextFault> {
        range_fault(&self.0.parameters, engine, (chunks, first), words)
    }
}

impl SecretScheme for Secret {
    fn encryptor(&self, engine: &dyn Engine, _: &Seed) -> Result<Box<dyn Encryptor>, Error> {
        self.public.encryptor(engine)
    }

    fn encrypt_program(&self, engine: &dyn Engine) -> Result<Arc<Program>, Error> {
        self.public.encrypt_program(engine)
    }

    fn decrypt_program(&self, _: usize) -> Arc<Program> {
        decrypt_program(&self.secret, self.parameters()).into()
    }

    fn opener(&self, _: &BTreeSet<usize>) -> Box<dyn Opener + '_> {
        let (program, parameters) = (self.decrypt_program(0), self.parameters());
        let mask_words = parameters.mask_beats() * beats::WORDS;
        opener(parameters, Decryption { program, mask_words })
    }
}

/// The polynomials of one contribution, with keys of its own for `u`, `e₀` and `e₁`.
struct Encryption {
    program: Program,
    keys: [Zeroizing<[u64; 4]>; 3],
    mask_words: usize,
    value_words: usize,
}

impl Encryption {
    fn new(public: &Public) -> Result<Self, Error> {
        let key = || Ok::<_, Error>(Zeroizing::new(random::seed_words(&*random::bytes::<32>()?)));
        let parameters = &public.0.parameters;
        Ok(Self {
            program: encrypt_program(public),
            keys: [key()?, key()?, key()?],
            mask_words: parameters.mask_beats() * beats::WORDS,
            value_words: parameters.value_beats() * beats::WORDS,
        })
    }
}

impl EncryptPolynomial for Encryption {
    /// Returns the mask comes before the values.
    fn encrypt(
        &self,
        engine: &dyn Engine,
        index: u64,
        message: &[u64],
        out: &mut Vec<u64>,
    ) -> Result<(), Error> {
        out.resize(self.mask_words + self.value_words, 0);
        let (mask, values) = out.split_at_mut(self.mask_words);
        let [u, e0, e1] = &self.keys;
        let mut operands = [
            Operand::SecretIn(message),
            Operand::In(&[index]),
            Operand::SecretIn(&**u),
            Operand::SecretIn(&**e0),
            Operand::SecretIn(&**e1),
            Operand::Out(mask),
            Operand::Out(values),
        ];
        Ok(engine.run(&self.program, &mut operands)?)
    }
}

/// The program that decrypts sums, of any contributors.
struct Decryption {
    program: Arc<Program>,
    mask_words: usize,
}

impl DecryptPolynomial for Decryption {
    fn decrypt(
        &self,
        engine: &dyn Engine,
        _: u64,
        _: (&[Seed], &ContributorSet),
        scratch: &mut Scratch,
    ) -> Result<(), Error> {
        let (mask, values) = scratch.words.split_at(self.mask_words);
        let out = Operand::Out(&mut scratch.integers);
        Ok(engine.run(&self.program, &mut [Operand::In(mask), Operand::In(values), out])?)
    }
}

/// Builds the program that encrypts one polynomial: its mask and its values.
fn encrypt_program(public: &Public) -> Program {
    let Shared { parameters, ntt: [a, b], .. } = &*public.0;
    let ring = &parameters.ring;
    let mut program = Builder::new("ckks-sum-public.encrypt");
    let message = program.integers("message", ring.len_words());
    let index = program.index("index");
    let [u_key, e0_key, e1_key] =
        ["u_key", "e₀_key", "e₁_key"].map(|name| program.secret_seed(name));
    let a = program.public_key("â", ring, a);
    let b = program.public_key("b̂", ring, b);
    let u = program.ternary("u", ring, u_key, index);
    let u = program.ntt("û", u);
    let au = program.poly_mul("âû", a, u);
    let au = program.intt("au", au);
    let e1 = program.noise("e₁", ring, e1_key, index);
    let c1 = program.add("c₁", au, e1);
    let mask = program.pack("mask", c1, parameters.mask_beats());
    let bu = program.poly_mul("b̂û", b, u);
    let bu = program.intt("bu", bu);
    let e0 = program.noise("e₀", ring, e0_key, index);
    let noisy = program.add("bu+e₀", bu, e0);
    let m = program.lift("m", ring, message);
    let c0 = program.add("c₀", noisy, m);
    let values = program.pack("values", c0, parameters.value_beats());
    program.output(mask);
    program.output(values);
    program.build()
}

/// Builds the program that decrypts one polynomial of a sum, of any contributors.
fn decrypt_program(secret: &RlweSecret, parameters: &RlweParameters) -> Program {
    let ring = secret.ring();
    let mut b = Builder::new("ckks-sum-public.decrypt");
    let mask = b.beats("mask", ring, parameters.mask_beats());
    let values = b.beats("values", ring, parameters.value_beats());
    let s = b.secret_key("ŝ", ring, secret.ntt());
    let c1 = b.unpack("c₁", mask);
    let c1 = b.ntt("ĉ₁", c1);
    let product = b.poly_mul("ĉ₁ŝ", c1, s);
    let product = b.intt("c₁s", product);
    let c0 = b.unpack("c₀", values);
    let noisy = b.sub("m+e", c0, product);
    let integers = b.compose("integers", noisy);
    b.output(integers);
    b.build()
}

#[cfg(test)]
mod tests {
    use ciphergram_accel::{CpuEngine, ReferenceEngine, Ring};
    use num_bigint::BigUint;

    use super::*;
    use crate::{
        params::{Literal, Parameters, Scheme},
        schemes::rlwe::rounding::Rounding,
    };

    fn parameters(clients: u32, bits: u32) -> Parameters {
        Parameters::new(Literal { scheme: Scheme::CkksSumPublic, clients, bits }).unwrap()
    }

    fn ring(parameters: &Parameters) -> &Arc<Ring> {
        &parameters.rlwe().unwrap().ring
    }

    /// Decrypts polynomials over either ring.
    fn opened(
        (secret, parameters): (&RlweSecret, &Parameters),
        engine: &dyn Engine,
        masks: &[u64],
        values: &[u64],
    ) -> Vec<u64> {
        let count = values.len() / (parameters.rlwe().unwrap().value_beats() * beats::WORDS);
        let mut out = vec![0; count * ring(parameters).len_words()];
        let mut operands = [Operand::In(masks), Operand::In(values), Operand::Out(&mut out)];
        engine.run(&decrypt_program(secret, parameters.rlwe().unwrap()), &mut operands).unwrap();
        out
    }

    /// Returns the fields of one decrypted polynomial, rounded by a margin of the caller's.
    fn rounded(parameters: &Parameters, integers: &[u64], margin_bits: u32) -> Vec<Vec<u64>> {
        let rlwe = parameters.rlwe().unwrap();
        let rlwe = RlweParameters { margin_bits, ..(**rlwe).clone() };
        let (g, degree) = (parameters.geometry(), rlwe.ring.degree());
        let word = |w: usize, i: usize| integers[w * degree + i];
        let round = |i: usize| match rlwe.ring.primes().len() {
            2 => Rounding::<2>::new(&rlwe).round(std::array::from_fn(|w| word(w, i))).to_vec(),
            _ => Rounding::<4>::new(&rlwe).round(std::array::from_fn(|w| word(w, i))).to_vec(),
        };
        (0..g.value_chunks * g.slots_per_chunk).map(round).collect()
    }

    fn small(ring: &Ring, coefficients: impl Fn(usize) -> i64) -> Vec<u64> {
        let residue = |q: u64, i| coefficients(i).rem_euclid(q as i64) as u64;
        ring.primes()
            .iter()
            .flat_map(|&q| (0..ring.degree()).map(move |i| (q, i)))
            .map(|(q, i)| residue(q, i))
            .collect()
    }

    /// Computes `e·u + e₀ − e₁·s` of polynomials given in RNS, coefficient by coefficient.
    fn noise(ring: &Arc<Ring>, [e, u, e0, e1, s]: [&[u64]; 5]) -> Vec<i64> {
        let mut b = Builder::new("noise");
        let [e_in, u_in, e0_in, e1_in, s_in] =
            ["e", "u", "e₀", "e₁", "s"].map(|name| b.coefficients(name, ring));
        let [e_ntt, u_ntt, e1_ntt, s_ntt] = [e_in, u_in, e1_in, s_in].map(|x| b.ntt("x", x));
        let (eu, e1s) = (b.poly_mul("eu", e_ntt, u_ntt), b.poly_mul("e₁s", e1_ntt, s_ntt));
        let difference = b.sub("eu−e₁s", eu, e1s);
        let difference = b.intt("eu−e₁s", difference);
        let all = b.add("all", difference, e0_in);
        b.output(all);
        let mut out = vec![0; ring.len_words()];
        let inputs = [e, u, e0, e1, s].map(Operand::SecretIn);
        let mut operands: Vec<_> = inputs.into_iter().collect();
        operands.push(Operand::Out(&mut out));
        ReferenceEngine.run(&b.build(), &mut operands).unwrap();
        drop(operands);
        let q = ring.primes()[0];
        let centred = |&x: &u64| if x > q / 2 { x as i64 - q as i64 } else { x as i64 };
        out[..ring.degree()].iter().map(centred).collect()
    }

    /// Programs give the same bits on every engine: keys, ciphertexts and what they decrypt to.
    #[test]
    fn programs_agree_with_the_reference() {
        // Over either ring, and with the count of a whole batch.
        for parameters in [parameters(3, 24), parameters(64, 16)].map(|p| p.over_small_ring()) {
            let ring = ring(&parameters);
            let engines: [&dyn Engine; 3] =
                [&ReferenceEngine, &CpuEngine::new(), &CpuEngine::portable()];
            let mut message = vec![0; 2 * ring.len_words()];
            message.iter_mut().zip(1u64..).for_each(|(m, i)| *m = i.wrapping_mul(0x9e37_79b9));
            let found = engines.map(|engine| {
                let secret = RlweSecret::expand(&[5; 32], ring, engine).unwrap();
                let public = Public::derive(&secret, parameters.rlwe().unwrap(), engine).unwrap();
                let program = encrypt_program(&public);
                let keys = [[1; 4], [2; 4], [3; 4]];
                let mut masks = vec![0; 2 * parameters.rlwe().unwrap().mask_beats() * beats::WORDS];
                let mut values =
                    vec![0; 2 * parameters.rlwe().unwrap().value_beats() * beats::WORDS];
                let mut operands = [
                    Operand::SecretIn(&message),
                    Operand::In(&[0, u64::MAX]),
                    Operand::SecretIn(&keys[0]),
                    Operand::SecretIn(&keys[1]),
                    Operand::SecretIn(&keys[2]),
                    Operand::Out(&mut masks),
                    Operand::Out(&mut values),
                ];
                engine.run(&program, &mut operands).unwrap();
                let stray = |mask| stray_lane(mask, ring.len_words());
                assert!(masks.chunks(masks.len() / 2).all(|mask| stray(mask).is_none()));
                let out = opened((&secret, &parameters), engine, &masks, &values);
                (public.packed().to_vec(), public.0.ntt.to_vec(), masks, values, out)
            });
            assert!(found[0] == found[1], "the quickest path");
            assert!(found[0] == found[2], "the portable path");
        }
    }

    /// The bound is the least: there are polynomials whose noise reaches it, on either side.
    #[test]
    fn the_bound_of_one_is_what_draws_at_their_ends_come_to() {
        for parameters in [parameters(3, 24), parameters(64, 16)].map(|p| p.over_small_ring()) {
            let (rlwe, ring) = (parameters.rlwe().unwrap(), ring(&parameters));
            let bound = rlwe.noise_of_one as i64;
            let last = ring.degree() - 1;
            let at = |x: i64| small(ring, |_| x);
            // The last coefficient of a product is the one without a sign of its own.
            let most = noise(ring, [&at(21), &at(1), &at(21), &at(-21), &at(1)]);
            assert_eq!(most[last], bound);
            let least = noise(ring, [&at(-21), &at(1), &at(-21), &at(21), &at(1)]);
            assert_eq!(least[last], -bound);
            assert!(most.iter().chain(&least).all(|x| x.abs() <= bound));
            // Of mixed signs, none is beyond it.
            let signs = |seed: usize, size: i64| {
                small(ring, move |i| [-size, size][(i * i * 31 + i * seed) / 7 % 2])
            };
            for seed in 1..20 {
                let of = [
                    &signs(seed, 21),
                    &signs(seed + 3, 1),
                    &signs(seed + 5, 21),
                    &signs(seed + 7, 21),
                    &signs(seed + 11, 1),
                ];
                assert!(noise(ring, of.map(Vec::as_slice)).iter().all(|x| x.abs() <= bound));
            }
        }
    }

    /// All noise of all contributors at its bound does not move the fields; with a bit less of margin
    /// it does.
    #[test]
    fn the_margin_is_enough_and_one_bit_less_is_not() {
        for parameters in [parameters(3, 24), parameters(195, 16)].map(|p| p.over_small_ring()) {
            let (rlwe, g) = (parameters.rlwe().unwrap(), parameters.geometry());
            let (ring, margin) = (ring(&parameters), rlwe.margin_bits);
            let secret = RlweSecret::expand(&[7; 32], ring, &ReferenceEngine).unwrap();
            let bound = rlwe.noise_bound as i64;
            let most = u64::from(parameters.clients() * 2 * parameters.half_steps());
            // Nothing, everything, and something in every field.
            let fields = |i: usize| match i % 3 {
                0 => 0,
                1 => most,
                _ => (i as u64 * 7919) % (most + 1),
            };
            let survives = |noise: &dyn Fn(usize) -> i64, margin_bits| {
                // c₁ is anything at all, and c₀ = c₁·s + noise + m.
                let mut b = Builder::new("a sum of encryptions");
                let (m, index) = (b.integers("m", ring.len_words()), b.index("index"));
                let e = b.coefficients("e", ring);
                let seed = b.seeds("seed", 1);
                let s = b.secret_key("ŝ", ring, secret.ntt());
                let a = b.uniform("ĉ₁", ring, seed, index);
                let c1 = b.intt("c₁", a);
                let product = b.poly_mul("ĉ₁ŝ", a, s);
                let product = b.intt("c₁s", product);
                let m = b.lift("m", ring, m);
                let c0 = b.add("c₁s+e", product, e);
                let c0 = b.add("c₀", c0, m);
                let mask = b.pack("mask", c1, parameters.rlwe().unwrap().mask_beats());
                let values = b.pack("values", c0, parameters.rlwe().unwrap().value_beats());
                b.output(mask);
                b.output(values);
                let mut message = vec![0; ring.len_words()];
                let mut expected = vec![];
                for i in 0..g.value_chunks * g.slots_per_chunk {
                    let field = |f: u32| BigUint::from(fields(i)) << (f * g.field_bits);
                    let all: BigUint = (0..g.fields_per_slot as u32).map(field).sum();
                    let words = |x: BigUint| {
                        let mut words = x.to_u64_digits();
                        words.resize(ring.primes().len(), 0);
                        words
                    };
                    for (w, word) in words(all.clone() << margin_bits).into_iter().enumerate() {
                        message[w * ring.degree() + i] = word;
                    }
                    expected.push(words(all));
                }
                let noise = small(ring, noise);
                let mut masks = vec![0; parameters.rlwe().unwrap().mask_beats() * beats::WORDS];
                let mut values = vec![0; parameters.rlwe().unwrap().value_beats() * beats::WORDS];
                let mut operands = [
                    Operand::SecretIn(&message),
                    Operand::In(&[3]),
                    Operand::SecretIn(&noise),
                    Operand::In(&[1, 2, 3, 4]),
                    Operand::Out(&mut masks),
                    Operand::Out(&mut values),
                ];
                ReferenceEngine.run(&b.build(), &mut operands).unwrap();
                let integers = opened((&secret, &parameters), &ReferenceEngine, &masks, &values);
                rounded(&parameters, &integers, margin_bits) == expected
            };
            for forced in [&(|_| bound) as &dyn Fn(usize) -> i64, &|_| -bound, &|i| {
                if i % 2 == 0 { bound } else { -bound }
            }] {
                assert!(survives(forced, margin), "all noise at its bound");
                assert!(!survives(forced, margin - 1), "a margin of one bit less");
            }
        }
    }

    /// The noise of real encryptions over the real rings is what its distribution says.
    #[test]
    fn noise_is_as_large_as_it_should_be() {
        let engine = CpuEngine::new();
        for parameters in [parameters(3, 24), parameters(64, 16)] {
            let ring = ring(&parameters);
            let secret = RlweSecret::expand(&[9; 32], ring, &engine).unwrap();
            let public = Public::derive(&secret, parameters.rlwe().unwrap(), &engine).unwrap();
            let encryptor = Encryption::new(&public).unwrap();
            let nothing = vec![0; ring.len_words()];
            let (mut masks, mut values) = (vec![], vec![]);
            for index in 0..4 {
                let mut words = vec![];
                encryptor.encrypt(&engine, index, &nothing, &mut words).unwrap();
                let (mask, value) = words.split_at(encryptor.mask_words);
                masks.extend_from_slice(mask);
                values.extend_from_slice(value);
            }
            let out = opened((&secret, &parameters), &engine, &masks, &values);
            // Q is odd and close to a power of two: what is near it is a negative number.
            let g = parameters.geometry();
            let (degree, held) = (ring.degree(), g.value_chunks * g.slots_per_chunk);
            let q = ring.primes().iter().fold(1u64, |q, &p| q.wrapping_mul(p));
            let small = |poly: &[u64], i: usize| {
                let is_negative = poly[degree + i] != 0;
                let low = poly[i] as i64;
                if is_negative { low.wrapping_sub(q as i64) } else { low }
            };
            let drawn: Vec<f64> = out
                .chunks(ring.len_words())
                .flat_map(|poly| (0..held).map(move |i| small(poly, i) as f64))
                .collect();
            // Variances: 10.5 of a draw, 2/3 of a ternary digit.
            let variance = 10.5 * (2.0 * degree as f64 * 2.0 / 3.0 + 1.0);
            let found = drawn.iter().map(|x| x * x).sum::<f64>() / drawn.len() as f64;
            assert!((found / variance - 1.0).abs() < 0.1, "{found}, not {variance}");
            let mean = drawn.iter().sum::<f64>() / drawn.len() as f64;
            assert!(mean.abs() < 6.0 * (variance / drawn.len() as f64).sqrt(), "{mean}");
            assert!(drawn.iter().all(|x| x.abs() < 10.0 * variance.sqrt()));
        }
    }
}
