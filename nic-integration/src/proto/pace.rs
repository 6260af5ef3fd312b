//! How fast to send to one peer, and how long to wait for it (PROTOCOL §4.3, §4.4).

use std::time::Duration;

/// How long to wait for an answer before any sample of the round-trip time.
pub const INITIAL_PTO: Duration = Duration::from_millis(100);
/// The shortest wait for an answer before one more datagram asks for it.
pub const MIN_PTO: Duration = Duration::from_millis(5);
/// The longest, backoff included; short enough for some thirty attempts within the give-up span.
pub const MAX_PTO: Duration = Duration::from_millis(300);
/// The least that a datagram must be overtaken by before it is taken for lost.
pub const MIN_REORDER: Duration = Duration::from_micros(200);
/// Datagrams in flight to a new peer.
pub const INITIAL_WINDOW: usize = 32;
/// The window never shrinks below this.
pub const MIN_WINDOW: usize = 4;
/// The window never grows beyond this many datagrams: 512 of 1,472 bytes fill a quarter of a 4 MiB
/// socket buffer, as the kernel accounts for them.
pub const MAX_WINDOW: usize = 512;
/// Nor beyond as many full datagrams as this many bytes hold.
pub const MAX_WINDOW_BYTES: usize = 2 << 20;
/// One in so many datagrams of a windowful may be lost before the window shrinks: what is lost at
/// random says nothing of congestion.
pub const LOSS_TOLERANCE: usize = 16;
/// Timeouts in a row after which everything in flight is taken for lost.
pub const PERSISTENT_TIMEOUTS: u32 = 3;

/// Round-trip estimate and window towards one peer.
#[derive(Debug)]
pub(super) struct Pace {
    /// Smoothed round-trip time and its mean deviation in nanoseconds, once sampled.
    rtt: [u64; 2],
    /// How many samples that are of.
    samples: u16,
    /// Timeouts since the last answer.
    timeouts: u8,
    /// The window shrank for a mark of congestion, less than a windowful ago.
    eased: bool,
    window: u32,
    /// What it never grows beyond.
    limit: u32,
    /// Below it the window doubles per round trip, above it grows by one.
    threshold: u32,
    /// Answers since the window last grew by one.
    credit: u32,
    /// Datagrams answered, and lost, in the present windowful.
    answered: u32,
    lost: u32,
}

impl Pace {
    /// Towards a peer that gets datagrams of so many bytes.
    pub(super) fn new(datagram_bytes: usize) -> Self {
        let limit = (MAX_WINDOW_BYTES / datagram_bytes.max(1)).clamp(MIN_WINDOW, MAX_WINDOW);
        let limit = limit as u32;
        Self {
            rtt: [0; 2],
            samples: 0,
            timeouts: 0,
            eased: false,
            window: (INITIAL_WINDOW as u32).min(limit),
            limit,
            threshold: limit,
            credit: 0,
            answered: 0,
            lost: 0,
        }
    }

    pub(super) fn window(&self) -> usize {
        self.window as usize
    }

    /// What all windows towards one peer together never grow beyond.
    pub(super) fn limit(&self) -> usize {
        self.limit as usize
    }

    /// The smoothed round-trip time, once sampled.
    pub(super) fn round_trip(&self) -> Option<Duration> {
        self.estimate().map(|(smoothed, _)| smoothed)
    }

    /// Smoothed round-trip time and mean deviation.
    fn estimate(&self) -> Option<(Duration, Duration)> {
        let [smoothed, deviation] = self.rtt.map(Duration::from_nanos);
        (self.samples > 0).then_some((smoothed, deviation))
    }

    /// How many samples the round-trip time is of.
    pub(super) fn samples(&self) -> u32 {
        self.samples.into()
    }

    /// Timeouts since the last answer.
    pub(super) fn timeouts(&self) -> u32 {
        self.timeouts.into()
    }

    /// As if nothing had been sent yet, but for the round-trip time.
    pub(super) fn begin_anew(&mut self) {
        self.timeouts = 0;
        self.window = (INITIAL_WINDOW as u32).min(self.limit);
        self.threshold = self.limit;
        (self.credit, self.answered, self.lost) = (0, 0, 0);
    }

    /// The next sample is taken for the round-trip time: what was known of it says nothing any more.
    pub(super) fn forget_round_trip(&mut self) {
        self.samples = 0;
    }

    /// How long to wait for an answer: SRTT + 4·RTTVAR (after RFC 6298 §2), doubled by every timeout,
    /// within [`MIN_PTO`] and [`MAX_PTO`].
    pub(super) fn timeout(&self) -> Duration {
        let estimate = self.estimate();
        let wait = estimate.map_or(INITIAL_PTO, |(smoothed, deviation)| smoothed + 4 * deviation);
        (wait.max(MIN_PTO) * (1 << self.timeouts.min(6))).min(MAX_PTO)
    }

    /// How long after its sending a datagram is lost, if one that was sent later is answered:
    /// a round trip, and what paths of different lengths may differ by (after RFC 8985 §6.2).
    pub(super) fn patience(&self) -> Duration {
        let (smoothed, deviation) = self.estimate().unwrap_or((INITIAL_PTO, Duration::ZERO));
        smoothed + (smoothed / 4).max(2 * deviation).max(MIN_REORDER)
    }

    /// Answers arrived, with a round-trip time if the newest datagram sent was among them.
    pub(super) fn on_answers(&mut self, count: usize, rtt: Option<Duration>) {
        self.timeouts = 0;
        if let Some(sample) = rtt {
            let (smoothed, deviation) = match self.estimate() {
                None => (sample, sample / 2),
                Some((smoothed, deviation)) => {
                    ((7 * smoothed + sample) / 8, (3 * deviation + smoothed.abs_diff(sample)) / 4)
                }
            };
            self.rtt = [smoothed, deviation].map(|span| span.as_nanos() as u64);
            self.samples = self.samples.saturating_add(1);
        }
        self.answered += count as u32;
        for _ in 0..count {
            self.credit += if self.window < self.threshold { self.window } else { 1 };
            if self.credit >= self.window {
                self.credit = 0;
                self.window = (self.window + 1).min(self.limit);
            }
        }
        self.judge();
    }

    /// A queue on the way marked datagrams: the window shrinks at once, and not again for a windowful.
    pub(super) fn on_congested(&mut self) {
        if !std::mem::replace(&mut self.eased, true) {
            self.shrink();
            (self.answered, self.lost) = (0, 0);
        }
    }

    fn shrink(&mut self) {
        self.window = (self.window * 3 / 4).max(MIN_WINDOW as u32);
        self.threshold = self.window;
        self.credit = 0;
    }

    /// Datagrams are taken for lost.
    pub(super) fn on_lost(&mut self, count: usize) {
        self.lost += count as u32;
        self.judge();
    }

    /// Nothing was answered in time; whether this makes all that is in flight lost.
    pub(super) fn on_timeout(&mut self) -> bool {
        // 255 is a multiple of the persistent ones: it would be one for ever.
        self.timeouts = self.timeouts.saturating_add(1).min(u8::MAX - 1);
        let lost = u32::from(self.timeouts).is_multiple_of(PERSISTENT_TIMEOUTS);
        if lost {
            self.threshold = (self.window / 2).max(MIN_WINDOW as u32);
            self.window = MIN_WINDOW as u32;
            (self.credit, self.answered, self.lost) = (0, 0, 0);
        }
        lost
    }

    /// Looks back over a windowful.
    fn judge(&mut self) {
        let total = self.answered + self.lost;
        if total < self.window {
            return;
        }
        if self.lost * LOSS_TOLERANCE as u32 > total {
            self.shrink();
        }
        self.eased = false;
        (self.answered, self.lost) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_timeout_follows_the_round_trip_and_stays_within_bounds() {
        let mut pace = Pace::new(1472);
        assert_eq!(pace.timeout(), INITIAL_PTO);
        for _ in 0..50 {
            pace.on_answers(1, Some(Duration::from_micros(50)));
        }
        assert_eq!(pace.timeout(), MIN_PTO);
        assert!(pace.patience() < Duration::from_micros(300));
        assert!(!pace.on_timeout());
        assert_eq!(pace.timeout(), 2 * MIN_PTO);
        pace.on_answers(1, None);
        assert_eq!(pace.timeout(), MIN_PTO, "an answer ends the backoff");
        let lost: Vec<bool> = (0..40).map(|_| pace.on_timeout()).collect();
        assert_eq!(lost.iter().filter(|lost| **lost).count(), 40 / PERSISTENT_TIMEOUTS as usize);
        assert_eq!(pace.timeout(), MAX_PTO);
        assert_eq!(pace.window(), MIN_WINDOW);
        pace.on_answers(1, Some(Duration::from_millis(40)));
        assert!(pace.timeout() > Duration::from_millis(40));
        pace.on_answers(1_000_000, None);
        assert_eq!(pace.window(), MAX_WINDOW);
    }

    #[test]
    fn marks_shrink_the_window_once_a_windowful() {
        let mut pace = Pace::new(1472);
        pace.on_answers(1_000_000, None);
        for _ in 0..MAX_WINDOW / 4 {
            pace.on_congested();
            pace.on_answers(1, None);
        }
        let shrunk = pace.window();
        assert_eq!(shrunk, MAX_WINDOW * 3 / 4, "once in a windowful");
        pace.on_answers(2 * MAX_WINDOW, None);
        assert!(pace.window() > shrunk, "without marks it grows");
        for _ in 0..10_000 {
            pace.on_congested();
            pace.on_answers(4, None);
        }
        assert!(pace.window() < 32, "{}", pace.window());
    }

    #[test]
    fn random_loss_leaves_the_window_and_congestion_shrinks_it() {
        let mut pace = Pace::new(1472);
        pace.on_answers(1_000_000, None);
        for _ in 0..1000 {
            pace.on_answers(99, None);
            pace.on_lost(1);
        }
        assert_eq!(pace.window(), MAX_WINDOW);
        for _ in 0..1000 {
            pace.on_answers(4, None);
            pace.on_lost(1);
        }
        assert!(pace.window() < 32, "{}", pace.window());
    }
}
