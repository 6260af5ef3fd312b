//! Work on ciphertexts.

mod arithmetic;
mod linear;
mod polynomials;

use std::{
    borrow::Cow,
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use ciphergram_accel::{Engine, Operand, Program};
use zeroize::Zeroizing;

use super::{
    Ciphertext, CkksError, Plaintext,
    encoder::{Complex, Encoder},
    evaluation_keys::EvaluationKeys,
    noise::{self, Bound},
    parameters::Parameters,
    programs,
};
use crate::{Error, ids::KeyId};

pub use linear::{Matrix, matrix_rotations};
pub use polynomials::{Basis, Polynomial};

/// The name of a program that is kept: what it does, on which level.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Name {
    Multiply(usize),
    Tensor(usize),
    TensorSum(usize, usize),
    AddProducts(usize),
    Relinearise(usize),
    MultiplyPlain(usize),
    SumPlain(usize, usize),
    Rescale(usize),
    Lower(usize, usize),
    Add(usize),
    Subtract(usize),
    AddPlain(usize),
    SubtractPlain(usize),
    Turn(usize, u32),
    Digits(usize),
    TurnDigits(usize, u32),
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

    /// Returns the parameters.
    #[must_use]
    pub fn parameters(&self) -> &Arc<Parameters> {
        &self.parameters
    }

    /// Returns the keys that it was given.
    #[must_use]
    pub fn keys(&self) -> &EvaluationKeys {
        &self.keys
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
        let (parameters, bound) =
            (self.parameters.clone(), self.encoded_bound(values, &message, level));
        Ok(Plaintext { parameters, level, bound, words })
    }

    /// Returns the bound on an encoded plaintext. What encoding rounded is not guessed but decoded: the worst that it
    /// could be, which is all coefficients rounded to one side of a slot, is fifty times as much.
    fn encoded_bound(&self, values: &Complex, message: &[u64], level: usize) -> Bound {
        let coefficients: Vec<f64> = message.iter().map(|x| x.cast_signed() as f64).collect();
        let found = self.encoder.decode(&coefficients, self.parameters.scale(level));
        let [mut magnitude, mut error] = [0.0_f64; 2];
        for (slot, (&re, &im)) in found.re.iter().zip(&found.im).enumerate() {
            let [x, y] =
                [&values.re, &values.im].map(|part| part.get(slot).copied().unwrap_or(0.0));
            magnitude = magnitude.max(x * x + y * y);
            error = error.max((re - x).powi(2) + (im - y).powi(2));
        }
        let magnitude = magnitude.sqrt();
        // The transform itself is off by some bits.
        Bound { magnitude, error: error.sqrt() + magnitude * f64::EPSILON * 16.0 }
    }

    /// Encodes one real number in all slots.
    ///
    /// # Errors
    /// [`CkksError::Level`]; [`CkksError::Value`], by index 0.
    pub fn constant(&self, value: f64, level: usize) -> Result<Plaintext, Error> {
        let set = &self.parameters;
        let limit = coefficient_bits(set, level)?.exp2() / set.scale(level);
        if !value.is_finite() || value.abs() >= limit {
            return Err(CkksError::Value { index: 0, value, level, limit }.into());
        }
        let ring = set.ring(level);
        // A constant polynomial has the same value everywhere.
        let residues = programs::integer_mod((value * set.scale(level)).round() as i128, ring);
        let words = residues.into_iter().flat_map(|q| std::iter::repeat_n(q, ring.degree()));
        let exact = Bound { magnitude: value.abs(), error: 0.0 };
        let bound = exact.with(0.5, set.scale(level));
        Ok(Plaintext { parameters: set.clone(), level, bound, words: words.collect() })
    }

    /// Returns the ciphertext on a lower level, at that level's scale.
    ///
    /// # Errors
    /// [`CkksError::OutOfLevels`] if it is below `level`; the engine's.
    pub fn lower(&self, a: &Ciphertext, level: usize) -> Result<Ciphertext, Error> {
        Ok(self.lowered(a, level)?.into_owned())
    }

    fn lowered<'a>(&self, a: &'a Ciphertext, level: usize) -> Result<Cow<'a, Ciphertext>, Error> {
        self.check(a)?;
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
        let factor = self.factor(a.level, level).round() as i128;
        let program = self.program(Name::Lower(a.level, level), |set| {
            programs::weigh(set, level + 1, &[factor])
        })?;
        let parts = [0, 1].map(|part| &a.parts[part][..words]);
        // The scales meet but for what the factor was rounded by.
        let bound = a.bound.add(a.bound.scale(0.5 / self.factor(a.level, level)).as_error());
        let bound = bound.with(noise::of_division(set), set.scale(level));
        Ok(Cow::Owned(self.run(&program, &parts, (level, bound))?))
    }

    /// Returns what a ciphertext is multiplied by before it is rescaled to a lower level: what its scale and that
    /// one's differ by, times the prime that goes.
    fn factor(&self, from: usize, to: usize) -> f64 {
        let set = &self.parameters;
        set.scale(to) * set.ring(to + 1).primes()[to + 1] as f64 / set.scale(from)
    }

    /// Brings two ciphertexts to the lower level of both.
    fn levelled<'a>(
        &self,
        a: &'a Ciphertext,
        b: &'a Ciphertext,
    ) -> Result<[Cow<'a, Ciphertext>; 2], Error> {
        let level = a.level.min(b.level);
        Ok([self.lowered(a, level)?, self.lowered(b, level)?])
    }

    /// Refuses what is of other parameters.
    fn check_parameters(&self, of: &Parameters, what: &'static str) -> Result<(), CkksError> {
        let is_same = of.literal() == self.parameters.literal();
        if is_same { Ok(()) } else { Err(CkksError::OtherParameters { what }) }
    }

    /// Refuses what is under another key. Keys of other parameters are others.
    fn check_key(&self, found: KeyId, what: &'static str) -> Result<(), Error> {
        let expected = self.keys.id();
        if found == expected { Ok(()) } else { Err(Error::other_key(what, found, expected)) }
    }

    /// Refuses a ciphertext of other parameters, or under another key.
    fn check(&self, a: &Ciphertext) -> Result<(), Error> {
        self.check_parameters(&a.parameters, "the ciphertext")?;
        self.check_key(a.key, "the ciphertext is under key")
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

    /// Runs a program that makes a ciphertext on a level, with this bound.
    fn run(
        &self,
        program: &Program,
        inputs: &[&[u64]],
        (level, bound): (usize, Bound),
    ) -> Result<Ciphertext, Error> {
        let parts = self.parts(program, inputs, self.parameters.ring(level).len_words())?;
        let (parameters, key) = (self.parameters.clone(), self.keys.id());
        Ok(Ciphertext { parameters, key, level, bound, seed: None, parts })
    }

    /// Returns the bound on a product, or a sum of such, on a level once it is rescaled.
    fn rescaled(&self, bound: Bound, level: usize) -> Bound {
        let set = &self.parameters;
        bound.with(noise::of_division(set), set.scale(level - 1))
    }

    /// Returns the bound on what a switch of keys on a level adds to a product before it is rescaled.
    fn switched(&self, bound: Bound, level: usize) -> Bound {
        let set = &self.parameters;
        bound.with(noise::of_switch(set, level), set.scale(level) * set.scale(level))
    }

    /// Runs a program over public polynomials that makes `COUNT` of so many words.
    fn parts<const COUNT: usize>(
        &self,
        program: &Program,
        inputs: &[&[u64]],
        words: usize,
    ) -> Result<[Vec<u64>; COUNT], Error> {
        let mut parts = [const { vec![] }; COUNT];
        parts.iter_mut().for_each(|part| part.resize(words, 0));
        let mut operands: Vec<_> = inputs.iter().map(|&words| Operand::In(words)).collect();
        operands.extend(parts.iter_mut().map(|part| Operand::Out(part)));
        self.engine.run(program, &mut operands)?;
        drop(operands);
        Ok(parts)
    }
}

/// Returns how many bits coefficients on a level may have: one is for the sign, and one for what is
/// added.
fn coefficient_bits(set: &Parameters, level: usize) -> Result<f64, CkksError> {
    let top = set.top_level();
    if level > top {
        return Err(CkksError::Level { level, top });
    }
    let log_q: f64 = set.ring(level).primes().iter().map(|&q| (q as f64).log2()).sum();
    Ok(log_q - 2.0)
}

/// Encodes numbers for a level, as words of two's complement.
pub(super) fn encoded(
    encoder: &Encoder,
    set: &Parameters,
    values: &Complex,
    level: usize,
) -> Result<Zeroizing<Vec<u64>>, CkksError> {
    let bits = coefficient_bits(set, level)?;
    let coefficients = encoder.encode(values, (set.scale(level), bits, level))?;
    Ok(Zeroizing::new(coefficients.into_iter().map(i64::cast_unsigned).collect()))
}
