//! The cost of runs on a device beside their work.

use std::{sync::Arc, time::Instant};

use crate::{
    engine::{DeviceFault, Engine, Operand, RunError},
    program::Builder,
    ring::Ring,
};

/// Seconds that runs take an engine beside their work.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StartUp {
    /// The first run of a program.
    pub(super) first: f64,
    /// Every run.
    pub(super) each: f64,
}

impl StartUp {
    /// The name of the program that is measured.
    pub(super) const PROGRAM: &'static str = "start-up";

    /// Measures the smallest program: its first run, and the best of four others.
    ///
    /// # Errors
    /// The device cannot run it, and was not asked again: it may have taken minutes to say so.
    pub(super) fn measure(device: &dyn Engine) -> Result<Self, DeviceFault> {
        let ring = Ring::largest(20, 16, 1);
        let mut b = Builder::new(Self::PROGRAM);
        let x = b.coefficients("x", &Arc::new(ring));
        let double = b.add("2x", x, x);
        b.output(double);
        let (program, x, mut out) = (b.build(), [0; 16], [0; 16]);
        let mut run = || {
            let clock = Instant::now();
            let mut operands = [Operand::SecretIn(&x), Operand::Out(&mut out)];
            device.run(&program, &mut operands).map_err(|error| match error {
                RunError::Device { why, .. } => why,
                error => DeviceFault::Failed { why: error.to_string() },
            })?;
            Ok(clock.elapsed().as_secs_f64())
        };
        let first = run()?;
        let each = (0..4).try_fold(f64::INFINITY, |best, _| Ok(run()?.min(best)))?;
        Ok(Self { first, each })
    }
}
