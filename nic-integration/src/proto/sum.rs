//! SUM: every contributor's chunk is added exactly once (PROTOCOL §6).

mod shard;
#[cfg(test)]
mod tests;
mod whole;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use smallvec::SmallVec;

use crate::NicError;

use super::accumulator::{ChunkLayout, Shard, grain};
use super::ack::Refusal;
use super::datagram::DatagramHeader;
use super::event::Peer;
use super::lock::{lock, read, write};

use shard::{LockedShard, ShardState};
pub use whole::MAX_STAGED_BYTES;
use whole::{Lacks, Whole};

/// Some shards that follow one another: their chunks, and their states. Nearly always one, for which this takes no
/// memory of its own.
type LockedShards<'a> = SmallVec<[(&'a Range<u32>, MutexGuard<'a, ShardState>); 2]>;

/// The parts of a sum region.
pub struct SumConfig {
    /// The round summed; datagrams that name another are refused.
    pub round: u32,
    /// The number of contributors declared; their numbers are below it.
    pub contributors: u16,
    /// The number of contributions at which a chunk closes by itself.
    pub target: u32,
    /// The layout of contributions.
    pub layout: ChunkLayout,
    /// All chunks, in order. Pipelines add to different shards at once.
    pub shards: Vec<Shard>,
    /// What counts.
    pub counts: Counts,
}

/// What counts in a sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counts {
    /// Each chunk, as it comes.
    Chunks,
    /// Whole contributions: chunks are staged until all of their contributor's are there, and only then added
    /// (PROTOCOL §6.5).
    Whole,
    /// Whole contributions that the owner has [admitted](SumRegion::admit).
    Admitted,
}

/// The outcome of a SUM datagram that was committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Added {
    /// Something of it is new.
    pub(super) is_new: bool,
    /// The number of chunks that are whole with it, and were not without.
    pub(super) fresh: u32,
    /// With it its contributor is staged, and lacks nothing but that it is admitted.
    pub(super) is_staged: bool,
}

/// The running sum of one round: accumulators, and for each chunk one bit per contributor, a count
/// and a closed flag. If only whole contributions count, also the bytes of those that are not:
/// `target` contributions at most, and at most [`MAX_STAGED_BYTES`]. A handle: its clones are the
/// same region.
#[derive(Clone)]
pub struct SumRegion(Arc<SumState>);

struct SumState {
    round: u32,
    contributors: u16,
    layout: ChunkLayout,
    bindings: RwLock<BTreeMap<u16, Peer>>,
    /// Set if only whole contributions count. Locked after shards, and never while one is waited for.
    whole: Option<Mutex<Whole>>,
    /// Each contributor's chunks that came, for whoever watches.
    received: Vec<AtomicU32>,
    /// In the order of their chunks, which is the order in which several are locked.
    shards: Vec<LockedShard>,
}

impl SumRegion {
    /// Makes a region with empty sums, to which nobody is bound.
    ///
    /// # Errors
    ///
    /// [`NicError::Shards`] if the shards do not follow one another over all chunks; [`NicError::Staged`] if whole
    /// contributions take more bytes than may wait.
    pub fn new(config: SumConfig) -> Result<Self, NicError> {
        let SumConfig { round, contributors, target, layout, shards, counts } = config;
        let whole = counts != Counts::Chunks;
        let chunk_count = layout.chunk_count();
        if whole {
            whole::check_buffer(layout.total_bytes, target)?;
        }
        let mut next = 0;
        let shards = shards.into_iter().map(|shard| {
            let chunks = &shard.chunks;
            let follows = chunks.start == next && chunks.end > next && chunks.end <= chunk_count;
            next = chunks.end;
            follows.then(|| LockedShard::new(shard, contributors, target, layout, whole))
        });
        let shards = shards.collect::<Option<Vec<_>>>().ok_or(NicError::Shards)?;
        if next != chunk_count {
            return Err(NicError::Shards);
        }
        Ok(Self(Arc::new(SumState {
            round,
            contributors,
            layout,
            bindings: RwLock::default(),
            whole: whole.then(|| {
                Mutex::new(Whole::new(contributors, chunk_count, counts == Counts::Admitted))
            }),
            received: (0..contributors).map(|_| AtomicU32::new(0)).collect(),
            shards,
        })))
    }

    /// Lets `peer`, and nobody else, contribute as `contributor` from now on. Bits stay.
    pub fn bind(&self, contributor: u16, peer: Peer) {
        if contributor < self.0.contributors {
            write(&self.0.bindings).insert(contributor, peer);
        }
    }

    /// Returns whether each chunk counts by itself.
    #[must_use]
    pub fn is_by_chunk(&self) -> bool {
        self.0.whole.is_none()
    }

    /// Returns the number of chunks.
    #[must_use]
    pub fn chunk_count(&self) -> u32 {
        self.0.layout.chunk_count()
    }

    /// Returns the number of contributors of a chunk; 0 for a chunk out of range.
    #[must_use]
    pub fn contributor_count(&self, chunk: u32) -> u32 {
        self.state(chunk).map_or(0, |state| state.count(chunk))
    }

    /// Returns whether a chunk takes no more contributions; a chunk out of range takes none.
    #[must_use]
    pub fn is_closed(&self, chunk: u32) -> bool {
        self.state(chunk).is_none_or(|state| state.is_closed(chunk))
    }

    /// Returns whether a contributor's bytes are in a chunk's sum.
    #[must_use]
    pub fn has(&self, chunk: u32, contributor: u16) -> bool {
        contributor < self.0.contributors
            && self.state(chunk).is_some_and(|state| state.has(chunk, contributor))
    }

    /// Returns the number of a contributor's chunks that came so far, staged ones included.
    #[must_use]
    pub fn received(&self, contributor: u16) -> u32 {
        let count = self.0.received.get(usize::from(contributor));
        count.map_or(0, |count| count.load(Ordering::Relaxed))
    }

    /// Returns the contributors of a chunk as a little-endian bitmap, padded to whole 8-byte words.
    #[must_use]
    pub fn bitmap(&self, chunk: u32) -> Vec<u8> {
        let words = self.state(chunk).map_or(vec![], |state| state.row(chunk).to_vec());
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    /// Closes a chunk to further contributions; `true` if it was open. See
    /// [`close_all`](Self::close_all).
    pub fn close(&self, chunk: u32) -> bool {
        self.close_all(&[chunk]) == 1
    }

    /// Closes chunks, given in ascending order. Returns how many were open. If only whole contributions count, none
    /// becomes whole after the first call: whenever chunks are closed, all are of the same contributors.
    pub fn close_all(&self, chunks: &[u32]) -> usize {
        let whole = self.0.whole.as_ref().map(|whole| lock(whole).close());
        let mut count = 0;
        for own in chunks.chunk_by(|a, b| self.shard(*a) == self.shard(*b)) {
            let Some(shard) = self.0.shards.get(self.shard(own[0])) else { continue };
            let locked = shard.state.lock();
            let sound = locked.is_ok();
            let mut state = locked.unwrap_or_else(PoisonError::into_inner);
            count += own.iter().filter(|chunk| !state.is_closed(**chunk)).count();
            // Nothing more is added to a shard in which an addition has panicked.
            for contributor in whole.iter().flatten().filter(|_| sound) {
                state.add_staged(*contributor, self.0.layout, &mut vec![]);
            }
            state.discard_staged();
            for chunk in own {
                state.close(*chunk);
            }
        }
        count
    }

    /// Finishes the sum of a closed chunk.
    ///
    /// # Errors
    ///
    /// The reason to withhold it: the accumulator's, or that the chunk is open or empty.
    pub fn finish(&self, chunk: u32) -> Result<Vec<u8>, String> {
        let shard = self.0.shards.get(self.shard(chunk));
        match shard.map(|shard| shard.state.lock()) {
            Some(Ok(mut state)) => state.finish(chunk),
            // The sum may or may not hold what was being added then.
            Some(Err(_)) => Err(format!("chunk {chunk}: a pipeline failed while it added")),
            None => Err(format!("there is no chunk {chunk}")),
        }
    }

    /// Returns the index of the shard that a chunk is in.
    fn shard(&self, chunk: u32) -> usize {
        self.0.shards.partition_point(|shard| shard.chunks.end <= chunk)
    }

    fn state(&self, chunk: u32) -> Option<MutexGuard<'_, ShardState>> {
        self.0.shards.get(self.shard(chunk)).map(|shard| lock(&shard.state))
    }

    /// Gives the bytes of a contributor that lacks nothing but that it is [admitted](Self::admit), from its first chunk
    /// on, to `see`; `false` if there is none such.
    pub fn see_staged(&self, contributor: u16, mut see: impl FnMut(&[u8])) -> bool {
        let is_staged = |whole: &Mutex<Whole>| lock(whole).is_staged(contributor);
        if !self.0.whole.as_ref().is_some_and(is_staged) {
            return false;
        }
        for shard in &self.0.shards {
            lock(&shard.state).staged(contributor).into_iter().for_each(&mut see);
        }
        true
    }

    /// Lets a contributor count of which all chunks are staged, and returns the chunks that reached their target with
    /// it; nothing happens if it lacks some, is in already, or it is too late (PROTOCOL §6.5).
    pub fn admit(&self, contributor: u16) -> Vec<u32> {
        let admits = |whole: &Mutex<Whole>| {
            let mut whole = lock(whole);
            whole.is_staged(contributor) && whole.stage(contributor, 1).is_some()
        };
        let mut closed = vec![];
        if self.0.whole.as_ref().is_some_and(admits) {
            self.add_whole(contributor, &mut closed);
        }
        closed
    }

    /// Adds the chunks of a datagram that are new, all or nothing, and appends the chunks that reached their target to
    /// `closed` (PROTOCOL §6.2).
    pub(super) fn add(
        &self,
        from: Peer,
        header: &DatagramHeader,
        payload: &[u8],
        closed: &mut Vec<u32>,
    ) -> Result<Added, Refusal> {
        if header.immediate != self.0.round {
            return Err(Refusal::WrongRound);
        }
        if read(&self.0.bindings).get(&header.contributor) != Some(&from) {
            return Err(Refusal::NotContributor);
        }
        if payload.is_empty() || !header.cuts_at(1, payload.len()) {
            return Err(Refusal::WrongLength);
        }
        let SumState { layout, whole, received, .. } = &*self.0;
        let place =
            layout.place_of(header.offset, payload, grain(layout.chunk_bytes, whole.is_none()))?;
        let contributor = header.contributor;
        let added = match whole {
            None => self.add_chunks(contributor, layout.chunks_of(&place), payload, closed),
            Some(whole) => self.stage(whole, contributor, &place, payload, closed),
        }?;
        if let Some(count) = received.get(usize::from(contributor)) {
            count.fetch_add(added.fresh, Ordering::Relaxed);
        }
        Ok(added)
    }

    /// Locks the shards of some chunks; nothing more is added to one in which an addition has panicked.
    fn lock_shards(&self, chunks: &Range<u32>) -> Result<LockedShards<'_>, Refusal> {
        let shards = &self.0.shards[self.shard(chunks.start)..=self.shard(chunks.end - 1)];
        let locked = shards.iter().map(|shard| Some((&shard.chunks, shard.state.lock().ok()?)));
        locked.collect::<Option<_>>().ok_or(Refusal::RoundClosed)
    }

    /// Adds those of some chunks that are new, all or nothing.
    fn add_chunks(
        &self,
        contributor: u16,
        chunks: Range<u32>,
        payload: &[u8],
        closed: &mut Vec<u32>,
    ) -> Result<Added, Refusal> {
        let layout = self.0.layout;
        let at = layout.bytes_of(&chunks).start;
        let bytes = |run: &Range<u32>| {
            let Range { start, end } = layout.bytes_of(run);
            &payload[(start - at) as usize..(end - at) as usize]
        };
        let mut shards = self.lock_shards(&chunks)?;
        let mut runs = SmallVec::<[_; 2]>::new();
        for (at, (own, state)) in shards.iter().enumerate() {
            let own = chunks.start.max(own.start)..chunks.end.min(own.end);
            runs.extend(state.fresh(contributor, own).map(|run| (at, run)));
        }
        if !runs.iter().all(|(at, run)| shards[*at].1.is_open(run.clone())) {
            return Err(Refusal::RoundClosed);
        }
        // An accumulator adds one run all or nothing. Several are all checked before the first is added.
        if runs.len() > 1 {
            for (at, run) in &runs {
                shards[*at].1.check(run.clone(), bytes(run))?;
            }
        }
        let fresh = runs.iter().map(|(_, run)| run.len() as u32).sum();
        for (at, run) in runs {
            let bytes = bytes(&run);
            shards[at].1.commit(contributor, run, bytes, closed)?;
        }
        Ok(Added { is_new: fresh > 0, fresh, is_staged: false })
    }

    /// Stages what is new of some bytes of a contribution, all or nothing, and adds it once it is complete.
    fn stage(
        &self,
        whole: &Mutex<Whole>,
        contributor: u16,
        place: &Range<u64>,
        payload: &[u8],
        closed: &mut Vec<u32>,
    ) -> Result<Added, Refusal> {
        let layout = self.0.layout;
        let chunks = layout.chunks_of(place);
        let mut shards = self.lock_shards(&chunks)?;
        let parts = shards.iter().map(|(own, _)| {
            let own = layout.bytes_of(own);
            place.start.max(own.start)..place.end.min(own.end)
        });
        let parts: SmallVec<[Range<u64>; 2]> = parts.collect();
        let mut all = shards.iter().zip(&parts);
        if all.all(|((_, state), part)| state.has_staged(contributor, part, layout)) {
            return Ok(Added { is_new: false, fresh: 0, is_staged: false });
        }
        let is_open = |(own, state): &(&Range<u32>, MutexGuard<'_, ShardState>)| {
            state.is_open(chunks.start.max(own.start)..chunks.end.min(own.end))
        };
        // Nothing is held that is too late.
        if lock(whole).is_closed() || !shards.iter().all(is_open) {
            return Err(Refusal::RoundClosed);
        }
        let mut fresh = 0;
        for ((_, state), part) in shards.iter_mut().zip(&parts) {
            let bytes =
                &payload[(part.start - place.start) as usize..][..(part.end - part.start) as usize];
            fresh += state.hold(contributor, part, bytes, layout)?;
        }
        // Under the locks of these shards: who adds for a complete contributor waits for them.
        let lacks = lock(whole).stage(contributor, fresh).ok_or(Refusal::RoundClosed)?;
        for ((_, state), part) in shards.iter_mut().zip(&parts) {
            state.mark_staged(contributor, part, layout);
        }
        drop(shards);
        if lacks == Lacks::Nothing {
            self.add_whole(contributor, closed);
        }
        Ok(Added { is_new: true, fresh, is_staged: lacks == Lacks::Admission })
    }

    /// Adds a complete contributor to every chunk that does not have it yet.
    fn add_whole(&self, contributor: u16, closed: &mut Vec<u32>) {
        for shard in &self.0.shards {
            // Nothing more is added to a shard in which an addition has panicked.
            if let Ok(mut state) = shard.state.lock() {
                state.add_staged(contributor, self.0.layout, closed);
            }
        }
    }
}
