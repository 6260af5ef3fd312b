//! Two endpoints with several sockets each, of which some fail or are slow.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::time::Duration;

use ciphergram_nic::Bytes;
use ciphergram_nic::Node;
use ciphergram_nic::faults::Faults;
use ciphergram_nic::proto::path::MAX_REST_SPAN;
use ciphergram_nic::proto::{
    Config, DatagramSizes, Endpoint, EndpointEvent, Identity, NodeId, Opcode, Origin, Peer, Route,
    Time,
};
use ciphergram_nic::sim::{Network, at};

pub(crate) const QUICK: Faults = Faults {
    loss: 0,
    duplication: 0,
    corruption: 0,
    trimming: 0,
    marking: 0,
    junk: 0,
    lateness: 0,
    delay: Duration::from_micros(50),
    jitter: Duration::ZERO,
};
pub(crate) const MEMORY: u32 = 7;

pub(crate) fn identity(number: u8) -> Identity {
    Identity::from_secret(&[number; 32]).unwrap()
}

pub(crate) fn node(number: u8) -> NodeId {
    identity(number).id()
}

pub(crate) fn addr(number: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, number], 1000))
}

/// An endpoint of which some sockets fail or are slow.
pub(crate) struct End {
    pub endpoint: Endpoint,
    pub dead: BTreeSet<u16>,
    pub slow: BTreeMap<u16, Duration>,
    held: VecDeque<(Time, Route, Vec<u8>)>,
    /// By socket: messages of the WRITE datagrams that left, dead or not.
    pub left: BTreeMap<u16, Vec<u64>>,
    /// By socket: datagrams that came.
    pub came: BTreeMap<u16, usize>,
}

impl End {
    pub(crate) fn new(
        number: u8,
        incarnation: u32,
        paths: u16,
        flows: u16,
        pipelines: u16,
    ) -> Self {
        let seed = [incarnation as u8; 32];
        let config = Config::new(identity(number), NonZeroU32::new(incarnation).unwrap(), seed);
        let (allow, sizes) = ([1, 2].map(node).into(), DatagramSizes::fixed(1372));
        let config = Config { allow, sizes, paths, flows, spray: 1, ..config };
        let pipeline = |number: u16| at(addr(1), number * config.sockets()).port();
        let ports = (1..pipelines).map(pipeline).collect();
        let mut endpoint = Endpoint::new(Config { pipelines, ports, ..config }).unwrap();
        endpoint.register_memory(MEMORY, 1 << 20, None).unwrap();
        if number == 1 {
            endpoint.contact(node(2), addr(2));
        }
        let (dead, slow) = (BTreeSet::new(), BTreeMap::new());
        let (left, came) = (BTreeMap::new(), BTreeMap::new());
        Self { endpoint, dead, slow, held: VecDeque::new(), left, came }
    }

    pub(crate) fn counts(&self) -> BTreeMap<u16, usize> {
        self.left.iter().map(|(via, messages)| (*via, messages.len())).collect()
    }
}

impl Node for End {
    fn handle_datagram(&mut self, now: Time, from: Origin, bytes: &mut [u8]) {
        if !self.dead.contains(&from.route.via) {
            *self.came.entry(from.route.via).or_default() += 1;
            self.endpoint.handle_datagram(now, from, bytes);
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        self.endpoint.handle_timeout(now);
    }

    fn poll_transmit(&mut self, now: Time, bytes: &mut Vec<u8>) -> Option<Route> {
        if self.held.front().is_some_and(|(due, ..)| *due <= now) {
            let (_, route, held) = self.held.pop_front()?;
            bytes.extend(held);
            return Some(route);
        }
        loop {
            let route = self.endpoint.poll_transmit(now, bytes)?;
            if [Opcode::Write as u8, Opcode::WriteImm as u8].contains(&bytes[3]) {
                let message = u64::from_le_bytes(bytes[16..24].try_into().unwrap());
                self.left.entry(route.via).or_default().push(message);
            }
            match self.slow.get(&route.via) {
                _ if self.dead.contains(&route.via) => bytes.clear(),
                Some(delay) => self.held.push_back((now + *delay, route, std::mem::take(bytes))),
                None => return Some(route),
            }
        }
    }

    fn poll_timeout(&self) -> Option<Time> {
        let held = self.held.front().map(|(due, ..)| *due);
        self.endpoint.poll_timeout().into_iter().chain(held).min()
    }
}

pub(crate) struct World {
    pub network: Network,
    pub ends: [End; 2],
}

impl World {
    pub(crate) fn new(ends: [End; 2], faults: Faults) -> Self {
        Self { network: Network::new(5, faults), ends }
    }

    /// Runs until `end` has had `count` completions; returns the time that took, and both ends'
    /// other events.
    pub(crate) fn until_completed(
        &mut self,
        end: usize,
        count: usize,
    ) -> (Duration, Vec<EndpointEvent>) {
        let (began, mut others, mut completed) = (self.network.now(), vec![], 0);
        let until = began + Duration::from_secs(60);
        while completed < count {
            let [one, two] = &mut self.ends;
            let mut nodes: [(SocketAddr, &mut dyn Node); 2] = [(addr(1), one), (addr(2), two)];
            assert!(self.network.step(&mut nodes, until), "it must end: {others:?}");
            for from in 0..2 {
                while let Some(event) = self.ends[from].endpoint.poll_event() {
                    match event {
                        EndpointEvent::Completed { .. } if from == end => completed += 1,
                        EndpointEvent::Completed { .. } => {}
                        other => others.push(other),
                    }
                }
            }
        }
        (self.network.now().since(began), others)
    }

    /// Lets time pass.
    pub(crate) fn idle(&mut self, span: Duration) {
        let until = self.network.now() + span;
        let [one, two] = &mut self.ends;
        let mut nodes: [(SocketAddr, &mut dyn Node); 2] = [(addr(1), one), (addr(2), two)];
        while self.network.step(&mut nodes, until) {}
    }

    pub(crate) fn write(&mut self, from: usize, to: Peer, bytes: usize) {
        let now = self.network.now();
        let data: Bytes = (0..bytes).map(|at| (at * 31 + at / 251) as u8).collect();
        self.ends[from].endpoint.write(now, to, MEMORY, 0, data, Some(3)).unwrap();
        self.ends[from].left.clear();
    }

    /// Writes a message with an immediate to the contacted end, and checks that its bytes are
    /// there, and its immediate once.
    pub(crate) fn write_and_check(&mut self, bytes: usize) -> Duration {
        self.write(0, Peer::of(node(2)), bytes);
        let (took, events) = self.until_completed(0, 1);
        assert!(matches!(events[..], [EndpointEvent::Written { .. }]), "{events:?}");
        let memory = self.ends[1].endpoint.memory(MEMORY).unwrap();
        assert!((0..bytes).all(|at| memory[at] == (at * 31 + at / 251) as u8));
        took
    }
}

impl World {
    /// A path recovers: some datagrams try it, and then its window grows as a new one does.
    pub(crate) fn until_used_again(&mut self, via: u16) {
        let until = self.network.now() + 2 * MAX_REST_SPAN;
        while self.network.now() < until {
            self.write_and_check(20_000);
            self.idle(Duration::from_millis(30));
        }
        for _ in 0..8 {
            self.write_and_check(800_000);
        }
        assert!(self.ends[0].counts()[&via] > 100, "{:?}", self.ends[0].counts());
    }
}
