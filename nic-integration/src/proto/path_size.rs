//! The size of datagrams that a path takes, found by sending longer ones (PROTOCOL §4.11; after RFC 8899).

use std::time::Duration;

use super::datagram::{MAX_DATAGRAM_BYTES, MIN_DATAGRAM_BYTES};
use super::time::Time;
use crate::NicError;

/// The sizes that are tried: of IPv6's smallest link, of tunnels, of Ethernet under IPv6, of jumbo frames.
pub const DATAGRAM_SIZES: [u32; 4] = [1232, 1372, 1452, 8900];
/// Datagrams of one size that are lost before that size is given up.
pub const SIZE_TRIES: u8 = 3;
/// Datagrams longer than the shortest that are lost in a row, on a path that answers shorter ones, before it is taken
/// to drop all such.
pub const BLACK_HOLE_LOSSES: u8 = 16;
/// Timeouts in a row after which a datagram that asks for an answer is among the shortest. If that is answered, and the
/// newest longer one sent before is not, the path is taken to drop longer ones.
pub const BLACK_HOLE_TIMEOUTS: u32 = 2;
/// One more than the number of a packet of a former session: further than those of a new one come soon.
const FORMER_PACKET: u32 = 1 << 31;
/// The wait after which sizes that were given up are tried again.
pub const RAISE_SPAN: Duration = Duration::from_secs(60);

/// The sizes of datagrams that are sent, headers and tags included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatagramSizes {
    /// Sent without trying whether a path takes so many bytes.
    pub least: u32,
    /// The longest that is tried.
    pub most: u32,
}

impl DatagramSizes {
    /// In bytes of UDP payload: what every path carries, tunnels and IPv6 included, up to the longest of jumbo frames,
    /// beyond which nothing is gained.
    pub const DEFAULT: Self = Self { least: 1200, most: 8900 };

    /// Returns those up to a longest one.
    ///
    /// # Errors
    ///
    /// [`NicError::OutOfRange`] beyond [`MIN_DATAGRAM_BYTES`] to [`MAX_DATAGRAM_BYTES`].
    pub fn up_to(most: usize) -> Result<Self, NicError> {
        let bytes = most as u32;
        let sizes = Self { least: Self::DEFAULT.least.min(bytes), most: bytes };
        sizes.check().map(|()| sizes)
    }

    /// Checks that they are within bounds, and in order.
    pub(super) fn check(self) -> Result<(), NicError> {
        let (least, most) = (MIN_DATAGRAM_BYTES as usize, MAX_DATAGRAM_BYTES);
        for (found, least) in [(self.least, least), (self.most, self.least as usize)] {
            let (what, found) = ("bytes a datagram", found as usize);
            if !(least..=most).contains(&found) {
                return Err(NicError::OutOfRange { what, found, least, most });
            }
        }
        Ok(())
    }

    /// Returns one size, whatever a path takes.
    #[must_use]
    pub const fn fixed(bytes: u32) -> Self {
        Self { least: bytes, most: bytes }
    }
}

/// The bytes of the next datagram, once its message is cut to a limit.
pub(super) type CutTo<'a> = &'a dyn Fn(u32) -> u32;

/// The size of a path's datagrams, in bytes of UDP payload.
#[derive(Debug)]
pub(super) struct PathSize {
    sizes: DatagramSizes,
    /// The longest that was answered.
    current: u32,
    /// The tries of each of the longer sizes.
    tries: [Tries; DATAGRAM_SIZES.len()],
    /// Datagrams longer than the least that were lost since one of `lost_bytes` or more was answered.
    long_lost: u8,
    /// Bytes of the last of them.
    lost_bytes: u32,
    /// For each size: one more than the newest packet that long, and longer than the size before, that was answered.
    answered: [u32; DATAGRAM_SIZES.len()],
    /// One more than the newest packet of more than the least bytes that was sent before [`BLACK_HOLE_TIMEOUTS`] in a
    /// row; 0 if none was, or it is answered. Packets that try a size do not count.
    long_unanswered: u32,
    /// When given up sizes are tried again.
    raise: Time,
}

/// What became of the datagrams that tried a size.
#[derive(Clone, Copy, Debug, Default)]
struct Tries {
    /// One is in flight.
    is_open: bool,
    lost: u8,
}

impl Tries {
    /// Returns whether another one may be sent.
    fn may_go_on(self) -> bool {
        !self.is_open && self.lost < SIZE_TRIES
    }
}

impl PathSize {
    pub(super) fn new(sizes: DatagramSizes) -> Self {
        Self {
            sizes,
            current: sizes.least,
            tries: Default::default(),
            long_lost: 0,
            lost_bytes: 0,
            answered: Default::default(),
            long_unanswered: 0,
            raise: Time::ZERO,
        }
    }

    /// Returns the bytes of the longest datagram that is sent without trying.
    pub(super) fn current(&self) -> u32 {
        self.current
    }

    /// Iterates over the sizes that may be tried.
    fn longer(&self) -> impl Iterator<Item = (usize, u32)> + use<> {
        let (current, most) = (self.current, self.sizes.most);
        let sizes = DATAGRAM_SIZES.map(|size| size.min(most));
        // Of sizes beyond the most only one is left, which is that.
        let fits = move |at: usize| at == 0 || DATAGRAM_SIZES[at - 1] < most;
        sizes.into_iter().enumerate().filter(move |(at, size)| *size > current && fits(*at))
    }

    /// Returns the limit of the next datagram's bytes. It is longer than the [current](Self::current) one if that makes
    /// the datagram longer, and its size may be tried.
    pub(super) fn limit(&mut self, now: Time, cut_to: CutTo<'_>) -> u32 {
        self.try_again_later(now);
        let found = self.longer().find(|(_, size)| {
            let bytes = cut_to(*size);
            self.tried(bytes).is_some_and(|at| self.tries[at].may_go_on())
        });
        found.map_or(self.current, |(_, size)| size)
    }

    /// Once sizes were given up, waits until they are tried again.
    fn try_again_later(&mut self, now: Time) {
        if self.longer().all(|(at, _)| self.tries[at].lost < SIZE_TRIES) {
            return;
        }
        match self.raise {
            Time::ZERO => self.raise = now + RAISE_SPAN,
            raise if raise <= now => {
                (self.tries, self.raise) = (Default::default(), Time::ZERO);
            }
            _ => {}
        }
    }

    /// Returns the size that a datagram of `bytes` tries, if it is longer than those sent without trying.
    fn tried(&self, bytes: u32) -> Option<usize> {
        let size = self.longer().find(|(_, size)| bytes <= *size);
        size.filter(|_| bytes > self.current).map(|(at, _)| at)
    }

    /// Returns the bytes of a datagram that asks for an answer after `timeouts` in a row.
    pub(super) fn asking(&self, timeouts: u32) -> u32 {
        if timeouts >= BLACK_HOLE_TIMEOUTS { self.sizes.least } else { self.current }
    }

    /// Notes that a packet of `bytes` is sent, after `timeouts` in a row.
    pub(super) fn on_sent(&mut self, (bytes, packet): (u32, u64), timeouts: u32) {
        if let Some(at) = self.tried(bytes) {
            self.tries[at].is_open = true;
        } else if bytes > self.sizes.least && timeouts < BLACK_HOLE_TIMEOUTS {
            self.long_unanswered = (packet + 1) as u32;
        }
    }

    /// Notes an ACK; `is_answered` tells of a packet by its number modulo 2^32. Packets that were given up count here,
    /// unlike in [`on_packet`](Self::on_packet).
    pub(super) fn on_ack(&mut self, is_answered: impl Fn(u32) -> bool) {
        if self.long_unanswered.checked_sub(1).is_some_and(is_answered) {
            self.long_unanswered = 0;
        }
    }

    /// Notes that a packet of `bytes` was answered.
    pub(super) fn on_packet(&mut self, bytes: u32, packet: u64) {
        let newest = &mut self.answered[class(bytes)];
        if is_after((packet + 1) as u32, *newest) {
            *newest = (packet + 1) as u32;
        }
    }

    /// Notes that packets were answered after `timeouts` in a row, of which the longest has `bytes`; `true` if longer
    /// ones are sent from now on.
    pub(super) fn on_answered(&mut self, bytes: u32, timeouts: u32) -> bool {
        if bytes > self.sizes.least && bytes >= self.lost_bytes {
            (self.long_lost, self.lost_bytes) = (0, 0);
        } else if bytes <= self.sizes.least
            && timeouts >= BLACK_HOLE_TIMEOUTS
            && self.long_unanswered > 0
        {
            self.long_lost = BLACK_HOLE_LOSSES;
        }
        if bytes > self.sizes.least && self.long_unanswered == FORMER_PACKET {
            self.long_unanswered = 0;
        }
        let is_longer = bytes > self.current;
        if is_longer {
            if let Some(at) = self.tried(bytes) {
                self.tries[at] = Tries::default();
            }
            self.current = bytes;
        }
        is_longer
    }

    /// Notes that a packet of `bytes` was lost, or, unless that is `proven`, only given up; `true` if that may be a
    /// sign of congestion, and not of its length.
    pub(super) fn on_lost(&mut self, (bytes, packet): (u32, u64), proven: bool) -> bool {
        if let Some(at) = self.tried(bytes) {
            let lost = self.tries[at].lost.saturating_add(1);
            self.tries[at] = Tries { is_open: false, lost };
            return false;
        }
        // If as long a one that was sent later was answered, its length is not why.
        let later = self.answered[class(bytes)..].iter().any(|&one| is_after(one, packet as u32));
        if proven && bytes > self.sizes.least && !later {
            self.long_lost = self.long_lost.saturating_add(1);
            self.lost_bytes = bytes;
        }
        true
    }

    /// Forgets the numbers of packets, which begin anew.
    pub(super) fn forget_packets(&mut self) {
        self.answered = Default::default();
        // A handshake comes of silence, and so does the verdict: it stands until a longer one is answered.
        self.long_unanswered = if self.long_unanswered > 0 { FORMER_PACKET } else { 0 };
    }

    /// Returns whether the path has begun to drop longer datagrams than the shortest.
    pub(super) fn is_black_hole(&self) -> bool {
        self.long_lost >= BLACK_HOLE_LOSSES && self.current > self.sizes.least
    }

    /// Falls back to the shortest datagrams. The sizes between are tried again.
    pub(super) fn fall_back(&mut self) {
        *self = Self::new(self.sizes);
    }
}

/// Returns the place of the shortest size that datagrams of `bytes` are no longer than, or else of the last.
fn class(bytes: u32) -> usize {
    DATAGRAM_SIZES.iter().position(|size| bytes <= *size).unwrap_or(DATAGRAM_SIZES.len() - 1)
}

/// Returns whether a number of packets is larger than another, which it is close to.
fn is_after(packets: u32, other: u32) -> bool {
    (packets.wrapping_sub(other) as i32) > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: DatagramSizes = DatagramSizes::DEFAULT;

    /// Sends datagrams cut by `cut_to` until none tries a longer size, over a path that takes so many bytes.
    fn found_of(size: &mut PathSize, takes: u32, cut_to: CutTo<'_>) -> u32 {
        for _ in 0..100 {
            let bytes = cut_to(size.limit(Time::ZERO, cut_to));
            size.on_sent((bytes, 0), 0);
            if bytes <= size.current() {
                return size.current();
            }
            if bytes <= takes {
                size.on_answered(bytes, 0);
            } else {
                assert!(!size.on_lost((bytes, 0), true), "no congestion");
            }
        }
        panic!("it tries for ever");
    }

    fn found(size: &mut PathSize, takes: u32) -> u32 {
        found_of(size, takes, &|bytes| bytes)
    }

    #[test]
    fn the_longest_that_passes_is_found() {
        for (takes, size) in
            [(1200, 1200), (1231, 1200), (1252, 1232), (1400, 1372), (1472, 1452), (8972, 8900)]
        {
            assert_eq!(found(&mut PathSize::new(SIZES), takes), size, "{takes}");
        }
        let most = |most| PathSize::new(DatagramSizes { least: 1200, most });
        assert_eq!(
            [1200, 1300, 1452, 9000].map(|bytes| found(&mut most(bytes), 65_000)),
            [1200, 1300, 1452, 8900]
        );
        assert_eq!(
            found(&mut PathSize::new(DatagramSizes::fixed(4000)), 1200),
            4000,
            "as it was told"
        );
    }

    #[test]
    fn what_is_cut_at_a_grain_finds_its_size() {
        for (takes, grain, size) in [
            (1500, 600, 1249),
            (1500, 400, 1249),
            (1240, 400, 1200),
            (9000, 512, 8753),
            (9000, 5000, 5049),
        ] {
            let cut_to = |bytes: u32| 49 + (bytes - 49) / grain * grain;
            assert_eq!(
                found_of(&mut PathSize::new(SIZES), takes, &cut_to),
                size,
                "{takes} {grain}"
            );
        }
    }

    #[test]
    fn sizes_are_tried_with_what_fills_them_one_datagram_each() {
        let mut size = PathSize::new(SIZES);
        assert_eq!(size.limit(Time::ZERO, &|bytes| bytes.min(1200)), 1200);
        let tries = (0..5).map(|_| {
            let tried = size.limit(Time::ZERO, &|bytes| bytes.min(1452));
            size.on_sent((tried, 0), 0);
            tried
        });
        assert_eq!(tries.collect::<Vec<_>>(), [1232, 1372, 1452, 1200, 1200]);
    }

    #[test]
    fn given_up_sizes_are_tried_again_later() {
        let mut size = PathSize::new(SIZES);
        assert_eq!(found(&mut size, 1500), 1452);
        let before = Time::ZERO + (RAISE_SPAN - Duration::from_nanos(1));
        assert_eq!(size.limit(before, &|bytes| bytes), 1452);
        assert_eq!(size.limit(Time::ZERO + RAISE_SPAN, &|bytes| bytes), 8900);
    }

    #[test]
    fn a_black_hole_is_found_by_losses_and_by_silence() {
        for (losses, timeouts) in [(16, 0), (0, 2)] {
            let mut size = PathSize::new(SIZES);
            assert_eq!(found(&mut size, 8900), 8900);
            assert!(!size.is_black_hole() && (0..losses).all(|_| size.on_lost((8900, 9), true)));
            assert_eq!((size.asking(1), size.asking(2)), (8900, 1200));
            size.on_sent((8900, 9), 0);
            assert!(!size.on_answered(700, timeouts), "short ones pass");
            assert!(size.is_black_hole());
            size.fall_back();
            assert_eq!((size.current(), size.is_black_hole()), (1200, false));
            assert_eq!(found(&mut size, 1300), 1232);
        }
        let mut size = PathSize::new(SIZES);
        found(&mut size, 8900);
        assert!((0..15).all(|_| size.on_lost((8900, 9), true)) && !size.on_answered(8900, 2));
        assert!(
            (0..15).all(|_| size.on_lost((8900, 9), true)) && !size.is_black_hole(),
            "others pass"
        );
        assert!(
            !size.on_answered(1300, 0) && size.on_lost((8900, 9), true) && size.is_black_hole(),
            "shorter ones pass"
        );
        assert!(!size.on_answered(8900, 0) && !size.is_black_hole());
        assert!(
            (0..99).all(|_| size.on_lost((8900, 9), false)) && !size.is_black_hole(),
            "no proof"
        );
    }

    #[test]
    fn silence_after_long_ones_were_answered_is_no_black_hole() {
        let mut size = PathSize::new(SIZES);
        found(&mut size, 8900);
        size.on_ack(|_| true);
        let silent = |size: &mut PathSize| !size.on_answered(700, 2) && size.is_black_hole();
        assert!(!silent(&mut size), "only short ones were sent");
        [(8900, 9), (700, 10)].into_iter().for_each(|sent| size.on_sent(sent, 1));
        size.on_sent((8900, 11), 2);
        size.on_ack(|packet| packet < 10);
        assert!(!silent(&mut size), "what was sent before the silence came after all");
        for is_renewed in [false, true] {
            size.on_sent((8900, 12), 0);
            if is_renewed {
                size.forget_packets();
            }
            size.on_ack(|packet| packet < 12);
            assert!(silent(&mut size));
            size.on_answered(8900, 0);
        }
        assert!(!silent(&mut size), "one of the new session was answered");
    }

    #[test]
    fn only_losses_after_the_last_answer_are_of_a_black_hole() {
        let mut size = PathSize::new(SIZES);
        found(&mut size, 8900);
        // A burst is lost, and one behind it answered: of its length, or a shorter one.
        for (bytes, is_hole) in [(8900, false), (8753, false), (1300, true)] {
            size.fall_back();
            found(&mut size, 8900);
            size.on_packet(bytes, 50);
            assert!((20..40).all(|packet| size.on_lost((8700, packet), true)));
            assert_eq!(size.is_black_hole(), is_hole, "{bytes}");
        }
        size.forget_packets();
        assert!(!size.on_answered(8900, 0) && !size.is_black_hole());
        assert!((1..17).all(|packet| size.on_lost((8900, packet), true)) && size.is_black_hole());
    }
}
