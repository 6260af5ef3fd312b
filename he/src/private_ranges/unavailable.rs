//! The evaluation key where this is built without `tfhe`: there is none.

use super::{EncryptedRanges, Proposal, RangesSecret};
use crate::{Error, KeyId, PublicKey};

/// The key that an aggregator finds ranks with, which takes the feature `tfhe`.
pub enum RangesEvaluationKey {}

impl RangesEvaluationKey {
    /// Refuses to make one.
    ///
    /// # Errors
    /// [`Error::WithoutTfhe`].
    pub fn generate(_secret: &RangesSecret, _key: &PublicKey) -> Result<Vec<u8>, Error> {
        Err(Error::WithoutTfhe)
    }

    /// Refuses to open one.
    ///
    /// # Errors
    /// [`Error::WithoutTfhe`].
    pub fn from_bytes(_bytes: &[u8], _key: &PublicKey) -> Result<Self, Error> {
        Err(Error::WithoutTfhe)
    }

    /// Returns the name of the secret that it belongs to.
    #[must_use]
    pub fn id(&self) -> KeyId {
        match *self {}
    }

    /// Finds for each row that is proposed that of its rank among all.
    #[must_use]
    pub fn find(
        &self,
        _proposals: &[&Proposal],
        _ranks: &[usize],
        _levels: u8,
        _progress: &(dyn Fn(u32) + Sync),
    ) -> EncryptedRanges {
        match *self {}
    }
}
