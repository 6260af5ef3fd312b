//! One-step programs, and operands for them, that all benches share.
//!
//! Ids read `operation/engine/size`. `cargo bench -p ciphergram-benches` runs them all.

pub mod memcheck;
pub mod timing;
pub mod transport;

use std::sync::Arc;

use ciphergram_accel::{
    Builder, Modulus, Program, Ring,
    program::{Residue, Var},
    ring::largest_primes,
};

/// Returns an odd modulus of exactly `bits` bits, `bits` a multiple of 64: all ones.
///
/// # Panics
/// Never: all ones is odd.
#[must_use]
pub fn modulus(bits: u32) -> Arc<Modulus> {
    match Modulus::new("m", &vec![u64::MAX; bits as usize / 64]) {
        Ok(m) => Arc::new(m),
        Err(why) => unreachable!("{why}"),
    }
}

/// Returns the ring of `ckks-sum`.
///
/// # Panics
/// Never: the primes are chosen for the ring.
#[must_use]
pub fn ring() -> Arc<Ring> {
    match Ring::new(4096, &largest_primes(50, 4096, 2)) {
        Ok(ring) => Arc::new(ring),
        Err(why) => unreachable!("{why}"),
    }
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
