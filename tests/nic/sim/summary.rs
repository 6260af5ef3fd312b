//! Counts of all worlds together.

use std::collections::BTreeMap;
use std::fmt;

use ciphergram_nic::sim::NetworkTally;

type Counts = BTreeMap<&'static str, u64>;

#[derive(Default)]
pub(crate) struct Summary {
    numbers: Counts,
    /// Faults that were injected, by kind.
    pub faults: Counts,
    happened: Counts,
}

impl Summary {
    pub(crate) fn add(&mut self, name: &'static str, count: u64) {
        *self.numbers.entry(name).or_default() += count;
    }

    pub(crate) fn fault(&mut self, name: &'static str, count: u64) {
        *self.faults.entry(name).or_default() += count;
    }

    pub(crate) fn happened(&mut self, name: &'static str) {
        *self.happened.entry(name).or_default() += 1;
    }

    pub(crate) fn tally(&mut self, tally: NetworkTally) {
        self.add("datagrams delivered", tally.delivered);
        let faults = [
            ("lost", tally.injected.lost),
            ("duplicated", tally.injected.duplicated),
            ("corrupted", tally.injected.corrupted),
            ("trimmed", tally.injected.trimmed),
            ("marked", tally.injected.marked),
            ("random bytes", tally.injected.junk),
            ("late", tally.injected.late),
            ("reordered", tally.reordered),
            ("lost at a cut", tally.cut),
            ("too long for a path", tally.too_long),
            ("to nobody", tally.undeliverable),
        ];
        faults.into_iter().for_each(|(name, count)| self.fault(name, count));
    }

    /// Returns a fault that never happened, if there is one: with many worlds, a defect of ours.
    pub(crate) fn missing(&self) -> Option<&'static str> {
        self.faults.iter().find(|(_, count)| **count == 0).map(|(name, _)| *name)
    }

    pub(crate) fn merge(&mut self, other: Self) {
        let ours = [&mut self.numbers, &mut self.faults, &mut self.happened];
        for (ours, theirs) in ours.into_iter().zip([other.numbers, other.faults, other.happened]) {
            theirs.into_iter().for_each(|(name, count)| *ours.entry(name).or_default() += count);
        }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts =
            [("in all", &self.numbers), ("faults", &self.faults), ("events", &self.happened)];
        for (title, counts) in parts {
            writeln!(f, "{title}")?;
            for (name, count) in counts {
                writeln!(f, "  {name:32} {count:>12}")?;
            }
        }
        Ok(())
    }
}
