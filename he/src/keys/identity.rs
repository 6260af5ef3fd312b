//! The key of a member of jobs with openers.

use std::sync::Arc;

use super::PublicKey;
use crate::{Error, threshold::Identity};

/// An identity, and the public key of the jobs that it is for.
pub struct IdentityKey {
    /// What all parties to such jobs have.
    pub public: PublicKey,
    /// The identity.
    pub identity: Arc<Identity>,
}

impl IdentityKey {
    /// Draws an identity.
    ///
    /// # Errors
    /// No randomness.
    pub fn generate(public: PublicKey) -> Result<Self, Error> {
        Ok(Self { public, identity: Arc::new(Identity::generate()?) })
    }
}
