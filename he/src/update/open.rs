//! Opening a sum with the secret key.

use std::{mem, ops::Range};

use ciphergram_accel::Engine;
use zeroize::Zeroizing;

use super::aggregate::check_words;
use crate::{
    Error, Parameters, SecretKey, Sum, Update,
    bytes::read_words,
    codec::{self, Decoder, Fields, Output, is_zero_between},
    contributors::ContributorSet,
    params::{Chunks, Geometry},
    schemes::{Groups, Opener, Scratch},
    spread::spread,
};

/// The exact integer sums of a round, and who they are of.
pub struct OpenedSum {
    parameters: Parameters,
    chunks: Chunks,
    sums: Zeroizing<Vec<i64>>,
    /// For each chunk, its contributors and the sum of their weights.
    parts: Vec<Part>,
}

impl OpenedSum {
    /// Decrypts a sum. Every chunk is checked to be one that its contributors can have made.
    ///
    /// # Errors
    /// A chunk that is no ciphertext, or not the sum of its contributors, or of nobody; the engine's. Of
    /// several the one that is reported depends on the sum alone: chunks that are no ciphertexts go before
    /// those that are no sums of their contributors, and of either the first is named.
    pub fn open(key: &SecretKey, engine: &dyn Engine, sum: &Sum) -> Result<Self, Error> {
        let parameters = key.public().parameters().clone();
        let chunks = parameters.chunks(sum.agreement.values());
        sum.check(&chunks)?;
        let mut sums = Zeroizing::new(vec![0; chunks.values()]);
        let mut parts = vec![(0, 0); chunks.count() as usize];
        let whole = Kept { first_value: 0, sums: &mut sums, first_chunk: 0, parts: &mut parts };
        Opening { key, engine, parameters: &parameters, chunks: &chunks, sum }.run(whole)?;
        Ok(Self { parameters, chunks, sums, parts })
    }

    /// Returns the integer sums of all values, offsets removed.
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
        let run = |(chunk, part): (u32, &Part)| (&self.sums[self.chunks.values_of(chunk)], part.1);
        codec::decode(&sum.agreement, &self.parameters, output, (0..).zip(&self.parts).map(run))
    }
}

/// Decrypts a sum to tensors: [`OpenedSum::open`] and then [`OpenedSum::decode`], without the memory for
/// the sums of all values between them.
///
/// # Errors
/// The one that they return: a value that exceeds its type hides nothing else.
pub fn decrypt(
    key: &SecretKey,
    engine: &dyn Engine,
    sum: &Sum,
    output: Output,
) -> Result<Update, Error> {
    let parameters = key.public().parameters();
    let chunks = &parameters.chunks(sum.agreement.values());
    sum.check(chunks)?;
    codec::decode_by(&sum.agreement, parameters, output, |decoder| {
        let whole = decoder.split_to(chunks.values());
        Opening { key, engine, parameters, chunks, sum }.run(whole)
    })
}

/// The contributors of a chunk and the sum of their weights.
type Part = (usize, u64);

/// A destination of opened chunks.
trait Sink: Send + Sized {
    /// Splits off the part before a chunk, to be filled beside the rest.
    fn split_to(&mut self, end_chunk: usize, end_value: usize) -> Self;

    /// Stores a chunk, whose values are those from `at` on.
    fn put(&mut self, chunk: usize, part: Part, at: usize, values: &[i64]);
}

/// Chunks and values from some on, to be kept.
struct Kept<'a> {
    first_value: usize,
    sums: &'a mut [i64],
    first_chunk: usize,
    parts: &'a mut [Part],
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

    fn put(&mut self, chunk: usize, part: Part, at: usize, values: &[i64]) {
        self.parts[chunk - self.first_chunk] = part;
        self.sums[at - self.first_value..][..values.len()].copy_from_slice(values);
    }
}

impl Sink for Decoder<'_> {
    fn split_to(&mut self, _: usize, end_value: usize) -> Self {
        Decoder::split_to(self, end_value)
    }

    fn put(&mut self, _: usize, part: Part, at: usize, values: &[i64]) {
        self.decode(at, values, part.1);
    }
}

/// Memory for what is decrypted, kept from one run to the next.
struct Room {
    scratch: Scratch,
    column: Zeroizing<Vec<u64>>,
    values: Zeroizing<Vec<i64>>,
}

impl Room {
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
        let column = Zeroizing::new(Vec::with_capacity(g.slots_per_chunk));
        let values = Zeroizing::new(Vec::with_capacity(g.values_per_chunk()));
        Self { scratch, column, values }
    }
}

/// Returns the first chunk that is no ciphertext, else the first that its contributors cannot have made,
/// else a fault of any other kind, in whichever order they were found.
fn first_fault(results: impl IntoIterator<Item = Result<(), Error>>) -> Result<(), Error> {
    let place = |fault: &Error| match fault {
        Error::Ciphertext { chunk, .. } => (0, *chunk),
        Error::Inconsistent { chunk, .. } => (1, *chunk),
        _ => (2, 0),
    };
    results.into_iter().filter_map(Result::err).min_by_key(place).map_or(Ok(()), Err)
}

/// A sum, and everything that opens it.
struct Opening<'a> {
    key: &'a SecretKey,
    engine: &'a dyn Engine,
    parameters: &'a Parameters,
    chunks: &'a Chunks,
    sum: &'a Sum,
}

impl Opening<'_> {
    /// Opens all groups into `whole`, some at a time, each from its bytes to its values while it is in
    /// cache.
    fn run<S: Sink>(&self, mut whole: S) -> Result<(), Error> {
        let counts = self.sum.sets.iter().map(ContributorSet::count).collect();
        let opener = self.key.scheme().opener(&counts);
        let g = self.parameters.geometry();
        let each = opener.groups_at_once() * g.group_chunks();
        let runs = (0..self.chunks.count()).step_by(each).map(|first| {
            let end = self.chunks.count().min(first + each as u32);
            (first..end, whole.split_to(end as usize, self.chunks.values_of(end - 1).end))
        });
        let runs: Vec<_> = runs.collect();
        let room = || Room::new(g, &*opener);
        let open = |room: &mut Room, (own, sink)| self.open(&*opener, own, room, sink);
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
        room: &mut Room,
        mut sink: impl Sink,
    ) -> Result<(), Error> {
        let (public, first) = (self.key.public(), own.start);
        let Room { scratch, column, values } = room;
        read_words(&mut scratch.words, &self.sum.stream[self.chunks.range_of(&own)]);
        check_words(public, self.engine, self.chunks, first, &scratch.words)?;
        let groups = Groups {
            chunks: self.chunks,
            sets: &self.sum.sets[first as usize..own.end as usize],
            contributors: &self.sum.contributors,
            own,
        };
        let mut faults = vec![];
        let mut take = |chunk: u32, slots: &[u64]| {
            let taken = self.take_chunk(chunk, slots, (&mut *column, &mut *values), &mut sink);
            faults.extend(taken.err());
        };
        let opened = opener.open(self.engine, &groups, scratch, &mut take);
        first_fault(faults.into_iter().map(Err).chain([opened]))
    }

    /// Reads head and fields of a chunk's slots, which lie word by word, and checks that its contributors
    /// can have made them: the count is theirs, every field is between the least and the most that they
    /// can sum to, and nothing is beside the fields. Only the outcome influences time.
    fn take_chunk(
        &self,
        chunk: u32,
        slots: &[u64],
        (column, values): (&mut Vec<u64>, &mut Vec<i64>),
        sink: &mut impl Sink,
    ) -> Result<(), Error> {
        let Range { start: at, end } = self.chunks.values_of(chunk);
        values.resize(end - at, 0);
        let g = self.parameters.geometry();
        column.resize(self.chunks.units_of(chunk) * g.slots_per_unit, 0);
        let contributors = self.sum.sets[chunk as usize].count();
        let (is_theirs, weight) = self.read_head(slots, column.len(), contributors as u64);
        let is_alone = is_zero_beside(g, slots, column.len(), values.len());
        let is_within = self.read_fields(slots, contributors as u64, column, values);
        if !(is_theirs & is_alone & is_within) {
            return Err(Error::Inconsistent { chunk, contributors });
        }
        let part = (contributors, weight);
        sink.put(chunk as usize, part, at, values);
        // A mask has no head of its own: it is of those that the values are of.
        let group = self.chunks.group_of(chunk);
        if chunk == group.start + g.mask_chunks as u32 {
            (group.start..chunk).for_each(|mask| sink.put(mask as usize, part, at, &[]));
        }
        Ok(())
    }

    /// Reads the head of one of `count` slots. Returns whether it can be of `k` contributors, and the sum
    /// of their weights.
    fn read_head(&self, slots: &[u64], count: usize, k: u64) -> (bool, u64) {
        let g = self.parameters.geometry();
        let head_bits = g.head_fields * g.field_bits as usize;
        let head = slots[0] & (u64::MAX >> 64usize.saturating_sub(head_bits));
        let is_short = is_zero_between(slots.iter().step_by(count), 64, head_bits);
        let count_bits = self.parameters.count_bits();
        let (heads, weight) = (head & ((1 << count_bits) - 1), head >> count_bits);
        let most = k * u64::from(self.sum.agreement.max_weight());
        (is_short & (heads == k) & (k..=most).contains(&weight), weight)
    }

    /// Reads the values of slots, offsets removed. Returns whether each is within what `k` contributors
    /// can sum to.
    fn read_fields(&self, slots: &[u64], k: u64, column: &mut [u64], values: &mut [i64]) -> bool {
        let g = self.parameters.geometry();
        let half = u64::from(self.parameters.half_steps());
        let (largest, offset) = (2 * k * half, (k * half) as i64);
        let fields = Fields::new(0, g.field_bits);
        // The top bit shows a difference below zero.
        let mut over = 0;
        for field in 0..g.fields_per_slot {
            fields.take(slots, field, column);
            // The head stands where the first values of the first slot would.
            let first = usize::from(field < g.head_fields);
            let start = first * g.fields_per_slot + field - g.head_fields;
            let Some(own) = values.get_mut(start..) else { continue };
            let own = own.iter_mut().step_by(g.fields_per_slot);
            for (out, &value) in own.zip(&column[first..]) {
                over |= largest.wrapping_sub(value);
                *out = value as i64 - offset;
            }
        }
        over >> 63 == 0
    }
}

/// Returns whether everything past the fields of each of `count` slots, and past the last of `values`
/// values, is zero.
fn is_zero_beside(g: &Geometry, slots: &[u64], count: usize, values: usize) -> bool {
    let fields = Fields::new(0, g.field_bits);
    let held = g.head_fields + values;
    let (full, used) = (held / g.fields_per_slot, held % g.fields_per_slot);
    fields.is_zero_from(slots, 0..count, count, g.fields_per_slot)
        & fields.is_zero_from(slots, full..count.min(full + 1), count, used)
        & fields.is_zero_from(slots, count.min(full + 1)..count, count, 0)
}
