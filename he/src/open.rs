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
        let mut slots = plain.chunks(n).map(SlotWords::Plain);
        for chunk in 0..self.chunks.count() {
            let count = self.chunks.units_of(chunk);
            let integers: Vec<_> = slots.by_ref().take(count).collect();
            self.take_chunk(chunk, sum, &integers)?;
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
                let degree = lattice.ring.degree();
                let mut out = Zeroizing::new(vec![0; part.len() * degree * 2]);
                let mut operands = [
                    Operand::In(&input),
                    Operand::In(&indices),
                    Operand::In(&seeds),
                    Operand::Out(&mut out),
                ];
                engine.run(&program, &mut operands)?;
                for (&p, integers) in part.iter().zip(out.chunks(degree * 2)) {
                    self.take_polynomial(p * each, set, sum, lattice, integers)?;
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
        lattice: &Lattice,
        integers: &[u64],
    ) -> Result<(), Error> {
        let g = *self.parameters.geometry();
        for (i, slots) in integers.chunks(2 * g.slots_per_chunk).enumerate() {
            let chunk = first + i;
            // The last few coefficients of a polynomial hold no chunk.
            let whole = slots.len() == 2 * g.slots_per_chunk;
            if !whole || sum.sets.get(chunk) != Some(set) {
                continue;
            }
            let held = self.chunks.units_of(chunk as u32) * g.slots_per_unit;
            let rounded: Vec<_> = slots
                .chunks(2)
                .take(held)
                .map(|x| SlotWords::Rounded(round_noise_away(x, lattice)))
                .collect();
            self.take_chunk(chunk as u32, sum, &rounded)?;
        }
        Ok(())
    }

    /// Reads head and fields of a chunk's slots, and checks that its contributors can have made
    /// them: the count is theirs, everything is between what so many can sum to, and nothing is
    /// beside it.
    fn take_chunk(&mut self, chunk: u32, sum: &Sum, slots: &[SlotWords<'_>]) -> Result<(), Error> {
        let g = *self.parameters.geometry();
        let contributors = sum.sets[chunk as usize].count();
        let k = contributors as u64;
        let half = u64::from(self.parameters.half_steps());
        let (bits, count_bits) = (g.field_bits, self.parameters.count_bits());
        let head_bits = g.head_fields * bits as usize;
        let first = slots[0].words();
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
            let value = field(slots[place / g.fields_per_slot].words(), at, bits);
            honest &= value <= 2 * k * half;
            *out = value as i64 - (k * half) as i64;
        }
        // Everything past the last value of the chunk, and past the fields of each slot, is zero.
        let used = |slot: usize| {
            let fields = (g.head_fields + values).saturating_sub(slot * g.fields_per_slot);
            fields.min(g.fields_per_slot) * bits as usize
        };
        honest &= slots.iter().enumerate().all(|(i, s)| is_zero_from(s.words(), used(i)));
        self.parts[chunk as usize] = (contributors, weight);
        if honest { Ok(()) } else { Err(Error::Inconsistent { chunk, contributors }) }
    }
}

/// The packed fields of one slot.
enum SlotWords<'a> {
    Plain(&'a [u64]),
    Rounded([u64; 2]),
}

impl SlotWords<'_> {
    fn words(&self) -> &[u64] {
        match self {
            Self::Plain(words) => words,
            Self::Rounded(words) => words,
        }
    }
}

fn is_zero_from(words: &[u64], bit: usize) -> bool {
    is_zero_between(words, bit, 64 * words.len())
}

fn is_zero_between(words: &[u64], from: usize, to: usize) -> bool {
    (from..to).all(|b| words[b / 64] >> (b % 64) & 1 == 0)
}

/// The multiple of `2^margin` nearest to `x` modulo Q, divided by it: noise just below zero shows as
/// a number just below Q.
fn round_noise_away(x: &[u64], lattice: &Lattice) -> [u64; 2] {
    let q: u128 = lattice.ring.primes().iter().map(|&q| u128::from(q)).product();
    let x = u128::from(x[0]) | u128::from(x[1]) << 64;
    let raised = x + (1 << (lattice.margin_bits - 1));
    let fields = (if raised >= q { raised - q } else { raised }) >> lattice.margin_bits;
    [fields as u64, (fields >> 64) as u64]
}
