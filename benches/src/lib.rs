//! One-step programs, and operands for them, that all benches share.
//!
//! Ids read `operation/engine/size`. `cargo bench -p ciphergram-benches` runs them all.

pub mod memcheck;
pub mod timing;
pub mod transport;

use std::sync::Arc;

use ciphergram_accel::{
    Builder, Modulus, ModulusError, Program, Ring,
    program::{Residue, Var},
};

/// Returns an odd modulus of exactly `bits` bits, `bits` a multiple of 64: all ones.
///
/// # Panics
/// Never: all ones is odd.
#[must_use]
pub fn modulus(bits: u32) -> Arc<Modulus> {
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
pub fn ring() -> Arc<Ring> {
    Arc::new(Ring::largest(50, 4096, 2))
}

/// Builds a program of residues `x` with one output.
#[must_use]
pub fn residue_program(
    m: &Arc<Modulus>,
    step: impl FnOnce(&mut Builder, Var<Residue>) -> Var<Residue>,
) -> Program {
    let mut b = Builder::new("bench");
    let x = b.residues("x", m);
    let y = step(&mut b, x);
    b.output(y);
    b.build()
}
