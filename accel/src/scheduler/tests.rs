//! Real runs: the same bits whichever engine runs which part.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use super::*;
use crate::{Builder, CpuEngine, Modulus, Public, ReferenceEngine, conformance};

/// A device with the oracle's results, which lacks a step, and fails in the end if it has a fault.
#[derive(Default)]
struct Test {
    lacks: &'static str,
    fault: Option<DeviceFault>,
    runs: AtomicUsize,
}

impl Engine for Test {
    fn name(&self) -> &'static str {
        "device"
    }

    fn info(&self) -> Info {
        Info::of_host("a test")
    }

    fn supports(&self, step: &str) -> bool {
        step != self.lacks
    }

    fn run(&self, program: &Program, operands: &mut [Operand<'_>]) -> Result<(), RunError> {
        self.runs.fetch_add(1, Relaxed);
        crate::engine::check_support(self, program)?;
        ReferenceEngine.run(program, operands)?;
        match self.fault.clone() {
            Some(why) => Err(RunError::Device { engine: "device", why }),
            None => Ok(()),
        }
    }
}

type Reports = Arc<Mutex<Vec<String>>>;

fn told() -> (Reports, impl Fn(Event<'_>) + Send + Sync + 'static) {
    let told = Reports::default();
    let all = told.clone();
    (told, move |event: Event<'_>| locked(&all).push(format!("{event:?}")))
}

fn preferring(lacks: &'static str, fault: Option<DeviceFault>) -> (Scheduler, Reports) {
    let (told, observer) = told();
    let device = Arc::new(Test { lacks, fault, ..Test::default() });
    (Scheduler::preferring(device, Arc::new(CpuEngine::new()), observer), told)
}

/// Returns a scheduler to which any device is worth a trial, whatever a clock says.
fn measuring(fault: Option<DeviceFault>) -> (Scheduler, Arc<Test>, Reports) {
    let (told, observer) = told();
    let device = Arc::new(Test { fault, ..Test::default() });
    let scheduler = Scheduler::measuring(Arc::new(CpuEngine::new()), || None, observer);
    let opened = Device { engine: device.clone(), start_up: StartUp::default() };
    (Scheduler { device: Some(opened).into(), ..scheduler }, device, told)
}

/// Adds to accumulators, times what all share: a run that was begun twice would add twice.
fn sums(engine: &dyn Engine, items: usize) -> Vec<u64> {
    let m = Arc::new(Modulus::new("m", &[0xffff_ffff_ffff_ffc5]).unwrap());
    let mut b = Builder::new("sums");
    let acc = b.residue_sums("acc", &m);
    let (x, shared) = (b.residues("x", &m), b.shared_residues("y", &m, 1));
    let e = b.exponents::<Public>("e", 8);
    let power = b.dot("power", shared, e);
    let product = b.mul("product", x, power);
    let sum = b.mul("sum", acc, product);
    b.update(acc, sum);
    b.output(product);
    let numbers = |from: u64| (0..items as u64).map(|i| from + 7 * i).collect::<Vec<_>>();
    let (mut acc, x, e) = (numbers(3), numbers(1 << 40), numbers(0));
    let e: Vec<_> = e.iter().map(|e| e % 256).collect();
    let mut out = vec![0; items];
    let (x, y, e) = (Operand::In(&x), Operand::In(&[5]), Operand::In(&e));
    engine
        .run(&b.build(), &mut [Operand::InOut(&mut acc), x, y, e, Operand::Out(&mut out)])
        .unwrap();
    [acc, out].concat()
}

#[test]
fn what_the_device_lacks_runs_on_the_cpu_and_is_told_once() {
    let (scheduler, told) = preferring("dot_public", None);
    for _ in 0..2 {
        assert_eq!(sums(&scheduler, 3), sums(&CpuEngine::new(), 3));
        let expected = r#"Unsupported { program: "sums", engine: "device", step: "dot_public" }"#;
        assert_eq!(*locked(&told), [expected]);
    }
    // A suite over two halves of an engine.
    let (scheduler, _) = preferring("ntt", None);
    conformance::refusals(&scheduler);
    conformance::transforms(&scheduler);
    conformance::support(&scheduler, &[]);
}

fn lost() -> DeviceFault {
    DeviceFault::Lost { why: "it burns".into() }
}

#[test]
fn accumulators_are_as_they_were_when_the_cpu_takes_over() {
    for (why, word) in
        [(DeviceFault::OutOfMemory, "OutOfMemory"), (lost(), r#"Lost { why: "it burns" }"#)]
    {
        let retires = why == lost();
        let (scheduler, told) = preferring("", Some(why));
        for _ in 0..2 {
            assert_eq!(sums(&scheduler, 5), sums(&CpuEngine::new(), 5));
        }
        // The second did not try the device again.
        let expected = format!("Failed {{ program: \"sums\", engine: \"device\", why: {word} }}");
        assert_eq!(*locked(&told), [expected]);
        assert_eq!(locked(&scheduler.state).is_retired, retires);
    }
}

/// Every batch with a number of eighths on the CPU, whatever was measured.
struct Forced(Scheduler, usize);

impl Engine for Forced {
    fn name(&self) -> &'static str {
        "forced"
    }

    fn info(&self) -> Info {
        self.0.info()
    }

    fn supports(&self, _: &str) -> bool {
        true
    }

    fn run(&self, program: &Program, operands: &mut [Operand<'_>]) -> Result<(), RunError> {
        let batch = BoundBatch::bind(program, operands)?;
        let cpu = self.1 * batch.count() / 8;
        let share = Share::new(cpu, batch.count() - cpu);
        self.0.run_parts(program, batch, &share).map(|_| ())
    }
}

#[test]
fn parts_are_the_whole() {
    let sizes = [0, 1, 2, 7, 8, 50];
    let expected = sizes.map(|n| sums(&ReferenceEngine, n));
    for eighths in [0, 1, 3, 4, 7, 8] {
        for fault in [None, Some(DeviceFault::Timeout)] {
            let forced = Forced(preferring("", fault).0, eighths);
            assert!(sizes.map(|n| sums(&forced, n)) == expected, "{eighths} eighths");
        }
    }
}

/// The whole suite over both engines at once, one of which always fails.
#[test]
fn conformance_of_parts() {
    let (scheduler, told) = preferring("", Some(DeviceFault::OutOfMemory));
    let forced = Forced(scheduler, 3);
    conformance::CASES.iter().for_each(|(_, case)| case(&forced));
    assert!(locked(&told).iter().all(|line| line.starts_with("Failed")));
    assert!(!locked(&told).is_empty());
}

/// The same bits while it learns, while it shares, and when the device fails.
#[test]
fn measuring_gives_the_same_bits() {
    for fault in [None, Some(DeviceFault::Failed { why: "a test".into() })] {
        let (scheduler, device, told) = measuring(fault.clone());
        for n in [0, 1, 300, 64, 7].into_iter().cycle().take(60) {
            assert!(sums(&scheduler, n) == sums(&ReferenceEngine, n), "{n} items");
        }
        let failed = locked(&told).iter().filter(|line| line.starts_with("Failed")).count();
        assert_eq!(failed, usize::from(fault.is_some()), "{told:?}");
        // Otherwise all of this was of the CPU. More than these trials is the clock's to decide.
        let least = if fault.is_some() { 1 } else { 2 };
        assert!(device.runs.load(Relaxed) >= least, "the device had no part in it");
    }
}

#[test]
fn a_device_that_fails_at_start_is_told_and_left_out() {
    for fault in [None, Some(DeviceFault::Timeout)] {
        let (told, observer) = told();
        let fails = fault.is_some();
        let device = Arc::new(Test { fault, ..Test::default() });
        let opens = device.clone();
        let open = move || Some(opens.clone() as Arc<dyn Engine>);
        let scheduler = Scheduler::measuring(Arc::new(CpuEngine::new()), open, observer).after(0.0);
        assert_eq!(sums(&scheduler, 9), sums(&ReferenceEngine, 9));
        let failed = r#"Failed { program: "start-up", engine: "device", why: Timeout }"#;
        assert_eq!(*locked(&told), if fails { vec![failed] } else { vec![] });
        assert_eq!(scheduler.name(), "auto");
        let measured = scheduler.device.get().unwrap().as_ref().map(|device| device.start_up);
        assert!(measured.map_or(fails, |it| it.each > 0.0 && it.first.is_finite()));
        assert_eq!(device.runs.load(Relaxed), if fails { 1 } else { 5 });
    }
}

/// Callers at once, of which one learns: the same bits, and the device is free in the end.
#[test]
fn measuring_gives_callers_at_once_the_same_bits() {
    for fault in [None, Some(DeviceFault::OutOfMemory)] {
        let (scheduler, device, _) = measuring(fault);
        let expected = [64, 300].map(|n| sums(&ReferenceEngine, n));
        let check = || assert!([64, 300].map(|n| sums(&scheduler, n)) == expected);
        thread::scope(|scope| {
            (0..8).for_each(|_| drop(scope.spawn(|| (0..20).for_each(|_| check()))));
        });
        assert!(device.runs.load(Relaxed) > 0);
        assert!(locked(&scheduler.state).splits.values().all(|split| !split.is_held));
    }
}

/// Returns an engine over the oracle in a device's place, and how often that was opened.
fn opening(worth: f64, open: fn() -> Arc<dyn Engine>) -> (Scheduler, Arc<AtomicUsize>) {
    let count = Arc::new(AtomicUsize::new(0));
    let counted = count.clone();
    let open = move || {
        counted.fetch_add(1, Relaxed);
        Some(open())
    };
    (Scheduler::measuring(Arc::new(CpuEngine::new()), open, |_| ()).after(worth), count)
}

#[test]
fn a_device_is_opened_once_there_is_work_for_it() {
    let opened = |worth, batches: [usize; 3], open| {
        let (engine, count) = opening(worth, open);
        batches.map(|items| {
            assert!(sums(&engine, items) == sums(&ReferenceEngine, items), "{items} items");
            count.load(Relaxed)
        })
    };
    let open = || Arc::new(ReferenceEngine) as Arc<dyn Engine>;
    // No time of a clock is as long, none as short.
    assert_eq!(opened(f64::INFINITY, [0, 10, 5000], open), [0, 0, 0]);
    let soon = f64::MIN_POSITIVE;
    // Within a batch; or before the next where one is too small to be cut.
    assert_eq!(opened(soon, [5000, 10, 10], open), [1, 1, 1]);
    assert_eq!(opened(soon, [10, 10, 5000], open), [0, 1, 1]);
    // Drivers do.
    assert_eq!(opened(soon, [5000, 10, 5000], || panic!("a test")), [1, 1, 1]);
}

#[test]
fn callers_at_once_open_one_device() {
    let (engine, count) = opening(f64::MIN_POSITIVE, || Arc::new(ReferenceEngine));
    let expected = sums(&ReferenceEngine, 300);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| (0..4).for_each(|_| assert!(sums(&engine, 300) == expected)));
        }
    });
    assert_eq!(count.load(Relaxed), 1);
}
