//! Whole rounds over loopback sockets: each client and each aggregator is a thread with its own
//! socket, under real parameters.

mod malicious;
mod spool;
mod threshold;

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroU32;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use ciphergram_he::exchange::{Announcement, RoundTerms};
use ciphergram_he::params::{Literal, Scheme};
use ciphergram_he::{
    Agreement, Contributor, Dtype, Error as SchemeError, Ledger, PublicKey, Quantised, SealPermit,
    SecretKey, Seed, Tensor, TensorSpec, Update,
};
use ciphergram_nic::Driver;
use ciphergram_nic::driver::MAX_SLEEP;
use ciphergram_nic::federation::spool::{FoundSpool, Spool, SpoolContent};
use ciphergram_nic::federation::{
    Error, FederationClient, FederationServer, Observation, Participation, ParticipationPhase,
    PathConfig, Progress, RoundResult, ServerConfig, SocketClient, SocketClientConfig,
    SumApplication,
};
use ciphergram_nic::proto::Config;
use ciphergram_nic::round::{
    AggregatorEvent, Application, RoundClient, RoundClientConfig, RoundClientEvent, RoundSummary,
};
use ciphergram_nic::wire::SocketWire;

use crate::support::federation::*;

/// Two batches of chunks under `ckks-sum`, over a small ring.
const VALUES: usize = 120_000;
/// Less than a polynomial of a larger ring, which is sealed as one.
const LARGE: usize = 200_000;
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
        (Scheme::CkksSum, LARGE),
        (Scheme::Paillier2048, 900),
        (Scheme::CkksSum, 0),
    ] {
        const ROUNDS: u32 = 3;
        let key = key(scheme);
        let serving =
            serve(key.public(), ServerConfig { rounds: ROUNDS, ..config(3, 3) }, |_| false);
        let addr = serving.addr;
        // Of a key that all of them share on one machine.
        let folder = tempfile::tempdir().unwrap();
        let ledger = leak(Ledger::beside(&folder.path().join("secret.json")));
        let client = |number: u16| {
            thread::spawn(move || -> Vec<RoundResult> {
                let mut client = client(addr, number).unwrap();
                let round = |round| {
                    let update = update(number, round, values);
                    let mut participation = participation(key, &update, number);
                    participation.member.ledger = ledger;
                    client.contribute(&participation, |_| ControlFlow::Continue(())).unwrap()
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
            let opened = first.opening.as_ref().unwrap().round;
            assert_eq!((opened, first.sum.round), (number, number.into()));
            assert!(first.sum.agreement.max_weight() == 27 && first.clipped == [0, 0]);
            assert!(round.values().all(|r| r.sum == first.sum), "all have the same sum");
        }
        serving.thread.join().unwrap();
        let job = job(key.public());
        assert!((0..3).all(|n| ledger.next_round(job, n) == Ok(ROUNDS.into())));
        assert_eq!(ledger.failures(key.public()).unwrap(), 0);
    }
}

/// A client whose engine dies at its second batch, with what it had sealed by then.
fn dies_in_a_round(addr: SocketAddr, number: u16, spool: &Path) {
    let engine = Troubled::new(Duration::from_millis(400), 1);
    let dead = contribute_spooled(lattice(), addr, number, VALUES, engine, spool);
    let error = dead.join().unwrap().err().unwrap();
    assert!(matches!(error, Error::Scheme(SchemeError::Engine(_))), "{error}");
}

/// Returns the integers that the contribution in a spool was sealed from.
fn spooled_fields(number: u16, spool: &Path) -> Vec<u32> {
    let key = lattice().public();
    let FoundSpool { header, content, .. } = Spool::open(spool, key).unwrap().unwrap();
    assert!(matches!(content, SpoolContent::Chunks(chunks, None) if !chunks.is_empty()));
    let (agreement, update) = (&header.announcement.agreement, update(number, 0, VALUES));
    let weight = weight(number);
    let parameters = key.parameters();
    let own = Quantised::new(&update, agreement, weight, parameters, &header.rounding).unwrap();
    own.fields().unwrap().to_vec()
}

#[test]
fn vanished_clients_count_spoolless_ones_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let spool = folder.path().join("2.spool");
    let settings = ServerConfig { round_deadline: DEADLINE, ..config(3, 2) };
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
fn sums_of_too_few_are_withheld() {
    let folder = tempfile::tempdir().unwrap();
    let settings = ServerConfig { round_deadline: DEADLINE, ..config(3, 3) };
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
fn a_restarted_client_is_counted_once() {
    let folder = tempfile::tempdir().unwrap();
    let spool = folder.path().join("2.spool");
    let serving = serve(lattice().public(), config(3, 3), |_| false);
    let others: Vec<_> =
        (0..2).map(|n| contribute(lattice(), serving.addr, n, VALUES, |_| {})).collect();
    dies_in_a_round(serving.addr, 2, &spool);
    let fields = spooled_fields(2, &spool);

    let other_weight = contribute(lattice(), serving.addr, 2, VALUES, {
        let spool = spool.clone();
        move |participation| {
            participation.weight += 1;
            participation.spool = Some(Box::leak(spool.into_boxed_path()));
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
fn a_restarted_aggregator_sums_everything_anew() {
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
    let chunks = lattice().public().parameters().chunks(VALUES).count();
    assert!(first.events.iter().filter(settled).count() < chunks as usize, "it died in mid round");

    let (key, wires) = (lattice().public(), SocketWire::bind_all(addr, 2, 1).unwrap());
    let second = serve_over(wires, key, job(key), config(3, 3), |_| false);
    let clients = (0..).zip(clients).map(|(n, client)| (n, client.join().unwrap().unwrap()));
    let results: BTreeMap<u16, RoundResult> = clients.collect();
    let counts = check_results(lattice(), &results, &[]);
    assert!(counts.iter().all(|&count| count == 3));
    let summary = second.wait(closed);
    assert!(summary.withheld == 0 && summary.closed as usize == counts.len());
}

#[test]
fn sealed_contributions_bind_clients_that_return() {
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
    let again = ServerConfig { join_deadline: DEADLINE, ..config(3, 2) };
    let (key, wires) = (lattice().public(), SocketWire::bind_all(addr, 2, 1).unwrap());
    let second = serve_over(wires, key, job(key), again, |_| false);
    let clients = (0..).zip(clients).map(|(n, client)| (n, client.join().unwrap().unwrap()));
    let results: BTreeMap<u16, RoundResult> = clients.collect();
    assert_eq!(results[&0].opening.as_ref().unwrap().contributors, [0, 1]);
    assert_eq!(results[&0].sum.agreement.max_weight(), 27, "as agreed with client 2");
    let counts = check_results(lattice(), &results, &[]);
    assert!(counts.iter().all(|&count| count == 2));
    second.wait(closed);
}

#[test]
fn clients_still_sealing_get_the_sum() {
    let settings = ServerConfig { round_deadline: DEADLINE, ..config(3, 2) };
    let serving = serve(lattice().public(), settings, |_| false);
    let (reported, hears) = mpsc::channel();
    for number in 0..3 {
        let reported = reported.clone();
        let addr = serving.addr;
        thread::spawn(move || {
            let slow = contribute(lattice(), addr, number, VALUES, move |participation| {
                if number == 2 {
                    // Its second batch comes after the deadline. It holds up no thread of the others.
                    participation.member.engine =
                        Troubled::new(DEADLINE + Duration::from_secs(1), usize::MAX);
                    let threads = rayon::ThreadPoolBuilder::new().num_threads(1).build();
                    participation.member.threads = Some(std::sync::Arc::new(threads.unwrap()));
                }
            });
            reported.send((number, slow.join().unwrap())).unwrap();
        });
    }
    let results: BTreeMap<u16, RoundResult> = (0..3)
        .map(|_| hears.recv_timeout(PATIENCE).expect("a client hangs"))
        .map(|(number, result)| (number, result.unwrap()))
        .collect();
    let counts = check_results(lattice(), &results, &[]);
    assert!(counts.contains(&2), "it was late for something");
}

#[test]
fn misfits_are_refused_and_others_finish() {
    // They wait for a third: a round that leaves one out is one of too few.
    let settings = ServerConfig {
        join_deadline: Duration::from_secs(4),
        wait_for_clients: true,
        ..config(3, 3)
    };
    let public = lattice().public();
    let settled = settled_job(public, &agreement(FEW, 2.0, 50));
    let serving = serve_over(wires(), public, settled, settings, |_| false);
    let addr = serving.addr;
    let honest: Vec<_> = (0..2)
        .map(|n| {
            contribute(lattice(), addr, n, FEW, move |participation| {
                participation.member.job = settled
            })
        })
        .collect();
    serving.wait_for_joins(2);

    let good = update(2, 0, FEW);
    let reported = |number: u16, participation: &Participation<'_>| {
        let (wires, paths) = (SocketWire::bind_towards(addr, 1, 1).unwrap(), PathConfig::default());
        let mut client =
            FederationClient::new(wires, addr, server().id(), number, node(ANYONE), paths).unwrap();
        client
            .contribute(participation, |_| ControlFlow::Continue(()))
            .err()
            .expect("it must be refused")
            .to_string()
    };
    let refused = |number: u16, participation: &Participation<'_>, what: &str| {
        let text = reported(number, participation);
        assert!(text.starts_with(&format!("refused by {addr}: ")) && text.contains(what), "{text}");
    };
    let fails = |participation: &Participation<'_>, what: &str| {
        let text = reported(2, participation);
        assert!(!text.contains("refused by") && text.contains(what), "{text}");
    };
    let usual = || under(settled, participation(lattice(), &good, 2));

    // Under the same limits, and yet another job.
    let other = settled_job(public, &agreement(FEW, 2.0, 50));
    refused(2, &under(other, usual()), "client 2: it is of job");
    // What an honest client never announces.
    let announced = |agreement: Agreement, what: &str| {
        let forged = Announcement {
            seed: fresh(),
            job: settled.id(),
            lowest_round: 0,
            agreement,
            proposal: None,
        };
        let reason = by_hand(addr, 2, &forged, |event| match event {
            RoundClientEvent::Refused { reason } => Some(reason),
            _ => None,
        });
        assert!(reason.starts_with("client 2: ") && reason.contains(what), "{reason}");
    };
    announced(agreement(FEW + 1, 2.0, 50), "the tensors differ: tensor \"weights\"");
    announced(agreement(FEW, 4.0, 50), "tensor \"bias\" has range 4, the job's is 2");
    announced(agreement(FEW, 1.0, 50), "tensor \"bias\" has range 1, the job's is 2");
    announced(agreement(FEW, 1e5, 50), "tensor \"bias\" has range 100000, the job admits 65536");
    announced(agreement(FEW, 2.0, 51), "a largest weight of 51, the job's is 50");
    let literal = |bits| Literal { scheme: Scheme::CkksSum, clients: 4, bits };
    let stranger = SecretKey::generate(literal(16)).unwrap();
    refused(2, &participation(&stranger, &good, 2), "it was made under key");
    let coarse = SecretKey::generate(literal(12)).unwrap();
    refused(2, &participation(&coarse, &good, 2), "its parameter set is 4 clients at 12 bits");
    let paillier = participation(key(Scheme::Paillier2048), &good, 2);
    refused(2, &paillier, "it is of scheme paillier-2048");
    let mut seventh = usual();
    seventh.member.key = lattice().as_client(7);
    refused(7, &seventh, "contributor 7 is out of range");
    let another = reported(1, &usual());
    assert_eq!(another, "this is the key of client 2, not of client 1");

    fails(&Participation { weight: 0, ..usual() }, "weight 0 is not from 1");
    let heavy = Participation { weight: 51, ..usual() };
    fails(&heavy, "weight 51 is not from 1 to the agreed largest, 50");
    let longer = update(2, 0, FEW + 1);
    let longer = under(settled, participation(lattice(), &longer, 2));
    fails(&longer, "the tensors differ: tensor \"weights\"");
    let loud = Update::new(vec![Tensor::from_values(good.specs()[0].clone(), &[7e4; 3]).unwrap()]);
    let beyond = "tensor \"bias\" has range 70000, the job admits 65536 at most";
    fails(&participation(lattice(), &loud, 2), beyond);

    let third = contribute(lattice(), addr, 2, FEW, move |participation| {
        participation.member.job = settled
    });
    let honest = honest.into_iter().chain([third]);
    let honest = (0..).zip(honest).map(|(n, client)| (n, client.join().unwrap().unwrap()));
    let results: BTreeMap<u16, RoundResult> = honest.collect();
    let counts = check_results(lattice(), &results, &[]);
    assert!(counts.iter().all(|&count| count == 3));
}

/// Where the job settles no tensors, those of the lowest number count: who has others is left out and
/// hears why, whoever came first, and the round goes on.
#[test]
fn clients_with_other_tensors_are_left_out() {
    let serving = serve(lattice().public(), config(3, 2), |_| false);
    let odd = contribute(lattice(), serving.addr, 2, FEW + 1, |_| {});
    serving.wait_for_joins(1);
    let honest = [0, 1].map(|n| contribute(lattice(), serving.addr, n, FEW, |_| {}));
    let reason = odd.join().unwrap().err().unwrap().to_string();
    let expected = format!("refused by {}: client 2: the tensors differ: tensor", serving.addr);
    assert!(reason.starts_with(&expected), "{reason}");
    let honest = (0..).zip(honest).map(|(n, client)| (n, client.join().unwrap().unwrap()));
    let results: BTreeMap<u16, RoundResult> = honest.collect();
    assert_eq!(results[&0].opening.as_ref().unwrap().contributors, [0, 1]);
    assert!(check_results(lattice(), &results, &[]).iter().all(|&count| count == 2));
}

#[test]
fn servers_refuse_clients_beyond_the_job() {
    let key = lattice().public();
    let serve = |key: &PublicKey, clients, min_clients| {
        let job = job(lattice().public()).clone();
        FederationServer::new(wires(), key.clone(), job, engine(), config(clients, min_clients))
            .err()
    };
    let error = serve(key, 5, 3).unwrap();
    assert_eq!(error, Error::TooManyClients { declared: 5, admitted: 4 });
    assert_eq!(error.to_string(), "5 clients, but the job has 4");
    assert!(serve(key, 3, 4).is_some());
    let other = crate::support::federation::key(Scheme::Paillier2048).public();
    let error = serve(other, 3, 3).unwrap().to_string();
    assert!(error.starts_with("the job is of key"), "{error}");
    assert!(serve(key, 3, 3).is_none());
}

/// Progress comes at once, then twenty times a second at most, and when a round is finished; it never runs backwards.
#[test]
fn a_server_tells_how_far_it_is() {
    let key = lattice();
    let (public, job) = (key.public().clone(), job(key.public()).clone());
    let mut server = FederationServer::new(wires(), public, job, engine(), config(2, 2)).unwrap();
    let addr = server.local_addr().unwrap();
    let join = |number: u16| {
        let client = move || {
            let mut client = client(addr, number).unwrap();
            let update = update(number, 0, FEW);
            client
                .contribute(&participation(key, &update, number), |_| ControlFlow::Continue(()))
                .unwrap();
            client.leave().unwrap();
        };
        thread::spawn(client)
    };
    let mut clients = vec![join(0)];
    let (mut reported, mut summary, mut at_end) = (vec![], None, None);
    let stats = server.run(|seen| {
        match seen {
            Observation::Progress(progress) => {
                // The second client comes once the first one is seen to wait.
                if progress.waiting == 1 && clients.len() == 1 {
                    clients.push(join(1));
                }
                reported.push(progress);
            }
            Observation::Event(event) => {
                if matches!(event, AggregatorEvent::Finished { .. }) {
                    at_end = reported.len().checked_sub(1);
                }
                summary = closed(event).or(summary.take());
            }
        }
        ControlFlow::Continue(())
    });
    let (stats, summary) = (stats.unwrap(), summary.unwrap());
    clients.into_iter().for_each(|client| client.join().unwrap());

    assert_eq!((reported[0].waiting, &reported[0].round), (0, &None));
    assert!(reported.iter().any(|progress| progress.waiting == 1 && progress.round.is_none()));
    for (earlier, later) in reported.iter().zip(&reported[1..]) {
        let settled = |progress: &Progress| progress.round.as_ref().map(|round| round.settled);
        assert!(settled(earlier) <= settled(later), "{reported:?}");
        let bytes = |progress: &Progress| progress.stats.received.wire_bytes();
        assert!(bytes(earlier) <= bytes(later) && bytes(later) <= stats.received.wire_bytes());
    }
    let mut spaced: Vec<_> = reported.iter().map(|progress| progress.elapsed).collect();
    // The one of the only round that finishes comes when it does.
    spaced.remove(at_end.unwrap());
    for pair in spaced.windows(2) {
        assert!(pair[1] >= pair[0] + Duration::from_millis(50), "{reported:?}");
    }
    for round in reported.iter().filter_map(|progress| progress.round.as_ref()) {
        assert_eq!((round.round, round.chunks), (0, summary.closed));
        let [(0, first), (1, second)] = round.received[..] else { panic!("{round:?}") };
        assert!(round.settled <= first.min(second) && first.max(second) <= round.chunks);
    }
}

#[test]
fn an_aggregator_that_never_answers_is_named() {
    let nobody = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let addr = nobody.local_addr().unwrap();
    let began = Instant::now();
    let waited = Duration::from_secs(1);
    let client =
        contribute(lattice(), addr, 0, 1, move |participation| participation.patience = waited);
    let silent = Error::Unreachable {
        server: addr,
        waited,
        has_answered: false,
        is_closed: false,
        dial: None,
    };
    assert_eq!(client.join().unwrap().err(), Some(silent));
    let lasted = began.elapsed();
    assert!(lasted >= waited && lasted < 60 * waited, "{lasted:?}");
}

#[test]
fn a_silent_address_leaves_the_next_one() {
    let nobody = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let serving = serve(lattice().public(), ServerConfig { rounds: 2, ..config(2, 2) }, |_| false);
    let addresses = vec![nobody.local_addr().unwrap(), serving.addr];
    let clients = [0, 1].map(|number| {
        let config = SocketClientConfig {
            server: addresses.clone().into(),
            node: server().id(),
            number,
            identity: node(number),
            paths: PathConfig::default(),
            pipelines: 1,
        };
        thread::spawn(move || {
            let mut client = SocketClient::new(config);
            let results = [0, 1].map(|round| {
                let update = update(number, round, FEW);
                let mut participation = participation(lattice(), &update, number);
                participation.patience = Duration::from_secs(2);
                client.contribute(&participation, |_| ControlFlow::Continue(())).unwrap()
            });
            client.leave().unwrap();
            results
        })
    });
    let mut results = clients.map(|client| BTreeMap::from_iter((0..).zip(client.join().unwrap())));
    for round in 0..2 {
        let of_round = (0..).zip(results.iter_mut().map(|all| all.remove(&round).unwrap()));
        assert_eq!(check_results(lattice(), &of_round.collect(), &[]).first(), Some(&2));
    }
}

/// Returns the record of a contribution that nobody seals.
fn fresh() -> Seed {
    SealPermit::draw().unwrap().seed()
}

/// Joins as `number` with a hello, by hand, until `done` says what came of it.
fn by_hand<T>(
    addr: SocketAddr,
    number: u16,
    announcement: &Announcement,
    done: impl Fn(RoundClientEvent) -> Option<T>,
) -> T {
    // A process of its own each time.
    static PROCESSES: AtomicU32 = AtomicU32::new(77);
    let process = PROCESSES.fetch_add(1, Ordering::Relaxed);
    let config = RoundClientConfig {
        endpoint: Config::new(node(ANYONE), NonZeroU32::new(process).unwrap(), [process as u8; 32]),
        addr,
        aggregator: server().id(),
        contributor: number,
        seed: [1; 32],
    };
    let mut driver = Driver::new(SocketWire::bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap());
    let mut node = RoundClient::new(config).unwrap();
    let hello = announcement.to_bytes(lattice().public());
    node.join(driver.now(), announcement.seed.id(), hello, None).unwrap();
    let iteration = |node: &mut RoundClient, _| match std::iter::from_fn(|| node.poll_event())
        .find_map(&done)
    {
        Some(found) => ControlFlow::Break(found),
        None => ControlFlow::Continue(MAX_SLEEP),
    };
    driver.run(&mut node, iteration).unwrap()
}

#[test]
fn clients_that_die_unready_cost_only_time() {
    let settings = ServerConfig { round_deadline: DEADLINE, ..config(3, 2) };
    let serving = serve(lattice().public(), settings, |_| false);
    let honest: Vec<_> =
        (0..2).map(|n| contribute(lattice(), serving.addr, n, FEW, |_| {})).collect();
    let job = job(lattice().public());
    let announcement =
        Announcement::propose(fresh(), job, (0, None), &update(2, 0, FEW), weight(2), None);
    let announcement = announcement.unwrap();
    by_hand(serving.addr, 2, &announcement, |event| {
        matches!(event, RoundClientEvent::Opened(_)).then_some(())
    });
    let honest = (0..).zip(honest).map(|(n, client)| (n, client.join().unwrap().unwrap()));
    let results: BTreeMap<u16, RoundResult> = honest.collect();
    let counts = check_results(lattice(), &results, &[]);
    assert!(counts.iter().all(|&count| count == 2));
    assert_eq!(results[&0].opening.as_ref().unwrap().contributors, [0, 1, 2]);
    assert_eq!(serving.wait(closed).contributed[2], (2, 0));
}

#[test]
fn seeds_are_announced_once_under_their_ids() {
    let key = lattice().public();
    let job = job(key);
    let mut application = SumApplication::new(key.clone(), job.clone(), engine(), None).unwrap();
    let hello = |number: u16, seed| {
        let update = update(number, 0, FEW);
        let proposal = Announcement::propose(seed, job, (0, None), &update, weight(number), None);
        proposal.unwrap().to_bytes(key)
    };
    let (seed, other) = (fresh(), fresh());
    assert_eq!(application.admit(1, &other.id(), &hello(1, other)), Ok(()));
    let refused = application.admit(1, &seed.id(), &hello(1, other)).unwrap_err();
    assert_eq!(refused, "client 1: its contribution id is not that of its seed");
    let hellos = [(0, hello(0, seed)), (1, hello(1, seed)), (2, hello(2, other))];
    let opened = application.open(0, &hellos.into()).unwrap().opened().unwrap();
    let terms = RoundTerms::from_bytes(&opened.terms, key).unwrap();
    let listed = [(0, seed), (2, other)].map(|(number, seed)| Contributor { number, seed });
    assert_eq!(terms.participants, listed);
    let [(1, reason)] = &opened.left_out[..] else { panic!("{:?}", opened.left_out) };
    assert!(reason.starts_with("client 1: the same contribution was given twice"), "{reason}");
}

#[test]
fn hellos_of_too_many_values_are_refused() {
    let public = lattice().public();
    let job = leak(job(public).clone().requiring(1));
    let serving = serve_over(wires(), public, job, config(1, 1), |_| false);
    let spec = TensorSpec { name: "huge".into(), dtype: Dtype::F32, shape: vec![1 << 35] };
    let agreement = Agreement::new(vec![spec], vec![1.0], 1).unwrap();
    let announcement =
        Announcement { seed: fresh(), job: job.id(), lowest_round: 0, agreement, proposal: None };
    let reason = by_hand(serving.addr, 0, &announcement, |event| match event {
        RoundClientEvent::Refused { reason } => Some(reason),
        _ => None,
    });
    assert_eq!(reason, "34359738368 values are more than one round carries");
    let client = contribute(lattice(), serving.addr, 0, FEW, move |participation| {
        participation.member.job = job
    });
    assert!(client.join().unwrap().is_ok(), "the aggregator lives");
}

/// Paillier seals for much longer than its thread may be ahead.
#[test]
fn who_is_stopped_while_sealing_goes_on_from_the_spool() {
    let paillier = key(Scheme::Paillier2048);
    let serving = serve(paillier.public(), config(2, 2), |_| false);
    let other = contribute(paillier, serving.addr, 1, VALUES, |_| ());
    let folder = tempfile::tempdir().unwrap();
    let (update, spool) = (update(0, 0, VALUES), folder.path().join("spool"));
    let own = Participation { spool: Some(&spool), ..participation(paillier, &update, 0) };
    let stopped = client(serving.addr, 0).unwrap().contribute(&own, |phase| match phase {
        ParticipationPhase::Exchanging { chunks, sealed, .. } if sealed > 0 => {
            assert!(sealed < chunks / 2, "{sealed} of {chunks}");
            ControlFlow::Break(())
        }
        _ => ControlFlow::Continue(()),
    });
    assert!(matches!(stopped, Err(Error::Stopped)));
    let mut again = client(serving.addr, 0).unwrap();
    let result = without_spool(again.contribute(&own, |_| ControlFlow::Continue(()))).unwrap();
    let results = BTreeMap::from([(0, result), (1, other.join().unwrap().unwrap())]);
    assert_eq!(check_results(paillier, &results, &[]).first(), Some(&2));
}
