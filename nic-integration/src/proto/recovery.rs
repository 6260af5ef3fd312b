//! Round-trip time, timeouts and window towards one peer (PROTOCOL §4.3, §4.4).

use std::time::Duration;

/// The timeout before any sample of the round-trip time.
pub const INITIAL_PTO: Duration = Duration::from_millis(100);
/// The shortest timeout after which one more datagram asks for an answer.
pub const MIN_PTO: Duration = Duration::from_millis(5);
/// The longest timeout, backoff included; short enough for some thirty attempts within the give-up
/// span.
pub const MAX_PTO: Duration = Duration::from_millis(300);
/// The least time by which a datagram must be overtaken to be taken for lost.
pub const MIN_REORDER: Duration = Duration::from_micros(200);
/// Datagrams in flight to a new peer.
pub const INITIAL_WINDOW: usize = 32;
/// The smallest window.
pub const MIN_WINDOW: usize = 4;
/// The largest window, in datagrams: 512 of 1,472 bytes fill a quarter of a 4 MiB socket buffer, as
/// the kernel accounts for them.
pub const MAX_WINDOW: usize = 512;
/// The largest window, in bytes of full datagrams.
pub const MAX_WINDOW_BYTES: usize = 2 << 20;
/// One in this many datagrams of a windowful may be lost before the window shrinks: random loss is
/// no sign of congestion.
pub const LOSS_TOLERANCE: usize = 16;
/// Datagrams that a windowful counts as at least where its losses are judged: of fewer, one lost would be too many.
pub const LOSS_SAMPLE: u32 = 32;
/// Bytes that a window above its threshold gains per windowful for each millisecond of the round trip. Its growth in
/// time then hardly depends on the round trip, so that senders on one line come to share it within seconds, however
/// long its queue is. With 100, two of them shared the first 8 s of 30 Mbit/s 5 to 1; with 450, one on 5 Mbit/s sent
/// 1.3 times what arrived.
pub const GROWTH_BYTES: u64 = 200;
/// The divisor of a window that bounds its growth per windowful, which is less than it shrinks by; at least a datagram.
pub const GROWTH_SHARE: u32 = 4;
/// The round trip above which a window shrinks as for a mark, and does not grow: what waits before a slow line, or in
/// the connection that carries datagrams over it, holds up answers and whatever else shares the line.
pub const MAX_ROUND_TRIP: Duration = Duration::from_secs(1);
/// Bytes of a window that a long round trip alone leaves: the queue may be that of others.
pub const MIN_QUEUE_BYTES: u32 = 1 << 16;
/// Timeouts in a row after which everything in flight is lost, and again after 2, 4, 8, … times as many: with ever
/// longer between, a round trip longer than those timeouts is measured in the end.
pub const PERSISTENT_TIMEOUTS: u32 = 3;

/// Returns the largest window, in datagrams of so many bytes.
fn limit(datagram_bytes: u32) -> u32 {
    (MAX_WINDOW_BYTES / datagram_bytes.max(1) as usize).clamp(MIN_WINDOW, MAX_WINDOW) as u32
}

/// Round-trip estimate and window towards one peer.
#[derive(Debug)]
pub(super) struct Recovery {
    /// Smoothed round-trip time and its mean deviation in nanoseconds, once sampled.
    rtt: [u64; 2],
    /// Number of samples.
    samples: u16,
    /// Timeouts since the last answer.
    timeouts: u8,
    /// The window shrank for a mark of congestion, less than a windowful ago.
    reduced: bool,
    window: u32,
    /// The largest window.
    limit: u32,
    /// Below it the window doubles per round trip, above it grows by [`GROWTH_BYTES`].
    threshold: u32,
    /// Bytes of a full datagram: windows are bounded and grow by bytes.
    datagram_bytes: u32,
    /// Growth saved up, in fractions of a datagram: `window` of it adds one to the window.
    credit: u32,
    /// Datagrams answered, and lost, in the present windowful.
    answered: u32,
    lost: u32,
}

impl Recovery {
    /// Makes the state towards a new peer, for datagrams of at most `datagram_bytes`.
    pub(super) fn new(datagram_bytes: u32) -> Self {
        let limit = limit(datagram_bytes);
        Self {
            datagram_bytes,
            rtt: [0; 2],
            samples: 0,
            timeouts: 0,
            reduced: false,
            window: (INITIAL_WINDOW as u32).min(limit),
            limit,
            threshold: limit,
            credit: 0,
            answered: 0,
            lost: 0,
        }
    }

    /// Changes the bytes of a datagram: windows keep theirs.
    pub(super) fn set_datagram_bytes(&mut self, bytes: u32) {
        let (former, limit) = (std::mem::replace(&mut self.datagram_bytes, bytes), limit(bytes));
        let scaled = |window: u32| {
            let window = u64::from(window) * u64::from(former) / u64::from(bytes.max(1));
            (window as u32).clamp(MIN_WINDOW as u32, limit)
        };
        self.window = scaled(self.window);
        // Unless it was found, it is the limit.
        self.threshold = if self.threshold == self.limit { limit } else { scaled(self.threshold) };
        (self.limit, self.credit) = (limit, 0);
    }

    pub(super) fn window(&self) -> usize {
        self.window as usize
    }

    /// Returns the bound of all windows towards one peer together.
    pub(super) fn limit(&self) -> usize {
        self.limit as usize
    }

    /// Returns the smoothed round-trip time, once sampled.
    pub(super) fn round_trip(&self) -> Option<Duration> {
        self.estimate().map(|(smoothed, _)| smoothed)
    }

    /// Returns the smoothed round-trip time and its mean deviation.
    fn estimate(&self) -> Option<(Duration, Duration)> {
        let [smoothed, deviation] = self.rtt.map(Duration::from_nanos);
        (self.samples > 0).then_some((smoothed, deviation))
    }

    /// Returns the number of samples of the round-trip time.
    pub(super) fn samples(&self) -> u32 {
        self.samples.into()
    }

    /// Returns the number of timeouts since the last answer.
    pub(super) fn timeouts(&self) -> u32 {
        self.timeouts.into()
    }

    /// Resets all but the round-trip time.
    pub(super) fn begin_anew(&mut self) {
        self.timeouts = 0;
        self.window = (INITIAL_WINDOW as u32).min(self.limit);
        self.threshold = self.limit;
        (self.credit, self.answered, self.lost) = (0, 0, 0);
    }

    /// Takes the next sample for the round-trip time, whatever it was before.
    pub(super) fn forget_round_trip(&mut self) {
        self.samples = 0;
    }

    /// Returns the wait for an answer: SRTT + 4·RTTVAR (after RFC 6298 §2), doubled by every
    /// timeout, within [`MIN_PTO`] and [`MAX_PTO`].
    pub(super) fn timeout(&self) -> Duration {
        let estimate = self.estimate();
        let wait = estimate.map_or(INITIAL_PTO, |(smoothed, deviation)| smoothed + 4 * deviation);
        (wait.max(MIN_PTO) * (1 << self.timeouts.min(6))).min(MAX_PTO)
    }

    /// Returns the time after its sending at which a datagram is lost, if one that was sent later
    /// is answered: a round trip, and the likely difference between paths (after RFC 8985 §6.2).
    pub(super) fn loss_delay(&self) -> Duration {
        let (smoothed, deviation) = self.estimate().unwrap_or((INITIAL_PTO, Duration::ZERO));
        smoothed + (smoothed / 4).max(2 * deviation).max(MIN_REORDER)
    }

    /// Notes answers, with a round-trip time if the newest datagram sent was among them.
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
            if sample > MAX_ROUND_TRIP && self.window > self.least_queue() {
                self.on_congested();
            }
        }
        self.answered += count as u32;
        let growth = self.growth();
        let is_slow = self.round_trip().is_some_and(|smoothed| smoothed > MAX_ROUND_TRIP);
        let most = if is_slow { self.window.max(self.least_queue()) } else { self.limit };
        for _ in 0..count {
            let growth = growth.min(self.window / GROWTH_SHARE).max(1);
            self.credit += if self.window < self.threshold { self.window } else { growth };
            while self.credit >= self.window {
                self.credit -= self.window;
                self.window = (self.window + 1).min(most);
            }
        }
        self.review();
    }

    /// Returns the window of [`MIN_QUEUE_BYTES`].
    fn least_queue(&self) -> u32 {
        (MIN_QUEUE_BYTES / self.datagram_bytes.max(1)).max(MIN_WINDOW as u32)
    }

    /// Returns the datagrams that a windowful adds to a window above the threshold.
    fn growth(&self) -> u32 {
        let span = self.round_trip().unwrap_or_default().as_nanos() as u64;
        let bytes = GROWTH_BYTES.saturating_mul(span) / 1_000_000;
        (bytes / u64::from(self.datagram_bytes.max(1))).clamp(1, self.limit.into()) as u32
    }

    /// Shrinks the window at once, because a queue on the path marked datagrams, or is long; and not again for a
    /// windowful.
    pub(super) fn on_congested(&mut self) {
        if !std::mem::replace(&mut self.reduced, true) {
            self.shrink();
            (self.answered, self.lost) = (0, 0);
        }
    }

    fn shrink(&mut self) {
        self.window = (self.window * 3 / 4).max(MIN_WINDOW as u32);
        self.threshold = self.window;
        self.credit = 0;
    }

    /// Notes lost datagrams.
    pub(super) fn on_lost(&mut self, count: usize) {
        self.lost += count as u32;
        self.review();
    }

    /// Notes a timeout; `true` if everything in flight is lost by it.
    pub(super) fn on_timeout(&mut self) -> bool {
        // Saturates at 255 = 3 · 85, at which nothing is given up.
        self.timeouts = self.timeouts.saturating_add(1);
        let timeouts = u32::from(self.timeouts);
        let lost = timeouts.is_multiple_of(PERSISTENT_TIMEOUTS)
            && (timeouts / PERSISTENT_TIMEOUTS).is_power_of_two();
        if lost {
            // The window that was found is kept in mind, however long the silence is.
            if timeouts == PERSISTENT_TIMEOUTS {
                self.threshold = (self.window / 2).max(MIN_WINDOW as u32);
            }
            self.window = MIN_WINDOW as u32;
            (self.credit, self.answered, self.lost) = (0, 0, 0);
        }
        lost
    }

    /// Shrinks the window if too many datagrams of a windowful were lost.
    fn review(&mut self) {
        let total = self.answered + self.lost;
        if total < self.window.max(LOSS_SAMPLE) {
            return;
        }
        if self.lost * LOSS_TOLERANCE as u32 > total {
            self.shrink();
        }
        self.reduced = false;
        (self.answered, self.lost) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_timeout_follows_the_round_trip_and_stays_within_bounds() {
        let mut recovery = Recovery::new(1472);
        assert_eq!(recovery.timeout(), INITIAL_PTO);
        for _ in 0..50 {
            recovery.on_answers(1, Some(Duration::from_micros(50)));
        }
        assert_eq!(recovery.timeout(), MIN_PTO);
        assert!(recovery.loss_delay() < Duration::from_micros(300));
        assert!(!recovery.on_timeout());
        assert_eq!(recovery.timeout(), 2 * MIN_PTO);
        recovery.on_answers(1, None);
        assert_eq!(recovery.timeout(), MIN_PTO, "an answer ends the backoff");
        let lost = (1..400).filter(|_| recovery.on_timeout()).collect::<Vec<u32>>();
        assert_eq!(lost, [3, 6, 12, 24, 48, 96, 192]);
        assert_eq!(recovery.timeout(), MAX_PTO);
        assert_eq!(recovery.window(), MIN_WINDOW);
        recovery.on_answers(1, Some(Duration::from_millis(40)));
        assert!(recovery.timeout() > Duration::from_millis(40));
        recovery.on_answers(1_000_000, None);
        assert_eq!(recovery.window(), MAX_WINDOW);
    }

    #[test]
    fn marks_shrink_the_window_once_a_windowful() {
        let mut recovery = Recovery::new(1472);
        recovery.on_answers(1_000_000, None);
        for _ in 0..MAX_WINDOW / 4 {
            recovery.on_congested();
            recovery.on_answers(1, None);
        }
        let shrunk = recovery.window();
        assert_eq!(shrunk, MAX_WINDOW * 3 / 4, "once in a windowful");
        recovery.on_answers(2 * MAX_WINDOW, None);
        assert!(recovery.window() > shrunk, "without marks it grows");
        for _ in 0..10_000 {
            recovery.on_congested();
            recovery.on_answers(4, None);
        }
        assert!(recovery.window() < 32, "{}", recovery.window());
    }

    #[test]
    fn a_queue_of_seconds_shrinks_the_window_until_it_is_short() {
        let mut recovery = Recovery::new(1472);
        recovery.on_answers(1_000_000, None);
        // 2 Mbit/s, however much is sent: each windowful waits for those before.
        for _ in 0..100 {
            let windowful = recovery.window() as u32 * 1472;
            let rtt = Duration::from_micros(4) * windowful;
            recovery.on_answers(recovery.window(), Some(rtt));
        }
        let queued = Duration::from_micros(4) * recovery.window() as u32 * 1472;
        let (least, most) = (MAX_ROUND_TRIP / 2, MAX_ROUND_TRIP * 3 / 2);
        assert!((least..most).contains(&queued), "{queued:?}");
        // The queue of others does not end this sender.
        for _ in 0..100 {
            recovery.on_answers(recovery.window(), Some(3 * MAX_ROUND_TRIP));
        }
        assert_eq!(recovery.window(), MIN_QUEUE_BYTES as usize / 1472);
    }

    #[test]
    fn random_loss_leaves_the_window_and_congestion_shrinks_it() {
        let mut recovery = Recovery::new(1472);
        recovery.on_answers(1_000_000, None);
        for _ in 0..1000 {
            recovery.on_answers(99, None);
            recovery.on_lost(1);
        }
        assert_eq!(recovery.window(), MAX_WINDOW);
        for _ in 0..1000 {
            recovery.on_answers(4, None);
            recovery.on_lost(1);
        }
        assert!(recovery.window() < 32, "{}", recovery.window());
    }
}
