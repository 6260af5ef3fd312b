//! Rounds whose sums openers open: clients that are openers too, openers apart, and those that vanish.

use ciphergram_he::keys::write_identities;
use ciphergram_he::threshold::OpenerKey;
use ciphergram_he::{Limits, MemberFiles, Parameters};
use ciphergram_nic::federation::{FederationOpener, OpenerEvent};
use tempfile::TempDir;

use super::*;

/// Four members of a job, whose sums any three of them open.
struct Members {
    folder: TempDir,
    public: PublicKey,
}

impl Members {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let literal = Literal { scheme: Scheme::CkksSumThreshold, clients: 4, bits: 16 };
        let public = PublicKey::of_parameters(Parameters::new(literal).unwrap()).unwrap();
        write_identities(&public, Limits::of_key(&public), None, folder.path()).unwrap();
        Self { folder, public }
    }

    fn files(&self, number: u16) -> MemberFiles {
        let path = self.folder.path().join(format!("clients/{number}.json"));
        let mut files = MemberFiles::open(&path).unwrap();
        files.ledger = Ledger::beside(&path);
        files
    }

    fn opener(&self, number: u16) -> OpenerKey {
        self.files(number).opener_if_any().unwrap().unwrap()
    }

    fn serve(&self, settings: ServerConfig) -> Serving {
        serve_over(wires(), &self.public, &self.files(0).job, settings, |_| false)
    }

    /// Takes part in rounds, as an opener too if it is one.
    fn take_part(
        &self,
        addr: SocketAddr,
        number: u16,
        is_opener: bool,
        rounds: u32,
        change: impl FnOnce(&mut Participation<'_>) + Send + 'static,
    ) -> thread::JoinHandle<Vec<Result<RoundResult, Error>>> {
        let (files, opener) = (self.files(number), is_opener.then(|| self.opener(number)));
        thread::spawn(move || {
            let mut client = client(addr, number).unwrap();
            let mut change = Some(change);
            let round = |round| {
                let update = update(number, round, VALUES);
                let member = files.member(None, engine()).unwrap();
                let mut participation = Participation {
                    member,
                    update: &update,
                    weight: weight(number),
                    spool: None,
                    patience: PATIENCE,
                    keep_fields: true,
                    opener: opener.as_ref(),
                };
                if let Some(change) = change.take() {
                    change(&mut participation);
                }
                client.contribute(&participation, |_| ControlFlow::Continue(()))
            };
            let results = (0..rounds).map(round).collect();
            let _ = client.leave();
            results
        })
    }

    /// Checks what every client opened: exactly the sum of these contributions.
    fn check(
        &self,
        results: &BTreeMap<u16, RoundResult>,
        numbers: &[u16],
        more: &[(u16, Vec<u32>)],
    ) {
        let own = results.iter().map(|(&n, r)| (n, r.fields.as_ref().unwrap().to_vec()));
        let fields: BTreeMap<u16, Vec<u32>> = own.chain(more.iter().cloned()).collect();
        for result in results.values() {
            let opened = result.opened.as_ref().unwrap();
            check_fields(self.public.parameters(), numbers, opened, &fields);
        }
    }
}

fn answered(events: &Serving, count: usize) -> Vec<u8> {
    let one = || {
        events.wait(|event| match event {
            AggregatorEvent::OpenerAnswered { opener, .. } => Some(opener),
            _ => None,
        })
    };
    (0..count).map(|_| one()).collect()
}

#[test]
fn clients_open_their_sums_together() {
    const ROUNDS: u32 = 3;
    let members = Members::new();
    let serving = members.serve(ServerConfig { rounds: ROUNDS, ..config(4, 3) });
    let clients: Vec<_> =
        (0..4).map(|n| members.take_part(serving.addr, n, true, ROUNDS, |_| {})).collect();
    let mut rounds: Vec<BTreeMap<u16, RoundResult>> = vec![];
    rounds.resize_with(ROUNDS as usize, BTreeMap::new);
    for (number, client) in (0..).zip(clients) {
        for (round, result) in rounds.iter_mut().zip(client.join().unwrap()) {
            round.insert(number, result.unwrap());
        }
    }
    for round in &rounds {
        members.check(round, &[0, 1, 2, 3], &[]);
        assert!(round.values().all(|result| result.answers.len() >= 3));
    }
    assert!(answered(&serving, 3 * ROUNDS as usize).iter().all(|opener| *opener < 4));
    serving.thread.join().unwrap();
}

#[test]
fn a_client_and_an_opener_vanish_and_the_sum_is_exact() {
    let members = Members::new();
    let settings = ServerConfig { round_deadline: DEADLINE, ..config(4, 3) };
    let serving = members.serve(settings);
    let spool = members.folder.path().join("3.spool");
    let died = members.take_part(serving.addr, 3, true, 1, move |participation| {
        participation.member.engine = Troubled::new(Duration::ZERO, 1);
        participation.spool = Some(leak(spool));
    });
    let others: Vec<_> =
        (0..3).map(|n| members.take_part(serving.addr, n, true, 1, |_| {})).collect();
    assert!(died.join().unwrap().remove(0).is_err());
    let results: BTreeMap<u16, RoundResult> =
        (0..).zip(others).map(|(n, other)| (n, other.join().unwrap().remove(0).unwrap())).collect();
    members.check(&results, &[0, 1, 2], &[]);
    let summary = serving.wait(closed);
    assert_eq!(summary.contributed.last().unwrap(), &(3, 0), "what is not whole counts nowhere");
}

#[test]
fn who_comes_back_with_its_spool_counts() {
    let members = Members::new();
    let serving = members.serve(config(4, 3));
    let path: &'static Path = leak(members.folder.path().join("2.spool"));
    let others: Vec<_> = [0, 1, 3]
        .map(|n| (n, members.take_part(serving.addr, n, true, 1, |_| {})))
        .into_iter()
        .collect();
    let died = members.take_part(serving.addr, 2, true, 1, |participation| {
        participation.member.engine = Troubled::new(Duration::ZERO, 1);
        participation.spool = Some(path);
    });
    assert!(died.join().unwrap().remove(0).is_err());
    let back = members.take_part(serving.addr, 2, true, 1, |participation| {
        participation.spool = Some(path);
    });
    let all = others.into_iter().chain([(2, back)]);
    let results: BTreeMap<u16, RoundResult> =
        all.map(|(n, client)| (n, client.join().unwrap().remove(0).unwrap())).collect();
    members.check(&results, &[0, 1, 2, 3], &[]);
}

#[test]
fn openers_that_contribute_nothing_open_what_others_sum() {
    let members = Members::new();
    let serving = members.serve(ServerConfig { round_deadline: PATIENCE, ..config(4, 3) });
    let addr = serving.addr;
    let openers: Vec<_> = (0..3)
        .map(|number| {
            let (opener, ledger) = (members.opener(number), members.files(number).ledger);
            thread::spawn(move || {
                let wires = SocketWire::bind_towards(addr, 1, 1).unwrap();
                let (server, node) = (server().id(), node(ANYONE));
                let service =
                    FederationOpener::new(wires, addr, server, node, PathConfig::default());
                let mut found = None;
                let run = service.unwrap().run(&opener, &ledger, |event| match event {
                    Some(OpenerEvent::Answered { contributors, .. }) => {
                        found = Some(contributors);
                        ControlFlow::Break(())
                    }
                    _ => ControlFlow::Continue(()),
                });
                run.unwrap();
                found.unwrap()
            })
        })
        .collect();
    let clients: Vec<_> = (0..4).map(|n| members.take_part(addr, n, false, 1, |_| {})).collect();
    let results: BTreeMap<u16, RoundResult> =
        (0..).zip(clients).map(|(n, c)| (n, c.join().unwrap().remove(0).unwrap())).collect();
    members.check(&results, &[0, 1, 2, 3], &[]);
    for opener in openers {
        assert_eq!(opener.join().unwrap().len(), 4);
    }
}

#[test]
fn without_enough_openers_nobody_opens_the_sum() {
    let members = Members::new();
    let settings = ServerConfig { round_deadline: DEADLINE, ..config(4, 3) };
    let serving = members.serve(settings);
    let clients: Vec<_> =
        (0..4).map(|n| members.take_part(serving.addr, n, n < 2, 1, |_| {})).collect();
    for client in clients {
        let error = client.join().unwrap().remove(0).err().unwrap();
        let few = SchemeError::TooFewAnswers { found: 2, needed: 3 };
        assert_eq!(error, Error::Scheme(few));
    }
    let unopened = serving.wait(|event| match event {
        AggregatorEvent::TooFewAnswers { round, found, needed } => Some((round, found, needed)),
        _ => None,
    });
    assert_eq!(unopened, (0, 2, 3));
}
