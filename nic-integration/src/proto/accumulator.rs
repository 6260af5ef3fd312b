//! The scheme's side of a sum region: the layout of contributions, and what adds them.

use std::cmp::Ordering::{Equal, Greater, Less};
use std::num::NonZeroU32;
use std::ops::Range;

use super::ack::Refusal;

/// The layout of a contribution: chunks of one length, the last cut to what is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkLayout {
    /// Bytes of every chunk but the last.
    pub chunk_bytes: NonZeroU32,
    /// Bytes of all chunks; 0 of none.
    pub total_bytes: u64,
}

impl ChunkLayout {
    /// Returns the number of chunks.
    #[must_use]
    pub fn chunk_count(&self) -> u32 {
        self.total_bytes.div_ceil(self.chunk_bytes.get().into()).try_into().unwrap_or(u32::MAX)
    }

    /// Returns the place of chunks in a contribution, in bytes.
    #[must_use]
    pub fn bytes_of(&self, chunks: &Range<u32>) -> Range<u64> {
        let offset = |chunk: u32| u64::from(chunk) * u64::from(self.chunk_bytes.get());
        offset(chunks.start).min(self.total_bytes)..offset(chunks.end).min(self.total_bytes)
    }

    /// Returns the whole chunks that a payload holds.
    ///
    /// # Errors
    ///
    /// There are no such chunks, or they are not at this offset, or not whole.
    pub(super) fn chunks_at(
        &self,
        first: u32,
        offset: u64,
        payload: &[u8],
    ) -> Result<Range<u32>, Refusal> {
        let chunk_bytes = u64::from(self.chunk_bytes.get());
        let start = u64::from(first) * chunk_bytes;
        if start >= self.total_bytes {
            return Err(Refusal::ChunkOutOfRange);
        }
        if offset != start {
            return Err(Refusal::WrongOffset);
        }
        let end = start + payload.len() as u64;
        match end.cmp(&self.total_bytes) {
            Less if end.is_multiple_of(chunk_bytes) => Ok(first..(end / chunk_bytes) as u32),
            Less => Err(Refusal::WrongLength),
            Equal => Ok(first..self.chunk_count()),
            Greater => Err(Refusal::ChunkOutOfRange),
        }
    }
}

/// Adds ciphertexts of some chunks of one round. Knows the scheme; knows nothing of peers, bits or
/// retransmission, for which see [`SumRegion`](super::SumRegion).
pub trait ChunkAdder: Send {
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

    /// Returns the sum of a chunk, to which `count` contributors were added, in its wire form. Called at
    /// most once a chunk, after at least one `add`.
    ///
    /// # Errors
    ///
    /// The reason to withhold this chunk's sum, for the log and the summary.
    fn finish(&mut self, chunk: u32, count: u32) -> Result<Vec<u8>, String>;
}

/// Consecutive chunks, and what adds them.
pub struct Shard {
    /// Never empty.
    pub chunks: Range<u32>,
    /// Used for these chunks only, by their numbers in the whole contribution.
    pub adder: Box<dyn ChunkAdder>,
}
