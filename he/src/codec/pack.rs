//! Packing: a chunk of an update to the slots of its plaintexts.

use super::{Fields, Quantised, add_bits};
use crate::{Parameters, params::Chunks};

/// An update as the slots of its chunks.
#[derive(Clone, Copy)]
pub(crate) struct Packing<'a> {
    update: &'a Quantised,
    chunks: &'a Chunks,
    count_bits: u32,
}

impl<'a> Packing<'a> {
    /// Lays an update, whose values are within their fields, into `chunks`.
    pub(crate) fn new(update: &'a Quantised, chunks: &'a Chunks, parameters: &Parameters) -> Self {
        Self { update, chunks, count_bits: parameters.count_bits() }
    }

    /// Returns how the update is cut.
    pub(crate) fn chunks(&self) -> &'a Chunks {
        self.chunks
    }

    /// Lays the head and the values of `chunk` into slots, each above `margin` zero bits, and shows
    /// `put` the words of each in order, which lie in `words` meanwhile: as many as a slot has.
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
        let mut slot = 0;
        while slot == 0 || !values.is_empty() {
            words.fill(0);
            let first = if slot == 0 { g.head_fields } else { 0 };
            if slot == 0 {
                // The count of contributors is one, and above it is the weight.
                let head = 1 | u64::from(self.update.weight()) << self.count_bits;
                add_bits(words, margin, head);
            }
            let (own, rest) = values.split_at(values.len().min(g.fields_per_slot - first));
            fields.set(words, first, own);
            put(slot, words);
            (values, slot) = (rest, slot + 1);
        }
    }
}
