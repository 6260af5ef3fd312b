//! SUM: every contributor's chunk is added exactly once (PROTOCOL §6).

use std::collections::BTreeMap;
use std::ops::Range;

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
    /// `[chunk][contributor]`; meaningful where the bit is set.
    digests: Vec<Digest>,
    counts: Vec<u32>,
    closed: Vec<bool>,
}

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

/// A whole chunk of a datagram that passed validation.
struct Piece<'a> {
    chunk: u32,
    payload: &'a [u8],
    digest: Digest,
    /// The bit is set already, with the same digest.
    repeated: bool,
}

impl SumRegion {
    /// A region in which nothing is summed and nobody bound.
    #[must_use]
    pub fn new(config: SumConfig) -> Self {
        let chunks = config.summer.chunk_count() as usize;
        let words = usize::from(config.contributors).div_ceil(64);
        Self {
            bindings: BTreeMap::new(),
            words,
            bits: vec![0; chunks * words],
            digests: vec![Digest::default(); chunks * usize::from(config.contributors)],
            counts: vec![0; chunks],
            closed: vec![false; chunks],
            config,
        }
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
            self.check_companions(chunk)?;
        }
        self.config.summer.finish(chunk)
    }

    /// Names those who are in some of a chunk's companions and not in others.
    fn check_companions(&self, chunk: u32) -> Result<(), String> {
        let Range { start, end } = self.config.summer.companions(chunk);
        let row = |chunk| &self.bits[self.bit(chunk, 0).0..][..self.words];
        if (start..end).all(|other| row(other) == row(chunk)) {
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

    /// Takes a datagram: validates it whole, then adds what is new (PROTOCOL §6.2).
    pub(super) fn accept(
        &mut self,
        from: Peer,
        header: &Header,
        payload: &[u8],
    ) -> Result<SumCommitted, SumRefused> {
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
        let pieces = self.validate(header, payload)?;
        Ok(self.commit(header.contributor, &pieces))
    }

    fn validate<'a>(
        &self,
        header: &Header,
        payload: &'a [u8],
    ) -> Result<Vec<Piece<'a>>, SumRefused> {
        let mut pieces = Vec::new();
        let mut rest = payload;
        let mut chunk = header.index;
        while !rest.is_empty() {
            let done = (payload.len() - rest.len()) as u64;
            let piece = self
                .validate_first(chunk, header, done, rest)
                .map_err(|refusal| SumRefused { refusal, chunk })?;
            rest = &rest[piece.payload.len()..];
            pieces.push(piece);
            chunk = chunk.saturating_add(1);
        }
        Ok(pieces)
    }

    /// Validates the chunk that `rest` begins with, `done` bytes into the datagram.
    fn validate_first<'a>(
        &self,
        chunk: u32,
        header: &Header,
        done: u64,
        rest: &'a [u8],
    ) -> Result<Piece<'a>, Refusal> {
        let summer = &self.config.summer;
        if chunk >= self.chunk_count() {
            return Err(Refusal::ChunkOutOfRange);
        }
        // A chunk of no bytes would never end the loop above: the trait rules it out, this holds.
        let bytes = summer.chunk_bytes(chunk).max(1);
        let payload = rest.get(..bytes).ok_or(Refusal::WrongLength)?;
        if header.offset.checked_add(done) != Some(summer.chunk_offset(chunk)) {
            return Err(Refusal::WrongOffset);
        }
        summer.check(chunk, payload)?;
        let digest = self.digest(chunk, header.contributor, payload);
        let repeated = self.has(chunk, header.contributor);
        if repeated && self.digests[self.slot(chunk, header.contributor)] != digest {
            return Err(Refusal::Equivocation);
        }
        if !repeated && self.is_closed(chunk) {
            return Err(Refusal::RoundClosed);
        }
        Ok(Piece { chunk, payload, digest, repeated })
    }

    fn commit(&mut self, contributor: u16, pieces: &[Piece<'_>]) -> SumCommitted {
        let mut committed = SumCommitted::default();
        for piece in pieces.iter().filter(|piece| !piece.repeated) {
            self.config.summer.add(piece.chunk, piece.payload);
            let (word, mask) = self.bit(piece.chunk, contributor);
            let slot = self.slot(piece.chunk, contributor);
            self.bits[word] |= mask;
            self.digests[slot] = piece.digest;
            self.counts[piece.chunk as usize] += 1;
            committed.added += 1;
            if self.counts[piece.chunk as usize] == self.config.target && self.close(piece.chunk) {
                committed.closed.push(piece.chunk);
            }
        }
        committed
    }

    fn digest(&self, chunk: u32, contributor: u16, payload: &[u8]) -> Digest {
        let mut hasher = blake3::Hasher::new_keyed(&self.config.digest_key);
        hasher.update(&chunk.to_le_bytes()).update(&contributor.to_le_bytes()).update(payload);
        let hash = hasher.finalize();
        std::array::from_fn(|byte| hash.as_bytes()[byte])
    }

    fn bit(&self, chunk: u32, contributor: u16) -> (usize, u64) {
        (chunk as usize * self.words + usize::from(contributor / 64), 1 << (contributor % 64))
    }

    fn slot(&self, chunk: u32, contributor: u16) -> usize {
        chunk as usize * usize::from(self.config.contributors) + usize::from(contributor)
    }
}
