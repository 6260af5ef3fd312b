//! An engine that is opened when there is work for it.

use std::{
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::Instant,
};

use super::locked;
use crate::{
    engine::{Engine, Info, Operand, RunError},
    interpret::{self, Batch},
    program::Program,
};

/// Seconds of work on the CPU that are worth opening a device: drivers take some tenths of one.
const WORTH: f64 = 4.0;
/// The part of a batch that tells what the rest takes, and bounds on its items: fewer leave lanes and cores idle, more
/// tell nothing more.
const PROBE: usize = 16;
const PROBED: std::ops::RangeInclusive<usize> = 64..=1024;

/// Gives the engine for more work, or the CPU that it is given.
type Open = Box<dyn Fn(Arc<dyn Engine>) -> Arc<dyn Engine> + Send + Sync>;

/// The CPU, until programs took four seconds there, or a batch is about to; from then on another engine, which is
/// opened for it. A command that takes less pays for no device.
pub struct OnDemand {
    cpu: Arc<dyn Engine>,
    open: Open,
    /// Whether somebody opens it, or did: others go on with the CPU meanwhile.
    is_begun: AtomicBool,
    opened: OnceLock<Arc<dyn Engine>>,
    /// In seconds.
    worth: f64,
    work: Mutex<Work>,
}

/// What the CPU did. Callers may be many at once: seconds count once.
#[derive(Default)]
struct Work {
    callers: usize,
    /// Since when there are some.
    since: Option<Instant>,
    /// Of when there were some before.
    seconds: f64,
}

impl Work {
    fn seconds(&self) -> f64 {
        self.seconds + self.since.map_or(0.0, |since| since.elapsed().as_secs_f64())
    }

    fn begin(&mut self) {
        self.callers += 1;
        self.since.get_or_insert_with(Instant::now);
    }

    fn end(&mut self) {
        self.callers -= 1;
        if self.callers == 0 {
            self.seconds = self.seconds();
            self.since = None;
        }
    }
}

impl OnDemand {
    /// `open` is called at most once, by whoever has such work, and is given `cpu`, to share out work with or to give
    /// back. What it opens must support what `cpu` does. If it panics, `cpu` goes on.
    pub fn new(
        cpu: Arc<dyn Engine>,
        open: impl Fn(Arc<dyn Engine>) -> Arc<dyn Engine> + Send + Sync + 'static,
    ) -> Self {
        Self {
            cpu,
            open: Box::new(open),
            is_begun: AtomicBool::new(false),
            opened: OnceLock::new(),
            worth: WORTH,
            work: Mutex::default(),
        }
    }

    /// After so many seconds of work.
    #[cfg(test)]
    pub(super) fn after(self, worth: f64) -> Self {
        Self { worth, ..self }
    }

    /// The other engine, if it is open, or if the caller is who has to open it since so many more seconds are expected.
    /// That goes on on a thread of its own: one of a pool would take up other work while it waits.
    fn opened(&self, expected: f64) -> Option<&Arc<dyn Engine>> {
        let is_due = || locked(&self.work).seconds() + expected >= self.worth;
        if self.opened.get().is_none() && is_due() && !self.is_begun.swap(true, Relaxed) {
            let opened = thread::scope(|scope| {
                let open = || (self.open)(self.cpu.clone());
                let thread = thread::Builder::new().name("open".into()).spawn_scoped(scope, open);
                thread.ok().and_then(|thread| thread.join().ok())
            });
            return Some(self.opened.get_or_init(|| opened.unwrap_or_else(|| self.cpu.clone())));
        }
        self.opened.get()
    }

    fn run_here(&self, program: &Program, operands: &mut [Operand<'_>]) -> Result<(), RunError> {
        locked(&self.work).begin();
        let outcome = self.cpu.run(program, operands);
        locked(&self.work).end();
        outcome
    }
}

impl Engine for OnDemand {
    fn name(&self) -> &'static str {
        "auto"
    }

    fn info(&self) -> Info {
        self.opened.get().map_or_else(
            || {
                let cpu = self.cpu.info().description;
                Info::of_host(format!("{cpu}; others once there is work for seconds"))
            },
            |engine| engine.info(),
        )
    }

    fn supports(&self, step: &str) -> bool {
        self.cpu.supports(step)
    }

    fn run(&self, program: &Program, operands: &mut [Operand<'_>]) -> Result<(), RunError> {
        if let Some(engine) = self.opened(0.0) {
            return engine.run(program, operands);
        }
        let items = interpret::count(program, operands);
        let probed = items.div_ceil(PROBE).clamp(*PROBED.start(), *PROBED.end());
        if items <= probed {
            return self.run_here(program, operands);
        }
        let (first, rest) = Batch::bind(program, operands)?.split(probed);
        let clock = Instant::now();
        self.run_here(program, &mut first.into_operands())?;
        let expected = clock.elapsed().as_secs_f64() * (rest.count() as f64 / probed as f64);
        let rest = &mut rest.into_operands();
        match self.opened(expected) {
            Some(engine) => engine.run(program, rest),
            None => self.run_here(program, rest),
        }
    }
}
