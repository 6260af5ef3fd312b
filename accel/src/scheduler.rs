//! An engine over others: the CPU and devices, which share out each batch.
//!
//! Programs that a device has not every step of do not go there. Where it fails the CPU runs its part, over the
//! accumulators as they were. The caller's observer is told, and the results are the same bits.
//!
//! [`Scheduler::preferring`] takes the first device that can; [`Scheduler::measuring`] takes whichever was quickest at programs
//! of this shape and batches of about this size: the CPU, a device, or all at once, each a part of
//! the batch. What is measured, and how shares follow from it, is told in `scheduler/policy.rs`.
//!
//! Opening a device takes time too: [`OnDemand`] does without one until there is work for seconds.
//!
//! The CPU's part of a batch runs on the caller's thread, and so in the `rayon` pool of that thread. Of devices, the first that is not
//! beside the CPU runs there too, others on threads of their own: what such a device does on the host, and the CPU
//! in its place, is spread over the global pool.

mod figures;
mod on_demand;
mod policy;
#[cfg(test)]
mod simulation;
mod start_up;
#[cfg(test)]
mod tests;

use std::{
    collections::{HashMap, VecDeque},
    hash::{DefaultHasher, Hash as _, Hasher as _},
    iter,
    panic::resume_unwind,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::Instant,
};

use zeroize::Zeroizing;

use crate::{
    engine::{DeviceFault, Engine, Info, Operand, RunError, check_support},
    interpret::{self, Batch},
    program::{Kind, Program, Step},
};
pub use on_demand::OnDemand;
use policy::{CPU, Policy, Shares};
use start_up::StartUp;

/// What a scheduler decided, for a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event<'a> {
    /// A device has no such step: programs that have it run elsewhere. Told once a step.
    Unsupported {
        /// The first such program.
        program: &'a str,
        /// The device's name.
        engine: &'static str,
        /// The step's name.
        step: &'static str,
    },
    /// A device failed, and the CPU ran its part. Programs like this one no longer go there;
    /// after [`DeviceFault::Lost`] and [`DeviceFault::Timeout`], or if it was being measured, none does.
    Failed {
        /// The program.
        program: &'a str,
        /// The device's name.
        engine: &'static str,
        /// What happened.
        why: &'a DeviceFault,
    },
    /// From now on batches of about this size go where they were quicker. The first such batches run on the CPU.
    Chosen {
        /// The program.
        program: &'a str,
        /// The names of engines, and the items of this batch that each takes.
        shares: &'a [(&'static str, usize)],
    },
}

type Observer = Box<dyn Fn(Event<'_>) + Send + Sync>;

/// Runs programs on the CPU and on devices. See the [module](self) documentation.
pub struct Scheduler {
    /// The CPU's first.
    engines: Vec<Arc<dyn Engine>>,
    /// What runs cost devices; none where nothing is measured.
    start_ups: Option<Vec<StartUp>>,
    observer: Observer,
    state: Mutex<State>,
}

/// What runs have shown.
struct State {
    /// For each engine, whether no program goes there any more.
    retired: Vec<bool>,
    /// Engines and the steps that they lack, as far as told.
    told: Vec<(usize, &'static str)>,
    shapes: HashMap<u64, Shape>,
}

/// What is known of programs of one shape.
struct Shape {
    policy: Policy,
    /// For each engine, whether it has every step, and never failed at one.
    fit: Vec<bool>,
}

impl Scheduler {
    /// Takes the first of `devices` that can, and `cpu` where none can.
    pub fn preferring(
        devices: Vec<Arc<dyn Engine>>,
        cpu: Arc<dyn Engine>,
        observer: impl Fn(Event<'_>) + Send + Sync + 'static,
    ) -> Self {
        let engines: Vec<_> = std::iter::once(cpu).chain(devices).collect();
        let retired = vec![false; engines.len()];
        let state = Mutex::new(State { retired, told: vec![], shapes: HashMap::new() });
        Self { engines, start_ups: None, observer: Box::new(observer), state }
    }

    /// Takes whichever was quickest. What a run costs each device beside its work is measured here: batches
    /// that the CPU finishes sooner stay there. A device that fails at it is told and left out.
    pub fn measuring(
        devices: Vec<Arc<dyn Engine>>,
        cpu: Arc<dyn Engine>,
        observer: impl Fn(Event<'_>) + Send + Sync + 'static,
    ) -> Self {
        let (mut able, mut start_ups) = (vec![], vec![]);
        for device in devices {
            match StartUp::measure(&*device) {
                Ok(start_up) => {
                    able.push(device);
                    start_ups.push(start_up);
                }
                Err(why) => {
                    let (program, engine) = (StartUp::PROGRAM, device.name());
                    observer(Event::Failed { program, engine, why: &why });
                }
            }
        }
        Self { start_ups: Some(start_ups), ..Self::preferring(able, cpu, observer) }
    }

    /// For each engine, whether it can run such a program, as far as known.
    fn fit(&self, program: &Program, shape: u64) -> Vec<bool> {
        let mut state = locked(&self.state);
        let State { retired, told, shapes } = &mut *state;
        let mut news = vec![];
        let known = shapes.entry(shape).or_insert_with(|| {
            let lacks = self.engines.iter().map(|engine| lacks(&**engine, program));
            let lacks: Vec<_> = lacks.collect();
            let fit = lacks.iter().map(Option::is_none).collect();
            let lacks = lacks.into_iter().enumerate().skip(CPU + 1);
            news.extend(lacks.filter_map(|(engine, step)| Some((engine, step?))));
            Shape { policy: Policy::new(self.start_ups.as_deref().unwrap_or_default()), fit }
        });
        news.retain(|lack| !told.contains(lack));
        told.extend(&news);
        let fit = known.fit.iter().zip(&*retired).map(|(&fit, &gone)| fit && !gone).collect();
        drop(state);
        for (engine, step) in news {
            let engine = self.engines[engine].name();
            (self.observer)(Event::Unsupported { program: program.name(), engine, step });
        }
        fit
    }

    /// Who runs how many of the next `items`.
    fn shares(&self, program: &Program, shape: u64, items: usize, fit: &[bool]) -> Shares {
        let mut state = locked(&self.state);
        let shares = match state.shapes.get_mut(&shape) {
            Some(known) if self.start_ups.is_some() => known.policy.next(items, fit),
            _ => Shares::of_first(items, fit),
        };
        drop(state);
        if shares.is_new {
            let names = self.engines.iter().map(|engine| engine.name());
            let parts = names.zip(shares.items.iter().copied()).filter(|&(_, items)| items > 0);
            let parts: Vec<_> = parts.collect();
            (self.observer)(Event::Chosen { program: program.name(), shares: &parts });
        }
        shares
    }

    /// Takes in what shares took, or that they failed.
    fn learn(&self, shape: u64, shares: &Shares, seconds: Option<&[f64]>) {
        if let (Some(_), Some(known)) =
            (&self.start_ups, locked(&self.state).shapes.get_mut(&shape))
        {
            known.policy.ran(shares, seconds);
        }
    }

    /// Runs parts of a batch at once, the first of them on this thread; where the system has no more threads, one after the other.
    /// Gives each engine's seconds from the common start, or nothing if a device failed.
    fn run_parts(
        &self,
        program: &Program,
        shape: u64,
        mut batch: Batch<'_>,
        items: &[usize],
    ) -> Result<Option<Vec<f64>>, RunError> {
        let mut parts = VecDeque::new();
        for (engine, &items) in items.iter().enumerate().filter(|(_, items)| **items > 0) {
            let (part, rest) = batch.split(items);
            parts.push_back((engine, part.into_operands()));
            batch = rest;
        }
        let first = parts.pop_front();
        let (others, parts) = (parts.len(), Mutex::new(parts));
        let clock = Instant::now();
        let run = |(engine, mut operands): (usize, Vec<Operand<'_>>)| {
            let ran = self.run_part(program, shape, engine, &mut operands)?;
            Ok((engine, ran.then(|| clock.elapsed().as_secs_f64())))
        };
        let next = || {
            let part = locked(&parts).pop_front();
            part.map(run)
        };
        let ran: Vec<Result<_, RunError>> = thread::scope(|scope| {
            let threads =
                (0..others).map_while(|_| thread::Builder::new().spawn_scoped(scope, next).ok());
            let threads: Vec<_> = threads.collect();
            // The first, then whatever no thread took.
            let own: Vec<_> = first.map(run).into_iter().chain(iter::from_fn(next)).collect();
            let joined =
                threads.into_iter().map(|it| it.join().unwrap_or_else(|e| resume_unwind(e)));
            own.into_iter().chain(joined.flatten()).collect()
        });
        let mut seconds = Some(vec![0.0; items.len()]);
        for part in ran {
            match (part?, &mut seconds) {
                ((engine, Some(took)), Some(seconds)) => seconds[engine] = took,
                _ => seconds = None,
            }
        }
        Ok(seconds)
    }

    /// Runs a part; if a device fails, on the CPU, over the accumulators as they were. Tells whether it did not fail.
    fn run_part(
        &self,
        program: &Program,
        shape: u64,
        engine: usize,
        operands: &mut [Operand<'_>],
    ) -> Result<bool, RunError> {
        if engine == CPU {
            return self.engines[CPU].run(program, operands).map(|()| true);
        }
        let before: Vec<_> = operands
            .iter()
            .map(|operand| match operand {
                Operand::InOut(words) => Zeroizing::new(words.to_vec()),
                _ => Zeroizing::default(),
            })
            .collect();
        let why = match self.engines[engine].run(program, operands) {
            Err(RunError::Device { why, .. }) => why,
            outcome => return outcome.map(|()| true),
        };
        for (operand, before) in operands.iter_mut().zip(&before) {
            if let Operand::InOut(words) = operand {
                words.copy_from_slice(before);
            }
        }
        let mut state = locked(&self.state);
        state.retired[engine] |= matches!(why, DeviceFault::Lost | DeviceFault::Timeout);
        if let Some(known) = state.shapes.get_mut(&shape) {
            known.fit[engine] = false;
        }
        drop(state);
        self.engines[CPU].run(program, operands)?;
        let engine = self.engines[engine].name();
        (self.observer)(Event::Failed { program: program.name(), engine, why: &why });
        Ok(false)
    }
}

impl Engine for Scheduler {
    fn name(&self) -> &'static str {
        match (&self.start_ups, self.engines.get(CPU + 1)) {
            (Some(_), _) => "auto",
            (None, first) => first.unwrap_or(&self.engines[CPU]).name(),
        }
    }

    fn info(&self) -> Info {
        let described = |e: &Arc<dyn Engine>| format!("{}: {}", e.name(), e.info().description);
        let mut engines: Vec<_> = self.engines.iter().map(described).collect();
        let cpu = engines.remove(CPU);
        let full_batch = self.engines.iter().map(|engine| engine.info().full_batch).max();
        let description = match &self.start_ups {
            _ if engines.is_empty() => cpu,
            Some(start_ups) => {
                for (engine, start_up) in engines.iter_mut().zip(start_ups) {
                    *engine += &format!(", from {:.1} ms of work on", start_up.each * 1e3);
                }
                format!("whichever is quicker, or all at once: {}; {cpu}", engines.join("; "))
            }
            None => format!("{}; what it cannot do on {cpu}", engines.join("; ")),
        };
        Info { full_batch: full_batch.unwrap_or(1), ..Info::of_host(description) }
    }

    fn supports(&self, step: &str) -> bool {
        self.engines.iter().any(|engine| engine.supports(step))
    }

    fn run(&self, program: &Program, operands: &mut [Operand<'_>]) -> Result<(), RunError> {
        let shape = shape(program);
        let mut fit = self.fit(program, shape);
        let items = interpret::count(program, operands);
        if items == 0 || !fit[CPU + 1..].contains(&true) {
            return self.engines[CPU].run(program, operands);
        }
        let mut shares = self.shares(program, shape, items, &fit);
        if shares.items[CPU] == items {
            // Batches of a few items take microseconds: nothing more is done for them.
            let clock = Instant::now();
            self.engines[CPU].run(program, operands)?;
            let mut seconds = vec![0.0; fit.len()];
            seconds[CPU] = clock.elapsed().as_secs_f64();
            self.learn(shape, &shares, Some(&seconds));
            return Ok(());
        }
        let mut batch = Batch::bind(program, operands)?;
        loop {
            let (next, rest) = batch.split(shares.items.iter().sum());
            let ran = self.run_parts(program, shape, next, &shares.items);
            self.learn(shape, &shares, ran.as_ref().ok().and_then(Option::as_deref));
            if ran?.is_none() {
                fit = self.fit(program, shape);
            }
            if rest.count() == 0 {
                return Ok(());
            }
            batch = rest;
            shares = self.shares(program, shape, batch.count(), &fit);
        }
    }
}

/// The first step of `program` that an engine lacks.
fn lacks(engine: &dyn Engine, program: &Program) -> Option<&'static str> {
    match check_support(engine, program) {
        Err(RunError::Unsupported { step, .. }) => Some(step),
        _ => None,
    }
}

/// Name, steps and sizes of a program, in words and bits: what its time depends on. Keys and numbers do not count.
fn shape(program: &Program) -> u64 {
    let mut hasher = DefaultHasher::new();
    program.name().hash(&mut hasher);
    program.steps().map(Step::name).for_each(|step| step.hash(&mut hasher));
    for value in program.values() {
        value.kind.words().hash(&mut hasher);
        if let Kind::Exponents { bits, .. } = value.kind {
            bits.hash(&mut hasher);
        }
    }
    hasher.finish()
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing that can panic happens under the locks.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
