//! Seeded worlds of rounds whose sums openers open: clients, who are the openers, over a bad network, with deaths and
//! restarts of either side. Whatever ends a round opens to exactly the sum of those in it. `CIPHERGRAM_SEED=17` replays
//! one seed, `CIPHERGRAM_CASES=50` runs fifty times as many.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use ciphergram_he::exchange::{Announcement, RoundTerms};
use ciphergram_he::params::{Literal, Scheme};
use ciphergram_he::threshold::{
    Identity as Member, MemberKey, OpenAnswer, OpenRequest, OpenerId, OpenerKey, Openers,
    PrekeyChain, Quorum, SumSecret,
};
use ciphergram_he::{
    ContributorSet, Job, Ledger, Limits, OpenedSum, Parameters, PublicKey, Quantised, SealPermit,
    Sealer, Sum,
};
use ciphergram_nic::federation::SumApplication;
use ciphergram_nic::proto::{Config, Identity, Time};
use ciphergram_nic::round::{
    Aggregator, AggregatorConfig, RoundClient, RoundClientConfig, RoundClientEvent, RoundEnd,
    RoundOpening, SumLayout,
};
use ciphergram_nic::sim::Network;
use ciphergram_nic::{Bytes, Node, faults::Faults};
use ciphergram_tests::seeds;

use crate::support::federation::{check_fields, engine, node, server, update, weight};

const FOREVER: Duration = Duration::from_secs(200);
const WORLDS: u32 = 48;
const CLIENTS: u16 = 4;
const SERVER: ([u8; 4], u16) = ([10, 0, 0, 9], 7700);
/// Chunks of a message: more than a datagram takes.
const PUSHED: u32 = 3;

/// A client and opener, and what is on its disk.
struct Party {
    member: MemberKey,
    opener: OpenerKey,
    ledger: Ledger,
    announcement: Announcement,
    permit: Option<SealPermit>,
    fields: Vec<u32>,
    /// All chunks and the shares, sealed once, as in a spool.
    sealed: Option<(Bytes, Vec<u8>)>,
    node: Option<RoundClient>,
    addr: SocketAddr,
    open: Option<(RoundOpening, RoundTerms)>,
    next: u32,
    has_shared: bool,
    sums: BTreeMap<u32, (ContributorSet, Vec<u8>)>,
    end: Option<RoundEnd>,
    refused: Option<String>,
}

struct World {
    seed: u64,
    values: usize,
    public: PublicKey,
    job: Job,
    network: Network,
    aggregator: Option<Aggregator<SumApplication>>,
    parties: Vec<Party>,
    incarnations: u32,
}

impl World {
    fn new(seed: u64) -> Self {
        let faults = Faults {
            loss: (seed * 37 % 251) as u32 * 1000,
            duplication: (seed * 53 % 151) as u32 * 1000,
            corruption: (seed * 19 % 41) as u32 * 1000,
            trimming: (seed * 61 % 151) as u32 * 1000,
            delay: Duration::from_micros(50),
            jitter: Duration::from_micros(seed * 71 % 5000),
            ..Faults::default()
        };
        let literal =
            Literal { scheme: Scheme::CkksSumThreshold, clients: CLIENTS.into(), bits: 16 };
        let public = PublicKey::of_parameters(Parameters::new(literal).unwrap()).unwrap();
        let members: Vec<_> = (0..CLIENTS).map(|_| Arc::new(Member::generate().unwrap())).collect();
        let chains: Vec<_> = members.iter().map(|_| PrekeyChain::in_memory().unwrap()).collect();
        let ids = members.iter().zip(&chains).map(|(member, chain)| OpenerId {
            id: member.id(),
            prekey: chain.prekey(member).unwrap(),
        });
        let quorum = Quorum::new(CLIENTS.into(), Some(3)).unwrap();
        let all = members.iter().map(|member| member.id()).collect();
        let openers = Some(Arc::new(Openers::new(quorum, ids.collect(), all).unwrap()));
        let job = Job::new(&public, Limits { openers, ..Limits::of_key(&public) }).unwrap();
        let values = 500 * (seed % 9) as usize;
        let party = |(number, (member, chain)): (u16, (Arc<Member>, PrekeyChain))| {
            let permit = SealPermit::draw().unwrap();
            let (own, weight) = (update(number, 0, values), weight(number));
            let standing = (0, None);
            let announcement =
                Announcement::propose(permit.seed(), &job, standing, &own, weight, None);
            Party {
                member: MemberKey::new(&public, member.clone(), &job).unwrap(),
                opener: OpenerKey::new(&public, member, chain, &job).unwrap(),
                ledger: Ledger::in_memory(),
                announcement: announcement.unwrap(),
                permit: Some(permit),
                fields: vec![],
                sealed: None,
                node: None,
                addr: SERVER.into(),
                open: None,
                next: 0,
                has_shared: false,
                sums: BTreeMap::new(),
                end: None,
                refused: None,
            }
        };
        let parties = (0..).zip(members.into_iter().zip(chains)).map(party).collect();
        let network = Network::new(seed, faults);
        let (aggregator, incarnations) = (None, 0);
        let mut world =
            Self { seed, values, public, job, network, aggregator, parties, incarnations };
        world.start_aggregator();
        (0..CLIENTS).for_each(|number| world.start_party(number));
        world
    }

    fn config(&mut self, identity: Identity) -> Config {
        self.incarnations += 1;
        let mixed = (self.seed as u32).wrapping_mul(77) ^ self.incarnations << 24 | 1;
        Config::new(identity, NonZeroU32::new(mixed).unwrap(), [self.incarnations as u8; 32])
    }

    fn start_aggregator(&mut self) {
        let config = AggregatorConfig {
            endpoint: self.config(server()),
            nodes: (0..CLIENTS).map(|number| (node(number).id(), Some(number))).collect(),
            clients: CLIENTS,
            min_clients: 3,
            rounds: 1,
            join_deadline: Duration::from_secs(20),
            wait_for_clients: true,
            round_deadline: Duration::from_secs(30),
            whole: true,
            linger: Duration::from_secs(15),
            seed: [self.seed as u8; 32],
        };
        let (public, job) = (self.public.clone(), self.job.clone());
        let application = SumApplication::new(public, job, engine(), None).unwrap();
        self.aggregator = Some(Aggregator::new(config, application).unwrap());
    }

    /// Starts a client, or starts it again as another process with what is on its disk.
    fn start_party(&mut self, number: u16) {
        let config = RoundClientConfig {
            endpoint: self.config(node(number)),
            addr: SERVER.into(),
            aggregator: server().id(),
            contributor: number,
            seed: [self.incarnations as u8; 32],
        };
        let (now, port) = (self.network.now(), 1000 + self.incarnations as u16);
        let party = &mut self.parties[usize::from(number)];
        party.addr = SocketAddr::from(([10, 0, 0, 1], port));
        let mut node = RoundClient::new(config).unwrap();
        let hello = party.announcement.to_bytes(&self.public);
        node.attend(now, number as u8, party.opener.prekey().unwrap().to_bytes());
        node.join(now, party.announcement.seed.id(), hello, None).unwrap();
        (party.node, party.open, party.end) = (Some(node), None, None);
    }

    fn run(&mut self, span: Duration, done: impl Fn(&Self) -> bool) -> bool {
        let until = self.network.now() + span;
        while !done(self) {
            let mut nodes: Vec<(SocketAddr, &mut dyn Node)> = Vec::new();
            if let Some(aggregator) = &mut self.aggregator {
                nodes.push((SERVER.into(), aggregator));
            }
            for party in &mut self.parties {
                if let Some(node) = &mut party.node {
                    nodes.push((party.addr, node));
                }
            }
            if !self.network.step(&mut nodes, until) {
                return done(self);
            }
            let now = self.network.now();
            for number in 0..CLIENTS {
                self.iterate(now, number);
            }
        }
        true
    }

    fn iterate(&mut self, now: Time, number: u16) {
        let Some(mut node) = self.parties[usize::from(number)].node.take() else { return };
        while let Some(event) = node.poll_event() {
            let party = &mut self.parties[usize::from(number)];
            match event {
                RoundClientEvent::Opened(opening) => {
                    self.on_opened(&mut node, now, number, opening);
                }
                RoundClientEvent::Sum { chunk, bitmap, bytes } => {
                    let (_, terms) = party.open.as_ref().unwrap();
                    let mut set = ContributorSet::none(terms.participants.len());
                    for (index, own) in terms.participants.iter().enumerate() {
                        if bitmap[usize::from(own.number / 8)] >> (own.number % 8) & 1 == 1 {
                            set.insert(index);
                        }
                    }
                    assert!(party.sums.insert(chunk, (set, bytes)).is_none(), "{chunk} twice");
                }
                RoundClientEvent::Ended(end) => party.end = Some(end),
                RoundClientEvent::Refused { reason } => party.refused = Some(reason),
                RoundClientEvent::Unreachable => node.rejoin(now).unwrap(),
                RoundClientEvent::Counted { .. } => {}
                other => panic!("seed {}: {other:?}", self.seed),
            }
        }
        let party = &mut self.parties[usize::from(number)];
        if let Some((round, request)) = node.take_request() {
            let request = OpenRequest::from_bytes(&request, &self.public).unwrap();
            let answer = party.opener.answer(&party.ledger, &request);
            let answer = answer.map(|answer| answer.to_bytes(&self.public));
            node.answer(now, round, answer.map_err(|error| error.to_string()));
            node.attend(now, number as u8, party.opener.prekey().unwrap().to_bytes());
        }
        if let (Some((_, terms)), Some((stream, shares))) = (&party.open, &party.sealed)
            && party.refused.is_none()
            && node.can_push()
        {
            let chunks = terms.agreement.chunks(self.public.parameters());
            if party.next < chunks.count() {
                let end = (party.next + PUSHED).min(chunks.count());
                let bytes = stream.slice(chunks.range_of(&(party.next..end)));
                let each = NonZeroU32::new(chunks.geometry().chunk_bytes() as u32).unwrap();
                node.push(now, party.next, each, bytes).unwrap();
                party.next = end;
            } else if !party.has_shared {
                node.push_shares(now, shares.clone()).unwrap();
                party.has_shared = true;
            }
        }
        party.node = Some(node);
    }

    fn on_opened(&mut self, node: &mut RoundClient, now: Time, n: u16, opening: RoundOpening) {
        let party = &mut self.parties[usize::from(n)];
        let terms = RoundTerms::from_bytes(&opening.terms, &self.public).unwrap();
        let parameters = self.public.parameters();
        let under = self.job.terms(terms.round, &terms.agreement).unwrap();
        let (own, weight) = (update(n, 0, self.values), weight(n));
        let own = Quantised::new(&own, &terms.agreement, weight, parameters, &[n as u8; 32]);
        if let Some(permit) = party.permit.take() {
            party.fields = own.as_ref().unwrap().fields().unwrap().to_vec();
            let key = party.member.clone().with_told((0..).zip(&terms.prekeys));
            let mut sealer = Sealer::new(&key, engine(), own.unwrap(), permit, &under).unwrap();
            let mut stream = vec![];
            while let Some(batch) = sealer.next_batch().unwrap() {
                stream.extend(batch);
            }
            let shares = sealer.key_message().unwrap().unwrap().to_bytes();
            party.sealed = Some((stream.into(), shares));
            party.announcement.lowest_round = terms.round;
            party.announcement.agreement = terms.agreement.clone();
            node.amend(party.announcement.to_bytes(&self.public));
        }
        let chunks = terms.agreement.chunks(parameters);
        node.accept(now, SumLayout { chunks: chunks.count(), sum_bytes: chunks.bytes_of(0) })
            .unwrap();
        party.open = Some((opening, terms));
        (party.next, party.has_shared, party.end) = (0, false, None);
        party.sums.clear();
    }

    /// Opens the sums of every client that the round ended for, and returns who are in them.
    fn check(&self) -> Vec<u16> {
        let fields: BTreeMap<_, _> =
            (0..).zip(&self.parties).map(|(n, party)| (n, party.fields.clone())).collect();
        let mut those = vec![];
        for party in self.parties.iter().filter(|party| party.node.is_some()) {
            let Some(end) = &party.end else { continue };
            let (_, terms) = party.open.as_ref().unwrap();
            assert!(end.withheld == 0 && end.closed as usize == party.sums.len());
            let sum = Sum {
                contributors: terms.participants.clone(),
                job: self.job.id(),
                round: terms.round,
                agreement: terms.agreement.clone(),
                sets: party.sums.values().map(|(set, _)| set.clone()).collect(),
                stream: party.sums.values().flat_map(|(_, bytes)| bytes.clone()).collect(),
            };
            let answers = OpenAnswer::list_from_bytes(&end.answers, &self.public).unwrap();
            let secret = SumSecret::recover(&party.member, &self.job, &sum, &answers);
            let secret = secret.unwrap_or_else(|error| panic!("seed {}: {error}", self.seed));
            let opened = OpenedSum::open(&secret, &*engine(), &sum, &self.job).unwrap();
            those = sum.sets[0].iter().map(|index| sum.contributors[index].number).collect();
            check_fields(self.public.parameters(), &those, &opened, &fields);
        }
        those
    }
}

fn ended(world: &World) -> bool {
    let is_over =
        |party: &Party| party.node.is_none() || party.end.is_some() || party.refused.is_some();
    world.parties.iter().all(is_over)
}

/// Runs worlds up to the moment when client 0 has pushed some chunks, and then what `befalls` it. Returns how many of
/// their sums are of everybody.
fn worlds(befalls: impl Fn(&mut World)) -> u32 {
    let mut full = 0;
    for seed in seeds(WORLDS) {
        let mut world = World::new(seed);
        let at = (seed % 14) as u32;
        let begun = |world: &World| {
            let party = &world.parties[0];
            party.open.is_some() && (party.next > at || party.has_shared)
        };
        assert!(world.run(FOREVER, begun), "seed {seed}");
        befalls(&mut world);
        assert!(world.run(FOREVER, ended), "seed {seed}: a round must end");
        let those = world.check();
        assert!(those.len() + 1 >= usize::from(CLIENTS), "seed {seed}: {those:?}");
        full += u32::from(those.len() == usize::from(CLIENTS));
    }
    full
}

/// The seeds that were played.
fn played() -> u32 {
    seeds(WORLDS).count() as u32
}

#[test]
fn sums_open_after_a_bad_network() {
    assert_eq!(worlds(|_| {}), played());
}

#[test]
fn a_client_that_is_an_opener_dies() {
    let full = worlds(|world| {
        // Before or after its shares are there.
        world.run(Duration::from_millis(world.seed * 7 % 60), |_| false);
        world.parties[0].node = None;
    });
    assert!(played() == 1 || 0 < full && full < played(), "{full}");
}

#[test]
fn an_opener_dies_once_all_have_sealed() {
    let full = worlds(|world| {
        let all_shared = |world: &World| world.parties.iter().all(|party| party.has_shared);
        assert!(world.run(FOREVER, all_shared));
        world.parties[3].node = None;
    });
    assert!(full > 0, "{full}");
}

#[test]
fn one_that_restarts_counts_once_and_answers() {
    let full = worlds(|world| {
        world.parties[0].node = None;
        world.run(Duration::from_millis(world.seed * 13 % 900), |_| false);
        world.start_party(0);
    });
    assert_eq!(full, played());
}

#[test]
fn restarted_aggregators_ask_about_the_same_sum() {
    let full = worlds(|world| {
        if world.parties.iter().any(|party| party.end.is_some()) {
            return;
        }
        world.aggregator = None;
        world.run(Duration::from_millis(world.seed * 17 % 3000), |_| false);
        world.start_aggregator();
    });
    assert_eq!(full, played());
}

#[test]
fn shares_that_were_changed_are_refused_by_name() {
    let full = worlds(|world| {
        let party = &mut world.parties[0];
        if !party.has_shared {
            let (_, shares) = party.sealed.as_mut().unwrap();
            let place = shares.len() / 2;
            shares[place] ^= 1;
        }
        let sent = party.has_shared;
        assert!(world.run(FOREVER, ended));
        let refused = world.parties[0].refused.as_deref();
        let why = "did not sign this contribution to this round";
        assert!(sent || refused.is_some_and(|reason| reason.contains(why)), "{refused:?}");
    });
    assert!(played() == 1 || full < played(), "{full}");
}
