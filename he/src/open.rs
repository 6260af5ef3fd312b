//! Opening a sum with the secret key.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    ops::Range,
};

use ciphergram_accel::{Engine, Operand, Program, beats};
use zeroize::Zeroizing;

use crate::{
    Error, Parameters, PublicKey, SecretKey, Sum, Update,
    aggregate::{check_stream, check_words},
    bytes::{read_words, to_words},
    ckks_sum::{LatticeSecret, mask_beats},
    codec::{self, Decoder, Fields, Output, is_zero_between},
    files::ContributorSet,
    paillier::PaillierSecret,
    params::{Chunks, Geometry, Lattice},
    random::seed_words,
    rounding::Rounding,
    spread::spread,
};

/// Ciphertexts that are decrypted in one run.
const CIPHERTEXTS_PER_RUN: usize = 1024;

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
    /// What is no ciphertext; a chunk that is not the sum of its contributors, or of nobody; the
    /// engine's. Which of several is told depends on the sum alone: what is no ciphertext goes before
    /// what is no sum of its contributors, and of chunks that are not, the first is named.
    pub fn open(key: &SecretKey, engine: &dyn Engine, sum: &Sum) -> Result<Self, Error> {
        let parameters = key.public().parameters().clone();
        let chunks = parameters.chunks(sum.agreement.values());
        sum.check(&chunks)?;
        let mut sums = Zeroizing::new(vec![0; chunks.values()]);
        let mut parts = vec![(0, 0); chunks.count() as usize];
        let slots = Slots { parameters: &parameters, chunks: &chunks, sum };
        let whole = Kept { first_value: 0, sums: &mut sums, first_chunk: 0, parts: &mut parts };
        slots.open(key, engine, whole)?;
        Ok(Self { parameters, chunks, sums, parts })
    }

    /// What [`open`](Self::open) and then [`decode`](Self::decode) give, with no room for the sums of all
    /// values between them.
    ///
    /// # Errors
    /// The one that they give: a value that exceeds its type hides nothing else.
    pub fn open_and_decode(
        key: &SecretKey,
        engine: &dyn Engine,
        sum: &Sum,
        output: Output,
    ) -> Result<Update, Error> {
        let parameters = key.public().parameters();
        let chunks = parameters.chunks(sum.agreement.values());
        sum.check(&chunks)?;
        let slots = Slots { parameters, chunks: &chunks, sum };
        codec::decode_by(&sum.agreement, parameters, output, |decoder| {
            let values = chunks.values();
            slots.open(key, engine, decoder.split_to(values))
        })
    }

    /// The integer sums of all values, offsets removed.
    #[must_use]
    pub fn sums(&self) -> &[i64] {
        &self.sums
    }

    /// For each chunk, how many contributed and the sum of their weights.
    #[must_use]
    pub fn parts(&self) -> &[(usize, u64)] {
        &self.parts
    }

    /// The update that the sums decode to.
    ///
    /// # Errors
    /// A value of a sum exceeds its tensor's type.
    pub fn decode(&self, sum: &Sum, output: Output) -> Result<Update, Error> {
        let run = |(chunk, part): (u32, &Part)| (&self.sums[self.chunks.values_of(chunk)], part.1);
        codec::decode(&sum.agreement, &self.parameters, output, (0..).zip(&self.parts).map(run))
    }
}

/// The contributors of a chunk and the sum of their weights.
type Part = (usize, u64);

/// Where opened chunks go.
trait Sink: Send + Sized {
    /// Takes what is before a chunk away, to be filled beside the rest.
    fn split_to(&mut self, end_chunk: usize, end_value: usize) -> Self;

    /// Takes a chunk, whose values are those from `at` on.
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

/// Room for what is decrypted, kept from one polynomial to the next.
struct Room {
    beats: Vec<u64>,
    seeds: Vec<u64>,
    integers: Zeroizing<Vec<u64>>,
    slots: Zeroizing<Vec<u64>>,
    column: Zeroizing<Vec<u64>>,
    values: Zeroizing<Vec<i64>>,
}

impl Room {
    /// Room for `integers` words of a polynomial and a whole chunk of slots of so many words: a vector
    /// that grew would leave a copy behind.
    fn new(g: &Geometry, integers: usize, slot_words: usize) -> Self {
        Self {
            beats: vec![],
            seeds: vec![],
            integers: Zeroizing::new(vec![0; integers]),
            slots: Zeroizing::new(Vec::with_capacity(slot_words * g.slots_per_chunk)),
            column: Zeroizing::new(Vec::with_capacity(g.slots_per_chunk)),
            values: Zeroizing::new(Vec::with_capacity(g.values_per_chunk())),
        }
    }
}

/// The first chunk that is no ciphertext, else the first that its contributors cannot have made, else a
/// fault of any other kind: in whichever order they were found.
fn first_fault(results: impl IntoIterator<Item = Result<(), Error>>) -> Result<(), Error> {
    let place = |fault: &Error| match fault {
        Error::Ciphertext { chunk, .. } => (0, *chunk),
        Error::Inconsistent { chunk, .. } => (1, *chunk),
        _ => (2, 0),
    };
    results.into_iter().filter_map(Result::err).min_by_key(place).map_or(Ok(()), Err)
}

/// What the slots of a sum are to be.
struct Slots<'a> {
    parameters: &'a Parameters,
    chunks: &'a Chunks,
    sum: &'a Sum,
}

impl Slots<'_> {
    fn open(&self, key: &SecretKey, engine: &dyn Engine, whole: impl Sink) -> Result<(), Error> {
        match (key.paillier(), key.lattice()) {
            (Some(secret), _) => {
                check_stream(key.public(), engine, self.chunks, &self.sum.stream)?;
                self.open_ciphertexts(secret, engine, whole)
            }
            (None, Some(secret)) => self.open_polynomials((key.public(), secret), engine, whole),
            (None, None) => unreachable!("a key is of one scheme"),
        }
    }

    fn open_ciphertexts(
        &self,
        secret: &PaillierSecret,
        engine: &dyn Engine,
        mut whole: impl Sink,
    ) -> Result<(), Error> {
        let (k, n) = (secret.modulus().ciphertext_words(), secret.modulus().n().len_words());
        let stream = &self.sum.stream;
        let mut plain = Zeroizing::new(vec![0; stream.len() / (8 * k) * n]);
        let runs = stream.chunks(8 * CIPHERTEXTS_PER_RUN * k);
        for (run, out) in runs.zip(plain.chunks_mut(CIPHERTEXTS_PER_RUN * n)) {
            out.copy_from_slice(secret.decrypt_words(engine, &to_words(run))?.words());
        }
        let (mut rest, mut room) = (&plain[..], Room::new(self.parameters.geometry(), 0, n));
        for chunk in 0..self.chunks.count() {
            let count = self.chunks.units_of(chunk);
            let (own, after) = rest.split_at(count * n);
            room.slots.resize(n * count, 0);
            for (slot, words) in own.chunks(n).enumerate() {
                for (w, &word) in words.iter().enumerate() {
                    room.slots[w * count + slot] = word;
                }
            }
            self.take_chunk(chunk, count, &mut room, &mut whole)?;
            rest = after;
        }
        Ok(())
    }

    /// Polynomial by polynomial, each from its bytes to its values while it is in cache.
    fn open_polynomials<S: Sink>(
        &self,
        (public, secret): (&PublicKey, &LatticeSecret),
        engine: &dyn Engine,
        mut whole: S,
    ) -> Result<(), Error> {
        let Some(lattice) = self.parameters.lattice() else {
            unreachable!("a secret over a ring has one")
        };
        let g = self.parameters.geometry();
        let each = g.group_chunks();
        // A mask comes with every polynomial, or is made from the seeds of its contributors.
        let masked = g.mask_chunks > 0;
        let seed_count = |set: &ContributorSet| if masked { 0 } else { set.count() };
        let mut programs: BTreeMap<usize, Program> = BTreeMap::new();
        for count in self.sum.sets.iter().map(seed_count) {
            programs.entry(count).or_insert_with(|| match masked {
                true => secret.decrypt_public_program(self.parameters),
                false => secret.decrypt_program(self.parameters, count),
            });
        }
        let length = each * g.chunk_bytes();
        let mask_words = mask_beats(self.parameters) * beats::WORDS;
        let open = |room: &mut Room, (p, (bytes, mut sink)): (usize, (&[u8], S))| {
            read_words(&mut room.beats, bytes);
            let first = p * each;
            check_words(public, engine, self.chunks, first as u32, &room.beats)?;
            // The last polynomial may hold fewer chunks than the others.
            room.beats.resize(length / 8, 0);
            let carrying = first + g.mask_chunks;
            let sets = &self.sum.sets[carrying..self.sum.sets.len().min(first + each)];
            // Who contributed to a chunk: usually the same to all.
            let faults = sets.iter().collect::<BTreeSet<_>>().into_iter().map(|set| {
                let (mask, values) = room.beats.split_at(mask_words);
                let (mask, values) = (Operand::In(mask), Operand::In(values));
                let out = Operand::Out(&mut room.integers);
                let program = &programs[&seed_count(set)];
                if masked {
                    engine.run(program, &mut [mask, values, out])?;
                } else {
                    let seed = |i: usize| seed_words(self.sum.contributors[i].bytes());
                    room.seeds.clear();
                    room.seeds.extend(set.iter().flat_map(seed));
                    let (index, seeds) = ([p as u64], Operand::In(&room.seeds));
                    let operands = &mut [values, Operand::In(&index), seeds, out];
                    engine.run(program, operands)?;
                }
                let own = (carrying, sets, set);
                match lattice.ring.primes().len() {
                    2 => self.take_polynomial::<2, S>(own, lattice, room, &mut sink),
                    4 => self.take_polynomial::<4, S>(own, lattice, room, &mut sink),
                    _ => unreachable!("rings of ckks-sum have two or four primes"),
                }
            });
            first_fault(faults)
        };
        let polynomials = self.sum.stream.chunks(length).zip(1..).map(|(bytes, count)| {
            let end = self.sum.sets.len().min(count * each);
            let values = self.chunks.values_of(end as u32 - 1).end;
            (bytes, whole.split_to(end, values))
        });
        let polynomials: Vec<_> = polynomials.collect();
        let room = || Room::new(g, lattice.ring.len_words(), lattice.ring.primes().len());
        first_fault(spread(polynomials.into_iter().enumerate().collect(), room, open))
    }

    /// Takes from one decrypted polynomial, whose first chunk with values is `first`, the chunks of one
    /// set of contributors.
    fn take_polynomial<const W: usize, S: Sink>(
        &self,
        (first, sets, own): (usize, &[ContributorSet], &ContributorSet),
        lattice: &Lattice,
        room: &mut Room,
        sink: &mut S,
    ) -> Result<(), Error> {
        let rounding = Rounding::<W>::new(lattice);
        let g = self.parameters.geometry();
        let degree = lattice.ring.degree();
        for (i, set) in sets.iter().enumerate() {
            if set != own {
                continue;
            }
            let chunk = (first + i) as u32;
            let (start, count) =
                (i * g.slots_per_chunk, self.chunks.units_of(chunk) * g.slots_per_unit);
            room.slots.resize(W * count, 0);
            for slot in 0..count {
                let integer = std::array::from_fn(|w| room.integers[w * degree + start + slot]);
                for (w, word) in rounding.round(integer).into_iter().enumerate() {
                    room.slots[w * count + slot] = word;
                }
            }
            let part = self.take_chunk(chunk, count, room, sink)?;
            if i == 0 {
                // A mask has no head of its own: it is of those that the values are of.
                for mask in first - g.mask_chunks..first {
                    let at = self.chunks.values_of(mask as u32).start;
                    sink.put(mask, part, at, &[]);
                }
            }
        }
        Ok(())
    }

    /// Reads head and fields of a chunk's slots, which lie in `room` word by word, and checks that its
    /// contributors can have made them: the count is theirs, everything is between what so many can sum
    /// to, and nothing is beside it.
    fn take_chunk(
        &self,
        chunk: u32,
        count: usize,
        room: &mut Room,
        sink: &mut impl Sink,
    ) -> Result<Part, Error> {
        let Range { start: at, end } = self.chunks.values_of(chunk);
        room.values.resize(end - at, 0);
        let values = &mut room.values;
        let g = self.parameters.geometry();
        let contributors = self.sum.sets[chunk as usize].count();
        let k = contributors as u64;
        let half = u64::from(self.parameters.half_steps());
        let (largest, offset) = (2 * k * half, (k * half) as i64);
        let slot = |index: usize| room.slots[index..].iter().step_by(count);
        let head_bits = g.head_fields * g.field_bits as usize;
        let head = room.slots[0] & (u64::MAX >> 64usize.saturating_sub(head_bits));
        let mut honest = is_zero_between(slot(0), 64, head_bits);
        let count_bits = self.parameters.count_bits();
        let (heads, weight) = (head & ((1 << count_bits) - 1), head >> count_bits);
        let most = k * u64::from(self.sum.agreement.max_weight());
        honest &= heads == k && (k..=most).contains(&weight);
        let fields = Fields::new(0, g.field_bits);
        // Past the fields of a slot, and past the last value of the chunk, everything is zero.
        honest &= fields.is_zero_from(&room.slots, 0..count, count, g.fields_per_slot);
        let held = g.head_fields + values.len();
        let (full, used) = (held / g.fields_per_slot, held % g.fields_per_slot);
        honest &= fields.is_zero_from(&room.slots, full..count.min(full + 1), count, used);
        honest &= fields.is_zero_from(&room.slots, count.min(full + 1)..count, count, 0);
        room.column.resize(count, 0);
        // The top bit tells of a difference below zero.
        let mut over = 0;
        for field in 0..g.fields_per_slot {
            fields.take(&room.slots, field, &mut room.column);
            // The head stands where the first values of the first slot would.
            let first = usize::from(field < g.head_fields);
            let start = first * g.fields_per_slot + field - g.head_fields;
            let Some(own) = values.get_mut(start..) else { continue };
            let own = own.iter_mut().step_by(g.fields_per_slot);
            for (out, &value) in own.zip(&room.column[first..]) {
                over |= largest.wrapping_sub(value);
                *out = value as i64 - offset;
            }
        }
        honest &= over >> 63 == 0;
        if !honest {
            return Err(Error::Inconsistent { chunk, contributors });
        }
        let part = (contributors, weight);
        sink.put(chunk as usize, part, at, values);
        Ok(part)
    }
}
