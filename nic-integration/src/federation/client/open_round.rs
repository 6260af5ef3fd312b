//! A round that is open: its terms, the chunks pushed so far and the sums that came back.

use std::{num::NonZeroU32, time::Instant};

use bytes::Bytes;
use ciphergram_he::{Contributor, ContributorSet, exchange::RoundTerms, params::Chunks};

use super::stream::SealedStream;
use crate::{
    federation::{Error, participation::ParticipationPhase},
    round::{RoundEnd, RoundOpening, Sums},
};

/// Bytes of chunks in one message, rounded up to whole chunks: a refusal takes the rest of its message with it.
const MAX_PUSH_BYTES: usize = 1 << 16;

/// A round from its opening on.
pub(super) struct OpenRound {
    /// The time at which this contribution first met an open round.
    pub(super) since: Instant,
    pub(super) opening: RoundOpening,
    pub(super) terms: RoundTerms,
    /// For each chunk, the contributors of the sum that came back.
    pub(super) sets: Vec<ContributorSet>,
    chunks: Chunks,
    /// The first chunk that is not pushed yet.
    next: u32,
    /// Whether the shares are sent, which follow all chunks.
    pub(super) shares_sent: bool,
    /// Sums that came back.
    back: u32,
}

impl OpenRound {
    /// Returns a round of which nothing is pushed.
    pub(super) fn new(
        since: Instant,
        opening: RoundOpening,
        terms: RoundTerms,
        chunks: Chunks,
    ) -> Self {
        let sets = vec![ContributorSet::none(terms.participants.len()); chunks.count() as usize];
        Self { since, opening, terms, sets, chunks, next: 0, shares_sent: false, back: 0 }
    }

    /// Returns the next chunks that are sealed and not pushed yet: the first, and their bytes.
    pub(super) fn next_push(&mut self, stream: &SealedStream) -> Option<(u32, Bytes)> {
        let first = self.next;
        let mut bytes = stream.rest(self.chunks.offset_of(first));
        let each = self.chunk_bytes().get() as usize;
        bytes.truncate(MAX_PUSH_BYTES.next_multiple_of(each));
        // Only the last chunk may be shorter, and is sealed whole.
        self.next += bytes.len().div_ceil(each) as u32;
        (!bytes.is_empty()).then_some((first, bytes))
    }

    /// Returns whether all chunks are pushed.
    pub(super) fn is_pushed(&self) -> bool {
        self.next == self.chunks.count()
    }

    /// Returns the bytes of a chunk; the last may have fewer.
    pub(super) fn chunk_bytes(&self) -> NonZeroU32 {
        let bytes = self.chunks.geometry().chunk_bytes() as u32;
        NonZeroU32::new(bytes).unwrap_or(NonZeroU32::MIN)
    }

    /// Notes a chunk's sum, which stays where it landed. The bitmap is over client numbers; ours are over participants.
    ///
    /// # Errors
    ///
    /// The reason why it makes no sense.
    pub(super) fn take_sum(
        &mut self,
        chunk: u32,
        bitmap: &[u8],
        bytes: &[u8],
    ) -> Result<(), &'static str> {
        if bytes.len() != self.chunks.bytes_of(chunk) {
            return Err("a sum of the wrong length");
        }
        let mut set = ContributorSet::none(self.terms.participants.len());
        let mut known = 0;
        for (index, Contributor { number, .. }) in self.terms.participants.iter().enumerate() {
            let byte = bitmap.get(usize::from(number / 8)).copied().unwrap_or(0);
            if byte >> (number % 8) & 1 == 1 {
                set.insert(index);
                known += 1;
            }
        }
        if bitmap.iter().map(|b| b.count_ones()).sum::<u32>() != known {
            return Err("a sum of someone who does not take part");
        }
        self.sets[chunk as usize] = set;
        self.back += 1;
        Ok(())
    }

    /// Returns the chunks that are sealed, of so many bytes.
    fn sealed(&self, bytes: usize) -> u32 {
        let (chunks, each) = (self.chunks.count(), self.chunks.geometry().chunk_bytes());
        // Only the last chunk may be shorter, and is sealed whole.
        bytes.div_ceil(each).min(chunks as usize) as u32
    }

    /// Returns how far it is, with the bytes that are sealed.
    pub(super) fn phase(&self, sealed_bytes: usize) -> ParticipationPhase {
        let (chunks, sealed) = (self.chunks.count(), self.sealed(sealed_bytes));
        let contributors = self.terms.participants.len();
        ParticipationPhase::Exchanging {
            contributors,
            chunks,
            sealed,
            sent: self.next,
            back: self.back,
        }
    }

    /// Returns the phase that follows.
    pub(super) fn opening_phase(&self, sealed_bytes: usize) -> ParticipationPhase {
        ParticipationPhase::Opening {
            chunks: self.chunks.count(),
            sealed: self.sealed(sealed_bytes),
        }
    }

    /// Returns the stream of all sums, where they landed; empty if none did.
    pub(super) fn stream(&self, landed: Option<Sums>) -> Vec<u8> {
        let lengths = (0..self.chunks.count()).map(|chunk| self.chunks.bytes_of(chunk));
        landed.map_or_else(Vec::new, |landed| landed.into_stream(lengths))
    }

    /// Refuses a sum with chunks withheld.
    ///
    /// # Errors
    ///
    /// [`Error::Withheld`].
    pub(super) fn check_whole(&self, end: &RoundEnd) -> Result<(), Error> {
        if end.withheld == 0 {
            return Ok(());
        }
        let (withheld, chunks) = (end.withheld, self.chunks.count());
        Err(Error::Withheld { round: end.round, withheld, chunks, reason: end.reason.clone() })
    }
}
