//! One shard of a sum region: consecutive chunks, their bookkeeping and their accumulator.

use std::ops::Range;
use std::sync::Mutex;

use crate::proto::accumulator::{Accumulator, ChunkLayout, Shard};
use crate::proto::ack::Refusal;

use super::batch::{Digest, Piece};

/// A refused SUM, and the chunk at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::proto) struct SumRefused {
    pub(in crate::proto) refusal: Refusal,
    pub(in crate::proto) chunk: u32,
}

/// Consecutive chunks under one lock.
pub(super) struct LockedShard {
    pub(super) chunks: Range<u32>,
    pub(super) state: Mutex<ShardState>,
}

impl LockedShard {
    /// Makes an empty shard. A chunk closes when `target` of `contributors` have contributed to it.
    pub(super) fn new(shard: Shard, contributors: u16, target: u32) -> Self {
        let Shard { chunks, accumulator } = shard;
        let (count, words) = (chunks.len(), usize::from(contributors).div_ceil(64));
        let state = Mutex::new(ShardState {
            first: chunks.start,
            words,
            contributors,
            target,
            accumulator,
            bits: vec![0; count * words],
            group: None,
            digests: vec![Digest::default(); count * usize::from(contributors)],
            counts: vec![0; count],
            closed: vec![false; count],
        });
        Self { chunks, state }
    }
}

/// The bookkeeping of a shard's chunks, and their sums.
pub(super) struct ShardState {
    first: u32,
    /// Words of a chunk's bits.
    words: usize,
    contributors: u16,
    target: u32,
    accumulator: Box<dyn Accumulator>,
    /// `[chunk][word]`, contributor 0 in the least significant bit of word 0.
    bits: Vec<u64>,
    /// The first chunk of the group checked last, and the result, until a bit is set.
    group: Option<(u32, Result<(), String>)>,
    /// `[chunk][contributor]`; meaningful where the bit is set.
    digests: Vec<Digest>,
    counts: Vec<u32>,
    closed: Vec<bool>,
}

impl ShardState {
    pub(super) fn count(&self, chunk: u32) -> u32 {
        self.counts[self.at(chunk)]
    }

    pub(super) fn is_closed(&self, chunk: u32) -> bool {
        self.closed[self.at(chunk)]
    }

    fn at(&self, chunk: u32) -> usize {
        (chunk - self.first) as usize
    }

    pub(super) fn row(&self, chunk: u32) -> &[u64] {
        &self.bits[self.at(chunk) * self.words..][..self.words]
    }

    pub(super) fn has(&self, chunk: u32, contributor: u16) -> bool {
        let word = self.row(chunk).get(usize::from(contributor / 64)).copied().unwrap_or(0);
        word >> (contributor % 64) & 1 == 1
    }

    fn slot(&self, chunk: u32, contributor: u16) -> usize {
        self.at(chunk) * usize::from(self.contributors) + usize::from(contributor)
    }

    /// Closes a chunk; `true` if it was open.
    pub(super) fn close(&mut self, chunk: u32) -> bool {
        let at = self.at(chunk);
        !std::mem::replace(&mut self.closed[at], true)
    }

    /// Checks that chunks that were added before are the same, and that the others are open.
    pub(super) fn admit(
        &self,
        contributor: u16,
        pieces: &[Piece],
        whole: bool,
    ) -> Result<(), SumRefused> {
        for piece in pieces {
            let chunk = piece.chunk;
            let repeated = self.has(chunk, contributor);
            let differs = || self.digests[self.slot(chunk, contributor)] != piece.digest;
            if repeated && (whole || differs()) {
                return Err(SumRefused { refusal: Refusal::Equivocation, chunk });
            }
            if !repeated && self.is_closed(chunk) {
                return Err(SumRefused { refusal: Refusal::RoundClosed, chunk });
            }
        }
        Ok(())
    }

    /// Returns the first run of chunks that are not added yet, from `at` on.
    fn fresh(&self, contributor: u16, pieces: &[Piece], at: usize) -> Option<Range<usize>> {
        let is_fresh = |piece: &Piece| !self.has(piece.chunk, contributor);
        let start = at + pieces[at..].iter().position(is_fresh)?;
        let count = pieces[start..].iter().take_while(|piece| is_fresh(piece)).count();
        Some(start..start + count)
    }

    /// Checks that chunks that are not added yet are in the scheme's range.
    pub(super) fn check(
        &mut self,
        contributor: u16,
        pieces: &[Piece],
        bytes: &[u8],
    ) -> Result<(), SumRefused> {
        let mut at = 0;
        while let Some(run) = self.fresh(contributor, pieces, at) {
            at = run.end;
            let (chunks, place) = span(&pieces[run]);
            let chunk = chunks.start;
            let checked = self.accumulator.check(chunks, &bytes[place]);
            checked.map_err(|refusal| SumRefused { refusal, chunk })?;
        }
        Ok(())
    }

    /// Adds the chunks that are not added yet, and returns their number.
    pub(super) fn add(
        &mut self,
        contributor: u16,
        pieces: &[Piece],
        bytes: &[u8],
        closed: &mut Vec<u32>,
    ) -> u32 {
        let (mut at, mut added) = (0, 0);
        while let Some(run) = self.fresh(contributor, pieces, at) {
            at = run.end;
            let (chunks, place) = span(&pieces[run.clone()]);
            self.accumulator.add(chunks, &bytes[place]);
            added += run.len() as u32;
            pieces[run].iter().for_each(|piece| self.set_added(contributor, piece, closed));
        }
        added
    }

    /// Sets the bit of a chunk that was added, and closes it at its target.
    fn set_added(&mut self, contributor: u16, piece: &Piece, closed: &mut Vec<u32>) {
        let (at, slot) = (self.at(piece.chunk), self.slot(piece.chunk, contributor));
        self.bits[at * self.words + usize::from(contributor / 64)] |= 1 << (contributor % 64);
        self.digests[slot] = piece.digest;
        self.counts[at] += 1;
        self.group = None;
        if self.counts[at] == self.target && self.close(piece.chunk) {
            closed.push(piece.chunk);
        }
    }

    pub(super) fn finish(
        &mut self,
        chunk: u32,
        layout: &dyn ChunkLayout,
    ) -> Result<Vec<u8>, String> {
        let count = self.count(chunk);
        if !self.is_closed(chunk) || count == 0 {
            return Err(format!("chunk {chunk} is open or empty"));
        }
        // A chunk that everybody is in need not wait for its group: those that lack somebody at the
        // deadline are withheld.
        if count < self.target {
            let group = layout.group(chunk);
            let first = group.start;
            if self.group.as_ref().is_none_or(|(last, _)| *last != first) {
                self.group = Some((first, self.check_group(group)));
            }
            if let Some((_, Err(why))) = &self.group {
                return Err(why.clone());
            }
        }
        self.accumulator.finish(chunk)
    }

    /// Checks that the chunks of a group have the same contributors.
    ///
    /// # Errors
    ///
    /// The names of those who are in some of them only.
    fn check_group(&self, Range { start, end }: Range<u32>) -> Result<(), String> {
        if (start..end).all(|chunk| self.row(chunk) == self.row(start)) {
            return Ok(());
        }
        let is_partial = |contributor: &u16| {
            let has = |chunk| self.has(chunk, *contributor);
            (start..end).any(has) && !(start..end).all(has)
        };
        let partial: Vec<_> = (0..self.contributors).filter(is_partial).collect();
        Err(format!(
            "clients {partial:?} are in a part of chunks {start} to {} only, which cannot be opened \
             without each other: start the round again, without these clients or with all that they \
             have to send",
            end - 1
        ))
    }
}

/// Returns the chunks of consecutive pieces, and their place in the batch.
fn span(pieces: &[Piece]) -> (Range<u32>, Range<usize>) {
    let (first, last) = (&pieces[0], &pieces[pieces.len() - 1]);
    (first.chunk..last.chunk + 1, first.bytes.start..last.bytes.end)
}
