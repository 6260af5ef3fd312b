//! The secret half of a key.

use std::sync::Arc;

use ciphergram_accel::{CpuEngine, Engine, Program};

use super::{KeyRef, PublicKey, public::PublicMaterial};
use crate::{
    Error, Parameters, Scheme,
    paillier::PaillierSecret,
    params::{FamilyParameters, Literal},
    private_ranges::RangesSecret,
    random,
    schemes::{
        Operation, SecretScheme,
        rlwe::{asymmetric, symmetric},
    },
    tag::SumKey,
};

/// The secret material of each family of schemes.
pub(super) enum SecretMaterial {
    Paillier(PaillierSecret),
    CkksSum(symmetric::Secrets),
    CkksSumPublic(asymmetric::SumKeyPair),
    #[cfg(test)]
    Plain(crate::schemes::plain::Plain),
}

/// The error of a key that has nothing to be upgraded.
const HAS_SUM_KEY: Error =
    Error::KeyKind { found: "whole", needed: "it has a sum key already: use it as it is" };

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
        match *parameters.family() {
            FamilyParameters::Paillier { modulus_bits } => {
                let secret = PaillierSecret::generate(modulus_bits)?;
                Ok(Self::of_factors(parameters, secret, Some(SumKey::draw()?)))
            }
            _ => Self::of_seed(parameters, &*random::bytes::<32>()?, Some(SumKey::draw()?)),
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

    /// Expands the key that a seed names. Where clients share the seed, the sum key comes from it too.
    ///
    /// # Errors
    /// The parameters are of a scheme whose keys do not grow from seeds.
    pub(super) fn of_seed(
        parameters: Parameters,
        seed: &[u8; 32],
        sum_key: Option<SumKey>,
    ) -> Result<Self, Error> {
        let engine = CpuEngine::new();
        Ok(match parameters.family() {
            FamilyParameters::Paillier { .. } => {
                return Err(Error::Format {
                    what: "key file",
                    why: "a seed under Paillier".into(),
                });
            }
            FamilyParameters::CkksSum(_) if parameters.scheme() == Scheme::CkksSumThreshold => {
                let needed = "sums under ckks-sum-threshold are opened by the openers of a job";
                return Err(Error::KeyKind { found: "secret", needed });
            }
            FamilyParameters::CkksSum(rlwe) => {
                let rlwe = rlwe.clone();
                let secrets = symmetric::Secrets::new(seed, &parameters, &rlwe);
                let public = PublicKey::of_seed(parameters, &rlwe, seed);
                let sum_key = Some(SumKey::of_seed(seed));
                Self { public, material: SecretMaterial::CkksSum(secrets), sum_key, ranges: None }
            }
            FamilyParameters::CkksSumPublic(rlwe) => {
                let secret = asymmetric::SumKeyPair::expand(seed, rlwe, &engine)?;
                let (public, name) = (secret.public().clone(), sum_key.as_ref().map(SumKey::id));
                let public = PublicKey::of_polynomials(parameters, public, name);
                Self {
                    public,
                    material: SecretMaterial::CkksSumPublic(secret),
                    sum_key,
                    ranges: None,
                }
            }
            #[cfg(test)]
            FamilyParameters::Plain => {
                let plain = crate::schemes::plain::Plain;
                let public = PublicKey::of_nothing(parameters);
                let sum_key = Some(SumKey::of_seed(&[0; 32]));
                Self { public, material: SecretMaterial::Plain(plain), sum_key, ranges: None }
            }
        })
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
        if self.sum_key.is_some() {
            return Err(HAS_SUM_KEY);
        }
        let sum_key = SumKey::draw()?;
        let (parameters, name) = (self.public.parameters.clone(), Some(sum_key.id()));
        self.public = match self.public.material {
            PublicMaterial::Paillier(modulus) => PublicKey::of_modulus(parameters, modulus, name),
            PublicMaterial::CkksSumPublic(public) => {
                PublicKey::of_polynomials(parameters, public, name)
            }
            _ => return Err(HAS_SUM_KEY),
        };
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
            SecretMaterial::CkksSumPublic(secret) => secret,
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
