//! Memory that outlives a run.

use std::sync::Arc;

use super::device::Device;

/// Memory that outlives a run. Overwritten before it goes: it may hold a secret.
pub(crate) enum Resident {
    Adapter(Kept),
    #[cfg(test)]
    Host(std::sync::Mutex<Vec<u32>>),
}

impl Resident {
    /// Its memory on an adapter.
    pub(super) fn buffer(&self) -> &wgpu::Buffer {
        match self {
            Self::Adapter(kept) => &kept.buffer,
            #[cfg(test)]
            Self::Host(_) => unreachable!("it is an adapter's"),
        }
    }
}

/// Memory of an adapter that outlives a run.
pub(crate) struct Kept {
    device: Arc<Device>,
    buffer: wgpu::Buffer,
}

impl Kept {
    pub(super) fn new(device: Arc<Device>, buffer: wgpu::Buffer) -> Self {
        Self { device, buffer }
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let mut encoder = self.device.device.create_command_encoder(&Default::default());
        encoder.clear_buffer(&self.buffer, 0, None);
        self.device.queue.submit([encoder.finish()]);
    }
}
