//! The GPU engine: programs as compute kernels, on any adapter that wgpu knows.
//!
//! A whole program runs on the device over one part of a batch after the other: operands go up,
//! outputs come down, nothing else crosses. Its kernels are in `shaders/`, one file each, over one of
//! two [`Prelude`]s; what they are and how they spread numbers over threads is told there.
//!
//! An adapter is optional: where none is, [`GpuEngine::new`] says so with an error, and programs run on
//! another engine. The environment variable `CIPHERGRAM_GPU` chooses among several, by index or by a part of
//! the name; `none` leaves all alone.
//!
//! Steps over secrets take no branch and no address that depends on them. Device memory of a program
//! with secrets is overwritten after the run, constants when what they belong to is gone.

mod constants;
mod device;
#[cfg(test)]
mod instructions;
mod polys;
mod record;
mod residues;
mod run;
mod shaders;

use std::sync::Arc;

use crate::{
    derived::Derived,
    engine::{DeviceFault, Engine, Operand, RunError, check_support},
    interpret,
    modulus::Modulus,
    program::{Crt, FixedBase, Program, Step},
    ring::Ring,
};
use constants::{Constants, FixedTable};
use device::Device;
pub use device::GpuError;
use polys::RingConstants;
use record::Recorder;
use run::View;
pub use shaders::Prelude;

/// The bytes of device memory that a part of a batch takes.
const MEMORY_BYTES: u64 = 1 << 30;

/// Items that keep the largest cards busy: some waves of the numbers that their multiprocessors hold at
/// once, 10,560 of 4096 bits on an H200 (see `shaders/README.md`).
const FULL_BATCH: usize = 1 << 16;

/// The GPU engine. See the [module](self) documentation.
///
/// It keeps on the device what it derives from long-lived constants for as long as these live.
pub struct GpuEngine {
    device: Arc<Device>,
    memory_bytes: u64,
    moduli: Derived<Modulus, Constants>,
    linears: Derived<Modulus, Constants>,
    recombinations: Derived<Crt, [Constants; 2]>,
    tables: Derived<FixedBase, FixedTable>,
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

    /// The same without integers of 64 bits even where the adapter has them: for tests.
    ///
    /// # Errors
    /// See [`GpuError`].
    pub fn split() -> Result<Self, GpuError> {
        Self::open(true)
    }

    fn open(split: bool) -> Result<Self, GpuError> {
        Ok(Self {
            device: Arc::new(Device::open(split)?),
            memory_bytes: MEMORY_BYTES,
            moduli: Derived::default(),
            linears: Derived::default(),
            recombinations: Derived::default(),
            tables: Derived::default(),
            rings: Derived::default(),
        })
    }

    /// The same with parts of batches that take about `bytes` of device memory, tables of constants
    /// aside; but one item at least.
    #[must_use]
    pub fn with_memory(self, bytes: u64) -> Self {
        Self { memory_bytes: bytes, ..self }
    }

    /// How this adapter multiplies.
    #[must_use]
    pub fn prelude(&self) -> Prelude {
        self.device.prelude
    }

    fn device(&self) -> &Device {
        &self.device
    }

    fn modulus(&self, m: &Arc<Modulus>) -> Result<Arc<Constants>, DeviceFault> {
        self.moduli.try_get(m, |m| Constants::of_modulus(&self.device, m))
    }

    /// Those of `a · n + b` below n².
    fn linear(&self, n: &Arc<Modulus>) -> Result<Arc<Constants>, DeviceFault> {
        self.linears.try_get(n, |n| Constants::of_linear(&self.device, n, 2 * n.len_words()))
    }

    /// Those of the digit of q, and of putting the digits together.
    fn crt(&self, crt: &Arc<Crt>) -> Result<Arc<[Constants; 2]>, DeviceFault> {
        self.recombinations.try_get(crt, |crt| {
            let words = crt.p().len_words() + crt.q().len_words();
            let digit = Constants::of_crt(&self.device, crt)?;
            Ok([digit, Constants::of_linear(&self.device, crt.p(), words)?])
        })
    }

    fn table(&self, base: &Arc<FixedBase>) -> Result<Arc<FixedTable>, DeviceFault> {
        let m = self.modulus(base.modulus())?;
        self.tables.try_get(base, |base| FixedTable::new(&self.device, &m, base))
    }

    fn ring(&self, ring: &Arc<Ring>) -> Result<Arc<RingConstants>, DeviceFault> {
        self.rings.try_get(ring, |ring| RingConstants::new(&self.device, ring))
    }

    /// Lets go of what is kept for constants that are gone.
    fn sweep(&self) {
        self.moduli.sweep();
        self.linears.sweep();
        self.recombinations.sweep();
        self.tables.sweep();
        self.rings.sweep();
    }

    fn step(
        &self,
        recorder: &mut Recorder<'_, '_>,
        step: &Step,
        out: &View<'_>,
        args: &[View<'_>],
        count: u32,
    ) -> Result<(), DeviceFault> {
        if step.is_of_residues() {
            self.residue_step(recorder, step, out, args, count)
        } else {
            self.poly_step(recorder, step, out, args, count)
        }
    }
}

impl Engine for GpuEngine {
    fn name(&self) -> &'static str {
        "gpu"
    }

    fn describe(&self) -> String {
        let wgpu::AdapterInfo { name, driver, driver_info, backend, .. } = &self.device.info;
        let integers = match self.prelude() {
            Prelude::Native => "64-bit integers",
            Prelude::Split => "products in 16-bit halves",
        };
        format!("{name} ({backend}, {driver} {driver_info}), {integers}")
    }

    fn details(&self) -> Vec<(&'static str, String)> {
        self.device.details()
    }

    fn is_emulated(&self) -> bool {
        self.device.info.device_type == wgpu::DeviceType::Cpu
    }

    fn full_batch(&self) -> usize {
        if self.is_emulated() { 1 } else { FULL_BATCH }
    }

    fn supports(&self, step: &str) -> bool {
        !UNSUPPORTED.contains(&step)
    }

    fn run(&self, program: &Program, operands: &mut [Operand<'_>]) -> Result<(), RunError> {
        check_support(self, program)?;
        let count = interpret::check(program, operands)?;
        self.sweep();
        run::run(self, program, operands, count)
            .map_err(|why| RunError::Device { engine: self.name(), why })
    }
}

/// The steps that there are no kernels for.
const UNSUPPORTED: [&str; 1] = ["invert"];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Builder, Ring, ring::largest_primes};

    /// An engine, or a word on why this test does nothing.
    fn present() -> Option<GpuEngine> {
        GpuEngine::new().map_err(|why| eprintln!("skipped: {why}")).ok()
    }

    fn sums() -> (Program, Vec<u64>) {
        let ring = Arc::new(Ring::new(16, &largest_primes(20, 16, 2)).unwrap());
        let mut b = Builder::new("sums");
        let x = b.coefficients("x", &ring);
        let sum = b.add("2x", x, x);
        b.output(sum);
        (b.build(), (0..10 * ring.len_words() as u64).collect())
    }

    fn run(engine: &GpuEngine) -> (Result<(), RunError>, Vec<u64>) {
        let (program, x) = sums();
        let mut out = vec![0; x.len()];
        let outcome = engine.run(&program, &mut [Operand::SecretIn(&x), Operand::Out(&mut out)]);
        (outcome, out)
    }

    #[test]
    fn batches_are_cut_to_memory() {
        let Some(mut engine) = present() else { return };
        let expected = (0..10 * 32).map(|x| 2 * x).collect::<Vec<u64>>();
        // Room for one item, for three of the ten, for all.
        let item = 2 * 8 * 32;
        for (bytes, items) in [(0, 1), (3 * item + 8, 3), (20 * item, 19)] {
            engine = engine.with_memory(bytes);
            assert_eq!(run::part(&engine, &sums().0), items);
            assert_eq!(run(&engine), (Ok(()), expected.clone()), "{bytes} bytes");
        }
    }

    #[test]
    fn a_lost_device_is_an_error_of_its_own() {
        let Some(engine) = present() else { return };
        assert_eq!(run(&engine).0, Ok(()));
        engine.device.device.destroy();
        let lost = RunError::Device { engine: "gpu", why: DeviceFault::Lost };
        assert_eq!(run(&engine).0, Err(lost));
    }

    /// A batch of one item that no binding holds.
    #[test]
    fn an_item_too_large_is_out_of_memory() {
        let Some(engine) = present() else { return };
        let ring = Arc::new(Ring::new(16, &largest_primes(20, 16, 1)).unwrap());
        let count = engine.device.binding_bytes() as usize / 64 + 1;
        let mut b = Builder::new("huge");
        let x = b.coefficients("x", &ring);
        let packed = b.pack("packed", x, count);
        b.output(packed);
        if count > 1 << 22 {
            return eprintln!("skipped: 256 MiB do not exceed a binding of this adapter");
        }
        let (x, mut out) = (vec![0; ring.len_words()], vec![0; 8 * count]);
        let outcome = engine.run(&b.build(), &mut [Operand::SecretIn(&x), Operand::Out(&mut out)]);
        assert_eq!(outcome, Err(RunError::Device { engine: "gpu", why: DeviceFault::OutOfMemory }));
    }
}
