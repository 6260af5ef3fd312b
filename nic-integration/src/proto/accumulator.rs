//! The scheme's side of a sum region: the layout of contributions, and accumulators.

use std::ops::Range;

use super::ack::Refusal;

/// The layout of a contribution in chunks. Fixed for the life of the value. Chunks follow one
/// another without gaps: `chunk_offset(c + 1) = chunk_offset(c) + chunk_bytes(c)`.
pub trait ChunkLayout: Send + Sync {
    /// Returns the number of chunks of a contribution.
    fn chunk_count(&self) -> u32;

    /// Returns the payload bytes of a chunk, at least 1: the same for all but the last, which may be shorter.
    /// `chunk < chunk_count()`.
    fn chunk_bytes(&self, chunk: u32) -> usize;

    /// Returns the byte offset of a chunk in the contribution. `chunk < chunk_count()`.
    fn chunk_offset(&self, chunk: u32) -> u64;

    /// Returns the group of a chunk: the chunks that open only together, itself among them. Their
    /// sums must have the same contributors, and they must be of one [`Shard`]. The range is the
    /// same for each of them. In most schemes a chunk is a group alone. `chunk < chunk_count()`.
    fn group(&self, chunk: u32) -> Range<u32> {
        chunk..chunk + 1
    }
}

/// Adds ciphertexts of some chunks of one round. Knows the scheme; knows nothing of peers, bits or
/// retransmission, for which see [`SumRegion`](super::SumRegion).
pub trait Accumulator: Send {
    /// Checks that the bytes of whole chunks are in the scheme's range, for what is added later; `payload` is as long
    /// as the chunks.
    ///
    /// # Errors
    ///
    /// [`Refusal::InvalidCiphertext`], as a rule.
    fn check(&mut self, chunks: Range<u32>, payload: &[u8]) -> Result<(), Refusal>;

    /// Adds the bytes of whole chunks, unless they fail a [`check`](Self::check): then it adds none. Adds a
    /// contributor's chunk at most once, and never after [`finish`](Self::finish) of that chunk.
    ///
    /// # Errors
    ///
    /// As [`check`](Self::check); none if the bytes have passed that.
    fn add(&mut self, chunks: Range<u32>, payload: &[u8]) -> Result<(), Refusal>;

    /// Returns the chunk's sum in its wire form. Called at most once per chunk, after at least one
    /// `add`.
    ///
    /// # Errors
    ///
    /// The reason to withhold this chunk's sum, for the log and the summary.
    fn finish(&mut self, chunk: u32) -> Result<Vec<u8>, String>;
}

/// Consecutive chunks and their accumulator.
pub struct Shard {
    /// Never empty.
    pub chunks: Range<u32>,
    /// Used for these chunks only, by their numbers in the whole contribution.
    pub accumulator: Box<dyn Accumulator>,
}
