//! Recordings on an adapter: parts of a batch go round a ring of slots, each with memory of its own
//! on both sides. While the device computes one part, the host fills the next and empties the one
//! before. Nothing else knows in which order words are copied.

use std::{ops::Range, sync::mpsc};

use rayon::prelude::*;

use super::{
    device::{GpuDevice, unmapped},
    pool::Purpose,
    record::{Command, Dispatch, GpuRecording},
    shaders::PARAMS_BYTES,
};
use crate::{
    device::{Buffer, DeviceBatch, DeviceJob, Memory},
    engine::DeviceFault,
};

/// Parts of a batch that are on their way at once: one goes up while the device computes another
/// and a third comes down.
pub(super) const PARTS_AT_ONCE: usize = 3;

impl GpuDevice {
    /// Runs all parts that are left of a job; `batch.done` is how far it came.
    ///
    /// # Errors
    /// Of any kind. After `OutOfMemory` all parts that were begun are done, so that others may follow.
    pub(super) fn run(
        &self,
        job: &mut DeviceJob<'_, '_, GpuRecording<'_>>,
    ) -> Result<(), DeviceFault> {
        let mut ring = PartRing { device: self, slots: vec![] };
        let outcome = ring.run(job);
        let is_clean = self.guard(|| ring.close(job.secret)).is_ok();
        if ring.slots.iter().any(|slot| slot.flight.is_some()) {
            self.wait_unseen();
        }
        ring.give_back(outcome.is_ok() && is_clean);
        if outcome.is_err() {
            self.clear_pool();
            // They may have been made while something went wrong, and would fail for ever.
            self.forget_pipelines();
        }
        outcome
    }

    /// Does once what is recorded, which has no operands; whatever it holds may be secret.
    pub(super) fn once(&self, recording: &GpuRecording<'_>) -> Result<(), DeviceFault> {
        let mut batch = DeviceBatch::empty();
        let recordings = [recording; 2];
        self.run(&mut DeviceJob { batch: &mut batch, size: 1, recordings, secret: true })
    }
}

struct PartRing<'d> {
    device: &'d GpuDevice,
    slots: Vec<Slot>,
}

impl PartRing<'_> {
    fn run(&mut self, job: &mut DeviceJob<'_, '_, GpuRecording<'_>>) -> Result<(), DeviceFault> {
        let (mut outcome, mut next) = (Ok(()), 0);
        for (items, which) in job.parts() {
            outcome = self.begin(next, job, items, which);
            if outcome.is_err() {
                break;
            }
            next = (next + 1) % PARTS_AT_ONCE;
        }
        if !matches!(outcome, Ok(()) | Err(DeviceFault::OutOfMemory)) {
            return outcome;
        }
        // The oldest first. What was not begun as it should be does not count.
        let last = PARTS_AT_ONCE - usize::from(outcome.is_err());
        for index in (0..last).map(|later| (next + PARTS_AT_ONCE - last + later) % PARTS_AT_ONCE) {
            if let Some(slot) = self.slots.get_mut(index) {
                self.device.guard(|| slot.end(self.device, job.batch))?;
            }
        }
        outcome
    }

    /// Ends what a slot has, and gives it to the device with new items.
    fn begin(
        &mut self,
        index: usize,
        job: &mut DeviceJob<'_, '_, GpuRecording<'_>>,
        items: Range<usize>,
        which: usize,
    ) -> Result<(), DeviceFault> {
        if index == self.slots.len() {
            self.slots.push(Slot::default());
        }
        let (device, slot) = (self.device, &mut self.slots[index]);
        device.guard(|| slot.end(device, job.batch))?;
        device.guard(|| {
            let recording = job.recordings[which];
            let prepared = match slot.prepared.take() {
                Some(prepared) if prepared.which == which => prepared,
                _ => Prepared::new(device, recording, which, &mut slot.memory)?,
            };
            let prepared = slot.prepared.insert(prepared);
            slot.flight = Some(prepared.submit(device, recording, job.batch, items)?);
            Ok(())
        })
    }

    /// Overwrites all memory if it may be secret.
    fn close(&self, secret: bool) -> Result<(), DeviceFault> {
        let mut encoder = self.device.device.create_command_encoder(&Default::default());
        for slot in &self.slots {
            let flight = slot.prepared.as_ref().filter(|_| slot.flight.is_some());
            if let Some(down) = flight.and_then(|prepared| prepared.down.as_ref()) {
                // The host was to get it.
                down.unmap();
            }
            if !secret {
                continue;
            }
            for buffer in &slot.memory {
                if !buffer.usage().contains(wgpu::BufferUsages::MAP_WRITE) {
                    encoder.clear_buffer(buffer, 0, None);
                } else if flight.is_some_and(|prepared| prepared.up == *buffer) {
                    wipe_when_done(buffer);
                } else {
                    // What the host does not have now the device never had, or lost.
                    let _ = wipe(buffer);
                }
            }
        }
        if secret {
            self.device.queue.submit([encoder.finish()]);
        }
        Ok(())
    }

    /// Memory goes to later runs if they may `keep` it.
    fn give_back(self, keep: bool) {
        let memory = self.slots.into_iter().flat_map(|slot| slot.memory);
        if keep {
            self.device.give_back(memory);
        } else {
            #[cfg(test)]
            self.device.pool().failed.extend(memory);
        }
    }
}

/// A part that the device has.
struct Flight {
    items: Range<usize>,
    /// Which operands come down, and how many bytes of each.
    outputs: Vec<(usize, u64)>,
    submission: wgpu::SubmissionIndex,
    /// Receives word when memory on both ways is the host's.
    mapped: mpsc::Receiver<Result<(), wgpu::BufferAsyncError>>,
}

/// Memory for one part at a time.
#[derive(Default)]
struct Slot {
    /// All that the slot has had.
    memory: Vec<wgpu::Buffer>,
    prepared: Option<Prepared>,
    flight: Option<Flight>,
}

impl Slot {
    /// Waits for the part that the device has, if it has one, and writes its results.
    fn end(&mut self, device: &GpuDevice, batch: &mut DeviceBatch<'_>) -> Result<(), DeviceFault> {
        let (Some(flight), Some(Prepared { down, .. })) = (&self.flight, &self.prepared) else {
            return Ok(());
        };
        let Flight { items, outputs, submission, mapped } = flight;
        device.wait(Some(submission.clone()))?;
        for _ in 0..1 + down.iter().count() {
            // Another thread may just be telling.
            mapped.recv_timeout(device.patience()).map_err(unmapped)?.map_err(unmapped)?;
        }
        if let Some(down) = down {
            let mut at = 0;
            for &(operand, bytes) in outputs {
                let view = down.get_mapped_range(at..at + bytes).map_err(unmapped)?;
                copy(bytemuck::cast_slice_mut(batch.output(operand, items)), &view);
                at += bytes;
            }
            down.unmap();
        }
        batch.done = items.end;
        self.flight = None;
        Ok(())
    }
}

/// Memory of a slot, bound for one of a job's recordings.
struct Prepared {
    which: usize,
    /// Whether its constants are there.
    filled: bool,
    /// For each place of the recording's layout.
    places: Vec<wgpu::Buffer>,
    params: wgpu::Buffer,
    up: wgpu::Buffer,
    down: Option<wgpu::Buffer>,
    /// For each dispatch.
    bound: Vec<(wgpu::ComputePipeline, wgpu::BindGroup)>,
}

impl Prepared {
    /// Takes the memory that a recording needs, of what there is or new, and binds it.
    fn new(
        device: &GpuDevice,
        recording: &GpuRecording<'_>,
        which: usize,
        memory: &mut Vec<wgpu::Buffer>,
    ) -> Result<Self, DeviceFault> {
        // Each of these may serve once.
        let mut spare = memory.clone();
        let mut take = |purpose: Purpose, bytes: u64| {
            let fits =
                |buffer: &wgpu::Buffer| buffer.usage() == purpose.usage() && buffer.size() >= bytes;
            let found = spare.iter().enumerate().filter(|(_, buffer)| fits(buffer));
            match found.min_by_key(|(_, buffer)| buffer.size()).map(|(index, _)| index) {
                Some(index) => Ok(spare.swap_remove(index)),
                None => {
                    let buffer = device.take(purpose, bytes)?;
                    memory.push(buffer.clone());
                    Ok(buffer)
                }
            }
        };
        let sizes = recording.layout.sizes.iter();
        let places = sizes.map(|&size| take(Purpose::Values, size)).collect::<Result<_, _>>()?;
        let stride = params_stride(device);
        let params_bytes = stride * recording.dispatches().count() as u64;
        let [up, down] = recording.item_bytes();
        let params = take(Purpose::Params, params_bytes)?;
        let up = take(Purpose::Up, recording.constant_bytes() + params_bytes + up)?;
        let down = if down > 0 { Some(take(Purpose::Down, down)?) } else { None };
        let mut prepared = Self { which, filled: false, places, params, up, down, bound: vec![] };
        let bound = recording.dispatches().enumerate().map(|(index, dispatch)| {
            let (kernel, shape) = dispatch.work.kernel();
            let group = prepared.bind(device, recording, dispatch, index as u64 * stride);
            (device.pipeline(kernel, shape), group)
        });
        prepared.bound = bound.collect();
        Ok(prepared)
    }

    /// Returns the memory of a buffer of a recording.
    fn buffer<'s>(&'s self, recording: &'s GpuRecording<'_>, buffer: Buffer) -> &'s wgpu::Buffer {
        match (&recording.memory[buffer.0], recording.layout.places[buffer.0]) {
            (Memory::Resident(resident), _) => &resident.buffer,
            (Memory::Own { .. }, Some(place)) => &self.places[place],
            (Memory::Own { .. }, None) => unreachable!("what is used has a place"),
        }
    }

    fn bind(
        &self,
        device: &GpuDevice,
        recording: &GpuRecording<'_>,
        dispatch: &Dispatch,
        params_at: u64,
    ) -> wgpu::BindGroup {
        let entry = |binding: u32, buffer, offset: u64, bytes: u64| wgpu::BindGroupEntry {
            binding,
            resource: wgpu::BindingResource::Buffer(wgpu::BufferBinding {
                buffer,
                offset,
                size: std::num::NonZero::new(bytes),
            }),
        };
        let storage = |index: usize| {
            let buffer = dispatch.buffers[index];
            let bytes = recording.bytes(buffer);
            entry(index as u32 + 1, self.buffer(recording, buffer), 0, bytes)
        };
        let [constants, a, b, out, state] = std::array::from_fn(storage);
        device.device.create_bind_group(&wgpu::BindGroupDescriptor {
            label: None,
            layout: &device.layout,
            entries: &[
                entry(0, &self.params, params_at, PARAMS_BYTES as u64),
                constants,
                a,
                b,
                out,
                state,
            ],
        })
    }

    /// Fills memory on the way up, and gives the device all that there is to do.
    fn submit(
        &mut self,
        device: &GpuDevice,
        recording: &GpuRecording<'_>,
        batch: &DeviceBatch<'_>,
        items: Range<usize>,
    ) -> Result<Flight, DeviceFault> {
        let up = &self.up;
        let mut encoder = device.device.create_command_encoder(&Default::default());
        // Constants and parameters come before items, and stay in the slot.
        let stride = params_stride(device);
        let all_params = all_params(recording, stride);
        let mut pieces: Vec<(&[u8], &wgpu::Buffer)> = vec![];
        let mut start = recording.constant_bytes() + all_params.len() as u64;
        if !self.filled {
            start = 0;
            let constants = recording.constants.iter();
            pieces.extend(constants.map(|constant| {
                let words = bytemuck::cast_slice(constant.data.as_slice());
                (words, self.buffer(recording, constant.buffer))
            }));
            pieces.push((&all_params, &self.params));
        }
        pieces.extend(recording.inputs.iter().map(|input| {
            let words = batch.input(input.data, &items);
            (bytemuck::cast_slice(words), self.buffer(recording, input.buffer))
        }));
        pieces.retain(|(words, _)| !words.is_empty());
        let mut at = start;
        for (words, buffer) in &pieces {
            encoder.copy_buffer_to_buffer(up, at, buffer, 0, words.len() as u64);
            at += words.len() as u64;
        }
        if at > start {
            let mut view = up.get_mapped_range_mut(start..at).map_err(unmapped)?;
            fill(view.slice(..), &pieces);
        }
        up.unmap();
        self.encode(device, recording, &mut encoder);
        let mut at = 0;
        let mut outputs = vec![];
        for (output, down) in recording.outputs.iter().zip(self.down.iter().cycle()) {
            let bytes = recording.bytes(output.buffer);
            let buffer = self.buffer(recording, output.buffer);
            encoder.copy_buffer_to_buffer(buffer, 0, down, at, bytes);
            outputs.push((output.data, bytes));
            at += bytes;
        }
        let submission = device.queue.submit([encoder.finish()]);
        let (sender, mapped) = mpsc::channel();
        let both = [(Some(up), wgpu::MapMode::Write), (self.down.as_ref(), wgpu::MapMode::Read)];
        for (buffer, mode) in both {
            let Some(buffer) = buffer else { continue };
            let sender = sender.clone();
            buffer.map_async(mode, .., move |outcome| {
                // Nobody listens any more only where something has failed.
                let _ = sender.send(outcome);
            });
        }
        self.filled = true;
        Ok(Flight { items, outputs, submission, mapped })
    }

    /// Encodes all commands in order; what one writes the next may read.
    fn encode(
        &self,
        device: &GpuDevice,
        recording: &GpuRecording<'_>,
        encoder: &mut wgpu::CommandEncoder,
    ) {
        let most = device.limits.max_compute_workgroups_per_dimension;
        let mut bound = self.bound.iter();
        let are_dispatches = |a: &Command, b: &Command| {
            matches!((a, b), (Command::Dispatch(_), Command::Dispatch(_)))
        };
        for commands in recording.commands.chunk_by(are_dispatches) {
            if let [Command::Clear(buffer)] = commands {
                let bytes = Some(recording.bytes(*buffer));
                encoder.clear_buffer(self.buffer(recording, *buffer), 0, bytes);
                continue;
            }
            let mut pass = encoder.begin_compute_pass(&Default::default());
            let dispatches = commands.iter().filter_map(Command::dispatch);
            for (dispatch, (pipeline, group)) in dispatches.zip(bound.by_ref()) {
                pass.set_pipeline(pipeline);
                pass.set_bind_group(0, group, &[]);
                let rows = dispatch.groups.div_ceil(most);
                pass.dispatch_workgroups(dispatch.groups.div_ceil(rows.max(1)), rows, 1);
            }
        }
    }
}

/// Returns the bytes from the parameters of one dispatch to those of the next.
fn params_stride(device: &GpuDevice) -> u64 {
    let alignment = u64::from(device.limits.min_uniform_buffer_offset_alignment);
    (PARAMS_BYTES as u64).next_multiple_of(alignment)
}

/// Returns the parameters of all dispatches.
fn all_params(recording: &GpuRecording<'_>, stride: u64) -> Vec<u8> {
    let mut all = vec![0; recording.dispatches().count() * stride as usize];
    for (dispatch, room) in recording.dispatches().zip(all.chunks_mut(stride as usize)) {
        let params = dispatch.work.params();
        room[..4 * params.len()].copy_from_slice(bytemuck::cast_slice(&params));
    }
    all
}

/// Bytes that a core copies at a time: one core alone is slower than the bus.
const GRAIN: usize = 1 << 18;

/// Writes pieces one after the other.
fn fill(mut to: wgpu::WriteOnly<'_, [u8]>, pieces: &[(&[u8], &wgpu::Buffer)]) {
    let mut grains = vec![];
    for (words, _) in pieces {
        let (here, rest) = to.split_at(words.len());
        let (whole, mut tail) = here.into_chunks::<GRAIN>();
        let (from, from_tail) = words.as_chunks::<GRAIN>();
        grains.extend(whole.into_iter().zip(from));
        tail.copy_from_slice(from_tail);
        to = rest;
    }
    let copy = |(to, from): (wgpu::WriteOnly<'_, [u8; GRAIN]>, &[u8; GRAIN])| {
        wgpu::WriteOnly::<[u8]>::from(to).copy_from_slice(from);
    };
    match grains.len() {
        0 | 1 => grains.into_iter().for_each(copy),
        _ => grains.into_par_iter().for_each(copy),
    }
}

fn copy(to: &mut [u8], from: &[u8]) {
    match to.len() {
        0..=GRAIN => to.copy_from_slice(from),
        _ => {
            let grains = to.par_chunks_mut(GRAIN).zip(from.par_chunks(GRAIN));
            grains.for_each(|(to, from)| to.copy_from_slice(from));
        }
    }
}

/// Overwrites memory that the host has.
fn wipe(buffer: &wgpu::Buffer) -> Result<(), wgpu::MapRangeError> {
    let mut view = buffer.get_mapped_range_mut(..)?;
    let (grains, mut tail) = view.slice(..).into_chunks::<GRAIN>();
    tail.fill(0);
    let grains: Vec<_> = grains.into_iter().collect();
    grains.into_par_iter().for_each(|grain| wgpu::WriteOnly::<[u8]>::from(grain).fill(0));
    Ok(())
}

/// Overwrites memory when the host gets it from the device: the next caller that waits for the
/// device does it, or [`GpuDevice::wait_unseen`].
fn wipe_when_done(buffer: &wgpu::Buffer) {
    // It was to be the host's anyway, and nobody listens.
    buffer.unmap();
    let memory = buffer.clone();
    buffer.map_async(wgpu::MapMode::Write, .., move |outcome| {
        if outcome.is_ok() {
            // The mapping is there.
            let _ = wipe(&memory);
        }
    });
}
