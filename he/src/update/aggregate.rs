//! Sums without a key.

use std::{ops::Range, sync::Arc};

use ciphergram_accel::Engine;

use crate::{
    Error, PublicKey, Sum,
    bytes::{as_words, to_bytes, write_words},
    error::CiphertextFault,
    job::Job,
    params::Chunks,
    schemes::RunningSum,
};

/// Chunks that are read, checked and computed with at a time: a third of a megabyte, which stays in
/// cache. A power of two, so that the runs of an opener are whole pieces of the stream.
const PIECE_CHUNKS: usize = 256;

/// One running sum of every chunk of a stream, or of a stretch of them.
///
/// It adds what it is given: that each contribution is added once, and how many each chunk is of, which some schemes
/// correct a sum by before it leaves, is the caller's to know. After a failure of the engine no sum leaves.
pub struct Accumulator {
    key: PublicKey,
    engine: Arc<dyn Engine>,
    chunks: Chunks,
    /// The chunks that are summed.
    own: Range<u32>,
    sum: Box<dyn RunningSum>,
    /// The engine's first failure.
    failure: Option<Error>,
    /// Room for the words of what does not lie as words do.
    room: Vec<u64>,
}

impl Accumulator {
    /// Makes the empty sum of streams of `values` values.
    #[must_use]
    pub fn new(key: &PublicKey, engine: Arc<dyn Engine>, values: usize) -> Self {
        let chunks = key.parameters().chunks(values);
        let all = 0..chunks.count();
        Self::of_chunks(key, engine, values, all)
    }

    /// Makes the empty sum of some chunks of such streams.
    ///
    /// # Panics
    /// There are no such chunks.
    #[must_use]
    pub fn of_chunks(
        key: &PublicKey,
        engine: Arc<dyn Engine>,
        values: usize,
        own: Range<u32>,
    ) -> Self {
        let chunks = key.parameters().chunks(values);
        assert!(own.start <= own.end && own.end <= chunks.count(), "no chunks {own:?}");
        let sum = key.sums(values).running_sum(&chunks, own.clone());
        Self { key: key.clone(), engine, chunks, own, sum, failure: None, room: vec![] }
    }

    /// Returns how streams are cut.
    #[must_use]
    pub fn chunks(&self) -> &Chunks {
        &self.chunks
    }

    /// Returns the place of chunks in the running sum, in bytes.
    fn range(&self, chunks: &Range<u32>) -> Range<usize> {
        self.chunks.range_within(self.own.start, chunks)
    }

    /// Checks the length of the wire bytes of whole chunks.
    fn check_length(&self, chunks: &Range<u32>, bytes: &[u8]) -> Result<(), CiphertextFault> {
        // Chunks that are not there have no bytes.
        let there = chunks.start >= self.own.start
            && chunks.start < chunks.end
            && chunks.end <= self.own.end;
        let expected = if there { self.range(chunks).len() } else { 0 };
        if bytes.len() != expected || expected == 0 {
            return Err(CiphertextFault::Length { found: bytes.len(), expected });
        }
        Ok(())
    }

    /// Checks the wire bytes of whole chunks for length and range. Adds nothing.
    ///
    /// # Errors
    /// The first fault.
    pub fn check(&mut self, chunks: Range<u32>, bytes: &[u8]) -> Result<(), CiphertextFault> {
        self.check_length(&chunks, bytes)?;
        let words = as_words(&mut self.room, bytes);
        let scheme = self.key.sums(self.chunks.values());
        scheme.range_fault(&*self.engine, words).map_or(Ok(()), Err)
    }

    /// Checks a whole stream, ciphertext by ciphertext, and then adds it: length, range, and for Paillier that each is
    /// coprime to n. A stream that is refused leaves the sum as it was.
    ///
    /// # Errors
    /// The first fault with its chunk, or the engine's.
    pub fn add_stream(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let expected = self.range(&self.own).len();
        if bytes.len() != expected {
            let fault = CiphertextFault::Length { found: bytes.len(), expected };
            return Err(Error::Ciphertext { chunk: 0, fault });
        }
        let pieces = self.own.clone().step_by(PIECE_CHUNKS).map(|first| {
            let piece = first..self.own.end.min(first + PIECE_CHUNKS as u32);
            (self.range(&piece), piece)
        });
        let pieces: Vec<_> = pieces.collect();
        for (range, piece) in &pieces {
            let words = as_words(&mut self.room, &bytes[range.clone()]);
            check_words(&self.key, &*self.engine, &self.chunks, piece.start, words)?;
        }
        pieces.into_iter().try_for_each(|(range, piece)| self.add(piece, &bytes[range]))
    }

    /// Adds the wire bytes of whole chunks, all of them or, where one fails a [check](Self::check), none.
    ///
    /// # Errors
    /// The first fault, and its chunk; the engine's.
    pub fn add(&mut self, chunks: Range<u32>, bytes: &[u8]) -> Result<(), Error> {
        let first = chunks.start;
        self.check_length(&chunks, bytes)
            .map_err(|fault| Error::Ciphertext { chunk: first, fault })?;
        let words = as_words(&mut self.room, bytes);
        let added = self.sum.add(&*self.engine, chunks, words);
        let added = added.inspect_err(|error| {
            self.failure.get_or_insert_with(|| error.clone());
        });
        if let Some(fault) = added? {
            let scheme = self.key.sums(self.chunks.values());
            let (chunk, fault) = fault.locate(scheme.places_per_chunk(&self.chunks));
            return Err(Error::Ciphertext { chunk: first + chunk, fault });
        }
        Ok(())
    }

    /// Returns the words of chunks, to each of which `count` contributions were added.
    fn words(&mut self, chunks: Range<u32>, count: u32) -> Result<Vec<u64>, Error> {
        let (found, admitted) = (count as usize, self.key.parameters().clients() as usize);
        if found > admitted {
            return Err(Error::TooManyContributors { found, admitted });
        }
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        let finished = self.sum.finish(&*self.engine, chunks, count);
        finished.inspect_err(|error| self.failure = Some(error.clone()))
    }

    /// Returns the wire bytes of a chunk's sum, which is of `count` contributions, checked once more as a whole, for
    /// what the check of single datagrams leaves out: factors that a ciphertext shares with a Paillier modulus.
    ///
    /// # Errors
    /// The sum is no ciphertext: some contributor sent what is none. More contributions than the key admits. Or the
    /// engine's.
    pub fn finish(&mut self, chunk: u32, count: u32) -> Result<Vec<u8>, Error> {
        let words = self.words(chunk..chunk + 1, count)?;
        match self.key.sums(self.chunks.values()).batch_fault(&*self.engine, &words)? {
            Some(fault) => Err(Error::Ciphertext { chunk, fault }),
            None => Ok(to_bytes(&words)),
        }
    }

    /// Returns the wire bytes of the whole sum; `counts` has the number of contributions to each chunk.
    ///
    /// # Errors
    /// More contributions than the key admits; the engine's.
    ///
    /// # Panics
    /// If `counts` is of other chunks.
    pub fn into_stream(mut self, counts: &[u32]) -> Result<Vec<u8>, Error> {
        assert_eq!(counts.len(), self.own.len(), "a number for each chunk");
        let mut bytes = vec![0; self.range(&self.own).len()];
        let mut first = self.own.start;
        // Usually one run: every chunk has every contribution.
        for run in counts.chunk_by(|a, b| a == b) {
            let end = first + run.len() as u32;
            for first in (first..end).step_by(PIECE_CHUNKS) {
                let piece = first..end.min(first + PIECE_CHUNKS as u32);
                let range = self.range(&piece);
                let words = self.words(piece, run[0])?;
                write_words(&mut bytes[range], &words);
            }
            first = end;
        }
        Ok(bytes)
    }
}

impl Sum {
    /// Checks all that can be checked without the secret key, as [`OpenedSum::open`](crate::OpenedSum::open)
    /// does: that the parts fit together and the job, and that every ciphertext is one. Not that the sum is what
    /// its contributors sent.
    ///
    /// # Errors
    /// The first fault, with its chunk; the engine's.
    pub fn verify(&self, key: &PublicKey, engine: &dyn Engine, job: &Job) -> Result<(), Error> {
        let chunks = self.agreement.chunks(key.parameters());
        self.check(key, job)?;
        check_stream(key, engine, &chunks, &self.stream)
    }
}

/// Checks every ciphertext of a stream, whose length must be right.
///
/// # Errors
/// The first fault; the engine's.
pub(super) fn check_stream(
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

/// Checks every ciphertext in the words of chunks from `first` on.
///
/// # Errors
/// The first fault; the engine's.
fn check_words(
    key: &PublicKey,
    engine: &dyn Engine,
    chunks: &Chunks,
    first: u32,
    words: &[u64],
) -> Result<(), Error> {
    let scheme = key.sums(chunks.values());
    let fault = match scheme.range_fault(engine, words) {
        None => scheme.batch_fault(engine, words)?,
        fault => fault,
    };
    let Some(fault) = fault else { return Ok(()) };
    let (chunk, fault) = fault.locate(scheme.places_per_chunk(chunks));
    Err(Error::Ciphertext { chunk: first + chunk, fault })
}
