//! An engine that counts what work takes of another.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
};

use ciphergram_accel::{Cycles, Engine, Info, Operand, Present, Program, RunError};

use crate::Failure;

/// Runs programs on another engine, and can sum the multiply instructions that they issue.
pub struct Metered {
    inner: Present,
    multiply_rate: Option<f64>,
    is_counting: AtomicBool,
    multiplies: AtomicU64,
}

/// What work took of an engine.
pub(super) struct Counted {
    pub(super) seconds: f64,
    /// Multiply instructions, zero of an engine that counts none.
    pub(super) multiplies: u64,
    /// Of a card.
    pub(super) cycles: Option<Cycles>,
}

impl Metered {
    /// Measures the rate of multiplications of an engine.
    #[must_use]
    pub fn new(inner: Present) -> Self {
        let multiply_rate = inner.measure.as_ref().and_then(|measure| measure.multiply_rate());
        let (is_counting, multiplies) = (AtomicBool::new(false), AtomicU64::new(0));
        Self { inner, multiply_rate, is_counting, multiplies }
    }

    /// Returns the multiply instructions a second that one thread or the device can issue, if the engine measures it.
    #[must_use]
    pub fn multiply_rate(&self) -> Option<f64> {
        self.multiply_rate
    }

    /// Runs `work`, and returns what its programs took. One call at a time.
    pub(super) fn count(
        &self,
        work: impl FnOnce() -> Result<f64, Failure>,
    ) -> Result<Counted, Failure> {
        self.multiplies.store(0, Relaxed);
        let before = self.cycles();
        self.is_counting.store(true, Relaxed);
        let seconds = work();
        self.is_counting.store(false, Relaxed);
        let cycles = self.cycles().zip(before).and_then(|(now, before)| now.since(before));
        Ok(Counted { seconds: seconds?, multiplies: self.multiplies.load(Relaxed), cycles })
    }

    /// Returns the other engine, for what comes before the work that counts.
    pub(super) fn uncounted(&self) -> Arc<dyn Engine> {
        self.inner.engine.clone()
    }

    fn cycles(&self) -> Option<Cycles> {
        self.inner.measure.as_ref()?.cycles()
    }

    /// Returns the rate of all its parts while `threads` threads call it.
    pub(super) fn rate_of(&self, threads: usize) -> Option<f64> {
        let threads = if self.info().is_device { 1 } else { threads };
        self.multiply_rate.map(|rate| rate * threads as f64)
    }

    /// Returns whether a program stands in for a card: its time says nothing but how fast it simulates.
    pub(super) fn is_simulated(&self) -> bool {
        self.cycles().is_some() && self.info().is_emulated
    }

    /// Describes it and its limit in a line.
    #[must_use]
    pub fn line(&self) -> String {
        let info = self.info();
        let each = if info.is_device { "" } else { " a thread" };
        let rate = self.multiply_rate.map_or("no measure of its limit".into(), |rate| {
            format!("at most {:.2} G multiplies/s{each}", rate / 1e9)
        });
        format!("{}: {}, {rate}", self.name(), info.description)
    }
}

impl Engine for Metered {
    fn name(&self) -> &'static str {
        self.inner.engine.name()
    }

    fn info(&self) -> Info {
        self.inner.engine.info()
    }

    fn supports(&self, step: &str) -> bool {
        self.inner.engine.supports(step)
    }

    fn run(&self, program: &Program, operands: &mut [Operand<'_>]) -> Result<(), RunError> {
        if self.is_counting.load(Relaxed) {
            let measure = self.inner.measure.as_ref();
            // A program of which an engine cannot tell is refused when it runs.
            let count = measure.and_then(|measure| measure.multiplies(program, operands));
            self.multiplies.fetch_add(count.unwrap_or(0), Relaxed);
        }
        self.inner.engine.run(program, operands)
    }
}
