//! Packing: a chunk of an update to the slots of its plaintexts.

use std::ops::Range;

use super::{Fields, Quantised, fields::add_bits, quantise::FieldRoom};
use crate::{Error, params::Chunks, tag::Tags};

/// An update as the slots of its chunks.
#[derive(Clone, Copy)]
pub(crate) struct Packing<'a> {
    update: &'a Quantised,
    chunks: &'a Chunks,
    tags: &'a Tags,
}

impl<'a> Packing<'a> {
    /// Lays an update, whose values are within their fields, into `chunks`.
    pub(crate) fn new(update: &'a Quantised, chunks: &'a Chunks, tags: &'a Tags) -> Self {
        Self { update, chunks, tags }
    }

    /// Returns how the update is cut.
    pub(crate) fn chunks(&self) -> &'a Chunks {
        self.chunks
    }

    /// Returns some chunks with their integers, which lie in `room` unless they are at hand.
    ///
    /// # Errors
    /// The file of the update cannot be read.
    pub(crate) fn batch<'b>(
        &'b self,
        own: &Range<u32>,
        room: &'b mut FieldRoom,
    ) -> Result<SlotBatch<'b>, Error> {
        let values = self.chunks.values_in(own);
        let first = values.start;
        Ok(SlotBatch { packing: self, first, fields: self.update.fields_of(values, room)? })
    }
}

/// Some chunks of an update, with their integers.
pub(crate) struct SlotBatch<'a> {
    packing: &'a Packing<'a>,
    /// The place of the first integer in the update.
    first: usize,
    fields: &'a [u32],
}

impl SlotBatch<'_> {
    /// Lays the head and the values of `chunk`, which carries some, into slots, each above `margin` zero bits,
    /// and shows `put` the words of each in order, which lie in `words` meanwhile: as many as a slot has.
    #[inline]
    pub(crate) fn pack(
        &self,
        chunk: u32,
        margin: u32,
        words: &mut [u64],
        mut put: impl FnMut(usize, &[u64]),
    ) {
        let Packing { update, chunks, tags } = self.packing;
        let g = chunks.geometry();
        let fields = Fields::new(margin, g.field_bits);
        let Range { start, end } = chunks.values_of(chunk);
        let mut values = &self.fields[start - self.first..end - self.first];
        let tag = tags.tag(chunk, values);
        let mut head = g.head.tag_parts();
        let (mut slot, mut skipped) = (0, g.head_fields);
        while skipped > 0 || !values.is_empty() {
            words.fill(0);
            if slot == 0 {
                // The count of contributors is one, and above it is the weight.
                let weight = u128::from(update.weight());
                add_bits(words, margin, 1 | weight << g.head.count_bits());
            }
            if let Some(part) = head.next() {
                add_bits(words, margin + part.at, tag >> part.shift & ((1 << part.bits) - 1));
            }
            let first = skipped.min(g.fields_per_slot);
            let (own, rest) = values.split_at(values.len().min(g.fields_per_slot - first));
            fields.set(words, first, own);
            put(slot, words);
            (values, slot, skipped) = (rest, slot + 1, skipped - first);
        }
    }
}
