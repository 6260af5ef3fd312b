//! Rounds told event by event, and what the picture shows of them.

use ciphergram_nic::proto::{NodeId, Peer, Traffic};

use super::*;

const CHUNKS: u32 = 500;

/// A status, and a clock of its own.
struct Told {
    status: Status,
    now: Instant,
    began: Instant,
}

impl Told {
    fn new(clients: u16, rounds: u32) -> Self {
        let terms = Terms { scheme: "ckks-sum", clients, min_clients: 2, rounds };
        let now = Instant::now();
        Self { status: Status::new(terms, now), now, began: now }
    }

    fn pass(&mut self, seconds: u64) {
        self.now += Duration::from_secs(seconds);
    }

    fn hear(&mut self, event: AggregatorEvent) -> Option<(RoundPhase, u64)> {
        let ended = self.status.follow(&Observation::Event(event), self.now);
        ended.map(|(phase, span)| (phase, span.as_secs()))
    }

    fn join(&mut self, contributor: u16) {
        let node: NodeId = "A".repeat(43).parse().unwrap_or_else(|e| panic!("{e}"));
        self.hear(AggregatorEvent::Joined { contributor, peer: Peer::of(node), missing: vec![] });
    }

    fn refuse(&mut self, contributor: u16) {
        self.hear(AggregatorEvent::Refused { contributor, reason: "its words".into() });
    }

    fn open(&mut self, round: u32, contributors: &[u16]) -> Option<(RoundPhase, u64)> {
        let contributors = contributors.to_vec();
        self.hear(AggregatorEvent::Opened { round, contributors, chunks: CHUNKS })
    }

    fn settle(&mut self, round: u32, chunks: std::ops::Range<u32>, leaves: bool) {
        for chunk in chunks {
            self.hear(AggregatorEvent::Settled { round, chunk, contributors: 2, leaves });
        }
    }

    fn close(
        &mut self,
        round: u32,
        withheld: u32,
        contributed: &[(u16, u32)],
    ) -> Option<(RoundPhase, u64)> {
        self.hear(AggregatorEvent::Closed(RoundSummary {
            round,
            closed: CHUNKS - withheld,
            withheld,
            reason: String::new(),
            contributed: contributed.to_vec(),
        }))
    }

    fn progress(&mut self, round: u32, received: &[(u16, u32)], received_bytes: u64) {
        let traffic = Traffic { payload_bytes: received_bytes, ..Traffic::default() };
        let stats = Stats { received: traffic, ..Stats::default() };
        let received = received.to_vec();
        let round = Some(RoundProgress { round, received, chunks: CHUNKS, settled: 0 });
        self.follow(Progress { round, stats, ..self.nothing_yet() });
    }

    fn nothing_yet(&self) -> Progress {
        let elapsed = self.now - self.began;
        Progress { elapsed, waiting: 0, ranges: None, round: None, stats: Stats::default() }
    }

    fn follow(&mut self, progress: Progress) {
        assert_eq!(self.status.follow(&Observation::Progress(progress), self.now), None);
    }

    fn json(&self) -> Value {
        self.status.to_json(self.now)
    }

    fn states(&self) -> Vec<String> {
        let json = self.json();
        let each = json["clients"]["each"].as_array().into_iter().flatten();
        each.map(|client| client["state"].as_str().unwrap_or_default().to_owned()).collect()
    }

    fn present(&self) -> (usize, usize) {
        let Presence { connected, missing, .. } = self.status.presence();
        (connected, missing)
    }
}

#[test]
fn clients_are_where_the_events_put_them() {
    let mut told = Told::new(5, 3);
    assert_eq!((told.states(), told.present()), (vec!["missing".to_owned(); 5], (0, 5)));
    [0, 1, 2, 4].into_iter().for_each(|number| told.join(number));
    // Another node claims the number of one that is here; one is refused that is not.
    [1, 3, 70].into_iter().for_each(|number| told.refuse(number));
    assert_eq!(told.states(), ["joined", "joined", "joined", "refused", "joined"]);
    assert_eq!(told.present(), (4, 1));

    told.open(0, &[0, 1, 2]);
    assert_eq!(
        told.states(),
        ["contributing", "contributing", "contributing", "refused", "refused"]
    );
    told.progress(0, &[(0, CHUNKS), (1, 7), (2, 9)], 0);
    told.hear(AggregatorEvent::Lost { round: 0, contributor: 2 });
    assert_eq!(told.states()[..3], ["contributed", "contributing", "lost"]);
    assert_eq!(told.present(), (2, 3));
    told.hear(AggregatorEvent::Resumed { round: 0, contributor: 2 });
    assert_eq!(told.states()[2], "contributing");
    assert_eq!(told.json()["clients"]["each"][2]["chunks"], 9, "what came stays");

    told.close(0, 0, &[(0, CHUNKS), (1, 8), (2, CHUNKS)]);
    assert_eq!(told.states()[..3], ["contributed"; 3]);
    assert_eq!(told.json()["clients"]["each"][1]["chunks"], 8);
    // The next round may gather while sums are delivered.
    told.join(0);
    told.hear(AggregatorEvent::Finished { round: 0 });
    assert_eq!(told.states()[..3], ["joined", "missing", "missing"]);
    assert_eq!(told.json()["clients"]["states"]["missing"], 2);
    told.hear(AggregatorEvent::OpenFailed { reason: "its words".into() });
    assert_eq!(told.states()[0], "refused");
    assert!(!told.json().to_string().contains("its words"));
}

#[test]
fn phases_take_their_time() {
    let mut told = Told::new(3, 2);
    let phase = |told: &Told| {
        let json = told.json();
        (json["phase"].as_str().unwrap_or_default().to_owned(), json["phase_s"].as_f64())
    };
    told.pass(5);
    assert_eq!(phase(&told), ("waiting".into(), Some(0.0)), "for nobody yet");
    told.join(0);
    told.pass(3);
    assert_eq!(phase(&told), ("waiting".into(), Some(3.0)));
    let ranges = Some(RangesProgress { done: 70, levels: 640 });
    told.follow(Progress { ranges, ..told.nothing_yet() });
    assert_eq!(told.json()["ranges"], json!({"done": 70, "levels": 640}));
    told.follow(told.nothing_yet());
    assert_eq!(told.json()["ranges"], json!(null));
    told.join(1);
    assert_eq!(told.open(0, &[0, 1]), Some((RoundPhase::Waiting, 3)));
    told.pass(4);
    assert_eq!(phase(&told), ("summing".into(), Some(4.0)));
    assert_eq!(told.close(0, 20, &[(0, 480), (1, 400)]), Some((RoundPhase::Summing, 4)));
    told.pass(1);
    told.join(2);
    told.pass(1);
    assert_eq!(phase(&told), ("delivering".into(), Some(2.0)));
    assert_eq!(
        told.hear(AggregatorEvent::Finished { round: 0 }),
        Some((RoundPhase::Delivering, 2))
    );
    assert_eq!(phase(&told), ("waiting".into(), Some(1.0)));
    told.pass(9);
    told.join(0);
    assert_eq!(told.open(1, &[0, 2]), Some((RoundPhase::Waiting, 10)));
    let expected = json!({
        "round": 0, "phase": "finished", "contributors": 2, "whole_contributors": 0, "chunks": CHUNKS,
        "withheld": 20, "waiting_s": 3.0, "summing_s": 4.0, "delivering_s": 2.0,
    });
    let json = told.json();
    assert_eq!(json["last_rounds"][1], expected);
    assert_eq!((&json["last_rounds"][0]["round"], &json["round"]["round"]), (&json!(1), &json!(1)));
    assert_eq!(json["last_rounds"][0]["delivering_s"], Value::Null);
    // Events of a round that was never told of change nothing.
    assert_eq!(told.close(7, 0, &[]), None);
    assert_eq!(told.hear(AggregatorEvent::Finished { round: 7 }), None);
}

#[test]
fn cells_stand_for_all_chunks() {
    let mut told = Told::new(2, 0);
    told.open(0, &[0, 1]);
    // 500 chunks, three a cell: 166 cells of three and one of two.
    told.settle(0, 0..4, true);
    told.settle(0, 498..500, false);
    let round = &told.json()["round"];
    assert_eq!((&round["chunks_per_cell"], &round["settled"]), (&json!(3), &json!(6)));
    let cells = |name: &str| {
        let cells = round[name].as_array().into_iter().flatten();
        cells.map(|cell| cell.as_u64().unwrap_or(9)).collect::<Vec<_>>()
    };
    let (summed, withheld) = (cells("cells_summed"), cells("cells_withheld"));
    assert_eq!((&summed[..3], summed.len()), (&[3, 1, 0][..], 167));
    assert_eq!((withheld[166], withheld.iter().sum::<u64>()), (2, 2));
    for (chunks, cells) in [(0, 0), (1, 1), (240, 240), (241, 121), (u32::MAX, 240)] {
        assert_eq!(chunks.div_ceil(chunks_per_cell(chunks)), cells, "{chunks}");
    }
    told.open(1, &[0, 1]);
    assert_eq!(told.json()["round"]["settled"], 0);
}

#[test]
fn rates_are_those_of_each_second() {
    let mut told = Told::new(2, 1);
    for bytes in [0, 500, 2_500] {
        told.progress(0, &[], bytes);
        // Ten times a second there is a progress.
        told.progress(0, &[], bytes + 1);
        told.pass(2);
    }
    let traffic = &told.json()["traffic"];
    assert_eq!(traffic["history_received_bytes_per_s"], json!([250.0, 1000.0]));
    assert_eq!(traffic["received_bytes_per_s"], 1000.0);
    assert_eq!(traffic["received_bytes"], 2_501);
    for _ in 0..2 * MAX_SAMPLES {
        told.progress(0, &[], 9_999);
        told.pass(1);
    }
    let history = told.json()["traffic"]["history_sent_bytes_per_s"].as_array().map(Vec::len);
    assert_eq!(history, Some(MAX_SAMPLES - 1));
}

#[test]
fn what_is_kept_is_bounded() {
    let mut told = Told::new(2, 0);
    for round in 0..3 * MAX_ROUNDS as u32 {
        told.open(round, &[0, 1]);
        told.close(round, 0, &[(0, CHUNKS), (1, CHUNKS)]);
        told.hear(AggregatorEvent::Finished { round });
        (0..9).for_each(|i| told.status.note(&format!("event {round} {i}")));
    }
    let json = told.json();
    assert_eq!(json["last_rounds"].as_array().map(Vec::len), Some(MAX_ROUNDS));
    assert_eq!(json["last_rounds"][0]["round"], 59, "the latest first");
    assert_eq!(json["events"].as_array().map(Vec::len), Some(MAX_EVENTS));
    assert_eq!(json["events"][0]["text"], "event 59 8");
}

#[test]
fn health_needs_turns_and_readiness_a_round_to_come() {
    let mut told = Told::new(2, 1);
    let verdicts = |told: &Told| (told.status.health(told.now), told.status.readiness(told.now));
    assert_eq!(verdicts(&told), (Ok(()), Err("not listening yet".into())));
    told.progress(0, &[], 0);
    assert_eq!(verdicts(&told), (Ok(()), Ok(())));
    told.pass(11);
    let stalled = Err("the loop of datagrams stalls for 11 s".to_owned());
    assert_eq!(verdicts(&told), (stalled.clone(), stalled));
    told.progress(0, &[], 0);
    told.open(0, &[0, 1]);
    let late = "the last round is open or over: nobody can join";
    assert_eq!(verdicts(&told), (Ok(()), Err(late.into())));
    told.status.end(Stats::default());
    let over = Err("all rounds are over".to_owned());
    assert_eq!(verdicts(&told), (over.clone(), over));
    // Without an end there is always another round.
    let mut endless = Told::new(2, 0);
    endless.progress(0, &[], 0);
    for round in 0..3 {
        endless.open(round, &[0, 1]);
    }
    assert_eq!(verdicts(&endless).1, Ok(()));
}
