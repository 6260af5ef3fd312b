//! Aggregators that deviation about a round's terms or its sums, over loopback sockets.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::num::NonZeroU32;
use std::ops::{ControlFlow, Range};
use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use ciphergram_he::exchange::RoundTerms;
use ciphergram_he::params::Scheme;
use ciphergram_he::{
    Contributor as Participant, Job, Ledger, PublicKey, SealPermit, SecretKey, Seed,
};
use ciphergram_nic::driver::MAX_SLEEP;
use ciphergram_nic::federation::{Error, Participation, RoundResult, SumApplication};
use ciphergram_nic::proto::{ChunkAdder, Config, Refusal, Shard};
use ciphergram_nic::round::{
    Aggregator, AggregatorConfig, Application, ContributionId, Readiness, ReadyRound,
};
use ciphergram_nic::wire::{SocketWire, Wire};
use ciphergram_nic::{Driver, NicError};

use crate::support::federation::*;

/// A little more than a few chunks.
const FEW: usize = 3000;

fn lattice() -> &'static SecretKey {
    key(Scheme::CkksSum)
}

/// Returns the record of a contribution that nobody seals.
fn fresh() -> Seed {
    SealPermit::draw().unwrap().seed()
}

/// What a malicious aggregator does.
#[derive(Clone, Copy, Debug)]
enum Deviation {
    Noise,
    /// The terms are of other contributions.
    NotListed,
    /// Its lists of contributors differ.
    Lists,
    /// Ranges other than those that the client has settled.
    Ranges,
    /// Another layout.
    Layout,
    /// Ranges below those proposed: values would be clipped to nothing.
    Clipping,
    /// A range that the job does not admit.
    Wide,
    /// A largest weight that the job does not admit.
    Weight,
    /// A round that the clients have contributed to.
    Round,
    /// A sum that ends early.
    ShortSum,
    /// Not a sum of those who contributed.
    WrongSum,
    /// Residues out of range.
    NoCiphertext,
    /// Chunks that are right are refused.
    Refusal,
}

struct MaliciousAggregator(SumApplication, Deviation, &'static PublicKey);

impl Application for MaliciousAggregator {
    fn admit(&mut self, n: u16, id: &ContributionId, hello: &[u8]) -> Result<(), String> {
        self.0.admit(n, id, hello)
    }

    fn open(&mut self, round: u32, joined: &BTreeMap<u16, Vec<u8>>) -> Result<Readiness, String> {
        let key = self.2;
        let opened = self.0.open(round, joined)?.opened().unwrap();
        let ReadyRound { terms, layout, shards, left_out, late } = opened;
        let mut reported = RoundTerms::from_bytes(&terms, key).unwrap();
        match self.1 {
            Deviation::Noise => {
                let terms = vec![1, 2, 3];
                return Ok(Readiness::Ready(ReadyRound { terms, layout, shards, left_out, late }));
            }
            Deviation::NotListed => {
                reported.participants.iter_mut().for_each(|listed| listed.seed = fresh());
            }
            Deviation::Lists => {
                reported.participants.push(Participant { number: 3, seed: fresh() })
            }
            Deviation::Ranges => reported.agreement = agreement(FEW, 3.0, 50),
            Deviation::Layout => reported.agreement = agreement(FEW + 9, 2.0, 50),
            Deviation::Clipping => reported.agreement = agreement(FEW, 1e-9, 50),
            Deviation::Wide => reported.agreement = agreement(FEW, 65_537.0, 50),
            Deviation::Weight => reported.agreement = agreement(FEW, 2.0, 100_001),
            Deviation::Round => reported.round = 6,
            Deviation::ShortSum
            | Deviation::WrongSum
            | Deviation::NoCiphertext
            | Deviation::Refusal => {}
        }
        let tampered = |Shard { chunks, adder }| Shard {
            chunks,
            adder: Box::new(MaliciousSum(adder, self.1)),
        };
        let shards = shards.into_iter().map(tampered).collect();
        let terms = reported.to_bytes(key);
        Ok(Readiness::Ready(ReadyRound { terms, layout, shards, left_out, late }))
    }
}

struct MaliciousSum(Box<dyn ChunkAdder>, Deviation);

impl ChunkAdder for MaliciousSum {
    fn check(&mut self, chunks: Range<u32>, payload: &[u8]) -> Result<(), Refusal> {
        match self.1 {
            Deviation::Refusal => Err(Refusal::InvalidCiphertext),
            _ => self.0.check(chunks, payload),
        }
    }
    fn add(&mut self, chunks: Range<u32>, payload: &[u8]) -> Result<(), Refusal> {
        match self.1 {
            Deviation::Refusal => Err(Refusal::InvalidCiphertext),
            _ => self.0.add(chunks, payload),
        }
    }
    fn finish(&mut self, chunk: u32, count: u32) -> Result<Vec<u8>, String> {
        let mut sum = self.0.finish(chunk, count)?;
        match self.1 {
            Deviation::ShortSum => sum.truncate(64),
            Deviation::WrongSum => sum[3] ^= 1,
            Deviation::NoCiphertext => sum.fill(0xff),
            _ => {}
        }
        Ok(sum)
    }
}

/// Returns the results of two clients of a malicious aggregator, whose updates of so many values are
/// changed by `change`.
fn with_malicious_aggregator(
    key: &'static SecretKey,
    job: &'static Job,
    (deviation, values): (Deviation, usize),
    change: impl Fn(u16, &mut Participation<'_>) + Copy + Send + 'static,
) -> [Result<RoundResult, Error>; 2] {
    let wire = SocketWire::bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let addr = wire.local_addr().unwrap();
    let (stop, stopped) = mpsc::channel::<()>();
    let aggregator_thread = thread::spawn(move || {
        let config = AggregatorConfig {
            endpoint: Config::new(server(), NonZeroU32::new(5).unwrap(), [5; 32]),
            nodes: config(2, 2).allowed,
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
        let honest =
            SumApplication::new(key.public().clone(), job.clone(), engine(), None).unwrap();
        let application = MaliciousAggregator(honest, deviation, key.public());
        let mut node = Aggregator::new(config, application).unwrap();
        let iteration = |_: &mut Aggregator<MaliciousAggregator>, _| match stopped.try_recv() {
            Err(mpsc::TryRecvError::Empty) => ControlFlow::Continue(MAX_SLEEP),
            _ => ControlFlow::Break(()),
        };
        Driver::new(wire).run(&mut node, iteration)
    });
    let clients = [0, 1].map(|n| {
        contribute(key, addr, n, values, move |participation| {
            participation.member.job = job;
            change(n, participation);
        })
    });
    let end = Instant::now() + PATIENCE;
    while !clients.iter().all(thread::JoinHandle::is_finished) {
        assert!(Instant::now() < end, "{deviation:?}: a client goes on for ever");
        thread::sleep(Duration::from_millis(10));
    }
    let reported = clients.map(|client| client.join().unwrap());
    drop(stop);
    assert_eq!(aggregator_thread.join().unwrap(), Ok::<_, NicError>(()));
    reported
}

#[test]
fn an_aggregator_that_lies_is_found_out() {
    let key = lattice().public();
    let (open, settled) = (job(key), settled_job(key, &agreement(FEW, 2.0, 50)));
    for (job, deviation, what) in [
        (settled, Deviation::Noise, "not a Ciphergram file"),
        (settled, Deviation::NotListed, "they do not list this contribution"),
        (settled, Deviation::Lists, "its lists of contributors differ"),
        (settled, Deviation::Ranges, "tensor \"bias\" has range 3, the job's is 2"),
        (open, Deviation::Layout, "the tensors differ"),
        (open, Deviation::Clipping, "is below what this client proposed"),
        (open, Deviation::Wide, "tensor \"bias\" has range 65537, the job admits 65536 at most"),
        (open, Deviation::Weight, "a largest weight of 100001, the job's is 100000"),
        (open, Deviation::Round, "the round is one that this client has contributed to"),
        (settled, Deviation::ShortSum, "a sum of the wrong length"),
        (settled, Deviation::WrongSum, "the sum does not open"),
        (settled, Deviation::NoCiphertext, "residue 9 is not below its prime"),
    ] {
        // Clients that have sealed for round 6, which are in round 7.
        let folder = tempfile::tempdir().unwrap();
        let ledgers = leak([0, 1].map(|n: u16| {
            let ledger = Ledger::beside(&folder.path().join(format!("{n}.json")));
            ledger.seal(job, n, 6).unwrap();
            ledger
        }));
        let change = move |n: u16, participation: &mut Participation<'_>| {
            participation.member.ledger = &ledgers[usize::from(n)];
        };
        for (n, reported) in
            (0..).zip(with_malicious_aggregator(lattice(), job, (deviation, FEW), change))
        {
            let reported = reported.err().expect("the deviation must be found out").to_string();
            assert!(reported.contains(what), "{deviation:?}: {reported}");
            let ledger = &ledgers[usize::from(n)];
            // What was not sealed leaves the number free, and what did not open is counted.
            let is_sealed = matches!(
                deviation,
                Deviation::ShortSum | Deviation::WrongSum | Deviation::NoCiphertext
            );
            assert_eq!(ledger.next_round(job, n), Ok(7 + u64::from(is_sealed)), "{deviation:?}");
            let failures = usize::from(matches!(deviation, Deviation::WrongSum));
            assert_eq!(ledger.failures(key).unwrap(), failures, "{deviation:?}");
        }
    }
}

/// Its sealing thread has no space to hand over what follows.
#[test]
fn refused_chunks_end_a_sealing_client() {
    const MANY: usize = 1_200_000;
    let change = |_, participation: &mut Participation<'_>| {
        participation.member.engine = Troubled::new(Duration::from_millis(20), usize::MAX);
    };
    for reported in with_malicious_aggregator(
        lattice(),
        job(lattice().public()),
        (Deviation::Refusal, MANY),
        change,
    ) {
        let reported = reported.err().expect("its chunks are refused").to_string();
        assert!(reported.contains("refused chunk"), "{reported}");
    }
}

/// A client that cannot open a sum sees only whether it is made of ciphertexts. Either way the round is
/// over, and its contribution is in no other.
#[test]
fn clients_without_secrets_check_sums() {
    let key = key(Scheme::Paillier2048);
    for (deviation, what) in [
        (Deviation::NoCiphertext, Some("chunk 0: ciphertext 0 is not below n²")),
        (Deviation::WrongSum, None),
    ] {
        let folder: &'static Path = Box::leak(tempfile::tempdir().unwrap().keep().into());
        let spool = |n: u16| folder.join(format!("{n}.spool"));
        let job = job(key.public());
        let results =
            with_malicious_aggregator(key, job, (deviation, FEW), move |n, participation| {
                participation.member.key = leak(key.client_key(n).unwrap()).into();
                participation.spool = Some(Box::leak(spool(n).into()));
            });
        for (n, reported) in (0..).zip(results) {
            let reported = reported.err().map(|error| error.to_string());
            assert_eq!(reported.as_deref(), what, "{deviation:?}");
            assert!(!spool(n).exists(), "{deviation:?}");
        }
        std::fs::remove_dir_all(folder).unwrap();
    }
}
