//! The memory of a device: buffers from the pool, new ones where it has none, and back.

use std::sync::{Arc, MutexGuard, PoisonError};

use super::{
    device::{GpuDevice, Scopes},
    pool::{BufferPool, Purpose, rounded},
};
use crate::engine::DeviceFault;

impl GpuDevice {
    pub(super) fn pool(&self) -> MutexGuard<'_, BufferPool> {
        // Nothing that can panic happens under the lock.
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a buffer of `bytes` bytes or some more, with anything in it: see [`GpuDevice::make`].
    pub(super) fn take(&self, purpose: Purpose, bytes: u64) -> Result<wgpu::Buffer, DeviceFault> {
        let size = rounded(bytes).min(self.limits.max_buffer_size).max(bytes);
        let idle = self.pool().take(purpose, size);
        let buffer = idle.map_or_else(|| self.make(purpose, size), Ok)?;
        #[cfg(test)]
        if self.pool().is_dirty && matches!(purpose, Purpose::Values) {
            self.queue.write_buffer(&buffer, 0, &vec![0xa5; size as usize]);
        }
        Ok(buffer)
    }

    /// Returns a buffer of its own, zero; those for words that go up are the host's at first.
    ///
    /// # Errors
    /// Out of memory, once all that lies idle has gone as well.
    pub(super) fn make(&self, purpose: Purpose, size: u64) -> Result<wgpu::Buffer, DeviceFault> {
        self.create(purpose, size).or_else(|fault| {
            if fault != DeviceFault::OutOfMemory {
                return Err(fault);
            }
            self.clear_pool();
            // What the device still has to overwrite goes after that.
            let _ = self.wait(None);
            self.create(purpose, size)
        })
    }

    fn create(&self, purpose: Purpose, size: u64) -> Result<wgpu::Buffer, DeviceFault> {
        #[cfg(test)]
        {
            let mut pool = self.pool();
            match &mut pool.refused {
                (0, 0) => {}
                (0, refused) => {
                    *refused -= 1;
                    return Err(DeviceFault::OutOfMemory);
                }
                (later, _) => *later -= 1,
            }
            pool.made += 1;
        }
        let scopes = Scopes::new(self);
        let buffer = self.device.create_buffer(&wgpu::BufferDescriptor {
            label: None,
            size,
            usage: purpose.usage(),
            mapped_at_creation: matches!(purpose, Purpose::Up),
        });
        match self.fault(scopes.pop()) {
            Some(fault) => Err(fault),
            None => Ok(buffer),
        }
    }

    /// Keeps buffers for later runs, in place of the oldest where they are many. They hold no
    /// secret, or will not when the device gets to what it has been given to do.
    pub(super) fn give_back(&self, buffers: impl IntoIterator<Item = wgpu::Buffer>) {
        let most = self.memory_bytes() / 4 * 3;
        let gone = self.pool().keep(buffers, most);
        // Without the lock: it may take time.
        drop(gone);
    }

    /// Lets go of what lies idle.
    pub(super) fn clear_pool(&self) {
        let idle = std::mem::take(&mut self.pool().idle);
        drop(idle);
    }

    /// Makes memory for `words` words of 32 bits that stays, zero.
    ///
    /// # Errors
    /// Out of memory, or more than kernels see.
    pub(super) fn resident(
        self: &Arc<Self>,
        words: usize,
    ) -> Result<Arc<ResidentBuffer>, DeviceFault> {
        let bytes = 4 * words.max(1) as u64;
        if bytes > self.binding_bytes() {
            return Err(DeviceFault::OutOfMemory);
        }
        let buffer = self.make(Purpose::Values, bytes)?;
        Ok(Arc::new(ResidentBuffer { device: self.clone(), buffer }))
    }
}

/// Memory that outlives a run. Overwritten before it goes: it may hold a secret.
pub(crate) struct ResidentBuffer {
    device: Arc<GpuDevice>,
    pub(super) buffer: wgpu::Buffer,
}

impl Drop for ResidentBuffer {
    fn drop(&mut self) {
        let mut encoder = self.device.device.create_command_encoder(&Default::default());
        encoder.clear_buffer(&self.buffer, 0, None);
        self.device.queue.submit([encoder.finish()]);
    }
}
