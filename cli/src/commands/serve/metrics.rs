//! The counters of `serve`, in the text format of Prometheus, version 0.0.4. Names and numbers of
//! events only: no key and no node.

use std::{
    fmt::Write as _,
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use ciphergram_nic::{
    federation::Observation,
    proto::{Stats, Traffic},
    round::AggregatorEvent,
};

use super::responder::{Responder, lock};
use crate::failure::Failure;

/// Counters, and the thread that shows them over HTTP.
pub(super) struct Metrics {
    counters: Arc<Mutex<Counters>>,
    responder: Responder,
}

impl Metrics {
    pub(super) fn start(address: SocketAddr) -> Result<Self, Failure> {
        let counters = Arc::new(Mutex::new(Counters::default()));
        let shared = counters.clone();
        // The page is written from a copy, so that the round never waits for longer than copying.
        let page = move || {
            let now = *lock(&shared);
            now.page()
        };
        let responder = Responder::start(address, page)
            .map_err(|error| Failure::Work(format!("--metrics {address}: {error}")))?;
        Ok(Self { counters, responder })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.responder.address()
    }

    pub(super) fn follow(&self, seen: &Observation) {
        lock(&self.counters).follow(seen);
    }

    /// Takes the last numbers, once all rounds are over.
    pub(super) fn end(&self, stats: Stats) {
        lock(&self.counters).stats = stats;
    }

    /// Ends after the answer in progress.
    pub(super) fn finish(self) {
        self.responder.finish();
    }
}

/// Numbers of events since the start.
#[derive(Clone, Copy, Default)]
struct Counters {
    /// As of the latest progress.
    stats: Stats,
    rounds_opened: u64,
    rounds_closed: u64,
    chunks_summed: u64,
    chunks_withheld: u64,
    clients_joined: u64,
    clients_refused: u64,
    clients_resumed: u64,
    clients_lost: u64,
    equivocations: u64,
}

impl Counters {
    fn follow(&mut self, seen: &Observation) {
        let event = match seen {
            Observation::Progress(progress) => {
                self.stats = progress.stats;
                return;
            }
            Observation::Event(event) => event,
        };
        let counter = match event {
            AggregatorEvent::Joined { .. } => &mut self.clients_joined,
            AggregatorEvent::Refused { .. } => &mut self.clients_refused,
            AggregatorEvent::Resumed { .. } => &mut self.clients_resumed,
            AggregatorEvent::Lost { .. } => &mut self.clients_lost,
            AggregatorEvent::Opened { .. } => &mut self.rounds_opened,
            AggregatorEvent::Closed(_) => &mut self.rounds_closed,
            AggregatorEvent::Settled { leaves: true, .. } => &mut self.chunks_summed,
            AggregatorEvent::Settled { leaves: false, .. } => &mut self.chunks_withheld,
            AggregatorEvent::Equivocation { .. } => &mut self.equivocations,
            AggregatorEvent::OpenFailed { .. }
            | AggregatorEvent::TooFew(_)
            | AggregatorEvent::Allowed { .. }
            | AggregatorEvent::Finished { .. } => return,
        };
        *counter += 1;
    }

    /// Writes all counters. Every field is named, so that the compiler sees that none is forgotten.
    fn page(self) -> String {
        let Self {
            stats,
            rounds_opened,
            rounds_closed,
            chunks_summed,
            chunks_withheld,
            clients_joined,
            clients_refused,
            clients_resumed,
            clients_lost,
            equivocations,
        } = self;
        let Stats {
            sent,
            received,
            acks_sent,
            retransmitted,
            paths_rested,
            duplicates,
            refused,
            overrun,
            trimmed,
            congested,
            malformed,
            handshakes,
            turned_away,
        } = stats;
        let (mut datagrams, mut bytes) = (vec![], vec![]);
        for (way, traffic) in [("sent", sent), ("received", received)] {
            let Traffic { datagrams: count, header_bytes, payload_bytes, tag_bytes } = traffic;
            let label = format!("direction=\"{way}\"");
            for (part, count) in
                [("header", header_bytes), ("payload", payload_bytes), ("tag", tag_bytes)]
            {
                bytes.push((format!("{{{label},part=\"{part}\"}}"), count));
            }
            datagrams.push((format!("{{{label}}}"), count));
        }
        let mut page = String::new();
        family(
            &mut page,
            "datagrams",
            "Datagrams of sessions, acknowledgements and retransmissions included.",
            &datagrams,
        );
        family(&mut page, "bytes", "Bytes of those datagrams, without UDP and IP headers.", &bytes);
        for (name, help, value) in [
            ("acks_sent", "Of the datagrams sent: acknowledgements.", acks_sent),
            ("datagrams_retransmitted", "Of the datagrams sent: retransmissions.", retransmitted),
            ("paths_rested", "Paths left to rest, for silence or lag.", paths_rested),
            (
                "datagrams_duplicate",
                "Of the datagrams received: already committed, or too old to matter.",
                duplicates,
            ),
            ("datagrams_refused", "Of the datagrams received: refused with a code.", refused),
            (
                "datagrams_overrun",
                "Of the datagrams received: dropped because a bound was reached.",
                overrun,
            ),
            (
                "datagrams_trimmed",
                "Of the datagrams received: headers whose payload was cut off on the way.",
                trimmed,
            ),
            (
                "datagrams_congested",
                "Of the datagrams received: marked for congestion on the way (ECN).",
                congested,
            ),
            ("datagrams_malformed", "Datagrams that no session vouches for.", malformed),
            ("handshake_datagrams", "Datagrams of handshakes, both ways.", handshakes),
            ("handshakes_turned_away", "First messages that got no answer.", turned_away),
            ("rounds_opened", "Rounds opened.", rounds_opened),
            ("rounds_closed", "Rounds whose chunks are all settled.", rounds_closed),
            ("chunks_summed", "Chunks summed and written back.", chunks_summed),
            ("chunks_withheld", "Chunks whose sums never leave.", chunks_withheld),
            ("clients_joined", "Clients admitted to a round.", clients_joined),
            ("clients_refused", "Clients refused with a reason.", clients_refused),
            ("clients_resumed", "Clients back with their contributions.", clients_resumed),
            ("clients_lost", "Clients that no longer answered.", clients_lost),
            (
                "equivocations",
                "Chunks that a client sent twice with different bytes.",
                equivocations,
            ),
        ] {
            family(&mut page, name, help, &[(String::new(), value)]);
        }
        page
    }
}

/// One counter, with a value for each set of labels.
fn family(page: &mut String, name: &str, help: &str, values: &[(String, u64)]) {
    let name = format!("ciphergram_{name}_total");
    // Writing to a string does not fail.
    let _ = write!(page, "# HELP {name} {help}\n# TYPE {name} counter\n");
    for (labels, value) in values {
        let _ = writeln!(page, "{name}{labels} {value}");
    }
}

#[cfg(test)]
mod tests {
    use ciphergram_nic::{
        federation::Progress,
        proto::{NodeId, Peer},
        round::RoundSummary,
    };

    use super::*;

    /// Every counter has a different number, so that none stands for another.
    #[test]
    fn each_counter_counts_its_own() {
        let node: NodeId = "A".repeat(43).parse().unwrap_or_else(|e| panic!("{e}"));
        let (round, contributor, chunk) = (0, 9, 5);
        let settled = |leaves| AggregatorEvent::Settled { round, chunk, contributors: 3, leaves };
        let reason = || "its words".to_owned();
        let events = [
            AggregatorEvent::Joined { contributor, peer: Peer::of(node) },
            AggregatorEvent::Refused { contributor, reason: reason() },
            AggregatorEvent::Resumed { round, contributor },
            AggregatorEvent::Lost { round, contributor },
            AggregatorEvent::Opened { round, contributors: vec![contributor] },
            AggregatorEvent::Closed(RoundSummary {
                round,
                closed: 70,
                withheld: 80,
                reason: reason(),
                contributed: vec![],
            }),
            settled(true),
            settled(false),
            AggregatorEvent::Equivocation { round, contributor, chunk },
            AggregatorEvent::OpenFailed { reason: reason() },
            AggregatorEvent::Finished { round },
        ];
        let traffic = |from| Traffic {
            datagrams: from,
            header_bytes: from + 1,
            payload_bytes: from + 2,
            tag_bytes: from + 3,
        };
        let stats = Stats {
            sent: traffic(20),
            received: traffic(30),
            acks_sent: 40,
            retransmitted: 41,
            paths_rested: 49,
            duplicates: 42,
            refused: 43,
            overrun: 44,
            trimmed: 45,
            congested: 50,
            malformed: 46,
            handshakes: 47,
            turned_away: 48,
        };
        let mut counters = Counters::default();
        for (times, event) in (1..).zip(events) {
            (0..times).for_each(|_| counters.follow(&Observation::Event(event.clone())));
        }
        let elapsed = std::time::Duration::ZERO;
        let progress = Progress { elapsed, waiting: 0, round: None, stats };
        counters.follow(&Observation::Progress(progress));
        let page = counters.page();
        let values = page.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>();
        let expected = "\
            datagrams_total{direction=\"sent\"} 20\n\
            datagrams_total{direction=\"received\"} 30\n\
            bytes_total{direction=\"sent\",part=\"header\"} 21\n\
            bytes_total{direction=\"sent\",part=\"payload\"} 22\n\
            bytes_total{direction=\"sent\",part=\"tag\"} 23\n\
            bytes_total{direction=\"received\",part=\"header\"} 31\n\
            bytes_total{direction=\"received\",part=\"payload\"} 32\n\
            bytes_total{direction=\"received\",part=\"tag\"} 33\n\
            acks_sent_total 40\n\
            datagrams_retransmitted_total 41\n\
            paths_rested_total 49\n\
            datagrams_duplicate_total 42\n\
            datagrams_refused_total 43\n\
            datagrams_overrun_total 44\n\
            datagrams_trimmed_total 45\n\
            datagrams_congested_total 50\n\
            datagrams_malformed_total 46\n\
            handshake_datagrams_total 47\n\
            handshakes_turned_away_total 48\n\
            rounds_opened_total 5\n\
            rounds_closed_total 6\n\
            chunks_summed_total 7\n\
            chunks_withheld_total 8\n\
            clients_joined_total 1\n\
            clients_refused_total 2\n\
            clients_resumed_total 3\n\
            clients_lost_total 4\n\
            equivocations_total 9";
        let expected: Vec<_> = expected.lines().map(|line| format!("ciphergram_{line}")).collect();
        assert_eq!(values, expected);
        assert!(!page.contains(&node.to_string()) && !page.contains("its words"), "{page}");
    }
}
