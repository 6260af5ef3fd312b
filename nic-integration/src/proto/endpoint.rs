//! The endpoint: every peer and every region of one process, as a state machine in five verbs.
//!
//! `handle_datagram` and `handle_timeout` take what happened outside; `poll_transmit`,
//! `poll_timeout` and `poll_event` say what should happen next. Nothing here reads a clock, a
//! socket or a random number.

mod incoming;

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use crate::NicError;

use super::ack::{ACK_ENTRY_BYTES, AckEntry};
use super::datagram::{Datagram, Header, MAX_DATAGRAM_BYTES, OVERHEAD_BYTES, Opcode};
use super::event::{Event, MessageId, Peer};
use super::receiver::Receiver;
use super::region::{Memory, Region};
use super::sender::{Message, Sender};
use super::stats::Stats;
use super::sum::SumRegion;
use super::time::Time;

/// UDP payload bytes that fit an Ethernet frame over IPv4 without fragmentation.
pub const DEFAULT_DATAGRAM_BYTES: usize = 1472;
/// The smallest datagram an endpoint can be told to send.
pub const MIN_DATAGRAM_BYTES: usize = 256;
/// Silence after which a peer with unanswered messages is given up.
pub const DEFAULT_GIVE_UP: Duration = Duration::from_secs(10);
/// Inbox bytes held for all peers together, messages not yet polled included.
pub const DEFAULT_HELD_BYTES: usize = 64 << 20;
/// Processes that may be remembered as senders, and addresses that may be sent to.
pub const MAX_PEERS: usize = 4096;
/// Events that may wait; while they do, datagrams are dropped unanswered.
pub const MAX_EVENTS: usize = 1 << 16;
/// Answers to strangers that may wait.
pub const MAX_STRAY_ANSWERS: usize = 256;
/// A peer idle for this long is forgotten.
pub const IDLE_SPAN: Duration = Duration::from_secs(60);
/// How often idle peers are looked for.
pub const SWEEP_SPAN: Duration = Duration::from_secs(10);
/// The longest message; an inbox may set less.
pub const MAX_MESSAGE_BYTES: usize = 1 << 30;

/// What an endpoint is made of.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// This process's number: random, fresh at every start.
    pub incarnation: NonZeroU32,
    /// Bytes of the largest datagram sent, header and tags included.
    pub datagram_bytes: usize,
    /// Silence after which a peer with unanswered messages is given up.
    pub give_up: Duration,
    /// Inbox bytes held for all peers together; one peer may hold a quarter.
    pub held_bytes: usize,
}

impl Config {
    /// The defaults, for a process with that incarnation.
    #[must_use]
    pub fn new(incarnation: NonZeroU32) -> Self {
        Self {
            incarnation,
            datagram_bytes: DEFAULT_DATAGRAM_BYTES,
            give_up: DEFAULT_GIVE_UP,
            held_bytes: DEFAULT_HELD_BYTES,
        }
    }
}

/// One process's end of the protocol.
pub struct Endpoint {
    config: Config,
    regions: BTreeMap<u32, Region>,
    senders: BTreeMap<SocketAddr, Sender>,
    receivers: BTreeMap<Peer, Receiver>,
    /// Senders to ask for datagrams, in turn; each at most once.
    ready: VecDeque<SocketAddr>,
    /// Receivers with answers waiting, in turn; each at most once.
    answering: VecDeque<Peer>,
    /// Answers to datagrams that deserve no state.
    strays: VecDeque<(Peer, AckEntry)>,
    events: VecDeque<Event>,
    /// Inbox bytes under assembly or waiting in `events`.
    held: usize,
    next_packet: u64,
    /// Where the message ids of a new sender begin: above those of every forgotten one.
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
    /// [`MAX_DATAGRAM_BYTES`].
    pub fn new(config: Config) -> Result<Self, NicError> {
        let bytes = config.datagram_bytes;
        if !(MIN_DATAGRAM_BYTES..=MAX_DATAGRAM_BYTES).contains(&bytes) {
            return Err(NicError::DatagramSize { bytes });
        }
        Ok(Self {
            config,
            regions: BTreeMap::new(),
            senders: BTreeMap::new(),
            receivers: BTreeMap::new(),
            ready: VecDeque::new(),
            answering: VecDeque::new(),
            strays: VecDeque::new(),
            events: VecDeque::new(),
            held: 0,
            next_packet: 0,
            first_message: 0,
            next_sweep: Time::ZERO,
            ack_payload: Vec::new(),
            stats: Stats::default(),
        })
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
        owner: Option<SocketAddr>,
    ) -> Result<(), NicError> {
        self.register(rkey, Region::Memory(Memory { bytes: vec![0; bytes], owner }))
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
        self.register(rkey, Region::Sum(region))
    }

    /// Withdraws a region. Datagrams that still arrive for it are refused.
    pub fn deregister(&mut self, rkey: u32) {
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

    /// A sum region, to bind contributors, close chunks and finish them.
    ///
    /// # Errors
    ///
    /// [`NicError::NoSuchRegion`].
    pub fn sum_region(&mut self, rkey: u32) -> Result<&mut SumRegion, NicError> {
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

    /// How many more messages to that address may be queued now.
    #[must_use]
    pub fn room(&self, addr: SocketAddr) -> usize {
        self.senders.get(&addr).map_or(super::sender::MESSAGE_WINDOW as usize, Sender::room)
    }

    /// Queues a WRITE of `data` at `offset` of a region of the peer's, with an immediate if given.
    ///
    /// # Errors
    ///
    /// [`NicError::NoRoom`], [`NicError::TooManyPeers`], [`NicError::MessageTooLong`].
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
    /// [`NicError::NoRoom`], [`NicError::TooManyPeers`]; [`NicError::MessageTooLong`] if the
    /// chunks exceed [`payload_limit`](Self::payload_limit).
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

    fn queue(&mut self, now: Time, peer: Peer, message: Message) -> Result<MessageId, NicError> {
        let known = self.senders.contains_key(&peer.addr);
        if !known && self.senders.len() >= MAX_PEERS {
            return Err(NicError::TooManyPeers);
        }
        let (limit, first) = (self.payload_limit(), self.first_message);
        let sender =
            self.senders.entry(peer.addr).or_insert_with(|| Sender::new(peer.addr, limit, first));
        sender.aim(peer.incarnation, &mut self.events);
        if sender.room() == 0 {
            return Err(NicError::NoRoom { peer: peer.addr });
        }
        let id = sender.queue(now, message);
        schedule(&mut self.ready, sender);
        Ok(id)
    }

    // The five verbs; `handle_datagram` is in `incoming`.

    /// Lets timers expire.
    pub fn handle_timeout(&mut self, now: Time) {
        for sender in self.senders.values_mut() {
            if sender.next_timeout(self.config.give_up).is_some_and(|due| due <= now) {
                sender.on_timeout(now, self.config.give_up, &mut self.events);
                schedule(&mut self.ready, sender);
            }
        }
        if now >= self.next_sweep {
            self.next_sweep = now + SWEEP_SPAN;
            self.forget_idle(now);
        }
    }

    /// When [`handle_timeout`](Self::handle_timeout) is next needed.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Time> {
        let peers = !self.senders.is_empty() || !self.receivers.is_empty();
        let senders = self.senders.values().filter_map(|s| s.next_timeout(self.config.give_up));
        senders.chain(peers.then_some(self.next_sweep)).min()
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        let event = self.events.pop_front()?;
        if let Event::Received { data, .. } = &event {
            self.held -= data.len();
        }
        Some(event)
    }

    /// Replaces the contents of `bytes` with the next datagram to send, and says where to.
    /// Answers go first.
    pub fn poll_transmit(&mut self, now: Time, bytes: &mut Vec<u8>) -> Option<SocketAddr> {
        self.transmit_answers(bytes).or_else(|| self.transmit_message(now, bytes))
    }

    fn transmit_answers(&mut self, bytes: &mut Vec<u8>) -> Option<SocketAddr> {
        let limit = self.payload_limit() / ACK_ENTRY_BYTES;
        self.ack_payload.clear();
        if let Some((peer, entry)) = self.strays.pop_front() {
            entry.append(&mut self.ack_payload);
            return Some(self.write_ack(peer, bytes));
        }
        while let Some(peer) = self.answering.pop_front() {
            let Some(receiver) = self.receivers.get_mut(&peer) else { continue };
            if receiver.take_answers(limit, &mut self.ack_payload) {
                self.answering.push_back(peer);
                return Some(self.write_ack(peer, bytes));
            }
            receiver.scheduled = false;
        }
        None
    }

    fn write_ack(&mut self, peer: Peer, bytes: &mut Vec<u8>) -> SocketAddr {
        let header = Header {
            opcode: Opcode::Ack,
            contributor: 0,
            source: self.config.incarnation.get(),
            destination: peer.incarnation,
            packet: take_packet(&mut self.next_packet),
            message: 0,
            offset: 0,
            rkey: 0,
            message_bytes: 0,
            index: 0,
            immediate: 0,
        };
        Datagram { header, payload: &self.ack_payload }.write_into(bytes);
        self.stats.sent.count(self.ack_payload.len());
        self.stats.acks_sent += 1;
        peer.addr
    }

    fn transmit_message(&mut self, now: Time, bytes: &mut Vec<u8>) -> Option<SocketAddr> {
        while let Some(addr) = self.ready.pop_front() {
            let Some(sender) = self.senders.get_mut(&addr) else { continue };
            let source = self.config.incarnation.get();
            if let Some(outbound) = sender.next(now, source, self.next_packet) {
                take_packet(&mut self.next_packet);
                let (header, payload) = (outbound.header, outbound.payload);
                Datagram { header, payload }.write_into(bytes);
                self.stats.sent.count(payload.len());
                self.stats.retransmitted += u64::from(outbound.resent);
                self.ready.push_back(addr);
                return Some(addr);
            }
            sender.scheduled = false;
        }
        None
    }

    fn forget_idle(&mut self, now: Time) {
        let expired = |heard: Time| now.since(heard) >= IDLE_SPAN;
        let gone = self.senders.extract_if(.., |_, s| s.idle_since().is_some_and(expired));
        let highest = gone.map(|(_, sender)| sender.next_message()).max();
        self.first_message = self.first_message.max(highest.unwrap_or(0));
        let idle = self.receivers.extract_if(.., |_, receiver| expired(receiver.heard));
        self.held -= idle.map(|(_, receiver)| receiver.held_bytes()).sum::<usize>();
    }
}

fn schedule(ready: &mut VecDeque<SocketAddr>, sender: &mut Sender) {
    if !std::mem::replace(&mut sender.scheduled, true) {
        ready.push_back(sender.addr());
    }
}

fn take_packet(next: &mut u64) -> u64 {
    *next += 1;
    *next - 1
}
