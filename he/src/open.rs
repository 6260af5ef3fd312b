//! Opening a sum with the secret key.

use std::collections::BTreeMap;

use ciphergram_accel::{Engine, Operand, beats};
use zeroize::Zeroizing;

use crate::{
    Error, Parameters, SecretKey, Sum, Update,
    aggregate::check_stream,
    bytes::to_words,
    ckks_sum::{LatticeSecret, ends_in_zeros, mask_beats, value_beats},
    codec::{self, Fields, Output, is_zero_between},
    files::ContributorSet,
    paillier::PaillierSecret,
    params::{Chunks, Lattice},
    random::seed_words,
    rounding::Rounding,
};

/// Polynomials that are decrypted in one run: bounds the memory that opening takes.
const POLYNOMIALS_PER_RUN: usize = 64;
/// Ciphertexts that are decrypted in one run.
const CIPHERTEXTS_PER_RUN: usize = 1024;

/// The exact integer sums of a round, and who they are of.
pub struct OpenedSum {
    parameters: Parameters,
    chunks: Chunks,
    sums: Zeroizing<Vec<i64>>,
    /// For each chunk, its contributors and the sum of their weights.
    parts: Vec<(usize, u64)>,
}

impl OpenedSum {
    /// Decrypts a sum. Every chunk is checked to be one that its contributors can have made.
    ///
    /// # Errors
    /// What is no ciphertext; a chunk that is not the sum of its contributors, or of nobody; the
    /// engine's.
    pub fn open(key: &SecretKey, engine: &dyn Engine, sum: &Sum) -> Result<Self, Error> {
        let parameters = key.public().parameters().clone();
        let chunks = parameters.chunks(sum.agreement.values());
        sum.check(&chunks)?;
        check_stream(key.public(), engine, &chunks, &sum.stream)?;
        let count = chunks.count() as usize;
        let sums = Zeroizing::new(vec![0; chunks.values()]);
        let mut opened = Self { parameters, chunks, sums, parts: vec![(0, 0); count] };
        match (key.paillier(), key.lattice(), key.public().parameters().lattice()) {
            (Some(secret), ..) => opened.open_ciphertexts(secret, engine, sum)?,
            (None, Some(secret), Some(lattice)) if key.public().lattice().is_some() => {
                opened.open_masked_polynomials(secret, lattice, engine, sum)?;
            }
            (None, Some(secret), Some(lattice)) => {
                opened.open_polynomials(secret, lattice, engine, sum)?;
            }
            _ => unreachable!("a key is of one scheme"),
        }
        Ok(opened)
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
        let run = |(chunk, part): (u32, &(usize, u64))| {
            (&self.sums[self.chunks.values_of(chunk)], part.1)
        };
        codec::decode(&sum.agreement, &self.parameters, output, (0..).zip(&self.parts).map(run))
    }

    fn open_ciphertexts(
        &mut self,
        secret: &PaillierSecret,
        engine: &dyn Engine,
        sum: &Sum,
    ) -> Result<(), Error> {
        let (k, n) = (secret.modulus().ciphertext_words(), secret.modulus().n().len_words());
        let mut plain = Zeroizing::new(Vec::with_capacity(sum.stream.len() / (8 * k) * n));
        for part in sum.stream.chunks(8 * CIPHERTEXTS_PER_RUN * k) {
            plain.extend_from_slice(secret.decrypt_words(engine, &to_words(part))?.words());
        }
        let mut slots = plain.chunks(n);
        for chunk in 0..self.chunks.count() {
            let count = self.chunks.units_of(chunk);
            self.take_chunk(chunk, sum, slots.by_ref().take(count))?;
        }
        Ok(())
    }

    /// Polynomials are grouped by who contributed to a chunk of theirs: usually one group.
    fn open_polynomials(
        &mut self,
        secret: &LatticeSecret,
        lattice: &Lattice,
        engine: &dyn Engine,
        sum: &Sum,
    ) -> Result<(), Error> {
        let each = self.parameters.geometry().value_chunks;
        let mut groups: BTreeMap<&ContributorSet, Vec<usize>> = BTreeMap::new();
        for (chunk, set) in sum.sets.iter().enumerate() {
            let polynomials = groups.entry(set).or_default();
            if polynomials.last() != Some(&(chunk / each)) {
                polynomials.push(chunk / each);
            }
        }
        for (set, polynomials) in groups {
            let seeds: Vec<u64> =
                set.iter().flat_map(|i| seed_words(sum.contributors[i].bytes())).collect();
            let program = secret.decrypt_program(&self.parameters, seeds.len() / 4);
            for part in polynomials.chunks(POLYNOMIALS_PER_RUN) {
                let length = value_beats(&self.parameters) * beats::BYTES;
                let mut input = Vec::with_capacity(part.len() * length / 8);
                for (&p, end) in part.iter().zip(1..) {
                    let held = p * length..sum.stream.len().min((p + 1) * length);
                    let words = sum.stream[held].as_chunks::<8>().0;
                    input.extend(words.iter().map(|bytes| u64::from_le_bytes(*bytes)));
                    // The last polynomial may hold fewer chunks than the others.
                    input.resize(end * length / 8, 0);
                }
                let indices: Vec<u64> = part.iter().map(|&p| p as u64).collect();
                let integers_each = lattice.ring.len_words();
                let mut out = Zeroizing::new(vec![0; part.len() * integers_each]);
                let mut operands = [
                    Operand::In(&input),
                    Operand::In(&indices),
                    Operand::In(&seeds),
                    Operand::Out(&mut out),
                ];
                engine.run(&program, &mut operands)?;
                for (&p, integers) in part.iter().zip(out.chunks(integers_each)) {
                    self.take_polynomial(p * each, set, sum, lattice, integers)?;
                }
            }
        }
        Ok(())
    }

    /// Every group of chunks is of one set of contributors, whoever they are: all decrypt alike.
    fn open_masked_polynomials(
        &mut self,
        secret: &LatticeSecret,
        lattice: &Lattice,
        engine: &dyn Engine,
        sum: &Sum,
    ) -> Result<(), Error> {
        let g = *self.parameters.geometry();
        let program = secret.decrypt_public_program(&self.parameters);
        let mask_words = mask_beats(&self.parameters) * beats::WORDS;
        let value_words = value_beats(&self.parameters) * beats::WORDS;
        let groups = sum.stream.chunks(g.group_chunks() * g.chunk_bytes());
        let groups: Vec<_> = (0..).step_by(g.group_chunks()).zip(groups).collect();
        for part in groups.chunks(POLYNOMIALS_PER_RUN) {
            let (mut masks, mut values) = (vec![], vec![]);
            for (count, &(first, group)) in (1..).zip(part) {
                let (mask, rest) = group.split_at(8 * mask_words);
                let mask = to_words(mask);
                if !ends_in_zeros(&mask, &lattice.ring) {
                    let chunk = first + g.mask_chunks - 1;
                    let contributors = sum.sets[chunk].count();
                    return Err(Error::Inconsistent { chunk: chunk as u32, contributors });
                }
                masks.extend(mask);
                values.extend(to_words(rest));
                // The last group may hold fewer chunks than the others.
                values.resize(count * value_words, 0);
            }
            let integers_each = lattice.ring.len_words();
            let mut out = Zeroizing::new(vec![0; part.len() * integers_each]);
            let mut operands = [Operand::In(&masks), Operand::In(&values), Operand::Out(&mut out)];
            engine.run(&program, &mut operands)?;
            for (&(first, _), integers) in part.iter().zip(out.chunks(integers_each)) {
                let carrying = first + g.mask_chunks;
                self.take_polynomial(carrying, &sum.sets[first], sum, lattice, integers)?;
                // A mask has no head of its own: it is of those that the values are of.
                let of_all = self.parts[carrying];
                self.parts[first..carrying].fill(of_all);
            }
        }
        Ok(())
    }

    /// Takes from one decrypted polynomial, whose first chunk with values is `first`, the chunks of
    /// one set of contributors.
    fn take_polynomial(
        &mut self,
        first: usize,
        set: &ContributorSet,
        sum: &Sum,
        lattice: &Lattice,
        integers: &[u64],
    ) -> Result<(), Error> {
        match lattice.ring.primes().len() {
            2 => self.take_integers::<2>(first, set, sum, lattice, integers),
            4 => self.take_integers::<4>(first, set, sum, lattice, integers),
            _ => unreachable!("rings of ckks-sum have two or four primes"),
        }
    }

    fn take_integers<const W: usize>(
        &mut self,
        first: usize,
        set: &ContributorSet,
        sum: &Sum,
        lattice: &Lattice,
        integers: &[u64],
    ) -> Result<(), Error> {
        let rounding = Rounding::<W>::new(lattice);
        let g = *self.parameters.geometry();
        let degree = integers.len() / W;
        let mut slots = Zeroizing::new(Vec::with_capacity(g.slots_per_chunk));
        // The last few coefficients of a polynomial hold no chunk.
        for i in 0..g.value_chunks {
            let chunk = first + i;
            if sum.sets.get(chunk) != Some(set) {
                continue;
            }
            let held = self.chunks.units_of(chunk as u32) * g.slots_per_unit;
            slots.clear();
            for slot in i * g.slots_per_chunk..i * g.slots_per_chunk + held {
                slots.push(rounding.round(std::array::from_fn(|w| integers[w * degree + slot])));
            }
            self.take_chunk(chunk as u32, sum, slots.iter().map(|words| &words[..]))?;
        }
        Ok(())
    }

    /// Reads head and fields of a chunk's slots, and checks that its contributors can have made
    /// them: the count is theirs, everything is between what so many can sum to, and nothing is
    /// beside it.
    fn take_chunk<'s>(
        &mut self,
        chunk: u32,
        sum: &Sum,
        slots: impl Iterator<Item = &'s [u64]>,
    ) -> Result<(), Error> {
        let g = *self.parameters.geometry();
        let contributors = sum.sets[chunk as usize].count();
        let k = contributors as u64;
        let half = u64::from(self.parameters.half_steps());
        let (largest, offset) = (2 * k * half, (k * half) as i64);
        let mut honest = true;
        let fields = Fields::new(0, g.field_bits);
        let mut rest = &mut self.sums[self.chunks.values_of(chunk)];
        for (index, slot) in slots.enumerate() {
            let first = if index == 0 { g.head_fields } else { 0 };
            if index == 0 {
                let head_bits = g.head_fields * g.field_bits as usize;
                let head = slot[0] & (u64::MAX >> 64usize.saturating_sub(head_bits));
                honest &= is_zero_between(slot, 64, head_bits);
                let count_bits = self.parameters.count_bits();
                let (count, weight) = (head & ((1 << count_bits) - 1), head >> count_bits);
                let most = k * u64::from(sum.agreement.max_weight());
                honest &= count == k && (k..=most).contains(&weight);
                self.parts[chunk as usize] = (contributors, weight);
            }
            let (own, after) = rest.split_at_mut(rest.len().min(g.fields_per_slot - first));
            fields.take(slot, first, own, |out, value| {
                honest &= value <= largest;
                *out = value as i64 - offset;
            });
            // Past the last value of the chunk, and past the fields of a slot, everything is zero.
            let used = first + own.len();
            honest &= fields.is_zero_from(slot, used);
            rest = after;
        }
        if honest { Ok(()) } else { Err(Error::Inconsistent { chunk, contributors }) }
    }
}
