//! Buffers between runs: to make one takes longer than many programs.

/// The purpose of a buffer.
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
pub(super) struct BufferPool {
    /// The oldest first.
    pub(super) idle: Vec<wgpu::Buffer>,
    /// Those of failed runs, for tests to look at.
    #[cfg(test)]
    pub(super) failed: Vec<wgpu::Buffer>,
    /// Buffers that were ever made.
    #[cfg(test)]
    pub(super) made: usize,
    /// Buffers until the device has no memory, and for how many it has none then.
    #[cfg(test)]
    pub(super) refused: (usize, usize),
    /// Whether runs find anything but zeros in their memory.
    #[cfg(test)]
    pub(super) is_dirty: bool,
}

/// Sizes are rounded up to a quarter of a power of two, so that a batch of about the same size
/// finds memory.
pub(super) fn rounded(bytes: u64) -> u64 {
    let bytes = bytes.max(256);
    bytes.next_multiple_of((1 << bytes.ilog2()) / 4)
}

impl BufferPool {
    /// Takes the buffer of this purpose and rounded size that was used last, if there is one.
    pub(super) fn take(&mut self, purpose: Purpose, size: u64) -> Option<wgpu::Buffer> {
        let fits =
            |buffer: &wgpu::Buffer| buffer.size() == size && buffer.usage() == purpose.usage();
        self.idle.iter().rposition(fits).map(|index| self.idle.remove(index))
    }

    /// Keeps `buffers`; returns the oldest ones, beyond `most` bytes in all.
    pub(super) fn keep(
        &mut self,
        buffers: impl IntoIterator<Item = wgpu::Buffer>,
        most: u64,
    ) -> Vec<wgpu::Buffer> {
        self.idle.extend(buffers);
        let mut bytes = self.bytes();
        let too_old = self.idle.iter().take_while(|buffer| {
            let is_over = bytes > most;
            bytes -= buffer.size();
            is_over
        });
        let too_old = too_old.count();
        self.idle.drain(..too_old).collect()
    }

    /// Returns the bytes of all idle buffers.
    pub(super) fn bytes(&self) -> u64 {
        self.idle.iter().map(wgpu::Buffer::size).sum()
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
