//! One process's end of the protocol: links, regions, events.

mod census;
mod greeting;
mod incoming;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng;

use crate::NicError;

pub use census::Census;

use super::datagram::{Header, MAX_DATAGRAM_BYTES, OVERHEAD_BYTES, Opcode};
use super::event::{Cause, Event, MessageId, Peer};
use super::link::Link;
use super::path::{MAX_PATHS, Paths, Route};
use super::region::{Memory, Region};
use super::secure::{Gate, Identity, NodeId, Suite};
use super::sender::{MESSAGE_WINDOW, Message, Sender};
use super::stats::{Load, Stats};
use super::sum::SumRegion;
use super::time::Time;

/// UDP payload bytes that most paths carry whole, tunnels and IPv6 included, and that hold a chunk.
pub const DEFAULT_DATAGRAM_BYTES: usize = 1372;
/// The smallest datagram an endpoint can be told to send: an ACK with all its notices fits.
pub const MIN_DATAGRAM_BYTES: usize = 768;
/// Silence after which a peer with unanswered messages is given up.
pub const DEFAULT_GIVE_UP: Duration = Duration::from_secs(10);
/// Inbox bytes held for all peers together, messages not yet polled included.
pub const DEFAULT_HELD_BYTES: usize = 64 << 20;
/// Processes that may be remembered.
pub const MAX_PEERS: usize = 4096;
/// Of those: processes that said HELLO and nothing since.
pub const MAX_UNCONFIRMED: usize = 256;
/// Events that may wait; while they do, datagrams are dropped unanswered.
pub const MAX_EVENTS: usize = 1 << 16;
/// Datagrams sent one way before the next is chosen, unless told otherwise.
pub const DEFAULT_SPRAY: u32 = 16;
/// Datagrams of handshakes that may wait to be sent.
pub const MAX_GREETINGS: usize = 256;
/// A peer idle for this long is forgotten.
pub const IDLE_SPAN: Duration = Duration::from_secs(60);
/// A process that said HELLO and nothing since is forgotten after this.
pub const UNCONFIRMED_SPAN: Duration = Duration::from_secs(5);
/// How often idle peers are looked for.
pub const SWEEP_SPAN: Duration = Duration::from_secs(10);
/// Datagrams that one peer is sent before the next has its turn.
const TURN: usize = 64;
/// The longest message; an inbox may set less.
pub const MAX_MESSAGE_BYTES: usize = 1 << 30;

/// What an endpoint is made of.
#[derive(Clone)]
pub struct Config {
    /// The node's key.
    pub identity: Identity,
    /// This process's number: random, fresh at every start.
    pub incarnation: NonZeroU32,
    /// Source of handshake keys, indices and cookies: from the operating system, fresh at every start.
    pub seed: [u8; 32],
    /// The nodes that may open a link to us. Those we contact need not be among them.
    pub allow: BTreeSet<NodeId>,
    /// What seals datagrams to those we contact; whoever contacts us chooses.
    pub suite: Suite,
    /// Bytes of the largest datagram sent, header and tags included.
    pub datagram_bytes: usize,
    /// Silence after which a peer with unanswered messages is given up.
    pub give_up: Duration,
    /// Inbox bytes held for all peers together; one peer may hold a quarter.
    pub held_bytes: usize,
    /// Ways to each node that we contact: sockets of ours that a flow's datagrams are sprayed over. Who
    /// contacts us chooses its own.
    pub paths: u16,
    /// Flows that messages to a node that we contact are dealt to, each with paths of its own: with one path
    /// each, a message stays on one way.
    pub flows: u16,
    /// Datagrams sent one way before the next way is chosen: 1 sprays by the datagram; a wire that sends
    /// bursts does better with a burst.
    pub spray: u32,
}

impl Config {
    /// The defaults, for a process of a node that talks to whom it contacts alone.
    #[must_use]
    pub fn new(identity: Identity, incarnation: NonZeroU32, seed: [u8; 32]) -> Self {
        Self {
            identity,
            incarnation,
            seed,
            allow: BTreeSet::new(),
            suite: Suite::default(),
            datagram_bytes: DEFAULT_DATAGRAM_BYTES,
            give_up: DEFAULT_GIVE_UP,
            held_bytes: DEFAULT_HELD_BYTES,
            paths: 1,
            flows: 1,
            spray: DEFAULT_SPRAY,
        }
    }

    /// Sockets that the wire must have.
    #[must_use]
    pub fn sockets(&self) -> u16 {
        self.paths.saturating_mul(self.flows)
    }
}

/// One process's end of the protocol.
pub struct Endpoint {
    config: Config,
    rng: ChaCha20Rng,
    gate: Gate,
    regions: BTreeMap<u32, Region>,
    /// Boxed, since a tree has room for more than it holds.
    links: BTreeMap<u32, Box<Link>>,
    /// Links by the process at their other end, once it is known.
    peers: BTreeMap<Peer, u32>,
    /// Where nodes listen that we contact, and the link there.
    contacts: BTreeMap<NodeId, (SocketAddr, Option<u32>)>,
    /// Links by the indices of their sessions.
    sessions: BTreeMap<u32, u32>,
    next_link: u32,
    /// HELLOs said so far: each has its number.
    hellos: u32,
    /// Links with answers waiting, in turn; each at most once.
    answering: VecDeque<u32>,
    /// Links to ask for messages, in turn; each at most once.
    sending: VecDeque<u32>,
    /// Datagrams of handshakes.
    greetings: VecDeque<(Route, Vec<u8>)>,
    /// Datagrams that the first link of `sending` has had in its turn.
    turn: usize,
    /// Datagrams of messages that went before answers.
    ahead: usize,
    events: VecDeque<Event>,
    /// The sum region in which datagrams wait to be added together.
    unsettled: Option<u32>,
    /// Inbox bytes under assembly or waiting in `events`.
    held: usize,
    /// Where the message ids of a new link begin: above those of every forgotten one.
    first_message: u64,
    next_sweep: Time,
    /// Scratch for the payload of an ACK.
    ack_payload: Vec<u8>,
    stats: Stats,
}

impl Endpoint {
    /// An endpoint that knows nobody.
    ///
    /// # Errors
    ///
    /// [`NicError::DatagramSize`] if `datagram_bytes` is not within [`MIN_DATAGRAM_BYTES`] and
    /// [`MAX_DATAGRAM_BYTES`]; [`NicError::Paths`] if there is no path, or more than [`MAX_PATHS`].
    pub fn new(config: Config) -> Result<Self, NicError> {
        let bytes = config.datagram_bytes;
        if !(MIN_DATAGRAM_BYTES..=MAX_DATAGRAM_BYTES).contains(&bytes) {
            return Err(NicError::DatagramSize { bytes });
        }
        let sockets = usize::from(config.sockets());
        if !(1..=MAX_PATHS).contains(&sockets) {
            return Err(NicError::Paths { sockets, most: MAX_PATHS });
        }
        let mut rng = ChaCha20Rng::from_seed(config.seed);
        Ok(Self {
            gate: Gate::new(config.identity.id(), &mut rng),
            config,
            rng,
            regions: BTreeMap::new(),
            links: BTreeMap::new(),
            peers: BTreeMap::new(),
            contacts: BTreeMap::new(),
            sessions: BTreeMap::new(),
            next_link: 0,
            hellos: 0,
            answering: VecDeque::new(),
            sending: VecDeque::new(),
            greetings: VecDeque::new(),
            turn: 0,
            ahead: 0,
            events: VecDeque::new(),
            unsettled: None,
            held: 0,
            first_message: 0,
            next_sweep: Time::ZERO,
            ack_payload: Vec::new(),
            stats: Stats::default(),
        })
    }

    /// Whose process this is.
    #[must_use]
    pub fn node(&self) -> NodeId {
        self.config.identity.id()
    }

    /// This process's incarnation.
    #[must_use]
    pub fn incarnation(&self) -> u32 {
        self.config.incarnation.get()
    }

    /// The counters.
    #[must_use]
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// What is held now.
    #[must_use]
    pub fn load(&self) -> Load {
        Load {
            links: self.links.len(),
            sessions: self.sessions.len(),
            held_bytes: self.held,
            greetings: self.greetings.len(),
            events: self.events.len(),
        }
    }

    /// The processes that it has links to; of incarnation 0 until a handshake tells.
    pub fn peers(&self) -> impl Iterator<Item = Peer> {
        self.links.values().map(|link| link.peer)
    }

    /// Payload bytes of a full datagram; a SUM carries at most this.
    #[must_use]
    pub fn payload_limit(&self) -> usize {
        self.config.datagram_bytes - OVERHEAD_BYTES
    }

    // Regions.

    /// Registers memory that `owner`, or anyone if none is named, may WRITE.
    ///
    /// # Errors
    ///
    /// [`NicError::RkeyInUse`].
    pub fn register_memory(
        &mut self,
        rkey: u32,
        bytes: usize,
        owner: Option<NodeId>,
    ) -> Result<(), NicError> {
        self.register(rkey, Region::Memory(Memory { bytes: vec![0; bytes], owner, immediates: 0 }))
    }

    /// Registers an inbox: each message WRITTEN from offset 0 is handed over whole.
    ///
    /// # Errors
    ///
    /// [`NicError::RkeyInUse`]; [`NicError::MessageTooLong`] if a message could exceed what one
    /// peer may hold.
    pub fn register_inbox(&mut self, rkey: u32, max_message_bytes: u32) -> Result<(), NicError> {
        let (bytes, limit) = (max_message_bytes as usize, self.peer_held_limit());
        if bytes > limit {
            return Err(NicError::MessageTooLong { bytes, limit });
        }
        self.register(rkey, Region::Inbox { max_message_bytes })
    }

    /// Registers a sum region.
    ///
    /// # Errors
    ///
    /// [`NicError::RkeyInUse`].
    pub fn register_sum(&mut self, rkey: u32, region: SumRegion) -> Result<(), NicError> {
        self.register(rkey, Region::Sum(Box::new(region)))
    }

    /// Withdraws a region. Datagrams that still arrive for it are refused.
    pub fn deregister(&mut self, rkey: u32) {
        self.settle();
        self.regions.remove(&rkey);
    }

    /// Whether anything is registered under the rkey.
    #[must_use]
    pub fn is_registered(&self, rkey: u32) -> bool {
        self.regions.contains_key(&rkey)
    }

    /// The bytes of a memory region.
    ///
    /// # Errors
    ///
    /// [`NicError::NoSuchRegion`].
    pub fn memory(&self, rkey: u32) -> Result<&[u8], NicError> {
        match self.regions.get(&rkey) {
            Some(Region::Memory(memory)) => Ok(&memory.bytes),
            _ => Err(NicError::NoSuchRegion { rkey }),
        }
    }

    /// How many messages with an immediate have landed whole in a memory region, each once: whoever waits for
    /// n of n need not see every one's event.
    ///
    /// # Errors
    ///
    /// [`NicError::NoSuchRegion`].
    pub fn immediates(&self, rkey: u32) -> Result<u64, NicError> {
        match self.regions.get(&rkey) {
            Some(Region::Memory(memory)) => Ok(memory.immediates),
            _ => Err(NicError::NoSuchRegion { rkey }),
        }
    }

    /// A sum region, to bind contributors, close chunks and finish them.
    ///
    /// # Errors
    ///
    /// [`NicError::NoSuchRegion`].
    pub fn sum_region(&mut self, rkey: u32) -> Result<&mut SumRegion, NicError> {
        self.settle();
        match self.regions.get_mut(&rkey) {
            Some(Region::Sum(region)) => Ok(region),
            _ => Err(NicError::NoSuchRegion { rkey }),
        }
    }

    fn register(&mut self, rkey: u32, region: Region) -> Result<(), NicError> {
        if self.is_registered(rkey) {
            return Err(NicError::RkeyInUse { rkey });
        }
        self.regions.insert(rkey, region);
        Ok(())
    }

    fn peer_held_limit(&self) -> usize {
        self.config.held_bytes / 4
    }

    // Work.

    /// Says where a node listens, so that it can be written to before it wrote to us.
    pub fn contact(&mut self, node: NodeId, addr: SocketAddr) {
        self.contacts.entry(node).or_insert((addr, None)).0 = addr;
    }

    /// How many more messages to that peer may be queued now.
    #[must_use]
    pub fn room(&self, peer: Peer) -> usize {
        let link = self.find(peer).and_then(|id| self.links.get(&id));
        link.map_or(MESSAGE_WINDOW as usize, |link| link.sender.room())
    }

    /// Queues a WRITE of `data` at `offset` of a region of the peer's, with an immediate if given.
    ///
    /// # Errors
    ///
    /// [`NicError::NoSuchPeer`], [`NicError::NoRoom`], [`NicError::TooManyPeers`],
    /// [`NicError::MessageTooLong`].
    pub fn write(
        &mut self,
        now: Time,
        peer: Peer,
        rkey: u32,
        offset: u64,
        data: Arc<[u8]>,
        immediate: Option<u32>,
    ) -> Result<MessageId, NicError> {
        let limit = MAX_MESSAGE_BYTES;
        if data.len() > limit {
            return Err(NicError::MessageTooLong { bytes: data.len(), limit });
        }
        let opcode = if immediate.is_some() { Opcode::WriteImm } else { Opcode::Write };
        let immediate = immediate.unwrap_or(0);
        let message =
            Message { opcode, contributor: 0, rkey, offset, data, immediate, first_index: 0 };
        self.queue(now, peer, message)
    }

    /// Queues a SUM: one datagram of whole chunks, `first_chunk` onwards, at `offset` of the
    /// contribution.
    ///
    /// # Errors
    ///
    /// [`NicError::NoSuchPeer`], [`NicError::NoRoom`], [`NicError::TooManyPeers`];
    /// [`NicError::MessageTooLong`] if the chunks exceed [`payload_limit`](Self::payload_limit).
    #[expect(clippy::too_many_arguments, reason = "the header's fields, each of its own meaning")]
    pub fn sum(
        &mut self,
        now: Time,
        peer: Peer,
        rkey: u32,
        round: u32,
        contributor: u16,
        first_chunk: u32,
        offset: u64,
        data: Arc<[u8]>,
    ) -> Result<MessageId, NicError> {
        let limit = self.payload_limit();
        if data.len() > limit {
            return Err(NicError::MessageTooLong { bytes: data.len(), limit });
        }
        let message = Message {
            opcode: Opcode::Sum,
            contributor,
            rkey,
            offset,
            data,
            immediate: round,
            first_index: first_chunk,
        };
        self.queue(now, peer, message)
    }

    /// The link to a peer: to that very process, or to whichever we reached at its node.
    fn find(&self, peer: Peer) -> Option<u32> {
        match peer.incarnation {
            0 => self.contacts.get(&peer.node)?.1,
            _ => self.peers.get(&peer).copied(),
        }
    }

    fn queue(&mut self, now: Time, peer: Peer, message: Message) -> Result<MessageId, NicError> {
        let id = match self.find(peer) {
            Some(id) => id,
            None => self.reach(now, peer)?,
        };
        let Some(link) = self.links.get_mut(&id) else {
            return Err(NicError::NoSuchPeer { node: peer.node });
        };
        if link.sender.room() == 0 {
            return Err(NicError::NoRoom { peer });
        }
        let message = link.sender.queue(now, message);
        if link.session.is_none() && link.greeting.is_none() {
            self.greet(now, id);
        }
        self.schedule(id);
        Ok(message)
    }

    /// A link to a node whose address we know: one that it made, or a new one. To a certain process only
    /// if nothing says that another one is there.
    fn reach(&mut self, now: Time, peer: Peer) -> Result<u32, NicError> {
        let Peer { node, incarnation } = peer;
        let contact = self.contacts.get(&node);
        let contact = contact.filter(|(_, link)| incarnation == 0 || link.is_none());
        let &(addr, _) = contact.ok_or(NicError::NoSuchPeer { node })?;
        let any = Peer::of(node)..=Peer { node, incarnation: u32::MAX };
        let made = self.peers.range(any).filter(|(known, _)| incarnation == 0 || **known == peer);
        let id = match made.map(|(_, id)| *id).next_back() {
            Some(id) => id,
            None => {
                let ways = (0..self.config.sockets()).map(|via| Route { via, addr });
                let routes: Vec<Route> = ways.collect();
                self.add_link(now, peer, &routes, true).ok_or(NicError::TooManyPeers)?
            }
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

    /// A link to a peer, by paths that are ours if we contact it.
    fn add_link(&mut self, now: Time, peer: Peer, routes: &[Route], contact: bool) -> Option<u32> {
        if self.links.len() >= MAX_PEERS {
            return None;
        }
        let id = self.next_link;
        self.next_link = self.next_link.wrapping_add(1);
        let flows = if contact { usize::from(self.config.flows) } else { 1 };
        let (spray, bytes) = (self.config.spray, self.config.datagram_bytes);
        let paths = Paths::new(routes, contact, flows, spray, bytes);
        let sender = Sender::new(self.payload_limit(), self.first_message, paths);
        self.links.insert(id, Box::new(Link::new(now, peer, contact, sender)));
        Some(id)
    }

    // The five verbs; `handle_datagram` is in `incoming`.

    /// Lets timers expire.
    pub fn handle_timeout(&mut self, now: Time) {
        self.settle();
        let give_up = self.config.give_up;
        let due = |link: &Link| Self::due(link, give_up).is_some_and(|due| due <= now);
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
        if !link.sender.is_idle() && now >= link.sender.heard() + self.config.give_up {
            // Whoever is there next is asked for by a handshake.
            let session = if link.contact { link.session.take() } else { None };
            let gone = [session.map(|session| session.local()), link.drop_greeting()];
            gone.into_iter().flatten().for_each(|index| {
                self.sessions.remove(&index);
            });
            self.fail(id, Cause::Silence);
        } else {
            if link.session.is_some() {
                link.sender.on_timeout(now);
                self.stats.paths_rested += link.sender.paths.take_rested();
            }
            if link.next_greeting().is_some_and(|due| due <= now) {
                self.greet(now, id);
            }
        }
        self.schedule(id);
    }

    /// Fails every unanswered message of a link.
    fn fail(&mut self, id: u32, cause: Cause) {
        let Some(link) = self.links.get_mut(&id) else { return };
        link.sender.fail_all();
        self.events.push_back(Event::Unreachable { peer: link.peer, cause });
    }

    fn due(link: &Link, give_up: Duration) -> Option<Time> {
        let silence = (!link.sender.is_idle()).then(|| link.sender.heard() + give_up);
        let packets = link.session.as_ref().and_then(|_| link.sender.next_timeout());
        [silence, packets, link.next_greeting()].into_iter().flatten().min()
    }

    /// When [`handle_timeout`](Self::handle_timeout) is next needed.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Time> {
        let links = self.links.values().filter_map(|link| Self::due(link, self.config.give_up));
        links.chain((!self.links.is_empty()).then_some(self.next_sweep)).min()
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.settle();
        let event = self.events.pop_front()?;
        if let Event::Received { data, .. } = &event {
            self.held -= data.len();
        }
        Some(event)
    }

    /// Appends the next datagram to send to `bytes`, and says where to. Messages go before answers, but
    /// no more than a turn of them before all answers: an answer is short, so it can end the burst that they make.
    pub fn poll_transmit(&mut self, now: Time, bytes: &mut Vec<u8>) -> Option<Route> {
        self.settle();
        if let Some((to, greeting)) = self.greetings.pop_front() {
            bytes.extend_from_slice(&greeting);
            self.stats.handshakes += 1;
            return Some(to);
        }
        if self.ahead < TURN
            && let Some(to) = self.transmit_message(now, bytes)
        {
            self.ahead += 1;
            return Some(to);
        }
        if let Some(to) = self.transmit_answer(bytes) {
            return Some(to);
        }
        self.ahead = 0;
        self.transmit_message(now, bytes)
    }

    fn transmit_answer(&mut self, bytes: &mut Vec<u8>) -> Option<Route> {
        let start = bytes.len();
        while let Some(id) = self.answering.pop_front() {
            let Some(link) = self.links.get_mut(&id) else { continue };
            link.answering = false;
            self.ack_payload.clear();
            let taken = link.take_answer(&mut self.ack_payload);
            let Some(session) = link.session.as_mut().filter(|_| taken) else { continue };
            let header = Header { opcode: Opcode::Ack, ..Header::default() };
            // What cannot be sealed is a lost datagram.
            let sealed = session.seal(header, &self.ack_payload, bytes);
            let route = link.sender.paths.answers();
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
            let Some(link) = self.links.get_mut(&id) else { continue };
            let next = link.session.as_mut().and_then(|session| {
                let next = link.sender.next(now, session.next_packet())?;
                Some((session, next))
            });
            let Some((session, next)) = next else {
                link.sending = false;
                self.turn = 0;
                continue;
            };
            let (sealed, route) = (session.seal(next.header, next.payload, bytes), next.route);
            self.stats.retransmitted += u64::from(next.resent);
            self.stats.sent.count(next.payload.len());
            // One peer after the other, but not by single datagrams: a burst is for one address.
            self.turn += 1;
            if self.turn < TURN {
                self.sending.push_front(id);
            } else {
                self.turn = 0;
                self.sending.push_back(id);
            }
            if sealed.is_ok() {
                return Some(route);
            }
            bytes.truncate(start);
        }
        None
    }

    /// Asks a link for answers and messages, if it is not on the list already.
    fn schedule(&mut self, id: u32) {
        let Some(link) = self.links.get_mut(&id) else { return };
        if link.wants_answer() && !std::mem::replace(&mut link.answering, true) {
            self.answering.push_back(id);
        }
        if !std::mem::replace(&mut link.sending, true) {
            self.sending.push_back(id);
        }
    }

    fn forget_idle(&mut self, now: Time) {
        let gone = |link: &Link| {
            let span = match (&link.session, &link.offered) {
                (None, Some(_)) => UNCONFIRMED_SPAN,
                _ => IDLE_SPAN,
            };
            link.sender.is_idle() && now.since(link.heard) >= span
        };
        let gone: Vec<u32> =
            self.links.iter().filter(|(_, link)| gone(link)).map(|(id, _)| *id).collect();
        gone.into_iter().for_each(|id| self.forget(id));
        self.links.values_mut().for_each(|link| link.shrink(now));
    }

    fn forget(&mut self, id: u32) {
        let Some(link) = self.links.remove(&id) else { return };
        self.first_message = self.first_message.max(link.sender.next_message());
        self.held -= link.receiver.held_bytes();
        self.sessions.retain(|_, of| *of != id);
        self.peers.retain(|_, of| *of != id);
        for (_, of) in self.contacts.values_mut() {
            of.take_if(|of| *of == id);
        }
    }
}
