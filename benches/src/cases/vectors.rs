//! Work on encrypted vectors, under levelled CKKS.

use std::sync::Arc;

use ciphergram_accel::{
    Engine, Program,
    program::{LimbOp, LimbStep, RingOp, RingStep, Source as Origin, Step},
};
use ciphergram_he::{
    Error, LevelledKey, Update,
    ckks::{
        Ciphertext, Complex, Decryptor, Encryptor, Evaluator, LevelledSecret, Parameters, Preset,
    },
    random,
    vectors::{Layout, Recipe, Scores, Source, Vector, screen},
};
use rand_core::Rng;

use super::sums::{CLIENTS, FEW_VALUES, VALUES, random_update};
use crate::Failure;

/// Rotations that share digits.
const TURNS: [i64; 8] = [1, 2, 3, 4, 5, 6, 7, 8];
/// The largest number in a slot.
const MAGNITUDE: f64 = 1.0;
/// Ciphertexts of which the error is the largest of all slots.
const ERRORS: usize = 8;
/// How updates are encrypted to be screened; a few of their values are above 1.
const RECIPE: Recipe = Recipe { range: Some(2.0), layout: Layout::Rows };

/// Numbers under a fresh key of a preset.
pub(super) struct Vectors<'e> {
    engine: &'e dyn Engine,
    pub(super) evaluator: Evaluator<'e>,
    /// What encrypts under the public key, and under the secret one.
    encryptors: [Encryptor; 2],
    decryptor: Decryptor,
    numbers: Complex,
    pair: [Ciphertext; 2],
}

impl<'e> Vectors<'e> {
    /// Makes keys and ciphertexts. What is measured is checked to give what it should.
    ///
    /// # Errors
    /// It gives something else; no randomness; the engine's.
    pub(super) fn new(preset: Preset, engine: &'e dyn Engine) -> Result<Self, Failure> {
        let parameters = Arc::new(Parameters::preset(preset));
        let key = LevelledSecret::generate(&parameters, engine)?;
        let evaluator = Evaluator::new(key.evaluation_keys(&TURNS, engine)?, engine);
        let numbers = random_numbers(parameters.slots())?;
        let encryptors =
            [Encryptor::public(key.public(), MAGNITUDE), Encryptor::secret(&key, MAGNITUDE)];
        let [a, b] = encryptors.each_ref().map(|by| by.encrypt(&numbers, engine));
        let (decryptor, pair) = (Decryptor::new(&key), [a?, b?]);
        let vectors = Self { engine, evaluator, encryptors, decryptor, numbers, pair };
        vectors.check()?;
        Ok(vectors)
    }

    /// Checks what is timed: each result is within its own bound.
    fn check(&self) -> Result<(), Failure> {
        let [a, b] = &self.pair;
        let numbers = &self.numbers.re;
        let mut turned = numbers.clone();
        turned.rotate_left(TURNS.len());
        let squares = numbers.iter().map(|x| x * x).collect();
        let (product, all) = (self.multiply()?, self.rotate_eight()?);
        let of = [(a, numbers), (b, numbers), (&product, &squares)];
        for (encrypted, numbers) in of.into_iter().chain(all.last().map(|last| (last, &turned))) {
            if self.off(encrypted, numbers)? > encrypted.bound().error {
                let text = format!("the engine {} computes something else", self.engine.name());
                return Err(text.into());
            }
        }
        Ok(())
    }

    pub(super) fn multiply(&self) -> Result<Ciphertext, Error> {
        self.evaluator.multiply(&self.pair[0], &self.pair[1])
    }

    pub(super) fn rotate(&self) -> Result<Ciphertext, Error> {
        self.evaluator.rotate(&self.pair[0], 1)
    }

    pub(super) fn rotate_eight(&self) -> Result<Vec<Ciphertext>, Error> {
        self.evaluator.rotate_by_each(&self.pair[0], &TURNS)
    }

    /// The same rotations one by one.
    pub(super) fn rotate_singly(&self) -> Result<Vec<Ciphertext>, Error> {
        TURNS.iter().map(|&steps| self.evaluator.rotate(&self.pair[0], steps)).collect()
    }

    /// Encrypts under the public key, or the secret one.
    pub(super) fn encrypt(&self, owner: bool) -> Result<Ciphertext, Error> {
        self.encryptors[usize::from(owner)].encrypt(&self.numbers, self.engine)
    }

    pub(super) fn decrypt(&self) -> Result<Complex, Error> {
        self.decryptor.decrypt(&self.pair[0], self.engine)
    }

    /// Returns the most that a slot of fresh ciphertexts is off, and the bytes of the file of one for each slot.
    pub(super) fn fresh(&self, owner: bool) -> Result<(f64, f64), Failure> {
        let (mut error, slots) = (0f64, self.numbers.re.len());
        for _ in 0..ERRORS {
            let numbers = random_numbers(slots)?;
            let encrypted = self.encryptors[usize::from(owner)].encrypt(&numbers, self.engine)?;
            error = error.max(self.off(&encrypted, &numbers.re)?);
        }
        let key = LevelledSecret::generate(self.evaluator.parameters(), self.engine)?;
        let key = match owner {
            true => LevelledKey::Secret(key.into()),
            false => LevelledKey::Public(key.public().clone()),
        };
        let file = Vector::encrypt(&key, &random_update(slots)?, &RECIPE, self.engine)?;
        Ok((error, file.to_bytes()?.len() as f64 / slots as f64))
    }

    /// Returns the most that a slot of what is encrypted is away from a number.
    fn off(&self, encrypted: &Ciphertext, numbers: &[f64]) -> Result<f64, Error> {
        let found = self.decryptor.decrypt(encrypted, self.engine)?;
        let off = found.re.iter().zip(numbers).map(|(x, y)| (x - y).abs());
        Ok(off.chain(found.im.iter().map(|x| x.abs())).fold(0.0, f64::max))
    }
}

/// Clients that all send the same, under names of their own, and a reference.
pub(super) struct Screened<'e> {
    engine: &'e dyn Engine,
    pub(super) evaluator: Evaluator<'e>,
    pub(super) values: usize,
    reference: Vector,
    /// The bytes of the file of a client's update.
    update: Vec<u8>,
}

impl<'e> Screened<'e> {
    /// Encrypts an update and a reference, and checks the norm that screening finds.
    ///
    /// # Errors
    /// It is another one; no randomness; the engine's.
    pub(super) fn new(preset: Preset, engine: &'e dyn Engine) -> Result<Self, Failure> {
        let parameters = Arc::new(Parameters::preset(preset));
        let key = LevelledSecret::generate(&parameters, engine)?;
        let powers: Vec<_> = (0..parameters.slots().trailing_zeros()).map(|bit| 1 << bit).collect();
        let evaluator = Evaluator::new(key.evaluation_keys(&powers, engine)?, engine);
        let key = LevelledKey::Secret(key.into());
        let values = if engine.name() == "reference" { FEW_VALUES } else { VALUES };
        let update = random_update(values)?;
        let encrypt = |update: &Update| Vector::encrypt(&key, update, &RECIPE, engine);
        let (reference, bytes) = (encrypt(&random_update(values)?)?, encrypt(&update)?.to_bytes()?);
        let screened = Self { engine, evaluator, values, reference, update: bytes };
        let scores = Scores::decrypt(&screened.run()?, key.secret()?, engine)?;
        let squares = update.tensors()[0].values()?.iter().map(|x| x * x).sum::<f64>();
        // Seven digits: the screen has some more, whatever the preset.
        if scores.each().all(|(_, score)| (score.norm / squares.sqrt() - 1.0).abs() < 1e-4) {
            return Ok(screened);
        }
        Err(format!("the engine {} finds another norm", engine.name()).into())
    }

    pub(super) fn run(&self) -> Result<Vector, Error> {
        let updates = (0..CLIENTS).map(|client| {
            let (vector, mut digest) = Vector::from_bytes(&self.update, self.engine)?;
            digest[..4].copy_from_slice(&client.to_le_bytes());
            Ok((Source { name: client.to_string(), digest }, vector))
        });
        screen(&self.evaluator, Some(&self.reference), updates)
    }
}

/// Returns the work of a program in transforms of one polynomial modulo one prime.
///
/// A transform is `N / 2 · log₂ N` products. Other products, slot by slot, are counted as the part of one that they
/// are: those of polynomials, by constants, and those of digits when a base is extended. Sums, permutations and
/// reductions are not counted.
pub(super) fn work(program: &Program, degree: usize) -> f64 {
    let values = program.values();
    let passes = values.iter().map(|value| match &value.source {
        Origin::Step { step: Step::Limb(LimbStep { op, ring, .. }), operands } => match op {
            LimbOp::Mul | LimbOp::Scale { .. } => ring.primes().len(),
            LimbOp::MulSum => operands.len() / 2 * ring.primes().len(),
            _ => 0,
        },
        Origin::Step {
            step: Step::Ring(RingStep { op: RingOp::BaseExtend { to, .. }, ring }),
            ..
        } => {
            // The first weight is one.
            let (from, more) = (ring.primes().len(), ring.primes().len().saturating_sub(1));
            more * from / 2 + more * to.primes().len()
        }
        _ => 0,
    });
    let log = f64::from(degree.trailing_zeros());
    program.transforms() as f64 + 2.0 / log * passes.sum::<usize>() as f64
}

/// Draws numbers for all slots.
fn random_numbers(slots: usize) -> Result<Complex, Error> {
    let mut random = random::generator()?;
    let unit = f64::from(u32::MAX) / 2.0;
    let numbers = (0..slots).map(|_| (f64::from(random.next_u32()) / unit - 1.0) * MAGNITUDE);
    Ok(Complex::real(&numbers.collect::<Vec<_>>()))
}

#[cfg(test)]
mod tests {
    use ciphergram_he::ckks::Operation;

    use super::*;

    #[test]
    fn work_is_counted_in_transforms() {
        for preset in Preset::ALL {
            let parameters = Parameters::preset(preset);
            let multiply = Operation::Multiply.program(&parameters).unwrap();
            let transforms = multiply.transforms() as f64;
            let work = work(&multiply, parameters.degree());
            assert!(work > transforms && work < 2.0 * transforms, "{preset}: {transforms}, {work}");
        }
    }
}
