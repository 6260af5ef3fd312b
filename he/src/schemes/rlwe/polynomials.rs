//! Groups of a sum as polynomials: packed, encrypted and written, or decrypted and rounded, one after the
//! other while each is in cache.

use std::{
    ops::Range,
    sync::{Arc, Mutex, PoisonError},
};

use ciphergram_accel::{Engine, Operand, Program, beats};
use zeroize::Zeroizing;

use super::{parameters::RlweParameters, rounding::Rounding};
use crate::{
    Error,
    bytes::write_words,
    codec::{FieldRoom, Packing},
    schemes::{Groups, Opener, Pace, Scratch, UpdateEncryptor},
    spread::spread,
};

/// Encrypts polynomials of one contribution, under its seed and noise key.
pub(super) struct PolynomialEncryptor {
    pub(super) parameters: Arc<RlweParameters>,
    pub(super) program: Program,
    pub(super) seed: [u64; 4],
    pub(super) noise_key: Zeroizing<[u64; 4]>,
    /// Memory that polynomials left, for the next: fresh memory costs a tenth of what is done with it.
    pub(super) buffers: Mutex<Vec<PolynomialBuffer>>,
}

/// [`Geometry::slots_per_unit`](crate::params::Geometry::slots_per_unit) of every ring: a constant, so that loops over
/// it unroll.
const UNIT: usize = 5;

/// Words of a polynomial of the larger one of the small rings.
const SMALL_WORDS: usize = 4 * 8192;

/// Memory for a polynomial, kept from one to the next.
#[derive(Default)]
pub(super) struct PolynomialBuffer {
    fields: FieldRoom,
    message: Zeroizing<Vec<u64>>,
    slot: Zeroizing<Vec<u64>>,
    /// The slots of a chunk, word by word.
    slots: Zeroizing<Vec<u64>>,
    /// The part that is not sent would tell of the part that is.
    sealed: Zeroizing<Vec<u64>>,
}

impl UpdateEncryptor for PolynomialEncryptor {
    fn groups_at_once(&self, pace: Pace) -> u32 {
        let (threads, polynomial) =
            (rayon::current_num_threads(), self.parameters.ring.len_words());
        let groups = match pace {
            Pace::Soon => (4 * SMALL_WORDS / polynomial).clamp(threads.clamp(1, 4), 4),
            // Some megabytes: all of it need not be in memory.
            Pace::Bulk => (64 * SMALL_WORDS / polynomial).clamp(threads.clamp(1, 64), 64),
        };
        groups as u32
    }

    fn seal(
        &mut self,
        engine: &dyn Engine,
        packing: &Packing<'_>,
        own: Range<u32>,
        out: &mut [u8],
    ) -> Result<(), Error> {
        let chunks = packing.chunks();
        let (mut groups, mut rest, mut first) = (vec![], out, own.start);
        while first < own.end {
            let group = first..own.end.min(chunks.group_of(first).end);
            first = group.end;
            let (bytes, after) = rest.split_at_mut(chunks.range_of(&group).len());
            groups.push((group, bytes));
            rest = after;
        }
        let buffers = || self.buffers.lock().unwrap_or_else(PoisonError::into_inner);
        let seal = |(): &mut (), (group, bytes): (Range<u32>, &mut [u8])| {
            let kept = buffers().pop();
            let mut buffer = kept.unwrap_or_default();
            let sealed = self.seal_group(engine, packing, group, &mut buffer, bytes);
            buffers().push(buffer);
            sealed
        };
        spread(groups, || (), seal).into_iter().collect()
    }
}

impl PolynomialEncryptor {
    /// Encrypts the chunks `own` of one group, which are all of it or its last ones.
    fn seal_group(
        &self,
        engine: &dyn Engine,
        packing: &Packing<'_>,
        own: Range<u32>,
        room: &mut PolynomialBuffer,
        out: &mut [u8],
    ) -> Result<(), Error> {
        let (ring, g) = (&self.parameters.ring, &self.parameters.geometry);
        let (degree, words_each, each) =
            (ring.degree(), ring.primes().len(), g.group_chunks as u32);
        let values = packing.chunks().values_in(&own).len();
        if values < g.group_chunks * g.values_per_chunk() {
            // Zero where nothing is sealed: a resumed polynomial must not carry chunks sealed before.
            room.message.clear();
        }
        room.message.resize(degree * self.parameters.message_words(), 0);
        room.slot.resize(words_each, 0);
        room.slots.resize(words_each * g.slots_per_chunk, 0);
        let batch = packing.batch(&own, &mut room.fields)?;
        for chunk in own.clone() {
            let start = (chunk % each) as usize * g.slots_per_chunk;
            let (slots, mut count) = (&mut room.slots, 0);
            batch.pack(chunk, self.parameters.margin_bits, &mut room.slot, |slot, words| {
                for (w, &word) in words.iter().enumerate() {
                    slots[w * g.slots_per_chunk + slot] = word;
                }
                count = slot + 1;
            });
            // Word by word, as programs have the integers of a polynomial. Words of one slot lie a power of two apart
            // there, and many in the same few lines of a cache.
            let rows = room.message.chunks_exact_mut(degree);
            for (message, slots) in rows.zip(slots.chunks_exact(g.slots_per_chunk)) {
                message[start..][..count].copy_from_slice(&slots[..count]);
            }
        }
        let index = u64::from(own.start / each);
        room.sealed.resize(self.parameters.polynomial_beats() * beats::WORDS, 0);
        let mut operands = [
            Operand::SecretIn(&room.message),
            Operand::In(&[index]),
            Operand::In(&self.seed),
            Operand::SecretIn(&*self.noise_key),
            Operand::Out(&mut room.sealed),
        ];
        engine.run(&self.program, &mut operands)?;
        let skipped = (own.start % each) as usize * g.chunk_bytes() / 8;
        write_words(out, &room.sealed[skipped..]);
        Ok(())
    }
}

/// Decrypts polynomials of a sum.
pub(super) trait DecryptPolynomial: Sync {
    /// Decrypts polynomial `index` of a sum, one group: its words to the integers of its coefficients.
    ///
    /// # Errors
    /// The engine's.
    fn decrypt(
        &self,
        engine: &dyn Engine,
        index: u64,
        group: &Groups<'_>,
        scratch: &mut Scratch,
    ) -> Result<(), Error>;
}

/// Makes an opener by polynomials, for rings of two, four, eight or sixteen primes.
pub(super) fn opener<'a>(
    parameters: &'a RlweParameters,
    polynomials: impl DecryptPolynomial + 'a,
) -> Box<dyn Opener + 'a> {
    match parameters.ring.primes().len() {
        2 => GroupOpener::<2, _>::boxed(parameters, polynomials),
        4 => GroupOpener::<4, _>::boxed(parameters, polynomials),
        8 => GroupOpener::<8, _>::boxed(parameters, polynomials),
        _ => GroupOpener::<16, _>::boxed(parameters, polynomials),
    }
}

/// An opener of groups by polynomials over a ring of `W` primes.
struct GroupOpener<'a, const W: usize, D> {
    parameters: &'a RlweParameters,
    rounding: Rounding<W>,
    polynomials: D,
}

impl<const W: usize, D: DecryptPolynomial> Opener for GroupOpener<'_, W, D> {
    fn groups_at_once(&self) -> usize {
        1
    }

    fn sizes(&self) -> (usize, usize) {
        (self.parameters.ring.len_words(), W)
    }

    fn open(
        &self,
        engine: &dyn Engine,
        groups: &Groups<'_>,
        scratch: &mut Scratch,
        take: &mut dyn FnMut(u32, &[u64]),
    ) -> Result<(), Error> {
        let g = &self.parameters.geometry;
        // The last polynomial may hold fewer chunks than the others.
        scratch.words.resize(g.group_chunks * g.chunk_bytes() / 8, 0);
        let index = u64::from(groups.own.start) / g.group_chunks as u64;
        self.polynomials.decrypt(engine, index, groups, scratch)?;
        for (i, chunk) in groups.own.clone().enumerate() {
            let count = groups.chunks.units_of(chunk) * g.slots_per_unit;
            self.round(i * g.slots_per_chunk, count, scratch);
            take(chunk, &scratch.slots);
        }
        Ok(())
    }
}

impl<'a, const W: usize, D: DecryptPolynomial + 'a> GroupOpener<'a, W, D> {
    fn boxed(parameters: &'a RlweParameters, polynomials: D) -> Box<dyn Opener + 'a> {
        debug_assert_eq!(parameters.geometry.slots_per_unit, UNIT);
        Box::new(Self { parameters, rounding: Rounding::new(parameters), polynomials })
    }
}

impl<const W: usize, D> GroupOpener<'_, W, D> {
    /// Rounds `count` coefficients from `start` on to slots.
    fn round(&self, start: usize, count: usize, scratch: &mut Scratch) {
        let degree = self.parameters.ring.degree();
        let Scratch { integers, slots, .. } = scratch;
        slots.resize(W * count, 0);
        // Words of one integer lie a power of two apart, and many in the same few lines of a cache.
        let mut rows = Zeroizing::new([[0; UNIT]; W]);
        for (unit, slots) in slots.as_chunks_mut::<W>().0.chunks_exact_mut(UNIT).enumerate() {
            for (row, integers) in rows.iter_mut().zip(integers.chunks_exact(degree)) {
                *row = integers[start..].as_chunks::<UNIT>().0[unit];
            }
            for (i, slot) in slots.iter_mut().enumerate() {
                *slot = self.rounding.round(std::array::from_fn(|w| rows[w][i]));
            }
        }
    }
}
