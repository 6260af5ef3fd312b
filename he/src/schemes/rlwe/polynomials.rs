//! Groups of a sum as polynomials: encrypted tile by tile and written, or decrypted and rounded, while each is in
//! cache.

use std::{
    ops::Range,
    sync::{Arc, Mutex, PoisonError},
};

use ciphergram_accel::{Engine, Operand, Program, Ring, beats};
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
///
/// A polynomial's mask takes a transform of all of it. All else is done tile by tile, each of some whole chunks, in
/// cache, by as many threads as there are, and can be sent when it is done.
pub(super) struct PolynomialEncryptor {
    parameters: Arc<RlweParameters>,
    /// The ring of a tile, and its chunks.
    tile: Arc<Ring>,
    tile_chunks: u32,
    /// Makes the mask of a polynomial.
    mask: Program,
    /// Adds noise, message and mask of a tile.
    cover: Program,
    seed: [u64; 4],
    noise_key: Zeroizing<[u64; 4]>,
    /// The masks of the groups that the last batch was of.
    masks: Vec<Mask>,
    /// Memory that tiles left, for the next: fresh memory costs a tenth of what is done with it.
    buffers: Mutex<Vec<TileBuffer>>,
}

/// The mask of one group's polynomial.
struct Mask {
    group: u32,
    words: Zeroizing<Vec<u64>>,
}

/// [`Geometry::slots_per_unit`](crate::params::Geometry::slots_per_unit) of every ring: a constant, so that loops over
/// it unroll.
const UNIT: usize = 5;

/// Words of a polynomial of the larger one of the small rings.
const SMALL_WORDS: usize = 4 * 8192;

/// Memory for a tile, kept from one to the next.
#[derive(Default)]
struct TileBuffer {
    fields: FieldRoom,
    mask: Zeroizing<Vec<u64>>,
    message: Zeroizing<Vec<u64>>,
    slot: Zeroizing<Vec<u64>>,
    /// The slots of a chunk, word by word.
    slots: Zeroizing<Vec<u64>>,
    /// The part that is not sent would tell of the part that is.
    sealed: Zeroizing<Vec<u64>>,
}

impl UpdateEncryptor for PolynomialEncryptor {
    fn batch_end(&self, next: u32, pace: Pace) -> u32 {
        let (threads, polynomial) =
            (rayon::current_num_threads(), self.parameters.ring.len_words());
        let groups = match pace {
            // A few tiles of a large polynomial, so that something is sent.
            Pace::Soon if next == 0 && polynomial > SMALL_WORDS => {
                return self.tile_chunks * threads.min(4) as u32;
            }
            Pace::Soon => (4 * SMALL_WORDS / polynomial).clamp(threads.clamp(1, 4), 4),
            // Some megabytes: all of it need not be in memory.
            Pace::Bulk => (64 * SMALL_WORDS / polynomial).clamp(threads.clamp(1, 64), 64),
        };
        let each = self.group_chunks();
        (next / each).saturating_add(groups as u32).saturating_mul(each)
    }

    fn seal(
        &mut self,
        engine: &dyn Engine,
        packing: &Packing<'_>,
        own: Range<u32>,
        out: &mut [u8],
    ) -> Result<(), Error> {
        let groups = own.start / self.group_chunks()..own.end.div_ceil(self.group_chunks());
        self.make_masks(engine, groups.clone())?;
        let chunks = packing.chunks();
        let (mut tiles, mut rest, mut first) = (vec![], out, own.start);
        while first < own.end {
            let tile = first..own.end.min(self.tile_end(first));
            let mask = &self.masks[(first / self.group_chunks() - groups.start) as usize];
            first = tile.end;
            let (bytes, after) = rest.split_at_mut(chunks.range_of(&tile).len());
            tiles.push((tile, mask, bytes));
            rest = after;
        }
        let buffers = || self.buffers.lock().unwrap_or_else(PoisonError::into_inner);
        let seal = |(): &mut (), (tile, mask, bytes): (Range<u32>, &Mask, &mut [u8])| {
            let kept = buffers().pop();
            let mut buffer = kept.unwrap_or_default();
            let sealed = self.seal_tile(engine, packing, (tile, mask), &mut buffer, bytes);
            buffers().push(buffer);
            sealed
        };
        spread(tiles, || (), seal).into_iter().collect()
    }
}

impl PolynomialEncryptor {
    /// Makes an encryptor of the programs of a mask and of a tile, which has a ring and some chunks, under a seed and a
    /// key of noise.
    pub(super) fn new(
        parameters: Arc<RlweParameters>,
        (tile, tile_chunks): (Arc<Ring>, u32),
        (mask, cover): (Program, Program),
        (seed, noise_key): ([u64; 4], Zeroizing<[u64; 4]>),
    ) -> Self {
        let (masks, buffers) = (vec![], Mutex::default());
        Self { parameters, tile, tile_chunks, mask, cover, seed, noise_key, masks, buffers }
    }

    fn group_chunks(&self) -> u32 {
        self.parameters.geometry.group_chunks as u32
    }

    /// Returns where the tile that has this chunk ends.
    fn tile_end(&self, chunk: u32) -> u32 {
        let within = chunk % self.group_chunks();
        let end = (within / self.tile_chunks + 1) * self.tile_chunks;
        chunk - within + end.min(self.group_chunks())
    }

    /// Has the masks of these groups ready, in order: those that are there, and others in the memory of what is no
    /// longer wanted.
    fn make_masks(&mut self, engine: &dyn Engine, groups: Range<u32>) -> Result<(), Error> {
        let is_wanted = |mask: &Mask| groups.contains(&mask.group);
        let (mut made, mut spare): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.masks).into_iter().partition(is_wanted);
        let masks = groups.clone().map(|group| {
            let known = made.iter().position(|mask| mask.group == group);
            match known {
                Some(known) => (true, made.swap_remove(known)),
                None => (
                    false,
                    Mask { group, words: spare.pop().map(|mask| mask.words).unwrap_or_default() },
                ),
            }
        });
        let make = |(): &mut (), (is_made, mut mask): (bool, Mask)| {
            if !is_made {
                mask.words.resize(self.parameters.ring.len_words(), 0);
                let (index, out) = ([mask.group.into()], Operand::Out(&mut mask.words));
                let mut operands = [Operand::In(&index), Operand::In(&self.seed), out];
                engine.run(&self.mask, &mut operands)?;
            }
            Ok(mask)
        };
        let masks: Result<Vec<_>, Error> =
            spread(masks.collect(), || (), make).into_iter().collect();
        self.masks = masks?;
        Ok(())
    }

    /// Encrypts the chunks `own` of one tile, which are all of it, its first or its last ones.
    fn seal_tile(
        &self,
        engine: &dyn Engine,
        packing: &Packing<'_>,
        (own, mask): (Range<u32>, &Mask),
        room: &mut TileBuffer,
        out: &mut [u8],
    ) -> Result<(), Error> {
        let (ring, g) = (&self.parameters.ring, &self.parameters.geometry);
        let (degree, words_each) = (self.tile.degree(), ring.primes().len());
        let within = own.start % self.group_chunks();
        let (tile, skipped) = (within / self.tile_chunks, (within % self.tile_chunks) as usize);
        room.slot.resize(words_each, 0);
        room.slots.resize(words_each * g.slots_per_chunk, 0);
        // Zero where nothing is sealed: a resumed tile must not carry chunks sealed before.
        room.message.clear();
        room.message.resize(degree * self.parameters.message_words(), 0);
        let batch = packing.batch(&own, &mut room.fields)?;
        for (chunk, at) in own.clone().zip(skipped..) {
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
                message[at * g.slots_per_chunk..][..count].copy_from_slice(&slots[..count]);
            }
        }
        let first = (tile * self.tile_chunks) as usize * g.slots_per_chunk;
        let held = degree.min(ring.degree() - first);
        let mut own_mask = &mask.words;
        if held < ring.degree() {
            room.mask.resize(self.tile.len_words(), 0);
            let rows =
                room.mask.chunks_exact_mut(degree).zip(mask.words.chunks_exact(ring.degree()));
            rows.for_each(|(tile, whole)| tile[..held].copy_from_slice(&whole[first..][..held]));
            own_mask = &room.mask;
        }
        // Each tile has noise of its own.
        let tiles = self.group_chunks().div_ceil(self.tile_chunks);
        let index = u64::from(mask.group) * u64::from(tiles) + u64::from(tile);
        room.sealed.resize(self.tile_chunks as usize * g.chunk_beats() * beats::WORDS, 0);
        let mut operands = [
            Operand::SecretIn(own_mask),
            Operand::SecretIn(&room.message),
            Operand::In(&[index]),
            Operand::SecretIn(&*self.noise_key),
            Operand::Out(&mut room.sealed),
        ];
        engine.run(&self.cover, &mut operands)?;
        write_words(out, &room.sealed[skipped * g.chunk_bytes() / 8..]);
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

#[cfg(test)]
mod tests {
    use ciphergram_accel::CpuEngine;

    use super::*;
    use crate::{
        Quantised, Scheme, SecretKey,
        contributors::Contributor,
        ids::{Seed, Statement},
        params::Literal,
        tag::Tags,
    };

    /// However a stream is cut, and whichever encryptor goes on, its bytes are the same.
    #[test]
    fn a_stream_has_the_same_bytes_however_it_is_cut() {
        let key = SecretKey::generate(Literal { scheme: Scheme::CkksSum, clients: 5, bits: 16 });
        let key = key.unwrap();
        let (statement, seed) = (Statement([3; 32]), Seed::of_update(&[5; 32], &[1; 32]));
        for (values, degree) in [(120_000, 8192), (1_500_000, 32_768)] {
            let parameters = key.public().parameters().of_values(values);
            assert_eq!(parameters.rlwe().unwrap().ring.degree(), degree);
            let (chunks, engine) = (parameters.chunks(values), CpuEngine::new());
            let update = Quantised::from_fields(vec![65_534; values], 1);
            let contributor = Contributor { number: 0, seed };
            let tag_key = key.as_client(0).tag_key().unwrap();
            let tags = Tags::new(&tag_key, &statement, &contributor, &chunks, 1);
            let packing = Packing::new(&update, &chunks, &tags);
            let fresh = || key.scheme(values).encryptor(&engine, &statement, &seed).unwrap();
            let seal = |encryptor: &mut dyn UpdateEncryptor, own: Range<u32>| {
                let mut out = vec![0; chunks.range_of(&own).len()];
                encryptor.seal(&engine, &packing, own, &mut out).unwrap();
                out
            };
            let whole = seal(&mut *fresh(), 0..chunks.count());
            let group = chunks.geometry().group_chunks as u32;
            let (tile, tile_chunks) = parameters.rlwe().unwrap().tile();
            assert!(tile.degree() < degree);
            let tile = tile_chunks as u32;
            let last = group / tile * tile;
            let cuts = [0, 1, tile, tile + 3, last, last + 1, group, group + 2, chunks.count()];
            let (mut one, mut cut, mut resumed) = (fresh(), vec![], vec![]);
            for ends in cuts.windows(2) {
                cut.extend(seal(&mut *one, ends[0]..ends[1]));
                resumed.extend(seal(&mut *fresh(), ends[0]..ends[1]));
            }
            assert!(cut == whole && resumed == whole, "over {degree}");
        }
    }
}
