//! A run: which items of a batch go to the device together, and what it does with them.

use super::{
    GpuEngine,
    execute::PARTS_AT_ONCE,
    multiplies,
    record::{Buffer, Recorder, Recording, Words},
};
use crate::{
    batch::{Batch, Job},
    engine::{DeviceFault, Operand},
    program::{Kind, Program, Source},
};

/// The least bytes of a part that go up and come down, where there are more in a batch. The host
/// copies them in some milliseconds: much longer than to submit takes, short beside a whole batch,
/// whose first part nothing overlaps.
const PART_BYTES: u64 = 32 << 20;

/// A value in device memory.
#[derive(Clone, Copy)]
pub(super) struct View<'k> {
    pub(super) kind: &'k Kind,
    pub(super) buffer: Buffer,
    /// Whether one item stands for all.
    pub(super) shared: bool,
}

impl View<'_> {
    /// Returns the words of 32 bits of an item.
    pub(super) fn words(&self) -> u32 {
        2 * self.kind.words() as u32
    }

    /// Returns the words of 32 bits from one item to the next.
    pub(super) fn stride(&self) -> u32 {
        if self.shared { 0 } else { self.words() }
    }
}

/// A step's result and its arguments, over `count` items.
#[derive(Clone, Copy)]
pub(super) struct Applied<'s> {
    pub(super) out: &'s View<'s>,
    pub(super) args: &'s [View<'s>],
    pub(super) count: u32,
}

/// Runs a program over operands that fit it.
pub(super) fn run(
    engine: &GpuEngine,
    program: &Program,
    operands: &mut [Operand<'_>],
    count: usize,
) -> Result<(), DeviceFault> {
    let mut batch = Batch::new(program, operands, count);
    if count == 0 {
        return Ok(());
    }
    let mut size = part(engine, program, &batch)?;
    loop {
        let left = count - batch.done;
        size = size.min(left);
        let full = record(engine, program, &batch, size)?;
        let rest = match left % size {
            0 => None,
            rest => Some(record(engine, program, &batch, rest)?),
        };
        let recordings = [&full, rest.as_ref().unwrap_or(&full)];
        let secret = program.has_secrets();
        let job = &mut Job { batch: &mut batch, size, recordings, secret };
        match engine.device.run(job) {
            // The device has less than was thought. What is done stays done.
            Err(DeviceFault::OutOfMemory) if size > 1 => size = size.div_ceil(2),
            outcome => return outcome,
        }
    }
}

/// Counts the products of a run: see [`multiplies::of`]. Those that make constants are not counted.
///
/// # Errors
/// As [`part`] has them.
pub(super) fn multiplies(
    engine: &GpuEngine,
    program: &Program,
    operands: &[Operand<'_>],
    count: usize,
) -> Result<u64, DeviceFault> {
    if count == 0 {
        return Ok(0);
    }
    let batch = Batch::unwritten(program, operands, count);
    let size = part(engine, program, &batch)?;
    let of_part = |items| Ok(multiplies::of(&record(engine, program, &batch, items)?));
    let rest = match count % size {
        0 => 0,
        rest => of_part(rest)?,
    };
    Ok((count / size) as u64 * of_part(size)? + rest)
}

/// Returns whether a device may hold it: kernels see every buffer, and count its words in 32 bits.
fn is_visible(engine: &GpuEngine, recording: &Recording<'_>) -> bool {
    recording.largest() <= engine.device.binding_bytes().min(u64::from(u32::MAX))
}

/// Returns the items of a batch that go to the device at once: enough to fill it, and about as many
/// in each part. Their memory and threads are those of recordings.
///
/// # Errors
/// Out of memory, if the device cannot hold even one; or constants could not be made.
pub(super) fn part(
    engine: &GpuEngine,
    program: &Program,
    batch: &Batch<'_>,
) -> Result<usize, DeviceFault> {
    let count = batch.count;
    let memory = engine.device.memory_bytes();
    let fits = |recording: &Recording<'_>, items: usize| {
        let at_once = PARTS_AT_ONCE.min(count.div_ceil(items)) as u64;
        is_visible(engine, recording) && at_once * recording.all_bytes() <= memory / 2
    };
    let (mut items, mut recording) = (1, record(engine, program, batch, 1)?);
    if !is_visible(engine, &recording) {
        return Err(DeviceFault::OutOfMemory);
    }
    while items < count {
        // How many times as many would be enough.
        let ratio = |want: u64, has: u64| want.div_ceil(has.max(1));
        let bytes = ratio(PART_BYTES, recording.item_bytes().iter().sum());
        let times = bytes.max(ratio(engine.device.part_threads(), recording.threads()));
        if times <= 1 {
            break;
        }
        // Below 2^31 words, however they grow.
        let most = ((1 << 33) / recording.largest().max(1)).max(2);
        let more = usize::try_from(times.min(most)).unwrap_or(usize::MAX);
        let next = items.saturating_mul(more).min(count);
        let larger = record(engine, program, batch, next)?;
        if fits(&larger, next) {
            (items, recording) = (next, larger);
            continue;
        }
        // Between the two; what they take grows with them, but for what is the same for all.
        let room = [memory / 2 / PARTS_AT_ONCE as u64, engine.device.binding_bytes()];
        let bytes = |r: &Recording<'_>| [r.all_bytes(), r.largest()];
        let limits = std::iter::zip(room, std::iter::zip(bytes(&recording), bytes(&larger)));
        let between = limits.map(|(room, (low, high))| {
            let spare = u128::from(room.saturating_sub(low)) * (next - items) as u128;
            items + usize::try_from(spare / u128::from((high - low.min(high)).max(1))).unwrap_or(0)
        });
        let between = between.min().unwrap_or(items).min(next - 1);
        if between > items && fits(&record(engine, program, batch, between)?, between) {
            items = between;
        }
        break;
    }
    Ok(count.div_ceil(count.div_ceil(items)))
}

/// Records a program over `count` items.
fn record<'o>(
    engine: &GpuEngine,
    program: &'o Program,
    batch: &Batch<'o>,
    count: usize,
) -> Result<Recording<'o>, DeviceFault> {
    let values = program.values();
    let mut recorder = Recorder::default();
    let mut views: Vec<View<'o>> = Vec::with_capacity(values.len());
    let mut operand = 0;
    for value in values {
        let kind = &value.kind;
        let words = 2 * kind.words();
        let (buffer, shared) = match &value.source {
            Source::Constant(constant) => {
                (recorder.constant(Words::Borrowed(constant.words())), true)
            }
            Source::Input { .. } => {
                let shared = batch.shared(operand);
                let buffer = match shared {
                    Some(words) => recorder.constant(Words::Borrowed(words)),
                    None => {
                        let buffer = recorder.buffer(words * count);
                        recorder.input(buffer, operand);
                        buffer
                    }
                };
                operand += 1;
                (buffer, shared.is_some())
            }
            Source::Step { .. } => (recorder.buffer(words * count), false),
        };
        views.push(View { kind, buffer, shared });
    }
    for (index, value) in values.iter().enumerate() {
        let Source::Step { step, operands } = &value.source else { continue };
        let args: Vec<_> = operands.iter().map(|&operand| views[operand]).collect();
        let (out, count) = (&views[index], count as u32);
        engine.step(&mut recorder, step, Applied { out, args: &args, count })?;
    }
    for &(target, after) in program.updates() {
        // What replaces an accumulator comes down to the same place.
        if let Some(operand) = program.inputs().position(|(value, _)| value == target) {
            recorder.output(views[after].buffer, operand);
        }
    }
    for (index, &value) in program.outputs().iter().enumerate() {
        recorder.output(views[value].buffer, operand + index);
    }
    Ok(recorder.finish())
}
