//! Programs and the engines that run them.
//!
//! Every operation of additive homomorphic encryption is a short dataflow of modular arithmetic:
//! products and powers of big residues (Paillier), transforms and sums of RNS polynomials (CKKS).
//! Here such a dataflow is a value, a [`Program`], and whatever can run it is an [`Engine`].
//!
//! # Layers
//!
//! | module | what it holds |
//! |---|---|
//! | [`modulus`], [`ring`] | the two kinds of arithmetic: one odd modulus; a ring of RNS polynomials |
//! | [`residues`], [`polys`], [`beats`], [`exponents`] | batches of numbers in plain host layout |
//! | [`program`] | typed straight-line programs, their builder and their text form |
//! | [`engine`] | the trait of engines, that of measuring, operands and errors |
//! | [`reference`](mod@reference) | the oracle: slow and obvious |
//! | [`cpu`] | the CPU engine: every core, and the widest multiplier that is there |
//! | `gpu` | with the feature `gpu`, the GPU engine |
//! | [`fpga`] | the FPGA engine |
//! | [`scheduler`] | an engine over the CPU and a device, which share out batches |
//! | [`conformance`](mod@conformance) | the suite that every engine must pass, instantiated with one macro line |
//!
//! # Conventions
//!
//! All data are little-endian `u64` words, word 0 least significant. A batch is item-major. Values
//! are always fully reduced between steps. Secret operands and constants take constant-time paths
//! on every engine but the oracle, and scratch memory of a program that has any is zeroized after
//! the run.
//!
//! # Non-goals
//!
//! This crate knows no key, no plaintext encoding, no scheme and no socket.

pub mod beats;
pub mod choice;
pub mod conformance;
pub mod cpu;
mod derived;
mod device;
pub mod dot;
pub mod engine;
pub mod exponents;
pub mod fpga;
#[cfg(feature = "gpu")]
pub mod gpu;
mod interpret;
pub mod modulus;
pub mod polys;
pub mod program;
pub mod random;
pub mod reference;
pub mod residues;
pub mod ring;
pub mod scheduler;
mod streams;
mod words;

pub use choice::Choice;
pub use cpu::CpuEngine;
pub use dot::Dot;
pub use engine::{Cycles, Engine, Info, Measure, Operand, RunError};
pub use exponents::{Exponents, Public, Secrecy, Secret};
pub use fpga::FpgaEngine;
#[cfg(feature = "gpu")]
pub use gpu::GpuEngine;
pub use interpret::check_operands;
pub use modulus::{Modulus, ModulusError};
pub use polys::{Beats, Polys};
pub use program::{Builder, Program};
pub use reference::ReferenceEngine;
pub use residues::Residues;
pub use ring::{Ring, RingError};
pub use scheduler::Scheduler;

use std::sync::Arc;

/// An engine that is present on this machine.
pub struct Present {
    /// The engine.
    pub engine: Arc<dyn Engine>,
    /// The same engine, if it counts what it multiplies.
    pub measure: Option<Arc<dyn Measure>>,
}

impl Present {
    /// Returns an engine that counts what it multiplies.
    fn measured(engine: Arc<dyn Measure>) -> Self {
        Self { engine: engine.clone(), measure: Some(engine) }
    }
}

/// Returns every engine present on this machine: the CPU's first, then those of devices that are
/// there, last the oracle. Where a device is absent its engine's constructor says why.
#[must_use]
pub fn engines() -> Vec<Present> {
    let cpu = Present::measured(Arc::new(CpuEngine::new()));
    #[cfg(feature = "gpu")]
    let gpu = GpuEngine::new().ok().map(|gpu| Present::measured(Arc::new(gpu)));
    #[cfg(not(feature = "gpu"))]
    let gpu = None;
    let card = FpgaEngine::new().ok().map(|card| Present::measured(Arc::new(card)));
    let oracle = Present { engine: Arc::new(ReferenceEngine), measure: None };
    std::iter::once(cpu).chain(gpu).chain(card).chain([oracle]).collect()
}
