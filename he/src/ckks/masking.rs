//! Masks: results that key holders open for someone else, without seeing them.
//!
//! Who computed a result adds a polynomial that is uniform modulo the ciphertext's modulus to its first part. What the
//! key holder then decrypts is uniform, whatever the result is: a one-time pad. It goes back as integers, and the mask
//! is taken off. As that shows the result to someone without the key, the key holder floods it like a release.

use std::sync::Arc;

use ciphergram_accel::Operand;
use rand_core::Rng as _;
use zeroize::Zeroizing;

use super::{
    Ciphertext, Complex, Encoder, Evaluator, Parameters,
    encryption::{centred, modulus, reduced, to_float},
    programs,
};
use crate::{Error, random};

/// A mask, to be taken off one result. No `Debug`; zeroized on drop.
pub struct Mask {
    parameters: Arc<Parameters>,
    level: usize,
    /// Coefficient by coefficient, modulo the primes of the level.
    integers: Zeroizing<Vec<u128>>,
}

/// A result as a key holder opened it: integers that tell nothing without the mask.
#[derive(Clone)]
pub struct Masked {
    pub(super) integers: Vec<u128>,
}

impl Evaluator<'_> {
    /// Masks a result, on level 1 at most, for a key holder to open.
    ///
    /// # Errors
    /// [`CkksError::OtherParameters`](super::CkksError::OtherParameters); the operating system has no randomness; the
    /// engine's.
    pub fn mask(&self, a: &Ciphertext) -> Result<(Ciphertext, Mask), Error> {
        let a = self.lower(a, a.level.min(1))?;
        let (parameters, level) = (self.parameters().clone(), a.level);
        let ring = parameters.ring(level).clone();
        let q = modulus(&ring);
        let mut random = random::generator()?;
        let mut draw = || loop {
            let high = u128::from(random.next_u64()) << 64;
            let x = (high | u128::from(random.next_u64())) >> q.leading_zeros();
            if x < q {
                return x;
            }
        };
        let integers: Zeroizing<Vec<u128>> =
            Zeroizing::new((0..ring.degree()).map(|_| draw()).collect());
        let words = (0..ring.primes().len())
            .flat_map(|word| integers.iter().map(move |integer| (integer >> (64 * word)) as u64));
        let words = Zeroizing::new(words.collect::<Vec<_>>());
        let program = programs::mask(&parameters, level);
        let mut first = vec![0; ring.len_words()];
        let mut operands =
            [Operand::In(&a.parts[0]), Operand::SecretIn(&words), Operand::Out(&mut first)];
        self.engine().run(&program, &mut operands)?;
        let [_, second] = a.parts;
        let masked = Ciphertext { parts: [first, second], seed: None, ..a };
        Ok((masked, Mask { parameters, level, integers }))
    }
}

impl Mask {
    /// Takes the mask off, and decodes what was under it.
    ///
    /// # Panics
    /// If the result is of another ring degree.
    #[must_use]
    pub fn open(self, masked: &Masked) -> Complex {
        let (set, q) = (&self.parameters, modulus(self.parameters.ring(self.level)));
        assert_eq!(masked.integers.len(), self.integers.len(), "coefficients of a masked result");
        let pairs = masked.integers.iter().zip(self.integers.iter());
        let difference = |(x, mask): (&u128, &u128)| (x % q).cast_signed() - mask.cast_signed();
        let off = pairs.map(|pair| to_float(centred(reduced(difference(pair), q), q)));
        let coefficients = Zeroizing::new(off.collect::<Vec<_>>());
        Encoder::new(set.slots()).decode(&coefficients, set.scale(self.level))
    }
}
