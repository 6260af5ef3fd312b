//! The counters of `serve` as OpenMetrics text, which Prometheus reads. Names and numbers of events
//! only: no key and no node.

use ciphergram_nic::{
    federation::Observation,
    proto::{Stats, Traffic},
    round::AggregatorEvent,
};

use crate::responder::{family, version_family};

/// The upper ends of the histograms' buckets, in seconds.
const BUCKETS_S: [f64; 12] =
    [0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1_000.0, 3_000.0];

/// A phase of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RoundPhase {
    /// From the first client's joining to the opening.
    Waiting,
    /// From the opening until every chunk is settled.
    Summing,
    /// From there until every sum is delivered, or given up.
    Delivering,
}

impl RoundPhase {
    pub(super) const ALL: [Self; 3] = [Self::Waiting, Self::Summing, Self::Delivering];

    pub(super) fn name(self) -> &'static str {
        ["waiting", "summing", "delivering"][self as usize]
    }
}

/// The presence of clients, and the round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Presence {
    pub(super) connected: usize,
    pub(super) missing: usize,
    /// The open round, or the last one; none before the first.
    pub(super) round: Option<u32>,
}

/// Numbers of events since the start.
#[derive(Clone, Default)]
pub(super) struct Metrics {
    /// As of the latest progress.
    pub(super) stats: Stats,
    rounds_opened: u64,
    rounds_closed: u64,
    chunks_summed: u64,
    chunks_withheld: u64,
    clients_joined: u64,
    clients_refused: u64,
    clients_resumed: u64,
    clients_lost: u64,
    openers_answered: u64,
    openers_refused: u64,
    /// Of each phase of rounds.
    phases: [Histogram; RoundPhase::ALL.len()],
}

#[derive(Clone, Default)]
struct Histogram {
    sum: f64,
    /// Of each bucket by itself; the last one has no end.
    counts: [u64; BUCKETS_S.len() + 1],
}

impl Metrics {
    pub(super) fn follow(&mut self, seen: &Observation) {
        let counter = match seen {
            Observation::Progress(progress) => {
                self.stats = progress.stats;
                return;
            }
            Observation::Event(event) => match event {
                AggregatorEvent::Joined { .. } => &mut self.clients_joined,
                AggregatorEvent::Refused { .. } => &mut self.clients_refused,
                AggregatorEvent::Resumed { .. } => &mut self.clients_resumed,
                AggregatorEvent::Lost { .. } => &mut self.clients_lost,
                AggregatorEvent::Opened { .. } => &mut self.rounds_opened,
                AggregatorEvent::Closed(_) => &mut self.rounds_closed,
                AggregatorEvent::Settled { leaves: true, .. } => &mut self.chunks_summed,
                AggregatorEvent::Settled { leaves: false, .. } => &mut self.chunks_withheld,
                AggregatorEvent::OpenerAnswered { .. } => &mut self.openers_answered,
                AggregatorEvent::OpenerRefused { .. } => &mut self.openers_refused,
                AggregatorEvent::Preparing { .. }
                | AggregatorEvent::OpenerAttends { .. }
                | AggregatorEvent::TooFewAnswers { .. }
                | AggregatorEvent::OpenFailed { .. }
                | AggregatorEvent::TooFew(_)
                | AggregatorEvent::Allowed { .. }
                | AggregatorEvent::Finished { .. }
                | AggregatorEvent::Stranger { .. } => return,
            },
        };
        *counter += 1;
    }

    /// Adds the seconds that a round spent in a phase.
    pub(super) fn spent(&mut self, phase: RoundPhase, seconds: f64) {
        let Histogram { sum, counts } = &mut self.phases[phase as usize];
        *sum += seconds;
        counts[BUCKETS_S.partition_point(|&end| end < seconds)] += 1;
    }

    /// Writes all numbers, with who is here besides.
    pub(super) fn page(&self, present: Presence) -> String {
        let mut page = String::new();
        version_family(&mut page);
        let round = present.round.map_or(-1, i64::from);
        let gauges = [
            ("round", "Number of the open round, or the last one; -1 before the first.", round),
            (
                "clients_connected",
                "Clients that wait for a round or take part in one.",
                present.connected as i64,
            ),
            ("clients_missing", "Clients declared that do neither.", present.missing as i64),
        ];
        for (name, help, value) in gauges {
            family(&mut page, "gauge", name, help, [(String::new(), value)]);
        }
        self.write_phases(&mut page);
        self.write_traffic(&mut page);
        for (name, help, value) in self.counters() {
            family(&mut page, "counter", name, help, [("_total".into(), value)]);
        }
        page
    }

    fn write_phases(&self, page: &mut String) {
        let mut lines = vec![];
        for (phase, Histogram { sum, counts }) in RoundPhase::ALL.iter().zip(&self.phases) {
            let phase = format!("phase=\"{}\"", phase.name());
            lines.push((format!("_sum{{{phase}}}"), format!("{sum:?}")));
            let all: u64 = counts.iter().sum();
            lines.push((format!("_count{{{phase}}}"), all.to_string()));
            let (mut until, ends) = (0, BUCKETS_S.map(|end| format!("{end:?}")));
            for (count, end) in counts.iter().zip(ends.into_iter().chain(["+Inf".into()])) {
                until += count;
                lines.push((format!("_bucket{{le=\"{end}\",{phase}}}"), until.to_string()));
            }
        }
        let help = "Time of rounds: from the first client's joining to the opening, from there to the last chunk's \
                    settling, from there to the last delivery.";
        family(page, "histogram", "phase_seconds", help, lines);
    }

    fn write_traffic(&self, page: &mut String) {
        let (mut datagrams, mut bytes) = (vec![], vec![]);
        for (way, traffic) in [("sent", self.stats.sent), ("received", self.stats.received)] {
            let Traffic { datagrams: count, header_bytes, payload_bytes, tag_bytes } = traffic;
            let way = format!("_total{{direction=\"{way}\"");
            let parts = [("header", header_bytes), ("payload", payload_bytes), ("tag", tag_bytes)];
            bytes.extend(parts.map(|(part, count)| (format!("{way},part=\"{part}\"}}"), count)));
            datagrams.push((format!("{way}}}"), count));
        }
        let help = "Datagrams of sessions, acknowledgements and retransmissions included.";
        family(page, "counter", "datagrams", help, datagrams);
        let help = "Bytes of those datagrams, without UDP and IP headers.";
        family(page, "counter", "bytes", help, bytes);
    }

    /// Returns all counters without labels: name, help, value. Every field is named, so that the compiler sees that
    /// none is forgotten.
    #[rustfmt::skip]
    fn counters(&self) -> [(&'static str, &'static str, u64); 21] {
        let Self {
            stats, rounds_opened, rounds_closed, chunks_summed, chunks_withheld, clients_joined, clients_refused,
            clients_resumed, clients_lost, openers_answered, openers_refused, phases: _,
        } = *self;
        let Stats {
            sent: _, received: _, datagram_bytes: _, acks_sent, retransmitted, paths_rested, duplicates, refused, overrun, trimmed,
            congested, malformed, handshakes, turned_away,
        } = stats;
        [
            ("acks_sent", "Of the datagrams sent: acknowledgements.", acks_sent),
            ("datagrams_retransmitted", "Of the datagrams sent: retransmissions.", retransmitted),
            ("paths_rested", "Paths left to rest, for silence or lag.", paths_rested),
            ("datagrams_duplicate", "Of the datagrams received: already committed, or too old to matter.", duplicates),
            ("datagrams_refused", "Of the datagrams received: refused with a code.", refused),
            ("datagrams_overrun", "Of the datagrams received: dropped because a bound was reached.", overrun),
            ("datagrams_trimmed", "Of the datagrams received: headers whose payload was cut off on the way.", trimmed),
            ("datagrams_congested", "Of the datagrams received: marked for congestion on the way (ECN).", congested),
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
            ("openers_answered", "Answers of openers.", openers_answered),
            ("openers_refused", "Openers' refusals to answer, and answers that were none.", openers_refused),
        ]
    }
}

#[cfg(test)]
#[path = "metrics/tests.rs"]
mod tests;
