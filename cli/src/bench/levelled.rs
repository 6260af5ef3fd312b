//! Work on encrypted vectors, under levelled CKKS.

use std::{hint::black_box, sync::Arc};

use ciphergram_accel::{
    Engine, Program,
    program::{LimbOp, LimbStep, RingOp, RingStep, Source as Origin, Step},
};
use ciphergram_he::{
    Error, LevelledKey, Update,
    ckks::{
        self, Ciphertext, Complex, Decryptor, Encryptor, Evaluator, LevelledSecret, Parameters,
        Preset,
    },
    random,
    vectors::{Layout, Recipe, Scores, Source, Vector, screen},
};
use rand_core::Rng;
use rayon::prelude::*;

use super::{
    operation::LevelledOperation,
    sums::{CLIENTS, random_update},
};
use crate::failure::Failure;

/// Float32 values of an update that is screened.
const VALUES: usize = 1_000_000;
/// The same on the oracle.
const FEW_VALUES: usize = 10_000;
/// Rotations that share digits.
const TURNS: [i64; 8] = [1, 2, 3, 4, 5, 6, 7, 8];
/// The largest number in a slot.
const MAGNITUDE: f64 = 1.0;
/// The range of updates; a few of their values are above 1.
const RANGE: f64 = 2.0;
/// Ciphertexts of which the error is the largest of all slots.
const ERRORS: usize = 8;

/// The data of the operations: numbers under a fresh key of a preset.
pub(crate) struct Vectors<'e> {
    preset: Preset,
    engine: &'e dyn Engine,
    evaluator: Evaluator<'e>,
    /// What encrypts under the public key, and under the secret one.
    public: Encryptor,
    secret: Encryptor,
    decryptor: Decryptor,
    numbers: Complex,
    pair: [Ciphertext; 2],
    screened: Option<Screened>,
}

/// What a round is screened with.
struct Screened {
    values: usize,
    reference: Vector,
    /// The bytes of the file of a client's update.
    update: Vec<u8>,
}

/// Figures of fresh ciphertexts.
pub(crate) struct Fresh {
    /// The most that a slot is off.
    pub(crate) error: f64,
    /// Bytes of a file, header and all, for each number.
    pub(crate) bytes_per_value: f64,
}

impl<'e> Vectors<'e> {
    /// Makes keys for these operations, and ciphertexts. What is measured is checked to give what it should.
    ///
    /// # Errors
    /// It gives something else; no randomness; the engine's.
    pub(crate) fn new(
        preset: Preset,
        operations: &[LevelledOperation],
        engine: &'e dyn Engine,
    ) -> Result<Self, Failure> {
        let parameters = Arc::new(Parameters::preset(preset));
        let slots = parameters.slots();
        let key = LevelledSecret::generate(&parameters, engine)?;
        let screens = operations.contains(&LevelledOperation::Screen);
        let powers = (0..slots.trailing_zeros()).map(|bit| 1i64 << bit);
        let turns: Vec<_> = TURNS.into_iter().chain(powers.filter(|_| screens)).collect();
        let evaluator = Evaluator::new(key.evaluation_keys(&turns, engine)?, engine);
        let public = Encryptor::public(key.public(), MAGNITUDE);
        let secret = Encryptor::secret(&key, MAGNITUDE);
        let decryptor = Decryptor::new(&key);
        let numbers = random_numbers(slots)?;
        let encrypt = |by: &Encryptor| by.encrypt(&numbers, engine);
        let pair = [encrypt(&public)?, encrypt(&secret)?];
        let key = LevelledKey::Secret(key.into());
        let screened = if screens { Some(Screened::new(&key, &evaluator, engine)?) } else { None };
        let vectors =
            Self { preset, engine, evaluator, public, secret, decryptor, numbers, pair, screened };
        vectors.check()?;
        Ok(vectors)
    }

    /// Returns the preset.
    pub(crate) fn preset(&self) -> Preset {
        self.preset
    }

    /// Returns the bits of the product of all primes.
    pub(crate) fn bits(&self) -> u32 {
        self.evaluator.parameters().log_qp().ceil() as u32
    }

    /// Returns the degree of the ring.
    pub(crate) fn degree(&self) -> usize {
        self.evaluator.parameters().degree()
    }

    /// Returns the operations that one run is.
    pub(crate) fn operations(operation: LevelledOperation) -> usize {
        if operation == LevelledOperation::Screen { CLIENTS as usize } else { 1 }
    }

    /// Returns the values that one operation is on.
    pub(crate) fn values(&self, operation: LevelledOperation) -> usize {
        let slots = self.evaluator.parameters().slots();
        match (operation, &self.screened) {
            (LevelledOperation::Screen, Some(screened)) => screened.values,
            (LevelledOperation::RotateEight, _) => TURNS.len() * slots,
            _ => slots,
        }
    }

    /// Runs an operation once on each of `threads` threads, results thrown away.
    pub(crate) fn run(&self, operation: LevelledOperation, threads: usize) -> Result<(), Failure> {
        if threads == 1 {
            return Ok(self.run_once(operation)?);
        }
        let all = (0..threads).into_par_iter();
        Ok(all.map(|_| self.run_once(operation)).collect::<Result<(), Error>>()?)
    }

    fn run_once(&self, operation: LevelledOperation) -> Result<(), Error> {
        let (evaluator, engine, [a, b]) = (&self.evaluator, self.engine, &self.pair);
        match operation {
            LevelledOperation::Multiply => drop(black_box(evaluator.multiply(a, b)?)),
            LevelledOperation::Rotate => drop(black_box(evaluator.rotate(a, 1)?)),
            LevelledOperation::RotateEight => {
                drop(black_box(evaluator.rotate_by_each(a, &TURNS)?));
            }
            LevelledOperation::Encrypt => {
                drop(black_box(self.public.encrypt(&self.numbers, engine)?));
            }
            LevelledOperation::EncryptOwner => {
                drop(black_box(self.secret.encrypt(&self.numbers, engine)?));
            }
            LevelledOperation::Decrypt => drop(black_box(self.decryptor.decrypt(a, engine)?)),
            LevelledOperation::Screen => {
                if let Some(screened) = &self.screened {
                    drop(black_box(screened.run(evaluator, engine)?));
                }
            }
        }
        Ok(())
    }

    /// Runs on each of `threads` threads the rotations that one operation shares digits for, one by one.
    pub(crate) fn turn_singly(&self, threads: usize) -> Result<(), Failure> {
        let all = (0..threads).into_par_iter().map(|_| {
            let mut turns = TURNS.iter().map(|&steps| self.evaluator.rotate(&self.pair[0], steps));
            turns.try_for_each(|turned| turned.map(|turned| drop(black_box(turned))))
        });
        Ok(all.collect::<Result<(), Error>>()?)
    }

    /// Returns the figures of what an operation encrypts, of those that encrypt.
    ///
    /// # Errors
    /// No randomness; the engine's.
    pub(crate) fn fresh(&self, operation: LevelledOperation) -> Result<Option<Fresh>, Failure> {
        let encryptor = match operation {
            LevelledOperation::Encrypt => &self.public,
            LevelledOperation::EncryptOwner => &self.secret,
            _ => return Ok(None),
        };
        let slots = self.evaluator.parameters().slots();
        let mut error = 0f64;
        for _ in 0..ERRORS {
            let numbers = random_numbers(slots)?;
            let encrypted = encryptor.encrypt(&numbers, self.engine)?;
            error = error.max(self.off(&encrypted, &numbers.re)?);
        }
        let bytes = self.file_bytes(operation == LevelledOperation::Encrypt)?;
        Ok(Some(Fresh { error, bytes_per_value: bytes as f64 / slots as f64 }))
    }

    /// Returns the bytes of a file of one ciphertext under either half of a key.
    fn file_bytes(&self, is_public: bool) -> Result<usize, Failure> {
        let key = LevelledSecret::generate(self.evaluator.parameters(), self.engine)?;
        let key = match is_public {
            true => LevelledKey::Public(key.public().clone()),
            false => LevelledKey::Secret(key.into()),
        };
        let update = random_update(self.evaluator.parameters().slots())?;
        Ok(Vector::encrypt(&key, &update, &RECIPE, self.engine)?.to_bytes()?.len())
    }

    /// Returns the most that a slot of what is encrypted is away from a number.
    fn off(&self, encrypted: &Ciphertext, numbers: &[f64]) -> Result<f64, Error> {
        let found = self.decryptor.decrypt(encrypted, self.engine)?;
        let off = found.re.iter().zip(numbers).map(|(x, y)| (x - y).abs());
        Ok(off.chain(found.im.iter().map(|x| x.abs())).fold(0.0, f64::max))
    }

    /// Checks what is timed: each result is within its own bound.
    fn check(&self) -> Result<(), Failure> {
        let [a, b] = &self.pair;
        let mut turned = self.numbers.re.clone();
        turned.rotate_left(8);
        let squares: Vec<_> = self.numbers.re.iter().map(|x| x * x).collect();
        let product = self.evaluator.multiply(a, b)?;
        let all = self.evaluator.rotate_by_each(a, &TURNS)?;
        let of = [(a, &self.numbers.re), (b, &self.numbers.re), (&product, &squares)];
        for (encrypted, numbers) in of.into_iter().chain(all.last().map(|last| (last, &turned))) {
            if self.off(encrypted, numbers)? > encrypted.bound().error {
                let text = format!("the engine {} computes something else", self.engine.name());
                return Err(Failure::Work(text));
            }
        }
        Ok(())
    }
}

/// How updates are encrypted to be screened.
const RECIPE: Recipe = Recipe { range: Some(RANGE), layout: Layout::Rows };

impl Screened {
    /// Encrypts an update and a reference, and checks the norm that screening finds.
    fn new(
        key: &LevelledKey,
        evaluator: &Evaluator<'_>,
        engine: &dyn Engine,
    ) -> Result<Self, Failure> {
        let values = if engine.name() == "reference" { FEW_VALUES } else { VALUES };
        let update = random_update(values)?;
        let encrypt = |update: &Update| Vector::encrypt(key, update, &RECIPE, engine);
        let reference = encrypt(&random_update(values)?)?;
        let bytes = encrypt(&update)?.to_bytes()?;
        let screened = Self { values, reference, update: bytes };
        let scores = Scores::decrypt(&screened.run(evaluator, engine)?, key.secret()?, engine)?;
        let values = update.tensors()[0].values()?;
        let norm = values.iter().map(|x| x * x).sum::<f64>().sqrt();
        // Seven digits: the screen has some more, whatever the preset.
        if scores.each().all(|(_, score)| (score.norm / norm - 1.0).abs() < 1e-4) {
            return Ok(screened);
        }
        Err(Failure::Work(format!("the engine {} finds another norm", engine.name())))
    }

    /// Screens a round in which all clients sent the same, under names of their own.
    fn run(&self, evaluator: &Evaluator<'_>, engine: &dyn Engine) -> Result<Vector, Error> {
        let updates = (0..CLIENTS).map(|client| {
            let (vector, mut digest) = Vector::from_bytes(&self.update, engine)?;
            digest[..4].copy_from_slice(&client.to_le_bytes());
            Ok((Source { name: client.to_string(), digest }, vector))
        });
        screen(evaluator, Some(&self.reference), updates)
    }
}

/// Returns the program of an operation on ciphertexts alone, of which transforms bound the time.
pub(crate) fn program(operation: LevelledOperation, preset: Preset) -> Option<Program> {
    let parameters = Parameters::preset(preset);
    match operation {
        LevelledOperation::Multiply => ckks::Operation::Multiply.program(&parameters),
        LevelledOperation::Rotate => ckks::Operation::Rotate.program(&parameters),
        _ => None,
    }
}

/// Returns the work of a program in transforms of one polynomial modulo one prime.
///
/// A transform is `N / 2 · log₂ N` products. Other products, slot by slot, are counted as the part of one that they
/// are: those of polynomials, by constants, and those of digits when a base is extended. Sums, permutations and
/// reductions are not counted.
pub(crate) fn work(program: &Program, degree: usize) -> f64 {
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
    use super::*;

    #[test]
    fn work_is_counted_in_transforms() {
        let found = |preset| {
            let multiply = program(LevelledOperation::Multiply, preset).unwrap();
            let degree = Parameters::preset(preset).degree();
            (multiply.transforms() as f64, work(&multiply, degree))
        };
        for preset in Preset::ALL {
            let (transforms, work) = found(preset);
            assert!(work > transforms && work < 2.0 * transforms, "{preset}: {transforms}, {work}");
        }
        assert!(program(LevelledOperation::Encrypt, Preset::Slots4096Levels1).is_none());
    }
}
