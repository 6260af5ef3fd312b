//! The time that other work took from this program's threads.

use std::{fs, iter::Sum, ops::Add};

/// Linux's account of threads, in nanoseconds.
#[derive(Clone, Copy, Default)]
pub(super) struct Spent {
    /// On a core.
    ran: u64,
    /// Ready to run, with no core.
    waited: u64,
}

impl Spent {
    /// Returns what this program's threads have spent. Nothing on systems other than Linux.
    pub(super) fn now() -> Option<Self> {
        let mut spent = Self::default();
        for thread in fs::read_dir("/proc/self/task").ok()? {
            // A thread may have ended by now.
            let path = thread.ok()?.path().join("schedstat");
            let Ok(text) = fs::read_to_string(path) else { continue };
            let mut numbers = text.split(' ').map(str::parse);
            let (ran, waited) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
            spent = spent + Self { ran, waited };
        }
        Some(spent)
    }

    /// Returns what was spent since then.
    pub(super) fn since(self, then: Self) -> Option<Self> {
        let ran = self.ran.checked_sub(then.ran)?;
        Some(Self { ran, waited: self.waited.checked_sub(then.waited)? })
    }

    /// Returns the part of the time for which threads were ready to run that other work had their
    /// cores: 0 on cores that nothing else wants. Nothing if no thread ran.
    pub(super) fn disturbed(self) -> Option<f64> {
        (self.ran > 0).then(|| self.waited as f64 / (self.ran + self.waited) as f64)
    }
}

impl Add for Spent {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { ran: self.ran + other.ran, waited: self.waited + other.waited }
    }
}

impl Sum for Spent {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), Self::add)
    }
}

#[cfg(test)]
impl Spent {
    /// Makes an account up, in milliseconds.
    pub(super) fn of(ran: u64, waited: u64) -> Self {
        Self { ran: ran * 1_000_000, waited: waited * 1_000_000 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_is_a_part_of_one() {
        let then = Spent::now();
        assert!((0..10_000_000u64).map(std::hint::black_box).sum::<u64>() > 0);
        let spent = Spent::now().zip(then).and_then(|(now, then)| now.since(then));
        let disturbed = spent.and_then(Spent::disturbed);
        assert!(disturbed.is_none_or(|part| (0.0..=1.0).contains(&part)));
        assert_eq!(Spent::of(3, 1).disturbed(), Some(0.25));
        assert_eq!(Spent::of(0, 1).disturbed(), None);
        assert!(Spent::of(1, 0).since(Spent::of(2, 0)).is_none());
    }
}
