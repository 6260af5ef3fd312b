//! Sums without a key.

use std::{ops::Range, sync::Arc};

use ciphergram_accel::{Engine, Operand, Program, Ring, beats};

use crate::{
    Error, PublicKey,
    bytes::{as_words, to_bytes},
    ckks_sum,
    error::CiphertextFault,
    params::Chunks,
};

/// Chunks that are read and computed with at a time: a quarter of a megabyte, which stays in cache.
const PIECE_CHUNKS: usize = 200;

/// One running sum of every chunk of a stream, or of a stretch of them.
///
/// It adds what it is given: that each contribution is added once is the caller's duty.
///
/// An addition under Paillier is one Montgomery product, which takes one power of the radix R from
/// the sum. Each chunk counts its own; one more product, by `R^(additions + 1)`, corrects what leaves.
pub struct Accumulator {
    key: PublicKey,
    engine: Arc<dyn Engine>,
    program: Program,
    chunks: Chunks,
    /// The chunks that are summed.
    own: Range<u32>,
    words: Vec<u64>,
    /// For each of them.
    additions: Vec<u32>,
    /// Room for the words of what does not lie as words do.
    room: Vec<u64>,
}

impl Accumulator {
    /// The empty sum of streams of `values` values.
    #[must_use]
    pub fn new(key: &PublicKey, engine: Arc<dyn Engine>, values: usize) -> Self {
        let chunks = key.parameters().chunks(values);
        let all = 0..chunks.count();
        Self::of_stretch(key, engine, values, all)
    }

    /// The empty sum of some chunks of such streams.
    ///
    /// # Panics
    /// There are no such chunks.
    #[must_use]
    pub fn of_stretch(
        key: &PublicKey,
        engine: Arc<dyn Engine>,
        values: usize,
        own: Range<u32>,
    ) -> Self {
        let chunks = key.parameters().chunks(values);
        assert!(own.start <= own.end && own.end <= chunks.count(), "no chunks {own:?}");
        let mut words = vec![0; bytes_of(&chunks, &own).len() / 8];
        let program = match (key.paillier(), key.parameters().lattice()) {
            (Some(modulus), _) => {
                // The empty product.
                words.chunks_mut(modulus.ciphertext_words()).for_each(|c| c[0] = 1);
                modulus.sum_program()
            }
            (None, Some(lattice)) => ckks_sum::sum_program(&lattice.ring),
            (None, None) => unreachable!("a parameter set without a modulus has a ring"),
        };
        let additions = vec![0; own.len()];
        Self { key: key.clone(), engine, program, chunks, own, words, additions, room: vec![] }
    }

    /// How streams are cut.
    #[must_use]
    pub fn chunks(&self) -> &Chunks {
        &self.chunks
    }

    /// Where chunks lie in what is summed, in bytes.
    fn range(&self, chunks: &Range<u32>) -> Range<usize> {
        let (first, Range { start, end }) =
            (self.chunks.offset_of(self.own.start), bytes_of(&self.chunks, chunks));
        start - first..end - first
    }

    /// Where chunks lie among those that are summed.
    fn place(&self, chunks: &Range<u32>) -> Range<usize> {
        let [start, end] =
            [chunks.start, chunks.end].map(|chunk| (chunk - self.own.start) as usize);
        start..end
    }

    /// Checks the wire bytes of whole chunks for length and range, and what is past the end of a mask.
    ///
    /// # Errors
    /// The first fault.
    pub fn check(&mut self, chunks: Range<u32>, bytes: &[u8]) -> Result<(), CiphertextFault> {
        // Chunks that are not there have no bytes.
        let there = chunks.start >= self.own.start
            && chunks.start < chunks.end
            && chunks.end <= self.own.end;
        let expected = if there { self.range(&chunks).len() } else { 0 };
        if bytes.len() != expected || expected == 0 {
            return Err(CiphertextFault::Length { found: bytes.len(), expected });
        }
        let words = as_words(&mut self.room, bytes);
        range_fault(&self.key, &*self.engine, (&self.chunks, chunks.start), words)
            .map_or(Ok(()), Err)
    }

    /// Checks a whole stream, ciphertext by ciphertext, and adds it: length, range, and for Paillier
    /// that each is coprime to n.
    ///
    /// # Errors
    /// The first fault with its chunk, 2^31 additions or more to a chunk, or the engine's. After any but
    /// a wrong length, the whole sum is worth nothing.
    pub fn add_stream(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let expected = self.range(&self.own).len();
        if bytes.len() != expected {
            let fault = CiphertextFault::Length { found: bytes.len(), expected };
            return Err(Error::Ciphertext { chunk: 0, fault });
        }
        // Piece by piece, so that what was checked is added while it is in cache.
        for first in self.own.clone().step_by(PIECE_CHUNKS) {
            let piece = first..self.own.end.min(first + PIECE_CHUNKS as u32);
            let range = self.range(&piece);
            let words = as_words(&mut self.room, &bytes[range.clone()]);
            check_words(&self.key, &*self.engine, &self.chunks, first, words)?;
            self.add(piece, &bytes[range])?;
        }
        Ok(())
    }

    /// Adds the wire bytes of whole chunks, which must have passed a check.
    ///
    /// # Errors
    /// 2^31 additions or more to a chunk; nothing was added then. After an error of the engine, the
    /// sums of these chunks are worth nothing.
    pub fn add(&mut self, chunks: Range<u32>, bytes: &[u8]) -> Result<(), Error> {
        let range = self.range(&chunks);
        let place = self.place(&chunks);
        let additions = &mut self.additions[place];
        let admitted = i32::MAX as usize;
        if additions.iter().any(|&count| count as usize == admitted) {
            return Err(Error::TooManyContributors { found: admitted + 1, admitted });
        }
        let sum = &mut self.words[range.start / 8..range.end / 8];
        let words = as_words(&mut self.room, bytes);
        self.engine.run(&self.program, &mut [Operand::InOut(sum), Operand::In(words)])?;
        additions.iter_mut().for_each(|count| *count += 1);
        Ok(())
    }

    /// Makes words of chunks with so many additions ordinary.
    fn correct(&self, words: &mut [u64], additions: u32) -> Result<(), Error> {
        match self.key.paillier() {
            Some(modulus) => Ok(modulus.correct(&*self.engine, words, -(additions as i32))?),
            None => Ok(()),
        }
    }

    /// The wire bytes of a chunk's sum. A Paillier sum is checked once more as a whole, for factors
    /// of ciphertexts that came in one by one.
    ///
    /// # Errors
    /// The sum is not coprime to n: some contributor sent what is no ciphertext. Or the engine's.
    pub fn finish(&self, chunk: u32) -> Result<Vec<u8>, Error> {
        let range = self.range(&(chunk..chunk + 1));
        let mut words = self.words[range.start / 8..range.end / 8].to_vec();
        self.correct(&mut words, self.additions[(chunk - self.own.start) as usize])?;
        if let Some(modulus) = self.key.paillier() {
            let fault = modulus.coprimality_fault(&*self.engine, &words)?;
            if let Some(fault) = fault {
                return Err(Error::Ciphertext { chunk, fault });
            }
        }
        Ok(to_bytes(&words))
    }

    /// The wire bytes of the whole sum.
    ///
    /// # Errors
    /// The engine's.
    pub fn into_stream(mut self) -> Result<Vec<u8>, Error> {
        // Usually one run: every chunk has every contribution.
        let mut words = std::mem::take(&mut self.words);
        let mut first = self.own.start;
        for run in self.additions.chunk_by(|a, b| a == b) {
            let chunks = first..first + run.len() as u32;
            let range = self.range(&chunks);
            self.correct(&mut words[range.start / 8..range.end / 8], run[0])?;
            first = chunks.end;
        }
        Ok(to_bytes(&words))
    }
}

/// Where chunks lie in a stream, in bytes.
fn bytes_of(chunks: &Chunks, own: &Range<u32>) -> Range<usize> {
    let start = chunks.offset_of(own.start);
    match own.end.checked_sub(1) {
        Some(last) if last >= own.start => start..chunks.offset_of(last) + chunks.bytes_of(last),
        _ => start..start,
    }
}

/// The first ciphertext out of range, by its place in `words`, those of chunks from `first` on.
fn range_fault(
    key: &PublicKey,
    engine: &dyn Engine,
    (chunks, first): (&Chunks, u32),
    words: &[u64],
) -> Option<CiphertextFault> {
    match (key.paillier(), key.parameters().lattice()) {
        (Some(modulus), _) => modulus.range_fault(words),
        (None, Some(lattice)) => {
            let bad = lattice.range.first_bad_lane(engine, words);
            let stray = first_stray((chunks, first), words, &lattice.ring);
            let stray = stray.filter(|&lane| bad.is_none_or(|bad| lane < bad));
            let stray = stray.map(|lane| CiphertextFault::Stray { lane });
            stray.or(bad.map(|lane| CiphertextFault::Residue { lane }))
        }
        (None, None) => None,
    }
}

/// Lanes of a whole chunk.
fn chunk_lanes(chunks: &Chunks) -> usize {
    chunks.geometry().chunk_bytes() / beats::BYTES * beats::LANES
}

/// The first lane of a mask in `words` that is past the end of its polynomial, but not zero.
fn first_stray((chunks, first): (&Chunks, u32), words: &[u64], ring: &Ring) -> Option<usize> {
    let g = chunks.geometry();
    // A mask has no more chunks than it needs: only the last goes past its end.
    let last = g.mask_chunks.checked_sub(1)?;
    let (lanes, place) = (chunk_lanes(chunks), first as usize % g.group_chunks());
    let end = ring.len_words() - last * lanes;
    let skipped = (last + g.group_chunks() - place) % g.group_chunks();
    let own = words.chunks(g.chunk_bytes() / 8).enumerate().skip(skipped);
    own.step_by(g.group_chunks())
        .find_map(|(i, own)| ckks_sum::stray_lane(own, end).map(|lane| i * lanes + lane))
}

/// Checks every ciphertext of a stream, whose length must be right: range, and for Paillier that each
/// is coprime to n.
pub(crate) fn check_stream(
    key: &PublicKey,
    engine: &dyn Engine,
    chunks: &Chunks,
    bytes: &[u8],
) -> Result<(), Error> {
    let mut room = vec![];
    let pieces = bytes.chunks(PIECE_CHUNKS * chunks.geometry().chunk_bytes());
    for (first, piece) in (0..).step_by(PIECE_CHUNKS).zip(pieces) {
        check_words(key, engine, chunks, first, as_words(&mut room, piece))?;
    }
    Ok(())
}

/// Checks the words of chunks from `first` on.
pub(crate) fn check_words(
    key: &PublicKey,
    engine: &dyn Engine,
    chunks: &Chunks,
    first: u32,
    words: &[u64],
) -> Result<(), Error> {
    let mut fault = range_fault(key, engine, (chunks, first), words);
    if let (None, Some(modulus)) = (fault, key.paillier()) {
        fault = modulus.coprimality_fault(engine, words)?;
    }
    match fault {
        Some(fault) => Err(locate(chunks, first, fault)),
        None => Ok(()),
    }
}

/// A fault in what starts with chunk `first`, as a fault in one of its chunks.
fn locate(chunks: &Chunks, first: u32, fault: CiphertextFault) -> Error {
    let g = chunks.geometry();
    let units = g.slots_per_chunk / g.slots_per_unit;
    let lanes = chunk_lanes(chunks);
    let split = |index: usize, each: usize| (first + (index / each) as u32, index % each);
    let (chunk, fault) = match fault {
        CiphertextFault::Residue { lane } => {
            let (chunk, lane) = split(lane, lanes);
            (chunk, CiphertextFault::Residue { lane })
        }
        CiphertextFault::Stray { lane } => {
            let (chunk, lane) = split(lane, lanes);
            (chunk, CiphertextFault::Stray { lane })
        }
        CiphertextFault::Zero { index } => {
            let (chunk, index) = split(index, units);
            (chunk, CiphertextFault::Zero { index })
        }
        CiphertextFault::NotReduced { index } => {
            let (chunk, index) = split(index, units);
            (chunk, CiphertextFault::NotReduced { index })
        }
        CiphertextFault::NotCoprime { index } => {
            let (chunk, index) = split(index, units);
            (chunk, CiphertextFault::NotCoprime { index })
        }
        length @ CiphertextFault::Length { .. } => (first, length),
    };
    Error::Ciphertext { chunk, fault }
}
