//! The cut of a stream of values into chunks, and of chunks into slots.

use std::ops::Range;

use ciphergram_accel::beats;

use super::head::Head;
use crate::{error::faults::ParameterError, params::scheme::Literal};

/// The most bytes of a chunk on the wire, the unit of summing.
pub const CHUNK_BYTES: usize = 1280;

/// The layout of values in a chunk, and of a chunk on the wire.
///
/// A chunk is a run of *slots*; a slot is one plaintext integer (of a Paillier ciphertext, or a
/// coefficient) of [`Geometry::fields_per_slot`] fields. The first fields of a chunk are its
/// *head*: the number 1, so that a sum tells how many it is of, the contributor's weight, and its tag,
/// which shows that a sum is what its contributors sealed ([`Head`]). On the wire slots travel in *units*:
/// a ciphertext, or the fewest beats of whole coefficients: one, two, four or eight beats, of five coefficients.
/// The last chunk is cut to the units that it needs.
///
/// Chunks come in *groups*: those of one polynomial; under Paillier each chunk is a group of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    /// Bits of a field: a value and the headroom of all contributors.
    pub field_bits: u32,
    /// Fields of one slot.
    pub fields_per_slot: usize,
    /// Slots of a whole chunk.
    pub slots_per_chunk: usize,
    /// Fields at the start of every chunk that hold its head.
    pub head_fields: usize,
    /// The layout of the head.
    pub head: Head,
    /// Slots of one unit.
    pub slots_per_unit: usize,
    /// Bytes of one unit.
    pub unit_bytes: usize,
    /// Chunks of a whole group; the last group is cut to those that it needs.
    pub group_chunks: usize,
}

impl Geometry {
    /// Lays the head of chunks of whole slots, which is of `granularity` fields or a multiple, into `self`.
    /// Sums of slots may be any integer of `sum_bits` bits: of the fields alone less is known to fit.
    ///
    /// # Errors
    /// It leaves no field for a value.
    pub(crate) fn with_head(
        mut self,
        literal: Literal,
        granularity: usize,
        sum_bits: u32,
    ) -> Result<Self, ParameterError> {
        let Literal { clients, bits, .. } = literal;
        let (each, fields) = (self.fields_per_slot, self.slots_per_chunk * self.fields_per_slot);
        let slot_bits = sum_bits.min(each as u32 * self.field_bits);
        for head_fields in (granularity..fields).step_by(granularity) {
            let head = Head::lay_out(clients, bits, fields - head_fields, slot_bits);
            let Some(head) = head else { continue };
            let last = head.slots() - 1;
            if last * each + head.bits_of(last).div_ceil(self.field_bits) as usize <= head_fields {
                (self.head, self.head_fields) = (head, head_fields);
                return Ok(self);
            }
        }
        Err(ParameterError::no_room(literal.clients, literal.bits))
    }

    /// Cuts a stream of `values` values.
    #[must_use]
    pub fn chunks(&self, values: usize) -> Chunks {
        let count = values.div_ceil(self.values_per_chunk()).max(1);
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        let (last, chunk_bytes) = (count - 1, self.chunk_bytes());
        let cut = Chunks { geometry: *self, values, count, chunk_bytes, bytes: 0 };
        Chunks { bytes: cut.offset_of(last) + cut.units_of(last) * self.unit_bytes, ..cut }
    }

    /// Values of a whole chunk.
    #[must_use]
    pub fn values_per_chunk(&self) -> usize {
        self.slots_per_chunk * self.fields_per_slot - self.head_fields
    }

    /// Returns the bytes of a whole chunk.
    #[must_use]
    pub fn chunk_bytes(&self) -> usize {
        self.slots_per_chunk / self.slots_per_unit * self.unit_bytes
    }

    /// Returns the [beats](ciphergram_accel::beats) of a whole chunk.
    pub(crate) fn chunk_beats(&self) -> usize {
        self.chunk_bytes() / beats::BYTES
    }

    /// Returns the bytes a value in whole chunks.
    #[must_use]
    pub fn bytes_per_value(&self) -> f64 {
        self.chunk_bytes() as f64 / self.values_per_chunk() as f64
    }
}

/// The cut of one stream of `values` values into chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chunks {
    geometry: Geometry,
    values: usize,
    count: u32,
    /// Bytes of every chunk but the last, and of all: kept, since a sum asks several times a datagram and each answer
    /// would divide.
    chunk_bytes: usize,
    bytes: usize,
}

impl Chunks {
    /// Returns the number of chunks: at least one, which then carries its head alone.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Returns the values of all chunks.
    #[must_use]
    pub fn values(&self) -> usize {
        self.values
    }

    /// Returns the range of values that `chunk` carries.
    #[must_use]
    pub fn values_of(&self, chunk: u32) -> Range<usize> {
        let each = self.geometry.values_per_chunk();
        let start = (chunk as usize * each).min(self.values);
        start..(start + each).min(self.values)
    }

    /// Returns the range of values that neighbouring chunks carry.
    #[must_use]
    pub fn values_in(&self, chunks: &Range<u32>) -> Range<usize> {
        let start = self.values_of(chunks.start).start;
        match chunks.end.checked_sub(1) {
            Some(last) if last >= chunks.start => start..self.values_of(last).end,
            _ => start..start,
        }
    }

    /// Returns the units of `chunk` on the wire.
    #[must_use]
    pub fn units_of(&self, chunk: u32) -> usize {
        let g = &self.geometry;
        let fields = g.head_fields + self.values_of(chunk).len();
        fields.div_ceil(g.fields_per_slot).div_ceil(g.slots_per_unit)
    }

    /// Returns the bytes of `chunk` on the wire.
    #[must_use]
    pub fn bytes_of(&self, chunk: u32) -> usize {
        self.range_of(&(chunk..chunk.saturating_add(1))).len()
    }

    /// Returns the start of `chunk` in the stream, in bytes.
    #[must_use]
    pub fn offset_of(&self, chunk: u32) -> usize {
        chunk as usize * self.chunk_bytes
    }

    /// Returns the bytes of the whole stream.
    #[must_use]
    pub fn total_bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the layout of values in a chunk.
    #[must_use]
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Returns the place of `chunks` in a stretch of the stream that begins with chunk `first`, in bytes.
    #[must_use]
    pub fn range_within(&self, first: u32, chunks: &Range<u32>) -> Range<usize> {
        let (first, Range { start, end }) = (self.offset_of(first), self.range_of(chunks));
        start - first..end - first
    }

    /// Returns the place of `chunks` in the stream, in bytes: empty if there are none.
    #[must_use]
    pub fn range_of(&self, chunks: &Range<u32>) -> Range<usize> {
        let start = self.offset_of(chunks.start);
        start..self.offset_of(chunks.end).min(self.bytes).max(start)
    }
}
