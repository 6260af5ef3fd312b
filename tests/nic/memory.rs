//! The memory that an aggregator holds: with a thousand clients and a million values, and for each
//! of many idle peers. Counted by an allocator that knows the owner of each allocation: Rust's, so
//! that keys ready for use, some 600 bytes each of C's, come on top while a peer is not idle.
//! `--nocapture` prints it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use ciphergram_accel::{CpuEngine, Engine};
use ciphergram_he::SealPermit;
use ciphergram_he::exchange::{Announcement, RoundTerms};
use ciphergram_he::params::{Literal, Scheme};
use ciphergram_he::{
    Agreement, Dtype, Job, Limits, Quantised, Sealer, SecretKey, Tensor, TensorSpec, Update, random,
};
use ciphergram_nic::Bytes;
use ciphergram_nic::Node;
use ciphergram_nic::federation::SumApplication;
use ciphergram_nic::proto::{
    ChunkAdder, Config, Endpoint, EndpointEvent, Identity, Peer, Refusal, Shard, Time,
    pipeline::SWEEP_SPAN,
};
use ciphergram_nic::round::{
    Aggregator, AggregatorConfig, AggregatorEvent, Application, ContributionId, Readiness,
    ReadyRound, RoundClient, RoundClientConfig, RoundClientEvent, RoundEnd, SumLayout,
};

use crate::support::counting::{self, Owner, held, owned, peak};

#[global_allocator]
static COUNTING: counting::Counting = counting::Counting;

fn addr(number: u16) -> SocketAddr {
    SocketAddr::from(([10, 0, (number >> 8) as u8, number as u8], 7))
}

const SERVER: u16 = u16::MAX;

/// Returns the node of client `number`, or of the server.
fn identity(number: u16) -> Identity {
    let mut secret = [1; 32];
    secret[8..10].copy_from_slice(&number.to_le_bytes());
    Identity::from_secret(&secret).unwrap()
}

fn config(number: u16) -> Config {
    let mut seed = [2; 32];
    seed[..2].copy_from_slice(&number.to_le_bytes());
    Config::new(identity(number), NonZeroU32::new(7).unwrap(), seed)
}

/// Counts allocations of an application as the application's.
struct Counted<T>(T);

impl Application for Counted<SumApplication> {
    fn admit(
        &mut self,
        contributor: u16,
        contribution: &ContributionId,
        hello: &[u8],
    ) -> Result<(), String> {
        owned(Owner::Application, || self.0.admit(contributor, contribution, hello))
    }
    fn open(&mut self, round: u32, joined: &BTreeMap<u16, Vec<u8>>) -> Result<Readiness, String> {
        let opened = owned(Owner::Application, || self.0.open(round, joined))?.opened().unwrap();
        let counted = |Shard { chunks, adder }| Shard { chunks, adder: Box::new(Counted(adder)) };
        let shards = opened.shards.into_iter().map(counted).collect();
        Ok(Readiness::Ready(ReadyRound { shards, ..opened }))
    }
}

impl ChunkAdder for Counted<Box<dyn ChunkAdder>> {
    fn check(&mut self, chunks: Range<u32>, payload: &[u8]) -> Result<(), Refusal> {
        owned(Owner::Application, || self.0.check(chunks, payload))
    }
    fn add(&mut self, chunks: Range<u32>, payload: &[u8]) -> Result<(), Refusal> {
        owned(Owner::Application, || self.0.add(chunks, payload))
    }
    fn finish(&mut self, chunk: u32, count: u32) -> Result<Vec<u8>, String> {
        // The result is no longer the application's.
        self.0.finish(chunk, count)
    }
}

const CLIENTS: u16 = 1000;
const VALUES: usize = 1_000_000;
/// Clients that contribute, and stay for the sums.
const BUSY: u16 = 3;
const MOST: usize = 24 << 20;

struct Client {
    node: RoundClient,
    /// The chunks to send, and the number sent.
    stream: Option<Bytes>,
    next: u32,
    unanswered: u32,
    open: bool,
    sums: u32,
    end: Option<RoundEnd>,
}

/// An aggregator, and clients at no distance.
struct World {
    now: Time,
    key: SecretKey,
    aggregator: Option<Aggregator<Counted<SumApplication>>>,
    clients: Vec<Client>,
    /// Clients that no longer receive.
    muted: bool,
    events: Vec<AggregatorEvent>,
}

impl World {
    fn new() -> Self {
        let literal = Literal { scheme: Scheme::CkksSum, clients: 1024, bits: 16 };
        let key = SecretKey::generate(literal).unwrap();
        let engine: Arc<dyn Engine> = Arc::new(CpuEngine::new());
        let spec = TensorSpec { name: "t".into(), dtype: Dtype::F32, shape: vec![VALUES as u64] };
        let update = Update::new(vec![Tensor::from_values(spec, &vec![0.5; VALUES]).unwrap()]);
        let agreement = Agreement::new(update.specs(), vec![1.0], 1).unwrap();
        let seed = random::bytes().unwrap();
        let own = Quantised::new(&update, &agreement, 1, key.public().parameters(), &seed).unwrap();
        let job = Job::new(key.public(), Limits::of_key(key.public())).unwrap();
        let (permit, terms) = (SealPermit::draw().unwrap(), job.terms(0, &agreement).unwrap());
        let sealer = Sealer::new(key.as_client(0), engine.clone(), own, permit, &terms).unwrap();
        // The same under several numbers: nobody opens their sum.
        let stream: Bytes = sealer.seal_all().unwrap().into();
        let clients = (0..CLIENTS).map(|number| {
            let config = RoundClientConfig {
                endpoint: config(number),
                addr: addr(SERVER),
                aggregator: identity(SERVER).id(),
                contributor: number,
                seed: config(number).seed,
            };
            let mut node = RoundClient::new(config).unwrap();
            let seed = SealPermit::draw().unwrap().seed();
            let (job, agreement) = (job.id(), agreement.clone());
            let hello = Announcement { seed, job, lowest_round: 0, agreement, proposal: None };
            node.join(Time::ZERO, seed.id(), hello.to_bytes(key.public()), None).unwrap();
            let stream = (number < BUSY).then(|| stream.clone());
            Client { node, stream, next: 0, unanswered: 0, open: false, sums: 0, end: None }
        });
        let clients = clients.collect();
        let aggregator = owned(Owner::Rest, || {
            let application = owned(Owner::Application, || {
                let application =
                    SumApplication::new(key.public().clone(), job.clone(), engine, None);
                Counted(application.unwrap())
            });
            let nodes = (0..CLIENTS).map(|number| (identity(number).id(), Some(number)));
            let config = AggregatorConfig {
                endpoint: config(SERVER),
                nodes: nodes.collect(),
                clients: CLIENTS,
                min_clients: BUSY,
                rounds: 1,
                join_deadline: Duration::from_secs(60),
                wait_for_clients: true,
                round_deadline: Duration::from_secs(10),
                whole: false,
                linger: Duration::from_secs(60),
                seed: [3; 32],
            };
            Some(Aggregator::new(config, application).unwrap())
        });
        let now = Time::ZERO;
        Self { now, key, aggregator, clients, muted: false, events: vec![] }
    }

    /// Lets everyone send what is due, once, and receive it.
    fn iterate(&mut self) {
        let mut bytes = vec![];
        for number in 0..self.clients.len() as u16 {
            if self.muted && number >= BUSY {
                continue;
            }
            let now = self.now;
            self.work(number);
            let client = &mut self.clients[usize::from(number)];
            while client.node.poll_transmit(now, &mut bytes).is_some() {
                let aggregator = self.aggregator.as_mut().unwrap();
                owned(Owner::Rest, || {
                    aggregator.handle_datagram(now, addr(number).into(), &mut bytes)
                });
                bytes.clear();
            }
        }
        let aggregator = self.aggregator.as_mut().unwrap();
        while let Some(to) = owned(Owner::Rest, || {
            bytes.clear();
            aggregator.poll_transmit(self.now, &mut bytes)
        }) {
            let SocketAddr::V4(to) = to.addr else { panic!("{to:?}") };
            let [_, _, high, low] = to.ip().octets();
            let number = u16::from_be_bytes([high, low]);
            if !self.muted || number < BUSY {
                let client = &mut self.clients[usize::from(number)];
                client.node.handle_datagram(self.now, addr(SERVER).into(), &mut bytes);
            }
        }
        while let Some(event) = aggregator.poll_event() {
            self.events.push(event);
        }
    }

    /// Does the work of a client's owner.
    fn work(&mut self, number: u16) {
        let (now, key) = (self.now, self.key.public());
        let chunks = key.parameters().chunks(VALUES);
        let client = &mut self.clients[usize::from(number)];
        while let Some(event) = client.node.poll_event() {
            match event {
                RoundClientEvent::Opened(opening) => {
                    let terms = RoundTerms::from_bytes(&opening.terms, key).unwrap();
                    assert_eq!(terms.participants.len(), usize::from(CLIENTS));
                    // A client that does not receive needs no space for sums.
                    let count = if number < BUSY { chunks.count() } else { 1 };
                    let layout = SumLayout { chunks: count, sum_bytes: chunks.bytes_of(0) };
                    client.node.accept(now, layout).unwrap();
                    client.open = true;
                }
                RoundClientEvent::Sum { .. } => client.sums += 1,
                RoundClientEvent::Counted { .. } => client.unanswered -= 1,
                RoundClientEvent::Ended(end) => client.end = Some(end),
                other => panic!("client {number}: {other:?}"),
            }
        }
        let Some(stream) = client.stream.as_ref().filter(|_| client.open) else { return };
        if client.next == chunks.count() || !client.node.can_push() {
            return;
        }
        let end = chunks.count().min(client.next + 64);
        let own = stream.slice(chunks.range_of(&(client.next..end)));
        let chunk_bytes = NonZeroU32::new(chunks.bytes_of(0) as u32).unwrap();
        client.node.push(now, client.next, chunk_bytes, own).unwrap();
        client.next = end;
        client.unanswered += 1;
    }

    fn wait(&mut self, span: Duration) {
        self.now = self.now + span;
        for (number, client) in self.clients.iter_mut().enumerate() {
            if !self.muted || number < usize::from(BUSY) {
                client.node.handle_timeout(self.now);
            }
        }
        let aggregator = self.aggregator.as_mut().unwrap();
        owned(Owner::Rest, || aggregator.handle_timeout(self.now));
    }

    fn run(&mut self, what: &str, done: impl Fn(&Self) -> bool) {
        for _ in 0..20_000 {
            if done(self) {
                return report(what);
            }
            self.iterate();
            self.wait(Duration::from_millis(2));
        }
        panic!("never {what}");
    }
}

/// Prints the peak: the application's is the accumulator and the terms; tables are bits and
/// states of chunks; all else is peers, messages, and sums that closed.
fn report(what: &str) {
    let mib = |bytes: usize| bytes as f64 / f64::from(1 << 20);
    let line = |when: &str, held: counting::Held| {
        println!(
            "{what:12} {when}: {:6.2} MiB: application {:6.2}, tables {:6.2}, all else {:6.2}",
            mib(held.all()),
            mib(held.application),
            mib(held.tables),
            mib(held.small)
        );
    };
    line("now ", held());
    line("peak", peak());
}

/// A thousand join, three contribute, and when the round closes at its deadline the others are
/// gone: all that may wait to be sent waits.
#[test]
fn a_thousand_clients_a_million_values() {
    let begin = std::time::Instant::now();
    let mut world = World::new();
    report("made");
    let all_open = |world: &World| world.clients.iter().all(|client| client.open);
    world.run("opened", all_open);
    let sent = |client: &Client| client.stream.is_none() || client.unanswered == 0;
    let chunks = world.key.public().parameters().chunks(VALUES).count();
    let all_sent = |world: &World| {
        let busy = &world.clients[..usize::from(BUSY)];
        busy.iter().all(|client| client.next == chunks && sent(client))
    };
    world.run("contributed", all_sent);
    world.muted = true;
    while !world.events.iter().any(|event| matches!(event, AggregatorEvent::Closed(_))) {
        world.iterate();
        world.wait(Duration::from_secs(1));
    }
    report("closed");
    let served = |world: &World| {
        let busy = &world.clients[..usize::from(BUSY)];
        busy.iter().all(|client| client.end.is_some() && client.sums == chunks)
    };
    world.run("served", served);
    let finished = |world: &World| {
        world.events.iter().any(|event| matches!(event, AggregatorEvent::Finished { .. }))
    };
    world.run("finished", finished);
    let end = world.clients[0].end.as_ref().unwrap();
    assert_eq!((end.closed, end.withheld), (chunks, 0));
    println!("{:.1} s", begin.elapsed().as_secs_f64());
    let peak = peak();
    world.aggregator = None;
    report("gone");
    assert!(peak.all() <= MOST, "{} bytes", peak.all());
}

/// Peers that have exchanged something and are idle now.
const IDLE: u16 = 512;

/// Exchanges datagrams until both ends are silent.
fn exchange(server: &mut Endpoint, number: u16, client: &mut Endpoint) {
    let (mut bytes, mut silent) = (vec![], false);
    while !std::mem::replace(&mut silent, true) {
        while client.poll_transmit(Time::ZERO, &mut bytes).is_some() {
            let from = addr(number);
            owned(Owner::Rest, || server.handle_datagram(Time::ZERO, from, &mut bytes));
            (bytes, silent) = (vec![], false);
        }
        while owned(Owner::Rest, || server.poll_transmit(Time::ZERO, &mut bytes)).is_some() {
            client.handle_datagram(Time::ZERO, addr(SERVER), &mut bytes);
            (bytes, silent) = (vec![], false);
        }
    }
    while owned(Owner::Rest, || server.poll_event()).is_some() {}
}

#[test]
fn an_idle_peer_takes_little() {
    let allow = (0..IDLE).map(|number| identity(number).id()).collect();
    let settings = Config { allow, ..config(SERVER) };
    let mut server = owned(Owner::Rest, || Endpoint::new(settings)).unwrap();
    owned(Owner::Rest, || server.register_memory(1, 100_000, None)).unwrap();
    let before = held().all();
    let data: Bytes = vec![1; 50_000].into();
    for number in 0..IDLE {
        let mut client = Endpoint::new(config(number)).unwrap();
        client.contact(identity(SERVER).id(), addr(SERVER));
        client.register_memory(1, 100_000, None).unwrap();
        for _ in 0..3 {
            let to = Peer::of(identity(SERVER).id());
            client.write(Time::ZERO, to, 1, 0, data.clone(), Some(1)).unwrap();
            exchange(&mut server, number, &mut client);
            let peer = Peer { node: identity(number).id(), incarnation: 7 };
            let sent =
                owned(Owner::Rest, || server.write(Time::ZERO, peer, 1, 0, data.clone(), None));
            sent.unwrap();
            exchange(&mut server, number, &mut client);
        }
        let events: Vec<_> = std::iter::from_fn(|| client.poll_event()).collect();
        let done = events.iter().filter(|event| matches!(event, EndpointEvent::Completed { .. }));
        assert_eq!((done.count(), events.len()), (3, 6), "{events:?}");
    }
    let each = || (held().all() - before) / usize::from(IDLE);
    println!("{} bytes a peer after an exchange", each());
    owned(Owner::Rest, || server.handle_timeout(Time::ZERO + SWEEP_SPAN));
    assert_eq!(server.usage().links, usize::from(IDLE));
    println!("{} bytes a peer that is idle", each());
    assert!(each() <= 1088, "{} bytes", each());
}

/// Messages under way hold no copies of a stream: it is there once, with its owner.
#[test]
fn messages_share_memory_of_their_stream() {
    const MESSAGE: usize = 1000;
    let stream: Bytes = vec![1; 500 * MESSAGE].into();
    let mut client = Endpoint::new(config(0)).unwrap();
    client.contact(identity(SERVER).id(), addr(SERVER));
    let to = Peer::of(identity(SERVER).id());
    let before = held().all();
    for at in (0..stream.len()).step_by(MESSAGE) {
        let part = stream.slice(at..at + MESSAGE);
        owned(Owner::Rest, || client.write(Time::ZERO, to, 1, 0, part, None)).unwrap();
    }
    let more = held().all() - before;
    println!("{more} bytes for messages of {}", stream.len());
    assert!(more < stream.len() / 3, "{more} bytes");
}
