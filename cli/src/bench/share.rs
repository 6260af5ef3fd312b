//! The share of the cores that other work left.

use std::fs;

/// Linux's account of this program's threads, in nanoseconds. Nothing on other systems.
pub(super) struct Share(Option<[u64; 2]>);

impl Share {
    pub(super) fn start() -> Self {
        Self(running_and_waiting())
    }

    /// Returns the time since the start that threads ran, divided by that in which they were ready
    /// to run: 1 on cores that nothing else wants.
    pub(super) fn end(&self) -> Option<f64> {
        let [ran, waited] = running_and_waiting()?;
        let [ran_before, waited_before] = self.0?;
        let (ran, waited) = (ran.checked_sub(ran_before)?, waited.checked_sub(waited_before)?);
        (ran > 0).then(|| ran as f64 / (ran as f64 + waited as f64))
    }
}

/// Sums the first two numbers of all threads' `schedstat` files: the time on a core, and the time
/// waiting for one.
fn running_and_waiting() -> Option<[u64; 2]> {
    let mut sums = [0; 2];
    for thread in fs::read_dir("/proc/self/task").ok()? {
        // A thread may have ended by now.
        let Ok(text) = fs::read_to_string(thread.ok()?.path().join("schedstat")) else { continue };
        for (sum, number) in sums.iter_mut().zip(text.split(' ')) {
            *sum += number.parse::<u64>().ok()?;
        }
    }
    Some(sums)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_a_part_of_one() {
        let share = Share::start();
        assert!((0..10_000_000u64).map(std::hint::black_box).sum::<u64>() > 0);
        assert!(share.end().is_none_or(|share| (0.0..=1.0).contains(&share)));
        assert_eq!(Share(None).end(), None);
    }
}
