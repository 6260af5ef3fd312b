//! One shard of a sum region: consecutive chunks, their bookkeeping and what adds them.

use std::ops::Range;
use std::sync::Mutex;

use smallvec::SmallVec;

use crate::proto::accumulator::{ChunkAdder, ChunkLayout, Shard, grain};
use crate::proto::ack::Refusal;
use crate::proto::bits;

use super::whole::Staged;

/// Chunks of a complete contribution that are added at a time: some 64 KiB, which fit a core's cache.
const RUN_CHUNKS: usize = 64;

/// Consecutive chunks under one lock.
pub(super) struct LockedShard {
    pub(super) chunks: Range<u32>,
    pub(super) state: Mutex<ShardState>,
}

impl LockedShard {
    /// Makes an empty shard. A chunk closes when `target` of `contributors` have contributed to it.
    /// If `whole`, only those count who have contributed to every chunk of `layout`.
    pub(super) fn new(
        shard: Shard,
        contributors: u16,
        target: u32,
        layout: ChunkLayout,
        whole: bool,
    ) -> Self {
        let Shard { chunks, adder } = shard;
        let (count, words) = (chunks.len(), usize::from(contributors).div_ceil(64));
        let bytes = || {
            let Range { start, end } = layout.bytes_of(&chunks);
            (end - start) as usize
        };
        let state = Mutex::new(ShardState {
            first: chunks.start,
            words,
            target,
            adder,
            bits: vec![0; if whole { 0 } else { count * words }],
            counts: vec![0; count],
            closed: vec![false; count],
            staged: whole.then(|| {
                Staged::new(words, bytes(), grain(layout.chunk_bytes, false).get() as usize)
            }),
            failure: None,
        });
        Self { chunks, state }
    }
}

/// The bookkeeping of a shard's chunks, and their sums.
pub(super) struct ShardState {
    first: u32,
    /// Words of a chunk's bits.
    words: usize,
    target: u32,
    adder: Box<dyn ChunkAdder>,
    /// Who has contributed, if each chunk counts by itself: `[chunk][word]`, contributor 0 in the least significant bit
    /// of word 0.
    bits: Vec<u64>,
    /// The number of contributors in each sum.
    counts: Vec<u32>,
    closed: Vec<bool>,
    /// What is contributed and not added yet, if only whole contributions count.
    staged: Option<Staged>,
    /// The reason to withhold all sums: a part of a contribution was not added with the rest of it.
    failure: Option<String>,
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

    /// Returns the bits of those who have contributed to a chunk.
    fn contributed(&self, chunk: u32) -> &[u64] {
        &self.bits[self.at(chunk) * self.words..][..self.words]
    }

    /// Returns the bits of the contributors in a chunk's sum.
    pub(super) fn row(&self, chunk: u32) -> &[u64] {
        self.staged.as_ref().map_or_else(|| self.contributed(chunk), |staged| &staged.added)
    }

    pub(super) fn has(&self, chunk: u32, contributor: u16) -> bool {
        bits::has(self.row(chunk), contributor.into())
    }

    /// Closes a chunk; `true` if it was open.
    pub(super) fn close(&mut self, chunk: u32) -> bool {
        let at = self.at(chunk);
        !std::mem::replace(&mut self.closed[at], true)
    }

    /// Returns whether chunks all take contributions still.
    pub(super) fn is_open(&self, mut chunks: Range<u32>) -> bool {
        chunks.all(|chunk| !self.is_closed(chunk))
    }

    /// Iterates over the runs of those chunks that are not contributed yet.
    pub(super) fn fresh(
        &self,
        contributor: u16,
        mut chunks: Range<u32>,
    ) -> impl Iterator<Item = Range<u32>> {
        let is_fresh = move |chunk: &u32| !bits::has(self.contributed(*chunk), contributor.into());
        std::iter::from_fn(move || {
            let start = chunks.find(is_fresh)?;
            let end = chunks.find(|chunk| !is_fresh(chunk)).unwrap_or(chunks.end);
            Some(start..end)
        })
    }

    /// Checks that chunks are in the scheme's range.
    pub(super) fn check(&mut self, chunks: Range<u32>, bytes: &[u8]) -> Result<(), Refusal> {
        self.adder.check(chunks, bytes)
    }

    /// Adds chunks that are not contributed yet.
    pub(super) fn commit(
        &mut self,
        contributor: u16,
        chunks: Range<u32>,
        bytes: &[u8],
        closed: &mut Vec<u32>,
    ) -> Result<(), Refusal> {
        self.add(chunks.clone(), bytes, closed)?;
        for chunk in chunks {
            let at = self.at(chunk);
            bits::set(&mut self.bits[at * self.words..][..self.words], contributor.into());
        }
        Ok(())
    }

    /// Returns the place in the shard of some bytes of a contribution.
    fn place(&self, bytes: &Range<u64>, layout: ChunkLayout) -> Range<usize> {
        let begin = layout.bytes_of(&(0..self.first)).end;
        (bytes.start - begin) as usize..(bytes.end - begin) as usize
    }

    /// Returns whether bytes of a contributor, at that place in the contribution, are staged.
    pub(super) fn has_staged(
        &self,
        contributor: u16,
        at: &Range<u64>,
        layout: ChunkLayout,
    ) -> bool {
        let place = self.place(at, layout);
        self.staged.as_ref().is_some_and(|staged| staged.has(contributor, &place))
    }

    /// Holds bytes of a contributor, and checks the chunks that they complete. Returns how many these are. Nothing
    /// counts as staged until [`mark_staged`](Self::mark_staged).
    pub(super) fn hold(
        &mut self,
        contributor: u16,
        at: &Range<u64>,
        bytes: &[u8],
        layout: ChunkLayout,
    ) -> Result<u32, Refusal> {
        let place = self.place(at, layout);
        let chunks = layout.chunks_of(at).map(|chunk| chunk..chunk + 1);
        let chunks = chunks.map(|chunk| (self.place(&layout.bytes_of(&chunk), layout), chunk));
        let chunks: SmallVec<[_; 8]> = chunks.collect();
        let Some(staged) = &mut self.staged else { return Ok(0) };
        staged.hold(contributor, place.start, bytes);
        let mut runs: SmallVec<[(Range<usize>, Range<u32>); 2]> = SmallVec::new();
        for (own, chunk) in chunks {
            if !staged.completes(contributor, &place, &own) {
                continue;
            }
            match runs.last_mut() {
                Some((bytes, run)) if run.end == chunk.start => {
                    (bytes.end, run.end) = (own.end, chunk.end);
                }
                _ => runs.push((own, chunk)),
            }
        }
        let held = staged.held(contributor).unwrap_or_default();
        for (bytes, run) in &runs {
            self.adder.check(run.clone(), &held[bytes.clone()])?;
        }
        Ok(runs.iter().map(|(_, run)| run.len() as u32).sum())
    }

    /// Notes that what is held is staged.
    pub(super) fn mark_staged(&mut self, contributor: u16, at: &Range<u64>, layout: ChunkLayout) {
        let place = self.place(at, layout);
        if let Some(staged) = &mut self.staged {
            staged.mark(contributor, &place);
        }
    }

    /// Adds one contributor's chunks, if they are in range, and closes those that reach their target.
    fn add(
        &mut self,
        chunks: Range<u32>,
        payload: &[u8],
        closed: &mut Vec<u32>,
    ) -> Result<(), Refusal> {
        self.adder.add(chunks.clone(), payload)?;
        for chunk in chunks {
            let at = self.at(chunk);
            self.counts[at] += 1;
            if self.counts[at] == self.target && self.close(chunk) {
                closed.push(chunk);
            }
        }
        Ok(())
    }

    /// Adds what a complete contributor has staged here, unless that happened already.
    pub(super) fn add_staged(
        &mut self,
        contributor: u16,
        layout: ChunkLayout,
        closed: &mut Vec<u32>,
    ) {
        let staged = self.staged.as_mut().and_then(|staged| staged.take(contributor));
        let Some(payload) = staged else { return };
        let (mut rest, end) = (&payload[..], self.first + self.counts.len() as u32);
        for start in (self.first..end).step_by(RUN_CHUNKS) {
            let chunks = start..end.min(start + RUN_CHUNKS as u32);
            let Range { start, end } = layout.bytes_of(&chunks);
            let (own, after) = rest.split_at((end - start) as usize);
            if let Err(refusal) = self.add(chunks, own, closed) {
                let why = format!("contributor {contributor}: {refusal}, after it was checked");
                self.failure.get_or_insert(why);
            }
            rest = after;
        }
        if let Some(staged) = &mut self.staged {
            bits::set(&mut staged.added, contributor.into());
        }
    }

    /// Returns what a contributor has staged here.
    pub(super) fn staged(&self, contributor: u16) -> Option<&[u8]> {
        self.staged.as_ref()?.held(contributor)
    }

    /// Drops what is staged and will never be added.
    pub(super) fn discard_staged(&mut self) {
        self.staged.iter_mut().for_each(Staged::discard);
    }

    pub(super) fn finish(&mut self, chunk: u32) -> Result<Vec<u8>, String> {
        let count = self.count(chunk);
        if !self.is_closed(chunk) || count == 0 {
            return Err(format!("chunk {chunk} is open or empty"));
        }
        if let Some(why) = &self.failure {
            return Err(why.clone());
        }
        self.adder.finish(chunk, count)
    }
}
