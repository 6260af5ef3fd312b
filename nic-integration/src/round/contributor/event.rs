//! Events of a contributor, and the descriptions of rounds that they carry.

use crate::proto::Refusal;
use crate::round::End;

/// A round as the aggregator opened it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opening {
    /// The round.
    pub round: u32,
    /// The aggregator's incarnation; with the round, what a [`Resume`] names.
    pub incarnation: u32,
    /// How many clients are declared: the length of bitmaps, in bits, before padding.
    pub declared: u16,
    /// No sum of fewer leaves the aggregator.
    pub min_clients: u16,
    /// What remains of the round, in milliseconds, as the aggregator saw it when it said so.
    pub deadline_ms: u64,
    /// The contributors admitted, ascending.
    pub contributors: Vec<u16>,
    /// The job's own words.
    pub terms: Vec<u8>,
}

/// What the owner knows of the sums to come, from the round terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SumLayout {
    /// How many chunks.
    pub chunks: u32,
    /// Bytes of the longest chunk's sum.
    pub sum_bytes: usize,
}

/// What a contributor tells its owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContributorEvent {
    /// The round is open: [`accept`](Contributor::accept) it, then push every chunk, from the
    /// first. Comes again when the contribution must be issued again (the aggregator restarted,
    /// say, which the incarnation tells): then everything before is void.
    Opened(Opening),
    /// A chunk's sum came back.
    Sum {
        /// The chunk.
        chunk: u32,
        /// Who is in it: bit `c % 8` of byte `c / 8` is contributor `c`.
        bitmap: Vec<u8>,
        /// The sum's wire bytes.
        bytes: Vec<u8>,
    },
    /// Chunks that we pushed are in their sums, unless the aggregator dies.
    Counted {
        /// The first chunk pushed with them.
        first_chunk: u32,
    },
    /// Chunks that we pushed were refused. [`Refusal::RoundClosed`]: they came too late, and the
    /// round goes on. Anything else is a defect, an impostor or a lost spool.
    Rejected {
        /// The first chunk pushed with the one refused.
        first_chunk: u32,
        /// Why.
        refusal: Refusal,
    },
    /// The round is over, and every sum that it made has been reported.
    Ended(End),
    /// The aggregator will not have us, and says why.
    Refused {
        /// Its words.
        reason: String,
    },
    /// The aggregator does not answer; [`rejoin`](Contributor::rejoin) tries again.
    Unreachable,
}
