//! Datagrams that wait to be checked and added together.

use std::ops::Range;

/// Bytes of chunks in a batch: as many as GRO joins, which fit a core's cache.
const BATCH_BYTES: usize = 1 << 16;

/// Datagrams of one pipeline for one region, which are added together: accumulators do best with
/// many ciphertexts at a time. `R` names the packet to answer.
pub(in crate::proto) struct Batch<R> {
    /// The chunks of all datagrams.
    pub(super) bytes: Vec<u8>,
    pub(super) pieces: Vec<Piece>,
    pub(super) datagrams: Vec<Waiting<R>>,
}

/// A datagram in a batch.
pub(super) struct Waiting<R> {
    pub(super) reply_to: R,
    pub(super) contributor: u16,
    pub(super) chunks: Range<u32>,
    /// Its pieces in the batch.
    pub(super) pieces: Range<usize>,
}

/// A whole chunk of a datagram.
pub(super) struct Piece {
    pub(super) chunk: u32,
    /// Its place in the bytes of the batch.
    pub(super) bytes: Range<usize>,
}

impl<R> Default for Batch<R> {
    fn default() -> Self {
        Self { bytes: vec![], pieces: vec![], datagrams: vec![] }
    }
}

impl<R> Batch<R> {
    /// Returns whether it must be added before it takes a datagram of `payload_bytes`.
    pub(in crate::proto) fn is_full(&self, payload_bytes: usize) -> bool {
        self.bytes.len() + payload_bytes > BATCH_BYTES
    }

    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.pieces.clear();
        self.datagrams.clear();
    }
}
