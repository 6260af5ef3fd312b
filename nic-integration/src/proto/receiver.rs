//! The receiving half from one peer: which messages are done, and what to answer (PROTOCOL §3, §5).

use std::collections::{BTreeMap, VecDeque};

use super::ack::{AckEntry, Refusal};
use super::datagram::Header;
use super::sender::MESSAGE_WINDOW;
use super::time::Time;

/// Answers that may wait for one peer; older ones are dropped, and asked for again by
/// retransmission.
pub const MAX_QUEUED_ACKS: usize = 4096;

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
    /// One bit per index committed.
    seen: Vec<u64>,
    committed: u64,
}

impl Partial {
    pub(super) fn new(header: &Header, immediate: Option<u32>) -> Self {
        Self {
            rkey: header.rkey,
            message_bytes: header.message_bytes,
            immediate,
            offset: header.offset,
            assembly: Vec::new(),
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

#[derive(Debug)]
pub(super) struct Receiver {
    highest: u64,
    messages: BTreeMap<u64, Incoming>,
    acks: VecDeque<AckEntry>,
    pub(super) heard: Time,
    /// Whether the endpoint already means to send this peer its answers.
    pub(super) scheduled: bool,
}

impl Receiver {
    pub(super) fn new(now: Time) -> Self {
        Self {
            highest: 0,
            messages: BTreeMap::new(),
            acks: VecDeque::new(),
            heard: now,
            scheduled: false,
        }
    }

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
        let kept = self.messages.split_off(&floor);
        let forgotten = std::mem::replace(&mut self.messages, kept);
        Some(forgotten.values().map(Incoming::held_bytes).sum())
    }

    pub(super) fn message(&mut self, message: u64) -> Option<&mut Incoming> {
        self.messages.get_mut(&message)
    }

    /// Records what a message has become; returns the assembly bytes that this frees.
    pub(super) fn set(&mut self, message: u64, incoming: Incoming) -> usize {
        self.messages.insert(message, incoming).map_or(0, |old| old.held_bytes())
    }

    pub(super) fn held_bytes(&self) -> usize {
        self.messages.values().map(Incoming::held_bytes).sum()
    }

    pub(super) fn answer(&mut self, entry: AckEntry) {
        if self.acks.len() == MAX_QUEUED_ACKS {
            self.acks.pop_front();
        }
        self.acks.push_back(entry);
    }

    /// Moves up to `limit` waiting answers into an ACK's payload; `false` if none waits.
    pub(super) fn take_answers(&mut self, limit: usize, payload: &mut Vec<u8>) -> bool {
        let count = self.acks.len().min(limit);
        self.acks.drain(..count).for_each(|entry| entry.append(payload));
        count > 0
    }
}

impl Incoming {
    fn held_bytes(&self) -> usize {
        match self {
            Self::Partial(partial) => partial.assembly.len(),
            Self::Done | Self::Refused(_) => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_slides_and_forgets() {
        let mut receiver = Receiver::new(Time::ZERO);
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

    #[test]
    fn answers_are_bounded() {
        let mut receiver = Receiver::new(Time::ZERO);
        for message in 0..MAX_QUEUED_ACKS as u64 + 7 {
            receiver.answer(AckEntry { message, index: 0, status: Ok(()) });
        }
        let mut payload = Vec::new();
        assert!(receiver.take_answers(1, &mut payload));
        assert_eq!(AckEntry::parse_all(&payload).unwrap()[0].message, 7);
        assert!(receiver.take_answers(usize::MAX, &mut payload));
        assert!(!receiver.take_answers(1, &mut payload));
    }
}
