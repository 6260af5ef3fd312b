//! Keys and their files.
//!
//! A Paillier key file is JSON in the form that python-paillier's `pheutil` reads (`kty` DAJ, `alg`
//! PAI-GN1) with one more member, `ciphergram`, for the parameters. A `ckks-sum` key file has the
//! same frame; its public half holds no key material, only the parameters and the key id, which is
//! all that an aggregator needs. That of `ckks-sum-public` holds the seed of `a` and `b` in beats, both
//! in base64url; the secret half of either is one seed, from which everything else is made again.

mod files;
mod json;
mod public;
mod secret;

pub use crate::ids::KeyId;
pub use files::AnyKey;
pub use public::PublicKey;
pub use secret::SecretKey;

/// A key of either kind, as clients use it: what it encrypts with, and whether it opens sums.
#[derive(Clone, Copy)]
pub enum KeyRef<'a> {
    /// Encrypts, if the scheme's public key does. Sums are kept for the holders of the secret key.
    Public(&'a PublicKey),
    /// Encrypts and opens sums.
    Secret(&'a SecretKey),
}

impl<'a> KeyRef<'a> {
    /// Returns the public half.
    #[must_use]
    pub fn public(self) -> &'a PublicKey {
        match self {
            Self::Public(key) => key,
            Self::Secret(key) => key.public(),
        }
    }

    /// Refuses a key that only sums.
    ///
    /// # Errors
    /// [`Error::KeyKind`](crate::Error::KeyKind).
    pub fn check_encrypts(self) -> Result<(), crate::Error> {
        match self {
            Self::Public(key) => key.check_encrypts(),
            Self::Secret(_) => Ok(()),
        }
    }
}

impl<'a> From<&'a PublicKey> for KeyRef<'a> {
    fn from(key: &'a PublicKey) -> Self {
        Self::Public(key)
    }
}

impl<'a> From<&'a SecretKey> for KeyRef<'a> {
    fn from(key: &'a SecretKey) -> Self {
        Self::Secret(key)
    }
}

impl<'a> From<&'a AnyKey> for KeyRef<'a> {
    fn from(key: &'a AnyKey) -> Self {
        match key {
            AnyKey::Public(key) => Self::Public(key),
            AnyKey::Secret(key, _) => Self::Secret(key),
        }
    }
}
