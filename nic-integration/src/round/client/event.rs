//! Events of a client, and the descriptions of rounds that they carry.

use crate::proto::Refusal;
use crate::round::RoundEnd;

/// A round as the aggregator opened it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoundOpening {
    /// The round.
    pub round: u32,
    /// The aggregator's incarnation; with the round, what a [`Resume`](crate::round::Resume) names.
    pub incarnation: u32,
    /// The number of clients declared: the length of bitmaps, in bits, before padding.
    pub declared: u16,
    /// No sum of fewer leaves the aggregator.
    pub min_clients: u16,
    /// The rest of the round, in milliseconds, when the aggregator sent this.
    pub deadline_ms: u64,
    /// The contributors admitted, ascending.
    pub contributors: Vec<u16>,
    /// The application's terms.
    pub terms: Vec<u8>,
}

/// The layout of the sums to come, which the owner derives from the round terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SumLayout {
    /// The number of chunks.
    pub chunks: u32,
    /// Bytes of the longest chunk's sum.
    pub sum_bytes: usize,
}

/// The sums of a round in the memory that the aggregator wrote them to.
pub struct Sums {
    /// The memory: what was written last for each chunk, and zeros where nothing came.
    pub bytes: Vec<u8>,
    /// The bytes from one chunk to the next.
    pub stride: usize,
    /// The bytes of a chunk's bitmap, before its sum.
    pub skipped: usize,
}

impl Sums {
    /// Returns the sums of chunks alone, of `length_of` bytes each, in the same memory: one after the other.
    #[must_use]
    pub fn into_stream(mut self, length_of: impl Iterator<Item = usize>) -> Vec<u8> {
        let mut end = 0;
        for (chunk, length) in length_of.enumerate() {
            let start = chunk * self.stride + self.skipped;
            self.bytes.copy_within(start..start + length, end);
            end += length;
        }
        self.bytes.truncate(end);
        self.bytes
    }
}

/// An event of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RoundClientEvent {
    /// The round is open: [`accept`](super::RoundClient::accept) it, then push every chunk, from
    /// the first. Comes again when the contribution must be issued again (after a restart of the
    /// aggregator, say, which changes the incarnation): then everything before is void.
    Opened(RoundOpening),
    /// A chunk's sum came back.
    Sum {
        /// The chunk.
        chunk: u32,
        /// The contributors in the sum: bit `c % 8` of byte `c / 8` is contributor `c`.
        bitmap: Vec<u8>,
        /// The sum's wire bytes.
        bytes: Vec<u8>,
    },
    /// Chunks that we pushed are in their sums, unless the aggregator dies; if it counts whole
    /// contributions only, once all that we push are counted.
    Counted {
        /// The first chunk pushed with them.
        first_chunk: u32,
    },
    /// Chunks that we pushed were refused. [`Refusal::RoundClosed`]: they came too late, and the
    /// round goes on. Anything else is a defect, an impostor or a lost spool.
    Rejected {
        /// The first chunk of the datagram refused. What was pushed with it may count in part.
        first_chunk: u32,
        /// The reason.
        refusal: Refusal,
    },
    /// The round is over, and every sum that it made has been reported.
    Ended(RoundEnd),
    /// The aggregator refuses us.
    Refused {
        /// Its reason.
        reason: String,
    },
    /// The aggregator does not answer; [`rejoin`](super::RoundClient::rejoin) tries again.
    Unreachable,
    /// The aggregator does not list our node.
    Unlisted,
}
