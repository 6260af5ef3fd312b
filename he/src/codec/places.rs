//! The places of values in the stream of fields.
//!
//! A value takes one field, or several neighbours: the *limbs* of an integer `v`, its digits `d_j` in
//! base `B = 2L + 1`, lowest first, each in `−L ..= L` and so a field like any other. Limbs of a sum are sums of
//! limbs, and `Σ_j S_j · B^j` is the sum of the integers, whatever carries there would be.
//!
//! Limbs of one value are in one chunk, so that they are of the same contributors: where a chunk has no room for all,
//! its last fields stay zero.

use std::{iter, ops::Range};

use super::{
    Agreement, Precision,
    precision::{MOST, Radix},
};
use crate::{Parameters, params::Chunks};

/// The place of a tensor's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    /// Its first field.
    pub(crate) first: usize,
    /// After its last field.
    pub(crate) end: usize,
    /// Fields of a value.
    pub(crate) limbs: usize,
    values: usize,
    /// Fields of a chunk.
    chunk: usize,
}

impl Place {
    fn new(first: usize, values: usize, limbs: usize, chunk: usize) -> Self {
        let place = Self { first, end: first, limbs, values, chunk };
        let end = values.checked_sub(1).map_or(first, |last| place.field_of(last) + limbs);
        Self { end, ..place }
    }

    /// Returns how many values have room in the chunk that the place begins in, and in the others.
    fn values_to_a_chunk(&self) -> (usize, usize) {
        ((self.chunk - self.first % self.chunk) / self.limbs, self.chunk / self.limbs)
    }

    /// Returns the first field of a value.
    fn field_of(&self, value: usize) -> usize {
        if self.limbs == 1 {
            return self.first + value;
        }
        let (lead, each) = self.values_to_a_chunk();
        match value.checked_sub(lead) {
            None => self.first + value * self.limbs,
            Some(rest) => {
                (self.first / self.chunk + 1 + rest / each) * self.chunk + rest % each * self.limbs
            }
        }
    }

    /// Returns the number of values that begin before a field.
    pub(crate) fn values_before(&self, field: usize) -> usize {
        let field = field.clamp(self.first, self.end);
        if self.limbs == 1 {
            return field - self.first;
        }
        let (lead, each) = self.values_to_a_chunk();
        let found = match field / self.chunk - self.first / self.chunk {
            0 => (field - self.first).div_ceil(self.limbs).min(lead),
            later => {
                let within = (field % self.chunk).div_ceil(self.limbs).min(each);
                lead + (later - 1) * each + within
            }
        };
        found.min(self.values)
    }

    /// Returns the values in a range of fields that cuts none, in runs of neighbours, each with its first field.
    pub(crate) fn runs(&self, fields: Range<usize>) -> impl Iterator<Item = (Range<usize>, usize)> {
        let (mut next, end) = (self.values_before(fields.start), self.values_before(fields.end));
        let place = *self;
        iter::from_fn(move || {
            let (start, first) = (next, place.field_of(next));
            let until =
                if place.limbs == 1 { place.end } else { (first / place.chunk + 1) * place.chunk };
            next = place.values_before(until).min(end);
            (start < end).then_some((start..next, first))
        })
    }
}

/// The places of all tensors of an agreement, in their order, and the number of all fields.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Places {
    pub(crate) tensors: Vec<Place>,
    pub(crate) fields: usize,
}

impl Places {
    /// Lays out the values of an agreement. The set that they travel under follows from the number of fields, and that
    /// from the set's chunks: it is the smallest set that they fit, filled with zeros to where it begins.
    pub(crate) fn new(agreement: &Agreement, parameters: &Parameters) -> Self {
        let limbs: Vec<_> = agreement.limbs(parameters.bits()).collect();
        let sets = || iter::once((0, parameters)).chain(parameters.larger());
        let ends = sets().skip(1).map(|(from, _)| from).chain([usize::MAX]);
        let laid_out = sets().zip(ends).map(|((from, set), end)| {
            let tensors = lay(agreement, &limbs, set.geometry().values_per_chunk());
            let fields = tensors.last().map_or(0, |last| last.end).max(from);
            (Self { tensors, fields }, end)
        });
        let mut fitting = laid_out.filter(|(places, end)| places.fields < *end);
        fitting.next().map_or_else(Self::default, |(places, _)| places)
    }
}

impl Agreement {
    /// Returns the number of fields of all tensors under a key.
    #[must_use]
    pub fn fields(&self, parameters: &Parameters) -> usize {
        Places::new(self, parameters).fields
    }

    /// Cuts the stream of its fields under a key.
    #[must_use]
    pub fn chunks(&self, parameters: &Parameters) -> Chunks {
        parameters.chunks(self.fields(parameters))
    }

    /// Returns the most fields that it may come to under a key when the ranges of others are joined.
    #[must_use]
    pub fn most_fields(&self, parameters: &Parameters) -> usize {
        let most = Radix::new(parameters.bits()).limbs(MOST);
        let each = self.specs().iter().zip(self.precisions()).zip(self.limbs(parameters.bits()));
        let fields = each.map(|((spec, precision), limbs)| {
            let limbs = if *precision == Precision::Exact { most } else { limbs };
            spec.values().unwrap_or(0).saturating_mul(limbs)
        });
        fields.fold(0, usize::saturating_add).max(self.fields(parameters))
    }
}

fn lay(agreement: &Agreement, limbs: &[usize], chunk: usize) -> Vec<Place> {
    let mut end = 0;
    let place = |(spec, &limbs): (&crate::TensorSpec, &usize)| {
        let place = Place::new(end, spec.values().unwrap_or(0), limbs, chunk);
        end = place.end;
        place
    };
    agreement.specs().iter().zip(limbs).map(place).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_chunk_cuts_a_value_and_every_value_is_found(
            first in 0usize..40, values in 0usize..60, limbs in 1usize..8, chunk in 8usize..20,
        ) {
            let place = Place::new(first, values, limbs, chunk);
            let mut next = first;
            for value in 0..values {
                let field = place.field_of(value);
                prop_assert!(field >= next && field < next + limbs);
                prop_assert!(limbs == 1 || field / chunk == (field + limbs - 1) / chunk);
                prop_assert_eq!(place.values_before(field), value);
                prop_assert_eq!(place.values_before(field + 1), value + 1);
                next = field + limbs;
            }
            prop_assert_eq!(place.end, next);
            // Chunk by chunk, as sums are opened.
            let mut seen = vec![];
            for start in (0..next).step_by(chunk) {
                for (run, field) in place.runs(start..start + chunk) {
                    prop_assert!(!run.is_empty() && field >= start);
                    prop_assert_eq!(place.field_of(run.start), field);
                    prop_assert_eq!(place.field_of(run.end - 1), field + (run.len() - 1) * limbs);
                    seen.extend(run);
                }
            }
            prop_assert!(seen.into_iter().eq(0..values));
        }
    }
}
