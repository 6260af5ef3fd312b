//! Keys and their files.
//!
//! A Paillier key file is JSON in the form that python-paillier's `pheutil` reads (`kty` DAJ, `alg`
//! PAI-GN1) with one more member, `ciphergram`, for the parameters. A `ckks-sum` key file has the
//! same frame; its public half holds no key material, only the parameters and the key id, which is
//! all that an aggregator needs; the secret half is one seed, from which everything else is made again.
//!
//! Updates are sealed and sums opened under a *sum key* besides (`tag`): derived from the seed
//! under `ckks-sum`, drawn and kept in the secret file otherwise, where each client gets a file with its own
//! part of it. Paillier keys without one, of an earlier version or of `pheutil`, still do what one does with raw
//! ciphertexts.
//!
//! A secret of [private ranges](crate::private_ranges), of clients that agree on some, is in the same files.

mod any;
mod client;
mod files;
mod identity;
mod json;
mod levelled;
mod public;
mod secret;

pub use crate::{
    files::{beside, permission_warning, write_new},
    ids::KeyId,
};
pub use any::{AnyKey, KeyFile};
pub use client::ClientKey;
pub use files::{RANGES_KEY, draw_members, write_folder, write_identities};
pub use identity::IdentityKey;
pub use levelled::LevelledKey;
pub use public::PublicKey;
pub use secret::SecretKey;

use crate::{
    Error, codec::OpenedRound, private_ranges::RangesSecret, tag::TagKey, threshold::MemberKey,
};

/// What those need who open sums.
const OPENS: &str = "this needs the secret key, keys/secret.json";

/// A key as a client contributes with it, and the number that it contributes as.
#[derive(Clone, Copy)]
pub enum KeyRef<'a> {
    /// A client's own key. Sums are kept for the holders of the secret one.
    Client(&'a ClientKey),
    /// The secret key, which also opens sums, and the client's number.
    Secret(&'a SecretKey, u16),
    /// The key of a client of a job with openers.
    Member(&'a MemberKey),
}

impl<'a> KeyRef<'a> {
    /// Returns the public half.
    #[must_use]
    pub fn public(self) -> &'a PublicKey {
        match self {
            Self::Client(key) => key.public(),
            Self::Secret(key, _) => key.public(),
            Self::Member(key) => key.public(),
        }
    }

    /// Returns the number that it contributes as.
    #[must_use]
    pub fn number(self) -> u16 {
        match self {
            Self::Client(key) => key.number(),
            Self::Secret(_, number) => number,
            Self::Member(key) => key.number(),
        }
    }

    /// Returns the secret of private ranges beside it, if there is one.
    #[must_use]
    pub fn ranges_secret(self) -> Option<&'a RangesSecret> {
        match self {
            Self::Client(key) => key.ranges.as_ref(),
            Self::Secret(key, _) => key.ranges.as_ref(),
            Self::Member(_) => None,
        }
    }

    /// Returns what this client says of a round that it opened to the sum of this digest.
    ///
    /// # Errors
    /// The key has no sum key, or admits no such client.
    pub fn opened_round(self, round: u64, digest: &[u8; 32]) -> Result<OpenedRound, Error> {
        Ok(self.tag_key()?.name_sum(round, digest))
    }

    /// Returns what contributions are tagged with.
    ///
    /// # Errors
    /// The key has no sum key, or admits no such client.
    pub(crate) fn tag_key(self) -> Result<TagKey, Error> {
        match self {
            Self::Client(key) => Ok(key.tag.clone()),
            Self::Secret(key, number) => key.tag_key(number),
            Self::Member(key) => Ok(key.tag_key()),
        }
    }
}

impl<'a> From<&'a MemberKey> for KeyRef<'a> {
    fn from(key: &'a MemberKey) -> Self {
        Self::Member(key)
    }
}

impl<'a> From<&'a ClientKey> for KeyRef<'a> {
    fn from(key: &'a ClientKey) -> Self {
        Self::Client(key)
    }
}
