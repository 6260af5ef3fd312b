//! Counters of one endpoint. Plain numbers: whoever holds them may print or export them.

/// Datagrams one way, split by what their bytes are.
///
/// UDP and IP headers are not counted (28 bytes a datagram over IPv4, 48 over IPv6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// How many datagrams.
    pub datagrams: u64,
    /// Bytes of their 64-byte headers, header tags included.
    pub header_bytes: u64,
    /// Bytes of their payloads.
    pub payload_bytes: u64,
    /// Bytes of their payload tags.
    pub tag_bytes: u64,
}

impl Traffic {
    /// All bytes handed to, or received from, the wire.
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

/// What an endpoint has seen and done since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Datagrams sent, acknowledgements and retransmissions included.
    pub sent: Traffic,
    /// Well-formed datagrams received.
    pub received: Traffic,
    /// Of those sent: acknowledgements.
    pub acks_sent: u64,
    /// Of those sent: retransmissions.
    pub retransmitted: u64,
    /// Of those received: already committed, answered again or too old to matter.
    pub duplicates: u64,
    /// Of those received: refused with a code.
    pub refused: u64,
    /// Of those received: dropped unanswered because a bound was reached.
    pub overrun: u64,
    /// Of those received: meant for another incarnation.
    pub misdirected: u64,
    /// Bytes received that were no datagram: truncated, corrupted, random.
    pub malformed: u64,
}
