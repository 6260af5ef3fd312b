//! Which packets of a session came, against replays; and which are committed, which acknowledgements say.

/// Packets behind the newest one that are remembered; a sender never has packets further apart in
/// flight, and what is older is dropped as a replay (PROTOCOL §3.2).
pub const WINDOW_PACKETS: u64 = 64 * WORDS as u64;
/// Words of the window that an acknowledgement tells: so many acknowledgements in a row may be lost
/// as packets fit before a sender misses what they said.
pub const ACK_WORDS: usize = 16;

const WORDS: usize = 64;

/// One bit a packet, for the newest [`WINDOW_PACKETS`].
#[derive(Clone, Debug)]
pub(in crate::proto) struct Window {
    /// The newest packet, and so the newest word that has begun; none before the first.
    newest_packet: Option<u64>,
    newest: u64,
    /// Word `w` of the packet numbers is at `w % WORDS`.
    words: [u64; WORDS],
}

impl Window {
    pub(in crate::proto) fn new() -> Self {
        Self { newest_packet: None, newest: 0, words: [0; WORDS] }
    }

    /// Whether a packet is recent enough to tell whether it came before.
    pub(in crate::proto) fn remembers(&self, packet: u64) -> bool {
        packet / 64 + WORDS as u64 > self.newest
    }

    /// Whether a packet is newer than all before.
    pub(in crate::proto) fn is_newest(&self, packet: u64) -> bool {
        self.newest_packet < Some(packet)
    }

    /// Whether a packet that is [remembered](Self::remembers) was set.
    pub(in crate::proto) fn has(&self, packet: u64) -> bool {
        packet / 64 <= self.newest && self.word(packet / 64) >> (packet % 64) & 1 == 1
    }

    /// Notes a packet.
    pub(in crate::proto) fn set(&mut self, packet: u64) {
        self.newest_packet = self.newest_packet.max(Some(packet));
        let word = packet / 64;
        if word > self.newest {
            // Words that are passed over are forgotten with all that lies as long ago.
            for gone in (self.newest + 1..=word).rev().take(WORDS) {
                self.words[gone as usize % WORDS] = 0;
            }
            self.newest = word;
        }
        if self.remembers(packet) {
            self.words[word as usize % WORDS] |= 1 << (packet % 64);
        }
    }

    /// The newest words, oldest first, and the packet that the first of them begins with.
    pub(in crate::proto) fn recent(&self) -> (u64, impl Iterator<Item = u64>) {
        let first = (self.newest + 1).saturating_sub(ACK_WORDS as u64);
        (64 * first, (first..=self.newest).map(|word| self.word(word)))
    }

    fn word(&self, word: u64) -> u64 {
        self.words[word as usize % WORDS]
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Beside a set of all packets.
        #[test]
        fn it_remembers_what_is_recent(steps in proptest::collection::vec((0u64..9000, prop::bool::weighted(0.03)), 1..400)) {
            let (mut window, mut all, mut newest) = (Window::new(), BTreeSet::new(), 0u64);
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
