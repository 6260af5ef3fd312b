//! Opening a sum with the secret key.

use std::{collections::BTreeSet, fs::File, mem, ops::Range};

use ciphergram_accel::Engine;
use zeroize::Zeroizing;

use super::aggregate::check_stream;
use crate::{
    Error, Parameters, PublicKey, SecretKey, Sum, Update,
    bytes::read_words,
    codec::{self, Decoder, Fields, Output, bits_at, is_zero_between},
    contributors::ContributorSet,
    ids::Statement,
    job::Job,
    params::{Chunks, Geometry},
    schemes::{Groups, Opener, Scratch},
    spread::spread,
    tag::{ExpectedTags, SumTags},
    threshold::SumSecret,
};

/// What opens a sum: the secret key, or the secret of this one sum, which openers told.
#[derive(Clone, Copy)]
pub enum SumOpener<'a> {
    /// The secret key.
    Key(&'a SecretKey),
    /// The secret of the sum.
    Secret(&'a SumSecret),
}

impl<'a> From<&'a SecretKey> for SumOpener<'a> {
    fn from(key: &'a SecretKey) -> Self {
        Self::Key(key)
    }
}

impl<'a> From<&'a SumSecret> for SumOpener<'a> {
    fn from(secret: &'a SumSecret) -> Self {
        Self::Secret(secret)
    }
}

impl<'a> SumOpener<'a> {
    fn public(self) -> &'a PublicKey {
        match self {
            Self::Key(key) => key.public(),
            Self::Secret(secret) => secret.public(),
        }
    }

    fn tags(self) -> Result<SumTags<'a>, Error> {
        match self {
            Self::Key(key) => Ok(SumTags::Padded(key.sum_key()?)),
            Self::Secret(secret) => Ok(SumTags::Plain(secret.tag_key())),
        }
    }

    /// Makes the opener of a sum under `statement` of updates of `values` values, whose chunks are of these numbers of
    /// contributors.
    fn opener(
        self,
        values: usize,
        statement: &Statement,
        contributors: &BTreeSet<usize>,
    ) -> Result<Box<dyn Opener + 'a>, Error> {
        match self {
            Self::Key(key) => key.scheme(values).opener(statement, contributors),
            Self::Secret(secret) => Ok(secret.opener()),
        }
    }
}

/// The integer sums of a round, and who they are of.
pub struct OpenedSum {
    parameters: Parameters,
    chunks: Chunks,
    sums: Zeroizing<Vec<i64>>,
    /// For each chunk, its contributors and the sum of their weights.
    parts: Vec<OpenedPart>,
}

impl OpenedSum {
    /// Decrypts a sum. Every chunk is checked to be the sum of what exactly its contributors sealed in this round
    /// of the job.
    ///
    /// # Errors
    /// A sum of another key or job, beyond what the job admits, or of too few; the first chunk that is no
    /// ciphertext; the engine's. All else is [`Error::NotTheirs`]: a caller must not try other bytes of the same
    /// round after it, and counts it; [`Ledger::open`](crate::Ledger::open) sees to both.
    pub fn open<'a>(
        key: impl Into<SumOpener<'a>>,
        engine: &dyn Engine,
        sum: &Sum,
        job: &Job,
    ) -> Result<Self, Error> {
        let key = key.into();
        let parameters = key.public().parameters().clone();
        let chunks = sum.agreement.chunks(&parameters);
        let opening = Opening::new(key, engine, (&parameters, &chunks), sum, job)?;
        let mut sums = Zeroizing::new(vec![0; chunks.values()]);
        let mut parts = vec![(0, 0); chunks.count() as usize];
        opening.run(Kept { first_value: 0, sums: &mut sums, first_chunk: 0, parts: &mut parts })?;
        Ok(Self { parameters, chunks, sums, parts })
    }

    /// Returns the integer sums of all fields, offsets removed.
    #[must_use]
    pub fn sums(&self) -> &[i64] {
        &self.sums
    }

    /// Returns, for each chunk, the number of contributors and the sum of their weights.
    #[must_use]
    pub fn parts(&self) -> &[(usize, u64)] {
        &self.parts
    }

    /// Decodes the sums to an update.
    ///
    /// # Errors
    /// A value of a sum exceeds its tensor's type.
    pub fn decode(&self, sum: &Sum, output: Output) -> Result<Update, Error> {
        let run =
            |(chunk, part): (u32, &OpenedPart)| (&self.sums[self.chunks.values_of(chunk)], part.1);
        codec::decode(&sum.agreement, &self.parameters, output, (0..).zip(&self.parts).map(run))
    }
}

/// The destination of an opened sum. The sums of all values are never in memory together.
pub enum Destination<'a, 'b> {
    /// Memory that is there: the bytes of each tensor of its agreement, in order, as they lie in a file. They hold
    /// nothing of the sum after any error.
    Memory(&'a mut [&'b mut [u8]]),
    /// A safetensors file, which need not be in memory. It is no result unless the sum opens: after an error it holds
    /// values of a sum that did not.
    File {
        /// The file, which is written anew.
        file: &'a File,
        /// An update whose layout it gets, with the tensors that are kept there; none for the library's layout.
        template: Option<&'a Update>,
        /// It is given the number of chunks of each stretch that was decrypted, on whichever thread did it.
        observe: &'a (dyn Fn(u32) + Sync),
    },
}

impl<'b> Destination<'_, 'b> {
    /// Returns the same, for another attempt.
    pub(crate) fn again(&mut self) -> Destination<'_, 'b> {
        match self {
            Self::Memory(slices) => Destination::Memory(slices),
            Self::File { file, template, observe } => {
                Destination::File { file, template: *template, observe: *observe }
            }
        }
    }
}

/// Decrypts a sum: [`OpenedSum::open`] and then [`OpenedSum::decode`].
///
/// # Errors
/// Those of the two: a value that exceeds its type hides no other. Not as many slices of memory as tensors,
/// or not as long as these; a template of other tensors than the sum; a file cannot be read or written.
pub fn open_to<'a>(
    key: impl Into<SumOpener<'a>>,
    engine: &dyn Engine,
    sum: &Sum,
    job: &Job,
    output: Output,
    to: Destination<'_, '_>,
) -> Result<(), Error> {
    let key = key.into();
    let parameters = key.public().parameters();
    let chunks = &sum.agreement.chunks(parameters);
    let opening = Opening::new(key, engine, (parameters, chunks), sum, job)?;
    match to {
        Destination::Memory(out) => {
            codec::decode_into(&sum.agreement, parameters, output, out, |decoder| {
                opening.run(decoder.split_to(chunks.values()))
            })
        }
        Destination::File { file, template, observe } => {
            let (opening, laid_out) = (Opening { observe, ..opening }, (&sum.agreement, template));
            codec::decode_to(laid_out, parameters, output, file, |decoder| {
                opening.run(decoder.split_to(chunks.values()))
            })
        }
    }
}

/// The contributors of a chunk and the sum of their weights.
type OpenedPart = (usize, u64);

/// A destination of opened chunks.
trait Sink: Send + Sized {
    /// Splits off the part before a chunk, to be filled beside the rest.
    fn split_to(&mut self, end_chunk: usize, end_value: usize) -> Self;

    /// Stores a chunk, whose values are those from `at` on.
    ///
    /// # Errors
    /// It cannot be written.
    fn put(
        &mut self,
        chunk: usize,
        part: OpenedPart,
        at: usize,
        values: &[i64],
    ) -> Result<(), Error>;

    /// Stores what is not stored yet.
    ///
    /// # Errors
    /// It cannot be written.
    fn finish(self) -> Result<(), Error>;
}

/// Chunks and values from some on, to be kept.
struct Kept<'a> {
    first_value: usize,
    sums: &'a mut [i64],
    first_chunk: usize,
    parts: &'a mut [OpenedPart],
}

impl Sink for Kept<'_> {
    fn split_to(&mut self, end_chunk: usize, end_value: usize) -> Self {
        let (first_value, first_chunk) = (self.first_value, self.first_chunk);
        let (sums, rest) = mem::take(&mut self.sums).split_at_mut(end_value - first_value);
        (self.sums, self.first_value) = (rest, end_value);
        let (parts, rest) = mem::take(&mut self.parts).split_at_mut(end_chunk - first_chunk);
        (self.parts, self.first_chunk) = (rest, end_chunk);
        Self { first_value, sums, first_chunk, parts }
    }

    fn put(
        &mut self,
        chunk: usize,
        part: OpenedPart,
        at: usize,
        values: &[i64],
    ) -> Result<(), Error> {
        self.parts[chunk - self.first_chunk] = part;
        self.sums[at - self.first_value..][..values.len()].copy_from_slice(values);
        Ok(())
    }

    fn finish(self) -> Result<(), Error> {
        Ok(())
    }
}

impl Sink for Decoder<'_> {
    fn split_to(&mut self, _: usize, end_value: usize) -> Self {
        Decoder::split_to(self, end_value)
    }

    fn put(&mut self, _: usize, part: OpenedPart, at: usize, values: &[i64]) -> Result<(), Error> {
        self.decode(at, values, part.1)
    }

    fn finish(self) -> Result<(), Error> {
        Decoder::finish(self)
    }
}

/// Memory for what is decrypted, kept from one run to the next.
struct OpeningBuffer {
    scratch: Scratch,
    values: Zeroizing<Vec<i64>>,
}

impl OpeningBuffer {
    /// Makes room for a run of an opener and the values of a chunk: a vector that grew would leave a copy
    /// behind.
    fn new(g: &Geometry, opener: &dyn Opener) -> Self {
        let (integers, slot_words) = opener.sizes();
        let scratch = Scratch {
            words: vec![],
            seeds: vec![],
            integers: Zeroizing::new(vec![0; integers]),
            slots: Zeroizing::new(Vec::with_capacity(slot_words * g.slots_per_chunk)),
        };
        let values = Zeroizing::new(Vec::with_capacity(g.values_per_chunk()));
        Self { scratch, values }
    }
}

/// Returns that the sum does not open, else a fault of any other kind, in whichever order they were found.
fn first_fault(results: impl IntoIterator<Item = Result<(), Error>>) -> Result<(), Error> {
    let is_other = |fault: &Error| !matches!(fault, Error::NotTheirs { .. });
    results.into_iter().filter_map(Result::err).min_by_key(is_other).map_or(Ok(()), Err)
}

/// A sum, and everything that opens it.
struct Opening<'a> {
    key: SumOpener<'a>,
    engine: &'a dyn Engine,
    parameters: &'a Parameters,
    chunks: &'a Chunks,
    sum: &'a Sum,
    statement: Statement,
    tags: ExpectedTags,
    observe: &'a (dyn Fn(u32) + Sync),
}

impl<'a> Opening<'a> {
    /// Prepares to open a sum, after everything was checked that takes no secret.
    fn new(
        key: SumOpener<'a>,
        engine: &'a dyn Engine,
        (parameters, chunks): (&'a Parameters, &'a Chunks),
        sum: &'a Sum,
        job: &Job,
    ) -> Result<Self, Error> {
        let key_of_tags = key.tags()?;
        sum.check(key.public(), job)?;
        let statement = job.terms(sum.round, &sum.agreement)?.statement();
        let tags = ExpectedTags::new(key_of_tags, &statement, &sum.contributors, &sum.sets, chunks);
        Ok(Self { key, engine, parameters, chunks, sum, statement, tags, observe: &|_| {} })
    }

    /// Opens all groups into `whole`, some at a time, each from its bytes to its values while it is in
    /// cache. What anyone can see to be no ciphertext is found before anything is decrypted: whether it is
    /// there must not depend on, and time not tell of, what the rest decrypts to.
    fn run<S: Sink>(&self, mut whole: S) -> Result<(), Error> {
        check_stream(self.key.public(), self.engine, self.chunks, &self.sum.stream)?;
        let counts = self.sum.sets.iter().map(ContributorSet::count).collect();
        let opener = self.key.opener(self.chunks.values(), &self.statement, &counts)?;
        let g = self.chunks.geometry();
        let each = opener.groups_at_once() * g.group_chunks;
        let runs = (0..self.chunks.count()).step_by(each).map(|first| {
            let end = self.chunks.count().min(first + each as u32);
            (first..end, whole.split_to(end as usize, self.chunks.values_of(end - 1).end))
        });
        let runs: Vec<_> = runs.collect();
        let room = || OpeningBuffer::new(g, &*opener);
        let open = |room: &mut OpeningBuffer, (own, sink): (Range<u32>, S)| {
            let count = own.len() as u32;
            let opened = self.open(&*opener, own, room, sink);
            (self.observe)(count);
            opened
        };
        if opener.groups_at_once() == 1 {
            return first_fault(spread(runs, room, open));
        }
        // Engines spread such runs themselves: from several threads at a time they could not measure.
        let mut room = room();
        first_fault(runs.into_iter().map(|run| open(&mut room, run)))
    }

    /// Opens the chunks `own`, which are whole groups.
    fn open(
        &self,
        opener: &dyn Opener,
        own: Range<u32>,
        room: &mut OpeningBuffer,
        mut sink: impl Sink,
    ) -> Result<(), Error> {
        let first = own.start;
        let OpeningBuffer { scratch, values } = room;
        read_words(&mut scratch.words, &self.sum.stream[self.chunks.range_of(&own)]);
        let groups = Groups {
            chunks: self.chunks,
            sets: &self.sum.sets[first as usize..own.end as usize],
            contributors: &self.sum.contributors,
            own,
        };
        let (mut are_theirs, mut stored) = (true, Ok(()));
        let mut take = |chunk: u32, slots: &[u64]| {
            let (is_theirs, part) = self.check_chunk(chunk, slots, values);
            are_theirs &= is_theirs;
            if stored.is_ok() {
                // Whatever the outcome, so that it takes the same time; nothing is given away unless all chunks are
                // right.
                let at = self.chunks.values_of(chunk).start;
                stored = sink.put(chunk as usize, part, at, values);
            }
        };
        opener.open(self.engine, &groups, scratch, &mut take)?;
        let contributors = self.sum.contributors.len();
        let stored = stored.and_then(|()| sink.finish());
        if are_theirs { stored } else { Err(Error::NotTheirs { contributors }) }
    }

    /// Reads head and fields of a chunk's slots. Returns whether they are what its contributors sealed: the count
    /// is theirs, every field is between the least and the most that they can sum to, the tag is right, and nothing
    /// is beside all that. Only the outcome influences time.
    fn check_chunk(&self, chunk: u32, slots: &[u64], values: &mut Vec<i64>) -> (bool, OpenedPart) {
        let Range { start: at, end } = self.chunks.values_of(chunk);
        let g = self.chunks.geometry();
        values.resize(end - at, 0);
        // Words of a slot.
        let each = slots.len() / (self.chunks.units_of(chunk) * g.slots_per_unit);
        let contributors = self.sum.sets[chunk as usize].count();
        let k = contributors as u64;
        let (is_alone, count, weight, tag) = read_head(g, slots, each);
        let most = k * u64::from(self.sum.agreement.max_weight());
        let is_head = is_alone & (count == k) & (k..=most).contains(&weight);
        let is_within = self.read_fields(slots.chunks_exact(each), k, values);
        let offset = (k * u64::from(self.parameters.half_steps())) as i64;
        let is_tagged = self.tags.is_of(chunk, tag, (count, weight), values, offset);
        (is_head & is_within & is_tagged, (contributors, weight))
    }

    /// Reads the values of slots, offsets removed. Returns whether each is within what `k` contributors can sum to,
    /// and everything past the fields of each slot, and past the last value, is zero.
    fn read_fields<'s>(
        &self,
        slots: impl Iterator<Item = &'s [u64]>,
        k: u64,
        values: &mut [i64],
    ) -> bool {
        let g = self.chunks.geometry();
        let half = u64::from(self.parameters.half_steps());
        let (largest, offset) = (2 * k * half, (k * half) as i64);
        let fields = Fields::new(0, g.field_bits);
        // Fields of the head that are still to come, and values that are still to be read.
        let (mut head, mut rest) = (g.head_fields, values);
        // The top bit of the one shows a difference below zero; the other gathers what has to be zero.
        let (mut over, mut beside) = (0, 0);
        for slot in slots {
            // The head stands where the first values would.
            let first = head.min(g.fields_per_slot);
            head -= first;
            let (own, after) = rest.split_at_mut(rest.len().min(g.fields_per_slot - first));
            beside |= fields.any_from(slot, first + own.len());
            for (out, value) in own.iter_mut().zip(fields.take(slot, first)) {
                over |= largest.wrapping_sub(value);
                *out = value as i64 - offset;
            }
            rest = after;
        }
        (over >> 63 | beside) == 0
    }
}

/// Reads the head of slots of `each` words: whether nothing is beside it, the number of contributors, the sum of
/// their weights, and their tag.
fn read_head(g: &Geometry, slots: &[u64], each: usize) -> (bool, u64, u64, u128) {
    let words = |slot: usize| &slots[slot * each..][..each];
    let (count_bits, weight_bits) = (g.head.count_bits(), g.head.weight_bits());
    let contributors = bits_at(words(0), 0, count_bits) as u64;
    let weight = bits_at(words(0), count_bits, weight_bits) as u64;
    let (mut tag, mut is_alone) = (0u128, true);
    for part in g.head.tag_parts() {
        tag = tag.wrapping_add(bits_at(words(part.slot), part.at, part.sum_bits) << part.shift);
        let fields = g.fields_per_slot.min(g.head_fields - part.slot * g.fields_per_slot);
        let (from, to) = (part.at + part.sum_bits, fields * g.field_bits as usize);
        is_alone &= is_zero_between(words(part.slot), from as usize, to);
    }
    (is_alone, contributors, weight, tag)
}
