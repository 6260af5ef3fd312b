//! Keys: the secret, the public one, and those that switch from one secret to another.

use std::{collections::BTreeMap, sync::Arc};

use ciphergram_accel::{Engine, Operand, Ring, program::Constant};
use zeroize::Zeroizing;

use super::{
    CkksError,
    parameters::Parameters,
    programs::{self, Switch},
};
use crate::{Error, random, schemes::rlwe::RlweSecret};

/// Domain of the secret that a seed names.
const SECRET: &str = "ciphergram 2026 ckks ternary secret";

/// The secret: who holds it decrypts. No `Debug`; zeroized on drop.
pub struct SecretKey {
    parameters: Arc<Parameters>,
    seed: Zeroizing<[u8; 32]>,
    /// In NTT form, over all primes.
    ntt: Constant,
}

impl SecretKey {
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
        let ntt = Constant::new(secret.ntt().to_vec());
        Ok(Self { parameters: parameters.clone(), seed: Zeroizing::new(*seed), ntt })
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

    /// Makes the public key.
    ///
    /// # Errors
    /// The operating system has no randomness; the engine's.
    pub fn public_key(&self, engine: &dyn Engine) -> Result<PublicKey, Error> {
        let program = programs::public_key(&self.parameters, &self.ntt);
        let seed = random::bytes::<32>()?;
        let parts = sample(&self.parameters, &program, (&seed, 0), engine)?;
        let [b, a] = parts.map(Constant::new);
        Ok(PublicKey { parameters: self.parameters.clone(), seed: *seed, b, a })
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
        let relinearisation = self.switching_key(Switch::Relinearise, engine)?;
        let mut turns = BTreeMap::new();
        for &steps in rotations {
            let element = rotation_element(&self.parameters, steps);
            if element != 1 {
                let inverse = rotation_element(&self.parameters, -steps);
                let key = self.switching_key(Switch::Turn { inverse }, engine)?;
                turns.insert(element, key);
            }
        }
        Ok(EvaluationKeys { parameters: self.parameters.clone(), relinearisation, turns })
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
        let seed = random::bytes::<32>()?;
        let mut words = vec![];
        for digit in 0..set.level(set.top_level()).digits.len() {
            let program = programs::switching_key(set, digit, &self.ntt, switch);
            let parts = sample(set, &program, (&seed, digit as u64), engine)?;
            words.extend(parts.into_iter().flatten());
        }
        let each = set.whole().len_words();
        Ok(SwitchingKey { words: Constant::new(words), each })
    }
}

/// Runs a program that draws a pair over all primes: its uniform half is named by a seed and an
/// index, its noise by a fresh key.
fn sample(
    set: &Parameters,
    program: &ciphergram_accel::Program,
    (seed, index): (&[u8; 32], u64),
    engine: &dyn Engine,
) -> Result<[Vec<u64>; 2], Error> {
    let noise_key = Zeroizing::new(random::seed_words(&*random::bytes::<32>()?));
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
pub struct PublicKey {
    parameters: Arc<Parameters>,
    /// What a expands from.
    seed: [u8; 32],
    /// In NTT form, over all primes.
    b: Constant,
    a: Constant,
}

impl PublicKey {
    /// Returns its parameters.
    #[must_use]
    pub fn parameters(&self) -> &Arc<Parameters> {
        &self.parameters
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
        Self { words: Constant::new(vec![0; 2 * digits * each]), each }
    }

    /// Returns a half of a digit over the first primes, those of `ring`.
    pub(super) fn words(&self, digit: usize, part: usize, ring: &Ring) -> Constant {
        self.words.part((2 * digit + part) * self.each, ring.len_words())
    }
}

/// Keys for work on ciphertexts. They tell nothing of what is encrypted.
pub struct EvaluationKeys {
    parameters: Arc<Parameters>,
    pub(super) relinearisation: SwitchingKey,
    /// By Galois element.
    turns: BTreeMap<u32, SwitchingKey>,
}

impl EvaluationKeys {
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
