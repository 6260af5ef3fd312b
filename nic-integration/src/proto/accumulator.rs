//! The scheme's side of a sum region: the layout of contributions, and what adds them.

use std::cmp::Ordering::{Equal, Greater, Less};
use std::num::NonZeroU32;
use std::ops::Range;

use super::ack::Refusal;
use super::datagram::BLOCK_BYTES;

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

    /// Checks that a payload has a place in the contribution, cut at multiples of `grain`.
    ///
    /// # Errors
    ///
    /// There is no such place, or it is not cut so.
    pub(super) fn place_of(
        &self,
        offset: u64,
        payload: &[u8],
        grain: NonZeroU32,
    ) -> Result<Range<u64>, Refusal> {
        if offset >= self.total_bytes {
            return Err(Refusal::ChunkOutOfRange);
        }
        let grain = u64::from(grain.get());
        if !offset.is_multiple_of(grain) {
            return Err(Refusal::WrongOffset);
        }
        let end = offset + payload.len() as u64;
        match end.cmp(&self.total_bytes) {
            Less if !end.is_multiple_of(grain) => Err(Refusal::WrongLength),
            Less | Equal => Ok(offset..end),
            Greater => Err(Refusal::ChunkOutOfRange),
        }
    }

    /// Returns the chunks of which a part lies within some bytes.
    pub(super) fn chunks_of(&self, bytes: &Range<u64>) -> Range<u32> {
        let each = u64::from(self.chunk_bytes.get());
        (bytes.start / each) as u32..bytes.end.div_ceil(each) as u32
    }
}

/// Returns the bytes at whose multiples datagrams of a contribution may be cut: those of a chunk, if each counts by
/// itself, or of the longest block that chunks are made of: a power of two, at most [`BLOCK_BYTES`].
pub(super) fn grain(chunk_bytes: NonZeroU32, by_chunk: bool) -> NonZeroU32 {
    if by_chunk {
        return chunk_bytes;
    }
    let shift = chunk_bytes.trailing_zeros().min(BLOCK_BYTES.trailing_zeros());
    NonZeroU32::new(1 << shift).unwrap_or(NonZeroU32::MIN)
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
