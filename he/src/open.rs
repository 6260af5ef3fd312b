//! Opening a sum with the secret key.

use std::collections::BTreeMap;

use ciphergram_accel::{Engine, Operand, beats};
use zeroize::Zeroizing;

use crate::{
    Error, Parameters, SecretKey, Sum, Update,
    aggregate::check_words,
    bytes::to_words,
    ckks_sum::{LatticeSecret, beats_per_polynomial, chunks_per_polynomial},
    codec::{self, Output, field},
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
        let words = to_words(&sum.stream);
        check_words(key.public(), engine, &chunks, &words)?;
        let count = chunks.count() as usize;
        let sums = Zeroizing::new(vec![0; chunks.values()]);
        let mut opened = Self { parameters, chunks, sums, parts: vec![(0, 0); count] };
        match (key.paillier(), key.lattice(), key.public().parameters().lattice()) {
            (Some(secret), ..) => opened.open_ciphertexts(secret, engine, sum, &words)?,
            (None, Some(secret), Some(lattice)) => {
                opened.open_polynomials(secret, lattice, engine, sum, &words)?;
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
        let each = self.chunks.geometry().values_per_chunk();
        let values = self.sums.iter().enumerate().map(|(i, &s)| (s, self.parts[i / each].1));
        codec::decode(&sum.agreement, &self.parameters, output, values)
    }

    fn open_ciphertexts(
        &mut self,
        secret: &PaillierSecret,
        engine: &dyn Engine,
        sum: &Sum,
        words: &[u64],
    ) -> Result<(), Error> {
        let (k, n) = (secret.modulus().ciphertext_words(), secret.modulus().n().len_words());
        let mut plain = Zeroizing::new(Vec::with_capacity(words.len() / k * n));
        for part in words.chunks(CIPHERTEXTS_PER_RUN * k) {
            plain.extend_from_slice(secret.decrypt_words(engine, part)?.words());
        }
        let mut rest = plain.as_slice();
        for chunk in 0..self.chunks.count() {
            let slots;
            (slots, rest) = rest.split_at(self.chunks.units_of(chunk) * n);
            self.take_chunk(chunk, sum, &Slots { words: slots, each: n })?;
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
        words: &[u64],
    ) -> Result<(), Error> {
        let each = chunks_per_polynomial(&self.parameters, &lattice.ring);
        let rounding = Rounding::new(lattice);
        let mut groups: BTreeMap<&ContributorSet, Vec<usize>> = BTreeMap::new();
        for (chunk, set) in sum.sets.iter().enumerate() {
            let polynomials = groups.entry(set).or_default();
            if polynomials.last() != Some(&(chunk / each)) {
                polynomials.push(chunk / each);
            }
        }
        for (set, polynomials) in groups {
            let seeds: Vec<u64> =
                set.iter().flat_map(|i| seed_words(&sum.contributors[i].seed)).collect();
            if seeds.is_empty() {
                let chunk = sum.sets.iter().position(|s| s == set).unwrap_or(0) as u32;
                return Err(Error::Inconsistent { chunk, contributors: 0 });
            }
            let program = secret.decrypt_program(&self.parameters, seeds.len() / 4);
            for part in polynomials.chunks(POLYNOMIALS_PER_RUN) {
                let length = beats_per_polynomial(&self.parameters, &lattice.ring) * beats::WORDS;
                let mut input = vec![0; part.len() * length];
                for (&p, out) in part.iter().zip(input.chunks_mut(length)) {
                    let held = &words[p * length..words.len().min((p + 1) * length)];
                    out[..held.len()].copy_from_slice(held);
                }
                let indices: Vec<u64> = part.iter().map(|&p| p as u64).collect();
                let integers_each = lattice.ring.degree() * rounding.words();
                let mut out = Zeroizing::new(vec![0; part.len() * integers_each]);
                let mut operands = [
                    Operand::In(&input),
                    Operand::In(&indices),
                    Operand::In(&seeds),
                    Operand::Out(&mut out),
                ];
                engine.run(&program, &mut operands)?;
                for (&p, integers) in part.iter().zip(out.chunks_mut(integers_each)) {
                    self.take_polynomial(p * each, set, sum, &rounding, integers)?;
                }
            }
        }
        Ok(())
    }

    /// Takes from one decrypted polynomial the chunks of one group.
    fn take_polynomial(
        &mut self,
        first: usize,
        set: &ContributorSet,
        sum: &Sum,
        rounding: &Rounding,
        integers: &mut [u64],
    ) -> Result<(), Error> {
        let g = *self.parameters.geometry();
        let each = rounding.words();
        // The last few coefficients of a polynomial hold no chunk.
        for (i, slots) in integers.chunks_exact_mut(each * g.slots_per_chunk).enumerate() {
            let chunk = first + i;
            if sum.sets.get(chunk) != Some(set) {
                continue;
            }
            let held = self.chunks.units_of(chunk as u32) * g.slots_per_unit;
            let slots = &mut slots[..held * each];
            slots.chunks_exact_mut(each).for_each(|slot| rounding.round(slot));
            self.take_chunk(chunk as u32, sum, &Slots { words: slots, each })?;
        }
        Ok(())
    }

    /// Reads head and fields of a chunk's slots, and checks that its contributors can have made
    /// them: the count is theirs, everything is between what so many can sum to, and nothing is
    /// beside it.
    fn take_chunk(&mut self, chunk: u32, sum: &Sum, slots: &Slots<'_>) -> Result<(), Error> {
        let g = *self.parameters.geometry();
        let contributors = sum.sets[chunk as usize].count();
        let k = contributors as u64;
        let half = u64::from(self.parameters.half_steps());
        let (bits, count_bits) = (g.field_bits, self.parameters.count_bits());
        let head_bits = g.head_fields * bits as usize;
        let first = slots.slot(0);
        let head = field(first, 0, head_bits.min(64) as u32);
        let (count, weight) = (head & ((1 << count_bits) - 1), head >> count_bits);
        let most = k * u64::from(sum.agreement.max_weight());
        let mut honest = k > 0 && count == k && (k..=most).contains(&weight);
        honest &= head_bits <= 64 || is_zero_between(first, 64, head_bits);
        let range = self.chunks.values_of(chunk);
        let values = range.len();
        for (i, out) in self.sums[range].iter_mut().enumerate() {
            let place = g.head_fields + i;
            let at = place % g.fields_per_slot * bits as usize;
            let value = field(slots.slot(place / g.fields_per_slot), at, bits);
            honest &= value <= 2 * k * half;
            *out = value as i64 - (k * half) as i64;
        }
        // Everything past the last value of the chunk, and past the fields of each slot, is zero.
        let used = |slot: usize| {
            let fields = (g.head_fields + values).saturating_sub(slot * g.fields_per_slot);
            fields.min(g.fields_per_slot) * bits as usize
        };
        let mut all = slots.words.chunks(slots.each).enumerate();
        honest &= all.all(|(i, slot)| is_zero_between(slot, used(i), 64 * slots.each));
        self.parts[chunk as usize] = (contributors, weight);
        if honest { Ok(()) } else { Err(Error::Inconsistent { chunk, contributors }) }
    }
}

/// The packed fields of the slots of a chunk, `each` words a slot.
struct Slots<'a> {
    words: &'a [u64],
    each: usize,
}

impl<'a> Slots<'a> {
    fn slot(&self, index: usize) -> &'a [u64] {
        &self.words[index * self.each..][..self.each]
    }
}

/// Whether bits `from .. to` of `words` are all zero.
fn is_zero_between(words: &[u64], from: usize, to: usize) -> bool {
    words.iter().enumerate().all(|(i, word)| {
        // The part of this word that is meant.
        let [start, end] = [from, to].map(|bit| bit.clamp(64 * i, 64 * i + 64) - 64 * i);
        start >= end || (word >> start) << (64 - (end - start)) == 0
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bit_between_is_seen_and_none_beside() {
        for bit in 0..192 {
            let mut words = [0u64; 3];
            words[bit / 64] |= 1 << (bit % 64);
            for (from, to) in [(0, 192), (5, 5), (64, 128), (63, 65), (100, 192), (1, 191)] {
                let seen = (from..to).contains(&bit);
                assert_eq!(is_zero_between(&words, from, to), !seen, "{bit} of {from} .. {to}");
            }
        }
    }
}
