//! Real runs: the same bits whoever runs which part.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use super::*;
use crate::{Builder, CpuEngine, Modulus, Public, ReferenceEngine, conformance};

/// The CPU's results, but without `invert`, and with a fault after half of the work.
struct Flawed(Option<DeviceFault>);

impl Engine for Flawed {
    fn name(&self) -> &'static str {
        "flawed"
    }

    fn info(&self) -> Info {
        Info::of_host("a test")
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
    let devices: Vec<Arc<dyn Engine>> = vec![Arc::new(Flawed(why))];
    (Scheduler::preferring(devices, Arc::new(CpuEngine::new()), observer), told)
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
    let mut operands = [
        Operand::InOut(&mut acc),
        Operand::In(&x),
        Operand::In(&[5]),
        Operand::In(&e),
        Operand::Out(&mut out),
    ];
    engine.run(&b.build(), &mut operands).unwrap();
    [acc, out].concat()
}

fn invert(engine: &dyn Engine) -> Vec<u64> {
    let m = Arc::new(Modulus::new("m", &[7]).unwrap());
    let mut b = Builder::new("inverse");
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
    let expected = r#"Unsupported { program: "inverse", engine: "flawed", step: "invert" }"#;
    assert_eq!(*locked(&told), [expected]);
    assert_eq!(sums(&scheduler, 3), sums(&CpuEngine::new(), 3));
    assert_eq!(locked(&told).len(), 1);
}

#[test]
fn accumulators_are_as_they_were_when_the_cpu_takes_over() {
    for (why, word) in [(DeviceFault::OutOfMemory, "OutOfMemory"), (DeviceFault::Lost, "Lost")] {
        let retires = why == DeviceFault::Lost;
        let (scheduler, told) = preferring(Some(why));
        for _ in 0..2 {
            assert_eq!(sums(&scheduler, 5), sums(&CpuEngine::new(), 5));
        }
        // The second did not try the device again.
        let expected = format!("Failed {{ program: \"sums\", engine: \"flawed\", why: {word} }}");
        assert_eq!(*locked(&told), [expected]);
        assert_eq!(locked(&scheduler.state).retired, [false, retires]);
    }
}

/// Every batch in these parts of eighths, whatever was measured.
struct Forced {
    scheduler: Scheduler,
    eighths: [usize; 3],
}

impl Forced {
    fn new(devices: [Arc<dyn Engine>; 2], eighths: [usize; 3]) -> (Self, Told) {
        let (told, observer) = told();
        let cpu = Arc::new(CpuEngine::new());
        (Self { scheduler: Scheduler::preferring(devices.into(), cpu, observer), eighths }, told)
    }
}

impl Engine for Forced {
    fn name(&self) -> &'static str {
        "forced"
    }

    fn info(&self) -> Info {
        Info::of_host("a test")
    }

    fn supports(&self, _: &str) -> bool {
        true
    }

    fn run(&self, program: &Program, operands: &mut [Operand<'_>]) -> Result<(), RunError> {
        let batch = Batch::bind(program, operands)?;
        let count = batch.count();
        let mut items = self.eighths.map(|eighths| eighths * count / 8);
        items[2] += count - items.iter().sum::<usize>();
        self.scheduler.run_parts(program, shape(program), batch, &items).map(|_| ())
    }
}

#[test]
fn parts_are_the_whole() {
    let expected: Vec<_> = [0, 1, 2, 7, 8, 50].map(|n| sums(&ReferenceEngine, n)).into();
    for eighths in [[0, 0, 8], [3, 5, 0], [1, 2, 5], [4, 4, 0], [0, 1, 7], [8, 0, 0]] {
        for fault in [None, Some(DeviceFault::Timeout)] {
            let devices: [Arc<dyn Engine>; 2] =
                [Arc::new(ReferenceEngine), Arc::new(Flawed(fault))];
            let (forced, _) = Forced::new(devices, eighths);
            let found: Vec<_> = [0, 1, 2, 7, 8, 50].map(|n| sums(&forced, n)).into();
            assert!(found == expected, "{eighths:?}");
        }
    }
}

/// The whole suite over three engines at once, one of which always fails.
#[test]
fn conformance_of_parts() {
    let fails: Arc<dyn Engine> = Arc::new(Flawed(Some(DeviceFault::OutOfMemory)));
    let (forced, told) = Forced::new([Arc::new(ReferenceEngine), fails], [2, 3, 3]);
    for case in [
        conformance::residues,
        conformance::powers,
        conformance::pairs,
        conformance::dots,
        conformance::transforms,
        conformance::polynomials,
        conformance::sampling,
        conformance::packing,
        conformance::random_programs,
        conformance::refusals,
    ] {
        case(&forced);
    }
    assert!(locked(&told).iter().all(|line| line.starts_with("Failed")));
    assert!(!locked(&told).is_empty());
}

/// The oracle, and how often it ran.
struct Counted(Arc<AtomicUsize>);

impl Engine for Counted {
    fn name(&self) -> &'static str {
        "counted"
    }

    fn info(&self) -> Info {
        Info::of_host("a test")
    }

    fn supports(&self, _: &str) -> bool {
        true
    }

    fn run(&self, program: &Program, operands: &mut [Operand<'_>]) -> Result<(), RunError> {
        self.0.fetch_add(1, Relaxed);
        ReferenceEngine.run(program, operands)
    }
}

/// An engine that measures gives the same bits while it learns, while it tries, and when a device fails.
#[test]
fn measuring_gives_the_same_bits() {
    for fault in [None, Some(DeviceFault::Failed { why: "a test".into() })] {
        let (told, observer) = told();
        let runs = Arc::new(AtomicUsize::new(0));
        let devices: Vec<Arc<dyn Engine>> =
            vec![Arc::new(Counted(runs.clone())), Arc::new(Flawed(fault.clone()))];
        let cpu = Arc::new(CpuEngine::new());
        // Whatever a clock said, both are worth a trial.
        let start_ups = Some(vec![StartUp::default(); 2]);
        let scheduler = Scheduler { start_ups, ..Scheduler::preferring(devices, cpu, observer) };
        for n in [0, 1, 300, 64, 7].into_iter().cycle().take(60) {
            assert!(sums(&scheduler, n) == sums(&ReferenceEngine, n), "{n} items");
        }
        let failed = locked(&told).iter().filter(|line| line.starts_with("Failed")).count();
        assert_eq!(failed, usize::from(fault.is_some()), "{told:?}");
        // Otherwise all of this was of the CPU. More than these trials is the clock's to decide.
        assert!(runs.load(Relaxed) >= 2, "the device had no part in it");
        assert!(!locked(&told).iter().any(|line| line.contains("shares: []")), "{told:?}");
    }
}

#[test]
fn a_device_that_fails_at_start_is_told_and_left_out() {
    let (told, observer) = told();
    let runs = Arc::new(AtomicUsize::new(0));
    let devices: Vec<Arc<dyn Engine>> =
        vec![Arc::new(Flawed(Some(DeviceFault::Timeout))), Arc::new(Counted(runs.clone()))];
    let scheduler = Scheduler::measuring(devices, Arc::new(CpuEngine::new()), observer);
    let expected = r#"Failed { program: "start-up", engine: "flawed", why: Timeout }"#;
    assert_eq!(*locked(&told), [expected]);
    assert_eq!((scheduler.name(), scheduler.engines.len()), ("auto", 2));
    let [measured] = scheduler.start_ups.as_deref().unwrap() else { panic!("one is left") };
    assert!(measured.each > 0.0 && measured.first.is_finite());
    assert_eq!((runs.load(Relaxed), sums(&scheduler, 9)), (5, sums(&ReferenceEngine, 9)));
}

/// Callers at once, of which one learns: the same bits, and nothing stays in a queue.
#[test]
fn measuring_gives_callers_at_once_the_same_bits() {
    for fault in [None, Some(DeviceFault::OutOfMemory)] {
        let runs = Arc::new(AtomicUsize::new(0));
        let devices: Vec<Arc<dyn Engine>> =
            vec![Arc::new(Counted(runs.clone())), Arc::new(Flawed(fault))];
        let cpu = Arc::new(CpuEngine::new());
        let start_ups = Some(vec![StartUp::default(); 2]);
        let scheduler = Scheduler { start_ups, ..Scheduler::preferring(devices, cpu, |_| ()) };
        let expected = [64, 300].map(|n| sums(&ReferenceEngine, n));
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    (0..20).for_each(|_| {
                        assert!([64, 300].map(|n| sums(&scheduler, n)) == expected);
                    });
                });
            }
        });
        assert!(runs.load(Relaxed) > 0);
        let state = locked(&scheduler.state);
        assert!(state.shapes.values().all(|known| known.policy.is_idle()));
    }
}

/// How often another engine was opened by the end of each batch.
fn opened(worth: f64, batches: &[usize], open: fn() -> Arc<dyn Engine>) -> Vec<usize> {
    let count = Arc::new(AtomicUsize::new(0));
    let counted = count.clone();
    let open = move |_| {
        counted.fetch_add(1, Relaxed);
        open()
    };
    let engine = OnDemand::new(Arc::new(CpuEngine::new()), open).after(worth);
    let check = |&items: &usize| {
        assert!(sums(&engine, items) == sums(&ReferenceEngine, items), "{items} items");
        count.load(Relaxed)
    };
    batches.iter().map(check).collect()
}

#[test]
fn a_device_is_opened_once_there_is_work_for_it() {
    let open = || Arc::new(ReferenceEngine) as Arc<dyn Engine>;
    // No time that a clock tells is as long, none as short.
    assert_eq!(opened(f64::INFINITY, &[0, 10, 5000, 10], open), [0, 0, 0, 0]);
    let soon = f64::MIN_POSITIVE;
    // Within a batch; or before the next where one is too small to be cut.
    assert_eq!(opened(soon, &[5000, 10], open), [1, 1]);
    assert_eq!(opened(soon, &[10, 10, 5000], open), [0, 1, 1]);
    // Drivers do.
    assert_eq!(opened(soon, &[5000, 10, 5000], || panic!("a test")), [1, 1, 1]);
}

#[test]
fn callers_at_once_open_one_device() {
    let count = Arc::new(AtomicUsize::new(0));
    let counted = count.clone();
    let open = move |cpu| {
        counted.fetch_add(1, Relaxed);
        cpu
    };
    let engine = OnDemand::new(Arc::new(CpuEngine::new()), open).after(f64::MIN_POSITIVE);
    let expected = sums(&ReferenceEngine, 300);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| (0..4).for_each(|_| assert!(sums(&engine, 300) == expected)));
        }
    });
    assert_eq!(count.load(Relaxed), 1);
}

/// Exponents of a few bits take less time than those of many in as many words.
#[test]
fn programs_of_other_exponents_are_of_another_shape() {
    let m = Arc::new(Modulus::new("m", &[7]).unwrap());
    let [a, b, c] = [8, 64, 8].map(|bits| {
        let mut b = Builder::new("power");
        let (x, e) = (b.residues("x", &m), b.exponents::<Public>("e", bits));
        let power = b.pow("power", x, e);
        b.output(power);
        shape(&b.build())
    });
    assert!(a != b && a == c);
}

/// The suite over two halves of an engine.
mod halves {
    use super::*;

    /// The oracle without transforms.
    struct Half;

    impl Engine for Half {
        fn name(&self) -> &'static str {
            "half"
        }

        fn info(&self) -> Info {
            Info::of_host("a test")
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
        Scheduler::preferring(vec![Arc::new(Half)], Arc::new(CpuEngine::new()), |_| ())
    }

    #[test]
    fn refusals() {
        conformance::refusals(&scheduler());
    }

    #[test]
    fn transforms() {
        conformance::transforms(&scheduler());
    }

    #[test]
    fn support() {
        conformance::support(&scheduler(), &[]);
    }
}
