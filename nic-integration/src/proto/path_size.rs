//! The size of datagrams that a path takes, found by sending longer ones (PROTOCOL §4.11; after RFC 8899).

use std::time::Duration;

use super::datagram::OVERHEAD_BYTES;
use super::time::Time;

/// The sizes that are tried: of IPv6's smallest link, of tunnels, of Ethernet under IPv6, of jumbo frames.
pub const DATAGRAM_SIZES: [u32; 4] = [1232, 1372, 1452, 8900];
/// Datagrams of one size that are lost before that size is given up.
pub const SIZE_TRIES: u8 = 3;
/// Datagrams longer than the shortest that are lost in a row, on a path that answers shorter ones, before it is taken
/// to drop all such.
pub const BLACK_HOLE_LOSSES: u8 = 16;
/// Timeouts in a row after which a datagram that asks for an answer is among the shortest. If that alone is answered,
/// the path is taken to drop longer ones.
pub const BLACK_HOLE_TIMEOUTS: u32 = 2;
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
    /// Returns one size, whatever a path takes.
    #[must_use]
    pub const fn fixed(bytes: u32) -> Self {
        Self { least: bytes, most: bytes }
    }
}

/// The size of a path's datagrams, in bytes of UDP payload.
#[derive(Debug)]
pub(super) struct PathSize {
    sizes: DatagramSizes,
    /// The longest that was answered.
    current: u32,
    /// For each of the longer sizes: whether a datagram that tries it is in flight, and how many were lost.
    trying: [bool; DATAGRAM_SIZES.len()],
    lost: [u8; DATAGRAM_SIZES.len()],
    /// Longer datagrams than the least that were lost since one was answered.
    long_lost: u8,
    /// When given up sizes are tried again.
    raise: Time,
}

impl PathSize {
    pub(super) fn new(sizes: DatagramSizes) -> Self {
        Self {
            sizes,
            current: sizes.least,
            trying: [false; DATAGRAM_SIZES.len()],
            lost: [0; DATAGRAM_SIZES.len()],
            long_lost: 0,
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

    /// Returns a longer size to try now, if there is something that fills more than the present one.
    pub(super) fn next_try(&mut self, now: Time, payload_bytes: u32) -> Option<u32> {
        let bytes = payload_bytes.saturating_add(OVERHEAD_BYTES as u32);
        let is_left = |(at, _): &(usize, u32)| self.lost[*at] < SIZE_TRIES && !self.trying[*at];
        let Some((at, size)) = self.longer().find(|size| is_left(size) && size.1 <= bytes) else {
            self.try_again_later(now);
            return None;
        };
        self.trying[at] = true;
        Some(size)
    }

    /// Waits until sizes that were given up are tried again.
    fn try_again_later(&mut self, now: Time) {
        if self.longer().all(|(at, _)| self.lost[at] < SIZE_TRIES) {
            return;
        }
        match self.raise {
            Time::ZERO => self.raise = now + RAISE_SPAN,
            raise if raise <= now => {
                (self.lost, self.trying) = (Default::default(), Default::default());
                self.raise = Time::ZERO;
            }
            _ => {}
        }
    }

    /// Returns the size that a datagram of so many bytes tried, if it is longer than those sent without trying.
    fn tried(&self, bytes: u32) -> Option<usize> {
        self.longer().find(|(_, size)| bytes <= *size).map(|(at, _)| at)
    }

    /// Returns the bytes of a datagram that asks for an answer after so many timeouts in a row.
    pub(super) fn asking(&self, timeouts: u32) -> u32 {
        if timeouts >= BLACK_HOLE_TIMEOUTS { self.sizes.least } else { self.current }
    }

    /// Notes that datagrams were answered after so many timeouts in a row, of which the longest has so many bytes;
    /// `true` if longer ones are sent from now on.
    pub(super) fn on_answered(&mut self, bytes: u32, timeouts: u32) -> bool {
        if bytes > self.sizes.least {
            self.long_lost = 0;
        } else if timeouts >= BLACK_HOLE_TIMEOUTS {
            self.long_lost = BLACK_HOLE_LOSSES;
        }
        if bytes <= self.current {
            return false;
        }
        if let Some(at) = self.tried(bytes) {
            (self.trying[at], self.lost[at]) = (false, 0);
        }
        self.current = bytes;
        true
    }

    /// Notes that a datagram was lost, or, unless that is `proven`, only given up; `true` if that may be a sign of
    /// congestion, and not of its length.
    pub(super) fn on_lost(&mut self, bytes: u32, proven: bool) -> bool {
        if bytes > self.current {
            if let Some(at) = self.tried(bytes) {
                self.trying[at] = false;
                self.lost[at] = self.lost[at].saturating_add(1);
            }
            return false;
        }
        if proven && bytes > self.sizes.least {
            self.long_lost = self.long_lost.saturating_add(1);
        }
        true
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

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: DatagramSizes = DatagramSizes { least: 1200, most: 8900 };

    /// Tries what is to be tried until the path's size is found, of a path that takes so many bytes.
    fn found(size: &mut PathSize, takes: u32) -> u32 {
        while let Some(tried) = size.next_try(Time::ZERO, 60_000) {
            if tried <= takes {
                size.on_answered(tried, 0);
            } else {
                assert!(!size.on_lost(tried, true), "no congestion");
            }
        }
        size.current()
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
    fn sizes_are_tried_with_what_fills_them_one_datagram_each() {
        let mut size = PathSize::new(SIZES);
        assert_eq!(size.next_try(Time::ZERO, 1151), None);
        let tried: Vec<_> = (0..5).map(|_| size.next_try(Time::ZERO, 1400)).collect();
        assert_eq!(tried, [Some(1232), Some(1372), Some(1452), None, None]);
    }

    #[test]
    fn given_up_sizes_are_tried_again_later() {
        let mut size = PathSize::new(SIZES);
        assert_eq!(found(&mut size, 1500), 1452);
        let later = Time::ZERO + RAISE_SPAN;
        assert_eq!(size.next_try(later, 60_000), None, "it ends to wait");
        assert_eq!(size.next_try(later, 60_000), Some(8900));
    }

    #[test]
    fn a_black_hole_is_found_by_losses_and_by_silence() {
        for (losses, timeouts) in [(16, 0), (0, 2)] {
            let mut size = PathSize::new(SIZES);
            assert_eq!(found(&mut size, 8900), 8900);
            assert!(!size.is_black_hole() && (0..losses).all(|_| size.on_lost(8900, true)));
            assert_eq!((size.asking(1), size.asking(2)), (8900, 1200));
            assert!(!size.on_answered(700, timeouts), "short ones pass");
            assert!(size.is_black_hole());
            size.fall_back();
            assert_eq!((size.current(), size.is_black_hole()), (1200, false));
            assert_eq!(found(&mut size, 1300), 1232);
        }
        let mut size = PathSize::new(SIZES);
        found(&mut size, 8900);
        assert!((0..15).all(|_| size.on_lost(8900, true)) && !size.on_answered(8900, 2));
        assert!((0..15).all(|_| size.on_lost(8900, true)) && !size.is_black_hole(), "others pass");
        assert!((0..99).all(|_| size.on_lost(8900, false)) && !size.is_black_hole(), "no proof");
    }
}
