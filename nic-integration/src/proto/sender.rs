//! A channel's datagrams in flight to a peer: windows, loss, timers (PROTOCOL §4).

use std::collections::VecDeque;

use super::ack::{Ack, AckNotice, Refusal};
use super::datagram::OVERHEAD_BYTES;
use super::event::{EndpointEvent, Peer};
use super::outbox::{Carrier, DatagramSlot, FlowHealth, Outbound, Outbox, Reason};
use super::path::{Answered, MAX_PATHS, Paths, Route};
use super::secure::WINDOW_PACKETS;
use super::time::Time;

/// Datagrams that ask for an answer when none came in time.
pub const PROBES: usize = 2;
/// The divisor of a window that bounds the datagrams sent again early, upon trimmed headers, within
/// one loss delay.
pub const EARLY_SHARE: usize = 2;

#[derive(Clone, Copy, Debug)]
struct SentPacket {
    slot: DatagramSlot,
    sent: Time,
    path: usize,
    /// Bytes of the datagram; 0 once its path was replaced, of whose successor they say nothing.
    bytes: u32,
    reason: Reason,
}

/// A datagram to send, its path, and the reason.
type SendChoice = (DatagramSlot, usize, Reason);

/// The next datagram to put on the wire.
pub(super) struct Next {
    pub(super) datagram: Outbound,
    pub(super) resent: bool,
    pub(super) route: Route,
    /// Bytes of the longest datagrams that the path is known to take.
    pub(super) path_bytes: u32,
}

#[derive(Debug)]
pub(super) struct Sender {
    channel: u16,
    pub(super) paths: Paths,
    /// The flow that sends next.
    next_flow: u16,
    /// By packet number, from `first_flight` on; the first one is never empty.
    flights: VecDeque<Option<SentPacket>>,
    first_flight: u64,
    in_flight: u32,
    /// Packets of the session that came marked for congestion, by the peer's count.
    congested: u32,
    /// Early retransmissions since `early_since`.
    early: u32,
    early_since: Time,
}

impl Sender {
    pub(super) fn new(channel: u16, paths: Paths) -> Self {
        Self {
            channel,
            paths,
            next_flow: 0,
            flights: VecDeque::new(),
            first_flight: 0,
            in_flight: 0,
            congested: 0,
            early: 0,
            early_since: Time::ZERO,
        }
    }

    /// Returns the carrier that a packet of ours is.
    fn by(&self, packet: u64) -> Carrier {
        Carrier::new(self.channel, packet)
    }

    /// Notes that a new packet came by `route`.
    pub(super) fn on_received(&mut self, now: Time, route: Route) {
        let Some(replaced) = self.paths.on_received(now, route) else { return };
        for flight in self.flights.iter_mut().flatten().filter(|flight| flight.path == replaced) {
            flight.bytes = 0;
        }
    }

    /// Chooses the next datagram to send, as `packet`, if a window has space for one;
    /// retransmissions come first.
    pub(super) fn next(&mut self, now: Time, packet: u64, outbox: &mut Outbox) -> Option<Next> {
        // The peer has forgotten packets so far behind: they were lost, or are no longer wanted.
        while self.in_flight > 0 && packet.saturating_sub(self.first_flight) >= WINDOW_PACKETS - 64
        {
            self.give_up(self.first_flight, false, outbox);
        }
        let full = self.in_flight as usize >= self.paths.limit();
        let choice = self.probe(outbox).or_else(|| self.trial(outbox));
        let choice = choice.or_else(|| if full { None } else { self.pick(now, outbox) });
        let Some((slot, path, reason)) = choice else {
            outbox.on_idle(self.channel);
            return None;
        };
        let datagram = outbox.outbound(slot)?;
        let bytes = (datagram.range.len() + OVERHEAD_BYTES) as u32;
        if self.in_flight == 0 {
            self.flights.clear();
            self.first_flight = packet;
        }
        // Packets between carried acknowledgements.
        let gap = (packet - self.first_flight) as usize;
        self.flights.resize(gap, None);
        self.flights.push_back(Some(SentPacket { slot, sent: now, path, bytes, reason }));
        self.in_flight += 1;
        let own = self.paths.get(path);
        own.sent.push_back(packet);
        own.in_flight += 1;
        own.timer_start = now;
        own.size.on_sent((bytes, packet), own.recovery.timeouts());
        let (route, path_bytes) = (own.route, own.size.current());
        if reason != Reason::Trial {
            outbox.carry(slot, self.by(packet));
        }
        Some(Next { datagram, resent: reason != Reason::Fresh, route, path_bytes })
    }

    /// Chooses a datagram in flight by a path that was silent for long, to ask for an answer by the
    /// same path.
    fn probe(&mut self, outbox: &mut Outbox) -> Option<SendChoice> {
        while let Some(path) = self.paths.wants_probe() {
            let found = self.wanted(outbox).find(|(_, went)| *went == path).map(|(slot, _)| slot);
            let own = self.paths.get(path);
            let Some(slot) = found else {
                own.probes = 0;
                continue;
            };
            own.probes -= 1;
            outbox.shorten(slot, own.asking_limit());
            return Some((slot, path, Reason::Again));
        }
        None
    }

    /// Chooses a datagram in flight by another path of the same flow, to try a path that rests.
    fn trial(&mut self, outbox: &mut Outbox) -> Option<SendChoice> {
        let path = self.paths.wants_trial()?;
        let flows = self.paths.flows();
        let other = |went: usize| went != path && went % flows == path % flows;
        let own = self.wanted(outbox).find(|(_, went)| other(*went)).map(|(slot, _)| slot);
        let slot = own.or_else(|| outbox.carried_elsewhere(path % flows, self.channel))?;
        let own = self.paths.get(path);
        own.on_trial();
        outbox.shorten(slot, own.asking_limit());
        Some((slot, path, Reason::Trial))
    }

    /// Chooses a datagram and its path, of the flow whose turn it is or else of another.
    fn pick(&mut self, now: Time, outbox: &mut Outbox) -> Option<SendChoice> {
        let flows = self.paths.flows();
        for _ in 0..flows {
            let flow = usize::from(self.next_flow);
            let next = (flow + 1) % flows;
            if let Some(path) = self.paths.choose(flow)
                && let limit = self.payload_limit(now, flow, path, outbox)
                && let Some((slot, reason)) = outbox.take(flow, limit)
            {
                if self.paths.take(flow, path) {
                    self.next_flow = next as u16;
                }
                return Some((slot, path, reason));
            }
            self.next_flow = next as u16;
        }
        None
    }

    /// Returns the bytes of payload of the next datagram by a path, which may try whether the path takes so many.
    fn payload_limit(&mut self, now: Time, flow: usize, path: usize, outbox: &Outbox) -> u32 {
        let own = self.paths.get(path);
        let Some(cut_to) = outbox.next_cut(flow) else { return own.payload_limit() };
        let overhead = OVERHEAD_BYTES as u32;
        own.size.limit(now, &|bytes| overhead + cut_to(bytes - overhead)) - overhead
    }

    /// Iterates over the datagrams in flight that are still wanted, oldest first, and their paths.
    fn wanted(&self, outbox: &Outbox) -> impl Iterator<Item = (DatagramSlot, usize)> {
        let flights = self.flights.iter().zip(self.first_flight..);
        flights.filter_map(|(flight, packet)| {
            let flight = flight.as_ref()?;
            outbox.is_carried(flight.slot, self.by(packet)).then_some((flight.slot, flight.path))
        })
    }

    /// Processes an ACK.
    pub(super) fn on_ack(
        &mut self,
        now: Time,
        ack: &Ack<'_>,
        peer: Peer,
        outbox: &mut Outbox,
        events: &mut impl Extend<EndpointEvent>,
    ) {
        // First, because what follows may take a path for a black hole: packets that were given up may be answered.
        for path in 0..self.paths.len() {
            self.paths.get(path).size.on_ack(|packet| ack.answers(packet));
        }
        // A refused packet is answered too: its notice comes first.
        for (packet, notice) in ack.notices() {
            match notice {
                AckNotice::Refused(refusal) => {
                    self.on_refused(now, packet, refusal, peer, outbox, events);
                }
                AckNotice::Trimmed => self.on_trimmed(now, packet, outbox),
            }
        }
        let mut answered = [Answered::default(); MAX_PATHS];
        for (first, word) in ack.words() {
            let mut bits = self.within(first, word);
            while bits != 0 {
                let packet = first + u64::from(bits.trailing_zeros());
                bits &= bits - 1;
                let Some(flight) = self.take_flight(packet) else { continue };
                let own = &mut answered[flight.path];
                own.path = flight.path;
                own.count += 1;
                own.newest = (packet, flight.sent);
                own.tried |= flight.reason == Reason::Trial;
                own.longest = own.longest.max(flight.bytes);
                self.paths.get(flight.path).size.on_packet(flight.bytes, packet);
                outbox.on_committed(flight.slot, peer, events);
            }
        }
        // An ACK that was overtaken counts fewer.
        if (ack.congested().wrapping_sub(self.congested) as i32) > 0 {
            self.congested = ack.congested();
            let paths = answered.iter().filter(|own| own.count > 0);
            paths.for_each(|own| self.paths.get(own.path).recovery.on_congested());
        }
        self.on_answers(now, &answered, outbox);
        self.find_lost(now, outbox);
        self.publish_health(outbox);
    }

    /// Notes answers to packets of some paths.
    fn on_answers(&mut self, now: Time, answered: &[Answered], outbox: &mut Outbox) {
        let flows = self.paths.flows();
        let answered = answered.iter().filter(|own| own.count > 0);
        for own in answered.clone() {
            let elsewhere = outbox.health_elsewhere(own.path % flows, self.channel);
            self.paths.on_answers(now, own, elsewhere);
            outbox.on_answered(now, own.path % flows);
        }
        answered.for_each(|own| {
            let elsewhere = outbox.health_elsewhere(own.path % flows, self.channel);
            self.paths.rest_if_late(now, own.path, elsewhere);
        });
        // Now it shows which paths were silent alone.
        (0..self.paths.len()).for_each(|path| self.rest_if_silent(now, path, outbox));
    }

    /// Masks a word of an ACK to the packets that are in flight.
    fn within(&self, first: u64, word: u64) -> u64 {
        let end = self.first_flight + self.flights.len() as u64;
        let below = self.first_flight.saturating_sub(first);
        let beyond = (first + 64).saturating_sub(end);
        if below >= 64 || beyond >= 64 { 0 } else { word & u64::MAX << below & u64::MAX >> beyond }
    }

    /// Returns a packet, if it is in flight.
    fn flight(&self, packet: u64) -> Option<&SentPacket> {
        let at = usize::try_from(packet.checked_sub(self.first_flight)?).ok()?;
        self.flights.get(at)?.as_ref()
    }

    /// Takes a packet out of flight.
    fn take_flight(&mut self, packet: u64) -> Option<SentPacket> {
        let at = usize::try_from(packet.checked_sub(self.first_flight)?).ok()?;
        let flight = self.flights.get_mut(at)?.take()?;
        self.in_flight -= 1;
        while let Some(None) = self.flights.front() {
            self.flights.pop_front();
            self.first_flight += 1;
        }
        self.paths.get(flight.path).in_flight -= 1;
        // The first of a path's list is always in flight.
        while let Some(&first) = self.paths.all()[flight.path].sent.front()
            && self.flight(first).is_none()
        {
            self.paths.get(flight.path).sent.pop_front();
        }
        Some(flight)
    }

    fn on_refused(
        &mut self,
        now: Time,
        packet: u64,
        refusal: Refusal,
        peer: Peer,
        outbox: &mut Outbox,
        events: &mut impl Extend<EndpointEvent>,
    ) {
        let Some(SentPacket { slot, sent, path, bytes, reason }) = self.take_flight(packet) else {
            return;
        };
        let tried = reason == Reason::Trial;
        let answered = Answered { path, count: 1, newest: (packet, sent), tried, longest: bytes };
        self.on_answers(now, &[answered], outbox);
        outbox.on_refused(slot, refusal, peer, events);
    }

    /// Sends a datagram again without waiting, once, because its payload was cut off on the way;
    /// unless too many are already (PROTOCOL §4.5).
    fn on_trimmed(&mut self, now: Time, packet: u64, outbox: &mut Outbox) {
        let Some(&SentPacket { slot, path, bytes, reason, .. }) = self.flight(packet) else {
            return;
        };
        let recovery = &self.paths.all()[path].recovery;
        if now.since(self.early_since) > recovery.loss_delay() {
            (self.early, self.early_since) = (0, now);
        }
        if self.early as usize >= recovery.window().div_ceil(EARLY_SHARE) || reason == Reason::Early
        {
            return;
        }
        self.take_flight(packet);
        self.paths.get(path).size.on_lost((bytes, packet), false);
        if outbox.is_carried(slot, self.by(packet)) {
            self.early += 1;
            outbox.requeue(slot, Reason::Early);
        }
    }

    /// Gives up packets that were overtaken long enough ago (PROTOCOL §4.4).
    fn find_lost(&mut self, now: Time, outbox: &mut Outbox) {
        for path in 0..self.paths.len() {
            let mut lost = 0;
            while let Some((packet, overdue)) = self.overdue(path)
                && overdue <= now
            {
                lost += usize::from(self.give_up(packet, true, outbox));
            }
            if lost > 0 {
                self.paths.get(path).recovery.on_lost(lost);
            }
            self.fall_back(path, outbox);
        }
    }

    /// Returns the oldest packet in flight by a path, and when it is lost, if a later one was
    /// answered.
    fn overdue(&self, path: usize) -> Option<(u64, Time)> {
        let own = &self.paths.all()[path];
        let first = *own.sent.front()?;
        let overtaken = own.answered_to > first + 1;
        overtaken.then_some((first, self.flight(first)?.sent + own.recovery.loss_delay()))
    }

    /// Sends short datagrams if a path drops longer ones; those in flight are taken for lost.
    fn fall_back(&mut self, path: usize, outbox: &mut Outbox) {
        if self.paths.get(path).size.is_black_hole() {
            self.give_up_path(path, outbox);
            self.paths.get(path).fall_back();
        }
    }

    /// Gives up a packet in flight; `true` if its datagram must be sent again, and its length is no reason for its
    /// loss.
    fn give_up(&mut self, packet: u64, proven: bool, outbox: &mut Outbox) -> bool {
        let Some(flight) = self.take_flight(packet) else { return false };
        let counts = self.paths.get(flight.path).size.on_lost((flight.bytes, packet), proven);
        let again = outbox.is_carried(flight.slot, self.by(packet));
        if again {
            outbox.requeue(flight.slot, Reason::Again);
        }
        again && counts
    }

    /// Rests a path if it alone is silent; its packets in flight go by others.
    fn rest_if_silent(&mut self, now: Time, path: usize, outbox: &mut Outbox) {
        let elsewhere = outbox.health_elsewhere(path % self.paths.flows(), self.channel);
        if self.paths.rest_if_silent(now, path, elsewhere) {
            self.give_up_path(path, outbox);
        }
    }

    /// Gives up all packets in flight by a path.
    fn give_up_path(&mut self, path: usize, outbox: &mut Outbox) {
        while let Some(first) = self.paths.get(path).sent.pop_front() {
            self.give_up(first, false, outbox);
        }
    }

    /// Publishes the health of our paths to the other channels.
    fn publish_health(&self, outbox: &mut Outbox) {
        for flow in 0..self.paths.flows() {
            outbox.set_health(flow, self.channel, self.paths.health(flow));
        }
    }

    /// Has the other channels count on none of our paths.
    pub(super) fn retract_health(&self, outbox: &mut Outbox) {
        for flow in 0..self.paths.flows() {
            outbox.set_health(flow, self.channel, FlowHealth::default());
        }
    }

    /// Lets timers expire.
    pub(super) fn on_timeout(&mut self, now: Time, outbox: &mut Outbox) {
        self.find_lost(now, outbox);
        let flows = self.paths.flows();
        for path in 0..self.paths.len() {
            let own = self.paths.get(path);
            own.on_timeout(now);
            if own.in_flight == 0 || now < own.timer_start + own.recovery.timeout() {
                continue;
            }
            let persistent = own.on_silence(now);
            if persistent || !own.is_up() {
                self.give_up_path(path, outbox);
                continue;
            }
            // The oldest that are still wanted ask for an answer, and stay in flight: first by the
            // same path, then by another.
            let elsewhere = outbox.health_elsewhere(path % flows, self.channel);
            let other = self.paths.has_other(path) || elsewhere.is_some();
            let again = self.paths.get(path).recovery.timeouts() > 1 && other;
            let own = self.wanted(outbox).filter(|(_, went)| *went == path).map(|(slot, _)| slot);
            let asking: Vec<DatagramSlot> = own.take(PROBES).collect();
            if again {
                let limit = self.paths.get(path).asking_limit();
                for slot in asking {
                    outbox.shorten(slot, limit);
                    outbox.requeue(slot, Reason::Again);
                }
            } else {
                self.paths.get(path).probes = asking.len() as u32;
            }
            self.rest_if_silent(now, path, outbox);
        }
        self.publish_health(outbox);
    }

    /// Gives up what is in flight, because packet numbers begin anew with another session.
    pub(super) fn renumber(&mut self, outbox: &mut Outbox) {
        while self.in_flight > 0 {
            self.give_up(self.first_flight, false, outbox);
        }
        self.clear();
    }

    /// Forgets the peer's count of congestion marks, which begins anew.
    pub(super) fn forget_marks(&mut self) {
        self.congested = 0;
    }

    /// Forgets all packets and the state of all paths.
    pub(super) fn reset(&mut self) {
        self.clear();
        (self.early, self.early_since) = (0, Time::ZERO);
        self.paths.reset();
    }

    fn clear(&mut self) {
        (self.in_flight, self.first_flight) = (0, 0);
        self.flights.clear();
        (0..self.paths.len()).for_each(|path| self.paths.get(path).clear());
    }

    /// Frees memory that can be remade.
    pub(super) fn shrink(&mut self) {
        if self.in_flight == 0 {
            self.flights = VecDeque::new();
            self.paths.shrink();
        }
    }

    /// Returns when a timer expires next; `busy` returns whether anything to the peer is
    /// unanswered.
    pub(super) fn next_timeout(&self, busy: impl Fn() -> bool) -> Option<Time> {
        let due = (0..self.paths.len()).filter_map(|path| {
            let own = &self.paths.all()[path];
            let waiting = (own.in_flight > 0).then(|| own.timer_start + own.recovery.timeout());
            let lost = self.overdue(path).map(|(_, overdue)| overdue);
            let trial = own.next_trial().filter(|_| busy());
            [waiting, lost, trial].into_iter().flatten().min()
        });
        due.min()
    }
}
