//! An engine over two others: a device, and the CPU for whatever the device cannot do.
//!
//! A program that the device has not every step of, or that fails there, runs on the CPU. The caller's
//! observer is told, and the results are the same bits.
//!
//! [`Scheduler::preferring`] takes the device whenever it can; [`Scheduler::measuring`] takes the one that
//! was faster at programs of this shape and batches of about this size. A batch is
//! never split between the two.

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Instant,
};

use zeroize::Zeroizing;

use crate::{
    engine::{DeviceFault, Engine, Operand, RunError, check_support},
    interpret,
    program::{Program, Step},
    ring::{Ring, largest_primes},
};

/// What a scheduler decided, for a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event<'a> {
    /// The device has no such step: programs that have it run on the CPU. Told once a step.
    Unsupported {
        /// The first such program.
        program: &'a str,
        /// The step's name.
        step: &'static str,
    },
    /// The device failed, and the CPU ran the program. Batches like this one stay there;
    /// after [`DeviceFault::Lost`] and [`DeviceFault::Timeout`] everything does.
    Failed {
        /// The program.
        program: &'a str,
        /// What happened.
        why: &'a DeviceFault,
    },
    /// Both were measured, and from now on this engine runs such batches.
    Chosen {
        /// The program.
        program: &'a str,
        /// Items of the batch.
        items: usize,
        /// The engine's name.
        engine: &'static str,
    },
}

type Observer = Box<dyn Fn(Event<'_>) + Send + Sync>;

/// Runs each program on a device or on the CPU. See the [module](self) documentation.
pub struct Scheduler {
    device: Arc<dyn Engine>,
    cpu: Arc<dyn Engine>,
    /// What a run on the device costs beside its work, in seconds; none where nothing is measured.
    overhead: Option<f64>,
    observer: Observer,
    retired: AtomicBool,
    batches: Mutex<HashMap<Batch, Measured>>,
    unsupported: Mutex<Vec<&'static str>>,
}

/// The shape of a program, and how many bits the number of items has.
type Batch = (u64, u32);

impl Scheduler {
    /// Takes the device wherever it can.
    pub fn preferring(
        device: Arc<dyn Engine>,
        cpu: Arc<dyn Engine>,
        observer: impl Fn(Event<'_>) + Send + Sync + 'static,
    ) -> Self {
        Self {
            device,
            cpu,
            overhead: None,
            observer: Box::new(observer),
            retired: AtomicBool::new(false),
            batches: Mutex::default(),
            unsupported: Mutex::default(),
        }
    }

    /// Takes whichever was faster. Batches that the CPU finishes before the device would have begun stay
    /// there: what a run costs the device is measured here. For others the device is tried
    /// twice, the first time to make what it keeps; those two runs are the price of knowing.
    pub fn measuring(
        device: Arc<dyn Engine>,
        cpu: Arc<dyn Engine>,
        observer: impl Fn(Event<'_>) + Send + Sync + 'static,
    ) -> Self {
        let overhead = overhead(&*device);
        Self { overhead: Some(overhead), ..Self::preferring(device, cpu, observer) }
    }

    /// Runs on the device; if that fails, on the CPU, over the accumulators as they were.
    fn run_on_device(
        &self,
        program: &Program,
        operands: &mut [Operand<'_>],
    ) -> Result<Option<DeviceFault>, RunError> {
        let before: Vec<_> = operands
            .iter()
            .map(|operand| match operand {
                Operand::InOut(words) => Zeroizing::new(words.to_vec()),
                _ => Zeroizing::default(),
            })
            .collect();
        let why = match self.device.run(program, operands) {
            Err(RunError::Device { why, .. }) => why,
            outcome => return outcome.map(|()| None),
        };
        for (operand, before) in operands.iter_mut().zip(&before) {
            if let Operand::InOut(words) = operand {
                words.copy_from_slice(before);
            }
        }
        if matches!(why, DeviceFault::Lost | DeviceFault::Timeout) {
            self.retired.store(true, Relaxed);
        }
        self.cpu.run(program, operands)?;
        (self.observer)(Event::Failed { program: program.name(), why: &why });
        Ok(Some(why))
    }

    fn tell_unsupported(&self, program: &Program, step: &'static str) {
        let mut told = locked(&self.unsupported);
        if !told.contains(&step) {
            told.push(step);
            drop(told);
            (self.observer)(Event::Unsupported { program: program.name(), step });
        }
    }
}

impl Engine for Scheduler {
    fn name(&self) -> &'static str {
        if self.overhead.is_some() { "auto" } else { self.device.name() }
    }

    fn describe(&self) -> String {
        let [device, cpu] = [&self.device, &self.cpu].map(|e| (e.name(), e.describe()));
        let (device, cpu) =
            (format!("{}: {}", device.0, device.1), format!("{}: {}", cpu.0, cpu.1));
        match self.overhead {
            Some(seconds) => {
                format!("{device}, from {:.1} ms of work on; {cpu}", seconds * 1e3)
            }
            None => format!("{device}; what it cannot do on {cpu}"),
        }
    }

    fn supports(&self, step: &str) -> bool {
        self.device.supports(step) || self.cpu.supports(step)
    }

    fn run(&self, program: &Program, operands: &mut [Operand<'_>]) -> Result<(), RunError> {
        if self.retired.load(Relaxed) {
            return self.cpu.run(program, operands);
        }
        if let Err(RunError::Unsupported { step, .. }) = check_support(&*self.device, program) {
            self.tell_unsupported(program, step);
            return self.cpu.run(program, operands);
        }
        let items = interpret::check(program, operands)?;
        let batch = (shape(program), items.checked_ilog2().map_or(0, |log| log + 1));
        let measured = locked(&self.batches).get(&batch).copied().unwrap_or_default();
        let on_device = measured.takes_device(items, self.overhead);
        let clock = Instant::now();
        let fault = match on_device {
            true => self.run_on_device(program, operands)?,
            false => {
                self.cpu.run(program, operands)?;
                None
            }
        };
        let seconds = clock.elapsed().as_secs_f64();
        let mut batches = locked(&self.batches);
        let known = batches.entry(batch).or_default();
        let trying = known.is_trying();
        match (on_device, fault) {
            (true, Some(_)) => known.device = Rate::Unfit,
            (true, None) => known.device.add(seconds, items),
            (false, _) => known.cpu.add(seconds, items),
        }
        let known = *known;
        drop(batches);
        if let (Some(_), true, Rate::Known(_)) = (self.overhead, trying, known.device) {
            let on_device = known.takes_device(items, self.overhead);
            let engine = if on_device { self.device.name() } else { self.cpu.name() };
            (self.observer)(Event::Chosen { program: program.name(), items, engine });
        }
        Ok(())
    }

    fn first_bad_lane(&self, words: &[u64], ring: &Ring) -> Option<usize> {
        self.cpu.first_bad_lane(words, ring)
    }
}

/// What an engine takes for an item, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Rate {
    /// It never ran such a batch.
    #[default]
    Unknown,
    /// It ran one, and made what it keeps: that run says nothing.
    Warm,
    /// The mean of the last and of those before it.
    Known(f64),
    /// It failed.
    Unfit,
}

impl Rate {
    fn add(&mut self, seconds: f64, items: usize) {
        let each = seconds / items.max(1) as f64;
        *self = match *self {
            Self::Unknown => Self::Warm,
            Self::Warm => Self::Known(each),
            Self::Known(mean) => Self::Known((mean + each) / 2.0),
            Self::Unfit => Self::Unfit,
        };
    }
}

/// What is known of batches of one shape.
#[derive(Clone, Copy, Debug, Default)]
struct Measured {
    cpu: Rate,
    device: Rate,
}

impl Measured {
    /// Whether the device shall run the next such batch.
    fn takes_device(&self, items: usize, overhead: Option<f64>) -> bool {
        match (overhead, self.cpu, self.device) {
            (_, _, Rate::Unfit) => false,
            (None, ..) => true,
            (Some(overhead), Rate::Known(cpu), device) => {
                let worth = cpu * items as f64 > overhead;
                match device {
                    Rate::Known(device) => device < cpu,
                    _ => worth,
                }
            }
            _ => false,
        }
    }

    /// Whether the next run of the device tells which is faster.
    fn is_trying(&self) -> bool {
        self.device == Rate::Warm
    }
}

/// Name, steps and sizes of a program: what its time depends on. Keys and numbers do not count.
fn shape(program: &Program) -> u64 {
    let mut hasher = DefaultHasher::new();
    program.name().hash(&mut hasher);
    program.steps().map(Step::name).for_each(|step| step.hash(&mut hasher));
    program.values().iter().for_each(|value| value.kind.words().hash(&mut hasher));
    hasher.finish()
}

/// What the smallest program costs, in seconds: the best of some runs. A device that cannot run it costs everything.
fn overhead(device: &dyn Engine) -> f64 {
    let Ok(ring) = Ring::new(16, &largest_primes(20, 16, 1)) else {
        unreachable!("there are such primes")
    };
    let mut b = crate::Builder::new("overhead");
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
    (0..5).map(|_| run()).fold(f64::INFINITY, f64::min)
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing that can panic happens under the locks.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CpuEngine, Modulus};

    /// The CPU's results, but without `invert`, and with a fault after half of the work.
    struct Flawed(Option<DeviceFault>);

    impl Engine for Flawed {
        fn name(&self) -> &'static str {
            "flawed"
        }

        fn describe(&self) -> String {
            "a test".into()
        }

        fn supports(&self, step: &str) -> bool {
            step != "invert"
        }

        fn run(&self, program: &Program, operands: &mut [Operand<'_>]) -> Result<(), RunError> {
            CpuEngine::new().run(program, operands)?;
            match &self.0 {
                Some(why) => Err(RunError::Device { engine: "flawed", why: why.clone() }),
                None => Ok(()),
            }
        }
    }

    type Told = Arc<Mutex<Vec<String>>>;

    fn told() -> (Told, impl Fn(Event<'_>) + Send + Sync + 'static) {
        let told = Told::default();
        let all = told.clone();
        (told, move |event: Event<'_>| locked(&all).push(format!("{event:?}")))
    }

    fn preferring(why: Option<DeviceFault>) -> (Scheduler, Told) {
        let (told, observer) = told();
        let cpu = Arc::new(CpuEngine::new());
        (Scheduler::preferring(Arc::new(Flawed(why)), cpu, observer), told)
    }

    /// Adds to accumulators: a run that was begun twice would add twice.
    fn sum_in_place(engine: &dyn Engine) -> Vec<u64> {
        let ring = Arc::new(Ring::new(16, &largest_primes(50, 16, 2)).unwrap());
        let mut b = crate::Builder::new("sum");
        let acc = b.beat_sums("acc", &ring, 2);
        let x = b.beats("x", &ring, 2);
        let sum = b.add_beats("sum", acc, x);
        b.update(acc, sum);
        let (mut acc, x) = (vec![1; 16], vec![2; 16]);
        let program = b.build();
        engine.run(&program, &mut [Operand::InOut(&mut acc), Operand::In(&x)]).unwrap();
        acc
    }

    fn invert(engine: &dyn Engine) -> Vec<u64> {
        let m = Arc::new(Modulus::new("m", &[7]).unwrap());
        let mut b = crate::Builder::new("inverse");
        let x = b.residues("x", &m);
        let z = b.invert("1/x", x);
        b.output(z);
        let mut out = vec![0; 2];
        engine.run(&b.build(), &mut [Operand::In(&[3, 2]), Operand::Out(&mut out)]).unwrap();
        out
    }

    #[test]
    fn what_the_device_lacks_runs_on_the_cpu_and_is_told_once() {
        let (scheduler, told) = preferring(None);
        assert_eq!([invert(&scheduler), invert(&scheduler)], [[5, 4], [5, 4]]);
        assert_eq!(*locked(&told), [r#"Unsupported { program: "inverse", step: "invert" }"#]);
        assert_eq!(sum_in_place(&scheduler), sum_in_place(&CpuEngine::new()));
        assert_eq!(locked(&told).len(), 1);
    }

    #[test]
    fn accumulators_are_as_they_were_when_the_cpu_takes_over() {
        for (why, word) in [(DeviceFault::OutOfMemory, "OutOfMemory"), (DeviceFault::Lost, "Lost")]
        {
            let retires = why == DeviceFault::Lost;
            let (scheduler, told) = preferring(Some(why));
            for _ in 0..2 {
                assert_eq!(sum_in_place(&scheduler), sum_in_place(&CpuEngine::new()));
            }
            // The second did not try the device again.
            assert_eq!(*locked(&told), [format!("Failed {{ program: \"sum\", why: {word} }}")]);
            assert_eq!(scheduler.retired.load(Relaxed), retires);
        }
    }

    /// Seconds of `runs` batches of `items`: of an engine that measures, and of the better of two that do not.
    fn simulated(items: usize, runs: usize, cpu: f64, overhead: f64, device: f64) -> (f64, f64) {
        let (cpu, device) = (items as f64 * cpu, overhead + items as f64 * device);
        let (mut measured, mut total, mut first) = (Measured::default(), 0.0, 0.5);
        for run in 0..runs {
            // The machine does other things too.
            let noise = 1.0 + (run * 7 % 10) as f64 / 1000.0;
            if measured.takes_device(items, Some(overhead)) {
                let seconds = first + device * noise;
                first = 0.0;
                measured.device.add(seconds, items);
                total += seconds;
            } else {
                measured.cpu.add(cpu * noise, items);
                total += cpu * noise;
            }
        }
        (total, cpu.min(device) * runs as f64 * 1.0045)
    }

    /// Once both are known. Before, at most two runs of the slower engine and what it makes first.
    #[test]
    fn the_faster_engine_is_found() {
        for device in [1e-7, 1e-6, 1e-5, 0.9e-4, 1.1e-4, 1e-3, 1e-2] {
            for items in [1, 10, 100, 1000, 10_000] {
                let (cpu, overhead) = (1e-4, 2e-3);
                let (auto, best) = simulated(items, 5000, cpu, overhead, device);
                let slower = (items as f64 * cpu).max(overhead + items as f64 * device);
                let steady = auto - 2.0 * slower - 0.5;
                assert!(steady <= 1.05 * best, "{items} of {device}: {auto} and {best}");
            }
        }
    }

    /// A batch that the CPU finishes before the device would have begun never goes there.
    #[test]
    fn small_batches_stay_on_the_cpu() {
        let mut measured = Measured::default();
        (0..100).for_each(|_| measured.cpu.add(1e-3, 10));
        assert!(
            !measured.takes_device(10, Some(1.1e-3)) && measured.takes_device(10, Some(0.9e-3))
        );
        assert!(measured.takes_device(10, None));
    }

    #[test]
    fn engines_that_measure_tell_what_they_chose() {
        let (told, observer) = told();
        let cpu = Arc::new(CpuEngine::new());
        let mut scheduler = Scheduler::measuring(Arc::new(Flawed(None)), cpu, observer);
        assert!(scheduler.overhead.is_some_and(|seconds| 0.0 < seconds && seconds < 1.0));
        assert_eq!(scheduler.name(), "auto");
        // Whatever the clock said.
        scheduler.overhead = Some(0.0);
        for _ in 0..6 {
            assert_eq!(sum_in_place(&scheduler), sum_in_place(&CpuEngine::new()));
        }
        let told = locked(&told);
        assert!(
            told.len() == 1 && told[0].starts_with("Chosen { program: \"sum\", items: 1"),
            "{told:?}"
        );
    }
}

#[cfg(test)]
mod conformance {
    //! The suite over two halves of an engine.

    use super::*;
    use crate::{CpuEngine, ReferenceEngine};

    /// The oracle without transforms.
    struct Half;

    impl Engine for Half {
        fn name(&self) -> &'static str {
            "half"
        }

        fn describe(&self) -> String {
            "a test".into()
        }

        fn supports(&self, step: &str) -> bool {
            step != "ntt"
        }

        fn run(&self, program: &Program, operands: &mut [Operand<'_>]) -> Result<(), RunError> {
            check_support(self, program)?;
            ReferenceEngine.run(program, operands)
        }
    }

    fn scheduler() -> Scheduler {
        Scheduler::preferring(Arc::new(Half), Arc::new(CpuEngine::new()), |_| ())
    }

    #[test]
    fn refusals() {
        crate::conformance::refusals(&scheduler());
    }

    #[test]
    fn transforms() {
        crate::conformance::transforms(&scheduler());
    }

    #[test]
    fn support() {
        crate::conformance::support(&scheduler(), &[]);
    }
}
