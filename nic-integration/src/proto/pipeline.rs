//! One pipeline: receiving and sending with its own sockets, sessions and buffers (PROTOCOL §4.9).
//!
//! A pipeline carries channels, each to one pipeline of a peer. It opens and seals datagrams,
//! places, adds and answers. State that it shares with the other pipelines of its endpoint is in
//! `shared`. The [`Endpoint`](super::Endpoint) makes it, and keeps the links and their handshakes.

mod incoming;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::channel::{Channel, Offer};
use super::datagram::{DatagramHeader, Opcode};
use super::event::EndpointEvent;
use super::lock::lock;
use super::path::{Paths, Route};
use super::path_size::DatagramSizes;
use super::sender::Sender;
use super::shared::{ChannelId, PipelineCommand, SessionPart, SharedState, channels_of};
use super::stats::Stats;
use super::time::Time;

/// The span between two searches for channels to idle peers.
pub const SWEEP_SPAN: Duration = Duration::from_secs(10);
/// Datagrams that one channel sends before the next has its turn.
const QUANTUM: usize = 64;

/// The parts of an endpoint's configuration that its pipelines need.
#[derive(Clone, Copy)]
pub(super) struct Settings {
    pub(super) sizes: DatagramSizes,
    /// Sockets of this pipeline.
    pub(super) sockets: u16,
    /// Datagrams sent by one path before the next is chosen.
    pub(super) spray: u32,
}

/// One pipeline of an endpoint. It may be driven on a thread of its own.
pub struct Pipeline {
    number: u16,
    settings: Settings,
    shared: Arc<SharedState>,
    /// Boxed, since a tree has space for more than it holds.
    channels: BTreeMap<ChannelId, Box<Channel>>,
    /// Channels by the indices of their sessions.
    sessions: BTreeMap<u32, ChannelId>,
    /// Channels with answers to send, in turn.
    answering: VecDeque<ChannelId>,
    /// Channels with messages to send, perhaps, in turn.
    sending: VecDeque<ChannelId>,
    /// Datagrams of this quantum sent by the first channel of `sending`.
    in_quantum: usize,
    /// Datagrams of messages sent since answers were last looked for.
    ahead: usize,
    next_sweep: Time,
    /// Scratch for the payload of an ACK, for events, and for chunks that a SUM closes.
    ack_payload: Vec<u8>,
    events: Vec<EndpointEvent>,
    closed: Vec<u32>,
    stats: Stats,
}

impl Pipeline {
    pub(super) fn new(number: u16, settings: Settings, shared: Arc<SharedState>) -> Self {
        Self {
            number,
            settings,
            shared,
            channels: BTreeMap::new(),
            sessions: BTreeMap::new(),
            answering: VecDeque::new(),
            sending: VecDeque::new(),
            in_quantum: 0,
            ahead: 0,
            next_sweep: Time::ZERO,
            ack_payload: vec![],
            events: vec![],
            closed: vec![],
            stats: Stats::default(),
        }
    }

    /// Returns its number among its endpoint's pipelines, from 0.
    #[must_use]
    pub fn number(&self) -> u16 {
        self.number
    }

    // Commands from the endpoint and from other pipelines.

    pub(super) fn drain_commands(&mut self) {
        for command in self.shared.drain_commands(self.number) {
            match command {
                PipelineCommand::Offer(part) => self.on_offer(*part),
                PipelineCommand::Begin(part, when, from) => self.on_begin(when, *part, from),
                PipelineCommand::Wake(id) => self.schedule(id),
                PipelineCommand::Fail(id, session) => self.on_fail(id, session),
                PipelineCommand::End(id) => self.on_end(id),
            }
        }
    }

    /// Wakes channels of a link, one bit each: there is something to send.
    fn wake_channels(&mut self, link: u32, channels: u16) {
        for channel in channels_of(channels) {
            let id = ChannelId { link, channel };
            if self.channels.contains_key(&id) {
                self.schedule(id);
            } else {
                self.shared.send(self.number, channel, PipelineCommand::Wake(id));
            }
        }
    }

    /// Returns the channel that a part of a session is for; makes it if there is none.
    fn channel(&mut self, part: &SessionPart) -> &mut Channel {
        let Settings { sizes, sockets, spray } = self.settings;
        self.channels.entry(part.id).or_insert_with(|| {
            let flows = lock(&part.messages.outbox).flow_count();
            let ways =
                (0..sockets).filter_map(|via| Some(Route { via, ..Route::from(part.addr?) }));
            let ways: Vec<Route> = ways.collect();
            let paths = Paths::new(&ways, part.addr.is_some(), flows, spray, sizes);
            let sender = Sender::new(part.id.channel, paths);
            Box::new(Channel::new(part.peer, part.messages.clone(), sender))
        })
    }

    fn on_offer(&mut self, part: SessionPart) {
        let (id, index) = (part.id, part.session.local());
        let channel = self.channel(&part);
        channel.sender.paths.admit_up_to(part.paths.into());
        let offer = Offer { peer: part.peer, session: part.session, messages: part.messages };
        if let Some(former) = channel.offered.replace(Box::new(offer)) {
            self.release(former.session.local(), id);
        }
        self.sessions.insert(index, id);
    }

    fn on_begin(&mut self, now: Time, part: SessionPart, from: Route) {
        let (id, addr) = (part.id, part.addr);
        // A channel of an earlier offer learned its paths, and has none if nothing came by it.
        let known = self.channels.get(&id).is_some_and(|channel| channel.sender.paths.len() > 0);
        if !known {
            self.on_end(id);
        }
        let channel = self.channel(&part);
        if let Some(addr) = addr {
            channel.sender.paths.set_addr(addr);
        }
        // An earlier offer must not take the place of this session.
        if let Some(offer) = channel.offered.take() {
            self.release(offer.session.local(), id);
        }
        let Some(channel) = self.channels.get_mut(&id) else { return };
        // The answer came to the first channel.
        if id.channel == 0 {
            channel.sender.on_received(now, from);
            channel.sender.paths.resume_last();
        }
        let anew = channel.session.is_none() || !Arc::ptr_eq(&channel.messages, &part.messages);
        self.begin(id, Offer { peer: part.peer, session: part.session, messages: part.messages });
        if let Some(channel) = self.channels.get_mut(&id).filter(|_| anew && id.channel != 0) {
            channel.mark_unproven(now);
        }
        self.schedule(id);
    }

    /// Continues under a session, and drops the one before the former; `false` if another process
    /// of the node was quicker, by another channel.
    fn begin(&mut self, id: ChannelId, offer: Offer) -> bool {
        let Some(channel) = self.channels.get_mut(&id) else { return false };
        let index = offer.session.local();
        if !offer.messages.claim(offer.peer) {
            self.release(index, id);
            return false;
        }
        if let Some(before) = channel.renew(offer) {
            self.release(before.local(), id);
        }
        self.sessions.insert(index, id);
        self.wake_others(id);
        true
    }

    /// Forgets an index of a channel.
    fn release(&mut self, index: u32, id: ChannelId) {
        if self.sessions.get(&index) == Some(&id) {
            self.sessions.remove(&index);
        }
    }

    fn on_fail(&mut self, id: ChannelId, session: bool) {
        self.hand_over(id);
        let Some(channel) = self.channels.get_mut(&id) else { return };
        channel.sender.reset();
        if let Some(gone) = channel.session.take_if(|_| session) {
            self.release(gone.local(), id);
        }
        self.schedule(id);
    }

    fn on_end(&mut self, id: ChannelId) {
        self.hand_over(id);
        if self.channels.remove(&id).is_some() {
            self.sessions.retain(|_, of| *of != id);
        }
    }

    /// Leaves a channel's datagrams in flight to the others, and the waiting for their answers.
    fn hand_over(&mut self, id: ChannelId) {
        if let Some(channel) = self.channels.get_mut(&id) {
            channel.hand_over();
            self.wake_others(id);
        }
    }

    /// Wakes the other channels of a link, if there is something to send.
    fn wake_others(&mut self, id: ChannelId) {
        let Some(channel) = self.channels.get(&id) else { return };
        let idle = lock(&channel.messages.outbox).take_wakeups() & !(1 << id.channel);
        self.wake_channels(id.link, idle);
    }

    // The verbs of a node; `handle_datagram` is in `incoming`.

    /// Lets timers expire.
    pub fn handle_timeout(&mut self, now: Time) {
        self.drain_commands();
        let due = |channel: &Channel| Self::due(channel).is_some_and(|due| due <= now);
        let due: Vec<ChannelId> =
            self.channels.iter().filter(|(_, l)| due(l)).map(|(id, _)| *id).collect();
        for id in due {
            let Some(channel) = self.channels.get_mut(&id) else { continue };
            channel.sender.on_timeout(now, &mut lock(&channel.messages.outbox));
            self.stats.paths_rested += channel.sender.paths.take_rested();
            self.schedule(id);
            self.wake_others(id);
        }
        if now >= self.next_sweep {
            self.next_sweep = now + SWEEP_SPAN;
            self.channels.values_mut().for_each(|channel| channel.shrink(now));
        }
    }

    fn due(channel: &Channel) -> Option<Time> {
        channel.session.as_ref()?;
        channel.sender.next_timeout(|| !channel.messages.is_idle())
    }

    /// Returns when [`handle_timeout`](Self::handle_timeout) is next needed.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Time> {
        let channels = self.channels.values().filter_map(|channel| Self::due(channel));
        channels.chain((!self.channels.is_empty()).then_some(self.next_sweep)).min()
    }

    /// Appends the next datagram to send to `bytes`, and returns its route. Messages go before
    /// answers, but no more than a quantum of them before all answers: an answer is short, so it can
    /// end the burst that they make.
    pub fn poll_transmit(&mut self, now: Time, bytes: &mut Vec<u8>) -> Option<Route> {
        self.drain_commands();
        if self.ahead < QUANTUM
            && let Some(to) = self.transmit_message(now, bytes)
        {
            self.ahead += 1;
            return Some(to);
        }
        if let Some(to) = self.transmit_answer(bytes) {
            return Some(to);
        }
        self.ahead = 0;
        let next = self.transmit_message(now, bytes);
        if next.is_none() {
            self.shared.publish(self.number, &self.stats);
        }
        next
    }

    fn transmit_answer(&mut self, bytes: &mut Vec<u8>) -> Option<Route> {
        let start = bytes.len();
        while let Some(id) = self.answering.pop_front() {
            let Some(channel) = self.channels.get_mut(&id) else { continue };
            channel.answering = false;
            self.ack_payload.clear();
            let Some(route) = channel.sender.paths.answers() else { continue };
            let taken = channel.take_answer(&mut self.ack_payload);
            let Some(session) = channel.session.as_mut().filter(|_| taken) else { continue };
            let header = DatagramHeader { opcode: Opcode::Ack, ..DatagramHeader::default() };
            // A datagram that cannot be sealed counts as lost.
            let sealed = session.seal(header, &self.ack_payload, bytes);
            self.schedule(id);
            if sealed.is_ok() {
                self.stats.sent.count(self.ack_payload.len());
                self.stats.acks_sent += 1;
                return Some(route);
            }
            bytes.truncate(start);
        }
        None
    }

    fn transmit_message(&mut self, now: Time, bytes: &mut Vec<u8>) -> Option<Route> {
        let start = bytes.len();
        while let Some(id) = self.sending.pop_front() {
            let Some(channel) = self.channels.get_mut(&id) else { continue };
            let mut idle = 0;
            let next = channel.session.as_mut().and_then(|session| {
                let mut outbox = lock(&channel.messages.outbox);
                let next = channel.sender.next(now, session.next_packet(), &mut outbox);
                // For datagrams that this channel has lost, or has no space for.
                idle = outbox.take_wakeups() & !(1 << id.channel);
                Some((session, next?))
            });
            let Some((session, next)) = next else {
                channel.sending = false;
                self.in_quantum = 0;
                self.wake_channels(id.link, idle);
                continue;
            };
            let payload = &next.datagram.data[next.datagram.range];
            let sealed = session.seal(next.datagram.header, payload, bytes);
            self.stats.retransmitted += u64::from(next.resent);
            self.stats.datagram_bytes = next.path_bytes.into();
            self.stats.sent.count(payload.len());
            // One peer after the other, but not by single datagrams: a burst is for one address.
            self.in_quantum += 1;
            if self.in_quantum < QUANTUM {
                self.sending.push_front(id);
            } else {
                self.in_quantum = 0;
                self.sending.push_back(id);
            }
            self.wake_channels(id.link, idle);
            if sealed.is_ok() {
                return Some(next.route);
            }
            bytes.truncate(start);
        }
        None
    }

    /// Queues a channel for answers and messages, if it is not queued already.
    fn schedule(&mut self, id: ChannelId) {
        let Some(channel) = self.channels.get_mut(&id) else { return };
        if channel.wants_answer() && !std::mem::replace(&mut channel.answering, true) {
            self.answering.push_back(id);
        }
        if !std::mem::replace(&mut channel.sending, true) {
            self.sending.push_back(id);
        }
    }

    /// Returns its counters.
    pub(super) fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Returns the indices of sessions: present, offered and former ones.
    pub(super) fn sessions(&self) -> &BTreeMap<u32, ChannelId> {
        &self.sessions
    }
}

/// Leaves datagrams in flight to other pipelines, which neither wait for this one nor command it.
impl Drop for Pipeline {
    fn drop(&mut self) {
        self.shared.close(self.number);
        self.shared.publish(self.number, &self.stats);
        let ids: Vec<ChannelId> = self.channels.keys().copied().collect();
        ids.into_iter().for_each(|id| self.hand_over(id));
    }
}
