//! What runs cost a device beside their work.

use std::{sync::Arc, time::Instant};

use crate::{
    engine::{Engine, Operand},
    program::Builder,
    ring::{Ring, largest_primes},
};

/// What runs cost an engine beside their work, in seconds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StartUp {
    /// The first run of a program.
    pub(super) first: f64,
    /// Every run.
    pub(super) each: f64,
}

impl StartUp {
    /// What the smallest program costs: its first run, and the best of some others. A device that cannot
    /// run it costs everything.
    pub(super) fn measure(device: &dyn Engine) -> Self {
        let Ok(ring) = Ring::new(16, &largest_primes(20, 16, 1)) else {
            unreachable!("there are such primes")
        };
        let mut b = Builder::new("start-up");
        let x = b.coefficients("x", &Arc::new(ring));
        let double = b.add("2x", x, x);
        b.output(double);
        let (program, x, mut out) = (b.build(), [0; 16], [0; 16]);
        let mut run = || {
            let clock = Instant::now();
            let mut operands = [Operand::SecretIn(&x), Operand::Out(&mut out)];
            let outcome = device.run(&program, &mut operands);
            if outcome.is_ok() { clock.elapsed().as_secs_f64() } else { f64::INFINITY }
        };
        let first = run();
        Self { first, each: (0..4).map(|_| run()).fold(f64::INFINITY, f64::min) }
    }
}
