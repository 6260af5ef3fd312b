//! Ranges that clients agree on without showing theirs: for each tensor the K-th largest of all.
//!
//! A client writes the level of its range in unary, one bit for each level that the job admits, and encrypts the bits
//! under learning with errors ([`Proposal`]). The aggregator adds the bits of all clients, and for each level one
//! programmable bootstrap finds whether as many as the [rank](Rank) have it; added, these are the level that is agreed
//! ([`EncryptedRanges`]), which the clients open. K − 1 clients that claim more than they have cannot raise a
//! range, and nobody sees that of a single client. What an aggregator could do, and a client that encrypts nonsense, is
//! in SECURITY.md.
//!
//! What clients agree on comes in *rows* of levels: one for the range of each tensor and, if the job also agrees on a
//! norm, one for the L2 norm of the update, the last.
//!
//! The clients share a secret ([`RangesSecret`]), beside which the aggregator holds an evaluation key. Bootstraps, and
//! the making of that key, are those of crate `tfhe`: they need the feature of that name, and nothing else does.

mod answer;
#[cfg(any(test, feature = "tfhe"))]
mod circuit;
#[cfg(feature = "tfhe")]
mod evaluation;
mod levels;
mod lwe;
mod proposal;
mod rank;
mod secret;
#[cfg(not(feature = "tfhe"))]
mod unavailable;

pub use answer::EncryptedRanges;
#[cfg(feature = "tfhe")]
pub use evaluation::RangesEvaluationKey;
pub(crate) use levels::Levels;
pub use levels::MAX_LEVELS;
pub use proposal::Proposal;
pub use rank::Rank;
pub use secret::RangesSecret;
#[cfg(not(feature = "tfhe"))]
pub use unavailable::RangesEvaluationKey;

/// Whether this program has the bootstraps of the aggregator.
pub const HAS_BOOTSTRAPS: bool = cfg!(feature = "tfhe");
