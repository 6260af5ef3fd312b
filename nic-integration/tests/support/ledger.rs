//! What clients really did, kept beside the protocol: what they issued, what they were told counts, and
//! the sums that came back.

use std::collections::{BTreeMap, BTreeSet};

use super::{values, words};

/// A contribution, and which of its versions: an honest client has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Issue {
    pub contribution: u8,
    pub draft: u64,
}

impl Issue {
    /// The version that an honest client has.
    pub(crate) fn of(contribution: u8) -> Self {
        Self { contribution, draft: 0 }
    }
}

/// An aggregator's incarnation, and the number of its round.
type Round = (u32, u32);

#[derive(Default)]
pub(crate) struct Ledger {
    /// What each contributor pushed to a round.
    issued: BTreeMap<(Round, u16), Vec<Issue>>,
    counted: BTreeSet<(Round, u16, u32)>,
    /// The sums that came back: contributors and words.
    sums: BTreeMap<(Round, u32), (Vec<u16>, Vec<u64>)>,
}

impl Ledger {
    /// Notes that a client pushes to a round.
    pub(super) fn issue(&mut self, round: Round, contributor: u16, issue: Issue) {
        let issues = self.issued.entry((round, contributor)).or_default();
        if !issues.contains(&issue) {
            issues.push(issue);
        }
    }

    pub(super) fn issues(&self, round: Round, contributor: u16) -> &[Issue] {
        self.issued.get(&(round, contributor)).map_or(&[], |issues| issues)
    }

    /// Notes that a client was told that a chunk of its counts.
    pub(super) fn count(&mut self, round: Round, contributor: u16, chunk: u32) {
        self.counted.insert((round, contributor, chunk));
    }

    /// Chunks that clients were told to count.
    pub(crate) fn counted(&self) -> usize {
        self.counted.len()
    }

    /// Different sums that came back.
    pub(crate) fn sums(&self) -> usize {
        self.sums.len()
    }

    /// A sum is exact over those listed with it, each counted once; whoever was told to count is among
    /// them; and everyone has the same sum.
    pub(super) fn check_sum(&mut self, round: Round, chunk: u32, sum: &(Vec<u16>, Vec<u64>)) {
        let (listed, found) = sum;
        if let Some(known) = self.sums.get(&(round, chunk)) {
            assert_eq!(known, sum, "two sums of chunk {chunk} of {round:?}");
            return;
        }
        // One for each choice among the versions of those who issued several.
        let mut expected = vec![vec![0u64; words(chunk)]];
        for contributor in listed {
            let mut sums = vec![];
            for issue in self.issues(round, *contributor) {
                let added = values(*contributor, chunk, *issue);
                let add = |sum: &Vec<u64>| {
                    sum.iter().zip(&added).map(|(s, v)| s.wrapping_add(*v)).collect()
                };
                sums.extend(expected.iter().map(add));
            }
            expected = sums;
        }
        assert!(expected.contains(found), "the sum of chunk {chunk} is not that of {listed:?}");
        let told = self.counted.range((round, 0, 0)..=(round, u16::MAX, u32::MAX));
        for (_, contributor, _) in told.filter(|(_, _, counted)| *counted == chunk) {
            assert!(listed.contains(contributor), "{contributor} is lost from chunk {chunk}");
        }
        self.sums.insert((round, chunk), sum.clone());
    }
}
