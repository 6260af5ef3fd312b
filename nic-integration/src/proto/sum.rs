//! SUM: every contributor's chunk is added exactly once (PROTOCOL §6).

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};

use crate::NicError;

use super::accumulator::{Accumulator, ChunkLayout, Shard};
use super::ack::Refusal;
use super::datagram::Header;
use super::event::Peer;
use super::shared::{ChannelId, lock};

/// Bytes of a contribution's digest.
const DIGEST_BYTES: usize = 8;
type Digest = [u8; DIGEST_BYTES];

/// What a sum region is made of.
pub struct SumConfig {
    /// The round summed; datagrams that name another are refused.
    pub round: u32,
    /// How many contributors are declared; their numbers are below it.
    pub contributors: u16,
    /// A chunk closes by itself when this many have contributed to it.
    pub target: u32,
    /// Key of the digests by which a repeated contribution is told from another one. Fresh and
    /// random for every round; never leaves the aggregator.
    pub digest_key: [u8; 32],
    /// How contributions are cut.
    pub layout: Box<dyn ChunkLayout>,
    /// The accumulators: one shard of chunks after the other, from the first to the last. Pipelines add
    /// to different shards at once.
    pub shards: Vec<Shard>,
}

/// One round's accumulators with their bookkeeping: per chunk one bit and one digest of 8 bytes per
/// contributor, a count and a closed flag. A handle: its clones are the same region.
#[derive(Clone)]
pub struct SumRegion(Arc<Inner>);

struct Inner {
    round: u32,
    contributors: u16,
    layout: Box<dyn ChunkLayout>,
    chunk_count: u32,
    key: LessSafeKey,
    bindings: RwLock<BTreeMap<u16, Peer>>,
    withdrawn: AtomicBool,
    /// In the order of their chunks. Whoever locks several does so in this order.
    shards: Vec<LockedShard>,
}

struct LockedShard {
    chunks: Range<u32>,
    state: Mutex<ShardState>,
}

/// What is known of a shard of chunks, and their sums.
struct ShardState {
    first: u32,
    /// Contributors' bits take so many words a chunk.
    words: usize,
    contributors: u16,
    target: u32,
    accumulator: Box<dyn Accumulator>,
    /// `[chunk][word]`, contributor 0 in the least significant bit of word 0.
    bits: Vec<u64>,
    /// The first of the group looked at last and what was found, until a bit is set.
    group: Option<(u32, Result<(), String>)>,
    /// `[chunk][contributor]`; meaningful where the bit is set.
    digests: Vec<Digest>,
    counts: Vec<u32>,
    closed: Vec<bool>,
}

/// Bytes of chunks in a batch: what GRO joins fits, and so does a core's cache.
const BATCH_BYTES: usize = 1 << 16;

/// Datagrams of one pipeline for one region, to be checked and added together: that does best with many
/// ciphertexts at a time.
#[derive(Default)]
pub(super) struct Batch {
    /// The chunks of all datagrams.
    bytes: Vec<u8>,
    pieces: Vec<Piece>,
    datagrams: Vec<Waiting>,
}

/// A datagram in a batch.
struct Waiting {
    reply_to: ReplyTo,
    contributor: u16,
    chunks: Range<u32>,
    /// Its pieces in the batch.
    pieces: Range<usize>,
}

/// Whom to answer: a channel and its packet.
pub(super) type ReplyTo = (ChannelId, u64);

/// A datagram that waited: whom to answer, whose it is, and how many of its chunks were added, or why not.
pub(super) type SumReply = (ReplyTo, u16, Result<u32, SumRefused>);

/// A refused SUM, and the chunk at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SumRefused {
    pub(super) refusal: Refusal,
    pub(super) chunk: u32,
}

/// A whole chunk of a datagram.
struct Piece {
    chunk: u32,
    /// Where it lies in the bytes of the batch.
    bytes: Range<usize>,
    digest: Digest,
}

impl Batch {
    /// Whether it must be added before it takes a datagram of so many bytes.
    pub(super) fn is_full(&self, payload_bytes: usize) -> bool {
        self.bytes.len() + payload_bytes > BATCH_BYTES
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.pieces.clear();
        self.datagrams.clear();
    }
}

impl SumRegion {
    /// A region in which nothing is summed and nobody bound.
    ///
    /// # Errors
    ///
    /// [`NicError::Seal`] if the cipher takes no key; [`NicError::Shards`] if the shards do not follow one
    /// another over all chunks, or one parts a group.
    pub fn new(config: SumConfig) -> Result<Self, NicError> {
        let key = UnboundKey::new(&AES_256_GCM, &config.digest_key).map_err(|_| NicError::Seal)?;
        let layout = config.layout;
        let chunk_count = layout.chunk_count();
        let mut next = 0;
        let shards = config.shards.into_iter().map(|Shard { chunks, accumulator }| {
            let follows = chunks.start == next && chunks.end > next && chunks.end <= chunk_count;
            next = chunks.end;
            let whole = follows
                && layout.group(chunks.start).start >= chunks.start
                && layout.group(chunks.end - 1).end <= chunks.end;
            let (first, count) = (chunks.start, chunks.len());
            let words = usize::from(config.contributors).div_ceil(64);
            let state = Mutex::new(ShardState {
                first,
                words,
                contributors: config.contributors,
                target: config.target,
                accumulator,
                bits: vec![0; count * words],
                group: None,
                digests: vec![Digest::default(); count * usize::from(config.contributors)],
                counts: vec![0; count],
                closed: vec![false; count],
            });
            whole.then_some(LockedShard { chunks, state })
        });
        let shards = shards.collect::<Option<Vec<_>>>().ok_or(NicError::Shards)?;
        if next != chunk_count {
            return Err(NicError::Shards);
        }
        Ok(Self(Arc::new(Inner {
            round: config.round,
            contributors: config.contributors,
            layout,
            chunk_count,
            key: LessSafeKey::new(key),
            bindings: RwLock::default(),
            withdrawn: AtomicBool::new(false),
            shards,
        })))
    }

    /// Lets `peer`, and nobody else, contribute as `contributor` from now on. Bits stay.
    pub fn bind(&self, contributor: u16, peer: Peer) {
        if contributor < self.0.contributors {
            let mut bindings = self.0.bindings.write().unwrap_or_else(PoisonError::into_inner);
            bindings.insert(contributor, peer);
        }
    }

    /// What still waits to be added is refused.
    pub(super) fn withdraw(&self) {
        self.0.withdrawn.store(true, Ordering::SeqCst);
    }

    /// How many chunks there are.
    #[must_use]
    pub fn chunk_count(&self) -> u32 {
        self.0.chunk_count
    }

    /// How many contributors a chunk has; 0 for a chunk out of range.
    #[must_use]
    pub fn contributor_count(&self, chunk: u32) -> u32 {
        self.state(chunk).map_or(0, |state| state.counts[state.at(chunk)])
    }

    /// Whether a chunk takes no more contributions; a chunk out of range takes none.
    #[must_use]
    pub fn is_closed(&self, chunk: u32) -> bool {
        self.state(chunk).is_none_or(|state| state.closed[state.at(chunk)])
    }

    /// Whether a contributor's bytes are in a chunk's sum.
    #[must_use]
    pub fn has(&self, chunk: u32, contributor: u16) -> bool {
        contributor < self.0.contributors
            && self.state(chunk).is_some_and(|state| state.has(chunk, contributor))
    }

    /// The contributors of a chunk as a little-endian bitmap, padded to whole 8-byte words.
    #[must_use]
    pub fn bitmap(&self, chunk: u32) -> Vec<u8> {
        let words = self.state(chunk).map_or(vec![], |state| state.row(chunk).to_vec());
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    /// Closes a chunk to further contributions; `true` if it was open.
    pub fn close(&self, chunk: u32) -> bool {
        self.state(chunk).is_some_and(|mut state| state.close(chunk))
    }

    /// Closes chunks, in ascending order; group at the same moment.
    pub fn close_all(&self, chunks: &[u32]) {
        for own in chunks.chunk_by(|a, b| self.shard(*a) == self.shard(*b)) {
            let Some(mut state) = self.state(own[0]) else { continue };
            for chunk in own {
                state.close(*chunk);
            }
        }
    }

    /// The sum of a closed chunk. If not everybody is in it, its group must be at rest as well: at a
    /// deadline all are.
    ///
    /// # Errors
    ///
    /// The accumulator's reason to withhold it, that its group are of other contributors, or that the
    /// chunk is open or empty.
    pub fn finish(&self, chunk: u32) -> Result<Vec<u8>, String> {
        let shard = self.0.shards.get(self.shard(chunk));
        match shard.map(|shard| shard.state.lock()) {
            Some(Ok(mut state)) => state.finish(chunk, &*self.0.layout),
            // Whether what was being added then is in the sum, nobody knows.
            Some(Err(_)) => Err(format!("chunk {chunk}: a pipeline failed while it added")),
            None => Err(format!("there is no chunk {chunk}")),
        }
    }

    /// The place of the shard that a chunk is in.
    fn shard(&self, chunk: u32) -> usize {
        self.0.shards.partition_point(|shard| shard.chunks.end <= chunk)
    }

    fn state(&self, chunk: u32) -> Option<MutexGuard<'_, ShardState>> {
        self.0.shards.get(self.shard(chunk)).map(|shard| lock(&shard.state))
    }

    /// Takes a datagram that may be added, to wait for [(Self::add_batch); it must not be answered
    /// before (PROTOCOL §6.2).
    pub(super) fn accept(
        &self,
        from: Peer,
        reply_to: ReplyTo,
        header: &Header,
        payload: &[u8],
        batch: &mut Batch,
    ) -> Result<(), SumRefused> {
        let refused = |refusal| SumRefused { refusal, chunk: header.index };
        if header.immediate != self.0.round {
            return Err(refused(Refusal::WrongRound));
        }
        let bindings = self.0.bindings.read().unwrap_or_else(PoisonError::into_inner);
        if bindings.get(&header.contributor) != Some(&from) {
            return Err(refused(Refusal::NotContributor));
        }
        drop(bindings);
        if payload.is_empty() || header.message_bytes as usize != payload.len() {
            return Err(refused(Refusal::WrongLength));
        }
        let first = batch.pieces.len();
        if let Err(refused) = self.lay_out(header, payload, batch) {
            batch.pieces.truncate(first);
            return Err(refused);
        }
        let pieces = first..batch.pieces.len();
        let chunks = header.index..header.index + pieces.len() as u32;
        batch.bytes.extend_from_slice(payload);
        let contributor = header.contributor;
        batch.datagrams.push(Waiting { reply_to, contributor, chunks, pieces });
        Ok(())
    }

    /// Cuts a payload into chunks that there are, each where it must be.
    fn lay_out(
        &self,
        header: &Header,
        payload: &[u8],
        batch: &mut Batch,
    ) -> Result<(), SumRefused> {
        let (layout, before) = (&self.0.layout, batch.bytes.len());
        let (mut chunk, mut start) = (header.index, 0);
        while start < payload.len() {
            let refused = |refusal| SumRefused { refusal, chunk };
            if chunk >= self.0.chunk_count {
                return Err(refused(Refusal::ChunkOutOfRange));
            }
            // A chunk of no bytes would never end this loop: the trait rules it out, this holds.
            let end = start + layout.chunk_bytes(chunk).max(1);
            let own = payload.get(start..end).ok_or(refused(Refusal::WrongLength))?;
            if header.offset.checked_add(start as u64) != Some(layout.chunk_offset(chunk)) {
                return Err(refused(Refusal::WrongOffset));
            }
            let digest = self.digest(chunk, header.contributor, own).map_err(refused)?;
            batch.pieces.push(Piece { chunk, bytes: before + start..before + end, digest });
            start = end;
            chunk = chunk.saturating_add(1);
        }
        Ok(())
    }

    /// Adds what waits, says of each datagram what became of it, and appends the chunks that reached
    /// their target by it.
    pub(super) fn add_batch(
        &self,
        batch: &mut Batch,
        closed: &mut Vec<u32>,
        mut report: impl FnMut(SumReply),
    ) {
        // What one contributor sent of one shard of chunks lies together and is one run.
        let follows = |a: &Waiting, b: &Waiting| {
            a.contributor == b.contributor && a.chunks.end == b.chunks.start
        };
        for run in batch.datagrams.chunk_by(follows) {
            let (first, last) = (&run[0], &run[run.len() - 1]);
            let all = &batch.pieces[first.pieces.start..last.pieces.end];
            // If all of it is new, and in range. Otherwise each for itself: who sent what is in range
            // loses nothing.
            let together = run.len() > 1
                && self.commit(first.contributor, all, &batch.bytes, true, closed).is_ok();
            for own in run {
                let pieces = &batch.pieces[own.pieces.clone()];
                let became = if together {
                    Ok(pieces.len() as u32)
                } else {
                    self.commit(own.contributor, pieces, &batch.bytes, false, closed)
                };
                report((own.reply_to, own.contributor, became));
            }
        }
        batch.clear();
    }

    /// Adds chunks that follow one another, those that are new, all or nothing; how many they are. If `whole`,
    /// all must be new.
    fn commit(
        &self,
        contributor: u16,
        pieces: &[Piece],
        bytes: &[u8],
        whole: bool,
        closed: &mut Vec<u32>,
    ) -> Result<u32, SumRefused> {
        let (Some(first), Some(last)) = (pieces.first(), pieces.last()) else { return Ok(0) };
        let shards = &self.0.shards[self.shard(first.chunk)..=self.shard(last.chunk)];
        let mut rest = pieces;
        let parts = shards.iter().map(|shard| {
            let count = rest.partition_point(|piece| piece.chunk < shard.chunks.end);
            let (own, after) = rest.split_at(count);
            rest = after;
            // Nothing more is added where a pipeline failed while it did.
            shard.state.lock().ok().map(|state| (state, own))
        });
        let parts: Option<Vec<_>> = parts.collect();
        let failed = SumRefused { refusal: Refusal::RoundClosed, chunk: first.chunk };
        let mut parts = parts.ok_or(failed)?;
        if self.0.withdrawn.load(Ordering::SeqCst) {
            return Err(SumRefused { refusal: Refusal::UnknownRkey, chunk: first.chunk });
        }
        for (state, own) in &parts {
            state.admit(contributor, own, whole)?;
        }
        for (state, own) in &mut parts {
            state.check(contributor, own, bytes)?;
        }
        let added = parts.iter_mut().map(|(state, own)| state.add(contributor, own, bytes, closed));
        Ok(added.sum())
    }

    /// The tag of a chunk's bytes under this round's key, which never leaves: its nonce names chunk and
    /// contributor, and comes again only for what should be the same bytes.
    fn digest(&self, chunk: u32, contributor: u16, payload: &[u8]) -> Result<Digest, Refusal> {
        let mut nonce = [0; NONCE_LEN];
        nonce[..4].copy_from_slice(&chunk.to_le_bytes());
        nonce[4..6].copy_from_slice(&contributor.to_le_bytes());
        let nonce = Nonce::assume_unique_for_key(nonce);
        let tag = self.0.key.seal_in_place_separate_tag(nonce, Aad::from(payload), &mut []);
        // No payload of a datagram is too long for the cipher.
        let tag = tag.map_err(|_| Refusal::WrongLength)?;
        Ok(std::array::from_fn(|byte| tag.as_ref()[byte]))
    }
}

impl ShardState {
    fn at(&self, chunk: u32) -> usize {
        (chunk - self.first) as usize
    }

    fn row(&self, chunk: u32) -> &[u64] {
        &self.bits[self.at(chunk) * self.words..][..self.words]
    }

    fn has(&self, chunk: u32, contributor: u16) -> bool {
        let word = self.row(chunk).get(usize::from(contributor / 64)).copied().unwrap_or(0);
        word >> (contributor % 64) & 1 == 1
    }

    fn slot(&self, chunk: u32, contributor: u16) -> usize {
        self.at(chunk) * usize::from(self.contributors) + usize::from(contributor)
    }

    fn close(&mut self, chunk: u32) -> bool {
        let at = self.at(chunk);
        !std::mem::replace(&mut self.closed[at], true)
    }

    /// Whether chunks are welcome: those that were added before are the same, those that were not are open.
    fn admit(&self, contributor: u16, pieces: &[Piece], whole: bool) -> Result<(), SumRefused> {
        for piece in pieces {
            let chunk = piece.chunk;
            let repeated = self.has(chunk, contributor);
            let differs = || self.digests[self.slot(chunk, contributor)] != piece.digest;
            if repeated && (whole || differs()) {
                return Err(SumRefused { refusal: Refusal::Equivocation, chunk });
            }
            if !repeated && self.closed[self.at(chunk)] {
                return Err(SumRefused { refusal: Refusal::RoundClosed, chunk });
            }
        }
        Ok(())
    }

    /// The first run of chunks that are not added yet, from `at` on.
    fn fresh(&self, contributor: u16, pieces: &[Piece], at: usize) -> Option<Range<usize>> {
        let is_fresh = |piece: &Piece| !self.has(piece.chunk, contributor);
        let start = at + pieces[at..].iter().position(is_fresh)?;
        let count = pieces[start..].iter().take_while(|piece| is_fresh(piece)).count();
        Some(start..start + count)
    }

    /// Whether what is not added yet is in the scheme's range.
    fn check(
        &mut self,
        contributor: u16,
        pieces: &[Piece],
        bytes: &[u8],
    ) -> Result<(), SumRefused> {
        let mut at = 0;
        while let Some(run) = self.fresh(contributor, pieces, at) {
            at = run.end;
            let (chunks, place) = stretch(&pieces[run]);
            let chunk = chunks.start;
            let checked = self.accumulator.check(chunks, &bytes[place]);
            checked.map_err(|refusal| SumRefused { refusal, chunk })?;
        }
        Ok(())
    }

    /// Adds what is not added yet; how many chunks.
    fn add(
        &mut self,
        contributor: u16,
        pieces: &[Piece],
        bytes: &[u8],
        closed: &mut Vec<u32>,
    ) -> u32 {
        let (mut at, mut added) = (0, 0);
        while let Some(run) = self.fresh(contributor, pieces, at) {
            at = run.end;
            let (chunks, place) = stretch(&pieces[run.clone()]);
            self.accumulator.add(chunks, &bytes[place]);
            added += run.len() as u32;
            pieces[run].iter().for_each(|piece| self.note(contributor, piece, closed));
        }
        added
    }

    /// Sets the bit of a chunk that was added.
    fn note(&mut self, contributor: u16, piece: &Piece, closed: &mut Vec<u32>) {
        let (at, slot) = (self.at(piece.chunk), self.slot(piece.chunk, contributor));
        self.bits[at * self.words + usize::from(contributor / 64)] |= 1 << (contributor % 64);
        self.digests[slot] = piece.digest;
        self.counts[at] += 1;
        self.group = None;
        if self.counts[at] == self.target && self.close(piece.chunk) {
            closed.push(piece.chunk);
        }
    }

    fn finish(&mut self, chunk: u32, layout: &dyn ChunkLayout) -> Result<Vec<u8>, String> {
        let count = self.counts[self.at(chunk)];
        if !self.closed[self.at(chunk)] || count == 0 {
            return Err(format!("chunk {chunk} is open or empty"));
        }
        // What everybody is in, they will be in together with all of its group, or those are
        // withheld: it need not wait for them.
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

    /// Names those who are in some of these group and not in others.
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

/// The chunks that pieces are, which follow one another, and where they lie in the batch.
fn stretch(pieces: &[Piece]) -> (Range<u32>, Range<usize>) {
    let (first, last) = (&pieces[0], &pieces[pieces.len() - 1]);
    (first.chunk..last.chunk + 1, first.bytes.start..last.bytes.end)
}
