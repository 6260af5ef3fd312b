//! Every counter has a number of its own.

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
        datagram_bytes: 1372,
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
    let mut metrics = Metrics::default();
    for (times, event) in (1..).zip(events) {
        (0..times).for_each(|_| metrics.follow(&Observation::Event(event.clone())));
    }
    let elapsed = std::time::Duration::ZERO;
    let progress = Progress { elapsed, waiting: 0, ranges: None, round: None, stats };
    metrics.follow(&Observation::Progress(progress));
    metrics.spent(RoundPhase::Summing, 0.5);
    let terms = Terms { scheme: "ckks-sum", clients: 12, min_clients: 1, rounds: 1 };
    let mut status = Status::new(terms, Instant::now());
    let joined = AggregatorEvent::Joined { contributor, peer: Peer::of(node), missing: vec![] };
    status.follow(&Observation::Event(joined), Instant::now());
    let page = metrics.page(status.presence());
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
        clients_lost_total 4\n\
        openers_answered_total 0\n\
        openers_refused_total 0";
    let expected: Vec<_> = expected.lines().map(|line| format!("ciphergram_{line}")).collect();
    assert_eq!(values, expected);
    assert!(!page.contains(&node.to_string()) && !page.contains("its words"), "{page}");
}
