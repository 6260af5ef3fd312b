//! Kernels by their definitions: for each a function of the same name over the same bindings, which
//! says in whole numbers what all its threads write. Recordings run over them with no adapter,
//! which proves the host's side: constants, layouts, parameters, cuts; and beside an adapter, which
//! proves its kernels.
//!
//! If a kernel is free to write a number in more than one way (any that is the same modulo m), its
//! twin writes the least, and [`is_free`] says so.

mod numbers;
mod rings;

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use super::{
    GpuEngine,
    device::Device,
    executor::Executor,
    multiplies,
    record::{Buffer, Command, Dispatch, Memory, Recorder, Recording, Words},
    resident::Resident,
    shaders::{Kernel, Shape},
};
use crate::{
    batch::{Batch, Job},
    engine::DeviceFault,
};
use numbers::Numbers;

/// The view of a kernel: its parameters, the buffers that it reads and those that it writes.
pub(super) struct Grid<'g> {
    pub(super) params: &'g [u32],
    pub(super) constants: &'g [u32],
    pub(super) a: &'g [u32],
    pub(super) b: &'g [u32],
    pub(super) out: &'g mut [u32],
    pub(super) state: &'g mut [u32],
    pub(super) shape: Option<Shape>,
    /// Numbers of a residue.
    pub(super) digits: u32,
}

/// Returns the twin of a kernel.
fn twin(kernel: Kernel) -> fn(&mut Grid<'_>) {
    match kernel {
        Kernel::MontMul => numbers::mont_mul,
        Kernel::Product => numbers::product,
        Kernel::Table | Kernel::PairTable => numbers::table,
        Kernel::Pow | Kernel::PairPow => numbers::pow,
        Kernel::Reduce => numbers::reduce,
        Kernel::Divide => numbers::divide,
        Kernel::Linear => numbers::linear,
        Kernel::ResiduesSum => numbers::residues_sum,
        Kernel::PairMul => numbers::pair_mul,
        Kernel::Invert => numbers::invert,
        Kernel::Choose => numbers::choose,
        Kernel::UnitPair => numbers::unit_pair,
        Kernel::PolyAdd => rings::poly_add,
        Kernel::PolySub => rings::poly_sub,
        Kernel::PolyMul => rings::poly_mul,
        Kernel::Scale => rings::scale,
        Kernel::Limbs => rings::limbs,
        Kernel::Lift => rings::lift,
        Kernel::Compose => rings::compose,
        Kernel::BaseExtend => rings::base_extend,
        Kernel::Rescale => rings::rescale,
        Kernel::Automorphism => rings::automorphism,
        Kernel::Pack => rings::pack,
        Kernel::Unpack => rings::unpack,
        Kernel::AddBeats => rings::add_beats,
        Kernel::Noise => rings::noise,
        Kernel::Ternary => rings::ternary,
        Kernel::Uniform => rings::uniform,
        Kernel::Ntt => rings::ntt,
        Kernel::Intt => rings::intt,
        Kernel::Limit => rings::limit,
    }
}

/// Returns whether what a kernel writes to `out`, and to `state`, are numbers that only have to be
/// right modulo m, or q.
fn is_free(kernel: Kernel) -> [bool; 2] {
    [
        matches!(kernel, Kernel::Table | Kernel::PairTable | Kernel::Ntt),
        matches!(kernel, Kernel::Product | Kernel::Pow | Kernel::PairPow),
    ]
}

/// Returns an engine that needs no adapter.
pub(super) fn over_twins() -> GpuEngine {
    GpuEngine::over(Executor::Twins(Arc::new(Twins::new())))
}

/// The contents of device memory that nobody wrote.
const ANYTHING: u32 = 0xa5a5_a5a5;

/// Recordings over twins, in memory of the host.
pub(crate) struct Twins {
    memory_bytes: AtomicU64,
    /// Which kernels ran.
    seen: Mutex<HashSet<Kernel>>,
    beside: Option<Beside>,
}

/// An adapter that does what twins do.
struct Beside {
    device: Arc<Device>,
    /// How often more a kernel is tried: each shape takes a pipeline.
    left: Mutex<HashMap<(Kernel, Option<Shape>), usize>>,
}

impl Twins {
    pub(super) fn new() -> Self {
        let memory_bytes = AtomicU64::new(1 << 30);
        Self { memory_bytes, seen: Mutex::default(), beside: None }
    }

    /// Makes twins with each dispatch done by an adapter as well; it panics where that writes
    /// anything else.
    pub(super) fn beside(device: Arc<Device>) -> Self {
        let beside = Some(Beside { device, left: Mutex::default() });
        Self { beside, ..Self::new() }
    }

    pub(super) fn set_memory_bytes(&self, bytes: u64) {
        self.memory_bytes.store(bytes, Relaxed);
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        self.memory_bytes.load(Relaxed)
    }

    /// Carries recordings out as `execute::run` does on an adapter.
    pub(super) fn run(&self, job: &mut Job<'_, '_, Recording<'_>>) {
        let mut slots: [Option<Vec<Vec<u32>>>; 2] = [None, None];
        for (items, which) in job.parts() {
            let recording = job.recordings[which];
            // Whatever is recorded can be counted.
            multiplies::of(recording);
            let is_new = slots[which].is_none();
            let sizes = recording.layout.sizes.iter();
            let places = slots[which].get_or_insert_with(|| {
                sizes.map(|&bytes| vec![ANYTHING; bytes as usize / 4]).collect()
            });
            let constants = recording.constants.iter().filter(|_| is_new);
            for (buffer, words) in constants {
                with(recording, places, *buffer, |to| fill(to, words.as_slice()));
            }
            for &(buffer, operand) in &recording.inputs {
                let words = job.batch.input(operand, &items);
                with(recording, places, buffer, |to| fill(to, words));
            }
            for command in &recording.commands {
                match command {
                    Command::Clear(buffer) => {
                        with(recording, places, *buffer, |words| words.fill(0));
                    }
                    Command::Dispatch(dispatch) => self.dispatch(recording, places, dispatch),
                }
            }
            for &(buffer, operand) in &recording.outputs {
                let to = job.batch.output(operand, &items);
                with(recording, places, buffer, |words| {
                    to.iter_mut().zip(words.chunks(2)).for_each(|(to, pair)| *to = joined(pair));
                });
            }
            job.batch.done = items.end;
        }
    }

    fn dispatch(&self, recording: &Recording<'_>, places: &mut [Vec<u32>], dispatch: &Dispatch) {
        let Dispatch { kernel, shape, params, buffers, groups } = dispatch;
        let is_written = |read: &Buffer| buffers[3..].iter().any(|w| same(recording, *w, *read));
        assert!(!buffers[..3].iter().any(is_written), "{}: it reads what it writes", kernel.name());
        assert!(!same(recording, buffers[3], buffers[4]), "{}: two outputs", kernel.name());
        let mut bound = buffers.map(|buffer| {
            let mut words = vec![];
            with(recording, places, buffer, |all| words.extend_from_slice(all));
            words
        });
        let before = bound.clone();
        let [constants, a, b, out, state] = &mut bound;
        let (shape, digits) = (*shape, kernel.digits());
        twin(*kernel)(&mut Grid { params, constants, a, b, out, state, shape, digits });
        for (buffer, words) in std::iter::zip(&buffers[3..], &bound[3..]) {
            with(recording, places, *buffer, |all| all.copy_from_slice(words));
        }
        self.seen.lock().unwrap().insert(*kernel);
        let Some(Beside { device, left }) = &self.beside else { return };
        // Large shapes take long to make, and differ in nothing but size.
        if shape.is_some_and(|shape| shape.team > 2) {
            return;
        }
        let mut left = left.lock().unwrap();
        let left = left.entry((*kernel, shape)).or_insert(40);
        if *left == 0 {
            return;
        }
        *left -= 1;
        let found = on_adapter(device, dispatch, &before);
        for ((is_free, expected), found) in is_free(*kernel).into_iter().zip(&bound[3..]).zip(found)
        {
            let found = &found[..expected.len()];
            let agrees = match shape {
                Some(shape) if is_free => {
                    Numbers::of(shape, digits, &bound[0]).are_same(expected, found)
                }
                None if is_free => rings::are_same((params, &bound[0]), expected, found),
                _ => expected == found,
            };
            assert!(agrees, "{} of {groups} groups, {params:?}", kernel.name());
        }
    }
}

/// Does something with what lies behind a buffer.
fn with(
    recording: &Recording<'_>,
    places: &mut [Vec<u32>],
    buffer: Buffer,
    work: impl FnOnce(&mut [u32]),
) {
    match (&recording.memory[buffer.0], recording.layout.places[buffer.0]) {
        (Memory::Own { words }, Some(place)) => work(&mut places[place][..*words]),
        (Memory::Resident(resident), _) => match &**resident {
            Resident::Host(words) => work(&mut words.lock().unwrap()),
            Resident::Adapter(_) => panic!("twins have memory of the host"),
        },
        (Memory::Own { .. }, None) => panic!("what is used has a place"),
    }
}

/// Returns whether two buffers are the same memory.
fn same(recording: &Recording<'_>, x: Buffer, y: Buffer) -> bool {
    let place = |buffer: Buffer| recording.layout.places[buffer.0];
    x == y || (place(x).is_some() && place(x) == place(y))
}

fn fill(to: &mut [u32], words: &[u64]) {
    let halves = words.iter().flat_map(|&word| [word as u32, (word >> 32) as u32]);
    to.iter_mut().zip(halves).for_each(|(to, half)| *to = half);
}

/// Returns a number of 64 bits, or what there is of one.
fn joined(pair: &[u32]) -> u64 {
    u64::from(pair[0]) | pair.get(1).map_or(0, |&high| u64::from(high) << 32)
}

/// Returns `out` and `state` after one dispatch on an adapter.
fn on_adapter(device: &Arc<Device>, dispatch: &Dispatch, bound: &[Vec<u32>; 5]) -> [Vec<u32>; 2] {
    let wide = |words: &Vec<u32>| words.chunks(2).map(joined).collect::<Vec<u64>>();
    let [constants, a, b, out, state] = bound.each_ref().map(wide);
    let mut recorder = Recorder::default();
    let read = [&constants, &a, &b].map(|words| recorder.constant(Words::Borrowed(words)));
    let mut written = [out, state];
    let buffers = [0, 1].map(|operand| {
        let buffer = recorder.buffer(2 * written[operand].len());
        recorder.input(buffer, operand);
        recorder.output(buffer, operand);
        buffer
    });
    let buffers = [read[0], read[1], read[2], buffers[0], buffers[1]];
    recorder.again(dispatch, buffers);
    let recording = recorder.finish();
    let executor = Executor::Adapter(device.clone());
    let mut batch = Batch::of(written.iter_mut().map(Vec::as_mut_slice).collect());
    let recordings = [&recording; 2];
    let outcome = executor.run(&mut Job { batch: &mut batch, size: 1, recordings, secret: false });
    assert_eq!(outcome, Ok::<(), DeviceFault>(()), "{}", dispatch.kernel.name());
    written.map(|words| words.iter().flat_map(|&w| [w as u32, (w >> 32) as u32]).collect())
}

mod tests {
    use super::*;
    use crate::{conformance, gpu::limit};

    /// Programs over twins: what the host does is right, whatever adapter there is.
    mod host {
        use super::super::over_twins;

        crate::conformance!(over_twins(), without: ["first_bad_lane", "add_lanes", "reduce_lanes"]);
    }

    /// Each kernel over what programs make of random and extreme operands.
    #[test]
    fn kernels_are_their_twins() {
        let device = match Device::open(false) {
            Ok(device) => Arc::new(device),
            Err(why) => return println!("SKIPPED, {why}"),
        };
        let twins = Arc::new(Twins::beside(device));
        let engine = GpuEngine::over(Executor::Twins(twins.clone()));
        for (_, case) in conformance::CASES {
            case(&engine);
        }
        limit::run(&engine.executor, 100, 5).unwrap();
        let seen = twins.seen.lock().unwrap();
        let missing: Vec<_> = Kernel::ALL.iter().filter(|kernel| !seen.contains(kernel)).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }
}
