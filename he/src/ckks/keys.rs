//! Keys: the secret and the public one.

use std::sync::Arc;

use ciphergram_accel::{Engine, Operand, Program, Ring, program::Constant};
use zeroize::Zeroizing;

use super::{packing, parameters::Parameters, programs};
use crate::{
    Error,
    bytes::{Reader, Writer},
    ids::KeyId,
    random,
    schemes::rlwe::RlweSecret,
};

/// Domain of the secret that a seed names.
const SECRET: &str = "ciphergram 2026 ckks ternary secret";
/// Domains of what the public key expands from: the seed of its uniform half, and the key of its noise.
const PUBLIC_SEED: &str = "ciphergram 2026 ckks public seed";
const PUBLIC_NOISE: &str = "ciphergram 2026 ckks public noise under ChaCha8";
/// Domain of key ids.
const KEY_ID: &str = "ciphergram 2026 ckks key id";

/// The secret: who holds it decrypts. No `Debug`; zeroized on drop.
///
/// A seed tells all of it, and the public key as well.
pub struct LevelledSecret {
    pub(super) parameters: Arc<Parameters>,
    seed: Zeroizing<[u8; 32]>,
    public: LevelledPublic,
    /// In NTT form, over all primes.
    pub(super) ntt: Constant,
}

impl LevelledSecret {
    /// Draws a secret.
    ///
    /// # Errors
    /// The operating system has no randomness; the engine's.
    pub fn generate(parameters: &Arc<Parameters>, engine: &dyn Engine) -> Result<Self, Error> {
        Self::expand(&*random::bytes::<32>()?, parameters, engine)
    }

    /// Expands the secret that a seed names.
    ///
    /// # Errors
    /// The engine's.
    pub fn expand(
        seed: &[u8; 32],
        parameters: &Arc<Parameters>,
        engine: &dyn Engine,
    ) -> Result<Self, Error> {
        let secret = RlweSecret::expand(seed, SECRET, parameters.whole(), engine)?;
        let ntt = secret.constant().clone();
        let program = programs::public_key(parameters, &ntt);
        let public_seed = blake3::derive_key(PUBLIC_SEED, seed);
        let noise_key = Zeroizing::new(blake3::derive_key(PUBLIC_NOISE, seed));
        let [b, a] = sample(parameters, &program, (&public_seed, 0), &noise_key, engine)?;
        let public = LevelledPublic::of_halves(parameters, public_seed, b, a);
        Ok(Self { parameters: parameters.clone(), seed: Zeroizing::new(*seed), public, ntt })
    }

    /// Returns the seed, as secret as the key.
    #[must_use]
    pub fn seed(&self) -> &[u8; 32] {
        &self.seed
    }

    /// Returns its parameters.
    #[must_use]
    pub fn parameters(&self) -> &Arc<Parameters> {
        &self.parameters
    }

    /// Returns the secret over the primes of ciphertexts on a level.
    pub(super) fn on(&self, level: usize) -> Constant {
        let degree = self.parameters.degree();
        self.ntt.part(self.parameters.literal().special * degree, (level + 1) * degree)
    }

    /// Returns the half that anyone may have.
    #[must_use]
    pub fn public(&self) -> &LevelledPublic {
        &self.public
    }
}

/// Runs a program that draws a pair over all primes: its uniform half is named by a seed and an
/// index, its noise by a key that is used once.
pub(super) fn sample(
    set: &Parameters,
    program: &Program,
    (seed, index): (&[u8; 32], u64),
    noise_key: &[u8; 32],
    engine: &dyn Engine,
) -> Result<[Vec<u64>; 2], Error> {
    let noise_key = Zeroizing::new(random::seed_words(noise_key));
    let mut parts = [0, 1].map(|_| vec![0; set.whole().len_words()]);
    let [first, second] = &mut parts;
    let mut operands = [
        Operand::In(&[index]),
        Operand::In(&random::seed_words(seed)),
        Operand::SecretIn(&*noise_key),
        Operand::Out(first),
        Operand::Out(second),
    ];
    engine.run(program, &mut operands)?;
    Ok(parts)
}

/// Expands the uniform polynomial that a seed and an index name.
pub(super) fn uniform(
    ring: &Arc<Ring>,
    seed: &[u8; 32],
    index: u64,
    engine: &dyn Engine,
) -> Result<Vec<u64>, Error> {
    let mut words = vec![0; ring.len_words()];
    let mut operands =
        [Operand::In(&[index]), Operand::In(&random::seed_words(seed)), Operand::Out(&mut words)];
    engine.run(&programs::uniform(ring), &mut operands)?;
    Ok(words)
}

/// Returns the Galois element that rotates slots to the left by `steps`: a power of five.
pub(super) fn rotation_element(set: &Parameters, steps: i64) -> u32 {
    let (order, slots) = (2 * set.degree() as u64, set.slots() as i64);
    let steps = steps.rem_euclid(slots);
    (0..steps).fold(1, |power, _| power * 5 % order) as u32
}

/// Returns the Galois element that conjugates slots: −1, its own inverse.
pub(super) fn conjugate_element(set: &Parameters) -> u32 {
    2 * set.degree() as u32 - 1
}

/// The public key: who has it encrypts.
#[derive(Clone)]
pub struct LevelledPublic {
    parameters: Arc<Parameters>,
    id: KeyId,
    /// What a expands from.
    seed: [u8; 32],
    /// In NTT form, over all primes.
    b: Constant,
    a: Constant,
}

impl LevelledPublic {
    /// Names a key by its halves.
    fn of_halves(parameters: &Arc<Parameters>, seed: [u8; 32], b: Vec<u64>, a: Vec<u64>) -> Self {
        let mut material = Writer::default();
        material.bytes(&parameters.id());
        material.bytes(&seed);
        packing::pack(&mut material, parameters.whole(), &b);
        let id = KeyId::derive(KEY_ID, &material.0);
        let [b, a] = [b, a].map(Constant::new);
        Self { parameters: parameters.clone(), id, seed, b, a }
    }

    /// Reads a key of the seed of one half and the packed residues of the other.
    ///
    /// # Errors
    /// The other half is not whole, or not reduced; the engine's.
    pub(crate) fn unpack(
        parameters: &Arc<Parameters>,
        seed: [u8; 32],
        packed: &[u8],
        engine: &dyn Engine,
    ) -> Result<Self, Error> {
        let mut r = Reader(packed);
        let b = packing::unpack(&mut r, parameters.whole())?;
        r.end()?;
        let a = uniform(parameters.whole(), &seed, 0, engine)?;
        Ok(Self::of_halves(parameters, seed, b, a))
    }

    /// Returns the packed residues of the half that no seed tells.
    pub(crate) fn packed(&self) -> Vec<u8> {
        let mut w = Writer::default();
        packing::pack(&mut w, self.parameters.whole(), self.b.words());
        w.0
    }

    /// Returns its parameters.
    #[must_use]
    pub fn parameters(&self) -> &Arc<Parameters> {
        &self.parameters
    }

    /// Returns the key's name in frames: a hash of its halves.
    #[must_use]
    pub fn id(&self) -> KeyId {
        self.id
    }

    /// Returns the seed that its uniform half expands from.
    #[must_use]
    pub fn seed(&self) -> &[u8; 32] {
        &self.seed
    }

    /// Returns both halves over the special primes and those of a level.
    pub(super) fn on(&self, level: usize) -> [Constant; 2] {
        let words = self.parameters.level(level).all.len_words();
        [self.b.part(0, words), self.a.part(0, words)]
    }
}
