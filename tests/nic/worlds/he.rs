//! Seeded worlds with real ciphertexts: `ckks-sum` contributions over a bad network, with deaths
//! and restarts; every sum that ends a round is opened and is exact over exactly those listed.
//! `CIPHERGRAM_SEED=17` replays one seed, `CIPHERGRAM_CASES=50` runs fifty times as many.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::time::Duration;

use ciphergram_he::SealPermit;
use ciphergram_he::exchange::{Announcement, RoundTerms};
use ciphergram_he::params::{Chunks, Scheme};
use ciphergram_he::{Contributor, ContributorSet};
use ciphergram_he::{OpenedSum, Quantised, Sealer, SecretKey, Sum};
use ciphergram_nic::Bytes;
use ciphergram_nic::Node;
use ciphergram_nic::faults::Faults;
use ciphergram_nic::federation::SumApplication;
use ciphergram_nic::proto::{
    Config, Endpoint, EndpointEvent, Identity, Opcode, Peer, Refusal, SumMessage, Time,
};
use ciphergram_nic::round::{
    Aggregator, AggregatorConfig, RoundClient, RoundClientConfig, RoundClientEvent, RoundEnd,
    RoundOpening, SumLayout,
};
use ciphergram_nic::sim::Network;
use ciphergram_tests::seeds;

use crate::support::federation::{check_exact, engine, job, key, node, server, update, weight};

const FOREVER: Duration = Duration::from_secs(120);
const WORLDS: u32 = 48;
const SERVER: ([u8; 4], u16) = ([10, 0, 0, 9], 7700);
/// Chunks of a message: more than a datagram takes.
const PUSHED: u32 = 3;

fn chunk_bytes(chunks: &Chunks) -> NonZeroU32 {
    NonZeroU32::new(chunks.geometry().chunk_bytes() as u32).unwrap()
}

fn lattice() -> &'static SecretKey {
    key(Scheme::CkksSum)
}

struct Client {
    node: Option<RoundClient>,
    number: u16,
    addr: SocketAddr,
    values: usize,
    announcement: Announcement,
    /// Until it seals.
    permit: Option<SealPermit>,
    fields: Vec<u32>,
    /// All chunks, sealed once, as in a spool.
    stream: Bytes,
    open: Option<(RoundOpening, RoundTerms)>,
    next: u32,
    sums: BTreeMap<u32, (ContributorSet, Vec<u8>)>,
    end: Option<RoundEnd>,
}

struct World {
    seed: u64,
    network: Network,
    aggregator: Option<Aggregator<SumApplication>>,
    clients: Vec<Client>,
    incarnations: u32,
}

impl World {
    fn new(seed: u64, clients: u16) -> Self {
        let faults = Faults {
            loss: (seed * 37 % 301) as u32 * 1000,
            duplication: (seed * 53 % 151) as u32 * 1000,
            corruption: (seed * 19 % 41) as u32 * 1000,
            trimming: (seed * 61 % 151) as u32 * 1000,
            marking: (seed * 43 % 201) as u32 * 1000,
            junk: (seed * 29 % 61) as u32 * 1000,
            lateness: 0,
            delay: Duration::from_micros(50),
            jitter: Duration::from_micros(seed * 71 % 5000),
        };
        let network = Network::new(seed, faults);
        let mut world = Self { seed, network, aggregator: None, clients: vec![], incarnations: 0 };
        world.start_aggregator(clients);
        for number in 0..clients {
            // Up to a polynomial.
            let values = 500 * (seed % 17) as usize;
            let permit = SealPermit::draw().unwrap();
            let (update, weight) = (update(number, 0, values), weight(number));
            let job = job(lattice().public());
            world.clients.push(Client {
                node: None,
                number,
                addr: SERVER.into(),
                values,
                announcement: Announcement::propose(
                    permit.seed(),
                    job,
                    (0, None),
                    &update,
                    weight,
                    None,
                )
                .unwrap(),
                permit: Some(permit),
                fields: vec![],
                stream: Bytes::new(),
                open: None,
                next: 0,
                sums: BTreeMap::new(),
                end: None,
            });
            world.start_client(number);
        }
        world
    }

    fn config(&mut self, identity: Identity) -> Config {
        self.incarnations += 1;
        let mixed = (self.seed as u32).wrapping_mul(77) ^ self.incarnations << 24 | 1;
        Config::new(identity, NonZeroU32::new(mixed).unwrap(), [self.incarnations as u8; 32])
    }

    fn start_aggregator(&mut self, clients: u16) {
        let config = AggregatorConfig {
            endpoint: self.config(server()),
            nodes: (0..clients).map(|number| (node(number).id(), Some(number))).collect(),
            clients,
            min_clients: 2,
            rounds: 1,
            join_deadline: Duration::from_secs(20),
            wait_for_clients: true,
            round_deadline: Duration::from_secs(30),
            whole: false,
            linger: Duration::from_secs(15),
            seed: [self.seed as u8; 32],
        };
        let application = SumApplication::new(
            lattice().public().clone(),
            job(lattice().public()).clone(),
            engine(),
            None,
        )
        .unwrap();
        self.aggregator = Some(Aggregator::new(config, application).unwrap());
    }

    /// Starts a client, or starts it again as another process with what it had sealed.
    fn start_client(&mut self, number: u16) {
        let config = RoundClientConfig {
            endpoint: self.config(node(number)),
            addr: SERVER.into(),
            aggregator: server().id(),
            contributor: number,
            seed: [self.incarnations as u8; 32],
        };
        let (now, port) = (self.network.now(), 1000 + self.incarnations as u16);
        let client = &mut self.clients[usize::from(number)];
        client.addr = SocketAddr::from(([10, 0, 0, 1], port));
        let mut node = RoundClient::new(config).unwrap();
        let hello = client.announcement.to_bytes(lattice().public());
        node.join(now, client.announcement.seed.id(), hello, None).unwrap();
        client.node = Some(node);
        client.open = None;
    }

    fn run(&mut self, span: Duration, done: impl Fn(&Self) -> bool) -> bool {
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
            let now = self.network.now();
            self.clients.iter_mut().for_each(|client| client.iterate(now));
        }
        true
    }

    /// Opens the sums of every client. Returns the number of contributors of each chunk.
    fn check(&self) -> Vec<usize> {
        let known = self.clients.iter().filter(|client| !client.fields.is_empty());
        let fields: BTreeMap<_, _> = known.map(|c| (c.number, c.fields.clone())).collect();
        let mut counts = vec![];
        for client in self.clients.iter().filter(|client| client.node.is_some()) {
            let (opening, terms) = client.open.as_ref().unwrap();
            let end = client.end.as_ref().unwrap();
            assert!(end.withheld == 0 && end.closed as usize == client.sums.len());
            let sum = Sum {
                contributors: terms.participants.clone(),
                job: job(lattice().public()).id(),
                round: terms.round,
                agreement: terms.agreement.clone(),
                sets: client.sums.values().map(|(set, _)| set.clone()).collect(),
                stream: client.sums.values().flat_map(|(_, bytes)| bytes.clone()).collect(),
            };
            let opened =
                OpenedSum::open(lattice(), &*engine(), &sum, job(lattice().public())).unwrap();
            counts = check_exact(lattice(), &opening.contributors, &sum, &opened, &fields);
        }
        counts
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
    fn iterate(&mut self, now: Time) {
        let Some(mut node) = self.node.take() else { return };
        while let Some(event) = node.poll_event() {
            match event {
                RoundClientEvent::Opened(opening) => self.on_opened(&mut node, now, opening),
                RoundClientEvent::Sum { chunk, bitmap, bytes } => {
                    let (_, terms) = self.open.as_ref().unwrap();
                    let mut set = ContributorSet::none(terms.participants.len());
                    for (index, Contributor { number: n, .. }) in
                        terms.participants.iter().enumerate()
                    {
                        if bitmap[usize::from(n / 8)] >> (n % 8) & 1 == 1 {
                            set.insert(index);
                        }
                    }
                    assert!(self.sums.insert(chunk, (set, bytes)).is_none(), "chunk {chunk} twice");
                }
                RoundClientEvent::Counted { .. } => {}
                RoundClientEvent::Ended(end) => self.end = Some(end),
                RoundClientEvent::Refused { reason } => panic!("refused: {reason}"),
                RoundClientEvent::Rejected { refusal, .. } => panic!("rejected: {refusal}"),
                RoundClientEvent::Unreachable => node.rejoin(now).unwrap(),
                RoundClientEvent::Unlisted => panic!("not listed"),
            }
        }
        // A message an iteration: sealing takes time, so that deaths fall in the middle.
        if let Some((_, terms)) = &self.open
            && node.can_push()
        {
            let chunks = lattice().public().parameters().chunks(terms.agreement.values());
            if self.next < chunks.count() {
                let end = (self.next + PUSHED).min(chunks.count());
                let bytes = self.stream.slice(chunks.range_of(&(self.next..end)));
                node.push(now, self.next, chunk_bytes(&chunks), bytes).unwrap();
                self.next = end;
            }
        }
        self.node = Some(node);
    }

    fn on_opened(&mut self, node: &mut RoundClient, now: Time, opening: RoundOpening) {
        let key = lattice().public();
        let terms = RoundTerms::from_bytes(&opening.terms, key).unwrap();
        let parameters = key.parameters();
        if self.stream.is_empty() {
            let (update, weight) = (update(self.number, 0, self.values), weight(self.number));
            let (agreement, seed) = (&terms.agreement, [self.number as u8; 32]);
            let own = Quantised::new(&update, agreement, weight, parameters, &seed).unwrap();
            self.fields = own.fields().unwrap().to_vec();
            let permit = self.permit.take().expect("a client seals once");
            let under = job(key).terms(terms.round, &terms.agreement).unwrap();
            let own_key = lattice().as_client(self.number);
            let sealer = Sealer::new(own_key, engine(), own, permit, &under).unwrap();
            self.stream = sealer.seal_all().unwrap().into();
            self.announcement.lowest_round = terms.round;
            self.announcement.agreement = terms.agreement.clone();
            node.amend(self.announcement.to_bytes(key));
        }
        assert!(self.announcement.agreement.check_same(&terms.agreement).is_ok());
        let chunks = parameters.chunks(terms.agreement.values());
        let layout = SumLayout { chunks: chunks.count(), sum_bytes: chunks.bytes_of(0) };
        node.accept(now, layout).unwrap();
        self.open = Some((opening, terms));
        (self.next, self.end) = (0, None);
        self.sums.clear();
    }
}

fn ended(world: &World) -> bool {
    world.clients.iter().all(|client| client.node.is_none() || client.end.is_some())
}

/// Runs worlds up to the moment when client 0 has pushed some chunks, and then what `befalls` it.
/// Returns the number of contributors of all chunks of all worlds, relative to the number of
/// clients.
fn worlds(befalls: impl Fn(&mut World, u16)) -> (usize, usize) {
    let (mut full, mut partial) = (0, 0);
    for seed in seeds(WORLDS) {
        let clients = 3 + (seed % 2) as u16;
        let mut world = World::new(seed, clients);
        let at = (seed % 12) as u32;
        let begun = |world: &World| {
            let client = &world.clients[0];
            client.open.is_some() && (client.next > at || client.end.is_some())
        };
        assert!(world.run(FOREVER, begun), "seed {seed}");
        befalls(&mut world, clients);
        assert!(world.run(FOREVER, ended), "seed {seed}: a round must end");
        let counts = world.check();
        assert!(!counts.is_empty());
        full += counts.iter().filter(|&&count| count == usize::from(clients)).count();
        partial += counts.iter().filter(|&&count| count + 1 == usize::from(clients)).count();
        assert!(counts.iter().all(|&count| count + 1 >= usize::from(clients)));
    }
    (full, partial)
}

#[test]
fn ciphertext_sums_survive_a_bad_network() {
    let (full, partial) = worlds(|_, _| {});
    assert!(full > 300 && partial == 0, "{full} {partial}");
}

#[test]
fn sums_are_exact_when_one_dies() {
    let (full, partial) = worlds(|world, _| world.clients[0].node = None);
    assert!(full > 20 && partial > 20, "{full} {partial}");
}

#[test]
fn one_that_restarts_is_counted_once() {
    let (full, partial) = worlds(|world, _| {
        world.clients[0].node = None;
        world.run(Duration::from_millis(world.seed * 13 % 900), |_| false);
        world.start_client(0);
        world.clients[0].end = None;
    });
    assert!(full > 300 && partial == 0, "{full} {partial}");
}

#[test]
fn restarted_aggregators_sum_the_same_ciphertexts() {
    let (full, partial) = worlds(|world, clients| {
        if ended(world) || world.clients.iter().any(|client| client.end.is_some()) {
            return;
        }
        world.aggregator = None;
        world.run(Duration::from_millis(world.seed * 17 % 3000), |_| false);
        world.start_aggregator(clients);
    });
    assert!(full > 300 && partial == 0, "{full} {partial}");
}

/// One announcement a contribution, acknowledged before the round opens: a client that is late, or
/// takes another's place, adds nothing.
#[test]
fn unannounced_chunks_do_not_count() {
    let mut world = World::new(3, 3);
    world.network.set_faults(Faults { delay: Duration::from_micros(50), ..Faults::default() });
    // A fourth is declared, and never joins.
    world.start_aggregator(4);
    let opened = |world: &World| world.clients.iter().all(|client| client.open.is_some());
    assert!(world.run(FOREVER, opened));
    let announced = world
        .clients
        .iter()
        .map(|client| Contributor { number: client.number, seed: client.announcement.seed });
    let (opening, terms) = world.clients[0].open.clone().unwrap();
    assert!(announced.eq(terms.participants.iter().copied()), "each once");

    // The rkey is no secret: it is in every SUM. This one is lost, and comes again.
    let now = world.network.now();
    let first = world.clients[0].node.as_mut().unwrap();
    let mut sent = vec![];
    while first.poll_transmit(now, &mut sent).is_some() && sent[3] != Opcode::Sum as u8 {
        sent.clear();
    }
    let rkey = u32::from_le_bytes(sent[32..36].try_into().unwrap());

    let own = Quantised::from_fields(vec![9; terms.agreement.values()], 1);
    let under = job(lattice().public()).terms(terms.round, &terms.agreement).unwrap();
    let permit = SealPermit::draw().unwrap();
    let sealer = Sealer::new(lattice().as_client(3), engine(), own, permit, &under).unwrap();
    let chunk_bytes = chunk_bytes(sealer.chunks());
    let data = Bytes::from(sealer.seal_all().unwrap()).slice(..chunk_bytes.get() as usize);
    let addr = SocketAddr::from(([10, 0, 0, 1], 9999));
    let mut stranger = Endpoint::new(world.config(node(3))).unwrap();
    stranger.contact(server().id(), SERVER.into());
    let aggregator = Peer::of(server().id());
    for number in [3, 0] {
        let sum = SumMessage {
            rkey,
            round: opening.round,
            contributor: number,
            first_chunk: 0,
            chunk_bytes,
            by_chunk: true,
            data: data.clone(),
        };
        stranger.sum(now, aggregator, sum).unwrap();
    }
    let mut refusals = vec![];
    while refusals.len() < 2 {
        let aggregator = world.aggregator.as_mut().unwrap();
        let mut nodes: [(_, &mut dyn Node); 2] =
            [(SERVER.into(), aggregator), (addr, &mut stranger)];
        assert!(world.network.step(&mut nodes, now + FOREVER));
        let events = std::iter::from_fn(|| stranger.poll_event());
        refusals.extend(events.map(|event| match event {
            EndpointEvent::Refused { refusal, .. } => refusal,
            other => panic!("{other:?}"),
        }));
    }
    assert_eq!(refusals, [Refusal::NotContributor; 2]);
    assert!(world.run(FOREVER, ended));
    assert!(world.check().iter().all(|&count| count == 3));
}
