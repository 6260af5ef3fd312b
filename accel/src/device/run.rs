//! A run: a program is recorded over parts of a batch, which go to the device.

use super::{
    Applied, DeviceBatch, DeviceJob, DeviceKind, DeviceValue, HostWords, Recorder, Recording,
};
use crate::{
    engine::{DeviceFault, Engine, Operand},
    program::{Program, Source, Step},
};

/// An engine that records programs for a device.
pub(crate) trait Runner: Engine {
    type Target: DeviceKind;

    /// Records a step that the engine supports.
    ///
    /// # Errors
    /// Constants that it needs could not be made.
    fn step<'o>(
        &self,
        recorder: &mut Recorder<'o, Self::Target>,
        step: &'o Step,
        applied: Applied<'_>,
    ) -> Result<(), DeviceFault>;

    /// Returns the items of a batch that go to the device at once, about as many in each part.
    ///
    /// # Errors
    /// Out of memory, if the device cannot hold even one; or constants could not be made.
    fn part(&self, program: &Program, batch: &DeviceBatch<'_>) -> Result<usize, DeviceFault>;

    /// Returns into how many shares, one after the other, each step cuts `count` items.
    fn shares(&self, _count: usize) -> usize {
        1
    }

    /// Returns whether device memory of a run has to be overwritten.
    fn is_secret(&self, program: &Program) -> bool {
        program.has_secrets()
    }

    /// Does all parts that are left of a job; `batch.done` is how far it came.
    ///
    /// # Errors
    /// Of any kind. After `OutOfMemory` all parts that were begun are done, so that others may follow.
    fn execute(
        &self,
        job: &mut DeviceJob<'_, '_, Recording<'_, Self::Target>>,
    ) -> Result<(), DeviceFault>;

    /// Counts the products of a recording.
    fn products(&self, recording: &Recording<'_, Self::Target>) -> u64;
}

/// Runs a program over operands that fit it.
pub(crate) fn run<R: Runner>(
    engine: &R,
    program: &Program,
    operands: &mut [Operand<'_>],
    count: usize,
) -> Result<(), DeviceFault> {
    let mut batch = DeviceBatch::new(program, operands, count);
    if count == 0 {
        return Ok(());
    }
    let mut size = engine.part(program, &batch)?;
    loop {
        let left = count - batch.done;
        size = size.min(left);
        let full = record(engine, program, &batch, size)?;
        let rest = match left % size {
            0 => None,
            rest => Some(record(engine, program, &batch, rest)?),
        };
        let recordings = [&full, rest.as_ref().unwrap_or(&full)];
        let secret = engine.is_secret(program);
        match engine.execute(&mut DeviceJob { batch: &mut batch, size, recordings, secret }) {
            // The device has less than was thought. What is done stays done.
            Err(DeviceFault::OutOfMemory) if size > 1 => size = size.div_ceil(2),
            outcome => return outcome,
        }
    }
}

/// Counts the products of a run; none where there are operands missing, or the device fails. Those that make constants
/// are not counted.
pub(crate) fn multiplies<R: Runner>(
    engine: &R,
    program: &Program,
    operands: &[Operand<'_>],
    count: usize,
) -> Option<u64> {
    if operands.len() != program.inputs().count() + program.outputs().len() {
        return None;
    }
    if count == 0 {
        return Some(0);
    }
    let batch = DeviceBatch::unwritten(program, operands, count);
    let size = engine.part(program, &batch).ok()?;
    let of_part = |items| Some(engine.products(&record(engine, program, &batch, items).ok()?));
    let rest = match count % size {
        0 => 0,
        rest => of_part(rest)?,
    };
    Some((count / size) as u64 * of_part(size)? + rest)
}

/// Records a program over `count` items.
pub(crate) fn record<'o, R: Runner>(
    engine: &R,
    program: &'o Program,
    batch: &DeviceBatch<'o>,
    count: usize,
) -> Result<Recording<'o, R::Target>, DeviceFault> {
    let values = program.values();
    let mut recorder = Recorder::default();
    let mut views: Vec<DeviceValue<'o>> = Vec::with_capacity(values.len());
    let mut operand = 0;
    for value in values {
        let kind = &value.kind;
        let form = R::Target::form(kind);
        let size = R::Target::size(&form) * count as u64;
        let (buffer, shared) = match &value.source {
            Source::Constant(constant) => {
                (recorder.item(HostWords::Borrowed(constant.words()), form), true)
            }
            Source::Input { .. } => {
                let shared = batch.shared(operand);
                let buffer = match shared {
                    Some(words) => recorder.item(HostWords::Borrowed(words), form),
                    None => {
                        let buffer = recorder.memory(size);
                        recorder.input(buffer, form, operand);
                        buffer
                    }
                };
                operand += 1;
                (buffer, shared.is_some())
            }
            Source::Step { .. } => (recorder.memory(size), false),
        };
        views.push(DeviceValue { kind, buffer, shared, first: 0 });
    }
    for (index, value) in values.iter().enumerate() {
        let Source::Step { step, operands } = &value.source else { continue };
        let shares = engine.shares(count);
        for share in 0..shares {
            let [first, end] = [share, share + 1].map(|share| share * count / shares);
            let view = |value: usize| DeviceValue { first: first as u64, ..views[value] };
            let args: Vec<_> = operands.iter().map(|&operand| view(operand)).collect();
            let (out, count) = (&view(index), (end - first) as u32);
            engine.step(&mut recorder, step, Applied { out, args: &args, count })?;
        }
    }
    let mut output = |value: usize, operand: usize| {
        recorder.output(views[value].buffer, R::Target::form(views[value].kind), operand);
    };
    for &(target, after) in program.updates() {
        // What replaces an accumulator comes down to the same place.
        if let Some(operand) = program.inputs().position(|(value, _)| value == target) {
            output(after, operand);
        }
    }
    for (index, &value) in program.outputs().iter().enumerate() {
        output(value, operand + index);
    }
    recorder.finish()
}
