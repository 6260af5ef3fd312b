//! The split of batches of one program and about one size.
//!
//! A [`Split`] reads no clock: it is asked for the next [`Share`] of a batch, and given its times.
//! It learns from the first batches: the CPU alone, a small part on the device, then splits by the
//! rates so far. After that the CPU runs all, or each engine the part with which both end together.

use super::start_up::StartUp;

/// Runs of an engine by which its first rate is known. In the first it makes what it keeps.
const TRIES: u32 = 2;
/// Runs until the choice: rates depend on sizes, so it takes some to find sizes that suit.
const LEARNT: u32 = 2 * TRIES + 6;
/// The piece of a batch by which a rate is learnt.
const PIECE: usize = 16;
/// But no fewer items of the CPU, where there are as many: fewer leave lanes and cores idle.
const WIDE: usize = 1024;
/// A split has to be so much quicker than the CPU alone: below, noise decides.
const MARGIN: f64 = 0.95;
/// The weight of a new time in a rate.
const WEIGHT: f64 = 0.25;

/// The items of each engine in the next run. They run at once, and may be fewer than the batch has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Share {
    pub(super) cpu: usize,
    pub(super) device: usize,
    /// Whether its times are learnt from: one caller at a time does.
    learns: bool,
}

impl Share {
    pub(super) fn new(cpu: usize, device: usize) -> Self {
        Self { cpu, device, learns: false }
    }
}

/// Rates of both engines, and what was learnt of them. See the [module](self) documentation.
#[derive(Default)]
pub(super) struct Split {
    /// Whether each engine takes its part, or the CPU runs all; none while that is learnt.
    is_shared: Option<bool>,
    /// Runs that were learnt from.
    runs: u32,
    /// Whether a caller learns; others leave the device alone meanwhile.
    pub(super) is_held: bool,
    start_up: StartUp,
    /// Seconds an item: the CPU alone, the CPU, the device beyond its start-up, the quickest split.
    alone: f64,
    cpu: f64,
    device: f64,
    split: Option<f64>,
    /// Seconds of all runs so far.
    spent: f64,
}

impl Split {
    /// Returns the seconds that the CPU alone takes for `items` items; 0 while its rate is unknown.
    pub(super) fn expected(&self, items: usize) -> f64 {
        if self.runs < TRIES { 0.0 } else { self.alone * items as f64 }
    }

    /// Returns the share of the next run, for a batch of `items` items of which `left` are left,
    /// one at least, and for a device with this start-up, if it is open. Callers may run at once:
    /// [`ran`](Self::ran) follows each, however the run ended.
    pub(super) fn next(&mut self, items: usize, left: usize, device: Option<StartUp>) -> Share {
        let piece = items.div_ceil(PIECE).min(left);
        let cpu = piece.max(WIDE).min(left);
        let share = match (self.is_shared, device) {
            (Some(true), Some(_)) => return self.by_rates(left),
            (None, _) if self.is_held => return Share::new(left, 0),
            (None, _) if self.runs < TRIES => Share::new(cpu, 0),
            (None, Some(start_up)) if self.is_worth(start_up, items) => {
                self.start_up = start_up;
                match self.runs < 2 * TRIES {
                    true => Share::new(cpu - piece, piece),
                    false => self.by_rates(left),
                }
            }
            _ => return Share::new(left, 0),
        };
        self.is_held = true;
        Share { learns: true, ..share }
    }

    /// Returns whether a device may be tried: not for batches that the CPU finishes before it would
    /// have begun, nor does it make pipelines for a program that has not taken the CPU as long.
    fn is_worth(&self, start_up: StartUp, items: usize) -> bool {
        self.expected(items) >= start_up.each && self.spent >= start_up.first
    }

    /// Takes in the seconds of both parts of a share; nothing if the device failed.
    pub(super) fn ran(&mut self, share: &Share, seconds: Option<[f64; 2]>) {
        self.is_held &= !share.learns;
        let Some(seconds) = seconds else { return };
        self.spent += seconds[0].max(seconds[1]);
        match (self.is_shared, share.learns) {
            (None, true) => self.learn(share, seconds),
            (Some(true), _) => self.take(share, seconds, WEIGHT),
            _ => {}
        }
    }

    fn learn(&mut self, share: &Share, seconds: [f64; 2]) {
        self.take(share, seconds, 1.0);
        let each = seconds[0].max(seconds[1]) / (share.cpu + share.device) as f64;
        if self.runs < TRIES {
            self.alone = each;
        } else if self.runs >= 2 * TRIES {
            self.split = Some(self.split.map_or(each, |split| split.min(each)));
        }
        self.runs += 1;
        if self.runs == LEARNT {
            self.is_shared = Some(self.split.is_some_and(|split| split < MARGIN * self.alone));
        }
    }

    /// Moves rates towards those of a run.
    fn take(&mut self, share: &Share, [cpu, device]: [f64; 2], weight: f64) {
        // However much of it is start-up, a part takes a quarter of its time for its items.
        let beyond = (device - self.start_up.each).max(device / 4.0);
        for (rate, seconds, items) in
            [(&mut self.cpu, cpu, share.cpu), (&mut self.device, beyond, share.device)]
        {
            if items > 0 {
                *rate += weight * (seconds / items as f64 - *rate);
            }
        }
    }

    /// Returns the parts that end together: `start-up + device · x = cpu · (items − x)`.
    fn by_rates(&self, items: usize) -> Share {
        let both = (self.cpu + self.device).max(f64::MIN_POSITIVE);
        let device = (self.cpu * items as f64 - self.start_up.each) / both;
        let device = (device.max(0.0).round() as usize).min(items);
        Share::new(items - device, device)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A device's seconds: a start, and those of `full` items or more. The CPU takes one an item.
    #[derive(Clone, Copy, Debug)]
    struct World {
        rate: f64,
        start: f64,
        full: f64,
    }

    impl World {
        fn device(&self, items: usize) -> f64 {
            if items > 0 { self.start + self.rate * (items as f64).max(self.full) } else { 0.0 }
        }

        /// Asserts that 400 batches take `most` times the better engine's, and `once` of the CPU's.
        fn assert(&self, items: usize, most: f64, once: f64) {
            let each = self.start.max(1e-3);
            let start_up = Some(StartUp { first: 3.0 * each, each });
            let (mut split, mut total) = (Split::default(), 0.0);
            for _ in 0..400 {
                let mut left = items;
                while left > 0 {
                    let share = split.next(items, left, start_up);
                    let seconds = [share.cpu as f64, self.device(share.device)];
                    split.ran(&share, Some(seconds));
                    total += seconds[0].max(seconds[1]);
                    left -= share.cpu + share.device;
                }
            }
            let bound = 400.0 * most * self.device(items).min(items as f64) + once * items as f64;
            assert!(total <= bound, "{total} > {bound}: {items} items in {self:?}");
        }
    }

    const SIZES: [usize; 4] = [64, 500, 4096, 100_000];

    #[test]
    fn never_much_slower_than_the_better_engine() {
        for items in SIZES {
            for rate in [0.05, 0.2, 0.667, 1.0, 1.5, 3.0, 10.0, 30.0, 100.0] {
                for part in [0.0, 0.01, 0.25, 0.9, 3.0].map(|part| part * items as f64) {
                    World { rate, start: part, full: 0.0 }.assert(items, 1.05, 16.0);
                    World { rate, start: 0.0, full: part }.assert(
                        items,
                        1.05,
                        16.0 * part.max(1.0),
                    );
                }
            }
        }
    }

    #[test]
    fn comparable_engines_share_the_work() {
        for (rate, most) in [(0.667, 0.42), (1.0, 0.52), (1.5, 0.62), (3.0, 0.77)] {
            for items in SIZES {
                World { rate, start: 0.0, full: 0.0 }.assert(
                    items,
                    most / f64::min(rate, 1.0),
                    4.0,
                );
            }
        }
    }

    /// A device that begins too late never gets a batch; nor does any while another caller learns.
    #[test]
    fn batches_stay_on_the_cpu_while_no_device_is_worth_it() {
        let mut split = Split::default();
        let next =
            |split: &mut Split, each| split.next(64, 64, Some(StartUp { first: each, each }));
        for _ in 0..1000 {
            let share = next(&mut split, 1.0);
            assert_eq!(share.device, 0);
            split.ran(&share, Some([0.9, 0.0]));
        }
        let learns = next(&mut split, 0.5);
        assert!(learns.device > 0);
        assert_eq!([next(&mut split, 0.5), next(&mut split, 0.5)], [Share::new(64, 0); 2]);
        split.ran(&learns, None);
        assert_eq!(next(&mut split, 0.5), learns);
    }
}
