//! Memory between runs: to make a buffer takes longer than many programs.

use std::sync::{MutexGuard, PoisonError};

use super::device::{Device, Scopes};
use crate::engine::DeviceFault;

/// What a buffer is for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Purpose {
    /// Kernels read and write it.
    Values,
    /// Kernels read their parameters there.
    Params,
    /// Words go up by it. The host holds it, but while the device reads it.
    Up,
    /// Words come down by it.
    Down,
}

impl Purpose {
    pub(super) fn usage(self) -> wgpu::BufferUsages {
        use wgpu::BufferUsages as Usage;
        match self {
            Self::Values => Usage::STORAGE | Usage::COPY_SRC | Usage::COPY_DST,
            Self::Params => Usage::UNIFORM | Usage::COPY_DST,
            Self::Up => Usage::MAP_WRITE | Usage::COPY_SRC,
            Self::Down => Usage::MAP_READ | Usage::COPY_DST,
        }
    }
}

/// Buffers that no run uses. They hold no secret.
#[derive(Default)]
pub(super) struct Pool {
    /// The oldest first.
    pub(super) idle: Vec<wgpu::Buffer>,
    /// Those of failed runs, for tests to look at.
    #[cfg(test)]
    pub(super) failed: Vec<wgpu::Buffer>,
    /// Buffers that were ever made.
    #[cfg(test)]
    pub(super) made: usize,
    /// After so many more, for how many the device has no memory.
    #[cfg(test)]
    pub(super) refused: (usize, usize),
}

/// Sizes are rounded up to a quarter of a power of two, so that a batch of about the same size finds memory.
fn rounded(bytes: u64) -> u64 {
    let bytes = bytes.max(256);
    bytes.next_multiple_of((1 << bytes.ilog2()) / 4)
}

impl Device {
    pub(super) fn pool(&self) -> MutexGuard<'_, Pool> {
        // Nothing that can panic happens under the lock.
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A buffer of `bytes` bytes or some more, with anything in it: see [`Device::make`].
    pub(super) fn take(&self, purpose: Purpose, bytes: u64) -> Result<wgpu::Buffer, DeviceFault> {
        let size = rounded(bytes).min(self.limits.max_buffer_size).max(bytes);
        let fits =
            |buffer: &wgpu::Buffer| buffer.size() == size && buffer.usage() == purpose.usage();
        let mut pool = self.pool();
        // The one that was used last.
        if let Some(index) = pool.idle.iter().rposition(fits) {
            return Ok(pool.idle.remove(index));
        }
        drop(pool);
        self.make(purpose, size)
    }

    /// A buffer of its own, zero; those for words that go up are the host's at first.
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

    /// Keeps buffers for later runs, in place of the oldest where they are many. They hold no secret, or will
    /// not when the device gets to what it has been given to do.
    pub(super) fn give_back(&self, buffers: impl IntoIterator<Item = wgpu::Buffer>) {
        let most = self.memory_bytes() / 4 * 3;
        let mut pool = self.pool();
        pool.idle.extend(buffers);
        let mut bytes: u64 = pool.idle.iter().map(wgpu::Buffer::size).sum();
        let too_old = pool.idle.iter().take_while(|buffer| {
            let is_over = bytes > most;
            bytes -= buffer.size();
            is_over
        });
        let too_old = too_old.count();
        let gone: Vec<_> = pool.idle.drain(..too_old).collect();
        drop(pool);
        drop(gone);
    }

    /// Lets go of what lies idle.
    pub(super) fn clear_pool(&self) {
        let idle = std::mem::take(&mut self.pool().idle);
        // Without the lock: it may take time.
        drop(idle);
    }

    /// Bytes of what lies idle.
    #[cfg(test)]
    pub(super) fn idle_bytes(&self) -> u64 {
        self.pool().idle.iter().map(wgpu::Buffer::size).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_rounded_by_a_quarter_at_most() {
        for bytes in (0..5000).chain([1 << 20, (1 << 20) + 4, 3 << 40]) {
            let size = rounded(bytes);
            assert!(
                size >= bytes && size >= 256 && size.is_multiple_of(64) && rounded(size) == size
            );
            assert!(size <= 256 || size < bytes + bytes / 4 + 1, "{bytes} {size}");
        }
    }
}
