//! The key of one client, where clients do not share the secret one.

use super::{PublicKey, SecretKey};
use crate::{Error, private_ranges::RangesSecret, tag::TagKey};

/// A key that encrypts the updates of one client, and opens nothing: the public half of a key, the client's
/// number, and the part of the sum key that its tags are made with.
pub struct ClientKey {
    pub(super) public: PublicKey,
    pub(super) tag: TagKey,
    pub(super) ranges: Option<RangesSecret>,
}

impl ClientKey {
    /// Returns the public half.
    #[must_use]
    pub fn public(&self) -> &PublicKey {
        &self.public
    }

    /// Returns the client's number.
    #[must_use]
    pub fn number(&self) -> u16 {
        self.tag.number
    }
}

impl SecretKey {
    /// Derives the key of client `number`.
    ///
    /// # Errors
    /// The key has no sum key, admits no such client, or belongs to a scheme whose public half does not encrypt.
    pub fn client_key(&self, number: u16) -> Result<ClientKey, Error> {
        self.public.encryption()?;
        let (public, ranges) = (self.public.clone(), self.ranges.clone());
        Ok(ClientKey { public, tag: self.tag_key(number)?, ranges })
    }

    /// Derives what client `number` tags with.
    ///
    /// # Errors
    /// The key has no sum key, or admits no such client.
    pub(super) fn tag_key(&self, number: u16) -> Result<TagKey, Error> {
        self.public.check_number(number)?;
        Ok(self.sum_key()?.tag_key(number))
    }
}
