//! A run: a whole program over one part of a batch after the other, on the device.

use super::{GpuEngine, polys, record::Recorder, residues};
use crate::{
    engine::{DeviceFault, Operand},
    program::{Kind, Program, Source, Spread},
};

/// A value in device memory.
pub(super) struct View<'b> {
    pub(super) kind: &'b Kind,
    pub(super) buffer: &'b wgpu::Buffer,
    /// Whether one item stands for all.
    pub(super) shared: bool,
}

impl View<'_> {
    /// Words of 32 bits of an item.
    pub(super) fn words(&self) -> u32 {
        2 * self.kind.words() as u32
    }

    /// Words of 32 bits from one item to the next.
    pub(super) fn stride(&self) -> u32 {
        if self.shared { 0 } else { self.words() }
    }
}

/// How many items a part may have: every value of it must fit a binding, and all together
/// the engine's memory. 0 if not even one does.
pub(super) fn part(engine: &GpuEngine, program: &Program) -> u64 {
    let values = program.values();
    // Kernels count words in 32 bits.
    let binding = engine.device().binding_bytes().min(u64::from(u32::MAX));
    let (mut all, mut largest) = (1, 1);
    for value in values {
        let item = 8 * value.kind.words() as u64;
        if item > binding {
            return 0;
        }
        let own = match &value.source {
            Source::Constant { .. } | Source::Input { spread: Spread::Shared } => 0,
            _ => item,
        };
        let scratch = match &value.source {
            Source::Step { step, operands } => {
                let kinds: Vec<_> = operands.iter().map(|&i| &values[i].kind).collect();
                4 * if step.is_of_residues() {
                    residues::scratch_words(step, &value.kind, &kinds) as u64
                } else {
                    polys::scratch_words(step, &value.kind) as u64
                }
            }
            _ => 0,
        };
        all += own + scratch;
        largest = largest.max(own).max(scratch);
    }
    (engine.memory_bytes / all).max(1).min(binding / largest)
}

/// Runs a program over operands that fit it.
pub(super) fn run(
    engine: &GpuEngine,
    program: &Program,
    operands: &mut [Operand<'_>],
    count: usize,
) -> Result<(), DeviceFault> {
    let most = part(engine, program);
    if most == 0 {
        return Err(DeviceFault::OutOfMemory);
    }
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    for first in (0..count).step_by(most) {
        run_part(engine, program, operands, first, most.min(count - first))?;
    }
    Ok(())
}

/// Runs a program over `count` items from `first` on.
fn run_part(
    engine: &GpuEngine,
    program: &Program,
    operands: &mut [Operand<'_>],
    first: usize,
    count: usize,
) -> Result<(), DeviceFault> {
    let values = program.values();
    let secret = program.has_secrets();
    let mut recorder = Recorder::new(engine.device());
    let shared = |i: usize| match &values[i].source {
        Source::Constant { .. } => true,
        Source::Input { spread } => *spread == Spread::Shared,
        Source::Step { .. } => false,
    };
    let buffers: Vec<_> = (0..values.len())
        .map(|i| recorder.buffer(2 * values[i].kind.words() * if shared(i) { 1 } else { count }))
        .collect();
    let range = |value: usize| {
        let each = values[value].kind.words();
        if shared(value) { 0..each } else { first * each..(first + count) * each }
    };
    for (buffer, value) in buffers.iter().zip(values) {
        if let Source::Constant { words } = &value.source {
            recorder.upload(buffer, words);
        }
    }
    let inputs = program.inputs().count();
    let (given, wanted) = operands.split_at_mut(inputs);
    for ((value, _), operand) in program.inputs().zip(given) {
        match operand {
            Operand::In(words) | Operand::SecretIn(words) => {
                recorder.upload(&buffers[value], &words[range(value)]);
            }
            // An accumulator goes up, and what replaces it comes down to the same place.
            Operand::InOut(words) => {
                let words = &mut words[range(value)];
                match program.updates().iter().find(|&&(target, _)| target == value) {
                    Some(&(_, after)) => {
                        recorder.exchange(&buffers[value], &buffers[after], words);
                    }
                    None => recorder.upload(&buffers[value], words),
                }
            }
            Operand::Out(_) => unreachable!("operands were checked"),
        }
    }
    for (&value, operand) in program.outputs().iter().zip(wanted) {
        let Operand::Out(words) = operand else { unreachable!("operands were checked") };
        recorder.download(&buffers[value], &mut words[range(value)]);
    }
    for (i, value) in values.iter().enumerate() {
        let Source::Step { step, operands } = &value.source else { continue };
        let view =
            |i: usize| View { kind: &values[i].kind, buffer: &buffers[i], shared: shared(i) };
        let args: Vec<_> = operands.iter().map(|&operand| view(operand)).collect();
        engine.step(&mut recorder, step, &view(i), &args, count as u32)?;
    }
    recorder.finish(secret)
}
