//! Attacks on rounds of real processes: clients that announce what no honest one does, and aggregators that change
//! what was agreed.

use std::{
    collections::BTreeMap,
    num::NonZeroU32,
    ops::{ControlFlow, Range},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use ciphergram_accel::CpuEngine;
use ciphergram_he::{
    Agreement, Job, Ledger, PublicKey, SealPermit, Seed, Update,
    exchange::{Announcement, RoundTerms},
};
use ciphergram_nic::{
    Driver, Refusal,
    federation::{
        SumApplication,
        nodes::{read_allowed, read_identity, read_node},
        spool::{Spool, SpoolHeader, fingerprint},
    },
    proto::{ChunkAdder, Config, Shard},
    round::{
        Aggregator, AggregatorConfig, Application, ContributionId, Readiness, ReadyRound, Resume,
        RoundClient, RoundClientConfig, RoundClientEvent,
    },
    wire::SocketWire,
};

use crate::support::place::{self, Place, Process};
use crate::support::tensors::{Brought, from_file, power_of_two, single, to_file};

const PATIENCE: Duration = Duration::from_secs(60);

fn fresh() -> Seed {
    SealPermit::draw().unwrap().seed()
}

/// Returns the public half of the key, and the job.
fn agreed(place: &Place) -> (PublicKey, Job) {
    let key = PublicKey::load(&place.path("keys/public.json")).unwrap();
    let job = Job::load(&place.path("keys/job.json"), &key).unwrap();
    (key, job)
}

/// A process of its own each time, as one that knows it by no other name.
fn endpoint(place: &Place, identity: &str) -> Config {
    static PROCESSES: AtomicU32 = AtomicU32::new(77);
    let process = PROCESSES.fetch_add(1, Ordering::Relaxed);
    let identity = read_identity(&place.path(&format!("keys/{identity}.identity"))).unwrap();
    Config::new(identity, NonZeroU32::new(process).unwrap(), [process as u8; 32])
}

/// A client in this process that announces something, and tells why it is refused.
fn announce(place: &Place, address: &str, number: u16, announcement: &Announcement) -> String {
    let (key, _) = agreed(place);
    let config = RoundClientConfig {
        endpoint: endpoint(place, "client"),
        addr: address.parse().unwrap(),
        aggregator: read_node(&place.path("keys/server.node")).unwrap(),
        contributor: number,
        seed: [1; 32],
    };
    let mut driver = Driver::new(SocketWire::bind("127.0.0.1:0".parse().unwrap()).unwrap());
    let mut node = RoundClient::new(config).unwrap();
    let hello = announcement.to_bytes(&key);
    node.join(driver.now(), announcement.seed.id(), hello, None).unwrap();
    let iteration = |node: &mut RoundClient, _| {
        let reason = |event| match event {
            RoundClientEvent::Refused { reason } => Some(reason),
            _ => None,
        };
        match std::iter::from_fn(|| node.poll_event()).find_map(reason) {
            Some(reason) => ControlFlow::Break(reason),
            None => ControlFlow::Continue(Duration::from_millis(5)),
        }
    };
    driver.run(&mut node, iteration).unwrap()
}

/// Client 0 lies: what is of another job, or far ahead, is refused and it is named, at once or when the round opens.
/// The others, one of which clips all of its own values away, have their mean.
#[test]
fn false_announcements_are_named_others_get_means() {
    let place = Place::with_key("ckks-sum", 4);
    let clients = [1.0, 0.5, -0.75, 0.875].map(|x| single(&[x; 200])).to_vec();
    for (i, client) in clients.iter().enumerate() {
        place.write(&format!("g{i}"), to_file(client));
    }
    place.job("--layout g0 --min-clients 3");
    let (key, job) = agreed(&place);
    let (mut server, address) = place.serve("--clients 4");
    let own = Update::from_safetensors(&place.read("g0")).unwrap().specs();
    let forged = |range, job: &Job, lowest_round| Announcement {
        seed: fresh(),
        job: job.id(),
        lowest_round,
        agreement: Agreement::new(own.clone(), vec![range], 1).unwrap(),
        proposal: None,
    };
    let other = Job::new(&key, job.limits().clone()).unwrap();
    let reason = announce(&place, &address, 0, &forged(1.0, &other, 0));
    assert!(reason.starts_with("client 0: it is of job "), "{reason}");
    let refused = server.event("refused");
    assert_eq!((&refused["client"], &refused["reason"]), (&0.into(), &reason.into()));
    let honest: Vec<_> = [(1, "--weight 3"), (2, "--weight 4"), (3, "--weight 2 --clip 1e-9")]
        .map(|(i, words)| place.join(&address, i, words))
        .into();
    // It waits with them, and then nobody waits for it: rounds are theirs to number.
    let reason = announce(&place, &address, 0, &forged(1e-9, &job, 65));
    let why = "client 0: it asks for round 65, the others for 0 at most: more than 64 rounds ahead";
    assert_eq!(reason, why);
    assert_eq!(server.event("refused")["client"], 0);
    assert_eq!(server.event("opened")["clients"], serde_json::json!([1, 2, 3]));
    let ended: Vec<_> = honest.into_iter().map(|client| client.finish()).collect();
    // The last one's values are a billionth of the others', who might be lying: it is reported.
    let warned = |ran: &place::Ran| ran.stderr.contains("tensor \"t\" is rounded 536870912 times");
    assert_eq!(ended.iter().map(warned).collect::<Vec<_>>(), [false, false, true], "{ended:?}");
    assert!(ended.iter().all(|ran| ran.code == Some(0)), "{ended:?}");
    let clipped = [clients[1].clone(), clients[2].clone(), single(&[1e-9; 200])].to_vec();
    let brought = Brought::new(clipped, &[3, 4, 2], power_of_two);
    brought.check_mean(&from_file(&place.read("mean1")));
    assert!(place.read("mean1") == place.read("mean3"));
    server.finish().done();
}

/// What a malicious aggregator does.
#[derive(Clone, Copy, Debug)]
enum Deviation {
    /// Ranges that clip all values away.
    Narrow,
    /// A range that the job does not admit.
    Wide,
    /// A largest weight that the job does not admit.
    Weight,
    /// A round that the clients have sealed for.
    Earlier,
    /// One of them is someone else.
    NotListed,
    /// A sum with something added.
    Sum,
}

/// A malicious aggregator.
struct MaliciousAggregator {
    honest: SumApplication,
    key: PublicKey,
    deviation: Deviation,
}

impl Application for MaliciousAggregator {
    fn admit(&mut self, n: u16, id: &ContributionId, hello: &[u8]) -> Result<(), String> {
        self.honest.admit(n, id, hello)
    }

    fn open(&mut self, round: u32, joined: &BTreeMap<u16, Vec<u8>>) -> Result<Readiness, String> {
        let opened = self.honest.open(round, joined)?.opened().unwrap();
        let mut terms = RoundTerms::from_bytes(&opened.terms, &self.key).unwrap();
        let own = terms.agreement.clone();
        let agreement =
            |range, weight| Agreement::new(own.specs().to_vec(), vec![range], weight).unwrap();
        match self.deviation {
            Deviation::Narrow => terms.agreement = agreement(1e-9, own.max_weight()),
            Deviation::Wide => terms.agreement = agreement(1e30, own.max_weight()),
            Deviation::Weight => terms.agreement = agreement(own.ranges()[0], u32::MAX),
            Deviation::Earlier => terms.round -= 1,
            Deviation::NotListed => terms.participants.iter_mut().for_each(|c| c.seed = fresh()),
            Deviation::Sum => {}
        }
        let deviation = self.deviation;
        let tampered = |Shard { chunks, adder }| Shard {
            chunks,
            adder: Box::new(MaliciousSum(adder, deviation)) as Box<dyn ChunkAdder>,
        };
        let shards = opened.shards.into_iter().map(tampered).collect();
        Ok(Readiness::Ready(ReadyRound { terms: terms.to_bytes(&self.key), shards, ..opened }))
    }
}

struct MaliciousSum(Box<dyn ChunkAdder>, Deviation);

impl ChunkAdder for MaliciousSum {
    fn check(&mut self, chunks: Range<u32>, payload: &[u8]) -> Result<(), Refusal> {
        self.0.check(chunks, payload)
    }
    fn add(&mut self, chunks: Range<u32>, payload: &[u8]) -> Result<(), Refusal> {
        self.0.add(chunks, payload)
    }
    fn finish(&mut self, chunk: u32, count: u32) -> Result<Vec<u8>, String> {
        let mut sum = self.0.finish(chunk, count)?;
        if let Deviation::Sum = self.1 {
            sum[3] ^= 1;
        }
        Ok(sum)
    }
}

/// Runs a round of two clients and a malicious aggregator in this process. The clients' errors.
fn with_malicious_aggregator(place: &Place, deviation: Deviation) -> [String; 2] {
    let wire = SocketWire::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = ciphergram_nic::wire::Wire::local_addr(&wire).unwrap().to_string();
    let (key, job) = agreed(place);
    let config = AggregatorConfig {
        endpoint: endpoint(place, "server"),
        nodes: read_allowed(&place.path("keys/clients.allow")).unwrap(),
        clients: 2,
        min_clients: 2,
        rounds: 1,
        join_deadline: PATIENCE,
        wait_for_clients: true,
        round_deadline: PATIENCE,
        whole: false,
        linger: PATIENCE,
        seed: [9; 32],
    };
    let honest = SumApplication::new(key.clone(), job, Arc::new(CpuEngine::new()), None).unwrap();
    let mut node = Aggregator::new(config, MaliciousAggregator { honest, key, deviation }).unwrap();
    let (stop, stopped) = mpsc::channel::<()>();
    let aggregator_thread = thread::spawn(move || {
        let iteration = |_: &mut Aggregator<MaliciousAggregator>, _| match stopped.try_recv() {
            Err(mpsc::TryRecvError::Empty) => ControlFlow::Continue(Duration::from_millis(5)),
            _ => ControlFlow::Break(()),
        };
        Driver::new(wire).run(&mut node, iteration)
    });
    let clients = [0, 1].map(|i| place.join(&address, i, ""));
    let errors = clients.map(|client| client.finish().error(1));
    drop(stop);
    aggregator_thread.join().unwrap().unwrap();
    errors
}

/// Terms that changed between joining and opening, and a sum that is not the clients': they seal nothing, or open
/// nothing, and say why.
#[test]
fn a_malicious_aggregator_gains_nothing_is_detected() {
    let place = Place::with_key("ckks-sum", 2);
    for i in 0..2 {
        place.write(&format!("g{i}"), to_file(&single(&[0.5; 200])));
    }
    let (key, job) = agreed(&place);
    let ledger = Ledger::beside(&place.path("keys/secret.json"));
    // Both have sealed for round 3.
    (0..2).for_each(|i| ledger.seal(&job, i, 3).unwrap());
    for (deviation, why) in [
        (Deviation::Narrow, "a range or the largest weight is below what this client proposed"),
        (Deviation::Wide, "the job admits 65536 at most"),
        (Deviation::Weight, "a largest weight of 4294967295, the job's is 100000"),
        (Deviation::Earlier, "the round is one that this client has contributed to"),
        (Deviation::NotListed, "they do not list this contribution"),
        (
            Deviation::Sum,
            "the sum does not open: it is not what its 2 contributors sealed for this round",
        ),
    ] {
        for error in with_malicious_aggregator(&place, deviation) {
            assert!(error.contains(why), "{deviation:?}: {error}");
        }
        let (is_sealed, failures) =
            (u64::from(matches!(deviation, Deviation::Sum)), ledger.failures(&key).unwrap());
        assert_eq!(failures as u64, is_sealed, "{deviation:?}");
        assert!((0..2).all(|i| ledger.next_round(&job, i) == Ok(4 + is_sealed)), "{deviation:?}");
        for i in 0..2 {
            let [mean, spool] = ["", ".spool"].map(|end| place.path(&format!("mean{i}{end}")));
            assert!(!mean.exists() && !spool.exists(), "{deviation:?}");
        }
    }
}

/// What is sealed under a round's terms is in a round under others never.
#[test]
fn clients_refuse_spools_of_other_statements() {
    let place = Place::with_key("ckks-sum", 3);
    for i in 0..3 {
        place.write(&format!("g{i}"), to_file(&single(&[0.5; 200])));
    }
    let (key, job) = agreed(&place);
    let update = Update::from_safetensors(&place.read("g2")).unwrap();
    // Client 2 was cut off in round 0, and the others are in round 1, or have other ranges.
    let agreement = Agreement::new(update.specs(), vec![0.5], 1).unwrap();
    let spool = |agreement: Agreement| {
        let announcement = Announcement {
            seed: fresh(),
            job: job.id(),
            lowest_round: 0,
            agreement,
            proposal: None,
        };
        let header = SpoolHeader {
            contributor: 2,
            resume: Resume { incarnation: 5, round: 0 },
            fingerprint: fingerprint(&update, 1).unwrap(),
            rounding: [7; 32].into(),
            announcement,
        };
        let mut spool = Spool::create(&place.path("mean2.spool"), 0).unwrap();
        spool.begin(&key, &header).unwrap();
        drop(spool);
        place.read("mean2.spool")
    };
    let refused = |words: &str| {
        let before = place.read("mean2.spool");
        let (_server, address) = place.serve("--clients 3 --min-clients 3 --deadline 1");
        let others: Vec<Process> = (0..2).map(|i| place.join(&address, i, words)).collect();
        let error = place.join(&address, 2, "").finish().error(1);
        let why = "the round has another number or other ranges than those that this contribution is sealed under, \
                   and it can be in no other: delete mean2.spool to give it up";
        assert!(error.contains(why), "{error}");
        assert!(place.read("mean2.spool") == before);
        std::fs::remove_file(place.path("mean2.spool")).unwrap();
        for other in others {
            other.finish().error(1);
        }
    };
    spool(agreement);
    // Twice as heavy: the largest weight is another.
    refused("--weight 2");
    // They have sealed for round 0 by that.
    spool(Agreement::new(update.specs(), vec![0.5], 1).unwrap());
    refused("");
}
