//! Sets of contributors.

use std::collections::BTreeSet;

use crate::{
    Error,
    bytes::{Reader, Writer},
    error::FrameError,
    ids::Seed,
};

/// One of those whose contributions a sum is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Contributor {
    /// The client's number.
    pub number: u16,
    /// The contribution's seed.
    pub seed: Seed,
}

impl Contributor {
    /// Bytes that one is written as.
    pub(crate) const BYTES: usize = 2 + 32;

    pub(crate) fn write(&self, w: &mut Writer) {
        w.u16(self.number);
        self.seed.write(w);
    }

    pub(crate) fn read(r: &mut Reader<'_>) -> Result<Self, FrameError> {
        Ok(Self { number: r.u16()?, seed: Seed::read(r)? })
    }
}

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

    /// Returns whether the contributor at a place of the list is in it.
    #[must_use]
    pub fn contains(&self, index: usize) -> bool {
        self.0.get(index / 8).is_some_and(|byte| byte >> (index % 8) & 1 == 1)
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

/// Contributors met so far, each number and each seed once: a sum of three is not three times one client's.
#[derive(Default)]
pub(crate) struct Distinct {
    numbers: BTreeSet<u16>,
    seeds: BTreeSet<Seed>,
}

impl Distinct {
    /// Refuses a contributor whose number or seed is there already.
    pub(crate) fn check_new(&self, contributor: &Contributor) -> Result<(), Error> {
        let Contributor { number, seed } = *contributor;
        if self.seeds.contains(&seed) {
            return Err(Error::SameContribution);
        }
        if self.numbers.contains(&number) {
            return Err(Error::SameNumber { number });
        }
        Ok(())
    }

    /// Adds a contributor.
    ///
    /// # Errors
    /// Its number or seed is there already.
    pub(crate) fn add(&mut self, contributor: &Contributor) -> Result<(), Error> {
        self.check_new(contributor)?;
        self.numbers.insert(contributor.number);
        self.seeds.insert(contributor.seed);
        Ok(())
    }

    /// Refuses a list with a number or a seed twice.
    pub(crate) fn check(contributors: &[Contributor]) -> Result<(), Error> {
        let mut distinct = Self::default();
        contributors.iter().try_for_each(|contributor| distinct.add(contributor))
    }
}
