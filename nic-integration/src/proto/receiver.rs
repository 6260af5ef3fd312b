//! The receiving half from one peer: what is known of its messages (PROTOCOL §5).

use std::collections::BTreeMap;

use super::ack::Refusal;
use super::datagram::Header;
use super::sender::MESSAGE_WINDOW;

/// A WRITE message of which some datagrams are committed.
#[derive(Debug)]
pub(super) struct Partial {
    pub(super) rkey: u32,
    pub(super) message_bytes: u32,
    pub(super) immediate: Option<u32>,
    /// Lowest region offset seen; the message's own once it is whole.
    pub(super) offset: u64,
    /// The message under assembly, when it goes to an inbox.
    pub(super) assembly: Vec<u8>,
    assembly_bytes: usize,
    /// One bit per index committed.
    seen: Vec<u64>,
    committed: u64,
}

impl Partial {
    /// The first datagram of one, for the assembly of which so many bytes are needed.
    pub(super) fn new(header: &Header, immediate: Option<u32>, assembly_bytes: usize) -> Self {
        Self {
            rkey: header.rkey,
            message_bytes: header.message_bytes,
            immediate,
            offset: header.offset,
            assembly: vec![0; assembly_bytes],
            assembly_bytes,
            seen: Vec::new(),
            committed: 0,
        }
    }

    /// Whether the datagram tells the same story of its message as the first one did.
    pub(super) fn agrees(&self, header: &Header, immediate: Option<u32>) -> bool {
        self.rkey == header.rkey
            && self.message_bytes == header.message_bytes
            && self.immediate == immediate
    }

    pub(super) fn has(&self, index: u32) -> bool {
        let word = self.seen.get(index as usize / 64).copied().unwrap_or(0);
        word >> (index % 64) & 1 == 1
    }

    /// Counts a datagram; whether the message is now whole.
    pub(super) fn commit(&mut self, header: &Header, payload_bytes: usize) -> bool {
        let word = header.index as usize / 64;
        if self.seen.len() <= word {
            self.seen.resize(word + 1, 0);
        }
        self.seen[word] |= 1 << (header.index % 64);
        self.committed += payload_bytes as u64;
        self.offset = self.offset.min(header.offset);
        self.committed == u64::from(self.message_bytes)
    }

    pub(super) fn would_overrun(&self, payload_bytes: usize) -> bool {
        self.committed + payload_bytes as u64 > u64::from(self.message_bytes)
    }
}

/// What is known of one message within the window.
#[derive(Debug)]
pub(super) enum Incoming {
    Partial(Box<Partial>),
    Done,
    Refused(Refusal),
}

#[derive(Debug, Default)]
pub(super) struct Receiver {
    highest: u64,
    messages: BTreeMap<u64, Incoming>,
    held: Held,
}

impl Receiver {
    /// Slides the window to include `message`. Returns the assembly bytes that this forgets, or
    /// `None` if the message is older than the window: its sender has had its answer, because it
    /// never runs [`MESSAGE_WINDOW`] ahead of an unanswered message (PROTOCOL §4.2).
    pub(super) fn admit(&mut self, message: u64) -> Option<usize> {
        if message.saturating_add(MESSAGE_WINDOW) <= self.highest {
            return None;
        }
        if message <= self.highest {
            return Some(0);
        }
        self.highest = message;
        let floor = message.saturating_sub(MESSAGE_WINDOW - 1);
        let mut freed = 0;
        while let Some(oldest) = self.messages.first_entry()
            && *oldest.key() < floor
        {
            freed += self.held.give_up(&oldest.remove());
        }
        Some(freed)
    }

    pub(super) fn message(&mut self, message: u64) -> Option<&mut Incoming> {
        self.messages.get_mut(&message)
    }

    /// Records what a message has become; returns the assembly bytes that this frees.
    pub(super) fn set(&mut self, message: u64, incoming: Incoming) -> usize {
        if let Incoming::Partial(partial) = &incoming {
            self.held.0 += partial.assembly_bytes;
        }
        self.messages.insert(message, incoming).map_or(0, |old| self.held.give_up(&old))
    }

    /// Bytes of messages under assembly.
    pub(super) fn held_bytes(&self) -> usize {
        self.held.0
    }
}

/// Bytes of messages under assembly.
#[derive(Debug, Default)]
struct Held(usize);

impl Held {
    /// A message is gone; how many bytes that frees, if nobody took them.
    fn give_up(&mut self, incoming: &Incoming) -> usize {
        match incoming {
            Incoming::Partial(partial) => {
                self.0 -= partial.assembly_bytes;
                partial.assembly.len()
            }
            Incoming::Done | Incoming::Refused(_) => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_slides_and_forgets() {
        let mut receiver = Receiver::default();
        assert_eq!(receiver.admit(5), Some(0));
        receiver.set(5, Incoming::Done);
        assert_eq!(receiver.admit(5 + MESSAGE_WINDOW - 1), Some(0));
        assert!(receiver.message(5).is_some());
        assert_eq!(receiver.admit(5 + MESSAGE_WINDOW), Some(0));
        assert!(receiver.message(5).is_none());
        assert_eq!(receiver.admit(5), None, "older than the window");
        assert_eq!(receiver.admit(6), Some(0), "late but inside");
        assert_eq!(receiver.admit(u64::MAX), Some(0));
    }
}
