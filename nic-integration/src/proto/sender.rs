//! The sending half towards one peer: messages, datagrams in flight, timers (PROTOCOL §4).

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::ack::{Ack, Notice, Refusal};
use super::datagram::{Header, OVERHEAD_BYTES, Opcode};
use super::event::{Event, MessageId, Peer};
use super::pace::Pace;
use super::secure::WINDOW_PACKETS;
use super::time::Time;

/// Messages to one peer that may be unanswered at once; also how far the ids of unanswered
/// messages may lie apart, so that a receiver can forget what is older (PROTOCOL §4.2).
pub const MESSAGE_WINDOW: u64 = 1024;
/// Datagrams that ask for an answer when none came in time.
pub const PROBES: usize = 2;
/// One in so many datagrams of a window may be sent again early, at the word of a trimmed header,
/// within one patience.
pub const EARLY_SHARE: usize = 2;

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
    /// Of those: not yet answered.
    open: u32,
    /// For each sent: the packet that last carried it, or [`QUEUED`], or [`DONE`].
    carriers: Vec<u64>,
}

/// In place of a carrier: the datagram was answered.
const DONE: u64 = u64::MAX;
/// In place of a carrier: the datagram waits to be sent again.
const QUEUED: u64 = u64::MAX - 1;

/// A datagram's place: its message and how many of the message's datagrams precede it.
type Slot = (u64, u32);

#[derive(Clone, Copy, Debug)]
struct Flight {
    slot: Slot,
    sent: Time,
    /// Sent at the word of a trimmed header.
    early: bool,
}

/// What to put on the wire next.
pub(super) struct Outbound<'a> {
    pub(super) header: Header,
    pub(super) payload: &'a [u8],
    pub(super) resent: bool,
}

#[derive(Debug)]
pub(super) struct Sender {
    payload_limit: usize,
    pace: Pace,
    next_message: u64,
    outgoing: BTreeMap<u64, Outgoing>,
    /// Messages with datagrams never sent, oldest first.
    unsent: VecDeque<u64>,
    /// By packet number, from `first_flight` on; the first one is never empty.
    flights: VecDeque<Option<Flight>>,
    first_flight: u64,
    in_flight: usize,
    /// Datagrams to send again, and whether early.
    resend: VecDeque<(Slot, bool)>,
    /// Probes that may exceed the window.
    probes: usize,
    /// The newest packet that was answered: those before it were overtaken.
    newest_answered: Option<u64>,
    /// When something was last sent or answered: the timeout counts from here.
    stirred: Time,
    /// When something was last answered, or the silence began to matter.
    heard: Time,
    /// Early retransmissions since `early_since`.
    early: usize,
    early_since: Time,
}

impl Sender {
    pub(super) fn new(payload_limit: usize, first_message: u64) -> Self {
        Self {
            payload_limit,
            pace: Pace::new(payload_limit + OVERHEAD_BYTES),
            next_message: first_message,
            outgoing: BTreeMap::new(),
            unsent: VecDeque::new(),
            flights: VecDeque::new(),
            first_flight: 0,
            in_flight: 0,
            resend: VecDeque::new(),
            probes: 0,
            newest_answered: None,
            stirred: Time::ZERO,
            heard: Time::ZERO,
            early: 0,
            early_since: Time::ZERO,
        }
    }

    /// How many more messages may be queued (PROTOCOL §4.2).
    pub(super) fn room(&self) -> usize {
        let oldest = self.outgoing.first_key_value().map_or(self.next_message, |(id, _)| *id);
        (MESSAGE_WINDOW - (self.next_message - oldest)) as usize
    }

    pub(super) fn next_message(&self) -> u64 {
        self.next_message
    }

    /// Goes on above ids that another link has used towards the same peer. Nothing may be unanswered: what
    /// is has its id.
    pub(super) fn skip_to(&mut self, message: u64) {
        if self.is_idle() {
            self.next_message = self.next_message.max(message);
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.outgoing.is_empty()
    }

    /// When something was last answered, or the silence began to matter.
    pub(super) fn heard(&self) -> Time {
        self.heard
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
        let carriers = Vec::with_capacity(count as usize);
        self.outgoing.insert(id, Outgoing { message, count, started: 0, open: count, carriers });
        self.unsent.push_back(id);
        MessageId(id)
    }

    /// The next datagram to send, as `packet`, if the window has room for one; retransmissions first.
    pub(super) fn next(&mut self, now: Time, packet: u64) -> Option<Outbound<'_>> {
        let span = packet.saturating_sub(self.first_flight);
        let crowded = !self.flights.is_empty() && span >= WINDOW_PACKETS - 64;
        let full = self.in_flight >= self.pace.window() && self.probes == 0;
        if crowded || full {
            return None;
        }
        let (slot, early, resent) = match self.next_resend() {
            Some((slot, early)) => (slot, early, true),
            None => (self.next_fresh()?, false, false),
        };
        self.probes = self.probes.saturating_sub(1);
        if self.in_flight == 0 {
            self.flights.clear();
            self.first_flight = packet;
        }
        // Packets between carried acknowledgements.
        let gap = (packet - self.first_flight) as usize;
        self.flights.resize(gap, None);
        self.flights.push_back(Some(Flight { slot, sent: now, early }));
        self.in_flight += 1;
        self.stirred = now;
        let carriers = &mut self.outgoing.get_mut(&slot.0)?.carriers;
        match carriers.get_mut(slot.1 as usize) {
            Some(carrier) => *carrier = packet,
            None => carriers.push(packet),
        }
        self.outbound(slot, resent)
    }

    /// What was answered while it waited need not be sent again.
    fn next_resend(&mut self) -> Option<(Slot, bool)> {
        while let Some((slot, early)) = self.resend.pop_front() {
            if self.carrier(slot) == Some(QUEUED) {
                return Some((slot, early));
            }
        }
        None
    }

    fn carrier(&self, (id, place): Slot) -> Option<u64> {
        self.outgoing.get(&id)?.carriers.get(place as usize).copied()
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

    fn outbound(&self, (id, place): Slot, resent: bool) -> Option<Outbound<'_>> {
        let message = &self.outgoing.get(&id)?.message;
        let start = place as usize * self.payload_limit;
        let end = message.data.len().min(start + self.payload_limit);
        let header = Header {
            opcode: message.opcode,
            contributor: message.contributor,
            message: id,
            offset: message.offset + start as u64,
            rkey: message.rkey,
            message_bytes: message.data.len() as u32,
            index: message.first_index + place,
            immediate: message.immediate,
            ..Header::default()
        };
        Some(Outbound { header, payload: &message.data[start..end], resent })
    }

    /// Takes what the peer says of our packets.
    pub(super) fn on_ack(
        &mut self,
        now: Time,
        ack: &Ack<'_>,
        peer: Peer,
        events: &mut impl Extend<Event>,
    ) {
        // A refused packet is answered too: what its notice says comes first.
        for (packet, notice) in ack.notices() {
            match notice {
                Notice::Refused(refusal) => self.on_refused(now, packet, refusal, peer, events),
                Notice::Trimmed => self.on_trimmed(now, packet),
            }
        }
        let (mut count, mut newest) = (0, None);
        for (first, word) in ack.words() {
            let mut bits = self.within(first, word);
            while bits != 0 {
                let packet = first + u64::from(bits.trailing_zeros());
                bits &= bits - 1;
                let Some(flight) = self.land(packet) else { continue };
                count += 1;
                newest = newest.max(Some((packet, flight.sent)));
                self.on_committed(flight.slot, peer, events);
            }
        }
        if let Some(newest) = newest {
            self.on_answers(now, count, newest);
        }
        self.find_lost(now);
    }

    /// So many packets were answered; the newest of them, and when it had been sent.
    fn on_answers(&mut self, now: Time, count: usize, (packet, sent): (u64, Time)) {
        // Of an older one nobody knows how long its answer has been under way.
        let sample = (self.newest_answered < Some(packet)).then(|| now.since(sent));
        self.newest_answered = self.newest_answered.max(Some(packet));
        self.pace.on_answers(count, sample);
        (self.heard, self.stirred) = (now, now);
    }

    /// Of a word of the peer's: the packets that are in flight.
    fn within(&self, first: u64, word: u64) -> u64 {
        let end = self.first_flight + self.flights.len() as u64;
        let below = self.first_flight.saturating_sub(first);
        let beyond = (first + 64).saturating_sub(end);
        if below >= 64 || beyond >= 64 { 0 } else { word & u64::MAX << below & u64::MAX >> beyond }
    }

    /// Takes a packet out of flight.
    fn land(&mut self, packet: u64) -> Option<Flight> {
        let at = usize::try_from(packet.checked_sub(self.first_flight)?).ok()?;
        let flight = self.flights.get_mut(at)?.take()?;
        self.in_flight -= 1;
        while let Some(None) = self.flights.front() {
            self.flights.pop_front();
            self.first_flight += 1;
        }
        Some(flight)
    }

    fn on_committed(&mut self, (id, place): Slot, peer: Peer, events: &mut impl Extend<Event>) {
        let Some(outgoing) = self.outgoing.get_mut(&id) else { return };
        let Some(carrier) = outgoing.carriers.get_mut(place as usize) else { return };
        if std::mem::replace(carrier, DONE) == DONE {
            return;
        }
        outgoing.open -= 1;
        if outgoing.open == 0 {
            self.outgoing.remove(&id);
            events.extend([Event::Completed { peer, message: MessageId(id) }]);
        }
    }

    fn on_refused(
        &mut self,
        now: Time,
        packet: u64,
        refusal: Refusal,
        peer: Peer,
        events: &mut impl Extend<Event>,
    ) {
        let Some(Flight { slot: (id, _), sent, .. }) = self.land(packet) else { return };
        self.on_answers(now, 1, (packet, sent));
        if self.outgoing.remove(&id).is_some() {
            self.unsent.retain(|unsent| *unsent != id);
            events.extend([Event::Refused { peer, message: MessageId(id), refusal }]);
        }
    }

    /// The payload was cut off on the way: it is sent again without waiting, once, unless too many
    /// are already (PROTOCOL §4.5).
    fn on_trimmed(&mut self, now: Time, packet: u64) {
        if now.since(self.early_since) > self.pace.patience() {
            (self.early, self.early_since) = (0, now);
        }
        if self.early >= self.pace.window().div_ceil(EARLY_SHARE) {
            return;
        }
        let at = packet.checked_sub(self.first_flight).and_then(|at| usize::try_from(at).ok());
        let flight = at.and_then(|at| self.flights.get(at)).copied().flatten();
        if flight.is_none_or(|flight| flight.early) {
            return;
        }
        if let Some(flight) = self.land(packet)
            && self.carrier(flight.slot) == Some(packet)
        {
            self.early += 1;
            self.queue_again(flight.slot, true);
        }
    }

    /// What was overtaken long enough ago is lost (PROTOCOL §4.4).
    fn find_lost(&mut self, now: Time) {
        let mut lost = 0;
        while let Some(overdue) = self.overdue()
            && overdue <= now
        {
            lost += usize::from(self.lose_first());
        }
        if lost > 0 {
            self.pace.on_lost(lost);
        }
    }

    /// When the oldest packet in flight is lost, if a later one was answered.
    fn overdue(&self) -> Option<Time> {
        let flight = self.flights.front()?.as_ref()?;
        let overtaken = self.newest_answered > Some(self.first_flight);
        overtaken.then(|| flight.sent + self.pace.patience())
    }

    /// Gives up the oldest packet in flight; whether its datagram must be sent again.
    fn lose_first(&mut self) -> bool {
        let packet = self.first_flight;
        let Some(flight) = self.land(packet) else { return false };
        let again = self.carrier(flight.slot) == Some(packet);
        if again {
            self.queue_again(flight.slot, false);
        }
        again
    }

    /// Sends a datagram again before any that was never sent; what asks early goes first.
    fn queue_again(&mut self, slot: Slot, early: bool) {
        let carriers = self.outgoing.get_mut(&slot.0).map(|outgoing| &mut outgoing.carriers);
        if let Some(carrier) = carriers.and_then(|all| all.get_mut(slot.1 as usize)) {
            *carrier = QUEUED;
            if early {
                self.resend.push_front((slot, early));
            } else {
                self.resend.push_back((slot, early));
            }
        }
    }

    /// Lets timers expire.
    pub(super) fn on_timeout(&mut self, now: Time) {
        self.find_lost(now);
        if self.in_flight == 0 || now < self.stirred + self.pace.timeout() {
            return;
        }
        self.stirred = now;
        if self.pace.on_timeout() {
            return self.lose_all();
        }
        // The oldest that are still wanted ask for an answer; they stay in flight.
        let asking: Vec<Slot> = self
            .flights
            .iter()
            .zip(self.first_flight..)
            .filter_map(|(flight, packet)| Some((flight.as_ref()?.slot, packet)))
            .filter(|(slot, packet)| self.carrier(*slot) == Some(*packet))
            .map(|(slot, _)| slot)
            .take(PROBES)
            .collect();
        self.probes = asking.len();
        asking.into_iter().for_each(|slot| self.queue_again(slot, false));
    }

    /// Everything in flight must be sent again.
    pub(super) fn lose_all(&mut self) {
        while self.in_flight > 0 {
            self.lose_first();
        }
        self.newest_answered = None;
    }

    /// Another session's packet numbers begin anew: what is in flight is lost.
    pub(super) fn renumber(&mut self) {
        self.lose_all();
        (self.first_flight, self.probes) = (0, 0);
        self.flights.clear();
    }

    /// Keeps no room for what is not there.
    pub(super) fn rest(&mut self) {
        if self.is_idle() && self.in_flight == 0 {
            (self.flights, self.unsent, self.resend) = Default::default();
            // An empty tree has room for eleven, once it had one.
            self.outgoing = BTreeMap::new();
        }
    }

    pub(super) fn next_timeout(&self) -> Option<Time> {
        let waiting = (self.in_flight > 0).then(|| self.stirred + self.pace.timeout());
        [waiting, self.overdue()].into_iter().flatten().min()
    }

    /// Drops every message; ids go on ascending, since the receiver remembers those it has answered.
    pub(super) fn fail_all(&mut self) {
        let heard = self.heard;
        *self = Self { heard, ..Self::new(self.payload_limit, self.next_message) };
    }
}
