//! Keys for work on ciphertexts, and their file.

use std::{collections::BTreeMap, sync::Arc};

use ciphergram_accel::{Engine, program::Constant};

use super::{
    CkksError,
    keys::{LevelledPublic, LevelledSecret, conjugate_element, rotation_element, sample, uniform},
    packing,
    parameters::Parameters,
    programs::{self, Switch},
    switching_key::SwitchingKey,
    vectors::Ciphertext,
};
use crate::{
    Error,
    bytes::{Reader, Writer},
    error::FrameError,
    formats::frame::{self, Frame, Header, Kind},
    ids::KeyId,
    random,
};

impl LevelledSecret {
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
        let (parameters, key) = (self.parameters.clone(), self.public().id());
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

/// What stands for products where keys are listed by Galois element: no such element.
const PRODUCTS: u32 = 0;

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
        let (parameters, key) = (public.parameters().clone(), public.id());
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

impl SwitchingKey {
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
}
