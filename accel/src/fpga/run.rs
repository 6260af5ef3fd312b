//! A run: which items of a batch go to the card together, and what it does with them.

use std::ops::Range;

use super::{
    FpgaEngine,
    form::Form,
    record::{Buffer, Numbers, Recorder, Recording, Words},
};
use crate::{
    batch::{Batch, Job},
    engine::{DeviceFault, Operand},
    program::{Kind, Program, Source, Step},
};

/// The beats of a part that go up and come down, where there are more in a batch: 32 MiB. The card
/// computes one part while the one before it comes down and the next goes up.
const PART_BEATS: u64 = 1 << 19;

/// The most shares of a part.
const SHARES: u64 = 4;

/// A value in card memory.
#[derive(Clone, Copy)]
pub(super) struct View<'k> {
    pub(super) kind: &'k Kind,
    pub(super) buffer: Buffer,
    /// Whether one item stands for all.
    pub(super) shared: bool,
    /// The first of its items that a step is applied to.
    first: u64,
}

impl View<'_> {
    /// Returns a number of each item.
    pub(super) fn number(&self, index: usize) -> Numbers {
        let form = Form::of(self.kind);
        let length = form.length();
        let stride = if self.shared { 0 } else { form.beats() };
        let start = self.first * stride + index as u64 * length;
        Numbers { buffer: self.buffer, start, stride, length }
    }
}

/// A step's result and its arguments, over `count` items.
#[derive(Clone, Copy)]
pub(super) struct Applied<'s> {
    pub(super) out: &'s View<'s>,
    pub(super) args: &'s [View<'s>],
    pub(super) count: u64,
}

/// Runs a program over operands that fit it.
pub(super) fn run(
    engine: &FpgaEngine,
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
        // A modulus may be secret even where no value is.
        let secret = program.has_secrets() || program.steps().any(Step::is_of_residues);
        let job = &mut Job { batch: &mut batch, size, recordings, secret };
        match engine.device.run(job) {
            // Constants of another run have taken memory meanwhile.
            Err(DeviceFault::OutOfMemory) if size > 1 => size = size.div_ceil(2),
            outcome => return outcome,
        }
    }
}

/// Counts the multiplications of digits and words of a run. Those that make constants are not
/// counted.
///
/// # Errors
/// As [`part`] has them.
pub(super) fn multiplies(
    engine: &FpgaEngine,
    program: &Program,
    operands: &[Operand<'_>],
    count: usize,
) -> Result<u64, DeviceFault> {
    if count == 0 {
        return Ok(0);
    }
    let batch = Batch::unwritten(program, operands, count);
    let size = part(engine, program, &batch)?;
    let rows = engine.device.sizes.rows;
    let of_part = |items| Ok(record(engine, program, &batch, items)?.multiplies(rows));
    let rest = match count % size {
        0 => 0,
        rest => of_part(rest)?,
    };
    Ok((count / size) as u64 * of_part(size)? + rest)
}

/// Returns the items of a batch that go to the card at once, about as many in each part: all where
/// there are few, else so many that two parts have room in its memory.
///
/// # Errors
/// Out of memory, if the card cannot hold even one; or constants could not be made.
fn part(engine: &FpgaEngine, program: &Program, batch: &Batch<'_>) -> Result<usize, DeviceFault> {
    let count = batch.count;
    let one = record(engine, program, batch, 1)?;
    let beats = |items| Ok::<u64, DeviceFault>(record(engine, program, batch, items)?.beats());
    let (first, second) = (one.beats(), if count > 1 { beats(2)? } else { 0 });
    // What was made for the first recording takes room as well.
    let room = engine.device.room();
    if first > room {
        return Err(DeviceFault::OutOfMemory);
    }
    let fits = |room: u64| {
        let more = room.saturating_sub(first) / second.saturating_sub(first).max(1);
        usize::try_from(more).map_or(count, |more| count.min(more.saturating_add(1)))
    };
    let worth = PART_BEATS.div_ceil(one.item_beats().max(1)).max(engine.full_batch()) as usize;
    let items = if fits(room) == count { count.min(worth) } else { fits(room / 2).min(worth) };
    let mut items = count.div_ceil(count.div_ceil(items));
    while items > 1 && beats(items)? > room {
        items = items.div_ceil(2);
    }
    Ok(items)
}

/// Returns the shares of a part that its steps are applied to one after the other: the descriptors of a share wait for
/// each other, those of another do not, and so the units that it leaves idle work on the next. None is smaller than
/// `least`, which keeps the arrays busy.
fn shares(count: u64, least: u64) -> impl Iterator<Item = Range<u64>> {
    let shares = (count / least.max(1)).clamp(1, SHARES);
    (0..shares).map(move |share| share * count / shares..(share + 1) * count / shares)
}

/// Records a program over `count` items.
fn record<'o>(
    engine: &FpgaEngine,
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
        let form = Form::of(kind);
        let (buffer, shared) = match &value.source {
            Source::Constant(constant) => {
                (recorder.constant(Words::Borrowed(constant.words()), form), true)
            }
            Source::Input { .. } => {
                let shared = batch.shared(operand);
                let buffer = match shared {
                    Some(words) => recorder.constant(Words::Borrowed(words), form),
                    None => {
                        let buffer = recorder.buffer(form.beats() * count as u64);
                        recorder.input(buffer, form, operand);
                        buffer
                    }
                };
                operand += 1;
                (buffer, shared.is_some())
            }
            Source::Step { .. } => (recorder.buffer(form.beats() * count as u64), false),
        };
        views.push(View { kind, buffer, shared, first: 0 });
    }
    for (index, value) in values.iter().enumerate() {
        let Source::Step { step, operands } = &value.source else { continue };
        for items in shares(count as u64, engine.full_batch() / 2) {
            let view = |value: usize| View { first: items.start, ..views[value] };
            let args: Vec<_> = operands.iter().map(|&operand| view(operand)).collect();
            let (out, count) = (&view(index), items.end - items.start);
            engine.step(&mut recorder, step, Applied { out, args: &args, count })?;
        }
    }
    for &(target, after) in program.updates() {
        // What replaces an accumulator comes down to the same place.
        if let Some(operand) = program.inputs().position(|(value, _)| value == target) {
            recorder.output(views[after].buffer, Form::of(views[after].kind), operand);
        }
    }
    for (index, &value) in program.outputs().iter().enumerate() {
        recorder.output(views[value].buffer, Form::of(views[value].kind), operand + index);
    }
    recorder.finish()
}
