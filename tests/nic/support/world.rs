//! One seed makes a world: an aggregator, its clients, a bad network, crashes and restarts. What
//! must hold is checked after every step.
//!
//! Contributions are plain integers. The first of each chunk counts its contributor in a field of
//! its own, so that a sum shows how often each was added.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU32;
use std::ops::Range;
use std::time::Duration;

use ciphergram_nic::Node;
use ciphergram_nic::faults::Faults;
use ciphergram_nic::proto::datagram::MIN_DATAGRAM_BYTES;
use ciphergram_nic::proto::endpoint::{
    DEFAULT_HELD_BYTES, MAX_EVENTS, MAX_HANDSHAKE_DATAGRAMS, MAX_PEERS,
};
use ciphergram_nic::proto::{
    ChunkAdder, ChunkLayout, Config, DatagramSizes, Endpoint, Identity, NodeId, Peer, Refusal,
    Shard, Stranger, Time,
};
use ciphergram_nic::round::{
    Aggregator, AggregatorConfig, AggregatorEvent, Application, ContributionId, Readiness,
    ReadyRound, Resume, RoundClient, RoundClientConfig, RoundClientEvent, RoundEnd, RoundOpening,
    SumLayout,
};
use ciphergram_nic::sim::{Network, at};

pub(crate) use crate::support::ledger::{Accumulators, Issue, Ledger};

pub(crate) const CHUNKS: u32 = 23;
/// Words of a block, of which datagrams carry whole ones.
pub(crate) const BLOCK_WORDS: usize = 8;
/// Words of a chunk: three blocks.
const WORDS: usize = 24;
const LAST_WORDS: usize = 3;
pub(crate) const CHUNK_BYTES: NonZeroU32 = NonZeroU32::new(8 * WORDS as u32).unwrap();
/// The time by which a deadline may be missed.
const SLACK: Duration = Duration::from_millis(1);

pub(crate) fn words(chunk: u32) -> usize {
    if chunk + 1 == CHUNKS { LAST_WORDS } else { WORDS }
}

/// Returns the values of contributor `c` in a chunk.
pub(crate) fn values(contributor: u16, chunk: u32, issue: Issue) -> Vec<u64> {
    let Issue { contribution, draft } = issue;
    let salt = u64::from(contributor) << 40 | u64::from(chunk) << 8 | draft << 60;
    let salt = salt | u64::from(contribution) << 50;
    let mixed = |word: usize| (salt + word as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut values: Vec<u64> = (0..words(chunk)).map(mixed).collect();
    values[0] = 1 << (8 * contributor);
    values
}

fn bytes(values: &[u64]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// Returns the hello of a client with a contribution.
pub(crate) fn hello(contribution: u8) -> Vec<u8> {
    [b"hello ", &[contribution][..]].concat()
}

/// The layout of contributions, and the chunk at which the second of two shards begins.
const LAYOUT: ChunkLayout = ChunkLayout {
    chunk_bytes: CHUNK_BYTES,
    total_bytes: 8 * (WORDS as u64 * (CHUNKS as u64 - 1) + LAST_WORDS as u64),
};
const PARTED: u32 = 9;

/// Adds words, wrapping.
struct Adder {
    round: (u32, u32),
    sums: Accumulators,
}

impl ChunkAdder for Adder {
    fn check(&mut self, _: Range<u32>, _: &[u8]) -> Result<(), Refusal> {
        Ok(())
    }
    fn add(&mut self, chunks: Range<u32>, payload: &[u8]) -> Result<(), Refusal> {
        let mut rounds = self.sums.lock().unwrap();
        let sums = rounds.get_mut(&self.round).unwrap();
        let sums = &mut sums[chunks.start as usize..chunks.end as usize];
        for (word, value) in sums.iter_mut().flatten().zip(payload.as_chunks().0) {
            *word = word.wrapping_add(u64::from_le_bytes(*value));
        }
        for (sum, chunk) in sums.iter().zip(chunks) {
            let counts = sum[0].to_le_bytes();
            let once = counts.iter().all(|count| *count <= 1);
            assert!(once, "a contributor counts twice in chunk {chunk}: {counts:?}");
        }
        Ok(())
    }
    fn finish(&mut self, chunk: u32, _: u32) -> Result<Vec<u8>, String> {
        Ok(bytes(&self.sums.lock().unwrap()[&self.round][chunk as usize]))
    }
}

/// The reason why a round opens without a misfit.
pub(crate) const MISFIT: &str = "it does not fit the others";

/// Admits every client that says hello and names its contribution, and opens a round without those
/// whose contribution is a misfit. It prepares every second round until it is asked again.
pub(crate) struct Integers {
    incarnation: u32,
    sums: Accumulators,
    misfits: BTreeSet<u8>,
    /// Those whom a round is prepared for.
    prepared: BTreeMap<u16, Vec<u8>>,
}

impl Integers {
    pub(crate) fn new(incarnation: u32, sums: Accumulators, misfits: BTreeSet<u8>) -> Self {
        Self { incarnation, sums, misfits, prepared: BTreeMap::new() }
    }
}

impl Application for Integers {
    fn admit(&mut self, _: u16, id: &ContributionId, hello: &[u8]) -> Result<(), String> {
        if hello == self::hello(id[0]) { Ok(()) } else { Err("say hello".into()) }
    }
    fn open(&mut self, round: u32, joined: &BTreeMap<u16, Vec<u8>>) -> Result<Readiness, String> {
        let mut late = BTreeSet::new();
        if round % 2 == 1 {
            let is_prepared =
                |(number, hello): (&u16, &Vec<u8>)| self.prepared.get(number) == Some(hello);
            if !joined.iter().any(is_prepared) {
                self.prepared = joined.clone();
                return Ok(Readiness::Preparing { left_out: vec![] });
            }
            late = joined.iter().filter(|client| !is_prepared(*client)).map(|(n, _)| *n).collect();
            self.prepared.clear();
        }
        let (sums, round) = (self.sums.clone(), (self.incarnation, round));
        let zeros = (0..CHUNKS).map(|chunk| vec![0; words(chunk)]).collect();
        sums.lock().unwrap().insert(round, zeros);
        let terms = vec![round.1 as u8];
        let misfit = |hello: &[u8]| hello.last().is_some_and(|id| self.misfits.contains(id));
        let left_out = joined.iter().filter(|(n, hello)| misfit(hello) && !late.contains(n));
        let left_out = left_out.map(|(number, _)| (*number, MISFIT.to_string())).collect();
        let shards = [0..PARTED, PARTED..CHUNKS].map(|chunks| {
            let adder = Box::new(Adder { round, sums: sums.clone() });
            Shard { chunks, adder }
        });
        let (layout, shards) = (LAYOUT, shards.into());
        Ok(Readiness::Ready(ReadyRound { terms, layout, shards, left_out, late }))
    }
}

/// The state of a client's owner.
pub(crate) struct Client {
    pub node: Option<RoundClient>,
    pub number: u16,
    pub addr: SocketAddr,
    pub issue: Issue,
    pub opening: Option<RoundOpening>,
    next: u32,
    /// Chunks that it pushes in one message.
    pack: u32,
    /// First chunks of the messages that count.
    counted: BTreeSet<u32>,
    pub sums: BTreeMap<u32, (Vec<u16>, Vec<u64>)>,
    pub ends: Vec<RoundEnd>,
    pub refused: Vec<String>,
    pub rejected: Vec<Refusal>,
    pub unreachable: u32,
    /// Reports that its node is not listed, which it received.
    pub unlisted: u32,
    /// Nothing more comes of its contribution: the round ended, or it was refused.
    pub done: bool,
}

pub(crate) struct World {
    pub seed: u64,
    pub network: Network,
    pub aggregator: Option<Aggregator<Integers>>,
    pub settings: AggregatorConfig,
    pub clients: Vec<Client>,
    pub events: Vec<AggregatorEvent>,
    /// Machines that are suspended: nothing reaches them, and nothing happens there.
    pub asleep: BTreeSet<IpAddr>,
    pub ledger: Ledger,
    /// Contributions that no round opens with.
    pub misfits: BTreeSet<u8>,
    /// Nodes that were struck out of those that may take part, at some time.
    pub struck: BTreeSet<NodeId>,
    /// The most chunks that clients push in one message.
    pub most_packed: u32,
    /// The most sockets that each of their pipelines sends from.
    pub most_paths: u16,
    /// The most pipelines of a process.
    pub most_pipelines: u16,
    incarnations: u32,
    /// All processes of nodes that may take part.
    processes: BTreeSet<Peer>,
    /// The times at which the open round must close, and the closed one be finished; by the
    /// aggregator's clock.
    deadlines: [Option<Time>; 2],
}

pub(crate) const SERVER: ([u8; 4], u16) = ([10, 0, 0, 9], 7700);

/// Returns the aggregator's node.
pub(crate) fn server() -> Identity {
    Identity::from_secret(&[200; 32]).unwrap()
}

/// Returns the node of client `number`.
pub(crate) fn node(number: u16) -> Identity {
    Identity::from_secret(&[number as u8 + 1; 32]).unwrap()
}

/// Returns the machine that client `number` runs on.
pub(crate) fn machine(number: u16) -> IpAddr {
    [10, 0, 1, number as u8].into()
}

/// Returns a process of a node.
pub(crate) fn process(identity: Identity, incarnation: u32) -> Config {
    let mut seed = identity.id().0;
    seed.iter_mut().zip(incarnation.to_le_bytes()).for_each(|(byte, more)| *byte ^= more);
    Config::new(identity, NonZeroU32::new(incarnation).unwrap(), seed)
}

impl World {
    /// Makes a world of one round, with faults of every mixture.
    pub(crate) fn new(seed: u64, clients: u16, min_clients: u16) -> Self {
        let settings = AggregatorConfig {
            endpoint: process(server(), 1),
            nodes: (0..clients)
                .map(|number| (node(number).id(), Some(number)))
                .chain([(node(7).id(), None)])
                .collect(),
            clients,
            min_clients,
            rounds: 1,
            join_deadline: Duration::from_secs(20),
            wait_for_clients: true,
            round_deadline: Duration::from_secs(30),
            whole: false,
            linger: Duration::from_secs(15),
            seed: [seed as u8; 32],
        };
        let mut world = Self::of(seed, settings, faults(seed));
        world.start_aggregator();
        world
    }

    /// Makes a world without anybody in it yet.
    pub(crate) fn of(seed: u64, settings: AggregatorConfig, faults: Faults) -> Self {
        Self {
            seed,
            network: Network::new(seed, faults),
            aggregator: None,
            clients: Vec::new(),
            events: Vec::new(),
            asleep: BTreeSet::new(),
            ledger: Ledger::of(settings.min_clients),
            misfits: BTreeSet::new(),
            struck: BTreeSet::new(),
            most_packed: 4,
            most_paths: 3,
            most_pipelines: 2,
            incarnations: 0,
            processes: BTreeSet::new(),
            settings,
            deadlines: [None; 2],
        }
    }

    pub(crate) fn start_aggregator(&mut self) {
        let endpoint = self.config(server());
        let ports = (1..endpoint.pipelines).map(|pipeline| at(SERVER.into(), pipeline).port());
        self.settings.endpoint = Config { ports: ports.collect(), ..endpoint };
        let incarnation = self.settings.endpoint.incarnation.get();
        let (sums, misfits) = (self.ledger.accumulators.clone(), self.misfits.clone());
        let application = Integers::new(incarnation, sums, misfits);
        self.aggregator = Some(Aggregator::new(self.settings.clone(), application).unwrap());
        self.deadlines = [None; 2];
        self.ledger.whole = self.settings.whole;
    }

    /// Starts or restarts client `number` as a new process at a new port.
    pub(crate) fn start_client(&mut self, number: u16, contribution: u8) {
        self.start_node(node(number), number, contribution, None);
    }

    /// Starts a process of a node as client `number`.
    pub(crate) fn start_node(
        &mut self,
        identity: Identity,
        number: u16,
        contribution: u8,
        resume: Option<Resume>,
    ) {
        let allowed = self.settings.nodes.contains_key(&identity.id());
        let mut endpoint = self.config(identity);
        // Few for one process, many for the next.
        endpoint.paths =
            1 + (self.seed as u16).wrapping_add(self.incarnations as u16) % self.most_paths;
        if allowed {
            let (node, incarnation) = (endpoint.identity.id(), endpoint.incarnation.get());
            self.processes.insert(Peer { node, incarnation });
        }
        let config = RoundClientConfig {
            endpoint,
            addr: SERVER.into(),
            aggregator: server().id(),
            contributor: number,
            seed: [self.incarnations as u8; 32],
        };
        let node = RoundClient::new(config).unwrap();
        self.clients.retain(|client| client.number != number);
        let mut client = Client {
            node: Some(node),
            number,
            addr: (machine(number), 1000 + self.incarnations as u16).into(),
            issue: Issue::of(contribution),
            opening: None,
            next: 0,
            pack: 1 + (self.seed as u32).wrapping_add(self.incarnations) % self.most_packed,
            counted: BTreeSet::new(),
            sums: BTreeMap::new(),
            ends: Vec::new(),
            refused: Vec::new(),
            rejected: Vec::new(),
            unreachable: 0,
            unlisted: 0,
            done: false,
        };
        client.join(self.network.time_at(client.addr), contribution, resume);
        self.clients.push(client);
    }

    pub(crate) fn client(&mut self, number: u16) -> &mut Client {
        self.clients.iter_mut().find(|client| client.number == number).unwrap()
    }

    fn config(&mut self, identity: Identity) -> Config {
        self.incarnations += 1;
        let mixed = (self.seed as u32).wrapping_mul(77) ^ self.incarnations << 24 | 1;
        // Few for one process, many for the next.
        let pipelines =
            1 + (self.seed as u16).wrapping_add(self.incarnations as u16) % self.most_pipelines;
        let most = MIN_DATAGRAM_BYTES + mixed % 900;
        let sizes = DatagramSizes { least: MIN_DATAGRAM_BYTES, most };
        Config { pipelines, sizes, ..process(identity, mixed) }
    }

    /// Runs until `done` or for `span`; returns whether it was done.
    pub(crate) fn run(&mut self, span: Duration, done: impl Fn(&Self) -> bool) -> bool {
        let until = self.network.now() + span;
        while !done(self) {
            if !self.step(until) {
                return done(self);
            }
        }
        true
    }

    /// Takes one step of the network, does the work of all owners, and checks all that must hold.
    pub(crate) fn step(&mut self, until: Time) -> bool {
        let mut nodes: Vec<(SocketAddr, &mut dyn Node)> = Vec::new();
        if let Some(aggregator) = &mut self.aggregator {
            nodes.push((SERVER.into(), aggregator));
        }
        for client in &mut self.clients {
            if let Some(node) = &mut client.node {
                nodes.push((client.addr, node));
            }
        }
        nodes.retain(|(addr, _)| !self.asleep.contains(&addr.ip()));
        if !self.network.step(&mut nodes, until) {
            return false;
        }
        self.ledger.now = self.network.now();
        self.hear_aggregator();
        for client in &mut self.clients {
            if !self.asleep.contains(&client.addr.ip()) {
                let now = self.network.time_at(client.addr);
                client.iterate(now, &mut self.ledger);
            }
        }
        self.check();
        true
    }

    fn hear_aggregator(&mut self) {
        let Some(aggregator) = &mut self.aggregator else { return };
        let now = self.network.time_at(SERVER.into());
        while let Some(event) = aggregator.poll_event() {
            if !matches!(event, AggregatorEvent::Settled { .. }) {
                self.ledger.print(&event);
            }
            match &event {
                AggregatorEvent::Opened { contributors, .. } => {
                    let enough = contributors.len() >= usize::from(self.settings.min_clients);
                    assert!(enough, "a round opens with too few: {contributors:?}");
                    self.deadlines[0] = Some(now + self.settings.round_deadline + SLACK);
                }
                AggregatorEvent::Closed(_) => {
                    let deliveries = self.settings.round_deadline + self.settings.linger;
                    self.deadlines = [None, Some(now + deliveries + SLACK)];
                }
                AggregatorEvent::Finished { .. } => self.deadlines[1] = None,
                AggregatorEvent::Stranger { stranger: Stranger::Unlisted(node), .. } => {
                    let listed =
                        self.settings.nodes.contains_key(node) && !self.struck.contains(node);
                    assert!(!listed, "a listed node is a stranger");
                }
                _ => {}
            }
            self.events.push(event);
        }
    }

    /// Lets a suspended machine continue. Timers that were due meanwhile are due now.
    pub(crate) fn wake(&mut self, machine: IpAddr) {
        self.asleep.remove(&machine);
        let server = SocketAddr::from(SERVER);
        if machine == server.ip() {
            let now = self.network.time_at(server) + SLACK;
            self.deadlines.iter_mut().flatten().for_each(|due| *due = now.max(*due));
        }
    }

    /// Returns whether no round is open.
    pub(crate) fn is_between_rounds(&self) -> bool {
        self.deadlines[0].is_none()
    }

    /// Checks that nobody holds more than it may, nor anything of a stranger's; and that rounds
    /// end.
    fn check(&self) {
        self.ledger.check_whole();
        if let Some(aggregator) = &self.aggregator {
            let known = |peer: &Peer| self.processes.contains(peer);
            check_endpoint(aggregator.endpoint(), known);
            let asleep = self.asleep.contains(&SocketAddr::from(SERVER).ip());
            let now = self.network.time_at(SERVER.into());
            let late = self.deadlines.iter().flatten().any(|due| now > *due);
            assert!(asleep || !late, "a round did not end, or did not finish, by its deadline");
        }
        for client in &self.clients {
            let misfit = self.misfits.contains(&client.issue.contribution);
            assert!(!misfit || client.opening.is_none(), "a misfit takes part");
            let Some(node) = &client.node else { continue };
            let server: NodeId = self.settings.endpoint.identity.id();
            check_endpoint(node.endpoint(), |peer| peer.node == server);
            if !self.settings.nodes.keys().any(|known| *known == node.endpoint().node()) {
                assert!(client.opening.is_none(), "a stranger takes part");
            } else if !self.struck.contains(&node.endpoint().node()) {
                assert_eq!(
                    client.unlisted, 0,
                    "a node that is listed received a report that it is not"
                );
            }
        }
    }

    /// Checks that everyone's chunks are in every sum that a client holds.
    pub(crate) fn check_complete(&self) {
        let everyone: Vec<u16> = (0..self.settings.clients).collect();
        for client in &self.clients {
            assert_eq!(client.sums.len(), CHUNKS as usize, "seed {}", self.seed);
            assert!(client.ends.last().is_some_and(RoundEnd::is_complete), "seed {}", self.seed);
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

/// Checks that all that an endpoint holds is of peers that it may know, and bounded (PROTOCOL §9).
fn check_endpoint(endpoint: &Endpoint, known: impl Fn(&Peer) -> bool) {
    let load = endpoint.usage();
    assert!(endpoint.peers().all(|peer| known(&peer)), "a stranger made state");
    let within = load.links <= MAX_PEERS
        && load.sessions <= 4 * load.links
        && load.held_bytes <= DEFAULT_HELD_BYTES
        && load.handshakes <= MAX_HANDSHAKE_DATAGRAMS
        && load.events <= MAX_EVENTS;
    assert!(within, "beyond a bound: {load:?}");
}

impl Client {
    /// Asks to take part with a contribution.
    pub(crate) fn join(&mut self, now: Time, contribution: u8, resume: Option<Resume>) {
        let Some(node) = &mut self.node else { return };
        self.issue = Issue::of(contribution);
        self.done = false;
        self.opening = None;
        node.join(now, [contribution; 16], hello(contribution), resume).unwrap();
    }

    /// From here on issues other bytes under the same name, and again for those that it issued
    /// already.
    pub(crate) fn equivocate(&mut self) {
        self.issue.draft += 1;
        self.next = 0;
    }

    /// Notes its events, and pushes as many chunks as there is space for.
    fn iterate(&mut self, now: Time, ledger: &mut Ledger) {
        let Some(mut node) = self.node.take() else { return };
        while let Some(event) = node.poll_event() {
            if !matches!(event, RoundClientEvent::Sum { .. } | RoundClientEvent::Counted { .. }) {
                ledger.print((self.number, &event));
            }
            match event {
                RoundClientEvent::Opened(opening) => {
                    let layout = SumLayout { chunks: CHUNKS, sum_bytes: 8 * WORDS };
                    node.accept(now, layout).unwrap();
                    self.opening = Some(opening);
                    self.next = 0;
                    self.counted.clear();
                    self.sums.clear();
                }
                RoundClientEvent::Sum { chunk, bitmap, bytes } => {
                    let contains = |c: &u16| bitmap[usize::from(c / 8)] >> (c % 8) & 1 == 1;
                    let contributors: Vec<u16> =
                        (0..8 * bitmap.len() as u16).filter(contains).collect();
                    let words = bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word));
                    let sum = (contributors, words.collect());
                    ledger.check_sum(self.round(), chunk, &sum);
                    let former = self.sums.insert(chunk, sum);
                    assert!(former.is_none(), "chunk {chunk} was reported twice");
                }
                RoundClientEvent::Counted { first_chunk } => {
                    self.counted.insert(first_chunk);
                    for chunk in first_chunk..CHUNKS.min(first_chunk + self.pack) {
                        ledger.count(self.round(), self.number, chunk);
                    }
                }
                RoundClientEvent::Ended(end) => {
                    self.check_end(&end);
                    self.ends.push(end);
                    self.done = true;
                }
                RoundClientEvent::Refused { reason } => {
                    self.refused.push(reason);
                    self.done = true;
                }
                RoundClientEvent::Rejected { refusal, .. } => {
                    self.rejected.push(refusal);
                }
                RoundClientEvent::Unreachable => {
                    self.unreachable += 1;
                    node.rejoin(now).unwrap();
                }
                RoundClientEvent::Unlisted => {
                    self.unlisted += 1;
                    // One that insists, but not for ever.
                    if self.unlisted < 50 {
                        node.rejoin(now).unwrap();
                    }
                }
            }
        }
        self.push(now, &mut node, ledger);
        self.node = Some(node);
    }

    /// Returns the round it is in: its aggregator's incarnation, and its number.
    fn round(&self) -> (u32, u32) {
        let opening = self.opening.as_ref().unwrap();
        (opening.incarnation, opening.round)
    }

    /// A few messages an iteration: sealing takes time, so that crashes fall in the middle.
    fn push(&mut self, now: Time, node: &mut RoundClient, ledger: &mut Ledger) {
        for _ in 0..2 {
            if self.opening.is_none() || self.next >= CHUNKS || !node.can_push() {
                return;
            }
            ledger.issue(self.round(), self.number, self.issue);
            let chunks = self.next..CHUNKS.min(self.next + self.pack);
            let payload = |chunk| bytes(&values(self.number, chunk, self.issue));
            let data: Vec<u8> = chunks.clone().flat_map(payload).collect();
            node.push(now, self.next, CHUNK_BYTES, data.into()).unwrap();
            self.next = chunks.end;
        }
    }

    /// Checks that an END matches the sums.
    fn check_end(&self, end: &RoundEnd) {
        assert_eq!(end.closed as usize, self.sums.len());
        assert_eq!(end.closed + end.withheld, CHUNKS);
        for (contributor, chunks) in &end.contributed {
            let listed = self.sums.values().filter(|(who, _)| who.contains(contributor));
            assert_eq!(listed.count(), *chunks as usize);
        }
    }

    pub(crate) fn pushed(&self) -> u32 {
        self.next
    }

    /// Returns whether something that it pushed is known to count.
    pub(crate) fn knows_to_count(&self) -> bool {
        !self.counted.is_empty()
    }

    /// Returns whether all that it pushed is known to count.
    pub(crate) fn is_counted(&self) -> bool {
        self.counted.len() == self.next.div_ceil(self.pack) as usize
    }
}

/// Draws faults of every mixture, up to 30 % of loss.
fn faults(seed: u64) -> Faults {
    Faults {
        loss: (seed * 37 % 301) as u32 * 1000,
        duplication: (seed * 53 % 151) as u32 * 1000,
        corruption: (seed * 19 % 41) as u32 * 1000,
        trimming: (seed * 61 % 151) as u32 * 1000,
        marking: 40_000,
        junk: (seed * 29 % 61) as u32 * 1000,
        lateness: 0,
        delay: Duration::from_micros(50),
        jitter: Duration::from_micros(seed * 71 % 5000),
    }
}
