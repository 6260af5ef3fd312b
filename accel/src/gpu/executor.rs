//! The executor of recordings, which keeps memory between them.

use std::{sync::Arc, time::Duration};

#[cfg(test)]
use super::twins::Twins;
use super::{
    device::{Device, GpuError},
    execute,
    pool::Purpose,
    record::Recording,
    resident::{Kept, Resident},
    shaders::Prelude,
};
use crate::{
    batch::{Batch, Job},
    engine::DeviceFault,
};

/// An adapter; in tests also the definitions of all kernels.
#[derive(Clone)]
pub(crate) enum Executor {
    Adapter(Arc<Device>),
    #[cfg(test)]
    Twins(Arc<Twins>),
}

impl Executor {
    /// Opens the adapter that the environment names: see [`Device::open`].
    pub(super) fn open(split: bool) -> Result<Self, GpuError> {
        Ok(Self::Adapter(Arc::new(Device::open(split)?)))
    }

    /// Does all parts that are left of a job: see [`execute::run`].
    pub(super) fn run(&self, job: &mut Job<'_, '_, Recording<'_>>) -> Result<(), DeviceFault> {
        match self {
            Self::Adapter(device) => execute::run(device, job),
            #[cfg(test)]
            Self::Twins(twins) => {
                twins.run(job);
                Ok(())
            }
        }
    }

    /// Does once what is recorded, which has no operands; whatever it holds may be secret.
    pub(super) fn once(&self, recording: &Recording<'_>) -> Result<(), DeviceFault> {
        let mut batch = Batch::empty();
        let recordings = [recording; 2];
        self.run(&mut Job { batch: &mut batch, size: 1, recordings, secret: true })
    }

    /// Makes memory for `words` words of 32 bits that stays, zero.
    ///
    /// # Errors
    /// Out of memory, or more than kernels see.
    pub(super) fn resident(&self, words: usize) -> Result<Arc<Resident>, DeviceFault> {
        let bytes = 4 * words.max(1) as u64;
        if bytes > self.binding_bytes() {
            return Err(DeviceFault::OutOfMemory);
        }
        Ok(Arc::new(match self {
            Self::Adapter(device) => {
                let buffer = device.make(Purpose::Values, bytes)?;
                Resident::Adapter(Kept::new(device.clone(), buffer))
            }
            #[cfg(test)]
            Self::Twins(_) => Resident::Host(vec![0; words.max(1)].into()),
        }))
    }

    /// Returns the most bytes of one buffer that a kernel can see.
    pub(super) fn binding_bytes(&self) -> u64 {
        match self {
            Self::Adapter(device) => device.binding_bytes(),
            #[cfg(test)]
            Self::Twins(_) => 1 << 27,
        }
    }

    /// Returns the bytes of memory that runs take.
    pub(super) fn memory_bytes(&self) -> u64 {
        match self {
            Self::Adapter(device) => device.memory_bytes(),
            #[cfg(test)]
            Self::Twins(twins) => twins.memory_bytes(),
        }
    }

    pub(super) fn set_memory_bytes(&self, bytes: u64) {
        match self {
            Self::Adapter(device) => device.set_memory_bytes(bytes),
            #[cfg(test)]
            Self::Twins(twins) => twins.set_memory_bytes(bytes),
        }
    }

    pub(super) fn set_patience(&self, patience: Duration) {
        match self {
            Self::Adapter(device) => device.set_patience(patience),
            #[cfg(test)]
            Self::Twins(_) => {}
        }
    }

    pub(super) fn prelude(&self) -> Prelude {
        match self {
            Self::Adapter(device) => device.prelude,
            #[cfg(test)]
            Self::Twins(_) => Prelude::Native,
        }
    }

    /// Returns the threads that a part of a batch keeps busy, at least, where there is work for
    /// more.
    pub(super) fn part_threads(&self) -> u64 {
        match self {
            Self::Adapter(device) => device.part_threads(),
            #[cfg(test)]
            Self::Twins(_) => 1 << 12,
        }
    }

    pub(super) fn is_software(&self) -> bool {
        match self {
            Self::Adapter(device) => device.info.device_type == wgpu::DeviceType::Cpu,
            #[cfg(test)]
            Self::Twins(_) => true,
        }
    }

    /// Returns one line, for people.
    pub(super) fn describe(&self) -> String {
        match self {
            Self::Adapter(device) => device.describe(),
            #[cfg(test)]
            Self::Twins(_) => "kernels by their definitions".into(),
        }
    }

    /// Returns names and values, for people.
    pub(super) fn details(&self) -> Vec<(&'static str, String)> {
        match self {
            Self::Adapter(device) => device.details(),
            #[cfg(test)]
            Self::Twins(_) => vec![],
        }
    }
}
