//! Work on ciphertexts.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use ciphergram_accel::{Engine, Operand, Program};

use super::{
    Ciphertext, CkksError, Plaintext,
    encoder::{Complex, Encoder},
    keys::EvaluationKeys,
    parameters::Parameters,
    programs,
};
use crate::Error;

/// The name of a program: what it does, on which level.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Name {
    Multiply(usize),
    MultiplyPlain(usize),
    MultiplyInteger(usize, i128),
    Add(usize),
    Subtract(usize),
    Turn(usize, u32),
    Encode(usize),
}

/// What works on ciphertexts of one set of parameters, by the keys that it was given.
///
/// Operands of different levels are brought to the lower one first, at the scale that it has.
pub struct Evaluator<'e> {
    parameters: Arc<Parameters>,
    keys: EvaluationKeys,
    encoder: Encoder,
    engine: &'e dyn Engine,
    programs: Mutex<HashMap<Name, Arc<Program>>>,
}

impl<'e> Evaluator<'e> {
    /// Makes an evaluator.
    #[must_use]
    pub fn new(keys: EvaluationKeys, engine: &'e dyn Engine) -> Self {
        let parameters = keys.parameters().clone();
        let encoder = Encoder::new(parameters.slots());
        Self { parameters, keys, encoder, engine, programs: Mutex::default() }
    }

    /// Returns `a + b`, slot by slot.
    ///
    /// # Errors
    /// [`CkksError::OtherParameters`]; the engine's.
    pub fn add(&self, a: &Ciphertext, b: &Ciphertext) -> Result<Ciphertext, Error> {
        self.sum(a, b, false)
    }

    /// Returns `a − b`, slot by slot.
    ///
    /// # Errors
    /// [`CkksError::OtherParameters`]; the engine's.
    pub fn sub(&self, a: &Ciphertext, b: &Ciphertext) -> Result<Ciphertext, Error> {
        self.sum(a, b, true)
    }

    fn sum(&self, a: &Ciphertext, b: &Ciphertext, minus: bool) -> Result<Ciphertext, Error> {
        let level = a.level.min(b.level);
        let (a, b) = (self.lowered(a, level)?, self.lowered(b, level)?);
        let name = if minus { Name::Subtract(level) } else { Name::Add(level) };
        let program = self.program(name, |set| Some(programs::add(set, level, minus)))?;
        self.run(&program, &[&a.parts[0], &a.parts[1], &b.parts[0], &b.parts[1]], level)
    }

    /// Returns `a · b`, slot by slot, a level lower.
    ///
    /// # Errors
    /// [`CkksError::OutOfLevels`]; [`CkksError::OtherParameters`]; the engine's.
    pub fn multiply(&self, a: &Ciphertext, b: &Ciphertext) -> Result<Ciphertext, Error> {
        let level = a.level.min(b.level);
        let (a, b) = (self.lowered(a, level)?, self.lowered(b, level)?);
        let program = self.program(Name::Multiply(level), |set| {
            programs::multiply(set, level, &self.keys.relinearisation)
        })?;
        let inputs: [&[u64]; 4] = [&a.parts[0], &a.parts[1], &b.parts[0], &b.parts[1]];
        self.run(&program, &inputs, level - 1)
    }

    /// Returns `a · m`, slot by slot, a level lower. The plaintext is on the level of the ciphertext.
    ///
    /// # Errors
    /// [`CkksError::OutOfLevels`]; [`CkksError::OtherParameters`]; the engine's.
    pub fn multiply_plain(&self, a: &Ciphertext, m: &Plaintext) -> Result<Ciphertext, Error> {
        self.check(&m.parameters, "the plaintext")?;
        let a = self.lowered(a, m.level)?;
        let level = m.level;
        let program =
            self.program(Name::MultiplyPlain(level), |set| programs::multiply_plain(set, level))?;
        self.run(&program, &[&a.parts[0], &a.parts[1], &m.words], level - 1)
    }

    /// Rotates slots: slot j takes what slot `j + steps` had, around the end.
    ///
    /// # Errors
    /// [`CkksError::NoRotation`]; [`CkksError::OtherParameters`]; the engine's.
    pub fn rotate(&self, a: &Ciphertext, steps: i64) -> Result<Ciphertext, Error> {
        if steps.rem_euclid(self.parameters.slots() as i64) == 0 {
            self.check(&a.parameters, "the ciphertext")?;
            return Ok(a.clone());
        }
        let (element, key) = self.keys.rotation(steps)?;
        self.turn(a, (element, key))
    }

    /// Conjugates slots.
    ///
    /// # Errors
    /// [`CkksError::NoConjugate`]; [`CkksError::OtherParameters`]; the engine's.
    pub fn conjugate(&self, a: &Ciphertext) -> Result<Ciphertext, Error> {
        self.turn(a, self.keys.conjugate()?)
    }

    fn turn(
        &self,
        a: &Ciphertext,
        (element, key): (u32, &super::keys::SwitchingKey),
    ) -> Result<Ciphertext, Error> {
        self.check(&a.parameters, "the ciphertext")?;
        let level = a.level;
        let program = self.program(Name::Turn(level, element), |set| {
            Some(programs::turn(set, level, element, key))
        })?;
        self.run(&program, &[&a.parts[0], &a.parts[1]], level)
    }

    /// Encodes numbers, which fill the first slots, on a level.
    ///
    /// # Errors
    /// [`CkksError::Level`]; those of [`Encoder::encode`]; the engine's.
    pub fn encode(&self, values: &Complex, level: usize) -> Result<Plaintext, Error> {
        let message = encoded(&self.encoder, &self.parameters, values, level)?;
        let program =
            self.program(Name::Encode(level), |set| Some(programs::encode(set, level)))?;
        let mut words = vec![0; self.parameters.ring(level).len_words()];
        let operands = &mut [Operand::SecretIn(&message), Operand::Out(&mut words)];
        self.engine.run(&program, operands)?;
        Ok(Plaintext { parameters: self.parameters.clone(), level, words })
    }

    /// Returns the ciphertext on a lower level, at that level's scale.
    ///
    /// # Errors
    /// [`CkksError::OutOfLevels`] if it is below `level`; the engine's.
    pub fn lower(&self, a: &Ciphertext, level: usize) -> Result<Ciphertext, Error> {
        Ok(self.lowered(a, level)?.into_owned())
    }

    fn lowered<'a>(
        &self,
        a: &'a Ciphertext,
        level: usize,
    ) -> Result<std::borrow::Cow<'a, Ciphertext>, Error> {
        use std::borrow::Cow;
        self.check(&a.parameters, "the ciphertext")?;
        if a.level == level {
            return Ok(Cow::Borrowed(a));
        }
        if a.level < level {
            return Err(CkksError::OutOfLevels.into());
        }
        // Primes go, but for one more than the level has: the one that the product by what the
        // scales differ by is rescaled by.
        let set = &self.parameters;
        let words = set.ring(level + 1).len_words();
        let last = set.ring(level + 1).primes()[level + 1];
        let factor = (set.scale(level) * last as f64 / set.scale(a.level)).round() as i128;
        let name = Name::MultiplyInteger(level + 1, factor);
        let program =
            self.program(name, |set| programs::multiply_integer(set, level + 1, factor))?;
        let parts = [0, 1].map(|part| &a.parts[part][..words]);
        Ok(Cow::Owned(self.run(&program, &parts, level)?))
    }

    fn check(&self, of: &Arc<Parameters>, what: &'static str) -> Result<(), CkksError> {
        let is_same = of.literal() == self.parameters.literal();
        if is_same { Ok(()) } else { Err(CkksError::OtherParameters { what }) }
    }

    /// Returns a program, made the first time.
    fn program(
        &self,
        name: Name,
        make: impl FnOnce(&Parameters) -> Option<Program>,
    ) -> Result<Arc<Program>, CkksError> {
        let known = || self.programs.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(program) = known().get(&name) {
            return Ok(program.clone());
        }
        let made = Arc::new(make(&self.parameters).ok_or(CkksError::OutOfLevels)?);
        Ok(known().entry(name).or_insert(made).clone())
    }

    fn run(&self, program: &Program, inputs: &[&[u64]], level: usize) -> Result<Ciphertext, Error> {
        let mut out = Ciphertext::zeros(&self.parameters, level);
        let [first, second] = &mut out.parts;
        let mut operands: Vec<_> = inputs.iter().map(|&words| Operand::In(words)).collect();
        operands.extend([Operand::Out(first), Operand::Out(second)]);
        self.engine.run(program, &mut operands)?;
        Ok(out)
    }
}

/// Encodes numbers for a level, as words of two's complement.
pub(super) fn encoded(
    encoder: &Encoder,
    set: &Parameters,
    values: &Complex,
    level: usize,
) -> Result<zeroize::Zeroizing<Vec<u64>>, CkksError> {
    let top = set.top_level();
    if level > top {
        return Err(CkksError::Level { level, top });
    }
    let log_q: f64 = set.ring(level).primes().iter().map(|&q| (q as f64).log2()).sum();
    let scale = set.scale(level);
    // A bit for the sign, and one for what is added.
    let coefficients = encoder.encode(values, (scale, log_q - 2.0, level))?;
    let words = coefficients.into_iter().map(i64::cast_unsigned).collect();
    Ok(zeroize::Zeroizing::new(words))
}
