//! Sets of packets of a session: those that came, against replays; and those committed, for ACKs.

/// Packets behind the newest one that are remembered. A sender never has packets further apart in
/// flight, and an older one is dropped as a replay (PROTOCOL §3.2).
pub const WINDOW_PACKETS: u64 = 64 * WORDS as u64;
/// Words of the window in an ACK: a sender misses nothing while fewer packets than they hold come
/// between two of its ACKs.
pub const ACK_WORDS: usize = 16;

const WORDS: usize = 64;

/// A set of packets, one bit each, of the newest [`WINDOW_PACKETS`], or of fewer while there have
/// been no more since the session began or last [shrank](Self::shrink).
#[derive(Clone, Debug)]
pub(in crate::proto) struct PacketWindow {
    /// One more than the newest packet; 0 before the first.
    end: u64,
    /// Words of the packet numbers, up to the newest that has begun. Never empty.
    words: Vec<u64>,
}

impl PacketWindow {
    pub(in crate::proto) fn new() -> Self {
        Self { end: 0, words: vec![0] }
    }

    /// Forgets all but the newest word, as if it had been passed over: a packet of it that is still
    /// under way is lost.
    pub(in crate::proto) fn shrink(&mut self) {
        self.words.drain(..self.words.len() - 1);
        self.words.shrink_to_fit();
    }

    /// Returns the newest word's number.
    fn newest(&self) -> u64 {
        self.end.saturating_sub(1) / 64
    }

    /// Returns the place of a word, if it is remembered or newer than all.
    fn place(&self, word: u64) -> Option<usize> {
        (word + self.words.len() as u64).checked_sub(self.newest() + 1).map(|place| place as usize)
    }

    /// Returns whether a packet is recent enough that the set knows whether it came.
    pub(in crate::proto) fn remembers(&self, packet: u64) -> bool {
        self.place(packet / 64).is_some()
    }

    /// Returns whether a packet is newer than all before.
    pub(in crate::proto) fn is_newest(&self, packet: u64) -> bool {
        self.end <= packet
    }

    /// Returns whether a packet that is [remembered](Self::remembers) is in the set.
    pub(in crate::proto) fn has(&self, packet: u64) -> bool {
        let word = self.place(packet / 64).and_then(|place| self.words.get(place));
        word.is_some_and(|word| word >> (packet % 64) & 1 == 1)
    }

    /// Adds a packet.
    pub(in crate::proto) fn set(&mut self, packet: u64) {
        let word = packet / 64;
        // Words that are passed over push out words as old.
        for _ in 0..word.saturating_sub(self.newest()).min(WORDS as u64) {
            if self.words.len() == WORDS {
                self.words.remove(0);
            }
            self.words.push(0);
        }
        self.end = self.end.max(packet.saturating_add(1));
        if let Some(word) = self.place(word).and_then(|place| self.words.get_mut(place)) {
            *word |= 1 << (packet % 64);
        }
    }

    /// Returns the first packet of the newest words, and the words, oldest first.
    pub(in crate::proto) fn recent(&self) -> (u64, impl Iterator<Item = u64>) {
        let count = self.words.len().min(ACK_WORDS);
        let words = self.words[self.words.len() - count..].iter();
        (64 * (self.newest() + 1 - count as u64), words.copied())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_window_that_shrank_takes_nothing_for_new_that_it_forgot() {
        let mut window = PacketWindow::new();
        (0..1000).filter(|packet| packet % 3 > 0).for_each(|packet| window.set(packet));
        window.shrink();
        assert!((0..15 * 64).all(|packet| !window.remembers(packet)));
        let kept = |window: &PacketWindow, packet| {
            window.remembers(packet) && window.has(packet) == (packet % 3 > 0)
        };
        assert!((15 * 64..1000).all(|packet| kept(&window, packet)));
        assert_eq!(window.recent().0, 15 * 64);
        // It grows again with new packets, and never back.
        window.set(4000);
        assert!(!window.remembers(15 * 64 - 1) && kept(&window, 999));
        assert!(!window.has(3999) && window.has(4000));
    }

    proptest! {
        /// Compares it with a set of all packets.
        #[test]
        fn it_remembers_what_is_recent(steps in proptest::collection::vec((0u64..9000, prop::bool::weighted(0.03)), 1..400)) {
            let (mut window, mut all, mut newest) = (PacketWindow::new(), BTreeSet::new(), 0u64);
            for (back, far) in steps {
                let packet = if far { newest + 3 * back } else { (newest + 700).saturating_sub(back) };
                let recent = packet / 64 + 64 > newest / 64;
                prop_assert_eq!(window.remembers(packet), recent);
                if recent {
                    prop_assert_eq!(window.has(packet), all.contains(&packet));
                }
                window.set(packet);
                if recent {
                    all.insert(packet);
                    newest = newest.max(packet);
                    prop_assert!(window.has(packet));
                }
                let (first, words) = window.recent();
                let words: Vec<u64> = words.collect();
                prop_assert!(words.len() <= ACK_WORDS);
                for (at, word) in words.iter().enumerate() {
                    for bit in 0..64 {
                        let packet = first + 64 * at as u64 + bit;
                        prop_assert_eq!(word >> bit & 1 == 1, all.contains(&packet));
                    }
                }
                prop_assert_eq!((first + 64 * words.len() as u64 - 1) / 64, newest / 64);
            }
        }
    }
}
