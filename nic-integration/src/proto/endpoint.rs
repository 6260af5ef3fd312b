//! One process's end of the protocol: links, regions and events; its pipelines send and receive.

mod config;
mod handshake;
mod regions;
mod usage;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::ops::Range;
use std::sync::Arc;
use std::task::Waker;

use bytes::Bytes;
use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng;

use crate::NicError;

pub use config::{
    Config, DEFAULT_GIVE_UP, DEFAULT_HELD_BYTES, DEFAULT_SPRAY, IDLE_SPAN, MAX_HANDSHAKE_DATAGRAMS,
    MAX_MESSAGE_BYTES, MAX_PEERS, MAX_UNCONFIRMED, UNCONFIRMED_SPAN,
};
pub use usage::Usage;

pub use super::shared::MAX_EVENTS;

use super::accumulator::grain;
use super::datagram::{BLOCK_BYTES, DatagramKind, OVERHEAD_BYTES, Opcode, read_prefix};
use super::event::{Cause, EndpointEvent, MessageId, Peer};
use super::link::PeerLink;
use super::lock::lock;
use super::outbox::{MESSAGE_WINDOW, Message, Outbox, SumMessage};
use super::path::{MAX_PATHS, Origin, Route};
use super::pipeline::{Pipeline, SWEEP_SPAN, Settings};
use super::secure::{Gate, NodeId};
use super::shared::{ChannelId, MAX_PIPELINES, PipelineCommand, SharedState};
use super::stats::Stats;
use super::time::Time;

/// What datagrams of a WRITE carry whole multiples of.
const BLOCK: NonZeroU32 = NonZeroU32::new(BLOCK_BYTES).unwrap();

/// One process's end of the protocol.
pub struct Endpoint {
    config: Config,
    rng: ChaCha20Rng,
    gate: Gate,
    shared: Arc<SharedState>,
    /// The first pipeline, and those that are not driven elsewhere.
    pipelines: Vec<Pipeline>,
    /// The one of them that sent last.
    polled: usize,
    /// Boxed, since a tree has space for more than it holds.
    links: BTreeMap<u32, Box<PeerLink>>,
    /// Links by the process at their other end, once it is known.
    peers: BTreeMap<Peer, u32>,
    /// The addresses of nodes that we contact, and the links to them.
    contacts: BTreeMap<NodeId, (SocketAddr, Option<u32>)>,
    /// Links by the indices of handshakes under way.
    indices: BTreeMap<u32, u32>,
    next_link: u32,
    /// HELLOs sent so far: each has its number.
    hellos: u32,
    /// Datagrams of handshakes to send.
    handshakes: VecDeque<(Route, Vec<u8>)>,
    /// The first message id of a new link: above those of every forgotten one.
    first_message: u64,
    next_sweep: Time,
    /// Counters beside those of the pipelines.
    stats: Stats,
}

impl Endpoint {
    /// Makes an endpoint without links.
    ///
    /// # Errors
    ///
    /// [`NicError::OutOfRange`] if the sizes of datagrams are not within `MIN_DATAGRAM_BYTES` and
    /// `MAX_DATAGRAM_BYTES`, the least not above the most; there is no path, or more than [`MAX_PATHS`]; there is
    /// no pipeline, or more than [`MAX_PIPELINES`]; or somebody may contact us, and the ports are not as many as the
    /// pipelines from the second on.
    pub fn new(config: Config) -> Result<Self, NicError> {
        config.sizes.check()?;
        let sockets = usize::from(config.sockets());
        if !(1..=MAX_PATHS).contains(&sockets) {
            return Err(NicError::paths(sockets, MAX_PATHS));
        }
        let (pipelines, ports) = (config.pipelines, config.ports.len());
        if !(1..=MAX_PIPELINES).contains(&pipelines) {
            return Err(NicError::pipelines(pipelines, MAX_PIPELINES));
        }
        // Those who may contact us need the port of every pipeline.
        let further = usize::from(pipelines) - 1;
        if !config.allow.is_empty() && ports != further {
            let what = "ports of further pipelines";
            return Err(NicError::OutOfRange { what, found: ports, least: further, most: further });
        }
        let mut rng = ChaCha20Rng::from_seed(config.seed);
        let shared = SharedState::new(pipelines, config.held_bytes);
        let settings =
            Settings { sizes: config.sizes, sockets: config.sockets(), spray: config.spray };
        let pipelines = 0..pipelines;
        Ok(Self {
            gate: Gate::new(config.identity.id(), &mut rng),
            pipelines: pipelines
                .map(|number| Pipeline::new(number, settings, shared.clone()))
                .collect(),
            polled: 0,
            shared,
            config,
            rng,
            links: BTreeMap::new(),
            peers: BTreeMap::new(),
            contacts: BTreeMap::new(),
            indices: BTreeMap::new(),
            next_link: 0,
            hellos: 0,
            handshakes: VecDeque::new(),
            first_message: 0,
            next_sweep: Time::ZERO,
            stats: Stats::default(),
        })
    }

    /// Hands over the pipelines from the second on, to be driven on threads of their own. `wakers`,
    /// one for each pipeline from the first on, end the wait of a pipeline that another one has
    /// work for. Datagrams to the sockets of those handed over are no longer this endpoint's to
    /// handle.
    pub fn detach(&mut self, wakers: Vec<Waker>) -> Vec<Pipeline> {
        let others = self.pipelines.split_off(1);
        self.polled = 0;
        // It was detached before: the wakers are the same.
        let _ = self.shared.wakers.set(wakers);
        others
    }

    /// Returns the pipeline that a socket belongs to, and the socket's number there.
    fn pipeline_at(&self, via: u16) -> (usize, u16) {
        (usize::from(via / self.config.sockets()), via % self.config.sockets())
    }

    /// Returns the node that this process belongs to.
    #[must_use]
    pub fn node(&self) -> NodeId {
        self.config.identity.id()
    }

    /// Returns this process's incarnation.
    #[must_use]
    pub fn incarnation(&self) -> u32 {
        self.config.incarnation.get()
    }

    /// Returns the counters of all pipelines together; of those driven elsewhere, as they last
    /// published them.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let own = self.pipelines.iter().map(|pipeline| (pipeline.number(), *pipeline.stats()));
        own.clone().for_each(|(number, stats)| self.shared.publish(number, &stats));
        self.stats + self.shared.published()
    }

    /// Iterates over the processes that it has links to; of incarnation 0 until a handshake names
    /// it.
    pub fn peers(&self) -> impl Iterator<Item = Peer> {
        self.links.values().map(|link| link.peer)
    }

    /// Returns the payload bytes of the longest datagram that is ever sent.
    #[must_use]
    pub fn payload_limit(&self) -> usize {
        self.config.sizes.most as usize - OVERHEAD_BYTES
    }

    // Messages.

    /// Sets the address of a node, so that it can be written to before it wrote to us.
    pub fn contact(&mut self, node: NodeId, addr: SocketAddr) {
        self.contacts.entry(node).or_insert((addr, None)).0 = addr;
    }

    /// Replaces the nodes that may open a link to us. Links that others opened are forgotten, with
    /// all that is unanswered.
    pub fn allow(&mut self, nodes: BTreeSet<NodeId>) {
        self.config.allow = nodes;
        let struck =
            |link: &PeerLink| !link.contact && !self.config.allow.contains(&link.peer.node);
        let struck: Vec<u32> =
            self.links.iter().filter(|(_, link)| struck(link)).map(|(id, _)| *id).collect();
        struck.into_iter().for_each(|id| self.forget(id));
    }

    /// Returns whether nothing that was sent to that node is unanswered.
    #[must_use]
    pub fn is_idle(&self, node: NodeId) -> bool {
        let mut links = self.links.values().filter(|link| link.peer.node == node);
        links.all(|link| link.messages.is_idle())
    }

    /// Returns the number of messages to that peer that may be queued now.
    #[must_use]
    pub fn headroom(&self, peer: Peer) -> usize {
        let link = self.find(peer).and_then(|id| self.links.get(&id));
        link.map_or(MESSAGE_WINDOW as usize, |link| lock(&link.messages.outbox).headroom())
    }

    /// Queues a WRITE of `data` at `offset` of a region of the peer's, with an immediate if given.
    ///
    /// # Errors
    ///
    /// [`NicError::NoSuchPeer`], [`NicError::WindowFull`], [`NicError::TooManyPeers`],
    /// [`NicError::MessageTooLong`].
    pub fn write(
        &mut self,
        now: Time,
        peer: Peer,
        rkey: u32,
        offset: u64,
        data: Bytes,
        immediate: Option<u32>,
    ) -> Result<MessageId, NicError> {
        let limit = MAX_MESSAGE_BYTES;
        if data.len() > limit {
            return Err(NicError::MessageTooLong { bytes: data.len(), limit });
        }
        let opcode = if immediate.is_some() { Opcode::WriteImm } else { Opcode::Write };
        let immediate = immediate.unwrap_or(0);
        let message =
            Message { opcode, contributor: 0, rkey, offset, data, immediate, grain: BLOCK };
        self.queue(now, peer, message)
    }

    /// Queues a SUM, in as many datagrams as it takes.
    ///
    /// # Errors
    ///
    /// [`NicError::NoSuchPeer`], [`NicError::WindowFull`], [`NicError::TooManyPeers`];
    /// [`NicError::MessageTooLong`] if a chunk that counts by itself exceeds [`payload_limit`](Self::payload_limit),
    /// or all of them [`MAX_MESSAGE_BYTES`].
    pub fn sum(&mut self, now: Time, peer: Peer, sum: SumMessage) -> Result<MessageId, NicError> {
        let SumMessage { rkey, round, contributor, first_chunk, chunk_bytes, by_chunk, data } = sum;
        let grain = grain(chunk_bytes, by_chunk);
        let least = (grain.get() as usize).min(data.len());
        for (bytes, limit) in [(least, self.payload_limit()), (data.len(), MAX_MESSAGE_BYTES)] {
            if bytes > limit {
                return Err(NicError::MessageTooLong { bytes, limit });
            }
        }
        let message = Message {
            opcode: Opcode::Sum,
            contributor,
            rkey,
            offset: u64::from(first_chunk) * u64::from(chunk_bytes.get()),
            data,
            immediate: round,
            grain,
        };
        self.queue(now, peer, message)
    }

    /// Finds the link to a peer: to that very process, or to whichever we reached at its node.
    fn find(&self, peer: Peer) -> Option<u32> {
        match peer.incarnation {
            0 => self.contacts.get(&peer.node)?.1,
            _ => self.peers.get(&peer).copied(),
        }
    }

    fn queue(&mut self, now: Time, peer: Peer, message: Message) -> Result<MessageId, NicError> {
        self.drain_confirmed();
        let id = match self.find(peer) {
            Some(id) => id,
            None => self.reach(now, peer)?,
        };
        let Some(link) = self.links.get_mut(&id) else {
            return Err(NicError::NoSuchPeer { node: peer.node });
        };
        let mut outbox = lock(&link.messages.outbox);
        if outbox.headroom() == 0 {
            return Err(NicError::WindowFull { peer });
        }
        let message = outbox.queue(now, message);
        let idle = outbox.take_wakeups();
        drop(outbox);
        if !link.established && link.handshake.is_none() {
            self.send_hello(now, id);
        }
        self.shared.wake_channels(0, id, idle);
        Ok(message)
    }

    /// Returns a link to a node whose address we know: one that the node made, or a new one. A
    /// certain process is reached only if no other is known to be there.
    fn reach(&mut self, now: Time, peer: Peer) -> Result<u32, NicError> {
        let Peer { node, incarnation } = peer;
        let contact = self.contacts.get(&node);
        let contact = contact.filter(|(_, link)| incarnation == 0 || link.is_none());
        let &(addr, _) = contact.ok_or(NicError::NoSuchPeer { node })?;
        let any = Peer::of(node)..=Peer { node, incarnation: u32::MAX };
        let made = self.peers.range(any).filter(|(known, _)| incarnation == 0 || **known == peer);
        let id = match made.map(|(_, id)| *id).next_back() {
            Some(id) => id,
            None => self.add_link(now, peer, true).ok_or(NicError::TooManyPeers)?,
        };
        if let Some(link) = self.links.get_mut(&id) {
            link.contact = true;
        }
        if incarnation != 0 {
            self.peers.insert(peer, id);
        }
        self.contacts.insert(node, (addr, Some(id)));
        Ok(id)
    }

    /// Adds a link to a peer; its channels follow when there is a session.
    fn add_link(&mut self, now: Time, peer: Peer, contact: bool) -> Option<u32> {
        if self.links.len() >= MAX_PEERS {
            return None;
        }
        let id = self.next_link;
        self.next_link = self.next_link.wrapping_add(1);
        let flows = if contact { self.config.flows } else { 1 };
        let outbox = Outbox::new(flows, self.first_message);
        let link = PeerLink::new(peer, contact, self.shared.messages(now, outbox));
        self.links.insert(id, Box::new(link));
        Some(id)
    }

    /// Takes the confirmations of offered sessions that pipelines have queued.
    fn drain_confirmed(&mut self) {
        for (id, index) in self.shared.drain_confirmed() {
            self.on_confirmed(id, index);
        }
    }

    // The five verbs.

    /// Takes a datagram from the wire, and opens it in place. Anything may arrive; what no session
    /// vouches for is counted, and has no other effect.
    pub fn handle_datagram(&mut self, now: Time, from: impl Into<Origin>, bytes: &mut [u8]) {
        let Origin { route: from, congested } = from.into();
        let (at, via) = self.pipeline_at(from.via);
        let prefix = read_prefix(bytes);
        match (prefix, self.pipelines.get_mut(at)) {
            // Handshakes are between first pipelines.
            (Ok((DatagramKind::Hello, _)), _) if at == 0 => self.on_hello(now, from, bytes),
            (Ok((DatagramKind::Welcome, index)), _) if at == 0 => {
                self.on_welcome(now, from, index, bytes)
            }
            (Ok((DatagramKind::Cookie, index)), _) if at == 0 => self.on_cookie(now, index, bytes),
            (Ok((DatagramKind::Decline, index)), _) if at == 0 => self.on_decline(index, bytes),
            (prefix, Some(pipeline)) => {
                let route = Route { via, ..from };
                pipeline.on_datagram(now, Origin { route, congested }, prefix, bytes);
                self.drain_confirmed();
            }
            (_, None) => self.stats.malformed += 1,
        }
    }

    /// Lets timers expire.
    pub fn handle_timeout(&mut self, now: Time) {
        self.drain_confirmed();
        self.pipelines.iter_mut().for_each(|pipeline| pipeline.handle_timeout(now));
        let give_up = self.config.give_up;
        let due = |link: &PeerLink| link.due(give_up).is_some_and(|due| due <= now);
        let due: Vec<u32> = self.links.iter().filter(|(_, l)| due(l)).map(|(id, _)| *id).collect();
        for id in due {
            self.expire(now, id);
        }
        if now >= self.next_sweep {
            self.next_sweep = now + SWEEP_SPAN;
            self.forget_idle(now);
        }
    }

    fn expire(&mut self, now: Time, id: u32) {
        let Some(link) = self.links.get_mut(&id) else { return };
        let outbox = lock(&link.messages.outbox);
        let silent = !outbox.is_idle() && now >= outbox.waiting_since() + self.config.give_up;
        drop(outbox);
        if silent {
            // A handshake finds out which process is there next.
            link.established &= !link.contact;
            if let Some(gone) = link.cancel_handshake() {
                self.indices.remove(&gone);
            }
            self.fail(id, Cause::Silence);
        } else if link.receives_again() {
            if let Some(gone) = link.cancel_handshake() {
                self.indices.remove(&gone);
            }
        } else {
            self.send_hello(now, id);
        }
    }

    /// Fails every unanswered message of a link. A link of ours continues under another session.
    fn fail(&mut self, id: u32, cause: Cause) {
        let Some(link) = self.links.get(&id) else { return };
        lock(&link.messages.outbox).fail_all();
        for channel in 0..link.channels {
            self.shared.send(
                0,
                channel,
                PipelineCommand::Fail(ChannelId { link: id, channel }, !link.established),
            );
        }
        self.shared.report(0, [EndpointEvent::Unreachable { peer: link.peer, cause }]);
    }

    /// Returns when [`handle_timeout`](Self::handle_timeout) is next needed.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Time> {
        let give_up = self.config.give_up;
        let links = self.links.values().filter_map(|link| link.due(give_up));
        let pipelines = self.pipelines.iter().filter_map(Pipeline::poll_timeout);
        let sweep = (!self.links.is_empty()).then_some(self.next_sweep);
        links.chain(pipelines).chain(sweep).min()
    }

    /// Returns whether events wait to be polled.
    #[must_use]
    pub fn has_events(&self) -> bool {
        self.shared.event_count() > 0
    }

    /// Takes the next event.
    pub fn poll_event(&mut self) -> Option<EndpointEvent> {
        self.drain_confirmed();
        self.shared.next_event()
    }

    /// Appends the next datagram to send to `bytes`, and returns its route.
    pub fn poll_transmit(&mut self, now: Time, bytes: &mut Vec<u8>) -> Option<Route> {
        self.drain_confirmed();
        if let Some((to, handshake)) = self.handshakes.pop_front() {
            bytes.extend_from_slice(&handshake);
            self.stats.handshakes += 1;
            return Some(to);
        }
        let sockets = self.config.sockets();
        for _ in 0..self.pipelines.len() {
            self.polled = (self.polled + 1) % self.pipelines.len();
            let pipeline = &mut self.pipelines[self.polled];
            if let Some(route) = pipeline.poll_transmit(now, bytes) {
                return Some(Route { via: pipeline.number() * sockets + route.via, ..route });
            }
        }
        None
    }

    fn forget_idle(&mut self, now: Time) {
        let gone = |link: &PeerLink| {
            let span = if link.is_unconfirmed() { UNCONFIRMED_SPAN } else { IDLE_SPAN };
            link.messages.is_idle() && now.since(link.messages.last_received()) >= span
        };
        let gone: Vec<u32> =
            self.links.iter().filter(|(_, link)| gone(link)).map(|(id, _)| *id).collect();
        gone.into_iter().for_each(|id| self.forget(id));
    }

    fn forget(&mut self, id: u32) {
        let Some(link) = self.links.remove(&id) else { return };
        self.first_message = self.first_message.max(lock(&link.messages.outbox).next_message());
        self.end_channels(id, 0..link.channels);
        self.indices.retain(|_, of| *of != id);
        self.peers.retain(|_, of| *of != id);
        for (_, of) in self.contacts.values_mut() {
            of.take_if(|of| *of == id);
        }
    }

    fn end_channels(&mut self, link: u32, channels: Range<u16>) {
        for channel in channels {
            self.shared.send(0, channel, PipelineCommand::End(ChannelId { link, channel }));
        }
        self.pipelines.iter_mut().for_each(Pipeline::drain_commands);
    }
}
