//! Additive homomorphic encryption of gradients.
//!
//! A client's tensors are clipped to shared ranges, quantised, packed into fields with headroom for
//! the declared number of contributors, and encrypted chunk by chunk. Chunks of many clients add up
//! without a key. A holder of the secret key opens the sum: exact integers, divided by the exact
//! weight of those who contributed.
//!
//! # Layers
//!
//! | module | content |
//! |---|---|
//! | [`params`] | from (scheme, clients, bits) to a checked [`Parameters`]: sizes, headroom, geometry |
//! | [`tensors`], [`codec`] | tensors from files; ranges, quantisation, packing, decoding of sums |
//! | [`dp`] | discrete Gaussian noise that clients add together, and its accounting |
//! | `schemes` | the trait of a scheme of sums; [`paillier`] and [`rlwe`], as programs for an engine |
//! | [`ckks`] | the levelled scheme: vectors to compute with while they are encrypted |
//! | [`private_ranges`] | ranges that clients agree on without showing theirs |
//! | [`keys`] | keys and key files |
//! | [`job`] | the limits that clients agree on, and the terms of a round within them |
//! | [`threshold`] | sums that openers open together, under keys that nobody holds |
//! | `tag` | tags in heads of chunks, which show that a sum is what its contributors sealed |
//! | `ledger` | what a key sealed and opened, on disk |
//! | [`formats`] | everything that travels: the common frame, files, and the agreement before a round |
//! | [`update`] | an update to a contribution, contributions to a sum, a sum to tensors: whole and chunk by chunk |
//! | [`Member`] | a client of a job: proposes, seals and opens |
//! | [`vectors`] | tensors under [`ckks`], and jobs on them: sums, screening, predictions |
//! | [`versions`] | versions of files |
//!
//! # Conventions
//!
//! Errors are one enum, [`Error`], that names what and where. Whatever comes from outside is checked
//! for form, length, range, parameter set and key before it is used. Secret types are zeroized on
//! drop and have no `Debug`. Every contribution draws its seed, masks and noise from the operating
//! system.
//!
//! # Non-goals
//!
//! No SIMD, no device code, no socket. No integrity against holders of the secret key.

pub(crate) mod bytes;
pub mod ckks;
pub mod codec;
mod contributors;
pub mod dp;
pub mod error;
mod files;
pub mod formats;
mod ids;
pub mod job;
pub mod keys;
mod ledger;
mod member;
pub mod params;
pub mod private_ranges;
pub mod random;
mod schemes;
mod spread;
mod tag;
pub mod tensors;
pub mod threshold;
pub mod update;
pub mod vectors;
pub mod versions;

pub use codec::{Agreement, Quantised};
pub use contributors::{Contributor, ContributorSet};
pub use error::Error;
pub use formats::{
    cohorts::Cohort,
    contribution::Contribution,
    exchange, frame,
    private_ranges::{AgreedRanges, RangesProposal},
    sum::Sum,
};
pub use ids::{JobId, KeyId, Seed, Statement};
pub use job::{Job, Limits, Terms};
pub use keys::{
    AnyKey, ClientKey, IdentityKey, KeyFile, KeyRef, LevelledKey, PublicKey, SecretKey,
};
pub use ledger::Ledger;
pub use member::{Member, MemberFiles};
pub use params::{Parameters, Scheme};
pub use schemes::{Operation, paillier, rlwe};
pub use tensors::{Dtype, Integers, Tensor, TensorSpec, Update};
pub use update::{
    Accumulator, Destination, OpenedSum, SealPermit, Sealer, Summing, aggregate, open_to,
};
