//! The largest |t| over all samples and over those below each of a hundred percentiles.
//!
//! # Source
//! The thresholds are those of dudect's implementation, `percentile(1 − 0.5^(10·(i + 1)/100))` over
//! both classes together: dense at the top, where interrupts are.

use super::{
    THRESHOLD,
    welch::{Difference, Moments},
};

/// Crops beside the one that keeps everything.
const CROPS: i32 = 100;
/// A crop with fewer samples of either class is passed over: its mean need not be near normal.
pub const ENOUGH: usize = 300;

/// Times of one test by class, in nanoseconds.
pub type Times = [Vec<u64>; 2];

/// The finding of a test: the crop in which the classes differ the most, in standard errors.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Finding {
    /// The share of all samples that the crop keeps, 1 for all of them.
    pub kept: f64,
    /// Mean of class A less that of class B, in nanoseconds.
    pub difference: Difference,
    /// Mean of class B, in nanoseconds.
    pub mean_ns: f64,
}

impl Finding {
    /// Returns the difference as a share of the mean.
    #[must_use]
    pub fn share(&self) -> f64 {
        self.difference.means / self.mean_ns
    }

    /// Returns whether the difference counts as one.
    #[must_use]
    pub fn leaks(&self) -> bool {
        self.difference.t().abs() >= THRESHOLD
    }
}

/// Times of one test, shortest first, and what all crops of them come to.
pub struct Crops {
    sorted: Times,
    /// For each class, the moments of its shortest 0, 1, 2, … times.
    moments: [Vec<Moments>; 2],
}

impl Crops {
    /// Sorts `times`.
    #[must_use]
    pub fn new(times: Times) -> Self {
        let sorted = times.map(|mut class| {
            class.sort_unstable();
            class
        });
        let moments = sorted.each_ref().map(|class| {
            let mut so_far = Moments::default();
            let each = class.iter().map(|&ns| {
                so_far.add(ns as f64);
                so_far
            });
            std::iter::once(Moments::default()).chain(each).collect()
        });
        Self { sorted, moments }
    }

    /// Returns the number of samples.
    #[must_use]
    pub fn samples(&self) -> usize {
        self.sorted.iter().map(Vec::len).sum()
    }

    /// Compares the classes in every crop with [`ENOUGH`] samples of each; none if there is no such
    /// crop.
    #[must_use]
    pub fn strongest(&self) -> Option<Finding> {
        self.strongest_delayed([0, 0])
    }

    /// Returns the shortest delay, in nanoseconds, that would be found if all samples of a class had it, in
    /// whichever class it is harder to find. None if a leak is found without, or no delay up to the
    /// median time is.
    #[must_use]
    pub fn resolution_ns(&self) -> Option<u64> {
        let of_a = self.shortest_delay(|ns| [ns, 0])?;
        Some(of_a.max(self.shortest_delay(|ns| [0, ns])?))
    }

    fn shortest_delay(&self, delays: impl Fn(u64) -> [u64; 2]) -> Option<u64> {
        let found = |ns| self.strongest_delayed(delays(ns)).is_some_and(|found| found.leaks());
        let median = self.sorted[1].get(self.sorted[1].len() / 2)?;
        let (mut hidden, mut seen) = (0, *median);
        if found(hidden) || !found(seen) {
            return None;
        }
        while seen - hidden > 1 {
            let middle = hidden.midpoint(seen);
            if found(middle) { seen = middle } else { hidden = middle }
        }
        Some(seen)
    }

    /// Returns [`Crops::strongest`] as if all times of each class were longer.
    fn strongest_delayed(&self, delays: [u64; 2]) -> Option<Finding> {
        let times = self.sorted.iter().zip(delays);
        let mut all: Vec<u64> =
            times.flat_map(|(class, delay)| class.iter().map(move |ns| ns + delay)).collect();
        // The stable sort merges the two sorted halves.
        all.sort();
        let cropped = (0..CROPS).map(|i| {
            let kept = 1.0 - 0.5f64.powf(f64::from(10 * (i + 1)) / f64::from(CROPS));
            let limit = all.get((kept * all.len() as f64) as usize);
            self.below(limit.copied().unwrap_or(0), kept, delays)
        });
        let whole = self.below(u64::MAX, 1.0, delays);
        let size = |finding: &Finding| finding.difference.t().abs();
        std::iter::once(whole).chain(cropped).flatten().max_by(|a, b| size(a).total_cmp(&size(b)))
    }

    /// Compares the samples below `limit` nanoseconds.
    fn below(&self, limit: u64, kept: f64, delays: [u64; 2]) -> Option<Finding> {
        let [a, b] = [0, 1].map(|class| {
            let count = self.sorted[class].partition_point(|&ns| ns + delays[class] < limit);
            self.moments[class][count].shifted(delays[class] as f64)
        });
        let enough = a.count().min(b.count()) >= ENOUGH;
        let difference = Difference::between(&a, &b);
        enough.then_some(Finding { kept, difference, mean_ns: b.mean() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ciphergram_accel::random::StreamRng;
    use rand_core::Rng;

    /// Times around 1 ms, a hundredth of them late by up to 100 ms; those of class A are late by
    /// `leak_ns` more.
    fn times(count: usize, leak_ns: u64) -> Times {
        let mut rng = StreamRng::from_seed(&[7; 32]);
        let mut class = |leak_ns: u64| {
            (0..count)
                .map(|_| {
                    let noise = (0..8).map(|_| rng.next_u64() % 2_000).sum::<u64>();
                    let late = if rng.next_u64().is_multiple_of(100) {
                        rng.next_u64() % 100_000_000
                    } else {
                        0
                    };
                    1_000_000 + noise + late + leak_ns
                })
                .collect()
        };
        [class(leak_ns), class(0)]
    }

    #[test]
    fn equal_classes_are_quiet() {
        let finding = Crops::new(times(20_000, 0)).strongest().unwrap();
        assert!(!finding.leaks(), "{finding:?}");
    }

    /// Late samples hide a leak of 0.02 %, which shows without them.
    #[test]
    fn cropping_finds_what_late_samples_hide() {
        let crops = Crops::new(times(20_000, 200));
        let all = crops.below(u64::MAX, 1.0, [0, 0]).unwrap();
        assert!(!all.leaks(), "{all:?}");
        let finding = crops.strongest().unwrap();
        assert!(finding.difference.t() > THRESHOLD, "{finding:?}");
        assert!((0.5..1.0).contains(&finding.kept), "{finding:?}");
        assert!((50.0..400.0).contains(&finding.difference.means), "{finding:?}");
        assert!((finding.share() - 2e-4).abs() < 2e-4, "{finding:?}");
        assert_eq!(crops.resolution_ns(), None);
    }

    /// A delay as long as the resolution is found when it is there, and half of it is not.
    #[test]
    fn the_resolution_is_the_shortest_leak_that_is_found() {
        let resolved = Crops::new(times(5_000, 0)).resolution_ns().unwrap();
        assert!((50..1_000).contains(&resolved), "{resolved}");
        let found = |leak_ns| Crops::new(times(5_000, leak_ns)).strongest().unwrap().leaks();
        assert!(found(resolved) && !found(resolved / 2), "{resolved}");
    }

    #[test]
    fn crops_are_those_of_the_definition() {
        let times = times(2_000, 100);
        let mut all = times.concat();
        all.sort_unstable();
        let crops = Crops::new(times.clone());
        assert_eq!(crops.samples(), 4_000);
        let finding = crops.strongest().unwrap();
        let limit = all.get((finding.kept * 4_000.0) as usize).copied().unwrap_or(u64::MAX);
        let [a, b] = times.map(|class| {
            class.iter().filter(|&&ns| ns < limit).map(|&ns| ns as f64).collect::<Moments>()
        });
        let expected = Difference::between(&a, &b);
        assert!((finding.difference.t() - expected.t()).abs() < 1e-6, "{finding:?} {expected:?}");
        assert!((finding.mean_ns - b.mean()).abs() < 1e-3);
    }

    #[test]
    fn classes_that_never_meet_are_told_apart() {
        let finding = Crops::new([vec![5; ENOUGH], vec![9; ENOUGH]]).strongest().unwrap();
        assert_eq!((finding.difference.t(), finding.kept), (f64::NEG_INFINITY, 1.0));
    }

    #[test]
    fn few_samples_find_nothing() {
        let few = Crops::new([vec![1; ENOUGH], vec![2; ENOUGH - 1]]);
        assert_eq!((few.strongest(), few.resolution_ns()), (None, None));
        let none = Crops::new([vec![], vec![]]);
        assert_eq!((none.strongest(), none.resolution_ns()), (None, None));
    }
}
