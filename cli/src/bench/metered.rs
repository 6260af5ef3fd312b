//! An engine that counts the multiplications of another.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
};

use ciphergram_accel::{Cycles, Engine, Info, Measure, Operand, Program, RunError};

use super::machine::Measured;

/// Runs programs on another engine. Inside [`Metered::count`] it sums the multiply instructions
/// that they issue; outside it only passes them on, so that times are the other engine's.
pub(crate) struct Metered {
    inner: Arc<dyn Engine>,
    measure: Option<Arc<dyn Measure>>,
    counting: AtomicBool,
    total: AtomicU64,
    unknown: AtomicBool,
}

/// What work took of an engine.
#[derive(Clone, Copy)]
pub(crate) struct Counted {
    /// Multiply instructions, if the engine counts them.
    pub(crate) multiplies: Option<u64>,
    /// Cycles, of a card.
    pub(crate) cycles: Option<Cycles>,
}

impl Metered {
    pub(crate) fn new(measured: &Measured) -> Self {
        let Measured { engine, measure, .. } = measured;
        let (counting, unknown) = (AtomicBool::new(false), AtomicBool::new(false));
        let (inner, measure) = (engine.clone(), measure.clone());
        Self { inner, measure, counting, total: AtomicU64::new(0), unknown }
    }

    /// Runs `work`, and returns also what its programs took. One call at a time.
    pub(crate) fn count<T>(&self, work: impl FnOnce() -> T) -> (T, Counted) {
        self.total.store(0, Relaxed);
        self.unknown.store(false, Relaxed);
        self.counting.store(true, Relaxed);
        let before = self.cycles();
        let result = work();
        let cycles = self.cycles().zip(before).and_then(|(now, before)| now.since(before));
        self.counting.store(false, Relaxed);
        let known = !self.unknown.load(Relaxed);
        (result, Counted { multiplies: known.then(|| self.total.load(Relaxed)), cycles })
    }

    fn cycles(&self) -> Option<Cycles> {
        self.measure.as_ref()?.cycles()
    }
}

impl Engine for Metered {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn info(&self) -> Info {
        self.inner.info()
    }

    fn supports(&self, step: &str) -> bool {
        self.inner.supports(step)
    }

    fn run(&self, program: &Program, operands: &mut [Operand<'_>]) -> Result<(), RunError> {
        if self.counting.load(Relaxed) {
            let count = self.measure.as_ref().and_then(|it| it.multiplies(program, operands));
            match count {
                Some(count) => {
                    self.total.fetch_add(count, Relaxed);
                }
                None => self.unknown.store(true, Relaxed),
            }
        }
        self.inner.run(program, operands)
    }
}
