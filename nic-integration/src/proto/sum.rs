//! SUM: every contributor's chunk is added exactly once (PROTOCOL §6).

use std::collections::BTreeMap;
use std::ops::Range;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};

use crate::NicError;

use super::ack::Refusal;
use super::datagram::Header;
use super::event::Peer;
use super::summer::Summer;

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
    /// The accumulator.
    pub summer: Box<dyn Summer>,
}

/// One round's accumulator with its bookkeeping: per chunk one bit and one digest of 8 bytes per
/// contributor, a count and a closed flag.
pub struct SumRegion {
    config: SumConfig,
    bindings: BTreeMap<u16, Peer>,
    words: usize,
    /// `[chunk][word]`, contributor 0 in the least significant bit of word 0.
    bits: Vec<u64>,
    /// The first of the companions looked at last and what was found, until a bit is set.
    companions: Option<(u32, Result<(), String>)>,
    /// `[chunk][contributor]`; meaningful where the bit is set.
    digests: Vec<Digest>,
    counts: Vec<u32>,
    closed: Vec<bool>,
    key: LessSafeKey,
    batch: Batch,
}

/// Bytes of chunks in a batch: what GRO joins fits, and so does a core's cache.
const BATCH_BYTES: usize = 1 << 16;

/// Datagrams that passed every check but the scheme's, to be checked and added together: an engine does
/// best with many ciphertexts at a time.
#[derive(Default)]
struct Batch {
    /// The chunks of all datagrams.
    bytes: Vec<u8>,
    pieces: Vec<Piece>,
    datagrams: Vec<Waiting>,
}

/// A datagram in a batch.
struct Waiting {
    asker: Asker,
    contributor: u16,
    chunks: Range<u32>,
    /// Its pieces in the batch.
    pieces: Range<usize>,
}

/// Whom to answer: a link's number and its packet.
pub(super) type Asker = (u32, u64);

/// What became of a SUM that was not refused.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Accepted {
    /// It waits for [`SumRegion::settle`] and must not be answered before.
    Waits,
    Committed(SumCommitted),
}

/// A datagram that waited: whom to answer, whose it is, and what became of it.
pub(super) type Settled = (Asker, u16, Result<SumCommitted, SumRefused>);

/// A refused SUM, and the chunk at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SumRefused {
    pub(super) refusal: Refusal,
    pub(super) chunk: u32,
}

/// A committed SUM.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct SumCommitted {
    /// Chunks added now; none for a repetition.
    pub(super) added: u32,
    /// Chunks that reached their target by this.
    pub(super) closed: Vec<u32>,
}

/// A whole chunk of a datagram.
struct Piece {
    chunk: u32,
    /// Where it lies in the payload, or in the bytes of the batch.
    bytes: Range<usize>,
    digest: Digest,
    /// The bit is set already, with the same digest.
    repeated: bool,
}

impl SumRegion {
    /// A region in which nothing is summed and nobody bound.
    ///
    /// # Errors
    ///
    /// [`NicError::Seal`] if the cipher takes no key.
    pub fn new(config: SumConfig) -> Result<Self, NicError> {
        let key = UnboundKey::new(&AES_256_GCM, &config.digest_key).map_err(|_| NicError::Seal)?;
        let chunks = config.summer.chunk_count() as usize;
        let words = usize::from(config.contributors).div_ceil(64);
        Ok(Self {
            bindings: BTreeMap::new(),
            words,
            bits: vec![0; chunks * words],
            companions: None,
            digests: vec![Digest::default(); chunks * usize::from(config.contributors)],
            counts: vec![0; chunks],
            closed: vec![false; chunks],
            key: LessSafeKey::new(key),
            batch: Batch::default(),
            config,
        })
    }

    /// Lets `peer`, and nobody else, contribute as `contributor` from now on. Bits stay.
    pub fn bind(&mut self, contributor: u16, peer: Peer) {
        if contributor < self.config.contributors {
            self.bindings.insert(contributor, peer);
        }
    }

    /// How many chunks there are.
    #[must_use]
    pub fn chunk_count(&self) -> u32 {
        self.counts.len() as u32
    }

    /// How many contributors a chunk has; 0 for a chunk out of range.
    #[must_use]
    pub fn contributor_count(&self, chunk: u32) -> u32 {
        self.counts.get(chunk as usize).copied().unwrap_or(0)
    }

    /// Whether a chunk takes no more contributions; a chunk out of range takes none.
    #[must_use]
    pub fn is_closed(&self, chunk: u32) -> bool {
        self.closed.get(chunk as usize).copied().unwrap_or(true)
    }

    /// Whether a contributor's bytes are in a chunk's sum.
    #[must_use]
    pub fn has(&self, chunk: u32, contributor: u16) -> bool {
        let (word, mask) = self.bit(chunk, contributor);
        contributor < self.config.contributors
            && self.bits.get(word).is_some_and(|bits| bits & mask != 0)
    }

    /// The contributors of a chunk as a little-endian bitmap, padded to whole 8-byte words.
    #[must_use]
    pub fn bitmap(&self, chunk: u32) -> Vec<u8> {
        let start = chunk as usize * self.words;
        let words = self.bits.get(start..start + self.words).unwrap_or(&[]);
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    /// Closes a chunk to further contributions; `true` if it was open.
    pub fn close(&mut self, chunk: u32) -> bool {
        match self.closed.get_mut(chunk as usize) {
            Some(closed) => !std::mem::replace(closed, true),
            None => false,
        }
    }

    /// The sum of a closed chunk. If not everybody is in it, its companions must be at rest as well: at a
    /// deadline all are.
    ///
    /// # Errors
    ///
    /// The summer's reason to withhold it, that its companions are of other contributors, or that the
    /// chunk is open or empty.
    pub fn finish(&mut self, chunk: u32) -> Result<Vec<u8>, String> {
        let count = self.contributor_count(chunk);
        if !self.is_closed(chunk) || count == 0 {
            return Err(format!("chunk {chunk} is open or empty"));
        }
        // What everybody is in, they will be in together with all of its companions, or those are
        // withheld: it need not wait for them.
        if count < self.config.target {
            let companions = self.config.summer.companions(chunk);
            let first = companions.start;
            if self.companions.as_ref().is_none_or(|(last, _)| *last != first) {
                self.companions = Some((first, self.check_companions(companions)));
            }
            if let Some((_, Err(why))) = &self.companions {
                return Err(why.clone());
            }
        }
        self.config.summer.finish(chunk)
    }

    /// Names those who are in some of these companions and not in others.
    fn check_companions(&self, Range { start, end }: Range<u32>) -> Result<(), String> {
        let row = |chunk| &self.bits[self.bit(chunk, 0).0..][..self.words];
        if (start..end).all(|chunk| row(chunk) == row(start)) {
            return Ok(());
        }
        let is_partial = |contributor: &u16| {
            let has = |chunk| self.has(chunk, *contributor);
            (start..end).any(has) && !(start..end).all(has)
        };
        let partial: Vec<_> = (0..self.config.contributors).filter(is_partial).collect();
        Err(format!(
            "clients {partial:?} are in a part of chunks {start} to {} only, which cannot be opened \
             without each other: start the round again, without these clients or with all that they \
             have to send",
            end - 1
        ))
    }

    /// Whether what waits must be [settled](Self::settle) before a datagram is accepted: there is no more
    /// room, or the same chunks of the same contributor may be waiting.
    pub(super) fn must_settle(&self, header: &Header, payload: &[u8]) -> bool {
        let goes_back = |waiting: &Waiting| {
            waiting.contributor == header.contributor && header.index < waiting.chunks.end
        };
        let bytes = self.batch.bytes.len() + payload.len();
        bytes > BATCH_BYTES || self.batch.datagrams.iter().any(goes_back)
    }

    /// Takes a datagram: validates it, and adds what is new (PROTOCOL §6.2), or has it wait to be added
    /// together with others.
    pub(super) fn accept(
        &mut self,
        from: Peer,
        asker: Asker,
        header: &Header,
        payload: &[u8],
    ) -> Result<Accepted, SumRefused> {
        let refused = |refusal| SumRefused { refusal, chunk: header.index };
        if header.immediate != self.config.round {
            return Err(refused(Refusal::WrongRound));
        }
        if self.bindings.get(&header.contributor) != Some(&from) {
            return Err(refused(Refusal::NotContributor));
        }
        if payload.is_empty() || header.message_bytes as usize != payload.len() {
            return Err(refused(Refusal::WrongLength));
        }
        let mut batch = std::mem::take(&mut self.batch);
        let first = batch.pieces.len();
        let laid_out = self.lay_out(header, payload, &mut batch);
        let accepted = laid_out.and_then(|()| {
            let pieces = &batch.pieces[first..];
            if pieces.iter().any(|piece| piece.repeated) {
                return self.commit_now(header, payload, pieces).map(Accepted::Committed);
            }
            let chunks = header.index..header.index + pieces.len() as u32;
            batch.bytes.extend_from_slice(payload);
            batch.datagrams.push(Waiting {
                asker,
                contributor: header.contributor,
                chunks,
                pieces: first..batch.pieces.len(),
            });
            Ok(Accepted::Waits)
        });
        if accepted != Ok(Accepted::Waits) {
            batch.pieces.truncate(first);
        }
        self.batch = batch;
        accepted
    }

    /// Adds what waits, and says of each datagram what became of it.
    pub(super) fn settle(&mut self, mut told: impl FnMut(Settled)) {
        let mut batch = std::mem::take(&mut self.batch);
        // What one contributor sent of one stretch of chunks lies together and is one run.
        let follows = |a: &Waiting, b: &Waiting| {
            a.contributor == b.contributor && a.chunks.end == b.chunks.start
        };
        for run in batch.datagrams.chunk_by(follows) {
            if self.add_run(run, &batch).is_ok() {
                run.iter().for_each(|own| told(self.mark(own, &batch.pieces)));
                continue;
            }
            // Each for itself: who sent what is in range loses nothing.
            for own in run {
                let added = self.add_run(std::slice::from_ref(own), &batch);
                told(match added {
                    Ok(()) => self.mark(own, &batch.pieces),
                    Err(refused) => (own.asker, own.contributor, Err(refused)),
                });
            }
        }
        batch.bytes.clear();
        batch.pieces.clear();
        batch.datagrams.clear();
        self.batch = batch;
    }

    /// Checks and adds datagrams of one contributor that follow one another; all or nothing.
    fn add_run(&mut self, run: &[Waiting], batch: &Batch) -> Result<(), SumRefused> {
        let (first, last) = (&run[0], &run[run.len() - 1]);
        let chunks = first.chunks.start..last.chunks.end;
        let ends = [&batch.pieces[first.pieces.start], &batch.pieces[last.pieces.end - 1]];
        let bytes = &batch.bytes[ends[0].bytes.start..ends[1].bytes.end];
        let refused = |refusal| SumRefused { refusal, chunk: chunks.start };
        // What waited before it may have closed a chunk.
        if chunks.clone().any(|chunk| self.is_closed(chunk)) {
            return Err(refused(Refusal::RoundClosed));
        }
        self.config.summer.check(chunks.clone(), bytes).map_err(refused)?;
        self.config.summer.add(chunks, bytes);
        Ok(())
    }

    /// Notes what was added.
    fn mark(&mut self, own: &Waiting, pieces: &[Piece]) -> Settled {
        let mut committed = SumCommitted::default();
        for piece in &pieces[own.pieces.clone()] {
            self.note(own.contributor, piece, &mut committed);
        }
        (own.asker, own.contributor, Ok(committed))
    }

    /// Cuts a payload into chunks, all of which can be told apart and are welcome.
    fn lay_out(
        &self,
        header: &Header,
        payload: &[u8],
        batch: &mut Batch,
    ) -> Result<(), SumRefused> {
        let (mut chunk, mut start) = (header.index, 0);
        while start < payload.len() {
            let mut piece = self
                .piece(chunk, header, start, payload)
                .map_err(|refusal| SumRefused { refusal, chunk })?;
            start = piece.bytes.end;
            let before = batch.bytes.len();
            piece.bytes = before + piece.bytes.start..before + piece.bytes.end;
            batch.pieces.push(piece);
            chunk = chunk.saturating_add(1);
        }
        Ok(())
    }

    /// The chunk that begins `start` bytes into the datagram.
    fn piece(
        &self,
        chunk: u32,
        header: &Header,
        start: usize,
        payload: &[u8],
    ) -> Result<Piece, Refusal> {
        let summer = &self.config.summer;
        if chunk >= self.chunk_count() {
            return Err(Refusal::ChunkOutOfRange);
        }
        // A chunk of no bytes would never end the loop above: the trait rules it out, this holds.
        let bytes = start..start + summer.chunk_bytes(chunk).max(1);
        let own = payload.get(bytes.clone()).ok_or(Refusal::WrongLength)?;
        if header.offset.checked_add(start as u64) != Some(summer.chunk_offset(chunk)) {
            return Err(Refusal::WrongOffset);
        }
        let digest = self.digest(chunk, header.contributor, own)?;
        let repeated = self.has(chunk, header.contributor);
        if repeated && self.digests[self.slot(chunk, header.contributor)] != digest {
            return Err(Refusal::Equivocation);
        }
        if !repeated && self.is_closed(chunk) {
            return Err(Refusal::RoundClosed);
        }
        Ok(Piece { chunk, bytes, digest, repeated })
    }

    /// Adds what is new of a datagram of which a part was added before, if all of it is in the scheme's
    /// range.
    fn commit_now(
        &mut self,
        header: &Header,
        payload: &[u8],
        pieces: &[Piece],
    ) -> Result<SumCommitted, SumRefused> {
        let before = pieces.first().map_or(0, |piece| piece.bytes.start);
        let runs = || {
            let runs = pieces.chunk_by(|a, b| a.repeated == b.repeated);
            runs.filter(|run| !run[0].repeated).map(|run| {
                let (first, last) = (&run[0], &run[run.len() - 1]);
                let bytes = &payload[first.bytes.start - before..last.bytes.end - before];
                (first.chunk..last.chunk + 1, bytes)
            })
        };
        for (chunks, bytes) in runs() {
            let chunk = chunks.start;
            let checked = self.config.summer.check(chunks, bytes);
            checked.map_err(|refusal| SumRefused { refusal, chunk })?;
        }
        runs().for_each(|(chunks, bytes)| self.config.summer.add(chunks, bytes));
        let mut committed = SumCommitted::default();
        for piece in pieces.iter().filter(|piece| !piece.repeated) {
            self.note(header.contributor, piece, &mut committed);
        }
        Ok(committed)
    }

    /// Sets the bit of a chunk that was added.
    fn note(&mut self, contributor: u16, piece: &Piece, committed: &mut SumCommitted) {
        let (word, mask) = self.bit(piece.chunk, contributor);
        let slot = self.slot(piece.chunk, contributor);
        self.bits[word] |= mask;
        self.digests[slot] = piece.digest;
        self.counts[piece.chunk as usize] += 1;
        self.companions = None;
        committed.added += 1;
        if self.counts[piece.chunk as usize] == self.config.target && self.close(piece.chunk) {
            committed.closed.push(piece.chunk);
        }
    }

    /// The tag of a chunk's bytes under this round's key, which never leaves: its nonce names chunk and
    /// contributor, and comes again only for what should be the same bytes.
    fn digest(&self, chunk: u32, contributor: u16, payload: &[u8]) -> Result<Digest, Refusal> {
        let mut nonce = [0; NONCE_LEN];
        nonce[..4].copy_from_slice(&chunk.to_le_bytes());
        nonce[4..6].copy_from_slice(&contributor.to_le_bytes());
        let nonce = Nonce::assume_unique_for_key(nonce);
        let tag = self.key.seal_in_place_separate_tag(nonce, Aad::from(payload), &mut []);
        // No payload of a datagram is too long for the cipher.
        let tag = tag.map_err(|_| Refusal::WrongLength)?;
        Ok(std::array::from_fn(|byte| tag.as_ref()[byte]))
    }

    fn bit(&self, chunk: u32, contributor: u16) -> (usize, u64) {
        (chunk as usize * self.words + usize::from(contributor / 64), 1 << (contributor % 64))
    }

    fn slot(&self, chunk: u32, contributor: u16) -> usize {
        chunk as usize * usize::from(self.config.contributors) + usize::from(contributor)
    }
}
