//! Packing: a chunk of an update to the slots of its plaintexts.

use super::{Fields, Quantised, fields::add_bits};
use crate::{params::Chunks, tag::Tags};

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
        let g = self.chunks.geometry();
        let fields = Fields::new(margin, g.field_bits);
        let mut values = &self.update.fields()[self.chunks.values_of(chunk)];
        let tag = self.tags.tag(chunk, values);
        let mut head = g.head.tag_parts();
        let (mut slot, mut skipped) = (0, g.head_fields);
        while skipped > 0 || !values.is_empty() {
            words.fill(0);
            if slot == 0 {
                // The count of contributors is one, and above it is the weight.
                let weight = u128::from(self.update.weight());
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
