//! Whole rounds over loopback sockets: each client and each aggregator is a thread with its own
//! socket, under real parameters.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

#[path = "support/federation.rs"]
mod support;

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroU32;
use std::ops::{ControlFlow, Range};
use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use ciphergram_he::exchange::{Announcement, RoundTerms};
use ciphergram_he::params::{Literal, Scheme};
use ciphergram_he::{
    Agreement, Dtype, Error as SchemeError, PublicKey, Quantised, SecretKey, TensorSpec,
};
use ciphergram_he::{Seed, Ticket};
use ciphergram_nic::driver::MAX_SLEEP;
use ciphergram_nic::federation::spool::Spool;
use ciphergram_nic::federation::{
    Client, Error, Observation, Participation, PathConfig, Progress, RoundResult, Server,
    ServerConfig, SumApplication,
};
use ciphergram_nic::proto::{Accumulator, Config, Refusal, Shard};
use ciphergram_nic::round::{
    Aggregator, AggregatorConfig, AggregatorEvent, Application, ContributionId, Contributor,
    ContributorConfig, ContributorEvent, Opened, RoundSummary,
};
use ciphergram_nic::wire::{UdpWire, Wire};
use ciphergram_nic::{Driver, NicError};
use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng;
use support::*;

/// Three batches of chunks under `ckks-sum`.
const VALUES: usize = 200_000;
/// A little more than a few chunks.
const FEW: usize = 3000;

fn closed(event: AggregatorEvent) -> Option<RoundSummary> {
    if let AggregatorEvent::Closed(summary) = event { Some(summary) } else { None }
}

fn lattice() -> &'static SecretKey {
    key(Scheme::CkksSum)
}

#[test]
fn rounds_are_exact_under_every_scheme() {
    for (scheme, values) in [
        (Scheme::CkksSum, VALUES),
        (Scheme::CkksSumPublic, 30_000),
        (Scheme::Paillier2048, 900),
        (Scheme::CkksSum, 0),
        (Scheme::CkksSumPublic, 0),
    ] {
        const ROUNDS: u32 = 3;
        let key = key(scheme);
        let serving =
            serve(key.public(), ServerConfig { rounds: ROUNDS, ..config(3, 3) }, |_| false);
        let addr = serving.addr;
        let client = |number: u16| {
            thread::spawn(move || -> Vec<RoundResult> {
                let mut client = client(addr, number).unwrap();
                let round = |round| {
                    let update = update(number, round, values);
                    client.contribute(&participation(key, &update, number)).unwrap()
                };
                let results = (0..ROUNDS).map(round).collect();
                client.leave().unwrap();
                results
            })
        };
        let clients: Vec<_> = (0..3).map(client).collect();
        let mut rounds: Vec<BTreeMap<u16, RoundResult>> =
            (0..ROUNDS).map(|_| BTreeMap::new()).collect();
        for (number, client) in (0..).zip(clients) {
            for (round, result) in rounds.iter_mut().zip(client.join().unwrap()) {
                round.insert(number, result);
            }
        }
        for (number, round) in (0..).zip(&rounds) {
            let counts = check_results(key, round, &[]);
            assert!(counts.iter().all(|&count| count == 3), "{scheme}");
            // The largest magnitude is client 2's; powers of two are agreed.
            let first = &round[&0];
            assert_eq!(first.opening.round, number);
            assert!(first.sum.agreement.max_weight() == 27 && first.clipped == [0, 0]);
            assert!(round.values().all(|r| r.sum == first.sum), "all have the same sum");
        }
        serving.thread.join().unwrap();
    }
}

/// A client whose engine dies at its second or third batch, with what it had sealed by then.
fn dies_in_a_round(addr: SocketAddr, number: u16, spool: &Path) {
    let engine = Troubled::new(Duration::from_millis(400), 2);
    let dead = contribute_spooled(lattice(), addr, number, VALUES, engine, spool);
    let error = dead.join().unwrap().err().unwrap();
    assert!(matches!(error, Error::Scheme(SchemeError::Engine(_))), "{error}");
}

/// Returns the integers that the contribution in a spool was sealed from.
fn spooled_fields(number: u16, spool: &Path) -> Vec<u32> {
    let key = lattice().public();
    let (_, header, stream) = Spool::open(spool, key).unwrap().unwrap();
    assert!(!stream.is_empty());
    let mut rng = ChaCha20Rng::from_seed(header.rounding);
    let (agreement, update) = (&header.announcement.agreement, update(number, 0, VALUES));
    let weight = weight(number);
    let parameters = key.parameters();
    Quantised::new(&update, agreement, weight, parameters, &mut rng).unwrap().fields().to_vec()
}

#[test]
fn a_client_that_vanishes_is_counted_where_it_came_and_refused_without_its_spool() {
    let folder = tempfile::tempdir().unwrap();
    let spool = folder.path().join("2.spool");
    let settings = ServerConfig { round_deadline: Duration::from_secs(4), ..config(3, 2) };
    let serving = serve(lattice().public(), settings, |_| false);
    let others: Vec<_> =
        (0..2).map(|n| contribute(lattice(), serving.addr, n, VALUES, |_| {})).collect();
    dies_in_a_round(serving.addr, 2, &spool);
    let fields = spooled_fields(2, &spool);
    let back = contribute(lattice(), serving.addr, 2, VALUES, |_| {});
    let refused = back.join().unwrap().err().unwrap().to_string();
    assert!(
        refused.contains(
            "contributor 2 already joined round 0 with another contribution; without \
                          its spool it is refused for this round"
        ),
        "{refused}"
    );
    let results: BTreeMap<u16, RoundResult> =
        (0..).zip(others).map(|(n, other)| (n, other.join().unwrap().unwrap())).collect();
    let counts = check_results(lattice(), &results, &[(2, fields)]);
    let (three, two) = (counts.iter().filter(|c| **c == 3), counts.iter().filter(|c| **c == 2));
    let (three, two) = (three.count(), two.count());
    assert!(three >= 160 && two > 0 && three + two == counts.len(), "{three} of 3, {two} of 2");
    let summary = serving.wait(closed);
    let chunks = counts.len() as u32;
    assert_eq!(summary.contributed, [(0, chunks), (1, chunks), (2, three as u32)]);
}

#[test]
fn a_sum_of_too_few_is_withheld_and_said_so() {
    let folder = tempfile::tempdir().unwrap();
    let settings = ServerConfig { round_deadline: Duration::from_secs(3), ..config(3, 3) };
    let serving = serve(lattice().public(), settings, |_| false);
    let spool = folder.path().join("0.spool");
    let others = [0, 1].map(|n| {
        let own = folder.path().join(format!("{n}.spool"));
        contribute_spooled(lattice(), serving.addr, n, VALUES, engine(), &own)
    });
    dies_in_a_round(serving.addr, 2, &folder.path().join("2.spool"));
    for other in others {
        let error = other.join().unwrap().err().unwrap();
        let Error::Withheld { round: 0, withheld, chunks, reason } = error else {
            panic!("{error}")
        };
        assert!(0 < withheld && withheld < chunks, "{withheld} of {chunks}");
        assert!(reason.contains("2 of at least 3 contributed"), "{reason}");
    }
    assert!(!spool.exists(), "the round is over: there is nothing to finish");
}

#[test]
fn a_client_restarted_with_its_spool_is_counted_once() {
    let folder = tempfile::tempdir().unwrap();
    let spool = folder.path().join("2.spool");
    let serving = serve(lattice().public(), config(3, 3), |_| false);
    let others: Vec<_> =
        (0..2).map(|n| contribute(lattice(), serving.addr, n, VALUES, |_| {})).collect();
    dies_in_a_round(serving.addr, 2, &spool);
    let fields = spooled_fields(2, &spool);

    let other_weight = contribute(lattice(), serving.addr, 2, VALUES, {
        let spool = spool.clone();
        move |own| {
            own.weight += 1;
            own.spool = Some(Box::leak(spool.into_boxed_path()));
        }
    });
    let refused = other_weight.join().unwrap().err().unwrap().to_string();
    assert!(refused.contains("it holds another unfinished contribution"), "{refused}");

    let back = contribute_spooled(lattice(), serving.addr, 2, VALUES, engine(), &spool);
    let others = (0..).zip(others).map(|(n, other)| (n, other.join().unwrap().unwrap()));
    let mut results: BTreeMap<u16, RoundResult> = others.collect();
    results.insert(2, back.join().unwrap().unwrap());
    assert!(
        results[&2].fields.as_deref() == Some(&fields),
        "it goes on with the integers that it began with"
    );
    let counts = check_results(lattice(), &results, &[]);
    assert!(counts.iter().all(|&count| count == 3));
    let resumed = |event| matches!(event, AggregatorEvent::Resumed { .. }).then_some(());
    serving.wait(resumed);
    assert!(serving.wait(closed).contributed.iter().all(|(_, n)| *n as usize == counts.len()));
    assert!(!spool.exists());
}

#[test]
fn an_aggregator_restarted_in_mid_round_sums_everything_anew() {
    let folder = tempfile::tempdir().unwrap();
    // Dies when some chunks have come back and some clients have more to seal.
    let dies = |event: &AggregatorEvent| matches!(event, AggregatorEvent::Settled { chunk, .. } if *chunk >= 100);
    let first = serve(lattice().public(), config(3, 3), dies);
    let addr = first.addr;
    let clients: Vec<_> = (0..3)
        .map(|n| {
            let engine = Troubled::new(Duration::from_millis(300), usize::MAX);
            let spool = folder.path().join(format!("{n}.spool"));
            contribute_spooled(lattice(), addr, n, VALUES, engine, &spool)
        })
        .collect();
    first.thread.join().unwrap();
    let settled = |e: &AggregatorEvent| matches!(e, AggregatorEvent::Settled { .. });
    assert!(first.events.iter().filter(settled).count() < 405, "it died in mid round");

    let wires = UdpWire::bind_all(addr, 2, 1).unwrap();
    let second = serve_over(wires, lattice().public(), config(3, 3), |_| false);
    let clients = (0..).zip(clients).map(|(n, client)| (n, client.join().unwrap().unwrap()));
    let results: BTreeMap<u16, RoundResult> = clients.collect();
    let counts = check_results(lattice(), &results, &[]);
    assert!(counts.iter().all(|&count| count == 3));
    let summary = second.wait(closed);
    assert!(summary.withheld == 0 && summary.closed as usize == counts.len());
}

#[test]
fn what_is_sealed_binds_those_who_come_back_without_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let dies = |event: &AggregatorEvent| matches!(event, AggregatorEvent::Settled { chunk, .. } if *chunk >= 100);
    let first = serve(lattice().public(), config(3, 3), dies);
    let addr = first.addr;
    // Client 2, whose ranges and weight are the largest, dies with the aggregator.
    let clients = [usize::MAX, usize::MAX, 1]
        .map(|dies_at| Troubled::new(Duration::from_millis(300), dies_at));
    let mut clients: Vec<_> = (0..)
        .zip(clients)
        .map(|(n, engine)| {
            let spool = folder.path().join(format!("{n}.spool"));
            contribute_spooled(lattice(), addr, n, VALUES, engine, &spool)
        })
        .collect();
    first.thread.join().unwrap();
    assert!(clients.pop().unwrap().join().unwrap().is_err(), "client 2 is dead");
    let again = ServerConfig { join_deadline: Duration::from_secs(2), ..config(3, 2) };
    let wires = UdpWire::bind_all(addr, 2, 1).unwrap();
    let second = serve_over(wires, lattice().public(), again, |_| false);
    let clients = (0..).zip(clients).map(|(n, client)| (n, client.join().unwrap().unwrap()));
    let results: BTreeMap<u16, RoundResult> = clients.collect();
    assert_eq!(results[&0].opening.contributors, [0, 1]);
    assert_eq!(results[&0].sum.agreement.max_weight(), 27, "as agreed with client 2");
    let counts = check_results(lattice(), &results, &[]);
    assert!(counts.iter().all(|&count| count == 2));
    second.wait(closed);
}

#[test]
fn a_client_still_sealing_when_the_round_ends_gets_the_sum() {
    // Long enough for the others, on 64-bit arithmetic beside other tests.
    let settings = ServerConfig { round_deadline: Duration::from_secs(4), ..config(3, 2) };
    let serving = serve(lattice().public(), settings, |_| false);
    let (reported, hears) = mpsc::channel();
    for number in 0..3 {
        let reported = reported.clone();
        let addr = serving.addr;
        thread::spawn(move || {
            let slow = contribute(lattice(), addr, number, 6 * VALUES, move |own| {
                if number == 2 {
                    // Fast enough to fill the channel, and not done before the deadline.
                    own.engine = Troubled::new(Duration::from_millis(600), usize::MAX);
                }
            });
            reported.send((number, slow.join().unwrap())).unwrap();
        });
    }
    let results: BTreeMap<u16, RoundResult> = (0..3)
        .map(|_| hears.recv_timeout(Duration::from_secs(20)).expect("a client hangs"))
        .map(|(number, result)| (number, result.unwrap()))
        .collect();
    let counts = check_results(lattice(), &results, &[]);
    assert!(counts.contains(&2), "it was late for something");
}

#[test]
fn who_brings_what_does_not_fit_is_told_and_the_others_finish() {
    // They wait for a third: a round that leaves one out is one of too few.
    let settings = ServerConfig { join_deadline: Duration::from_secs(4), ..config(3, 3) };
    let serving = serve(lattice().public(), settings, |_| false);
    let addr = serving.addr;
    let settled = || Some(agreement(FEW, 2.0, 50));
    let honest: Vec<_> = (0..2)
        .map(|n| contribute(lattice(), addr, n, FEW, move |own| own.agreement = settled()))
        .collect();
    serving.wait_for_joins(2);

    let good = update(2, 0, FEW);
    let reported = |number: u16, participation: &Participation<'_>| {
        let (wires, paths) = (UdpWire::bind_towards(addr, 1, 1).unwrap(), PathConfig::default());
        let mut client =
            Client::new(wires, addr, server().id(), number, node(ANYONE), paths).unwrap();
        client.contribute(participation).err().expect("it must be refused").to_string()
    };
    let refused = |number: u16, participation: &Participation<'_>, what: &str| {
        let text = reported(number, participation);
        assert!(text.starts_with(&format!("refused by {addr}: ")) && text.contains(what), "{text}");
    };
    let fails = |participation: &Participation<'_>, what: &str| {
        let text = reported(2, participation);
        assert!(!text.contains("refused by") && text.contains(what), "{text}");
    };
    let usual = || participation(lattice(), &good, 2);

    let longer = update(2, 0, FEW + 1);
    refused(
        2,
        &participation(lattice(), &longer, 2),
        "client 2: the tensors differ: tensor \"weights\"",
    );
    let others = Some(agreement(FEW, 4.0, 50));
    refused(
        2,
        &Participation { agreement: others, ..usual() },
        "client 2: the clipping ranges differ",
    );
    let weights = Some(agreement(FEW, 2.0, 51));
    refused(2, &Participation { agreement: weights, ..usual() }, "the largest weight is");
    refused(2, &Participation { weight: 51, ..usual() }, "client 2: weight 51 is not from 1 to");
    let literal = |bits| Literal { scheme: Scheme::CkksSum, clients: 4, bits };
    let stranger = SecretKey::generate(literal(16)).unwrap();
    refused(2, &participation(&stranger, &good, 2), "it was made under key");
    let coarse = SecretKey::generate(literal(12)).unwrap();
    refused(2, &participation(&coarse, &good, 2), "its parameter set is 4 clients at 12 bits");
    let paillier = participation(key(Scheme::Paillier2048), &good, 2);
    refused(2, &paillier, "it is of scheme paillier-2048");
    refused(7, &usual(), "contributor 7 is out of range");

    let mut tensors = good.tensors().to_vec();
    let spec = tensors[1].spec.clone();
    let values: Vec<f64> = tensors[1].values().collect();
    for (bad, what) in [(f64::NAN, "NaN"), (f64::INFINITY, "inf")] {
        let spoilt = values.iter().enumerate().map(|(i, &x)| if i == 71 { bad } else { x });
        let bytes = spoilt.flat_map(|x| (x as f32).to_le_bytes()).collect();
        tensors[1] = ciphergram_he::Tensor::from_bytes(spec.clone(), bytes);
        let spoilt = ciphergram_he::Update::new(tensors.clone());
        let named = format!("tensor \"weights\" has {what} at index 71");
        fails(&participation(lattice(), &spoilt, 2), &named);
        let spoilt = participation(lattice(), &spoilt, 2);
        fails(&Participation { agreement: settled(), ..spoilt }, &named);
    }
    fails(&Participation { weight: 0, ..usual() }, "weight 0 is not from 1");
    let heavy = Participation { weight: 51, agreement: settled(), ..usual() };
    fails(&heavy, "weight 51 is not from 1 to the agreed largest, 50");
    let short = Some(agreement(FEW - 1, 2.0, 50));
    fails(&Participation { agreement: short, ..usual() }, "the tensors differ");

    let third = contribute(lattice(), addr, 2, FEW, move |own| own.agreement = settled());
    let honest = honest.into_iter().chain([third]);
    let honest = (0..).zip(honest).map(|(n, client)| (n, client.join().unwrap().unwrap()));
    let results: BTreeMap<u16, RoundResult> = honest.collect();
    let counts = check_results(lattice(), &results, &[]);
    assert!(counts.iter().all(|&count| count == 3));
}

#[test]
fn more_clients_than_the_key_admits_cannot_be_served() {
    let error =
        Server::new(wires(), lattice().public().clone(), engine(), config(5, 3)).err().unwrap();
    assert_eq!(error, Error::TooManyClients { declared: 5, admitted: 4 });
    assert_eq!(
        error.to_string(),
        "--clients 5, but the key admits at most 4: make a key with --clients 5"
    );
    assert!(Server::new(wires(), lattice().public().clone(), engine(), config(3, 4)).is_err());
}

/// Progress comes at once, then ten times a second at most, and never runs backwards.
#[test]
fn a_server_tells_how_far_it_is() {
    let key = lattice();
    let mut server = Server::new(wires(), key.public().clone(), engine(), config(2, 2)).unwrap();
    let addr = server.local_addr().unwrap();
    let join = |number: u16| {
        let client = move || {
            let mut client = client(addr, number).unwrap();
            let update = update(number, 0, FEW);
            client.contribute(&participation(key, &update, number)).unwrap();
            client.leave().unwrap();
        };
        thread::spawn(client)
    };
    let mut clients = vec![join(0)];
    let (mut reported, mut summary) = (vec![], None);
    let stats = server.run(|seen| match seen {
        Observation::Progress(progress) => {
            // The second client comes once the first one is seen to wait.
            if progress.waiting == 1 && clients.len() == 1 {
                clients.push(join(1));
            }
            reported.push(progress);
        }
        Observation::Event(event) => summary = closed(event).or(summary.take()),
    });
    let (stats, summary) = (stats.unwrap(), summary.unwrap());
    clients.into_iter().for_each(|client| client.join().unwrap());

    assert_eq!((reported[0].waiting, reported[0].round), (0, None));
    assert!(reported.iter().any(|progress| progress.waiting == 1 && progress.round.is_none()));
    for (earlier, later) in reported.iter().zip(&reported[1..]) {
        assert!(later.elapsed >= earlier.elapsed + Duration::from_millis(100), "{reported:?}");
        let settled = |progress: &Progress| progress.round.map(|round| round.settled);
        assert!(settled(earlier) <= settled(later), "{reported:?}");
        let bytes = |progress: &Progress| progress.stats.received.wire_bytes();
        assert!(bytes(earlier) <= bytes(later) && bytes(later) <= stats.received.wire_bytes());
    }
    for round in reported.iter().filter_map(|progress| progress.round) {
        assert_eq!((round.round, round.contributors, round.chunks), (0, 2, summary.closed));
        assert!(round.settled <= round.chunks);
    }
}

#[test]
fn a_sum_of_fewer_than_a_client_wants_is_not_decrypted() {
    let serving = serve(lattice().public(), config(2, 2), |_| false);
    let clients = [0, 1].map(|number| {
        contribute(lattice(), serving.addr, number, FEW, move |own| {
            own.min_clients = (number == 0).then_some(3);
        })
    });
    let [picky, other] = clients.map(|client| client.join().unwrap());
    let few = Error::TooFewContributors { chunk: 0, found: 2, min_clients: 3 };
    assert_eq!(picky.err(), Some(few));
    assert!(other.is_ok());
}

#[test]
fn an_aggregator_that_never_answers_is_named() {
    let nobody = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let addr = nobody.local_addr().unwrap();
    let began = Instant::now();
    let client = contribute(lattice(), addr, 0, 1, |own| own.patience = Duration::from_secs(5));
    assert_eq!(client.join().unwrap().err(), Some(Error::Unreachable { server: addr }));
    assert!(began.elapsed() < Duration::from_secs(15));
}

/// Returns the record of a contribution that nobody seals.
fn fresh() -> Seed {
    Ticket::draw().unwrap().seed()
}

/// Joins as `number` with a hello, by hand, until `done` says what came of it.
fn by_hand<T>(
    addr: SocketAddr,
    number: u16,
    announcement: &Announcement,
    done: impl Fn(ContributorEvent) -> Option<T>,
) -> T {
    let config = ContributorConfig {
        endpoint: Config::new(node(ANYONE), NonZeroU32::new(77).unwrap(), [77; 32]),
        addr,
        aggregator: server().id(),
        contributor: number,
        seed: [1; 32],
    };
    let mut driver = Driver::new(UdpWire::bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap());
    let mut node = Contributor::new(config).unwrap();
    let hello = announcement.to_bytes(lattice().public());
    node.join(driver.now(), announcement.seed.id(), hello, None).unwrap();
    let turn = |node: &mut Contributor, _| match std::iter::from_fn(|| node.poll_event())
        .find_map(&done)
    {
        Some(found) => ControlFlow::Break(found),
        None => ControlFlow::Continue(MAX_SLEEP),
    };
    driver.run(&mut node, turn).unwrap()
}

#[test]
fn one_that_dies_before_it_is_ready_costs_the_others_nothing_but_time() {
    let settings = ServerConfig { round_deadline: Duration::from_secs(1), ..config(3, 2) };
    let serving = serve(lattice().public(), settings, |_| false);
    let honest: Vec<_> =
        (0..2).map(|n| contribute(lattice(), serving.addr, n, FEW, |_| {})).collect();
    let announcement = Announcement::propose(fresh(), &update(2, 0, FEW), weight(2)).unwrap();
    by_hand(serving.addr, 2, &announcement, |event| {
        matches!(event, ContributorEvent::Opened(_)).then_some(())
    });
    let honest = (0..).zip(honest).map(|(n, client)| (n, client.join().unwrap().unwrap()));
    let results: BTreeMap<u16, RoundResult> = honest.collect();
    let counts = check_results(lattice(), &results, &[]);
    assert!(counts.iter().all(|&count| count == 2));
    assert_eq!(results[&0].opening.contributors, [0, 1, 2]);
    assert_eq!(serving.wait(closed).contributed[2], (2, 0));
}

#[test]
fn a_seed_is_announced_once_and_under_its_own_id() {
    let key = lattice().public();
    let mut application = SumApplication::new(key.clone(), engine());
    let hello = |number: u16, seed| {
        let proposal = Announcement::propose(seed, &update(number, 0, FEW), weight(number));
        proposal.unwrap().to_bytes(key)
    };
    let (seed, other) = (fresh(), fresh());
    assert_eq!(application.admit(1, &other.id(), &hello(1, other)), Ok(()));
    let refused = application.admit(1, &seed.id(), &hello(1, other)).unwrap_err();
    assert_eq!(refused, "client 1: its contribution id is not that of its seed");
    let hellos = [(0, hello(0, seed)), (1, hello(1, seed)), (2, hello(2, other))];
    let opened = application.open(0, &hellos.into()).unwrap();
    let terms = RoundTerms::from_bytes(&opened.terms, key).unwrap();
    assert_eq!(terms.participants, [(0, seed), (2, other)]);
    let [(1, reason)] = &opened.left_out[..] else { panic!("{:?}", opened.left_out) };
    assert!(reason.starts_with("client 1: the same contribution was given twice"), "{reason}");
}

#[test]
fn a_hello_of_more_values_than_memory_is_refused() {
    let serving = serve(lattice().public(), config(1, 1), |_| false);
    let spec = TensorSpec { name: "huge".into(), dtype: Dtype::F32, shape: vec![1 << 35] };
    let agreement = Agreement::new(vec![spec], vec![1.0], 1).unwrap();
    let announcement = Announcement { seed: fresh(), settled: false, agreement };
    let reason = by_hand(serving.addr, 0, &announcement, |event| match event {
        ContributorEvent::Refused { reason } => Some(reason),
        _ => None,
    });
    assert_eq!(reason, "34359738368 values are more than one round carries");
    let client = contribute(lattice(), serving.addr, 0, FEW, |_| {});
    assert!(client.join().unwrap().is_ok(), "the aggregator lives");
}

/// The lie of an aggregator.
#[derive(Clone, Copy, Debug)]
enum Lie {
    Noise,
    /// The terms are of other contributions.
    NotListed,
    /// Its lists of contributors differ.
    Lists,
    /// Ranges other than those that the client has settled.
    Ranges,
    /// Another layout.
    Layout,
    /// A sum that ends early.
    ShortSum,
    /// Not a sum of those who contributed.
    WrongSum,
    /// Residues out of range.
    NoCiphertext,
    /// More than a mask's polynomial.
    Stray,
}

struct Liar(SumApplication, Lie, &'static PublicKey);

impl Application for Liar {
    fn admit(&mut self, n: u16, id: &ContributionId, hello: &[u8]) -> Result<(), String> {
        self.0.admit(n, id, hello)
    }

    fn open(&mut self, round: u32, joined: &BTreeMap<u16, Vec<u8>>) -> Result<Opened, String> {
        let key = self.2;
        let Opened { terms, layout, shards, left_out } = self.0.open(round, joined)?;
        let mut reported = RoundTerms::from_bytes(&terms, key).unwrap();
        match self.1 {
            Lie::Noise => return Ok(Opened { terms: vec![1, 2, 3], layout, shards, left_out }),
            Lie::NotListed => reported.participants.iter_mut().for_each(|(_, s)| *s = fresh()),
            Lie::Lists => reported.participants.push((3, fresh())),
            Lie::Ranges => reported.agreement = agreement(FEW, 3.0, 50),
            Lie::Layout => reported.agreement = agreement(FEW + 9, 2.0, 50),
            Lie::ShortSum | Lie::WrongSum | Lie::NoCiphertext | Lie::Stray => {}
        }
        let lying = |Shard { chunks, accumulator }| {
            let accumulator = Box::new(LyingSum(accumulator, self.1));
            Shard { chunks, accumulator }
        };
        let shards = shards.into_iter().map(lying).collect();
        Ok(Opened { terms: reported.to_bytes(key), layout, shards, left_out })
    }
}

struct LyingSum(Box<dyn Accumulator>, Lie);

impl Accumulator for LyingSum {
    fn check(&mut self, chunks: Range<u32>, payload: &[u8]) -> Result<(), Refusal> {
        self.0.check(chunks, payload)
    }
    fn add(&mut self, chunks: Range<u32>, payload: &[u8]) {
        self.0.add(chunks, payload);
    }
    fn finish(&mut self, chunk: u32) -> Result<Vec<u8>, String> {
        let mut sum = self.0.finish(chunk)?;
        match self.1 {
            Lie::ShortSum => sum.truncate(64),
            Lie::WrongSum => sum[3] ^= 1,
            Lie::NoCiphertext => sum[..8].fill(0xff),
            // In the last lane of the last chunk of the first mask.
            Lie::Stray if chunk == 40 => sum[1276] = 1,
            _ => {}
        }
        Ok(sum)
    }
}

/// Returns the results of two clients of an aggregator that lies, whose updates are changed by
/// `change`.
fn lied_to(
    key: &'static SecretKey,
    lie: Lie,
    change: impl Fn(u16, &mut Participation<'_>) + Copy + Send + 'static,
) -> [Result<RoundResult, Error>; 2] {
    let wire = UdpWire::bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let addr = wire.local_addr().unwrap();
    let (stop, stopped) = mpsc::channel::<()>();
    let liar = thread::spawn(move || {
        let config = AggregatorConfig {
            endpoint: Config::new(server(), NonZeroU32::new(5).unwrap(), [5; 32]),
            nodes: config(2, 2).allowed,
            clients: 2,
            min_clients: 2,
            rounds: 1,
            join_deadline: PATIENCE,
            round_deadline: PATIENCE,
            whole: false,
            linger: PATIENCE,
            seed: [9; 32],
        };
        let application =
            Liar(SumApplication::new(key.public().clone(), engine()), lie, key.public());
        let mut node = Aggregator::new(config, application).unwrap();
        let turn = |_: &mut Aggregator<Liar>, _| match stopped.try_recv() {
            Err(mpsc::TryRecvError::Empty) => ControlFlow::Continue(MAX_SLEEP),
            _ => ControlFlow::Break(()),
        };
        Driver::new(wire).run(&mut node, turn)
    });
    let clients = [0, 1].map(|n| contribute(key, addr, n, FEW, move |own| change(n, own)));
    let reported = clients.map(|client| client.join().unwrap());
    drop(stop);
    assert_eq!(liar.join().unwrap(), Ok::<_, NicError>(()));
    reported
}

#[test]
fn an_aggregator_that_lies_is_found_out() {
    for (lie, what) in [
        (Lie::Noise, "not a Ciphergram file"),
        (Lie::NotListed, "it does not list this contribution"),
        (Lie::Lists, "its lists of contributors differ"),
        (Lie::Ranges, "the round is over other clipping ranges"),
        (Lie::Layout, "the tensors differ"),
        (Lie::ShortSum, "a sum of the wrong length"),
        (Lie::WrongSum, "does not decrypt to a sum of its 2 contributors"),
        (Lie::NoCiphertext, "residue 0 is not below its prime"),
    ] {
        let reported = lied_to(lattice(), lie, move |_, own| {
            let settled = !matches!(lie, Lie::Layout);
            own.agreement = settled.then(|| agreement(FEW, 2.0, 50));
        });
        for reported in reported {
            let reported = reported.err().expect("the lie must be found out").to_string();
            assert!(reported.contains(what), "{lie:?}: {reported}");
        }
    }
}

/// A client that cannot open a sum sees only whether it is made of ciphertexts. If not, it keeps
/// its contribution.
#[test]
fn a_client_without_the_secret_takes_nothing_that_is_no_sum() {
    let key = key(Scheme::CkksSumPublic);
    for (lie, what) in [
        (Lie::NoCiphertext, Some("chunk 0: residue 0 is not below its prime")),
        (Lie::Stray, Some("chunk 40: residue 199 is past the end of its polynomial, but not zero")),
        (Lie::WrongSum, None),
    ] {
        let folder: &'static Path = Box::leak(tempfile::tempdir().unwrap().keep().into());
        let spool = |n: u16| folder.join(format!("{n}.spool"));
        let results = lied_to(key, lie, move |n, own| {
            own.key = key.public().into();
            own.spool = Some(Box::leak(spool(n).into()));
        });
        for (n, reported) in (0..).zip(results) {
            let reported = reported.err().map(|error| error.to_string());
            assert_eq!(reported.as_deref(), what, "{lie:?}");
            assert_eq!(spool(n).exists(), what.is_some(), "{lie:?}");
        }
        std::fs::remove_dir_all(folder).unwrap();
    }
}
