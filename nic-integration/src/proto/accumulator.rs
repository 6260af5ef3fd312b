//! What a sum region needs to know of a scheme.

use std::ops::Range;

use super::ack::Refusal;

/// How a contribution is cut into chunks. Fixed for the life of the value. Chunks follow one another
/// without gaps: `chunk_offset(c + 1) = chunk_offset(c) + chunk_bytes(c)`.
pub trait ChunkLayout: Send + Sync {
    /// How many chunks a contribution has.
    fn chunk_count(&self) -> u32;

    /// Payload bytes of a chunk, at least 1; the last may be shorter. `chunk < chunk_count()`.
    fn chunk_bytes(&self, chunk: u32) -> usize;

    /// Byte offset of a chunk in the contribution. `chunk < chunk_count()`.
    fn chunk_offset(&self, chunk: u32) -> u64;

    /// The chunks whose sums are worth something only together with this one's, itself among them: they
    /// must be of the same contributors, and of one [`Shard`]. The same range for each of its chunks. Most
    /// schemes have none but the chunk itself. `chunk < chunk_count()`.
    fn group(&self, chunk: u32) -> Range<u32> {
        chunk..chunk + 1
    }
}

/// An accumulator over some chunks of one round. Knows the scheme; knows nothing of peers, bits or
/// retransmission, for which see [`SumRegion`](super::SumRegion).
pub trait Accumulator: Send {
    /// Whether the bytes of whole chunks are in the scheme's range; `payload` is as long as they are.
    ///
    /// # Errors
    ///
    /// [`Refusal::InvalidCiphertext`], as a rule. Nothing is added then.
    fn check(&mut self, chunks: Range<u32>, payload: &[u8]) -> Result<(), Refusal>;

    /// Adds bytes that passed [`check`](Self::check). Called exactly once per contributor and
    /// chunk, never after [`finish`](Self::finish) of that chunk.
    fn add(&mut self, chunks: Range<u32>, payload: &[u8]);

    /// The chunk's sum in its wire form. Called at most once per chunk, after at least one `add`.
    ///
    /// # Errors
    ///
    /// The reason why this chunk's sum must be withheld, for the log and the summary.
    fn finish(&mut self, chunk: u32) -> Result<Vec<u8>, String>;
}

/// Chunks that follow one another, and what sums them.
pub struct Shard {
    /// Never none.
    pub chunks: Range<u32>,
    /// Asked of these chunks only, by their numbers in the whole contribution.
    pub accumulator: Box<dyn Accumulator>,
}
