//! One submission: what goes up, which kernels run, what comes down.

use std::{sync::mpsc, time::Duration};

use zeroize::Zeroizing;

use super::{
    device::Device,
    shaders::{AsWords, GROUP, Kernel, PARAMS_BYTES, Shape},
};
use crate::engine::DeviceFault;

/// The most time that a device may take for one submission.
const PATIENCE: Duration = Duration::from_secs(300);

/// What kernels read and write, by binding.
pub(crate) struct Bindings<'b> {
    pub(crate) constants: &'b wgpu::Buffer,
    pub(crate) a: &'b wgpu::Buffer,
    pub(crate) b: &'b wgpu::Buffer,
    pub(crate) out: &'b wgpu::Buffer,
    /// What a kernel keeps from one dispatch to the next, if it does.
    pub(crate) state: Option<&'b wgpu::Buffer>,
}

/// One dispatch.
struct Dispatch {
    pipeline: wgpu::ComputePipeline,
    buffers: [wgpu::Buffer; 5],
    params: Vec<u32>,
    groups: u32,
}

/// What goes up.
enum Words<'o> {
    Borrowed(&'o [u64]),
    Owned(Zeroizing<Vec<u64>>),
}

impl Words<'_> {
    fn as_slice(&self) -> &[u64] {
        match self {
            Self::Borrowed(words) => words,
            Self::Owned(words) => words,
        }
    }
}

/// Catches what goes wrong on a device. Out of memory is first: what follows of it are errors of use.
struct Scopes(Vec<wgpu::ErrorScopeGuard>);

impl Scopes {
    fn new(device: &Device) -> Self {
        use wgpu::ErrorFilter::{Internal, OutOfMemory, Validation};
        let filters = [Internal, Validation, OutOfMemory];
        Self(filters.map(|filter| device.device.push_error_scope(filter)).into())
    }

    /// The first error.
    fn pop(mut self) -> Option<wgpu::Error> {
        let mut first = None;
        while let Some(scope) = self.0.pop() {
            let error = pollster::block_on(scope.pop());
            first = first.or(error);
        }
        first
    }
}

impl Drop for Scopes {
    fn drop(&mut self) {
        // The last first.
        while self.0.pop().is_some() {}
    }
}

/// Collects one submission. Everything that goes wrong from its making on is told at the end.
pub(crate) struct Recorder<'d, 'o> {
    device: &'d Device,
    uploads: Vec<(wgpu::Buffer, Words<'o>)>,
    dispatches: Vec<Dispatch>,
    downloads: Vec<(wgpu::Buffer, &'o mut [u64])>,
    /// What goes up to one buffer, and is replaced by what comes down from another.
    exchanges: Vec<(wgpu::Buffer, wgpu::Buffer, &'o mut [u64])>,
    /// Memory of this run alone.
    buffers: Vec<wgpu::Buffer>,
    /// At a binding that a kernel has no use for.
    nothing: wgpu::Buffer,
    scopes: Scopes,
}

impl<'d, 'o> Recorder<'d, 'o> {
    pub(super) fn new(device: &'d Device) -> Self {
        let scopes = Scopes::new(device);
        let (uploads, dispatches, buffers) = (vec![], vec![], vec![]);
        let (downloads, exchanges) = (vec![], vec![]);
        let nothing = device.buffer(1);
        Self { device, uploads, dispatches, downloads, exchanges, buffers, nothing, scopes }
    }

    /// Memory for `words` words of 32 bits, for this run.
    pub(super) fn buffer(&mut self, words: usize) -> wgpu::Buffer {
        let buffer = self.device.buffer(words);
        self.buffers.push(buffer.clone());
        buffer
    }

    /// Fills a buffer before any kernel runs.
    pub(super) fn upload(&mut self, buffer: &wgpu::Buffer, words: &'o [u64]) {
        if !words.is_empty() {
            self.uploads.push((buffer.clone(), Words::Borrowed(words)));
        }
    }

    /// Fills a buffer with words that were made for it.
    pub(super) fn upload_owned(&mut self, buffer: &wgpu::Buffer, words: Zeroizing<Vec<u64>>) {
        self.uploads.push((buffer.clone(), Words::Owned(words)));
    }

    /// Fills `before` with words that the first ones of `after` replace at the end.
    pub(super) fn exchange(
        &mut self,
        before: &wgpu::Buffer,
        after: &wgpu::Buffer,
        words: &'o mut [u64],
    ) {
        if !words.is_empty() {
            self.exchanges.push((before.clone(), after.clone(), words));
        }
    }

    /// Copies the first words of a buffer out after all kernels have run.
    pub(super) fn download(&mut self, buffer: &wgpu::Buffer, words: &'o mut [u64]) {
        if !words.is_empty() {
            self.downloads.push((buffer.clone(), words));
        }
    }

    /// Runs a kernel over `count` numbers, in teams.
    pub(super) fn over_numbers(
        &mut self,
        kernel: Kernel,
        shape: Shape,
        count: u32,
        bindings: &Bindings<'_>,
        params: &impl AsWords,
    ) {
        let groups = count.div_ceil(GROUP / shape.team);
        self.dispatch(kernel, Some(shape), groups, bindings, params);
    }

    /// Runs a kernel over `count` of what it counts: see [`Kernel::group`].
    pub(super) fn over_words(
        &mut self,
        kernel: Kernel,
        count: u32,
        bindings: &Bindings<'_>,
        params: &impl AsWords,
    ) {
        let groups = count.div_ceil(kernel.group());
        self.dispatch(kernel, None, groups, bindings, params);
    }

    fn dispatch(
        &mut self,
        kernel: Kernel,
        shape: Option<Shape>,
        groups: u32,
        bindings: &Bindings<'_>,
        params: &impl AsWords,
    ) {
        let Bindings { constants, a, b, out, state } = *bindings;
        let state = state.unwrap_or(&self.nothing);
        let buffers = [constants, a, b, out, state].map(Clone::clone);
        let pipeline = self.device.pipeline(kernel, shape);
        self.dispatches.push(Dispatch { pipeline, buffers, params: params.as_words(), groups });
    }

    /// Runs it all and waits. Memory of this run is overwritten where `secret`.
    pub(super) fn finish(self, secret: bool) -> Result<(), DeviceFault> {
        let device = self.device;
        let Self { uploads, dispatches, mut downloads, exchanges, buffers, scopes, .. } = self;
        let mut encoder = device.device.create_command_encoder(&Default::default());
        let borrowed = uploads.iter().map(|(buffer, words)| (buffer, words.as_slice()));
        let before = exchanges.iter().map(|(before, _, words)| (before, &**words));
        let uploads: Vec<_> = borrowed.chain(before).collect();
        let outcome = upload(device, &mut encoder, &uploads).and_then(|up| {
            downloads.extend(exchanges.into_iter().map(|(_, after, words)| (after, words)));
            encode(device, &mut encoder, &dispatches)?;
            download(device, encoder, downloads, if secret { &buffers } else { &[] })?;
            if secret { wipe(device, &up) } else { Ok(()) }
        });
        let error = scopes.pop();
        if error.is_some() || outcome.is_err() {
            // Whether the device is lost is told on the way.
            let _ = device.device.poll(wgpu::PollType::Poll);
        }
        let fault = device.fault(error).or(outcome.err());
        match fault {
            Some(fault) => {
                device.forget_pipelines();
                if secret {
                    // As far as the device still does anything.
                    let mut encoder = device.device.create_command_encoder(&Default::default());
                    buffers.iter().for_each(|buffer| encoder.clear_buffer(buffer, 0, None));
                    device.queue.submit([encoder.finish()]);
                }
                Err(fault)
            }
            None => Ok(()),
        }
    }
}

fn bytes(words: &[u64]) -> u64 {
    8 * words.len() as u64
}

/// A buffer of the host's side.
fn staging(device: &Device, size: u64, usage: wgpu::BufferUsages, mapped: bool) -> wgpu::Buffer {
    device.device.create_buffer(&wgpu::BufferDescriptor {
        label: None,
        size,
        usage,
        mapped_at_creation: mapped,
    })
}

fn unmapped<T>(_: T) -> DeviceFault {
    DeviceFault::Failed { why: "memory of the device could not be mapped".into() }
}

/// Copies words up, by way of memory that is given back.
fn upload(
    device: &Device,
    encoder: &mut wgpu::CommandEncoder,
    uploads: &[(&wgpu::Buffer, &[u64])],
) -> Result<wgpu::Buffer, DeviceFault> {
    use wgpu::BufferUsages as Usage;
    let all: u64 = uploads.iter().map(|(_, words)| bytes(words)).sum();
    let up = staging(device, all.max(8), Usage::MAP_WRITE | Usage::COPY_SRC, true);
    let mut at = 0;
    for (buffer, words) in uploads {
        let end = at + bytes(words);
        up.get_mapped_range_mut(at..end)
            .map_err(unmapped)?
            .copy_from_slice(bytemuck::cast_slice(words));
        encoder.copy_buffer_to_buffer(&up, at, buffer, 0, bytes(words));
        at = end;
    }
    up.unmap();
    Ok(up)
}

/// Submits all, waits, and copies words down; then `secrets` are overwritten, and what they left on the
/// way.
fn download(
    device: &Device,
    mut encoder: wgpu::CommandEncoder,
    downloads: Vec<(wgpu::Buffer, &mut [u64])>,
    secrets: &[wgpu::Buffer],
) -> Result<(), DeviceFault> {
    use wgpu::BufferUsages as Usage;
    let all: u64 = downloads.iter().map(|(_, words)| bytes(words)).sum();
    let down = staging(device, all.max(8), Usage::MAP_READ | Usage::COPY_DST, false);
    let mut at = 0;
    for (buffer, words) in &downloads {
        encoder.copy_buffer_to_buffer(buffer, 0, &down, at, bytes(words));
        at += bytes(words);
    }
    secrets.iter().for_each(|buffer| encoder.clear_buffer(buffer, 0, None));
    device.queue.submit([encoder.finish()]);
    map(device, &down, wgpu::MapMode::Read)?;
    let mut at = 0;
    for (_, words) in downloads {
        let end = at + bytes(words);
        let view = down.get_mapped_range(at..end).map_err(unmapped)?;
        bytemuck::cast_slice_mut(words).copy_from_slice(&view);
        at = end;
    }
    down.unmap();
    if !secrets.is_empty() {
        let mut encoder = device.device.create_command_encoder(&Default::default());
        encoder.clear_buffer(&down, 0, None);
        device.queue.submit([encoder.finish()]);
    }
    Ok(())
}

/// Overwrites memory by which words went up.
fn wipe(device: &Device, up: &wgpu::Buffer) -> Result<(), DeviceFault> {
    map(device, up, wgpu::MapMode::Write)?;
    up.get_mapped_range_mut(..).map_err(unmapped)?.slice(..).fill(0);
    up.unmap();
    Ok(())
}

/// Encodes all dispatches in order; what one writes the next may read.
fn encode(
    device: &Device,
    encoder: &mut wgpu::CommandEncoder,
    dispatches: &[Dispatch],
) -> Result<(), DeviceFault> {
    let alignment = u64::from(device.limits.min_uniform_buffer_offset_alignment);
    let stride = (PARAMS_BYTES as u64).next_multiple_of(alignment);
    let params =
        staging(device, stride * dispatches.len().max(1) as u64, wgpu::BufferUsages::UNIFORM, true);
    for (index, dispatch) in dispatches.iter().enumerate() {
        let at = index as u64 * stride;
        params
            .get_mapped_range_mut(at..at + 4 * dispatch.params.len() as u64)
            .map_err(unmapped)?
            .copy_from_slice(bytemuck::cast_slice(&dispatch.params));
    }
    params.unmap();
    let most = device.limits.max_compute_workgroups_per_dimension;
    let mut pass = encoder.begin_compute_pass(&Default::default());
    for (index, dispatch) in dispatches.iter().enumerate() {
        let uniform = wgpu::BindingResource::Buffer(wgpu::BufferBinding {
            buffer: &params,
            offset: index as u64 * stride,
            size: std::num::NonZero::new(PARAMS_BYTES as u64),
        });
        let [constants, a, b, out, state] = &dispatch.buffers;
        let storage = |binding: u32, buffer| wgpu::BindGroupEntry {
            binding,
            resource: wgpu::BindingResource::Buffer(wgpu::BufferBinding {
                buffer,
                offset: 0,
                size: None,
            }),
        };
        let group = device.device.create_bind_group(&wgpu::BindGroupDescriptor {
            label: None,
            layout: &device.layout,
            entries: &[
                wgpu::BindGroupEntry { binding: 0, resource: uniform },
                storage(1, constants),
                storage(2, a),
                storage(3, b),
                storage(4, out),
                storage(5, state),
            ],
        });
        pass.set_pipeline(&dispatch.pipeline);
        pass.set_bind_group(0, &group, &[]);
        let rows = dispatch.groups.div_ceil(most);
        pass.dispatch_workgroups(dispatch.groups.div_ceil(rows.max(1)), rows, 1);
    }
    Ok(())
}

/// Waits for all work, and for a buffer to be the host's.
fn map(device: &Device, buffer: &wgpu::Buffer, mode: wgpu::MapMode) -> Result<(), DeviceFault> {
    let (sender, receiver) = mpsc::channel();
    buffer.map_async(mode, .., move |outcome| {
        // Nobody listens any more only where waiting has failed.
        let _ = sender.send(outcome);
    });
    let wait = wgpu::PollType::Wait { submission_index: None, timeout: Some(PATIENCE) };
    match device.device.poll(wait) {
        Ok(_) => receiver.recv().map_err(unmapped)?.map_err(unmapped),
        Err(wgpu::PollError::Timeout) => Err(DeviceFault::Timeout),
        Err(_) => Err(DeviceFault::Lost),
    }
}
