//! What is measured. `README.md` says how, and what was found.
//!
//! - [`cases`]: operations on engines, which `ciphergram bench` prints;
//! - [`timing`], [`memcheck`]: whether time, jumps or addresses depend on secrets;
//! - [`transport`]: datagrams on loopback.
//!
//! Beside them, in Python, `peers/` holds rival libraries and ours against each other.

pub mod cases;
pub mod memcheck;
pub mod timing;
pub mod transport;

use std::sync::Arc;

use ciphergram_accel::{Modulus, ModulusError, Ring};

/// An error that ends a run; nothing is measured then.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Returns an odd modulus of exactly `bits` bits, `bits` a multiple of 64: all ones.
///
/// # Panics
/// Never: all ones is odd.
#[must_use]
fn modulus(bits: u32) -> Arc<Modulus> {
    made(Modulus::new("m", &vec![u64::MAX; bits as usize / 64]))
}

/// Returns a modulus that is right by how it was chosen.
///
/// # Panics
/// If it is not.
fn made(modulus: Result<Modulus, ModulusError>) -> Arc<Modulus> {
    Arc::new(modulus.unwrap_or_else(|why| panic!("a modulus: {why}")))
}

/// Returns the ring of `ckks-sum`.
///
/// # Panics
/// Never: the primes are chosen for the ring.
#[must_use]
fn ring() -> Arc<Ring> {
    Arc::new(Ring::largest(50, 4096, 2))
}
