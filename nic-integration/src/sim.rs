//! A network on virtual time, with faults drawn from one seed.
//!
//! Nodes are whatever implements [`Node`]; who they are and when they crash is the caller's to
//! say, by which nodes it hands to [`Network::step`]. Two runs with the same seed and the same
//! calls are the same, datagram for datagram. Used by the tests of this crate and of others.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};

use crate::node::Node;
use crate::proto::{Route, Time, datagram::HEADER_BYTES, path::MAX_PATHS};

/// Between the ports of one node's sockets: more nodes than this cannot share an address.
pub const PORT_STRIDE: u16 = 4000;

/// How the network misbehaves. Probabilities are per thousand datagrams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Lost without a trace.
    pub loss: u32,
    /// Delivered twice, at independent times.
    pub duplication: u32,
    /// Delivered with one bit flipped.
    pub corruption: u32,
    /// Cut to their header, if they are longer.
    pub trimming: u32,
    /// Followed by a datagram of random bytes to the same node.
    pub junk: u32,
    /// The shortest delay.
    pub delay: Duration,
    /// Up to this much more, drawn per datagram: reordering.
    pub jitter: Duration,
}

/// What the network has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Datagrams handed to a node.
    pub delivered: u64,
    /// Lost on purpose.
    pub lost: u64,
    /// Delivered twice.
    pub duplicated: u64,
    /// Delivered with a flipped bit.
    pub corrupted: u64,
    /// Delivered without their payload.
    pub trimmed: u64,
    /// Random bytes delivered.
    pub junk: u64,
    /// Addressed to nobody: the node had crashed.
    pub undeliverable: u64,
}

struct InFlight {
    from: SocketAddr,
    to: SocketAddr,
    bytes: Vec<u8>,
}

/// The network: virtual time, datagrams on their way, and a seeded source of trouble.
pub struct Network {
    now: Time,
    rng: ChaCha8Rng,
    faults: Faults,
    /// By time of arrival; the number keeps arrivals at one instant apart.
    in_flight: BTreeMap<(Time, u64), InFlight>,
    sequence: u64,
    tally: Tally,
}

impl Network {
    /// An empty network at time zero.
    #[must_use]
    pub fn new(seed: u64, faults: Faults) -> Self {
        Self {
            now: Time::ZERO,
            rng: ChaCha8Rng::seed_from_u64(seed),
            faults,
            in_flight: BTreeMap::new(),
            sequence: 0,
            tally: Tally::default(),
        }
    }

    /// Virtual time.
    #[must_use]
    pub fn now(&self) -> Time {
        self.now
    }

    /// What was done so far.
    #[must_use]
    pub fn tally(&self) -> Tally {
        self.tally
    }

    /// Changes how the network misbehaves from here on.
    pub fn set_faults(&mut self, faults: Faults) {
        self.faults = faults;
    }

    /// Sends everything the nodes have to send, then moves time to the next arrival or timer, but
    /// not beyond `until`, and hands it to its node. `false` once `until` is reached.
    pub fn step(&mut self, nodes: &mut [(SocketAddr, &mut dyn Node)], until: Time) -> bool {
        self.collect(nodes);
        let arrival = self.in_flight.first_key_value().map(|((due, _), _)| *due);
        let timers = nodes.iter().filter_map(|(_, node)| node.poll_timeout());
        let next = timers.chain(arrival).min();
        let Some(next) = next.filter(|next| *next <= until) else {
            self.now = self.now.max(until);
            return false;
        };
        self.now = self.now.max(next);
        for (_, node) in nodes.iter_mut() {
            if node.poll_timeout().is_some_and(|due| due <= self.now) {
                node.handle_timeout(self.now);
            }
        }
        while let Some(entry) = self.in_flight.first_entry() {
            if entry.key().0 > self.now {
                break;
            }
            let datagram = entry.remove();
            self.deliver(nodes, datagram);
        }
        true
    }

    /// Puts one datagram on its way, faults included.
    pub fn send(&mut self, from: SocketAddr, to: SocketAddr, bytes: &[u8]) {
        if self.chance(self.faults.junk) {
            let length = self.below(200) as usize;
            let mut noise = vec![0; length];
            self.rng.fill_bytes(&mut noise);
            self.tally.junk += 1;
            self.launch(from, to, noise);
        }
        if self.chance(self.faults.loss) {
            self.tally.lost += 1;
            return;
        }
        let copies = if self.chance(self.faults.duplication) { 2 } else { 1 };
        self.tally.duplicated += copies - 1;
        for _ in 0..copies {
            let mut bytes = bytes.to_vec();
            if bytes.len() > HEADER_BYTES && self.chance(self.faults.trimming) {
                bytes.truncate(HEADER_BYTES);
                self.tally.trimmed += 1;
            }
            if self.chance(self.faults.corruption) && !bytes.is_empty() {
                let at = self.below(bytes.len() as u64) as usize;
                bytes[at] ^= 1 << self.below(8);
                self.tally.corrupted += 1;
            }
            self.launch(from, to, bytes);
        }
    }

    fn collect(&mut self, nodes: &mut [(SocketAddr, &mut dyn Node)]) {
        let mut bytes = Vec::new();
        for (from, node) in nodes {
            while let Some(to) = node.poll_transmit(self.now, &mut bytes) {
                self.send(at(*from, to.via), to.addr, &bytes);
                bytes.clear();
            }
        }
    }

    fn launch(&mut self, from: SocketAddr, to: SocketAddr, bytes: Vec<u8>) {
        let jitter = self.below(self.faults.jitter.as_nanos() as u64 + 1);
        let due = self.now + self.faults.delay + Duration::from_nanos(jitter);
        self.sequence += 1;
        self.in_flight.insert((due, self.sequence), InFlight { from, to, bytes });
    }

    fn deliver(&mut self, nodes: &mut [(SocketAddr, &mut dyn Node)], mut datagram: InFlight) {
        let via =
            |addr: SocketAddr| (0..MAX_PATHS as u16).find(|&via| at(addr, via) == datagram.to);
        let found = nodes.iter_mut().find_map(|(addr, node)| Some((via(*addr)?, node)));
        let Some((via, node)) = found else {
            self.tally.undeliverable += 1;
            return;
        };
        let from = Route { via, addr: datagram.from };
        node.handle_datagram(self.now, from, &mut datagram.bytes);
        self.tally.delivered += 1;
    }

    fn chance(&mut self, per_thousand: u32) -> bool {
        per_thousand > 0 && self.below(1000) < u64::from(per_thousand)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.rng.next_u64() % bound.max(1)
    }
}

/// Where socket `via` of a node is: its first one's port, and so many times [`PORT_STRIDE`] more.
#[must_use]
pub fn at(first: SocketAddr, via: u16) -> SocketAddr {
    SocketAddr::new(first.ip(), first.port().wrapping_add(PORT_STRIDE.wrapping_mul(via)))
}
