//! The receiving half towards one peer: the state of its messages (PROTOCOL §5).

use std::collections::BTreeMap;
use std::ops::Range;

use super::ack::Refusal;
use super::bits;
use super::datagram::{BLOCK_BYTES, DatagramHeader};
use super::outbox::MESSAGE_WINDOW;

/// A WRITE message of which some datagrams are committed.
#[derive(Debug)]
pub(super) struct Partial {
    pub(super) rkey: u32,
    pub(super) message_bytes: u32,
    pub(super) immediate: Option<u32>,
    /// Its first byte's place in the region.
    pub(super) offset: u64,
    /// The message under assembly, when it goes to an inbox.
    pub(super) assembly: Vec<u8>,
    assembly_bytes: usize,
    /// One bit per block committed.
    seen: Vec<u64>,
    committed: u32,
}

impl Partial {
    /// Makes the state of a message at its first datagram. `assembly_bytes` hold it if it goes to
    /// an inbox.
    pub(super) fn new(
        header: &DatagramHeader,
        immediate: Option<u32>,
        assembly_bytes: usize,
    ) -> Self {
        Self {
            rkey: header.rkey,
            message_bytes: header.message_bytes,
            immediate,
            offset: first_byte(header),
            assembly: vec![0; assembly_bytes],
            assembly_bytes,
            seen: Vec::new(),
            committed: 0,
        }
    }

    /// Returns whether the datagram describes its message as the first one did.
    pub(super) fn agrees(&self, header: &DatagramHeader, immediate: Option<u32>) -> bool {
        self.rkey == header.rkey
            && self.message_bytes == header.message_bytes
            && self.immediate == immediate
            && self.offset == first_byte(header)
    }

    /// Returns the blocks of a payload within the message.
    fn blocks(header: &DatagramHeader, payload_bytes: usize) -> Range<usize> {
        let (start, block) = (header.start as usize, BLOCK_BYTES as usize);
        start / block..(start + payload_bytes).div_ceil(block)
    }

    /// Returns whether all of a payload came before; that of an empty message is always new.
    pub(super) fn has(&self, header: &DatagramHeader, payload_bytes: usize) -> bool {
        payload_bytes > 0 && bits::has_all(&self.seen, Self::blocks(header, payload_bytes))
    }

    /// Counts the bytes of a datagram that are new; `true` if the message is now whole.
    pub(super) fn commit(&mut self, header: &DatagramHeader, payload_bytes: usize) -> bool {
        let blocks = Self::blocks(header, payload_bytes);
        let words = blocks.end.div_ceil(64);
        if self.seen.len() < words {
            self.seen.resize(words, 0);
        }
        // The last block of a message may be shorter.
        let last = self.message_bytes.div_ceil(BLOCK_BYTES);
        let has_last = blocks.end == last as usize
            && !bits::has_all(&self.seen, blocks.end.saturating_sub(1)..blocks.end);
        let fresh = bits::set_all(&mut self.seen, blocks) * BLOCK_BYTES;
        self.committed +=
            if has_last { fresh - (last * BLOCK_BYTES - self.message_bytes) } else { fresh };
        self.committed == self.message_bytes
    }
}

/// Returns the place in the region of the first byte of a datagram's message.
fn first_byte(header: &DatagramHeader) -> u64 {
    header.offset.wrapping_sub(header.start.into())
}

/// The state of one message within the window.
#[derive(Debug)]
pub(super) enum Incoming {
    Partial(Box<Partial>),
    Refused(Refusal),
}

#[derive(Debug, Default)]
pub(super) struct Receiver {
    highest: u64,
    /// Messages that are not done.
    messages: BTreeMap<u64, Incoming>,
    /// Messages that are done: one bit each, from `done_from` on.
    done: Vec<u64>,
    /// The first of them, a multiple of 64.
    done_from: u64,
    held: Held,
}

impl Receiver {
    /// Slides the window to include `message`. Returns the assembly bytes that this frees, or
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
        while self.done_from.saturating_add(64) <= floor && !self.done.is_empty() {
            self.done.remove(0);
            self.done_from += 64;
        }
        Some(freed)
    }

    /// Returns whether a message that was admitted is done.
    pub(super) fn is_done(&self, message: u64) -> bool {
        let at = message.checked_sub(self.done_from).and_then(|at| usize::try_from(at).ok());
        at.is_some_and(|at| bits::has(&self.done, at))
    }

    /// Records that a message is done; returns the assembly bytes that this frees.
    pub(super) fn finish(&mut self, message: u64) -> usize {
        if self.done.is_empty() {
            self.done_from = message / 64 * 64;
        }
        // It was admitted, and so is within the window: the words are few.
        while message < self.done_from {
            self.done.insert(0, 0);
            self.done_from -= 64;
        }
        let at = (message - self.done_from) as usize;
        if self.done.len() <= at / 64 {
            self.done.resize(at / 64 + 1, 0);
        }
        bits::set(&mut self.done, at);
        self.messages.remove(&message).map_or(0, |old| self.held.give_up(&old))
    }

    /// Frees memory that can be remade.
    pub(super) fn shrink(&mut self) {
        self.done.shrink_to_fit();
        if self.messages.is_empty() {
            // An empty tree has space for eleven, once it had one.
            self.messages = BTreeMap::new();
        }
    }

    pub(super) fn message(&mut self, message: u64) -> Option<&mut Incoming> {
        self.messages.get_mut(&message)
    }

    /// Records the state of a message; returns the assembly bytes that this frees.
    pub(super) fn set(&mut self, message: u64, incoming: Incoming) -> usize {
        if let Incoming::Partial(partial) = &incoming {
            self.held.0 += partial.assembly_bytes;
        }
        self.messages.insert(message, incoming).map_or(0, |old| self.held.give_up(&old))
    }

    /// Returns the bytes of messages under assembly.
    pub(super) fn held_bytes(&self) -> usize {
        self.held.0
    }
}

/// Bytes of messages under assembly.
#[derive(Debug, Default)]
struct Held(usize);

impl Held {
    /// Releases a message; returns the bytes that this frees, if nobody took them.
    fn give_up(&mut self, incoming: &Incoming) -> usize {
        match incoming {
            Incoming::Partial(partial) => {
                self.0 -= partial.assembly_bytes;
                partial.assembly.len()
            }
            Incoming::Refused(_) => 0,
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
        receiver.set(5, Incoming::Refused(Refusal::NoRight));
        assert_eq!(receiver.admit(5 + MESSAGE_WINDOW - 1), Some(0));
        assert!(receiver.message(5).is_some());
        assert_eq!(receiver.admit(5 + MESSAGE_WINDOW), Some(0));
        assert!(receiver.message(5).is_none());
        assert!((0..2000).all(|message| !receiver.is_done(message)));
        for message in [900, 5 + MESSAGE_WINDOW, 200, 6] {
            assert_eq!((receiver.admit(message), receiver.finish(message)), (Some(0), 0));
            assert!(receiver.is_done(message) && !receiver.is_done(message + 1));
        }
        assert!(receiver.is_done(900) && receiver.is_done(200));
        assert_eq!(receiver.admit(5), None, "older than the window");
        assert_eq!(receiver.admit(6), Some(0), "late but inside");
        assert_eq!(receiver.admit(210 + MESSAGE_WINDOW), Some(0));
        assert!(!receiver.is_done(6) && receiver.is_done(200) && receiver.is_done(900));
        assert_eq!(receiver.admit(u64::MAX), Some(0));
        assert!(!receiver.is_done(900) && receiver.finish(u64::MAX) == 0);
        assert!(receiver.is_done(u64::MAX) && receiver.done.len() == 1);
    }
}
