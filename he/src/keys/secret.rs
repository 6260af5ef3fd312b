//! The secret half of a key.

use std::sync::Arc;

use ciphergram_accel::{Engine, Program};

use super::{KeyRef, PublicKey, public::PublicMaterial};
use crate::{
    Error, Parameters, Scheme,
    paillier::PaillierSecret,
    params::Literal,
    private_ranges::RangesSecret,
    random,
    schemes::{Operation, SecretScheme, rlwe::symmetric},
    tag::SumKey,
};

/// The secret material of each family of schemes.
pub(super) enum SecretMaterial {
    Paillier(PaillierSecret),
    CkksSum(symmetric::Secrets),
    #[cfg(test)]
    Plain(crate::schemes::plain::Plain),
}

/// A key that opens sums. An aggregator must never have it; under `ckks-sum` clients share it.
pub struct SecretKey {
    pub(super) public: PublicKey,
    pub(super) material: SecretMaterial,
    pub(super) sum_key: Option<SumKey>,
    pub(super) ranges: Option<RangesSecret>,
}

impl SecretKey {
    /// Draws a fresh key.
    ///
    /// # Errors
    /// The parameters are refused, or there is no randomness.
    pub fn generate(literal: Literal) -> Result<Self, Error> {
        let parameters = Parameters::new(literal)?;
        match parameters.scheme().modulus_bits() {
            Some(modulus_bits) => {
                let secret = PaillierSecret::generate(modulus_bits)?;
                Ok(Self::of_factors(parameters, secret, Some(SumKey::draw()?)))
            }
            None => Self::of_seed(parameters, &*random::bytes::<32>()?),
        }
    }

    /// Makes a key of its factors.
    pub(super) fn of_factors(
        parameters: Parameters,
        secret: PaillierSecret,
        sum_key: Option<SumKey>,
    ) -> Self {
        let name = sum_key.as_ref().map(SumKey::id);
        let public = PublicKey::of_modulus(parameters, secret.modulus().clone(), name);
        Self { public, material: SecretMaterial::Paillier(secret), sum_key, ranges: None }
    }

    /// Expands the key that a seed names, its sum key too.
    ///
    /// # Errors
    /// The parameters are of a scheme whose keys do not grow from seeds.
    pub(super) fn of_seed(parameters: Parameters, seed: &[u8; 32]) -> Result<Self, Error> {
        #[cfg(test)]
        if parameters.scheme() == Scheme::Plain {
            let material = SecretMaterial::Plain(crate::schemes::plain::Plain);
            let (public, sum_key) = (PublicKey::of_nothing(parameters), SumKey::of_seed(&[0; 32]));
            return Ok(Self { public, material, sum_key: Some(sum_key), ranges: None });
        }
        let Some(rlwe) = parameters.rlwe().cloned() else {
            return Err(Error::Format { what: "key file", why: "a seed under Paillier".into() });
        };
        if parameters.scheme() == Scheme::CkksSumThreshold {
            let needed = "sums under ckks-sum-threshold are opened by the openers of a job";
            return Err(Error::KeyKind { found: "secret", needed });
        }
        let material = SecretMaterial::CkksSum(symmetric::Secrets::new(seed, &parameters, &rlwe));
        let public = PublicKey::of_seed(parameters, &rlwe, seed);
        Ok(Self { public, material, sum_key: Some(SumKey::of_seed(seed)), ranges: None })
    }

    /// Puts a secret of private ranges beside it, which is in the files of its clients from then on.
    #[must_use]
    pub fn with_ranges_secret(self, ranges: RangesSecret) -> Self {
        Self { ranges: Some(ranges), ..self }
    }

    /// Returns the secret of private ranges beside it, if there is one.
    #[must_use]
    pub fn ranges_secret(&self) -> Option<&RangesSecret> {
        self.ranges.as_ref()
    }

    /// Returns the half that anyone may have.
    #[must_use]
    pub fn public(&self) -> &PublicKey {
        &self.public
    }

    /// Returns it as client `number` contributes with it.
    #[must_use]
    pub fn as_client(&self, number: u16) -> KeyRef<'_> {
        KeyRef::Secret(self, number)
    }

    /// Replaces the sum key by a fresh one, which makes it another key: one of an earlier version, or of
    /// python-paillier, then seals and opens updates.
    ///
    /// # Errors
    /// It has a sum key, or there is no randomness.
    pub fn upgrade(mut self) -> Result<Self, Error> {
        let (None, PublicMaterial::Paillier(modulus)) = (&self.sum_key, &self.public.material)
        else {
            let needed = "it has a sum key already: use it as it is";
            return Err(Error::KeyKind { found: "whole", needed });
        };
        let (sum_key, parameters) = (SumKey::draw()?, self.public.parameters.clone());
        self.public = PublicKey::of_modulus(parameters, modulus.clone(), Some(sum_key.id()));
        Ok(Self { sum_key: Some(sum_key), ..self })
    }

    /// Returns the key that sums are proved under.
    ///
    /// # Errors
    /// [`Error::NoSumKey`].
    pub(crate) fn sum_key(&self) -> Result<&SumKey, Error> {
        self.sum_key.as_ref().ok_or(Error::NoSumKey)
    }

    /// Returns the secret factors, if it is a Paillier key.
    #[must_use]
    pub fn paillier(&self) -> Option<&PaillierSecret> {
        match &self.material {
            SecretMaterial::Paillier(secret) => Some(secret),
            _ => None,
        }
    }

    /// Returns the scheme over this key of updates of `values` values.
    pub(crate) fn scheme(&self, values: usize) -> &dyn SecretScheme {
        match &self.material {
            SecretMaterial::Paillier(secret) => secret,
            SecretMaterial::CkksSum(secrets) => secrets.of_values(values),
            #[cfg(test)]
            SecretMaterial::Plain(plain) => plain,
        }
    }

    /// Returns the program of an operation on updates of `values` values, decryption that of a sum of `contributors`:
    /// to be shown and measured. Running an encryption with seeds of one's own goes past what
    /// [`SealPermit`](crate::SealPermit) guards.
    ///
    /// # Errors
    /// The engine's, or no randomness.
    pub fn program(
        &self,
        operation: Operation,
        engine: &dyn Engine,
        contributors: usize,
        values: usize,
    ) -> Result<Arc<Program>, Error> {
        match operation {
            Operation::Encrypt => self.scheme(values).encrypt_program(engine),
            Operation::Aggregate => Ok(self.public.sums(values).sum_program()),
            Operation::Decrypt => self.scheme(values).decrypt_program(contributors),
        }
    }
}
