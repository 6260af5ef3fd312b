//! Counters of one endpoint, as plain numbers to print or export.

use std::ops::Add;

/// Datagrams in one direction, and their bytes by kind.
///
/// UDP and IP headers are not counted (28 bytes a datagram over IPv4, 48 over IPv6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Number of datagrams.
    pub datagrams: u64,
    /// Bytes of their 64-byte headers, header tags included.
    pub header_bytes: u64,
    /// Bytes of their payloads.
    pub payload_bytes: u64,
    /// Bytes of the tags that they end with.
    pub tag_bytes: u64,
}

impl Traffic {
    /// Returns all bytes handed to, or received from, the wire.
    #[must_use]
    pub fn wire_bytes(&self) -> u64 {
        self.header_bytes + self.payload_bytes + self.tag_bytes
    }

    pub(crate) fn count(&mut self, payload_bytes: usize) {
        self.datagrams += 1;
        self.header_bytes += super::datagram::HEADER_BYTES as u64;
        self.payload_bytes += payload_bytes as u64;
        self.tag_bytes += super::datagram::TAG_BYTES as u64;
    }
}

impl Add for Traffic {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            datagrams: self.datagrams + other.datagrams,
            header_bytes: self.header_bytes + other.header_bytes,
            payload_bytes: self.payload_bytes + other.payload_bytes,
            tag_bytes: self.tag_bytes + other.tag_bytes,
        }
    }
}

/// Counters of an endpoint since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Datagrams sent, acknowledgements and retransmissions included.
    pub sent: Traffic,
    /// Datagrams received that a session vouches for.
    pub received: Traffic,
    /// Of those sent: acknowledgements.
    pub acks_sent: u64,
    /// Of those sent: retransmissions.
    pub retransmitted: u64,
    /// Bytes of the longest datagrams that the path of the latest message is known to take; 0 before the first. Of
    /// several pipelines the most.
    pub datagram_bytes: u64,
    /// Times that a path began to rest, for its silence or its lag.
    pub paths_rested: u64,
    /// Of those received: already committed, answered again or too old to matter.
    pub duplicates: u64,
    /// Of those received: refused with a code.
    pub refused: u64,
    /// Of those received: dropped unanswered because a bound was reached.
    pub overrun: u64,
    /// Of those received: headers whose payload was cut off on the way.
    pub trimmed: u64,
    /// Of those received: marked for congestion on the way (ECN).
    pub congested: u64,
    /// Datagrams received that no session of ours vouches for: forged, corrupted, random, or of a
    /// session that is over.
    pub malformed: u64,
    /// Datagrams of handshakes, in both directions; their bytes are not in the traffic above.
    pub handshakes: u64,
    /// First messages that got no session: from nodes that may not talk to us, or without a cookie.
    pub turned_away: u64,
}

impl Add for Stats {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            sent: self.sent + other.sent,
            received: self.received + other.received,
            acks_sent: self.acks_sent + other.acks_sent,
            retransmitted: self.retransmitted + other.retransmitted,
            datagram_bytes: self.datagram_bytes.max(other.datagram_bytes),
            paths_rested: self.paths_rested + other.paths_rested,
            duplicates: self.duplicates + other.duplicates,
            refused: self.refused + other.refused,
            overrun: self.overrun + other.overrun,
            trimmed: self.trimmed + other.trimmed,
            congested: self.congested + other.congested,
            malformed: self.malformed + other.malformed,
            handshakes: self.handshakes + other.handshakes,
            turned_away: self.turned_away + other.turned_away,
        }
    }
}
