//! A ledger of what clients really did, kept beside the protocol: their issues, the additions, the
//! counts that they were given, and the sums that came back.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::{Arc, Mutex};

use ciphergram_nic::proto::Time;

use super::world::{BLOCK_WORDS, CHUNKS, values, words};

/// A contribution, and which of its versions: an honest client has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Issue {
    pub contribution: u8,
    pub draft: u64,
}

impl Issue {
    /// Returns the version that an honest client has.
    pub(crate) fn of(contribution: u8) -> Self {
        Self { contribution, draft: 0 }
    }
}

/// An aggregator's incarnation, and the number of its round.
type Round = (u32, u32);

/// For each round that was opened: the contents of its chunks.
pub(crate) type Accumulators = Arc<Mutex<BTreeMap<Round, Vec<Vec<u64>>>>>;

#[derive(Default)]
pub(crate) struct Ledger {
    /// Prints what happens.
    pub trace: bool,
    /// The network's time, to print with it.
    pub(super) now: Time,
    min_clients: u16,
    /// Only whole contributions count: what a client knows to count may be staged only.
    pub(super) whole: bool,
    pub(super) accumulators: Accumulators,
    /// The issues that each contributor pushed to a round.
    issued: BTreeMap<(Round, u16), Vec<Issue>>,
    counted: BTreeSet<(Round, u16, u32)>,
    /// The sums that came back: contributors and words.
    sums: BTreeMap<(Round, u32), (Vec<u16>, Vec<u64>)>,
}

impl Ledger {
    /// Makes an empty ledger. No sum may be of fewer than `min_clients`.
    pub(super) fn of(min_clients: u16) -> Self {
        Self { min_clients, ..Self::default() }
    }

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

    /// Notes that a client knows a chunk of its to count: it was added, once, and stays so; if only
    /// whole contributions count, once it knows that of every chunk.
    pub(super) fn count(&mut self, round: Round, contributor: u16, chunk: u32) {
        self.counted.insert((round, contributor, chunk));
        if self.is_due(round, contributor) {
            let counts = self.accumulators.lock().unwrap()[&round][chunk as usize][0].to_le_bytes();
            let added = counts[usize::from(contributor)] == 1;
            assert!(added, "{contributor} is said to be in chunk {chunk}, and is not");
        }
    }

    /// Returns whether the chunks that a client knows to count must be in their sums.
    fn is_due(&self, round: Round, contributor: u16) -> bool {
        let all = (round, contributor, 0)..=(round, contributor, u32::MAX);
        !self.whole || self.counted.range(all).count() == CHUNKS as usize
    }

    /// Checks, if only whole contributions count, that every chunk has the same contributors.
    pub(super) fn check_whole(&self) {
        if !self.whole {
            return;
        }
        for (round, chunks) in self.accumulators.lock().unwrap().iter() {
            let same = chunks.iter().all(|chunk| chunk[0] == chunks[0][0]);
            assert!(same, "chunks of round {round:?} have different contributors");
        }
    }

    /// Returns the number of chunks that clients know to count.
    pub(crate) fn counted(&self) -> usize {
        self.counted.len()
    }

    /// Returns the number of different sums that came back.
    pub(crate) fn sums(&self) -> usize {
        self.sums.len()
    }

    /// Checks that a sum is exact over those listed with it, each counted once, who are enough and
    /// include every client that knows to be counted; and that everyone has the same sum.
    pub(super) fn check_sum(&mut self, round: Round, chunk: u32, sum: &(Vec<u16>, Vec<u64>)) {
        let (listed, found) = sum;
        let enough = listed.len() >= usize::from(self.min_clients);
        assert!(enough, "the sum of chunk {chunk} is of too few: {listed:?}");
        if let Some(known) = self.sums.get(&(round, chunk)) {
            assert_eq!(known, sum, "two sums of chunk {chunk} of {round:?}");
            return;
        }
        // Of whole contributions blocks are staged, else chunks come whole.
        let each = if self.whole { BLOCK_WORDS } else { words(chunk) };
        for (block, found) in found.chunks(each).enumerate() {
            // One for each choice among the versions of contributors that issued several.
            let mut expected = vec![vec![0u64; found.len()]];
            for contributor in listed {
                let mut sums = vec![];
                for issue in self.issues(round, *contributor) {
                    let added = values(*contributor, chunk, *issue).split_off(block * each);
                    let add = |sum: &Vec<u64>| {
                        sum.iter().zip(&added).map(|(s, v)| s.wrapping_add(*v)).collect()
                    };
                    sums.extend(expected.iter().map(add));
                }
                expected = sums;
            }
            let is_expected = expected.iter().any(|sum| sum == found);
            assert!(is_expected, "the sum of chunk {chunk} is not that of {listed:?}");
        }
        let counted = self.counted.range((round, 0, 0)..=(round, u16::MAX, u32::MAX));
        for (_, contributor, _) in counted.filter(|(_, _, counted)| *counted == chunk) {
            let there = listed.contains(contributor) || !self.is_due(round, *contributor);
            assert!(there, "{contributor} is lost from chunk {chunk}");
        }
        let others = self.sums.range((round, 0)..=(round, u32::MAX));
        for ((_, other), (contributors, _)) in others.filter(|_| self.whole) {
            assert_eq!(contributors, listed, "of chunks {other} and {chunk}");
        }
        self.sums.insert((round, chunk), sum.clone());
    }

    /// Prints what happens, if the world is traced.
    pub(crate) fn print(&self, what: impl Debug) {
        if self.trace {
            println!("{:>14.6} {what:?}", self.now.0 as f64 / 1e9);
        }
    }
}
