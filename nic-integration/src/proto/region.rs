//! Targets of WRITEs: memory and inboxes (PROTOCOL §5).

use std::sync::Mutex;

use super::ack::Refusal;
use super::datagram::{BLOCK_BYTES, DatagramHeader};
use super::event::Peer;
use super::lock::lock;
use super::receiver::Partial;
use super::secure::NodeId;
use super::sum::SumRegion;

/// A region registered under an rkey.
pub(super) enum Region {
    /// WRITEs land in place.
    Memory(MemoryRegion),
    /// Each message is assembled apart and handed over whole.
    Inbox {
        /// The longest message taken.
        max_message_bytes: u32,
    },
    /// SUMs are added.
    Sum(SumRegion),
}

/// Bytes that a peer may overwrite.
pub(super) struct MemoryRegion {
    length: usize,
    /// The only node that may write, if any is named.
    owner: Option<NodeId>,
    landed: Mutex<Landed>,
}

/// The contents of a memory region.
pub(super) struct Landed {
    pub(super) bytes: Vec<u8>,
    /// Messages with an immediate that landed whole.
    pub(super) immediates: u64,
}

impl MemoryRegion {
    pub(super) fn new(length: usize, owner: Option<NodeId>) -> Self {
        let landed = Landed { bytes: vec![0; length], immediates: 0 };
        Self { length, owner, landed: Mutex::new(landed) }
    }

    pub(super) fn with<T>(&self, look: impl FnOnce(&mut Landed) -> T) -> T {
        look(&mut lock(&self.landed))
    }
}

impl Region {
    /// Checks that a WRITE datagram may be committed here; changes nothing (PROTOCOL §5.2).
    pub(super) fn check_write(
        &self,
        from: Peer,
        header: &DatagramHeader,
        payload: &[u8],
    ) -> Result<(), Refusal> {
        let limit = match self {
            Self::Sum(_) => return Err(Refusal::NoRight),
            Self::Memory(memory) if memory.owner.is_some_and(|owner| owner != from.node) => {
                return Err(Refusal::NoRight);
            }
            Self::Memory(memory) if u64::from(header.message_bytes) > memory.length as u64 => {
                return Err(Refusal::OutOfBounds);
            }
            Self::Memory(memory) => memory.length as u64,
            Self::Inbox { max_message_bytes } if header.message_bytes > *max_message_bytes => {
                return Err(Refusal::WrongLength);
            }
            Self::Inbox { .. } => u64::from(header.message_bytes),
        };
        let end = header.offset.checked_add(payload.len() as u64);
        if end.is_none_or(|end| end > limit) {
            return Err(Refusal::OutOfBounds);
        }
        if header.offset < header.start.into() {
            return Err(Refusal::OutOfBounds);
        }
        // Every datagram of a message carries at least one byte, unless the message is empty.
        let empty = payload.is_empty() && header.message_bytes > 0;
        if empty || !header.cuts_at(BLOCK_BYTES, payload.len()) {
            return Err(Refusal::WrongLength);
        }
        Ok(())
    }

    /// Returns the bytes of assembly that a message needs before its first datagram is placed.
    pub(super) fn assembly_bytes(&self, header: &DatagramHeader) -> usize {
        match self {
            Self::Inbox { .. } => header.message_bytes as usize,
            Self::Memory(_) | Self::Sum(_) => 0,
        }
    }

    /// Copies a payload that passed [`check_write`](Self::check_write) to its place; `false` if
    /// the message began when something else was registered here.
    pub(super) fn place(
        &self,
        partial: &mut Partial,
        header: &DatagramHeader,
        payload: &[u8],
    ) -> bool {
        let start = header.offset as usize;
        let place = |target: &mut [u8]| {
            let place = target.get_mut(start..start + payload.len());
            place.map(|place| place.copy_from_slice(payload)).is_some()
        };
        match self {
            Self::Memory(memory) => memory.with(|landed| place(&mut landed.bytes)),
            Self::Inbox { .. } => place(&mut partial.assembly),
            Self::Sum(_) => false,
        }
    }
}
