//! Keys of any kind.

use super::{ClientKey, IdentityKey, KeyRef, LevelledKey, OPENS, PublicKey, SecretKey};
use crate::{Error, private_ranges::RangesSecret};

/// A key file of any scheme.
pub enum KeyFile {
    /// A key of sums.
    Sums(AnyKey),
    /// A key of the levelled scheme, and a warning if it is secret and others can read its file.
    Levelled(LevelledKey, Option<String>),
}

impl KeyFile {
    /// Returns the warning that others can read the file, if they can and must not.
    #[must_use]
    pub fn warning(&self) -> Option<&str> {
        match self {
            Self::Sums(key) => key.warning(),
            Self::Levelled(_, warning) => warning.as_deref(),
        }
    }

    /// Returns the key, of sums.
    pub(super) fn sums(self) -> Result<AnyKey, Error> {
        match self {
            Self::Sums(key) => Ok(key),
            Self::Levelled(..) => Err(Error::KeyKind {
                found: "levelled",
                needed: "it is for vectors: rounds, jobs and proven sums need one of sums",
            }),
        }
    }
}

/// A key of sums of any kind.
pub enum AnyKey {
    /// A public key.
    Public(PublicKey),
    /// A client's key, and a warning if others can read its file.
    Client(Box<ClientKey>, Option<String>),
    /// A secret key, and a warning if others can read its file.
    Secret(Box<SecretKey>, Option<String>),
    /// An identity of jobs with openers, and a warning if others can read its file.
    Identity(Box<IdentityKey>, Option<String>),
}

impl AnyKey {
    /// Returns the public half.
    #[must_use]
    pub fn public(&self) -> &PublicKey {
        match self {
            Self::Public(key) => key,
            Self::Client(key, _) => key.public(),
            Self::Secret(key, _) => key.public(),
            Self::Identity(key, _) => &key.public,
        }
    }

    /// Returns the secret of private ranges beside it, if there is one.
    #[must_use]
    pub fn ranges_secret(&self) -> Option<&RangesSecret> {
        match self {
            Self::Public(_) | Self::Identity(..) => None,
            Self::Client(key, _) => KeyRef::Client(key).ranges_secret(),
            Self::Secret(key, _) => key.ranges_secret(),
        }
    }

    /// Returns it as a client contributes with it; `number` says as which one, and may be left out where the
    /// key does.
    ///
    /// # Errors
    /// A public key; a client's of another number; a secret key and no number.
    pub fn as_client(&self, number: Option<u16>) -> Result<KeyRef<'_>, Error> {
        match (self, number) {
            (Self::Public(_), _) => Err(Error::KeyKind {
                found: "public",
                needed: "it sums; clients encrypt with a key of their own, keys/clients/NUMBER.json, or \
                         under ckks-sum with keys/secret.json",
            }),
            (Self::Client(key, _), Some(asked)) if asked != key.number() => {
                Err(Error::AnotherClient { found: key.number(), asked })
            }
            (Self::Client(key, _), _) => Ok(KeyRef::Client(key)),
            (Self::Secret(key, _), Some(number)) => Ok(key.as_client(number)),
            (Self::Secret(..), None) => Err(Error::NoNumber),
            (Self::Identity(..), _) => Err(self.not("which client it is depends on a job")),
        }
    }

    /// Returns the secret key.
    ///
    /// # Errors
    /// [`Error::KeyKind`].
    pub fn secret(&self) -> Result<&SecretKey, Error> {
        match self {
            Self::Secret(key, _) => Ok(key),
            other => Err(other.not(OPENS)),
        }
    }

    /// Returns the warning that others can read its file, if they can and must not.
    #[must_use]
    pub fn warning(&self) -> Option<&str> {
        match self {
            Self::Public(_) => None,
            Self::Client(_, warning) | Self::Secret(_, warning) | Self::Identity(_, warning) => {
                warning.as_deref()
            }
        }
    }

    /// Takes the key as an aggregator holds it.
    ///
    /// # Errors
    /// [`Error::KeyKind`]: it is more than public.
    pub fn into_public(self) -> Result<PublicKey, Error> {
        match self {
            Self::Public(key) => Ok(key),
            other => {
                Err(other
                    .not("an aggregator must hold public material only: give it keys/public.json"))
            }
        }
    }

    /// Takes the key as those who open sums hold it.
    ///
    /// # Errors
    /// [`Error::KeyKind`].
    pub fn into_secret(self) -> Result<SecretKey, Error> {
        match self {
            Self::Secret(key, _) => Ok(*key),
            other => Err(other.not(OPENS)),
        }
    }

    fn not(&self, needed: &'static str) -> Error {
        let found = match self {
            Self::Public(_) => "public",
            Self::Client(..) => "client's",
            Self::Secret(..) => "secret",
            Self::Identity(..) => "member's",
        };
        Error::KeyKind { found, needed }
    }
}
