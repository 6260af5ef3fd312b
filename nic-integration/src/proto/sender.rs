//! The sending half towards one peer: messages, datagrams in flight, timers (PROTOCOL §4).

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::ack::{Ack, Notice, Refusal};
use super::datagram::{Header, Opcode};
use super::event::{Event, MessageId, Peer};
use super::path::{Answered, MAX_PATHS, Paths, Route};
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
    path: usize,
    why: Why,
}

/// Why a datagram is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    /// It never was.
    Fresh,
    /// It was lost, or is to ask for an answer.
    Again,
    /// A trimmed header asked for it.
    Early,
    /// To try a path that rests; the same datagram is in flight by another.
    Trial,
}

/// A datagram to send, by which path, and why.
type Choice = (Slot, usize, Why);

/// What a flow has to send.
#[derive(Debug, Default)]
struct Flow {
    /// Messages not yet answered.
    open: u32,
    /// When something was last answered, or the silence began to matter.
    heard: Time,
    /// Messages with datagrams never sent, oldest first.
    unsent: VecDeque<u64>,
    /// Datagrams to send again.
    resend: VecDeque<(Slot, Why)>,
}

/// What to put on the wire next.
pub(super) struct Outbound<'a> {
    pub(super) header: Header,
    pub(super) payload: &'a [u8],
    pub(super) resent: bool,
    pub(super) route: Route,
}

#[derive(Debug)]
pub(super) struct Sender {
    payload_limit: usize,
    pub(super) paths: Paths,
    next_message: u64,
    outgoing: BTreeMap<u64, Outgoing>,
    /// None while all are empty.
    flows: Vec<Flow>,
    /// The flow that sends next.
    turn: u32,
    /// By packet number, from `first_flight` on; the first one is never empty.
    flights: VecDeque<Option<Flight>>,
    first_flight: u64,
    in_flight: usize,
    /// Early retransmissions since `early_since`.
    early: u32,
    early_since: Time,
}

impl Sender {
    pub(super) fn new(payload_limit: usize, first_message: u64, paths: Paths) -> Self {
        Self {
            payload_limit,
            next_message: first_message,
            outgoing: BTreeMap::new(),
            flows: vec![],
            paths,
            turn: 0,
            flights: VecDeque::new(),
            first_flight: 0,
            in_flight: 0,
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

    /// When something was last answered, or the silence began to matter: of the flow, of those with
    /// something unanswered, for which it was longest ago.
    pub(super) fn heard(&self) -> Time {
        let open = self.flows.iter().filter(|flow| flow.open > 0);
        open.map(|flow| flow.heard).min().unwrap_or(Time::ZERO)
    }

    /// Takes a message; the caller has checked that there is room.
    pub(super) fn queue(&mut self, now: Time, message: Message) -> MessageId {
        let id = self.next_message;
        self.next_message += 1;
        // An empty message still needs one datagram to carry its immediate.
        let count = message.data.len().div_ceil(self.payload_limit).max(1) as u32;
        let carriers = Vec::with_capacity(count as usize);
        self.outgoing.insert(id, Outgoing { message, count, started: 0, open: count, carriers });
        let flow = self.flow(id);
        if flow.open == 0 {
            flow.heard = now;
        }
        flow.open += 1;
        flow.unsent.push_back(id);
        MessageId(id)
    }

    /// The flow that a message is dealt to.
    fn flow(&mut self, id: u64) -> &mut Flow {
        if self.flows.is_empty() {
            self.flows.resize_with(self.paths.flows(), Flow::default);
        }
        let count = self.flows.len() as u64;
        &mut self.flows[(id % count) as usize]
    }

    /// The next datagram to send, as `packet`, if a window has room for one; retransmissions first.
    pub(super) fn next(&mut self, now: Time, packet: u64) -> Option<Outbound<'_>> {
        // What is so far behind the peer has forgotten: it was lost, or was not wanted any more.
        while self.in_flight > 0 && packet.saturating_sub(self.first_flight) >= WINDOW_PACKETS - 64
        {
            self.lose(self.first_flight);
        }
        let full = self.in_flight >= self.paths.limit();
        let choice = self.probe().or_else(|| self.trial());
        let choice = choice.or_else(|| if full { None } else { self.pick() });
        let (slot, path, why) = choice?;
        if self.in_flight == 0 {
            self.flights.clear();
            self.first_flight = packet;
        }
        // Packets between carried acknowledgements.
        let gap = (packet - self.first_flight) as usize;
        self.flights.resize(gap, None);
        self.flights.push_back(Some(Flight { slot, sent: now, path, why }));
        self.in_flight += 1;
        let way = self.paths.get(path);
        way.sent.push_back(packet);
        way.in_flight += 1;
        way.stirred = now;
        let route = way.route;
        let carriers = &mut self.outgoing.get_mut(&slot.0)?.carriers;
        match carriers.get_mut(slot.1 as usize) {
            Some(_) if why == Why::Trial => {}
            Some(carrier) => *carrier = packet,
            None => carriers.push(packet),
        }
        self.outbound(slot, route, why != Why::Fresh)
    }

    /// What a path that was silent for long has in flight, to ask for an answer by the same path.
    fn probe(&mut self) -> Option<Choice> {
        while let Some(path) = self.paths.wants_probe() {
            let found = self.wanted().find(|(_, went)| *went == path).map(|(slot, _)| slot);
            let way = self.paths.get(path);
            let Some(slot) = found else {
                way.probes = 0;
                continue;
            };
            way.probes -= 1;
            return Some((slot, path, Why::Again));
        }
        None
    }

    /// What is in flight by another path of the same flow, to try one that rests.
    fn trial(&mut self) -> Option<Choice> {
        let path = self.paths.wants_trial()?;
        let flows = self.paths.flows();
        let other = |went: usize| went != path && went % flows == path % flows;
        let slot = self.wanted().find(|(_, went)| other(*went)).map(|(slot, _)| slot)?;
        self.paths.get(path).on_trial();
        Some((slot, path, Why::Trial))
    }

    /// What is to be sent by which path, of the flow whose turn it is or else of another.
    fn pick(&mut self) -> Option<Choice> {
        for _ in 0..self.flows.len() {
            let flow = self.turn as usize;
            let next = (flow + 1) % self.flows.len();
            if let Some(path) = self.paths.choose(flow)
                && let Some((slot, why)) = self.next_resend(flow).or_else(|| self.next_fresh(flow))
            {
                if self.paths.take(flow, path) {
                    self.turn = next as u32;
                }
                return Some((slot, path, why));
            }
            self.turn = next as u32;
        }
        None
    }

    /// What was answered while it waited need not be sent again.
    fn next_resend(&mut self, flow: usize) -> Option<(Slot, Why)> {
        while let Some((slot, why)) = self.flows[flow].resend.pop_front() {
            if self.carrier(slot) == Some(QUEUED) {
                return Some((slot, why));
            }
        }
        None
    }

    fn carrier(&self, (id, place): Slot) -> Option<u64> {
        self.outgoing.get(&id)?.carriers.get(place as usize).copied()
    }

    fn next_fresh(&mut self, flow: usize) -> Option<(Slot, Why)> {
        let id = *self.flows[flow].unsent.front()?;
        let outgoing = self.outgoing.get_mut(&id)?;
        let slot = (id, outgoing.started);
        outgoing.started += 1;
        if outgoing.started == outgoing.count {
            self.flows[flow].unsent.pop_front();
        }
        Some((slot, Why::Fresh))
    }

    /// The datagrams in flight that are still wanted, oldest first, and the paths they went.
    fn wanted(&self) -> impl Iterator<Item = (Slot, usize)> + '_ {
        let flights = self.flights.iter().zip(self.first_flight..);
        flights.filter_map(|(flight, packet)| {
            let flight = flight.as_ref()?;
            (self.carrier(flight.slot) == Some(packet)).then_some((flight.slot, flight.path))
        })
    }

    fn outbound(&self, (id, place): Slot, route: Route, resent: bool) -> Option<Outbound<'_>> {
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
        Some(Outbound { header, payload: &message.data[start..end], resent, route })
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
        let mut answered = [Answered::default(); MAX_PATHS];
        for (first, word) in ack.words() {
            let mut bits = self.within(first, word);
            while bits != 0 {
                let packet = first + u64::from(bits.trailing_zeros());
                bits &= bits - 1;
                let Some(flight) = self.land(packet) else { continue };
                let own = &mut answered[flight.path];
                own.path = flight.path;
                own.count += 1;
                own.newest = (packet, flight.sent);
                own.tried |= flight.why == Why::Trial;
                self.on_committed(flight.slot, peer, events);
            }
        }
        self.on_answers(now, &answered);
        self.find_lost(now);
    }

    /// Packets of some paths were answered.
    fn on_answers(&mut self, now: Time, answered: &[Answered]) {
        let answered = answered.iter().filter(|own| own.count > 0);
        for own in answered.clone() {
            self.paths.on_answers(now, own);
            let flow = own.path % self.paths.flows();
            if let Some(flow) = self.flows.get_mut(flow) {
                flow.heard = now;
            }
        }
        answered.for_each(|own| self.paths.rest_if_late(now, own.path));
        // Whoever was silent may have been silent alone.
        (0..self.paths.len()).for_each(|path| self.rest_if_silent(now, path));
    }

    /// Of a word of the peer's: the packets that are in flight.
    fn within(&self, first: u64, word: u64) -> u64 {
        let end = self.first_flight + self.flights.len() as u64;
        let below = self.first_flight.saturating_sub(first);
        let beyond = (first + 64).saturating_sub(end);
        if below >= 64 || beyond >= 64 { 0 } else { word & u64::MAX << below & u64::MAX >> beyond }
    }

    /// A packet that may be in flight.
    fn flight(&self, packet: u64) -> Option<&Flight> {
        let at = usize::try_from(packet.checked_sub(self.first_flight)?).ok()?;
        self.flights.get(at)?.as_ref()
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
        self.paths.get(flight.path).in_flight -= 1;
        // The first of a path's is in flight.
        while let Some(&first) = self.paths.all()[flight.path].sent.front()
            && self.flight(first).is_none()
        {
            self.paths.get(flight.path).sent.pop_front();
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
            self.flow(id).open -= 1;
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
        let Some(Flight { slot: (id, _), sent, path, why }) = self.land(packet) else { return };
        let tried = why == Why::Trial;
        self.on_answers(now, &[Answered { path, count: 1, newest: (packet, sent), tried }]);
        if self.outgoing.remove(&id).is_some() {
            let flow = self.flow(id);
            flow.open -= 1;
            flow.unsent.retain(|unsent| *unsent != id);
            events.extend([Event::Refused { peer, message: MessageId(id), refusal }]);
        }
    }

    /// The payload was cut off on the way: it is sent again without waiting, once, unless too many
    /// are already (PROTOCOL §4.5).
    fn on_trimmed(&mut self, now: Time, packet: u64) {
        let Some(&Flight { slot, path, why, .. }) = self.flight(packet) else { return };
        let pace = &self.paths.all()[path].pace;
        if now.since(self.early_since) > pace.patience() {
            (self.early, self.early_since) = (0, now);
        }
        if self.early as usize >= pace.window().div_ceil(EARLY_SHARE) || why == Why::Early {
            return;
        }
        self.land(packet);
        if self.carrier(slot) == Some(packet) {
            self.early += 1;
            self.queue_again(slot, Why::Early);
        }
    }

    /// What was overtaken long enough ago is lost (PROTOCOL §4.4).
    fn find_lost(&mut self, now: Time) {
        for path in 0..self.paths.len() {
            let mut lost = 0;
            while let Some((packet, overdue)) = self.overdue(path)
                && overdue <= now
            {
                lost += usize::from(self.lose(packet));
            }
            if lost > 0 {
                self.paths.get(path).pace.on_lost(lost);
            }
        }
    }

    /// The oldest packet in flight by a path, and when it is lost, if a later one was answered.
    fn overdue(&self, path: usize) -> Option<(u64, Time)> {
        let way = &self.paths.all()[path];
        let first = *way.sent.front()?;
        let overtaken = way.newest_answered > Some(first);
        overtaken.then_some((first, self.flight(first)?.sent + way.pace.patience()))
    }

    /// Gives up a packet in flight; whether its datagram must be sent again.
    fn lose(&mut self, packet: u64) -> bool {
        let Some(flight) = self.land(packet) else { return false };
        let again = self.carrier(flight.slot) == Some(packet);
        if again {
            self.queue_again(flight.slot, Why::Again);
        }
        again
    }

    /// Leaves a path to rest if it alone is silent; what it has in flight goes by others.
    fn rest_if_silent(&mut self, now: Time, path: usize) {
        if self.paths.rest_if_silent(now, path) {
            self.lose_path(path);
        }
    }

    /// Gives up all packets in flight by a path.
    fn lose_path(&mut self, path: usize) {
        while let Some(first) = self.paths.get(path).sent.pop_front() {
            self.lose(first);
        }
    }

    /// Sends a datagram again before any that was never sent; what asks early goes first.
    fn queue_again(&mut self, slot: Slot, why: Why) {
        let carriers = self.outgoing.get_mut(&slot.0).map(|outgoing| &mut outgoing.carriers);
        if let Some(carrier) = carriers.and_then(|all| all.get_mut(slot.1 as usize)) {
            *carrier = QUEUED;
            let resend = &mut self.flow(slot.0).resend;
            match why {
                Why::Early => resend.push_front((slot, why)),
                _ => resend.push_back((slot, why)),
            }
        }
    }

    /// Lets timers expire.
    pub(super) fn on_timeout(&mut self, now: Time) {
        self.find_lost(now);
        for path in 0..self.paths.len() {
            let way = self.paths.get(path);
            way.on_timeout(now);
            if way.in_flight == 0 || now < way.stirred + way.pace.timeout() {
                continue;
            }
            let persistent = way.on_silence(now);
            if persistent || !way.is_up() {
                self.lose_path(path);
                continue;
            }
            // The oldest that are still wanted ask for an answer, and stay in flight: first by the same path,
            // then by another.
            let again = way.pace.timeouts() > 1 && self.paths.has_other(path);
            let own = self.wanted().filter(|(_, went)| *went == path).map(|(slot, _)| slot);
            let asking: Vec<Slot> = own.take(PROBES).collect();
            if again {
                asking.into_iter().for_each(|slot| self.queue_again(slot, Why::Again));
            } else {
                self.paths.get(path).probes = asking.len() as u32;
            }
            self.rest_if_silent(now, path);
        }
    }

    /// Another session's packet numbers begin anew: what is in flight is lost.
    pub(super) fn renumber(&mut self) {
        while self.in_flight > 0 {
            self.lose(self.first_flight);
        }
        self.first_flight = 0;
        self.flights.clear();
        (0..self.paths.len()).for_each(|path| self.paths.get(path).clear());
    }

    /// Keeps no room for what is not there.
    pub(super) fn shrink(&mut self) {
        if self.is_idle() && self.in_flight == 0 {
            self.flights = VecDeque::new();
            self.flows = vec![];
            self.paths.shrink();
            // An empty tree has room for eleven, once it had one.
            self.outgoing = BTreeMap::new();
        }
    }

    pub(super) fn next_timeout(&self) -> Option<Time> {
        let due = (0..self.paths.len()).filter_map(|path| {
            let way = &self.paths.all()[path];
            let waiting = (way.in_flight > 0).then(|| way.stirred + way.pace.timeout());
            let lost = self.overdue(path).map(|(_, overdue)| overdue);
            let trial = way.next_trial().filter(|_| !self.is_idle());
            [waiting, lost, trial].into_iter().flatten().min()
        });
        due.min()
    }

    /// Drops every message; ids go on ascending, since the receiver remembers those it has answered.
    pub(super) fn fail_all(&mut self) {
        self.outgoing.clear();
        self.flows.iter_mut().for_each(|flow| *flow = Flow::default());
        self.flights.clear();
        self.in_flight = 0;
        (self.early, self.early_since) = (0, Time::ZERO);
        self.paths.reset();
    }
}
