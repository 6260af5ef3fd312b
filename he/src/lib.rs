//! Additive homomorphic encryption of gradients.
//!
//! A client's tensors are clipped to shared ranges, quantised, packed into fields with headroom for
//! the declared number of contributors, and encrypted chunk by chunk. Chunks of many clients add up
//! without a key. Whoever holds the secret key opens the sum: exact integers, divided by the exact
//! weight of those who contributed.
//!
//! # Layers
//!
//! | module | what it holds |
//! |---|---|
//! | [`params`] | from (scheme, clients, bits) to a checked [`Parameters`]: sizes, headroom, geometry |
//! | [`tensors`], [`codec`] | tensors from files; ranges, quantisation, what a sum decodes to |
//! | [`paillier`], [`ckks_sum`] | the two schemes, as programs for an engine |
//! | [`mod_arith`] | batched modular products and powers |
//! | [`keys`] | key files |
//! | [`seal`], [`aggregate`], [`open`] | a contribution chunk by chunk; sums without a key; decryption |
//! | [`frame`], [`files`], [`exchange`] | what travels: the common header, files, and the agreement before a round |
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
//! No SIMD, no device code, no socket. No integrity against whoever holds the secret key.

pub mod aggregate;
pub(crate) mod bytes;
pub mod ckks_sum;
pub mod codec;
pub mod error;
pub mod exchange;
pub mod files;
pub mod frame;
pub mod keys;
pub mod mod_arith;
pub mod open;
pub mod paillier;
pub mod params;
pub mod random;
mod range;
pub(crate) mod rounding;
pub mod seal;
mod spread;
pub mod tensors;

pub use aggregate::Accumulator;
pub use codec::{Agreement, Quantised};
pub use error::Error;
pub use files::{Contribution, Sum};
pub use keys::{PublicKey, SecretKey};
pub use mod_arith::ModArith;
pub use open::OpenedSum;
pub use params::{Parameters, Scheme};
pub use seal::Sealer;
pub use tensors::{Dtype, Tensor, TensorSpec, Update};
