//! The GPU engine: programs as compute kernels, on any adapter that wgpu knows.
//!
//! A whole program runs on the device over parts of a batch, some of which are on their way at
//! once: operands go up, outputs come down, nothing else crosses. Its kernels are in `shaders/`,
//! one file each, over one of two [`Prelude`]s; their map and how they spread numbers over threads
//! are there.
//!
//! An adapter is optional: where none is, [`GpuEngine::new`] says so with an error, and programs
//! run on another engine. The environment variable `CIPHERGRAM_GPU` chooses among several, by index
//! or by a part of the name; `none` leaves all alone.
//!
//! Steps over secrets take no branch and no address that depends on them. Device memory of a
//! program with secrets is overwritten after the run, and what was staged for it, constants when
//! what they belong to is gone.

mod constants;
mod device;
mod execute;
mod layout;
mod limit;
mod memory;
mod multiplies;
mod polys;
mod pool;
mod record;
mod residues;
mod run;
mod shaders;

use std::{sync::Arc, time::Duration};

use crate::{
    derived::Derived,
    engine::{DeviceFault, Engine, Info, Measure, Operand, RunError, check_support},
    interpret,
    modulus::Modulus,
    program::{Crt, FixedBase, Program},
    ring::Ring,
};
use constants::{Constants, GpuTable};
use device::GpuDevice;
pub use device::GpuError;
use polys::RingConstants;
pub use shaders::Prelude;

/// Items that keep the largest cards busy: some waves of the numbers that their registers hold at
/// once, ten thousand of 4096 bits or so.
const FULL_BATCH: usize = 1 << 16;

/// The GPU engine. See the [module](self) documentation.
///
/// It keeps on the device what it derives from long-lived constants for as long as these live.
pub struct GpuEngine {
    device: Arc<GpuDevice>,
    moduli: Derived<Modulus, Constants>,
    /// Of pairs, by their square.
    squares: Derived<Modulus, Constants>,
    linears: Derived<Modulus, Constants>,
    inverses: Derived<Modulus, Constants>,
    recombinations: Derived<Crt, [Constants; 2]>,
    tables: Derived<FixedBase, GpuTable>,
    rings: Derived<Ring, RingConstants>,
}

impl GpuEngine {
    /// Opens the adapter that `CIPHERGRAM_GPU` names, else the fastest kind there is.
    ///
    /// # Errors
    /// See [`GpuError`].
    pub fn new() -> Result<Self, GpuError> {
        Self::open(false)
    }

    /// Opens the same adapter without integers of 64 bits even where it has them: for tests.
    ///
    /// # Errors
    /// See [`GpuError`].
    pub fn split() -> Result<Self, GpuError> {
        Self::open(true)
    }

    fn open(split: bool) -> Result<Self, GpuError> {
        Ok(Self {
            device: Arc::new(GpuDevice::open(split)?),
            moduli: Derived::default(),
            squares: Derived::default(),
            linears: Derived::default(),
            inverses: Derived::default(),
            recombinations: Derived::default(),
            tables: Derived::default(),
            rings: Derived::default(),
        })
    }

    /// Cuts batches such that the parts at once, with their staging buffers, take about half of
    /// `bytes`, tables of constants aside; but one item at least. Between runs it keeps at most
    /// three quarters.
    #[must_use]
    pub fn with_memory(self, bytes: u64) -> Self {
        self.device.set_memory_bytes(bytes);
        self
    }

    /// Takes the device for one that does not answer once a part of a batch took so long, in place
    /// of five minutes. It goes on with the work that it has, and later runs wait for that.
    #[must_use]
    pub fn with_patience(self, patience: Duration) -> Self {
        self.device.set_patience(patience);
        self
    }

    /// Returns the prelude of its kernels: how the adapter multiplies.
    #[must_use]
    pub fn prelude(&self) -> Prelude {
        self.device.prelude
    }

    fn modulus(&self, m: &Arc<Modulus>) -> Result<Arc<Constants>, DeviceFault> {
        self.moduli.try_get(m, |m| Constants::of_modulus(&self.device, m))
    }

    /// Returns the constants of chains of products: modulo a square they are of pairs.
    fn chains(&self, m: &Arc<Modulus>) -> Result<Arc<Constants>, DeviceFault> {
        match m.root() {
            None => self.modulus(m),
            Some(root) => self.squares.try_get(m, |m| Constants::of_pairs(&self.device, m, root)),
        }
    }

    /// Returns the constants of `a · n + b` below n².
    fn linear(&self, n: &Arc<Modulus>) -> Result<Arc<Constants>, DeviceFault> {
        self.linears.try_get(n, |n| Constants::of_linear(&self.device, n, 2 * n.len_words()))
    }

    /// Returns the constants of inverses.
    fn inverses(&self, m: &Arc<Modulus>) -> Result<Arc<Constants>, DeviceFault> {
        self.inverses.try_get(m, |m| Constants::of_inverses(&self.device, m))
    }

    /// Returns the constants of the digit of q, and of putting the digits together.
    fn crt(&self, crt: &Arc<Crt>) -> Result<Arc<[Constants; 2]>, DeviceFault> {
        self.recombinations.try_get(crt, |crt| {
            let words = crt.p().len_words() + crt.q().len_words();
            let digit = Constants::of_crt(&self.device, crt)?;
            Ok([digit, Constants::of_linear(&self.device, crt.p(), words)?])
        })
    }

    fn table(&self, base: &Arc<FixedBase>) -> Result<Arc<GpuTable>, DeviceFault> {
        let m = self.chains(base.modulus())?;
        self.tables.try_get(base, |base| GpuTable::new(&self.device, &m, base))
    }

    fn ring(&self, ring: &Arc<Ring>) -> Result<Arc<RingConstants>, DeviceFault> {
        self.rings.try_get(ring, |ring| RingConstants::new(&self.device, ring))
    }

    /// Lets go of what is kept for constants that are gone.
    fn sweep(&self) {
        self.moduli.sweep();
        self.squares.sweep();
        self.linears.sweep();
        self.inverses.sweep();
        self.recombinations.sweep();
        self.tables.sweep();
        self.rings.sweep();
    }
}

impl Engine for GpuEngine {
    fn name(&self) -> &'static str {
        "gpu"
    }

    fn info(&self) -> Info {
        let is_emulated = self.device.is_software();
        Info {
            description: self.device.describe(),
            details: self.device.details(),
            is_device: true,
            is_emulated,
            full_batch: if is_emulated { 1 } else { FULL_BATCH },
        }
    }

    /// Returns true for every step but the check of beats and sums of their lanes, which take a CPU less time than the
    /// way to a device and back.
    fn supports(&self, step: &str) -> bool {
        !matches!(step, "first_bad_lane" | "add_lanes" | "reduce_lanes")
    }

    fn run(&self, program: &Program, operands: &mut [Operand<'_>]) -> Result<(), RunError> {
        check_support(self, program)?;
        let count = interpret::check_operands(program, operands)?;
        self.sweep();
        crate::device::run(self, program, operands, count)
            .map_err(|why| RunError::Device { engine: self.name(), why })
    }
}

impl Measure for GpuEngine {
    fn multiply_rate(&self) -> Option<f64> {
        limit::multiply_rate(&self.device).ok().flatten()
    }

    fn multiplies(&self, program: &Program, operands: &[Operand<'_>]) -> Option<u64> {
        check_support(self, program).ok()?;
        crate::device::multiplies(self, program, operands, interpret::count(program, operands))
    }
}

#[cfg(test)]
mod tests;
