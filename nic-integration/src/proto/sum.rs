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
    /// Room for the chunks of a datagram.
    pieces: Vec<Piece>,
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

/// A whole chunk of a datagram.
struct Piece {
    chunk: u32,
    /// Where it lies in the payload.
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
            pieces: vec![],
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
        let mut pieces = std::mem::take(&mut self.pieces);
        pieces.clear();
        let committed = match self.lay_out(header, payload, &mut pieces) {
            Ok(()) => self.commit(header, payload, &pieces),
            Err(refused) => Err(refused),
        };
        self.pieces = pieces;
        committed
    }

    /// Cuts a payload into chunks, all of which can be told apart and are welcome.
    fn lay_out(
        &self,
        header: &Header,
        payload: &[u8],
        pieces: &mut Vec<Piece>,
    ) -> Result<(), SumRefused> {
        let (mut chunk, mut start) = (header.index, 0);
        while start < payload.len() {
            let piece = self
                .piece(chunk, header, start, payload)
                .map_err(|refusal| SumRefused { refusal, chunk })?;
            start = piece.bytes.end;
            pieces.push(piece);
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

    /// Adds what is new, a run of chunks at a time, if all of it is in the scheme's range.
    fn commit(
        &mut self,
        header: &Header,
        payload: &[u8],
        pieces: &[Piece],
    ) -> Result<SumCommitted, SumRefused> {
        let runs = || {
            let runs = pieces.chunk_by(|a, b| a.repeated == b.repeated);
            runs.filter(|run| !run[0].repeated).map(|run| {
                let (first, last) = (&run[0], &run[run.len() - 1]);
                let bytes = &payload[first.bytes.start..last.bytes.end];
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
            let (word, mask) = self.bit(piece.chunk, header.contributor);
            let slot = self.slot(piece.chunk, header.contributor);
            self.bits[word] |= mask;
            self.digests[slot] = piece.digest;
            self.counts[piece.chunk as usize] += 1;
            self.companions = None;
            committed.added += 1;
            if self.counts[piece.chunk as usize] == self.config.target && self.close(piece.chunk) {
                committed.closed.push(piece.chunk);
            }
        }
        Ok(committed)
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
