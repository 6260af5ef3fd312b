//! Keys: the secret, the public one, and those that switch from one secret to another.

use std::{collections::BTreeMap, sync::Arc};

use ciphergram_accel::{Engine, Operand, Program, Ring, program::Constant};
use zeroize::Zeroizing;

use super::{
    Ciphertext, CkksError, packing,
    parameters::Parameters,
    programs::{self, Switch},
};
use crate::{
    Error,
    bytes::{Reader, Writer},
    error::FrameError,
    formats::frame::{self, Frame, Header, Kind},
    ids::KeyId,
    random,
    schemes::rlwe::RlweSecret,
};

/// Domain of the secret that a seed names.
const SECRET: &str = "ciphergram 2026 ckks ternary secret";
/// Domains of what the public key expands from: the seed of its uniform half, and the key of its noise.
const PUBLIC_SEED: &str = "ciphergram 2026 ckks public seed";
const PUBLIC_NOISE: &str = "ciphergram 2026 ckks public noise";
/// Domain of key ids.
const KEY_ID: &str = "ciphergram 2026 ckks key id";
/// What stands for products where keys are listed by Galois element: no such element.
const PRODUCTS: u32 = 0;

/// The secret: who holds it decrypts. No `Debug`; zeroized on drop.
///
/// A seed tells all of it, and the public key as well.
pub struct LevelledSecret {
    parameters: Arc<Parameters>,
    seed: Zeroizing<[u8; 32]>,
    public: LevelledPublic,
    /// In NTT form, over all primes.
    ntt: Constant,
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

    /// Makes keys for products, and for rotations by so many slots: to the left, or to the right
    /// where below zero.
    ///
    /// # Errors
    /// The operating system has no randomness; the engine's.
    pub fn evaluation_keys(
        &self,
        rotations: &[i64],
        engine: &dyn Engine,
    ) -> Result<EvaluationKeys, Error> {
        let relinearisation = Some(self.switching_key(Switch::Relinearise, engine)?);
        let mut turns = BTreeMap::new();
        for &steps in rotations {
            let element = rotation_element(&self.parameters, steps);
            if element != 1 {
                let inverse = rotation_element(&self.parameters, -steps);
                let key = self.switching_key(Switch::Turn { inverse }, engine)?;
                turns.insert(element, key);
            }
        }
        let (parameters, key) = (self.parameters.clone(), self.public.id);
        Ok(EvaluationKeys { parameters, key, relinearisation, turns })
    }

    /// Returns the keys with one for the conjugate of slots as well.
    ///
    /// # Errors
    /// The operating system has no randomness; the engine's.
    pub fn with_conjugate(
        &self,
        mut keys: EvaluationKeys,
        engine: &dyn Engine,
    ) -> Result<EvaluationKeys, Error> {
        let element = conjugate_element(&self.parameters);
        let key = self.switching_key(Switch::Turn { inverse: element }, engine)?;
        keys.turns.insert(element, key);
        Ok(keys)
    }

    fn switching_key(&self, switch: Switch, engine: &dyn Engine) -> Result<SwitchingKey, Error> {
        let set = &self.parameters;
        let seed = *random::bytes::<32>()?;
        let mut words = vec![];
        for digit in 0..set.digits(set.top_level()) {
            let program = programs::switching_key(set, digit, &self.ntt, switch);
            let noise_key = random::bytes::<32>()?;
            let parts = sample(set, &program, (&seed, digit as u64), &noise_key, engine)?;
            words.extend(parts.into_iter().flatten());
        }
        let each = set.whole().len_words();
        Ok(SwitchingKey { seed, words: Constant::new(words), each })
    }
}

/// Runs a program that draws a pair over all primes: its uniform half is named by a seed and an
/// index, its noise by a key that is used once.
fn sample(
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

/// A key that switches from one secret to another, digit by digit.
pub(super) struct SwitchingKey {
    /// What second halves expand from.
    seed: [u8; 32],
    /// In NTT form, for each digit both halves over all primes.
    words: Constant,
    /// Words of one half.
    each: usize,
}

impl SwitchingKey {
    /// Makes a key of zeros, for programs that are shown.
    pub(super) fn zeros(set: &Parameters) -> Self {
        let each = set.whole().len_words();
        let digits = set.level(set.top_level()).digits.len();
        Self { seed: [0; 32], words: Constant::new(vec![0; 2 * digits * each]), each }
    }

    /// Appends it: the seed, and the first halves.
    fn write(&self, w: &mut Writer, set: &Parameters) {
        w.bytes(&self.seed);
        for halves in self.words.words().chunks_exact(2 * self.each) {
            packing::pack(w, set.whole(), &halves[..self.each]);
        }
    }

    /// Reads it, and expands the second halves.
    fn read(r: &mut Reader<'_>, set: &Parameters, engine: &dyn Engine) -> Result<Self, Error> {
        let (seed, each) = (r.array()?, set.whole().len_words());
        let mut words = vec![];
        for digit in 0..set.digits(set.top_level()) {
            words.extend(packing::unpack(r, set.whole())?);
            words.extend(uniform(set.whole(), &seed, digit as u64, engine)?);
        }
        Ok(Self { seed, words: Constant::new(words), each })
    }

    /// Returns a half of a digit over the first primes, those of `ring`.
    pub(super) fn words(&self, digit: usize, part: usize, ring: &Ring) -> Constant {
        self.words.part((2 * digit + part) * self.each, ring.len_words())
    }
}

/// Keys for work on ciphertexts. They tell nothing of what is encrypted.
pub struct EvaluationKeys {
    parameters: Arc<Parameters>,
    key: KeyId,
    relinearisation: Option<SwitchingKey>,
    /// By Galois element.
    turns: BTreeMap<u32, SwitchingKey>,
}

impl EvaluationKeys {
    /// Makes keys for nothing but sums and plaintexts, which take none.
    #[must_use]
    pub fn none(public: &LevelledPublic) -> Self {
        let (parameters, key) = (public.parameters.clone(), public.id);
        Self { parameters, key, relinearisation: None, turns: BTreeMap::new() }
    }

    /// Makes keys for nothing but sums and plaintexts, for ciphertexts whose key is not at hand.
    #[must_use]
    pub fn none_for(ciphertext: &Ciphertext) -> Self {
        let (parameters, key) = (ciphertext.parameters.clone(), ciphertext.key);
        Self { parameters, key, relinearisation: None, turns: BTreeMap::new() }
    }

    /// Returns the id of the key that they are for.
    #[must_use]
    pub fn id(&self) -> KeyId {
        self.key
    }

    /// Returns the rotations that there are keys for, in slots to the left.
    #[must_use]
    pub fn rotations(&self) -> Vec<i64> {
        let (slots, order) = (self.parameters.slots() as i64, 2 * self.parameters.degree() as u64);
        let all = (0..slots).scan(1, |power, steps| {
            let element = *power;
            *power = element * 5 % order;
            Some((steps, element as u32))
        });
        all.filter(|(_, element)| self.turns.contains_key(element))
            .map(|(steps, _)| steps)
            .collect()
    }

    /// Returns whether there is a key for products, and one for conjugates.
    #[must_use]
    pub fn others(&self) -> [bool; 2] {
        let conjugate = self.turns.contains_key(&conjugate_element(&self.parameters));
        [self.relinearisation.is_some(), conjugate]
    }

    /// Returns the key for products.
    ///
    /// # Errors
    /// [`CkksError::NoRelinearisation`].
    pub(super) fn relinearisation(&self) -> Result<&SwitchingKey, CkksError> {
        self.relinearisation.as_ref().ok_or(CkksError::NoRelinearisation)
    }

    /// Writes the file's bytes.
    ///
    /// # Errors
    /// [`CkksError::NoPreset`].
    pub fn to_bytes(&self) -> Result<Vec<u8>, Error> {
        let set = &self.parameters;
        let header = Header::of_vectors(Kind::EvaluationKey, set, self.key)?;
        let own = self.relinearisation.iter().map(|key| (PRODUCTS, key));
        let all: Vec<_> = own.chain(self.turns.iter().map(|(&turn, key)| (turn, key))).collect();
        let each = 32 + set.digits(set.top_level()) * packing::packed_bytes(set.whole());
        Ok(frame::seal(&header, all.len() * (4 + each) + 8, |w| {
            w.u32(all.len() as u32);
            for (element, key) in all {
                w.u32(element);
                key.write(w, set);
            }
        }))
    }

    /// Reads a file. Its keys are of the secret that it names; nothing can show whether they work.
    ///
    /// # Errors
    /// Its form or kind is not as it should be; the engine's.
    pub fn from_bytes(bytes: &[u8], engine: &dyn Engine) -> Result<Self, Error> {
        let frame = Frame::parse(bytes)?;
        frame.check_kind(Kind::EvaluationKey)?;
        let parameters = frame.levelled_parameters()?;
        let mut r = Reader(frame.body);
        let (mut relinearisation, mut turns, mut last) = (None, BTreeMap::new(), None);
        for _ in 0..r.u32()? {
            let element = r.u32()?;
            let is_turn = element % 2 == 1 && element < 2 * parameters.degree() as u32;
            if last.replace(element).is_some_and(|last| last >= element) || element > 1 && !is_turn
            {
                return Err(FrameError::Malformed { what: "keys that are out of order" }.into());
            }
            let key = SwitchingKey::read(&mut r, &parameters, engine)?;
            match element {
                PRODUCTS => relinearisation = Some(key),
                turn => drop(turns.insert(turn, key)),
            }
        }
        r.end()?;
        Ok(Self { parameters: parameters.into(), key: frame.key, relinearisation, turns })
    }

    /// Returns their parameters.
    #[must_use]
    pub fn parameters(&self) -> &Arc<Parameters> {
        &self.parameters
    }

    /// Returns the key for a rotation, with its Galois element.
    ///
    /// # Errors
    /// [`CkksError::NoRotation`].
    pub(super) fn rotation(&self, steps: i64) -> Result<(u32, &SwitchingKey), CkksError> {
        let element = rotation_element(&self.parameters, steps);
        let key = self.turns.get(&element).ok_or(CkksError::NoRotation { steps })?;
        Ok((element, key))
    }

    /// Returns the key for conjugates.
    ///
    /// # Errors
    /// [`CkksError::NoConjugate`].
    pub(super) fn conjugate(&self) -> Result<(u32, &SwitchingKey), CkksError> {
        let element = conjugate_element(&self.parameters);
        let key = self.turns.get(&element).ok_or(CkksError::NoConjugate)?;
        Ok((element, key))
    }
}
