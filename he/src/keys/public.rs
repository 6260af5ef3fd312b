//! The public half of a key.

use std::sync::Arc;

use crate::{
    Error, Parameters, Scheme,
    bytes::to_bytes,
    ids::KeyId,
    paillier::PaillierModulus,
    schemes::{PublicEncryption, SumScheme, rlwe::parameters::RlweParameters},
};

/// Parameters and key id, and the material that encrypts, if anything public does: all that an aggregator
/// holds.
#[derive(Clone)]
pub struct PublicKey {
    pub(super) parameters: Parameters,
    pub(super) id: KeyId,
    pub(super) material: PublicMaterial,
    /// The name of the sum key, if there is one that no seed tells.
    pub(super) sum_key: Option<[u8; 16]>,
}

/// The public material of each family of schemes.
#[derive(Clone)]
pub(super) enum PublicMaterial {
    Paillier(PaillierModulus),
    CkksSum(Arc<RlweParameters>),
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

    /// Returns whether the public half encrypts: clients then need a key of their own, and not the secret one.
    #[must_use]
    pub fn encrypts(&self) -> bool {
        self.encryption().is_ok()
    }

    /// Refuses a key without a sum key: nothing would show that a sum is right.
    ///
    /// # Errors
    /// [`Error::NoSumKey`].
    pub fn check_sums(&self) -> Result<(), Error> {
        match self.material {
            // It comes from the seed, and the key id from that too.
            PublicMaterial::CkksSum(_) => Ok(()),
            _ => self.sum_key.map(|_| ()).ok_or(Error::NoSumKey),
        }
    }

    /// Refuses a number that is no client's.
    ///
    /// # Errors
    /// [`Error::Number`].
    pub(crate) fn check_number(&self, number: u16) -> Result<(), Error> {
        let clients = self.parameters.clients();
        if u32::from(number) < clients { Ok(()) } else { Err(Error::Number { number, clients }) }
    }

    /// Returns what encrypts.
    ///
    /// # Errors
    /// [`Error::KeyKind`], if only holders of the secret key do.
    pub(crate) fn encryption(&self) -> Result<&dyn PublicEncryption, Error> {
        match &self.material {
            PublicMaterial::Paillier(modulus) => Ok(modulus),
            PublicMaterial::CkksSum(_) => Err(Error::KeyKind {
                found: "ckks-sum",
                needed: "encrypting without the secret needs one whose public half encrypts: make one, or use \
                         the secret key",
            }),
            #[cfg(test)]
            PublicMaterial::Plain(plain) => Ok(plain),
        }
    }

    /// Returns what sums updates of `values` values.
    pub(crate) fn sums(&self, values: usize) -> &dyn SumScheme {
        match &self.material {
            PublicMaterial::Paillier(modulus) => modulus,
            PublicMaterial::CkksSum(small) => {
                &**self.parameters.of_values(values).rlwe().unwrap_or(small)
            }
            #[cfg(test)]
            PublicMaterial::Plain(plain) => plain,
        }
    }

    /// Names a key by its modulus.
    pub(super) fn of_modulus(
        parameters: Parameters,
        modulus: PaillierModulus,
        sum_key: Option<[u8; 16]>,
    ) -> Self {
        let mut material = to_bytes(modulus.n().words());
        material.extend(sum_key.into_iter().flatten());
        let id = KeyId::derive("ciphergram 2026 paillier key id", &material);
        Self { parameters, id, material: PublicMaterial::Paillier(modulus), sum_key }
    }

    /// Names a key without public material by its secret seed.
    pub(super) fn of_seed(
        parameters: Parameters,
        rlwe: &Arc<RlweParameters>,
        seed: &[u8; 32],
    ) -> Self {
        let id = KeyId::derive("ciphergram 2026 ckks-sum key id", seed);
        Self { parameters, id, material: PublicMaterial::CkksSum(rlwe.clone()), sum_key: None }
    }

    /// Makes the key of a scheme under which nobody has a secret one: it is its parameters, and all of these have it.
    ///
    /// # Errors
    /// [`Error::KeyKind`]: the parameters are of another scheme.
    pub fn of_parameters(parameters: Parameters) -> Result<Self, Error> {
        let rlwe = parameters.rlwe().filter(|_| parameters.scheme() == Scheme::CkksSumThreshold);
        let Some(rlwe) = rlwe.cloned() else {
            let needed = "only one of ckks-sum-threshold has no secret half";
            return Err(Error::KeyKind { found: "secret", needed });
        };
        let id = KeyId::derive("ciphergram 2026 ckks-sum-threshold key id", &parameters.id());
        Ok(Self { parameters, id, material: PublicMaterial::CkksSum(rlwe), sum_key: None })
    }

    /// Names a key of integers in the clear.
    #[cfg(test)]
    pub(super) fn of_nothing(parameters: Parameters) -> Self {
        let id = KeyId::derive("plain", &parameters.id());
        let material = PublicMaterial::Plain(crate::schemes::plain::Plain);
        Self { parameters, id, material, sum_key: Some([0; 16]) }
    }
}
