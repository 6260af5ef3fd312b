//! An engine over the CPU and a device, which share out each batch.
//!
//! Programs with a step that the device lacks run on the CPU. Where the device fails, the CPU runs
//! its part, over the accumulators as they were. Both are reported to the caller's observer, and
//! results are the same bits either way.
//!
//! [`Scheduler::preferring`] gives the device every batch that it can run. [`Scheduler::measuring`]
//! opens none until there is work for seconds: drivers take some tenths of one. Then it gives each
//! engine the part of a batch with which both end together, by rates that it learns from the first
//! batches of a program and about that size (`scheduler/split.rs`).

mod split;
mod start_up;
#[cfg(test)]
mod tests;

use std::{
    collections::HashMap,
    panic::resume_unwind,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::Instant,
};

use zeroize::Zeroizing;

use crate::{
    engine::{DeviceFault, Engine, Info, Operand, RunError},
    interpret::{self, BoundBatch},
    program::Program,
};
use split::{Share, Split};
use start_up::StartUp;

/// Seconds of work on the CPU that are worth opening a device.
const WORTH: f64 = 4.0;

/// A decision of a scheduler, for a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event<'a> {
    /// The device lacks a step: programs like this one run on the CPU.
    Unsupported {
        /// The program.
        program: &'a str,
        /// The device's name.
        engine: &'static str,
        /// The step's name.
        step: &'static str,
    },
    /// The device failed, and the CPU ran its part. Programs like this one no longer go there; none
    /// does after [`DeviceFault::Lost`] or [`DeviceFault::Timeout`], or before it was measured.
    Failed {
        /// The program.
        program: &'a str,
        /// The device's name.
        engine: &'static str,
        /// The fault.
        why: &'a DeviceFault,
    },
}

type Observer = Box<dyn Fn(Event<'_>) + Send + Sync>;
type OpenDevice = Box<dyn Fn() -> Option<Arc<dyn Engine>> + Send + Sync>;

/// Runs programs on the CPU and on a device. See the [module](self) documentation.
pub struct Scheduler {
    cpu: Arc<dyn Engine>,
    /// None in it if there is none to be had.
    device: OnceLock<Option<Device>>,
    /// Opens the device; none if it is preferred, and so was open from the start.
    open: Option<OpenDevice>,
    /// Whether a caller opens it, or did: others go on with the CPU meanwhile.
    is_begun: AtomicBool,
    /// Seconds of work that are worth opening it.
    worth: f64,
    observer: Observer,
    state: Mutex<State>,
}

struct Device {
    engine: Arc<dyn Engine>,
    start_up: StartUp,
}

#[derive(Default)]
struct State {
    /// Seconds that callers waited for the CPU.
    worked: f64,
    /// Whether no program goes to the device any more.
    is_retired: bool,
    /// Shapes of programs that it lacks a step of, or failed at.
    failed: Vec<u64>,
    /// By a program's shape and the bits of the number of items of a batch.
    splits: HashMap<(u64, u32), Split>,
}

impl Scheduler {
    /// Runs what `device` supports there, everything else on `cpu`.
    pub fn preferring(
        device: Arc<dyn Engine>,
        cpu: Arc<dyn Engine>,
        observer: impl Fn(Event<'_>) + Send + Sync + 'static,
    ) -> Self {
        let device = Device { engine: device, start_up: StartUp::default() };
        let over_cpu = Self::measuring(cpu, || None, observer);
        Self { open: None, device: Some(device).into(), ..over_cpu }
    }

    /// Shares batches out by measured rates. `open` is called once, when `cpu` has worked four
    /// seconds or the next batch would bring it there. If it panics, returns none, or its device
    /// cannot be measured, `cpu` goes on alone.
    pub fn measuring(
        cpu: Arc<dyn Engine>,
        open: impl Fn() -> Option<Arc<dyn Engine>> + Send + Sync + 'static,
        observer: impl Fn(Event<'_>) + Send + Sync + 'static,
    ) -> Self {
        Self {
            cpu,
            device: OnceLock::new(),
            open: Some(Box::new(open)),
            is_begun: AtomicBool::new(false),
            worth: WORTH,
            observer: Box::new(observer),
            state: Mutex::default(),
        }
    }

    /// Opens the device after `worth` seconds of work; with 0, now.
    #[must_use]
    pub fn after(self, worth: f64) -> Self {
        if worth <= 0.0 {
            self.open();
        }
        Self { worth, ..self }
    }

    /// Opens the device, unless another caller does.
    fn open(&self) {
        if let (Some(open), false) = (&self.open, self.is_begun.swap(true, Relaxed)) {
            // On a thread of its own: one of a pool would take up other work while it waits.
            let work = || self.measured(open()?);
            let opened = thread::scope(|scope| {
                thread::Builder::new().spawn_scoped(scope, work).ok()?.join().ok()?
            });
            self.device.get_or_init(|| opened);
        }
    }

    /// Measures what a run costs a device beside its work.
    fn measured(&self, engine: Arc<dyn Engine>) -> Option<Device> {
        let failed = |why| {
            let (program, engine) = (StartUp::PROGRAM, engine.name());
            (self.observer)(Event::Failed { program, engine, why: &why });
        };
        let start_up = StartUp::measure(&*engine).map_err(failed).ok()?;
        Some(Device { engine, start_up })
    }

    /// Returns the next share of a batch of `items` items, of which `left` are left.
    fn share(&self, class: (u64, u32), items: usize, left: usize) -> Share {
        let mut state = locked(&self.state);
        if self.device.get().is_none() {
            let expected = state.splits.entry(class).or_default().expected(left);
            if state.worked + expected >= self.worth {
                drop(state);
                self.open();
                state = locked(&self.state);
            }
        }
        let has_failed = state.is_retired || state.failed.contains(&class.0);
        if self.open.is_none() {
            return if has_failed { Share::new(left, 0) } else { Share::new(0, left) };
        }
        let device = self.device.get().and_then(Option::as_ref).filter(|_| !has_failed);
        let start_up = device.map(|device| device.start_up);
        state.splits.entry(class).or_default().next(items, left, start_up)
    }

    /// Takes in the seconds that the parts of a share took, or that the device failed.
    fn learn(&self, class: (u64, u32), share: &Share, seconds: Option<[f64; 2]>) {
        let mut state = locked(&self.state);
        state.worked += seconds.map_or(0.0, |[cpu, _]| cpu);
        if let Some(split) = state.splits.get_mut(&class) {
            split.ran(share, seconds);
        }
    }

    /// Runs both parts of a batch at once, or in turn where the system has no more threads. Returns
    /// the seconds of each from the common start, or nothing if the device failed.
    fn run_parts(
        &self,
        program: &Program,
        batch: BoundBatch<'_>,
        share: &Share,
    ) -> Result<Option<[f64; 2]>, RunError> {
        let (own, other) = batch.split(share.cpu);
        let clock = Instant::now();
        let other = Mutex::new((share.device > 0).then(|| other.into_operands()));
        // Its thread takes the device's part; or this one, if the CPU's is done before.
        let run_device = || {
            let Some(mut operands) = locked(&other).take() else { return Ok(None) };
            let ran = self.run_on_device(program, &mut operands)?;
            Ok(Some((ran, clock.elapsed().as_secs_f64())))
        };
        let (own, there, here) = thread::scope(|scope| {
            let is_shared = share.cpu > 0 && share.device > 0;
            let beside = || thread::Builder::new().spawn_scoped(scope, run_device).ok();
            let beside = is_shared.then(beside).flatten();
            let own = (share.cpu > 0).then(|| self.cpu.run(program, &mut own.into_operands()));
            let own = own.unwrap_or(Ok(())).map(|()| clock.elapsed().as_secs_f64());
            let here = run_device();
            let there = beside.map(|it| it.join().unwrap_or_else(|panic| resume_unwind(panic)));
            (own, there.unwrap_or(Ok(None)), here)
        });
        let cpu = own?;
        Ok(match there?.or(here?) {
            Some((false, _)) => None,
            Some((true, device)) => Some([cpu, device]),
            None => Some([cpu, 0.0]),
        })
    }

    /// Runs a part on the device; if it cannot, on the CPU, over the accumulators as they were.
    /// Returns whether the device ran it.
    fn run_on_device(
        &self,
        program: &Program,
        operands: &mut [Operand<'_>],
    ) -> Result<bool, RunError> {
        let Some(Some(Device { engine, .. })) = self.device.get() else {
            return self.cpu.run(program, operands).map(|()| false);
        };
        let saved = |operand: &Operand<'_>| match operand {
            Operand::InOut(words) => Zeroizing::new(words.to_vec()),
            _ => Zeroizing::default(),
        };
        let before: Vec<_> = operands.iter().map(saved).collect();
        let ran = engine.run(program, operands);
        let (name, engine) = (program.name(), engine.name());
        let (event, retires) = match &ran {
            Err(RunError::Unsupported { step, .. }) => {
                (Event::Unsupported { program: name, engine, step }, false)
            }
            Err(RunError::Device { why, .. }) => {
                let retires = matches!(why, DeviceFault::Lost { .. } | DeviceFault::Timeout);
                (Event::Failed { program: name, engine, why }, retires)
            }
            _ => return ran.map(|()| true),
        };
        for (operand, before) in operands.iter_mut().zip(&before) {
            if let Operand::InOut(words) = operand {
                words.copy_from_slice(before);
            }
        }
        let mut state = locked(&self.state);
        state.is_retired |= retires;
        state.failed.push(program.shape());
        drop(state);
        self.cpu.run(program, operands)?;
        (self.observer)(event);
        Ok(false)
    }
}

impl Engine for Scheduler {
    fn name(&self) -> &'static str {
        match self.device.get() {
            Some(Some(device)) if self.open.is_none() => device.engine.name(),
            _ => "auto",
        }
    }

    fn info(&self) -> Info {
        let named = |it: &dyn Engine| format!("{}: {}", it.name(), it.info().description);
        let cpu = named(&*self.cpu);
        let engine = match self.device.get() {
            Some(Some(Device { engine, .. })) => engine,
            Some(None) => return Info::of_host(format!("{cpu}; no device")),
            None => {
                return Info::of_host(format!("{cpu}; a device once there is work for seconds"));
            }
        };
        let both = self.open.as_ref().map_or("", |_| "whichever is quicker, or both: ");
        let (device, full_batch) = (named(&**engine), engine.info().full_batch);
        Info { full_batch, ..Info::of_host(format!("{both}{device}; {cpu}")) }
    }

    fn supports(&self, step: &str) -> bool {
        self.cpu.supports(step)
    }

    fn run(&self, program: &Program, operands: &mut [Operand<'_>]) -> Result<(), RunError> {
        let items = interpret::count(program, operands);
        let class = (program.shape(), usize::BITS - items.leading_zeros());
        let mut share = match items {
            0 => return self.cpu.run(program, operands),
            _ => self.share(class, items, items),
        };
        if share.cpu == items {
            // Batches of a few items take microseconds: nothing more is done for them.
            let clock = Instant::now();
            let outcome = self.cpu.run(program, operands);
            let seconds = outcome.is_ok().then(|| [clock.elapsed().as_secs_f64(), 0.0]);
            self.learn(class, &share, seconds);
            return outcome;
        }
        let mut batch = match BoundBatch::bind(program, operands) {
            Ok(batch) => batch,
            Err(why) => {
                self.learn(class, &share, None);
                return Err(why);
            }
        };
        loop {
            let (next, rest) = batch.split(share.cpu + share.device);
            let ran = self.run_parts(program, next, &share);
            self.learn(class, &share, ran.as_ref().ok().copied().flatten());
            ran?;
            if rest.count() == 0 {
                return Ok(());
            }
            batch = rest;
            share = self.share(class, items, batch.count());
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing that can panic happens under the locks.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
