//! The secret half of a key.

use std::sync::Arc;

use ciphergram_accel::{CpuEngine, Engine, Program};

use super::PublicKey;
use crate::{
    Error, Parameters,
    paillier::PaillierSecret,
    params::{FamilyParameters, Literal},
    random,
    schemes::{
        Operation, SecretScheme,
        rlwe::{asymmetric, symmetric},
    },
};

/// The secret material of each family of schemes.
pub(super) enum SecretMaterial {
    Paillier(PaillierSecret),
    CkksSum(symmetric::Secret),
    CkksSumPublic(asymmetric::Secret),
    #[cfg(test)]
    Plain(crate::schemes::plain::Plain),
}

/// A key that opens sums: clients share it, and an aggregator must never have it.
pub struct SecretKey {
    pub(super) public: PublicKey,
    pub(super) material: SecretMaterial,
}

impl SecretKey {
    /// Draws a fresh key.
    ///
    /// # Errors
    /// The parameters are refused, or there is no randomness.
    pub fn generate(literal: Literal) -> Result<Self, Error> {
        let parameters = Parameters::new(literal)?;
        match *parameters.family() {
            FamilyParameters::Paillier { modulus_bits } => {
                let secret = PaillierSecret::generate(modulus_bits)?;
                Ok(Self::of_factors(parameters, secret))
            }
            _ => Self::of_seed(parameters, &*random::bytes::<32>()?),
        }
    }

    /// Makes a key of its factors.
    pub(super) fn of_factors(parameters: Parameters, secret: PaillierSecret) -> Self {
        let public = PublicKey::of_modulus(parameters, secret.modulus().clone());
        Self { public, material: SecretMaterial::Paillier(secret) }
    }

    /// Expands the key that a seed names.
    ///
    /// # Errors
    /// The parameters are of a scheme whose keys do not grow from seeds.
    pub(super) fn of_seed(parameters: Parameters, seed: &[u8; 32]) -> Result<Self, Error> {
        let engine = CpuEngine::new();
        Ok(match parameters.family() {
            FamilyParameters::Paillier { .. } => {
                return Err(Error::Json { what: "key file", why: "a seed under Paillier".into() });
            }
            FamilyParameters::CkksSum(rlwe) => {
                let secret = symmetric::Secret::expand(seed, rlwe, &engine)?;
                let rlwe = rlwe.clone();
                let public = PublicKey::of_seed(parameters, &rlwe, seed);
                Self { public, material: SecretMaterial::CkksSum(secret) }
            }
            FamilyParameters::CkksSumPublic(rlwe) => {
                let secret = asymmetric::Secret::expand(seed, rlwe, &engine)?;
                let public = PublicKey::of_polynomials(parameters, secret.public().clone());
                Self { public, material: SecretMaterial::CkksSumPublic(secret) }
            }
            #[cfg(test)]
            FamilyParameters::Plain => {
                let plain = crate::schemes::plain::Plain;
                let public = PublicKey::of_nothing(parameters);
                Self { public, material: SecretMaterial::Plain(plain) }
            }
        })
    }

    /// Returns the half that anyone may have.
    #[must_use]
    pub fn public(&self) -> &PublicKey {
        &self.public
    }

    /// Returns the secret factors, if it is a Paillier key.
    #[must_use]
    pub fn paillier(&self) -> Option<&PaillierSecret> {
        match &self.material {
            SecretMaterial::Paillier(secret) => Some(secret),
            _ => None,
        }
    }

    /// Returns the scheme over this key.
    pub(crate) fn scheme(&self) -> &dyn SecretScheme {
        match &self.material {
            SecretMaterial::Paillier(secret) => secret,
            SecretMaterial::CkksSum(secret) => secret,
            SecretMaterial::CkksSumPublic(secret) => secret,
            #[cfg(test)]
            SecretMaterial::Plain(plain) => plain,
        }
    }

    /// Returns the program of an operation, decryption that of a sum of `contributors`: to be shown and
    /// measured. Running an encryption with seeds of one's own goes past what
    /// [`Ticket`](crate::Ticket) guards.
    ///
    /// # Errors
    /// The engine's, or no randomness.
    pub fn program(
        &self,
        operation: Operation,
        engine: &dyn Engine,
        contributors: usize,
    ) -> Result<Arc<Program>, Error> {
        match operation {
            Operation::Encrypt => self.scheme().encrypt_program(engine),
            Operation::Aggregate => Ok(self.public.sums().sum_program()),
            Operation::Decrypt => Ok(self.scheme().decrypt_program(contributors)),
        }
    }
}
