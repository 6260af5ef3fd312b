//! Encryption of batches.

use std::sync::Arc;

use ciphergram_accel::{Engine, Operand, Program, random::StreamRng};

use super::{Ciphertexts, PaillierModulus, PaillierSecret, Plaintexts, masks::Masks};
use crate::{Error, error::OperandFault, random};

/// Encrypts batches under one modulus, every ciphertext with a fresh mask from a generator of its
/// own.
pub struct Encryptor {
    modulus: PaillierModulus,
    masks: Arc<Masks>,
    rng: StreamRng,
}

impl Encryptor {
    /// Makes an encryptor with the public key. The first one of a key draws the base of its masks,
    /// if the modulus is of the form that short masks need; others of the same key, clones
    /// included, share it and the table that an engine makes of it.
    ///
    /// # Errors
    /// The engine's, or no randomness.
    pub fn new(modulus: &PaillierModulus, engine: &dyn Engine) -> Result<Self, Error> {
        let mut rng = random::generator()?;
        let masks = modulus.masks(engine, &mut rng)?;
        Ok(Self { modulus: modulus.clone(), masks, rng })
    }

    /// Makes an encryptor for the key's owner, whose masks are powers modulo p² and q², of half the
    /// size, whatever the form of the modulus. The first one of a key draws their bases, others
    /// share them.
    ///
    /// # Errors
    /// The engine's, or no randomness.
    pub fn for_owner(secret: &PaillierSecret, engine: &dyn Engine) -> Result<Self, Error> {
        let mut rng = random::generator()?;
        let masks = secret.masks(engine, &mut rng)?;
        Ok(Self { modulus: secret.modulus().clone(), masks, rng })
    }

    /// Returns the modulus that it encrypts under.
    #[must_use]
    pub fn modulus(&self) -> &PaillierModulus {
        &self.modulus
    }

    /// Returns the program of one encryption. Its operands are the plaintexts, the secret numbers
    /// that are drawn for the masks, and the ciphertexts: as pairs under short masks, else ordinary
    /// ones.
    #[must_use]
    pub fn program(&self) -> &Arc<Program> {
        &self.masks.program
    }

    /// Encrypts a batch. Constant time but for how often a drawn number is drawn again.
    ///
    /// # Errors
    /// Plaintexts of another modulus; the engine's.
    pub fn encrypt(
        &mut self,
        engine: &dyn Engine,
        plain: &Plaintexts,
    ) -> Result<Ciphertexts, Error> {
        if !self.modulus.is_same(plain.modulus()) {
            let (operation, operand, fault) = ("encrypt", "plaintexts", OperandFault::Modulus);
            return Err(Error::Operand { operation, operand, fault });
        }
        let count = plain.count();
        let mut out = vec![0; count * self.modulus.ciphertext_words()];
        let draws = &self.masks.draws;
        let drawn: Vec<_> = draws.iter().map(|draw| draw.fill(count, &mut self.rng)).collect();
        let mut operands = vec![Operand::SecretIn(plain.words())];
        operands.extend(drawn.iter().map(|words| Operand::SecretIn(words)));
        operands.push(Operand::Out(&mut out));
        engine.run(&self.masks.program, &mut operands)?;
        let ciphertexts = if self.masks.pairs {
            Ciphertexts::pairs(&self.modulus, out, 0)
        } else {
            Ciphertexts::ordinary(&self.modulus, out)
        };
        Ok(ciphertexts.at_scale(plain.scale()))
    }
}
