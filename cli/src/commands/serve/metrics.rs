//! The counters of `serve` as OpenMetrics text, which Prometheus reads. Names and numbers of events
//! only: no key and no node.

use std::fmt;

use ciphergram_nic::{
    federation::Observation,
    proto::{Stats, Traffic},
    round::AggregatorEvent,
};
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric as _, text},
    metrics::{MetricType, counter::ConstCounter, histogram::Histogram, info::Info},
    registry::{Registry, Unit},
};

use super::status::{Phase, Presence};

/// The upper ends of the histograms' buckets, in seconds.
const BUCKETS_S: [f64; 12] =
    [0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1_000.0, 3_000.0];

/// Numbers of events since the start. A clone shows later seconds, but no later counters.
#[derive(Clone, Debug)]
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
    /// Seconds of each phase of rounds.
    phases: [(Phase, Histogram); 3],
}

impl Metrics {
    pub(super) fn new() -> Self {
        let phases = Phase::ALL.map(|phase| (phase, Histogram::new(BUCKETS_S)));
        Self {
            stats: Stats::default(),
            rounds_opened: 0,
            rounds_closed: 0,
            chunks_summed: 0,
            chunks_withheld: 0,
            clients_joined: 0,
            clients_refused: 0,
            clients_resumed: 0,
            clients_lost: 0,
            phases,
        }
    }

    pub(super) fn follow(&mut self, seen: &Observation) {
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
            AggregatorEvent::Preparing { .. }
            | AggregatorEvent::OpenFailed { .. }
            | AggregatorEvent::TooFew(_)
            | AggregatorEvent::Allowed { .. }
            | AggregatorEvent::Finished { .. }
            | AggregatorEvent::Stranger { .. } => return,
        };
        *counter += 1;
    }

    /// Adds the seconds that a round spent in a phase.
    pub(super) fn spent(&self, phase: Phase, seconds: f64) {
        let own = self.phases.iter().filter(|(of, _)| *of == phase);
        own.for_each(|(_, histogram)| histogram.observe(seconds));
    }

    /// Writes all numbers, with who is here besides.
    ///
    /// # Errors
    ///
    /// None that a string could have.
    pub(super) fn page(self, present: Presence) -> Result<String, fmt::Error> {
        let mut registry = Registry::with_prefix("ciphergram");
        registry.register_collector(Box::new(Shown { metrics: self, present }));
        let mut page = String::new();
        text::encode(&mut page, &registry)?;
        Ok(page)
    }
}

#[derive(Debug)]
struct Shown {
    metrics: Metrics,
    present: Presence,
}

impl Collector for Shown {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        let help = "Version of the program.";
        let build = encoder.encode_descriptor("build", help, None, MetricType::Info)?;
        Info::new([("version", env!("CARGO_PKG_VERSION"))]).encode(build)?;
        for (name, help, value) in self.present.gauges() {
            encoder.encode_descriptor(name, help, None, MetricType::Gauge)?.encode_gauge(&value)?;
        }
        let help = "Time of rounds: from the first client's joining to the opening, from there to the last chunk's \
                    settling, from there to the last delivery.";
        let (kind, unit) = (MetricType::Histogram, Unit::Seconds);
        let mut family = encoder.encode_descriptor("phase", help, Some(&unit), kind)?;
        for (phase, histogram) in &self.metrics.phases {
            histogram.encode(family.encode_family(&[("phase", phase.name())])?)?;
        }
        self.metrics.encode_traffic(&mut encoder)?;
        for (name, help, value) in self.metrics.counters() {
            let counter = ConstCounter::new(value);
            counter.encode(encoder.encode_descriptor(name, help, None, MetricType::Counter)?)?;
        }
        Ok(())
    }
}

impl Metrics {
    fn encode_traffic(&self, encoder: &mut DescriptorEncoder) -> Result<(), fmt::Error> {
        let (mut datagrams, mut bytes) = (vec![], vec![]);
        for (way, traffic) in [("sent", self.stats.sent), ("received", self.stats.received)] {
            let Traffic { datagrams: count, header_bytes, payload_bytes, tag_bytes } = traffic;
            for (part, count) in
                [("header", header_bytes), ("payload", payload_bytes), ("tag", tag_bytes)]
            {
                bytes.push(([("direction", way), ("part", part)], count));
            }
            datagrams.push(([("direction", way)], count));
        }
        let shown: Vec<_> = datagrams.iter().map(|(labels, count)| (&labels[..], *count)).collect();
        let help = "Datagrams of sessions, acknowledgements and retransmissions included.";
        count(encoder, "datagrams", help, &shown)?;
        let shown: Vec<_> = bytes.iter().map(|(labels, count)| (&labels[..], *count)).collect();
        count(encoder, "bytes", "Bytes of those datagrams, without UDP and IP headers.", &shown)
    }

    /// Returns all counters without labels. Every field is named, so that the compiler sees that
    /// none is forgotten.
    fn counters(&self) -> [(&'static str, &'static str, u64); 19] {
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
            phases: _,
        } = *self;
        let Stats {
            sent: _,
            received: _,
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
        [
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
        ]
    }
}

type Labels<'a> = &'a [(&'static str, &'static str)];

/// Writes one counter, with a value for each set of labels.
fn count(
    encoder: &mut DescriptorEncoder,
    name: &str,
    help: &str,
    values: &[(Labels, u64)],
) -> Result<(), fmt::Error> {
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    for (labels, value) in values {
        ConstCounter::new(*value).encode(family.encode_family(labels)?)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use ciphergram_nic::{
        federation::Progress,
        proto::{NodeId, Peer},
        round::RoundSummary,
    };

    use super::*;
    use crate::commands::serve::status::{Status, Terms};

    /// Every counter has a different number, so that none stands for another.
    #[test]
    fn each_counter_counts_its_own() {
        let node: NodeId = "A".repeat(43).parse().unwrap_or_else(|e| panic!("{e}"));
        let (round, contributor, chunk) = (0, 9, 5);
        let settled = |leaves| AggregatorEvent::Settled { round, chunk, contributors: 3, leaves };
        let reason = || "its words".to_owned();
        let events = [
            AggregatorEvent::Joined { contributor, peer: Peer::of(node), missing: vec![] },
            AggregatorEvent::Refused { contributor, reason: reason() },
            AggregatorEvent::Resumed { round, contributor },
            AggregatorEvent::Lost { round, contributor },
            AggregatorEvent::Opened { round, contributors: vec![contributor], chunks: 9 },
            AggregatorEvent::Closed(RoundSummary {
                round,
                closed: 70,
                withheld: 80,
                reason: reason(),
                contributed: vec![],
            }),
            settled(true),
            settled(false),
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
        let mut metrics = Metrics::new();
        for (times, event) in (1..).zip(events) {
            (0..times).for_each(|_| metrics.follow(&Observation::Event(event.clone())));
        }
        let elapsed = std::time::Duration::ZERO;
        let progress = Progress { elapsed, waiting: 0, ranges: None, round: None, stats };
        metrics.follow(&Observation::Progress(progress));
        metrics.spent(Phase::Summing, 0.5);
        let terms = Terms { scheme: "ckks-sum", clients: 12, min_clients: 1, rounds: 1 };
        let mut status = Status::new(terms, Instant::now());
        let joined = AggregatorEvent::Joined { contributor, peer: Peer::of(node), missing: vec![] };
        status.follow(&Observation::Event(joined), Instant::now());
        let page = metrics.page(status.presence()).unwrap_or_else(|e| panic!("{e}"));
        assert!(page.ends_with("# EOF\n"), "{page}");
        let (buckets, values): (Vec<_>, Vec<_>) = page
            .lines()
            .filter(|line| !line.starts_with('#'))
            .partition(|line| line.starts_with("ciphergram_phase_seconds_bucket{"));
        assert_eq!(buckets.len(), 3 * (BUCKETS_S.len() + 1));
        let summing = |line: &&&str| line.contains("summing") && line.ends_with(" 1");
        assert_eq!(buckets.iter().filter(summing).count(), BUCKETS_S.len() - 3, "{page}");
        let expected = "\
            build_info{version=\"0.1.0\"} 1\n\
            round -1\n\
            clients_connected 1\n\
            clients_missing 11\n\
            phase_seconds_sum{phase=\"waiting\"} 0.0\n\
            phase_seconds_count{phase=\"waiting\"} 0\n\
            phase_seconds_sum{phase=\"summing\"} 0.5\n\
            phase_seconds_count{phase=\"summing\"} 1\n\
            phase_seconds_sum{phase=\"delivering\"} 0.0\n\
            phase_seconds_count{phase=\"delivering\"} 0\n\
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
            clients_lost_total 4";
        let expected: Vec<_> = expected.lines().map(|line| format!("ciphergram_{line}")).collect();
        assert_eq!(values, expected);
        assert!(!page.contains(&node.to_string()) && !page.contains("its words"), "{page}");
    }
}
