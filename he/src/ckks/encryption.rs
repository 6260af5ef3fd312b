//! Encryption and decryption of vectors.

use std::sync::Arc;

use ciphergram_accel::{Engine, Operand, Program, Ring};
use zeroize::Zeroizing;

use super::{
    Ciphertext, CkksError,
    encoder::{Complex, Encoder},
    evaluator::encoded,
    keys::{LevelledPublic, LevelledSecret},
    parameters::Parameters,
    programs,
};
use crate::{Error, ids::KeyId, random};

/// What encrypts under a public key, or under the secret one.
pub struct Encryptor {
    parameters: Arc<Parameters>,
    key: KeyId,
    encoder: Encoder,
    level: usize,
    program: Program,
    is_public: bool,
    magnitude: f64,
}

impl Encryptor {
    /// Encrypts numbers within ±`magnitude` under a public key.
    #[must_use]
    pub fn public(key: &LevelledPublic, magnitude: f64) -> Self {
        let parameters = key.parameters().clone();
        let level = parameters.top_level();
        let [b, a] = key.on(level);
        let program = programs::encrypt_public(&parameters, level, [&b, &a]);
        let encoder = Encoder::new(parameters.slots());
        let key = key.id();
        Self { parameters, key, encoder, level, program, is_public: true, magnitude }
    }

    /// Encrypts numbers within ±`magnitude` under the secret key: half of such a ciphertext is named by a seed.
    #[must_use]
    pub fn secret(key: &LevelledSecret, magnitude: f64) -> Self {
        let parameters = key.parameters().clone();
        let level = parameters.top_level();
        let program = programs::encrypt_secret(&parameters, level, &key.on(level));
        let encoder = Encoder::new(parameters.slots());
        let key = key.public().id();
        Self { parameters, key, encoder, level, program, is_public: false, magnitude }
    }

    /// Encrypts numbers, which fill the first slots; all others are zero.
    ///
    /// # Errors
    /// Those of [`Encoder::encode`]; the operating system has no randomness; the engine's.
    pub fn encrypt(&self, values: &Complex, engine: &dyn Engine) -> Result<Ciphertext, Error> {
        let set = &self.parameters;
        let (limit, level) = (self.magnitude, self.level);
        if let Some((index, value)) = values.first_beyond(|square| square <= limit * limit) {
            return Err(CkksError::Value { index, value, level, limit }.into());
        }
        let message = encoded(&self.encoder, set, values, self.level)?;
        let bound = set.fresh_bound(self.magnitude, self.is_public);
        // Drawn here for every ciphertext, and nowhere given: no seed is used twice, and the index may be the same.
        let draw = || random::bytes::<32>();
        let [first, second, third] = [draw()?, draw()?, draw()?];
        let words = |seed: &[u8; 32]| Zeroizing::new(random::seed_words(seed));
        let [a, b, c] = [words(&first), words(&second), words(&third)];
        let mut parts = [0, 1].map(|_| vec![0; set.ring(self.level).len_words()]);
        let [part0, part1] = &mut parts;
        let (message, index) = (Operand::SecretIn(&message), Operand::In(&[0]));
        let outs = [Operand::Out(part0), Operand::Out(part1)];
        let inputs = match self.is_public {
            true => vec![
                message,
                index,
                Operand::SecretIn(&*a),
                Operand::SecretIn(&*b),
                Operand::SecretIn(&*c),
            ],
            false => vec![message, index, Operand::In(&*a), Operand::SecretIn(&*b)],
        };
        let mut operands: Vec<_> = inputs.into_iter().chain(outs).collect();
        engine.run(&self.program, &mut operands)?;
        drop(operands);
        let (parameters, key, level) = (set.clone(), self.key, self.level);
        let seed = (!self.is_public).then_some(*first);
        Ok(Ciphertext { parameters, key, level, bound, seed, parts })
    }
}

/// What decrypts. What it returns is for key holders alone: it tells of the noise too, and so, to
/// whoever chooses what is decrypted, of the secret.
pub struct Decryptor {
    parameters: Arc<Parameters>,
    key: KeyId,
    encoder: Encoder,
    /// Of level 0, and of level 1, to which higher ones are cut.
    programs: Vec<Program>,
}

impl Decryptor {
    /// Makes what decrypts under a key.
    #[must_use]
    pub fn new(key: &LevelledSecret) -> Self {
        let parameters = key.parameters().clone();
        let levels = 0..=parameters.top_level().min(1);
        let programs =
            levels.map(|level| programs::decrypt(&parameters, level, &key.on(level))).collect();
        let encoder = Encoder::new(parameters.slots());
        Self { parameters, key: key.public().id(), encoder, programs }
    }

    /// Decrypts to all slots.
    ///
    /// # Errors
    /// [`CkksError::OtherParameters`]; [`Error::KeyMismatch`]; the engine's.
    pub fn decrypt(&self, a: &Ciphertext, engine: &dyn Engine) -> Result<Complex, Error> {
        let integers = self.integers(a, engine)?;
        let q = modulus(self.parameters.ring(a.level.min(1)));
        let coefficients = integers.iter().map(|&x| to_float(centred(x, q)));
        let coefficients = Zeroizing::new(coefficients.collect::<Vec<_>>());
        Ok(self.encoder.decode(&coefficients, self.parameters.scale(a.level)))
    }

    /// Returns the coefficients of what is encrypted and of its noise, modulo the primes that it is decrypted by: two
    /// at most, which hold whatever slots may be.
    fn integers(&self, a: &Ciphertext, engine: &dyn Engine) -> Result<Zeroizing<Vec<u128>>, Error> {
        let set = &self.parameters;
        if a.parameters.literal() != set.literal() {
            return Err(CkksError::OtherParameters { what: "the ciphertext" }.into());
        }
        if a.key != self.key {
            let (found, expected) = (a.key, self.key);
            return Err(Error::other_key("the ciphertext is under key", found, expected));
        }
        let level = a.level.min(1);
        let words = set.ring(level).len_words();
        let mut integers = Zeroizing::new(vec![0; words]);
        let mut operands = [
            Operand::In(&a.parts[0][..words]),
            Operand::In(&a.parts[1][..words]),
            Operand::Out(&mut integers),
        ];
        engine.run(&self.programs[level], &mut operands)?;
        let (low, high) = integers.split_at(set.degree());
        let high = high.iter().copied().chain(std::iter::repeat(0));
        let whole =
            low.iter().zip(high).map(|(&low, high)| u128::from(high) << 64 | u128::from(low));
        Ok(Zeroizing::new(whole.collect()))
    }
}

/// Returns the product of a ring's primes, two at most.
fn modulus(ring: &Ring) -> u128 {
    ring.primes().iter().map(|&prime| u128::from(prime)).product()
}

/// Returns the integer within ±q/2 of one modulo q.
fn centred(x: u128, q: u128) -> i128 {
    let is_negative = i128::from(x > q / 2);
    x.cast_signed() - is_negative * q.cast_signed()
}

/// Returns the float nearest to an integer of at most 91 bits and a sign: quicker than a conversion of any.
fn to_float(x: i128) -> f64 {
    const LOW: u32 = 40;
    let (high, low) = ((x >> LOW) as i64, (x & ((1 << LOW) - 1)) as i64);
    // Both are exact, so that the sum alone rounds.
    high as f64 * (1i64 << LOW) as f64 + low as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_become_the_nearest_floats() {
        for x in [
            0,
            1,
            -1,
            1 << 40,
            -(1 << 40) + 1,
            (1 << 90) - 3,
            -(1 << 90) + 7,
            0x1234_5678_9abc_def0_1234,
        ] {
            assert_eq!(to_float(x), x as f64, "{x}");
        }
    }
}
