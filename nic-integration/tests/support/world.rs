//! One seed makes a world: an aggregator, its clients, a bad network, crashes and restarts.
//!
//! Contributions are plain integers. The first of each chunk counts its contributor in a field of
//! its own, so that a sum shows how often each was added.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::ops::Range;
use std::time::Duration;

use ciphergram_nic::Node;
use ciphergram_nic::proto::{Config, Identity, Refusal, Summer, Time};
use ciphergram_nic::round::{
    Aggregator, AggregatorConfig, AggregatorEvent, ContributionId, Contributor, ContributorConfig,
    ContributorEvent, End, Job, Layout, Opened, Opening,
};
use ciphergram_nic::sim::{Faults, Network};

pub(crate) const CHUNKS: u32 = 23;
const WORDS: usize = 8;
const LAST_WORDS: usize = 3;

pub(crate) fn words(chunk: u32) -> usize {
    if chunk + 1 == CHUNKS { LAST_WORDS } else { WORDS }
}

/// What contributor `c` has in a chunk, under its `draft`-th contribution.
pub(crate) fn values(contributor: u16, chunk: u32, draft: u64) -> Vec<u64> {
    let salt = u64::from(contributor) << 40 | u64::from(chunk) << 8 | draft << 60;
    let mixed = |word: usize| (salt + word as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut values: Vec<u64> = (0..words(chunk)).map(mixed).collect();
    values[0] = 1 << (8 * contributor);
    values
}

fn bytes(values: &[u64]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// Adds words, wrapping.
struct Adder(Vec<Vec<u64>>);

impl Summer for Adder {
    fn chunk_count(&self) -> u32 {
        CHUNKS
    }
    fn chunk_bytes(&self, chunk: u32) -> usize {
        8 * words(chunk)
    }
    fn chunk_offset(&self, chunk: u32) -> u64 {
        u64::from(chunk) * 8 * WORDS as u64
    }
    fn check(&mut self, _: Range<u32>, _: &[u8]) -> Result<(), Refusal> {
        Ok(())
    }
    fn add(&mut self, chunks: Range<u32>, payload: &[u8]) {
        let sums = &mut self.0[chunks.start as usize..chunks.end as usize];
        for (word, value) in sums.iter_mut().flatten().zip(payload.as_chunks().0) {
            *word = word.wrapping_add(u64::from_le_bytes(*value));
        }
    }
    fn finish(&mut self, chunk: u32) -> Result<Vec<u8>, String> {
        Ok(bytes(&self.0[chunk as usize]))
    }
}

/// Admits whoever says hello.
pub(crate) struct Integers;

impl Job for Integers {
    fn admit(
        &mut self,
        _: u16,
        _: &ContributionId,
        hello: &[u8],
        _: &BTreeMap<u16, Vec<u8>>,
    ) -> Result<(), String> {
        if hello == b"hello" { Ok(()) } else { Err("say hello".into()) }
    }
    fn open(&mut self, round: u32, joined: &BTreeMap<u16, Vec<u8>>) -> Result<Opened, String> {
        let summer = Adder((0..CHUNKS).map(|chunk| vec![0; words(chunk)]).collect());
        let charter = vec![round as u8, joined.len() as u8];
        Ok(Opened { charter, summer: Box::new(summer) })
    }
}

/// What a client's owner knows.
pub(crate) struct Client {
    pub node: Option<Contributor>,
    pub number: u16,
    pub addr: SocketAddr,
    pub contribution: u8,
    pub draft: u64,
    pub opening: Option<Opening>,
    next: u32,
    pub sums: BTreeMap<u32, (Vec<u16>, Vec<u64>)>,
    pub ends: Vec<End>,
    pub refused: Vec<String>,
    pub rejected: Vec<Refusal>,
    pub unreachable: u32,
}

pub(crate) struct World {
    pub seed: u64,
    pub network: Network,
    pub aggregator: Option<Aggregator<Integers>>,
    pub settings: AggregatorConfig,
    pub clients: Vec<Client>,
    pub events: Vec<AggregatorEvent>,
    incarnations: u32,
    /// Chunks that each client pushes in one datagram.
    pack: u32,
}

pub(crate) const SERVER: ([u8; 4], u16) = ([10, 0, 0, 9], 7700);

/// The aggregator's node.
pub(crate) fn server() -> Identity {
    Identity::from_secret(&[200; 32]).unwrap()
}

/// The node of client `number`.
pub(crate) fn node(number: u16) -> Identity {
    Identity::from_secret(&[number as u8 + 1; 32]).unwrap()
}

/// A process of a node.
pub(crate) fn process(identity: Identity, incarnation: u32) -> Config {
    let mut seed = identity.id().0;
    seed.iter_mut().zip(incarnation.to_le_bytes()).for_each(|(byte, more)| *byte ^= more);
    Config::new(identity, NonZeroU32::new(incarnation).unwrap(), seed)
}

impl World {
    pub(crate) fn new(seed: u64, clients: u16, min_clients: u16) -> Self {
        let mut world = Self {
            seed,
            network: Network::new(seed, faults(seed)),
            aggregator: None,
            settings: AggregatorConfig {
                endpoint: process(server(), 1),
                nodes: (0..clients)
                    .map(|number| (node(number).id(), Some(number)))
                    .chain([(node(7).id(), None)])
                    .collect(),
                clients,
                min_clients,
                rounds: 1,
                join_deadline: Duration::from_secs(20),
                round_deadline: Duration::from_secs(30),
                linger: Duration::from_secs(15),
                seed: [seed as u8; 32],
            },
            clients: Vec::new(),
            events: Vec::new(),
            incarnations: 0,
            pack: 1 + (seed % 4) as u32,
        };
        world.start_aggregator();
        world
    }

    pub(crate) fn start_aggregator(&mut self) {
        self.settings.endpoint = self.config(server());
        self.aggregator = Some(Aggregator::new(self.settings.clone(), Integers).unwrap());
    }

    /// Starts or restarts client `number` as a new process at a new port.
    pub(crate) fn start_client(&mut self, number: u16, contribution: u8) {
        self.start_node(node(number), number, contribution);
    }

    /// Starts a process of a node as client `number`.
    pub(crate) fn start_node(&mut self, identity: Identity, number: u16, contribution: u8) {
        let config = ContributorConfig {
            endpoint: self.config(identity),
            addr: SERVER.into(),
            aggregator: server().id(),
            contributor: number,
            seed: [self.incarnations as u8; 32],
        };
        let addr = SocketAddr::from(([10, 0, 0, 1], 1000 + self.incarnations as u16));
        let mut node = Contributor::new(config).unwrap();
        node.join(self.network.now(), [contribution; 16], b"hello".to_vec(), None).unwrap();
        self.clients.retain(|client| client.number != number);
        self.clients.push(Client {
            node: Some(node),
            number,
            addr,
            contribution,
            draft: 0,
            opening: None,
            next: 0,
            sums: BTreeMap::new(),
            ends: Vec::new(),
            refused: Vec::new(),
            rejected: Vec::new(),
            unreachable: 0,
        });
    }

    pub(crate) fn client(&mut self, number: u16) -> &mut Client {
        self.clients.iter_mut().find(|client| client.number == number).unwrap()
    }

    fn config(&mut self, identity: Identity) -> Config {
        self.incarnations += 1;
        let mixed = (self.seed as u32).wrapping_mul(77) ^ self.incarnations << 24 | 1;
        process(identity, mixed)
    }

    /// Runs until `done` or for `span`; whether it was done.
    pub(crate) fn run(&mut self, span: Duration, done: impl Fn(&Self) -> bool) -> bool {
        let until = self.network.now() + span;
        while !done(self) {
            let mut nodes: Vec<(SocketAddr, &mut dyn Node)> = Vec::new();
            if let Some(aggregator) = &mut self.aggregator {
                nodes.push((SERVER.into(), aggregator));
            }
            for client in &mut self.clients {
                if let Some(node) = &mut client.node {
                    nodes.push((client.addr, node));
                }
            }
            if !self.network.step(&mut nodes, until) {
                return done(self);
            }
            if let Some(aggregator) = &mut self.aggregator {
                self.events.extend(std::iter::from_fn(|| aggregator.poll_event()));
            }
            let now = self.network.now();
            for client in &mut self.clients {
                client.turn(now, self.pack);
            }
        }
        true
    }

    /// Every sum a client holds is exact over the contributors listed with it, each counted once,
    /// and never of fewer than the minimum.
    pub(crate) fn check_sums(&self) {
        for client in &self.clients {
            for (chunk, (contributors, sum)) in &client.sums {
                let mut expected = vec![0u64; words(*chunk)];
                for contributor in contributors {
                    let added = values(*contributor, *chunk, 0);
                    expected.iter_mut().zip(added).for_each(|(e, v)| *e = e.wrapping_add(v));
                }
                assert_eq!(*sum, expected, "seed {}: chunk {chunk} of {contributors:?}", self.seed);
                assert!(
                    contributors.len() >= usize::from(self.settings.min_clients),
                    "seed {}: chunk {chunk} of {contributors:?} should have been withheld",
                    self.seed
                );
            }
            if let Some(end) = client.ends.last() {
                assert_eq!(end.closed as usize, client.sums.len(), "seed {}", self.seed);
                assert_eq!(end.closed + end.withheld, CHUNKS, "seed {}", self.seed);
                for (contributor, chunks) in &end.contributed {
                    let listed = client.sums.values().filter(|(who, _)| who.contains(contributor));
                    assert_eq!(listed.count(), *chunks as usize, "seed {}", self.seed);
                }
            }
        }
    }

    /// Everyone's chunks are in every sum that a client holds.
    pub(crate) fn check_complete(&self) {
        let everyone: Vec<u16> = (0..self.settings.clients).collect();
        for client in &self.clients {
            assert_eq!(client.sums.len(), CHUNKS as usize, "seed {}", self.seed);
            assert!(client.ends.last().is_some_and(End::is_complete), "seed {}", self.seed);
            for (contributors, _) in client.sums.values() {
                assert_eq!(*contributors, everyone, "seed {}", self.seed);
            }
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("this world's seed: CIPHERGRAM_SEED={}", self.seed);
        }
    }
}

impl Client {
    /// Pushes what there is room for, and takes note of what happened.
    fn turn(&mut self, now: Time, pack: u32) {
        let Some(node) = &mut self.node else { return };
        while let Some(event) = node.poll_event() {
            match event {
                ContributorEvent::Opened(opening) => {
                    let layout = Layout { chunks: CHUNKS, sum_bytes: 8 * WORDS };
                    node.accept(now, layout).unwrap();
                    self.opening = Some(opening);
                    self.next = 0;
                    self.sums.clear();
                }
                ContributorEvent::Sum { chunk, bitmap, bytes } => {
                    let contains = |c: &u16| bitmap[usize::from(c / 8)] >> (c % 8) & 1 == 1;
                    let contributors = (0..8 * bitmap.len() as u16).filter(contains).collect();
                    let words = bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word));
                    let former = self.sums.insert(chunk, (contributors, words.collect()));
                    assert!(former.is_none(), "chunk {chunk} was reported twice");
                }
                ContributorEvent::Ended(end) => self.ends.push(end),
                ContributorEvent::Refused { reason } => self.refused.push(reason),
                ContributorEvent::Rejected { refusal, .. } => self.rejected.push(refusal),
                ContributorEvent::Unreachable => {
                    self.unreachable += 1;
                    node.rejoin(now).unwrap();
                }
            }
        }
        // A few datagrams a turn: sealing takes time, so that crashes fall in the middle.
        for _ in 0..2 {
            if self.opening.is_none() || self.next >= CHUNKS || !node.can_push() {
                return;
            }
            let chunks = self.next..CHUNKS.min(self.next + pack);
            let payload = |chunk| bytes(&values(self.number, chunk, self.draft));
            let data: Vec<u8> = chunks.clone().flat_map(payload).collect();
            let offset = u64::from(self.next) * 8 * WORDS as u64;
            node.push(now, self.next, offset, data.into()).unwrap();
            self.next = chunks.end;
        }
    }

    pub(crate) fn pushed(&self) -> u32 {
        self.next
    }
}

/// Faults of every mixture, up to 30 % of loss.
fn faults(seed: u64) -> Faults {
    Faults {
        loss: (seed * 37 % 301) as u32,
        duplication: (seed * 53 % 151) as u32,
        corruption: (seed * 19 % 41) as u32,
        trimming: (seed * 61 % 151) as u32,
        junk: (seed * 29 % 61) as u32,
        delay: Duration::from_micros(50),
        jitter: Duration::from_micros(seed * 71 % 5000),
    }
}
