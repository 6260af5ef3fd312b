//! How fast to send to one peer, and how long to wait for it (PROTOCOL §4.3, §4.4).

use std::time::Duration;

/// Retransmission timeout before any sample of the round-trip time.
pub const INITIAL_RTO: Duration = Duration::from_millis(100);
/// The shortest retransmission timeout: a scheduler's hiccup on a busy machine.
pub const MIN_RTO: Duration = Duration::from_millis(10);
/// The longest, backoff included; short enough for some thirty attempts within the give-up span.
pub const MAX_RTO: Duration = Duration::from_millis(300);
/// Datagrams in flight to a new peer.
pub const INITIAL_WINDOW: usize = 32;
/// The window never shrinks below this.
pub const MIN_WINDOW: usize = 4;
/// The window never grows beyond this: 512 datagrams of 1,472 bytes fill a quarter of a 4 MiB
/// socket buffer, as the kernel accounts for them.
pub const MAX_WINDOW: usize = 512;

/// Round-trip estimate and window towards one peer.
#[derive(Debug)]
pub(super) struct Pace {
    /// Smoothed round-trip time and its mean deviation, once sampled.
    rtt: Option<(Duration, Duration)>,
    /// Doublings of the timeout since the last clean sample.
    backoff: u32,
    window: usize,
    /// Below it the window doubles per round trip, above it grows by one.
    threshold: usize,
    /// Acknowledgements since the window last grew by one.
    credit: usize,
}

impl Pace {
    pub(super) fn new() -> Self {
        Self { rtt: None, backoff: 0, window: INITIAL_WINDOW, threshold: MAX_WINDOW, credit: 0 }
    }

    pub(super) fn window(&self) -> usize {
        self.window
    }

    /// SRTT + 4·RTTVAR, doubled by backoff, within [`MIN_RTO`] and [`MAX_RTO`] (after RFC 6298 §2).
    pub(super) fn rto(&self) -> Duration {
        let rto = self.rtt.map_or(INITIAL_RTO, |(smoothed, deviation)| smoothed + 4 * deviation);
        (rto.max(MIN_RTO) * (1 << self.backoff)).min(MAX_RTO)
    }

    /// An acknowledgement, with the round-trip time unless the datagram was retransmitted: then
    /// nobody knows which transmission it answers (Karn), and the backoff stays.
    pub(super) fn on_ack(&mut self, rtt: Option<Duration>) {
        if let Some(sample) = rtt {
            self.backoff = 0;
            self.rtt = Some(match self.rtt {
                None => (sample, sample / 2),
                Some((smoothed, deviation)) => {
                    ((7 * smoothed + sample) / 8, (3 * deviation + smoothed.abs_diff(sample)) / 4)
                }
            });
        }
        self.credit += if self.window < self.threshold { self.window } else { 1 };
        if self.credit >= self.window {
            self.credit = 0;
            self.window = (self.window + 1).min(MAX_WINDOW);
        }
    }

    /// A timeout; the caller counts at most one per timeout span.
    pub(super) fn on_loss(&mut self) {
        // 2^5 × MIN_RTO exceeds MAX_RTO, so that more doublings would change nothing.
        self.backoff = (self.backoff + 1).min(5);
        self.threshold = (self.window / 2).max(MIN_WINDOW);
        self.window = self.threshold;
        self.credit = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_timeout_follows_the_round_trip_and_stays_within_bounds() {
        let mut pace = Pace::new();
        assert_eq!(pace.rto(), INITIAL_RTO);
        for _ in 0..50 {
            pace.on_ack(Some(Duration::from_micros(50)));
        }
        assert_eq!(pace.rto(), MIN_RTO);
        pace.on_loss();
        assert_eq!(pace.rto(), 2 * MIN_RTO);
        pace.on_ack(None);
        assert_eq!(pace.rto(), 2 * MIN_RTO, "a retransmitted datagram is no sample");
        (0..40).for_each(|_| pace.on_loss());
        assert_eq!(pace.rto(), MAX_RTO);
        assert_eq!(pace.window(), MIN_WINDOW);
        pace.on_ack(Some(Duration::from_millis(40)));
        assert!(pace.rto() > Duration::from_millis(40), "a clean sample ends the backoff");
        (0..1_000_000).for_each(|_| pace.on_ack(None));
        assert_eq!(pace.window(), MAX_WINDOW);
    }
}
