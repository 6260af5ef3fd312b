//! The sending half towards one peer: messages, datagrams in flight, timers (PROTOCOL §4).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use super::ack::{AckEntry, Refusal};
use super::datagram::{Header, Opcode};
use super::event::{Cause, Event, MessageId, Peer};
use super::pace::Pace;
use super::time::Time;

/// Messages to one peer that may be unanswered at once; also how far the ids of unanswered
/// messages may lie apart, so that a receiver can forget what is older (PROTOCOL §4.2).
pub const MESSAGE_WINDOW: u64 = 1024;

/// A message as the caller gave it.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) opcode: Opcode,
    pub(super) contributor: u16,
    pub(super) rkey: u32,
    pub(super) offset: u64,
    pub(super) data: Arc<[u8]>,
    pub(super) immediate: u32,
    /// SUM: the first chunk. WRITE: 0.
    pub(super) first_index: u32,
}

#[derive(Debug)]
struct Outgoing {
    message: Message,
    /// Datagrams that carry it.
    count: u32,
    /// Of those: sent at least once.
    started: u32,
    /// Of those: not yet acknowledged.
    open: u32,
}

#[derive(Debug)]
struct Flight {
    sent: Time,
    /// `None` while it waits to be sent again.
    deadline: Option<Time>,
    resent: bool,
}

/// A datagram's place: its message and how many of the message's datagrams precede it.
type Slot = (u64, u32);

/// What to put on the wire next.
pub(super) struct Outbound<'a> {
    pub(super) header: Header,
    pub(super) payload: &'a [u8],
    pub(super) resent: bool,
}

#[derive(Debug)]
pub(super) struct Sender {
    addr: SocketAddr,
    /// The incarnation datagrams are meant for; 0 until the caller or an acknowledgement tells.
    destination: u32,
    payload_limit: usize,
    pace: Pace,
    next_message: u64,
    outgoing: BTreeMap<u64, Outgoing>,
    /// Messages with datagrams never sent, oldest first.
    unsent: VecDeque<u64>,
    flights: BTreeMap<Slot, Flight>,
    deadlines: BTreeSet<(Time, Slot)>,
    resend: VecDeque<Slot>,
    /// When the peer last acknowledged anything, or the silence began to matter.
    heard: Time,
    last_loss: Time,
    /// Whether the endpoint already means to ask this peer for datagrams.
    pub(super) scheduled: bool,
}

impl Sender {
    pub(super) fn new(addr: SocketAddr, payload_limit: usize, first_message: u64) -> Self {
        Self {
            addr,
            destination: 0,
            payload_limit,
            pace: Pace::new(),
            next_message: first_message,
            outgoing: BTreeMap::new(),
            unsent: VecDeque::new(),
            flights: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            resend: VecDeque::new(),
            heard: Time::ZERO,
            last_loss: Time::ZERO,
            scheduled: false,
        }
    }

    pub(super) fn addr(&self) -> SocketAddr {
        self.addr
    }

    fn peer(&self) -> Peer {
        Peer { addr: self.addr, incarnation: self.destination }
    }

    /// Means all further messages for `incarnation`; what was meant for another one has failed.
    pub(super) fn aim(&mut self, incarnation: u32, events: &mut VecDeque<Event>) {
        if incarnation == 0 || incarnation == self.destination {
            return;
        }
        if self.destination != 0 {
            self.fail_all(Cause::Restarted, events);
        }
        self.destination = incarnation;
    }

    /// How many more messages may be queued (PROTOCOL §4.2).
    pub(super) fn room(&self) -> usize {
        let oldest = self.outgoing.first_key_value().map_or(self.next_message, |(id, _)| *id);
        (MESSAGE_WINDOW - (self.next_message - oldest)) as usize
    }

    pub(super) fn next_message(&self) -> u64 {
        self.next_message
    }

    pub(super) fn idle_since(&self) -> Option<Time> {
        self.outgoing.is_empty().then_some(self.heard)
    }

    /// Takes a message; the caller has checked that there is room.
    pub(super) fn queue(&mut self, now: Time, message: Message) -> MessageId {
        if self.outgoing.is_empty() {
            self.heard = now;
        }
        let id = self.next_message;
        self.next_message += 1;
        // An empty message still needs one datagram to carry its immediate.
        let count = message.data.len().div_ceil(self.payload_limit).max(1) as u32;
        self.outgoing.insert(id, Outgoing { message, count, started: 0, open: count });
        self.unsent.push_back(id);
        MessageId(id)
    }

    /// The next datagram to send, if the window has room for one; retransmissions first.
    pub(super) fn next(&mut self, now: Time, source: u32, packet: u64) -> Option<Outbound<'_>> {
        if self.deadlines.len() >= self.pace.window() {
            return None;
        }
        let slot = self.next_resend().or_else(|| self.next_fresh())?;
        let deadline = now + self.pace.rto();
        self.deadlines.insert((deadline, slot));
        let resent = self.flights.contains_key(&slot);
        self.flights.insert(slot, Flight { sent: now, deadline: Some(deadline), resent });
        self.outbound(slot, source, packet, resent)
    }

    fn next_resend(&mut self) -> Option<Slot> {
        // Slots that were answered while they waited are gone from `flights`.
        std::iter::from_fn(|| self.resend.pop_front()).find(|slot| self.flights.contains_key(slot))
    }

    fn next_fresh(&mut self) -> Option<Slot> {
        let id = *self.unsent.front()?;
        let outgoing = self.outgoing.get_mut(&id)?;
        let slot = (id, outgoing.started);
        outgoing.started += 1;
        if outgoing.started == outgoing.count {
            self.unsent.pop_front();
        }
        Some(slot)
    }

    fn outbound(&self, slot: Slot, source: u32, packet: u64, resent: bool) -> Option<Outbound<'_>> {
        let (id, place) = slot;
        let message = &self.outgoing.get(&id)?.message;
        let start = place as usize * self.payload_limit;
        let end = message.data.len().min(start + self.payload_limit);
        let header = Header {
            opcode: message.opcode,
            contributor: message.contributor,
            source,
            destination: self.destination,
            packet,
            message: id,
            offset: message.offset + start as u64,
            rkey: message.rkey,
            message_bytes: message.data.len() as u32,
            index: message.first_index + place,
            immediate: message.immediate,
        };
        Some(Outbound { header, payload: &message.data[start..end], resent })
    }

    /// Takes one answer from the peer's incarnation `source`.
    pub(super) fn on_ack(
        &mut self,
        now: Time,
        source: u32,
        entry: AckEntry,
        events: &mut VecDeque<Event>,
    ) {
        let Some(outgoing) = self.outgoing.get(&entry.message) else { return };
        let slot = (entry.message, entry.index.wrapping_sub(outgoing.message.first_index));
        if entry.status == Err(Refusal::WrongIncarnation) {
            // Only an answer to what we sent to a known, other incarnation is believed.
            if self.flights.contains_key(&slot)
                && self.destination != 0
                && source != self.destination
            {
                self.fail_all(Cause::Restarted, events);
            }
            return;
        }
        if self.destination == 0 {
            self.destination = source;
        }
        if source != self.destination {
            return;
        }
        let Some(flight) = self.flights.remove(&slot) else { return };
        self.heard = now;
        if let Some(deadline) = flight.deadline {
            self.deadlines.remove(&(deadline, slot));
        }
        self.pace.on_ack((!flight.resent).then(|| now.since(flight.sent)));
        match entry.status {
            Ok(()) => self.on_committed(entry.message, events),
            Err(refusal) => self.on_refused(entry.message, refusal, events),
        }
    }

    fn on_committed(&mut self, id: u64, events: &mut VecDeque<Event>) {
        let Some(outgoing) = self.outgoing.get_mut(&id) else { return };
        outgoing.open -= 1;
        if outgoing.open == 0 {
            self.outgoing.remove(&id);
            events.push_back(Event::Completed { peer: self.peer(), message: MessageId(id) });
        }
    }

    fn on_refused(&mut self, id: u64, refusal: Refusal, events: &mut VecDeque<Event>) {
        self.outgoing.remove(&id);
        self.unsent.retain(|unsent| *unsent != id);
        for (slot, flight) in self.flights.extract_if((id, 0)..=(id, u32::MAX), |_, _| true) {
            if let Some(deadline) = flight.deadline {
                self.deadlines.remove(&(deadline, slot));
            }
        }
        events.push_back(Event::Refused { peer: self.peer(), message: MessageId(id), refusal });
    }

    /// Expires datagrams, and the peer itself after `give_up` of silence (PROTOCOL §4.4, §4.5).
    pub(super) fn on_timeout(
        &mut self,
        now: Time,
        give_up: Duration,
        events: &mut VecDeque<Event>,
    ) {
        if !self.outgoing.is_empty() && now >= self.heard + give_up {
            return self.fail_all(Cause::Silence, events);
        }
        let mut lost = false;
        while let Some(&(deadline, slot)) = self.deadlines.first() {
            if deadline > now {
                break;
            }
            self.deadlines.pop_first();
            if let Some(flight) = self.flights.get_mut(&slot) {
                flight.deadline = None;
                self.resend.push_back(slot);
                lost = true;
            }
        }
        if lost && now >= self.last_loss + self.pace.rto() {
            self.last_loss = now;
            self.pace.on_loss();
        }
    }

    pub(super) fn next_timeout(&self, give_up: Duration) -> Option<Time> {
        let silence = (!self.outgoing.is_empty()).then(|| self.heard + give_up);
        let datagram = self.deadlines.first().map(|(deadline, _)| *deadline);
        [silence, datagram].into_iter().flatten().min()
    }

    fn fail_all(&mut self, cause: Cause, events: &mut VecDeque<Event>) {
        let (peer, heard, scheduled) = (self.peer(), self.heard, self.scheduled);
        // Message ids go on ascending: the receiver remembers those it has answered.
        let fresh = Self::new(self.addr, self.payload_limit, self.next_message);
        *self = Self { heard, scheduled, ..fresh };
        events.push_back(Event::Unreachable { peer, cause });
    }
}
