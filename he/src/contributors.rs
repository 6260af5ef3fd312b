//! Sets of contributors.

use std::collections::BTreeSet;

use crate::{
    Error,
    bytes::{Reader, Writer},
    error::FrameError,
    ids::Seed,
};

/// A set of a sum's contributors: a bitmap over their list.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ContributorSet(Vec<u8>);

impl ContributorSet {
    /// Makes the empty set of `count`.
    #[must_use]
    pub fn none(count: usize) -> Self {
        Self(vec![0; count.div_ceil(8)])
    }

    /// Makes the set of all `count`.
    #[must_use]
    pub fn all(count: usize) -> Self {
        let mut set = Self::none(count);
        (0..count).for_each(|i| set.insert(i));
        set
    }

    /// Adds a contributor by its place in the list.
    pub fn insert(&mut self, index: usize) {
        self.0[index / 8] |= 1 << (index % 8);
    }

    /// Returns the contributors' places in the list, ascending.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        (0..8 * self.0.len()).filter(|&i| self.0[i / 8] >> (i % 8) & 1 == 1)
    }

    /// Returns the number of contributors.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.iter().map(|b| b.count_ones() as usize).sum()
    }

    pub(crate) fn write(&self, w: &mut Writer) {
        w.bytes(&self.0);
    }

    pub(crate) fn read(r: &mut Reader<'_>, count: usize) -> Result<Self, FrameError> {
        let set = Self(r.bytes(count.div_ceil(8))?.to_vec());
        if set.iter().any(|i| i >= count) {
            return Err(FrameError::Malformed { what: "a contributor beyond the list" });
        }
        Ok(set)
    }
}

/// Seeds met so far, each once: a sum of three is not three times one client's.
#[derive(Default)]
pub(crate) struct Distinct(BTreeSet<Seed>);

impl Distinct {
    /// Refuses a seed that is there already.
    pub(crate) fn add(&mut self, seed: Seed) -> Result<(), Error> {
        if self.0.insert(seed) { Ok(()) } else { Err(Error::SameContribution) }
    }

    /// Refuses a list with a seed twice.
    pub(crate) fn check(seeds: impl IntoIterator<Item = Seed>) -> Result<(), Error> {
        let mut distinct = Self::default();
        seeds.into_iter().try_for_each(|seed| distinct.add(seed))
    }
}
