//! The progress of `serve`, as one line on a terminal; nothing anywhere else.

use std::{collections::VecDeque, time::Duration};

use ciphergram_nic::federation::{self, RangesProgress};

use crate::{progress::ProgressLine, report::counted};

/// Reports that a rate is taken over: a second or more.
const WINDOW: usize = 10;

/// The line, erased when dropped.
pub(super) struct Live {
    progress: ProgressLine,
    rate: Rate,
}

impl Live {
    /// Returns a line, unless events are for programs (`json`).
    pub(super) fn new(json: bool) -> Self {
        Self { progress: ProgressLine::new(json, ""), rate: Rate::default() }
    }

    /// Shows how far the server is.
    pub(super) fn show(&mut self, seen: &federation::Progress) {
        let rate = self.rate.follow(seen.elapsed, seen.stats.received.wire_bytes());
        self.progress.say(line(seen, rate));
    }
}

/// Bytes a second, over the latest reports.
#[derive(Default)]
struct Rate(VecDeque<(Duration, u64)>);

impl Rate {
    /// Adds a report, and returns the rate up to now; zero before there are two reports.
    fn follow(&mut self, elapsed: Duration, bytes: u64) -> f64 {
        let (since, former) = self.0.front().copied().unwrap_or((elapsed, bytes));
        self.0.push_back((elapsed, bytes));
        if self.0.len() > WINDOW {
            self.0.pop_front();
        }
        let seconds = elapsed.saturating_sub(since).as_secs_f64();
        if seconds > 0.0 { bytes.saturating_sub(former) as f64 / seconds } else { 0.0 }
    }
}

fn line(progress: &federation::Progress, bytes_per_second: f64) -> String {
    let mut parts = vec![];
    if let Some(round) = &progress.round {
        parts.push(format!(
            "round {}: {}, {} of {} chunks settled",
            round.round,
            counted(round.received.len(), "contributor"),
            round.settled,
            round.chunks
        ));
    }
    if let Some(RangesProgress { done, levels }) = progress.ranges {
        parts.push(format!("finding ranges: {done} of {levels} levels"));
    }
    if progress.waiting > 0 || progress.round.is_none() {
        parts.push(format!("{} waiting for the next round", progress.waiting));
    }
    parts.push(format!("{:.1} MB/s received", bytes_per_second / 1e6));
    parts.push(format!("{} retransmitted", progress.stats.retransmitted));
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use ciphergram_nic::{proto::Stats, round::RoundProgress};

    use super::*;

    #[test]
    fn a_line_says_how_far_the_round_is() {
        let stats = Stats { retransmitted: 7, ..Stats::default() };
        let (elapsed, waiting) = (Duration::ZERO, 2);
        let mut progress =
            federation::Progress { elapsed, waiting, ranges: None, round: None, stats };
        let shown = "2 waiting for the next round, 0.0 MB/s received, 7 retransmitted";
        assert_eq!(line(&progress, 0.0), shown);
        progress.ranges = Some(RangesProgress { done: 70, levels: 640 });
        let shown = format!("finding ranges: 70 of 640 levels, {shown}");
        assert_eq!(line(&progress, 0.0), shown);
        let round = RoundProgress {
            round: 4,
            received: vec![(0, 40), (2, 12), (5, 30)],
            chunks: 90,
            settled: 12,
        };
        (progress.round, progress.ranges, progress.waiting) = (Some(round), None, 0);
        let shown = "round 4: 3 contributors, 12 of 90 chunks settled, 12.3 MB/s received, \
                    7 retransmitted";
        assert_eq!(line(&progress, 12_345_678.0), shown);
        progress.waiting = 1;
        assert!(line(&progress, 0.0).contains("90 chunks settled, 1 waiting for the next round,"));
    }

    #[test]
    fn rates_are_over_the_latest_reports() {
        let mut rate = Rate::default();
        let at = |tenths: u64| Duration::from_millis(100 * tenths);
        assert_eq!(rate.follow(at(1), 500), 0.0);
        assert_eq!(rate.follow(at(1), 500), 0.0, "no time has passed");
        assert!((rate.follow(at(6), 1500) - 2000.0).abs() < 1e-6);
        // Old reports no longer count.
        let last = (7..30).map(|tenths| rate.follow(at(tenths), 1500)).last();
        assert_eq!(last, Some(0.0));
    }
}
