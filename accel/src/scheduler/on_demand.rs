//! An engine that is opened when there is work for it.

use std::{
    sync::{Arc, Mutex, OnceLock},
    time::Instant,
};

use super::locked;
use crate::{
    engine::{Engine, Operand, RunError},
    interpret::{self, Batch},
    program::Program,
    ring::Ring,
};

/// Seconds of work on the CPU that are worth opening a device: drivers take some tenths of one.
const WORTH: f64 = 4.0;
/// The part of a batch that tells what the rest takes, and bounds on its items: fewer leave lanes and cores idle.
const PROBE: usize = 16;
const PROBED: std::ops::RangeInclusive<usize> = 64..=1024;

/// The CPU, until programs took seconds there, or a batch is about to; from then on another engine, which is
/// opened for it. A command that takes less pays for no device.
pub struct OnDemand {
    cpu: Arc<dyn Engine>,
    open: Box<dyn Fn() -> Arc<dyn Engine> + Send + Sync>,
    opened: OnceLock<Arc<dyn Engine>>,
    worth: f64,
    /// Seconds on the CPU.
    spent: Mutex<f64>,
}

impl OnDemand {
    /// `open` is called at most once, by whoever has such work; it may give the CPU again. What it opens must support
    /// what `cpu` does.
    pub fn new(
        cpu: Arc<dyn Engine>,
        open: impl Fn() -> Arc<dyn Engine> + Send + Sync + 'static,
    ) -> Self {
        let (open, opened) = (Box::new(open), OnceLock::new());
        Self { cpu, open, opened, worth: WORTH, spent: Mutex::new(0.0) }
    }

    /// Runs a part on the CPU; gives the seconds of it, and of all so far.
    fn run_here(
        &self,
        program: &Program,
        operands: &mut [Operand<'_>],
    ) -> Result<[f64; 2], RunError> {
        let clock = Instant::now();
        self.cpu.run(program, operands)?;
        let seconds = clock.elapsed().as_secs_f64();
        let mut spent = locked(&self.spent);
        *spent += seconds;
        Ok([seconds, *spent])
    }
}

impl Engine for OnDemand {
    fn name(&self) -> &'static str {
        "auto"
    }

    fn describe(&self) -> String {
        self.opened.get().map_or_else(
            || format!("{}; others once there is work for seconds", self.cpu.describe()),
            |engine| engine.describe(),
        )
    }

    fn supports(&self, step: &str) -> bool {
        self.cpu.supports(step)
    }

    fn run(&self, program: &Program, operands: &mut [Operand<'_>]) -> Result<(), RunError> {
        if *locked(&self.spent) >= self.worth {
            return self.opened.get_or_init(&self.open).run(program, operands);
        }
        let items = interpret::count(program, operands);
        let probed = items.div_ceil(PROBE).clamp(*PROBED.start(), *PROBED.end());
        if items <= probed {
            return self.run_here(program, operands).map(|_| ());
        }
        let (first, rest) = Batch::bind(program, operands)?.split(probed);
        let [seconds, spent] = self.run_here(program, &mut first.into_operands())?;
        let expected = seconds * (rest.count() as f64 / probed as f64);
        let rest = &mut rest.into_operands();
        if spent + expected < self.worth {
            return self.run_here(program, rest).map(|_| ());
        }
        *locked(&self.spent) = f64::INFINITY;
        self.opened.get_or_init(&self.open).run(program, rest)
    }

    fn first_bad_lane(&self, words: &[u64], ring: &Ring) -> Option<usize> {
        self.cpu.first_bad_lane(words, ring)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use super::*;
    use crate::{Builder, CpuEngine, Modulus, ReferenceEngine};

    /// Squares so many numbers, on the oracle once that is opened; tells how often it was by then.
    fn opened(worth: f64, batches: &[u64]) -> Vec<usize> {
        let count = Arc::new(AtomicUsize::new(0));
        let counted = count.clone();
        let open = move || {
            counted.fetch_add(1, Relaxed);
            Arc::new(ReferenceEngine) as Arc<dyn Engine>
        };
        let engine = OnDemand { worth, ..OnDemand::new(Arc::new(CpuEngine::new()), open) };
        let m = Arc::new(Modulus::new("m", &[0xffff_ffff_ffff_ffc5]).unwrap());
        let mut b = Builder::new("squares");
        let x = b.residues("x", &m);
        let square = b.mul("x²", x, x);
        b.output(square);
        let program = b.build();
        let check = |&items: &u64| {
            let x: Vec<_> = (0..items).map(|i| i << 40).collect();
            let run = |engine: &dyn Engine| {
                let mut out = vec![0; x.len()];
                engine.run(&program, &mut [Operand::In(&x), Operand::Out(&mut out)]).unwrap();
                out
            };
            assert!(run(&engine) == run(&ReferenceEngine), "{items} items");
            count.load(Relaxed)
        };
        batches.iter().map(check).collect()
    }

    #[test]
    fn is_opened_once_there_is_work_for_it() {
        // No time that a clock tells is as long, none as short.
        assert_eq!(opened(f64::INFINITY, &[0, 10, 5000, 10]), [0, 0, 0, 0]);
        let soon = f64::MIN_POSITIVE;
        // Within a batch; or before the next where one is too small to be cut.
        assert_eq!(opened(soon, &[5000, 10]), [1, 1]);
        assert_eq!(opened(soon, &[10, 10, 5000]), [0, 1, 1]);
    }
}
