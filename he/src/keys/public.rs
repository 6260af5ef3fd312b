//! The public half of a key.

use std::sync::Arc;

use crate::{
    Error, Parameters,
    bytes::to_bytes,
    ids::KeyId,
    paillier::PaillierModulus,
    schemes::{
        PublicEncryption, SumScheme,
        rlwe::{asymmetric, parameters::RlweParameters},
    },
};

/// Parameters and key id, and the material that encrypts, if anything public does: all that an aggregator
/// holds.
#[derive(Clone)]
pub struct PublicKey {
    pub(super) parameters: Parameters,
    pub(super) id: KeyId,
    pub(super) material: PublicMaterial,
}

/// The public material of each family of schemes.
#[derive(Clone)]
pub(super) enum PublicMaterial {
    Paillier(PaillierModulus),
    CkksSum(Arc<RlweParameters>),
    CkksSumPublic(asymmetric::Public),
    #[cfg(test)]
    Plain(crate::schemes::plain::Plain),
}

impl PublicKey {
    /// Returns the parameter set that the key is for.
    #[must_use]
    pub fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    /// Returns the key's name in frames.
    #[must_use]
    pub fn id(&self) -> KeyId {
        self.id
    }

    /// Returns the modulus, if it is a Paillier key.
    #[must_use]
    pub fn paillier(&self) -> Option<&PaillierModulus> {
        match &self.material {
            PublicMaterial::Paillier(modulus) => Some(modulus),
            _ => None,
        }
    }

    /// Refuses a key that only sums.
    ///
    /// # Errors
    /// [`Error::KeyKind`].
    pub fn check_encrypts(&self) -> Result<(), Error> {
        self.encryption().map(|_| ())
    }

    /// Returns what encrypts.
    ///
    /// # Errors
    /// As [`check_encrypts`](Self::check_encrypts).
    pub(crate) fn encryption(&self) -> Result<&dyn PublicEncryption, Error> {
        match &self.material {
            PublicMaterial::Paillier(modulus) => Ok(modulus),
            PublicMaterial::CkksSum(_) => Err(Error::KeyKind {
                found: "public",
                needed: "encrypting under ckks-sum without the secret needs a key made by keygen \
                         --public-encrypt: make one, or use keys/secret.json",
            }),
            PublicMaterial::CkksSumPublic(public) => Ok(public),
            #[cfg(test)]
            PublicMaterial::Plain(plain) => Ok(plain),
        }
    }

    /// Returns what sums.
    pub(crate) fn sums(&self) -> &dyn SumScheme {
        match &self.material {
            PublicMaterial::Paillier(modulus) => modulus,
            PublicMaterial::CkksSum(parameters) => &**parameters,
            PublicMaterial::CkksSumPublic(public) => public.parameters(),
            #[cfg(test)]
            PublicMaterial::Plain(plain) => plain,
        }
    }

    /// Names a key by its modulus.
    pub(super) fn of_modulus(parameters: Parameters, modulus: PaillierModulus) -> Self {
        let n = to_bytes(modulus.n().words());
        let id = KeyId::derive("ciphergram 2026 paillier key id", &n);
        Self { parameters, id, material: PublicMaterial::Paillier(modulus) }
    }

    /// Names a key without public material by its secret seed.
    pub(super) fn of_seed(
        parameters: Parameters,
        rlwe: &Arc<RlweParameters>,
        seed: &[u8; 32],
    ) -> Self {
        let id = KeyId::derive("ciphergram 2026 ckks-sum key id", seed);
        Self { parameters, id, material: PublicMaterial::CkksSum(rlwe.clone()) }
    }

    /// Names a key by its polynomials.
    pub(super) fn of_polynomials(parameters: Parameters, public: asymmetric::Public) -> Self {
        let material = [&parameters.id(), &public.seed()[..], public.packed()].concat();
        let id = KeyId::derive("ciphergram 2026 ckks-sum-public key id", &material);
        Self { parameters, id, material: PublicMaterial::CkksSumPublic(public) }
    }

    /// Names a key of integers in the clear.
    #[cfg(test)]
    pub(super) fn of_nothing(parameters: Parameters) -> Self {
        let id = KeyId::derive("plain", &parameters.id());
        Self { parameters, id, material: PublicMaterial::Plain(crate::schemes::plain::Plain) }
    }
}
