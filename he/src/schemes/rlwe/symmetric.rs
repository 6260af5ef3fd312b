//! `ckks-sum`: symmetric encryption under seeds. See the [schemes](super).

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError},
};

use ciphergram_accel::{
    Builder, Engine, Operand, Program, Public, Ring, Secret,
    program::{self, Coeff, Integer, Var},
};
use zeroize::Zeroizing;

use super::{
    parameters::RlweParameters,
    polynomials::{DecryptPolynomial, PolynomialEncryptor, opener},
    secret::{OF_SUMS, RlweSecret, host},
};
use crate::{
    Error, Parameters,
    ids::{Seed, Statement},
    random,
    schemes::{Groups, Opener, Scratch, SecretScheme, UpdateEncryptor},
};

/// The secret half: the seed that secrets grow from, one for each statement and ring. The public half has no key
/// material, only the parameters of what is summed.
pub(crate) struct Secrets {
    seed: Zeroizing<[u8; 32]>,
    small: SymmetricKey,
    /// Those of large updates, each with the fewest values of such an update.
    larger: Vec<(usize, SymmetricKey)>,
}

impl Secrets {
    /// Takes the seed of a key.
    pub(crate) fn new(
        seed: &[u8; 32],
        parameters: &Parameters,
        small: &Arc<RlweParameters>,
    ) -> Self {
        let secret = |set: &Arc<RlweParameters>| SymmetricKey::of_seed(seed, set.clone());
        let larger = parameters.larger();
        let larger = larger.filter_map(|(from, set)| Some((from, secret(set.rlwe()?)))).collect();
        Self { seed: Zeroizing::new(*seed), small: secret(small), larger }
    }

    /// Returns the secrets over the ring of updates of `values` values.
    pub(crate) fn of_values(&self, values: usize) -> &SymmetricKey {
        let large = self.larger.iter().rev().find(|(from, _)| *from <= values);
        large.map_or(&self.small, |(_, secret)| secret)
    }

    /// Returns the seed, for the key file.
    pub(crate) fn seed(&self) -> &[u8; 32] {
        &self.seed
    }
}

/// The secrets over one ring: **each statement has its own**, so that nothing that an aggregator learns of one, by sums
/// that do not open, says anything of another.
pub(crate) struct SymmetricKey {
    /// Names the secrets of statements.
    secrets: Zeroizing<[u8; 32]>,
    /// Names the noise of contributions.
    noise: Zeroizing<[u8; 32]>,
    parameters: Arc<RlweParameters>,
    /// The secret of the last statement: whoever seals under it mostly opens its sum next.
    last: Mutex<Option<(Statement, Arc<RlweSecret>)>>,
}

impl SymmetricKey {
    fn of_seed(seed: &[u8; 32], parameters: Arc<RlweParameters>) -> Self {
        let degree = parameters.ring.degree() as u64;
        let material = Zeroizing::new([&seed[..], &degree.to_le_bytes()].concat());
        let derive = |context| Zeroizing::new(blake3::derive_key(context, &material));
        let secrets = derive("ciphergram 2026 ckks-sum secrets of statements");
        let noise = derive("ciphergram 2026 ckks-sum noise of tiles under ChaCha8");
        Self { secrets, noise, parameters, last: Mutex::default() }
    }

    /// Expands the secret of a statement.
    ///
    /// # Errors
    /// The engine's.
    fn of_statement(&self, statement: &Statement) -> Result<Arc<RlweSecret>, Error> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, secret)) = last.as_ref().filter(|(known, _)| known == statement) {
            return Ok(secret.clone());
        }
        let seed = Zeroizing::new(*blake3::keyed_hash(&self.secrets, &statement.0).as_bytes());
        let secret = RlweSecret::expand(&seed, OF_SUMS, &self.parameters.ring, host())?;
        let secret = Arc::new(secret);
        *last = Some((*statement, secret.clone()));
        Ok(secret)
    }

    /// Derives the noise key of the contribution that `seed` names. A seed is that of one message, so that whoever
    /// seals it again, after a restart or from a copy, sends the same bytes: with noise drawn anew many would tell the
    /// noise.
    fn noise_key(&self, statement: &Statement, seed: &Seed) -> Zeroizing<[u64; 4]> {
        let name = [&statement.0[..], seed.bytes()].concat();
        let key = Zeroizing::new(*blake3::keyed_hash(&self.noise, &name).as_bytes());
        Zeroizing::new(random::seed_words(&key))
    }
}

impl SecretScheme for SymmetricKey {
    fn encryptor(
        &self,
        _: &dyn Engine,
        statement: &Statement,
        seed: &Seed,
    ) -> Result<Box<dyn UpdateEncryptor>, Error> {
        let (secret, noise_key) = (self.of_statement(statement)?, self.noise_key(statement, seed));
        Ok(encryptor(&self.parameters, &secret, random::seed_words(seed.bytes()), noise_key))
    }

    fn encrypt_program(&self, _: &dyn Engine) -> Result<Arc<Program>, Error> {
        let secret = self.of_statement(&Statement::NONE)?;
        Ok(encrypt_program(&secret, &self.parameters).into())
    }

    fn decrypt_program(&self, contributors: usize) -> Result<Arc<Program>, Error> {
        let secret = self.of_statement(&Statement::NONE)?;
        Ok(decrypt_program(&secret, &self.parameters, contributors).into())
    }

    fn opener(
        &self,
        statement: &Statement,
        contributors: &BTreeSet<usize>,
    ) -> Result<Box<dyn Opener + '_>, Error> {
        let secret = self.of_statement(statement)?;
        let program = |&count| (count, decrypt_program(&secret, &self.parameters, count));
        let programs = contributors.iter().map(program).collect();
        let mixed = Mixed::new(&secret, &self.parameters);
        Ok(opener(&self.parameters, SymmetricDecryption { programs, mixed }))
    }
}

/// Makes an encryptor of one contribution under the uniform polynomials that a seed names.
pub(crate) fn encryptor(
    parameters: &Arc<RlweParameters>,
    secret: &RlweSecret,
    seed: [u64; 4],
    noise_key: Zeroizing<[u64; 4]>,
) -> Box<dyn UpdateEncryptor> {
    let (tile, tile_chunks) = parameters.tile();
    let programs = (mask_program(secret), cover_program(parameters, (&tile, tile_chunks)));
    let tile = (tile, tile_chunks as u32);
    Box::new(PolynomialEncryptor::new(parameters.clone(), tile, programs, (seed, noise_key)))
}

/// Makes an opener of a sum of contributions that are all under the uniform polynomials of one seed, each with its own
/// secret: `secret` is the sum of these.
pub(crate) fn opener_under<'a>(
    parameters: &'a RlweParameters,
    secret: &RlweSecret,
    seed: [u64; 4],
) -> Box<dyn Opener + 'a> {
    let program = decrypt_program(secret, parameters, 1);
    opener(parameters, CommonDecryption { program, seed })
}

/// The program that decrypts one sum of contributions under the same uniform polynomials.
struct CommonDecryption {
    program: Program,
    seed: [u64; 4],
}

impl DecryptPolynomial for CommonDecryption {
    fn decrypt(
        &self,
        engine: &dyn Engine,
        index: u64,
        _: &Groups<'_>,
        scratch: &mut Scratch,
    ) -> Result<(), Error> {
        let Scratch { words, integers, .. } = scratch;
        let (index, seed) = ([index], self.seed);
        let mut operands =
            [Operand::In(words), Operand::In(&index), Operand::In(&seed), Operand::Out(integers)];
        Ok(engine.run(&self.program, &mut operands)?)
    }
}

/// The programs that decrypt one sum.
struct SymmetricDecryption<'a> {
    /// Of polynomials whose chunks are all of the same contributors, by the number of these.
    programs: BTreeMap<usize, Program>,
    /// Of others.
    mixed: Mixed<'a>,
}

impl DecryptPolynomial for SymmetricDecryption<'_> {
    fn decrypt(
        &self,
        engine: &dyn Engine,
        index: u64,
        group: &Groups<'_>,
        scratch: &mut Scratch,
    ) -> Result<(), Error> {
        let set = &group.sets[0];
        if group.sets.iter().any(|other| other != set) {
            return self.mixed.decrypt(engine, index, group, scratch);
        }
        let Scratch { words, seeds, integers, .. } = scratch;
        let seed = |i: usize| random::seed_words(group.contributors[i].seed.bytes());
        seeds.clear();
        seeds.extend(set.iter().flat_map(seed));
        let mut operands =
            [Operand::In(words), Operand::In(&[index]), Operand::In(seeds), Operand::Out(integers)];
        Ok(engine.run(&self.programs[&set.count()], &mut operands)?)
    }
}

/// The programs that decrypt a polynomial whose chunks are not all of the same contributors: what hides one
/// contribution is taken from the chunks that it is in. So the work grows with the contributors, and not with the sets
/// of them, of which whoever sums makes as many as there are chunks.
struct Mixed<'a> {
    parameters: &'a RlweParameters,
    unpack: Program,
    mask: Program,
    compose: Program,
}

impl<'a> Mixed<'a> {
    fn new(secret: &RlweSecret, parameters: &'a RlweParameters) -> Self {
        let ring = secret.ring();
        let mut b = Builder::new("ckks-sum.unpack");
        let packed = b.beats("beats", ring, parameters.polynomial_beats());
        let sum = b.unpack("b", packed);
        b.output(sum);
        let unpack = b.build();
        let mask = mask_program(secret);
        let mut b = Builder::new("ckks-sum.compose");
        let noisy = b.coefficients("m+e", ring);
        let integers = b.compose("integers", noisy);
        b.output(integers);
        Self { parameters, unpack, mask, compose: b.build() }
    }

    fn decrypt(
        &self,
        engine: &dyn Engine,
        index: u64,
        group: &Groups<'_>,
        scratch: &mut Scratch,
    ) -> Result<(), Error> {
        let ring = &self.parameters.ring;
        let [mut sum, mut mask] = [(); 2].map(|()| Zeroizing::new(vec![0; ring.len_words()]));
        engine.run(&self.unpack, &mut [Operand::In(&scratch.words), Operand::Out(&mut sum)])?;
        for (i, contributor) in group.contributors.iter().enumerate() {
            if !group.sets.iter().any(|set| set.contains(i)) {
                continue;
            }
            let seed = random::seed_words(contributor.seed.bytes());
            let mut operands = [Operand::In(&[index]), Operand::In(&seed), Operand::Out(&mut mask)];
            engine.run(&self.mask, &mut operands)?;
            self.subtract_mask(&mut sum, &mask, group, i);
        }
        let mut operands = [Operand::SecretIn(&sum), Operand::Out(&mut scratch.integers)];
        Ok(engine.run(&self.compose, &mut operands)?)
    }

    /// Subtracts the mask of contributor `i` of a group from the chunks that it is in.
    fn subtract_mask(&self, sum: &mut [u64], mask: &[u64], group: &Groups<'_>, i: usize) {
        let (ring, each) = (&self.parameters.ring, self.parameters.geometry.slots_per_chunk);
        let rows = sum.chunks_exact_mut(ring.degree()).zip(mask.chunks_exact(ring.degree()));
        for ((sum, mask), &q) in rows.zip(ring.primes()) {
            let chunks = sum.chunks_mut(each).zip(mask.chunks(each)).zip(group.sets);
            for ((sum, mask), _) in chunks.filter(|(_, set)| set.contains(i)) {
                for (sum, mask) in sum.iter_mut().zip(mask) {
                    // Below zero it wraps, and is the larger of the two.
                    let difference = sum.wrapping_sub(*mask);
                    *sum = difference.min(difference.wrapping_add(q));
                }
            }
        }
    }
}

/// Adds the steps that make what hides a message: the uniform polynomials of seeds, added up, times the secret.
fn mask(
    b: &mut Builder,
    secret: &RlweSecret,
    seeds: Var<program::Seed<Public>>,
    index: Var<Integer>,
) -> Var<Coeff> {
    let s = b.shared_secret("ŝ", secret.ring(), secret.constant());
    let a = b.uniform("â", secret.ring(), seeds, index);
    let product = b.poly_mul("âŝ", a, s);
    b.intt("as", product)
}

/// Builds the program that makes the mask of one polynomial of one contribution.
fn mask_program(secret: &RlweSecret) -> Program {
    let mut b = Builder::new("ckks-sum.mask");
    let (index, seed) = (b.index("index"), b.seeds("seed", 1));
    let mask = mask(&mut b, secret, seed, index);
    b.output(mask);
    b.build()
}

/// Adds the steps that encrypt a message under a mask over a ring, or over a run of coefficients.
fn cover(
    b: &mut Builder,
    mask: Var<Coeff>,
    (message, index, noise_key): (Var<Integer>, Var<Integer>, Var<program::Seed<Secret>>),
    (ring, beats): (&Arc<Ring>, usize),
) {
    let e = b.noise("e", ring, noise_key, index);
    let noisy = b.add("as+e", mask, e);
    let m = b.lift("m", ring, message);
    let c = b.add("b", noisy, m);
    let packed = b.pack("beats", c, beats);
    b.output(packed);
}

/// Builds the program that encrypts one tile under its part of a mask. Nothing transforms what is in it, so that it has
/// a ring of its own, of the same primes.
fn cover_program(parameters: &RlweParameters, (tile, chunks): (&Arc<Ring>, usize)) -> Program {
    let mut b = Builder::new("ckks-sum.cover");
    let mask = b.coefficients("as", tile);
    let message = b.integers("message", tile.degree() * parameters.message_words());
    let operands = (message, b.index("index"), b.secret_seed("noise_key"));
    cover(&mut b, mask, operands, (tile, chunks * parameters.geometry.chunk_beats()));
    b.build()
}

/// Builds the program that encrypts one polynomial. To be shown and measured: sealing does the same in two, with noise
/// by tiles, and running it with seeds of one's own goes past what [`SealPermit`](crate::SealPermit) guards.
fn encrypt_program(secret: &RlweSecret, parameters: &RlweParameters) -> Program {
    let ring = secret.ring();
    let mut b = Builder::new("ckks-sum.encrypt");
    let message = b.integers("message", ring.degree() * parameters.message_words());
    let index = b.index("index");
    let seed = b.seeds("seed", 1);
    let noise_key = b.secret_seed("noise_key");
    let mask = mask(&mut b, secret, seed, index);
    cover(&mut b, mask, (message, index, noise_key), (ring, parameters.polynomial_beats()));
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
    let packed = b.beats("beats", ring, parameters.polynomial_beats());
    let index = b.index("index");
    let seeds = b.seeds("seeds", contributors);
    let sum = b.unpack("b", packed);
    let mask = mask(&mut b, secret, seeds, index);
    let noisy = b.sub("m+e", sum, mask);
    let integers = b.compose("integers", noisy);
    b.output(integers);
    b.build()
}

#[cfg(test)]
mod tests {
    use ciphergram_accel::{ReferenceEngine, beats};
    use num_bigint::{BigInt, Sign};

    use super::*;
    use crate::{
        Scheme,
        params::Literal,
        schemes::rlwe::{parameters::all_rings, rounding::Rounding},
    };

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
        let mask = mask(&mut b, secret, seed, index);
        let lifted = b.lift("lifted", ring, x);
        let sum = b.add("b", mask, lifted);
        let packed = b.pack("beats", sum, parameters.rlwe().unwrap().polynomial_beats());
        b.output(packed);
        let mut sum = vec![0; parameters.rlwe().unwrap().polynomial_beats() * beats::WORDS];
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
        fn rounded<const W: usize>(rlwe: &RlweParameters, word: impl Fn(usize) -> u64) -> [u64; W] {
            Rounding::<W>::new(rlwe).round(std::array::from_fn(word))
        }
        let round = |i: usize| match limbs {
            2 => big(&rounded::<2>(&rlwe, |w| word(w, i))),
            4 => big(&rounded::<4>(&rlwe, |w| word(w, i))),
            8 => big(&rounded::<8>(&rlwe, |w| word(w, i))),
            _ => big(&rounded::<16>(&rlwe, |w| word(w, i))),
        };
        (0..parameters.geometry().slots_per_chunk).map(round).collect()
    }

    /// Whoever seals the same again sends the same bytes; nothing else shares a secret or noise.
    #[test]
    fn secrets_are_of_a_statement_and_noise_of_a_seed_under_it() {
        let literal = Literal { scheme: Scheme::CkksSum, clients: 4, bits: 16 };
        let parameters = Parameters::new(literal).unwrap();
        let small = parameters.rlwe().unwrap();
        let [key, other] = [3, 4].map(|seed| Secrets::new(&[seed; 32], &parameters, small));
        let statements = [1, 2].map(|byte| Statement([byte; 32]));
        let expand = |key: &Secrets, values, statement| {
            let secret = key.of_values(values).of_statement(statement).unwrap();
            secret.constant().words().to_vec()
        };
        let [first, second] = statements.each_ref().map(|statement| expand(&key, 1, statement));
        assert_ne!(first, second);
        assert_eq!(first, expand(&key, 1, &statements[0]), "also behind another");
        assert_ne!(first, expand(&other, 1, &statements[0]));
        let large = expand(&key, 2_000_000, &statements[0]);
        assert!(large.len() > first.len() && large[..100] != first[..100]);
        let seeds = [5, 6].map(|byte| Seed::of_update(&[byte; 32], &[0; 32]));
        let noise = |statement: usize, seed: usize| {
            *key.of_values(1).noise_key(&statements[statement], &seeds[seed])
        };
        assert_eq!(noise(0, 0), noise(0, 0));
        assert!(noise(0, 0) != noise(0, 1) && noise(0, 0) != noise(1, 0));
        let of_update = Seed::of_update(&[5; 32], &[1; 32]);
        assert!(of_update != seeds[0] && Seed::of_update(&[5; 32], &[1; 32]) == of_update);
    }

    #[test]
    fn the_bound_on_noise_is_enough_and_one_bit_less_is_not() {
        let literal = |bits| Literal { scheme: Scheme::CkksSum, clients: CLIENTS, bits };
        let chosen = Parameters::new(literal(16)).unwrap();
        for ring in all_rings() {
            let parameters = chosen.over_ring(ring).over_small_ring();
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
