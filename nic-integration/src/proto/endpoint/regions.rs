//! Regions of an endpoint: registering, reading and withdrawing them.

use std::ops::Range;

use crate::NicError;
use crate::proto::region::{MemoryRegion, Region};
use crate::proto::secure::NodeId;
use crate::proto::sum::SumRegion;

use super::Endpoint;

impl Endpoint {
    /// Registers memory that `owner`, or anyone if none is named, may WRITE.
    ///
    /// # Errors
    ///
    /// [`NicError::RkeyInUse`].
    pub fn register_memory(
        &mut self,
        rkey: u32,
        bytes: usize,
        owner: Option<NodeId>,
    ) -> Result<(), NicError> {
        self.register(rkey, Region::Memory(MemoryRegion::new(bytes, owner)))
    }

    /// Registers an inbox: each message WRITTEN from offset 0 is handed over whole.
    ///
    /// # Errors
    ///
    /// [`NicError::RkeyInUse`]; [`NicError::MessageTooLong`] if a message could exceed what one
    /// peer may hold.
    pub fn register_inbox(&mut self, rkey: u32, max_message_bytes: u32) -> Result<(), NicError> {
        let (bytes, limit) = (max_message_bytes as usize, self.shared.peer_held_limit());
        if bytes > limit {
            return Err(NicError::MessageTooLong { bytes, limit });
        }
        self.register(rkey, Region::Inbox { max_message_bytes })
    }

    /// Registers a sum region.
    ///
    /// # Errors
    ///
    /// [`NicError::RkeyInUse`].
    pub fn register_sum(&mut self, rkey: u32, region: SumRegion) -> Result<(), NicError> {
        self.register(rkey, Region::Sum(region))
    }

    /// Withdraws a region. Datagrams that still arrive for it are refused.
    pub fn deregister(&mut self, rkey: u32) {
        self.shared.deregister(rkey);
    }

    /// Returns whether anything is registered under the rkey.
    #[must_use]
    pub fn is_registered(&self, rkey: u32) -> bool {
        self.shared.with_region(rkey, |_| ()).is_some()
    }

    fn with_memory<T>(
        &self,
        rkey: u32,
        look: impl FnOnce(&MemoryRegion) -> T,
    ) -> Result<T, NicError> {
        let found = self.shared.with_region(rkey, |region| match region {
            Region::Memory(memory) => Some(look(memory)),
            _ => None,
        });
        found.flatten().ok_or(NicError::NoSuchRegion { rkey })
    }

    /// Returns all bytes of a memory region.
    ///
    /// # Errors
    ///
    /// [`NicError::NoSuchRegion`].
    pub fn memory(&self, rkey: u32) -> Result<Vec<u8>, NicError> {
        self.with_memory(rkey, |memory| memory.with(|landed| landed.bytes.clone()))
    }

    /// Returns some bytes of a memory region; `None` if it does not reach that far.
    ///
    /// # Errors
    ///
    /// [`NicError::NoSuchRegion`].
    pub fn read(&self, rkey: u32, place: Range<usize>) -> Result<Option<Vec<u8>>, NicError> {
        self.with_memory(rkey, |memory| {
            memory.with(|landed| landed.bytes.get(place).map(<[u8]>::to_vec))
        })
    }

    /// Withdraws a memory region, and returns its bytes.
    ///
    /// # Errors
    ///
    /// [`NicError::NoSuchRegion`].
    pub fn take_memory(&mut self, rkey: u32) -> Result<Vec<u8>, NicError> {
        let take = |memory: &MemoryRegion| memory.with(|landed| std::mem::take(&mut landed.bytes));
        let bytes = self.with_memory(rkey, take)?;
        self.deregister(rkey);
        Ok(bytes)
    }

    /// Returns the number of messages with an immediate that have landed whole in a memory region,
    /// each counted once: an owner that waits for n of n need not see every one's event.
    ///
    /// # Errors
    ///
    /// [`NicError::NoSuchRegion`].
    pub fn immediates(&self, rkey: u32) -> Result<u64, NicError> {
        self.with_memory(rkey, |memory| memory.with(|landed| landed.immediates))
    }

    /// Returns a sum region, to bind contributors, close chunks and finish them.
    ///
    /// # Errors
    ///
    /// [`NicError::NoSuchRegion`].
    pub fn sum_region(&mut self, rkey: u32) -> Result<SumRegion, NicError> {
        self.shared.sum_region(rkey).ok_or(NicError::NoSuchRegion { rkey })
    }

    fn register(&mut self, rkey: u32, region: Region) -> Result<(), NicError> {
        if self.shared.register(rkey, region) { Ok(()) } else { Err(NicError::RkeyInUse { rkey }) }
    }
}
