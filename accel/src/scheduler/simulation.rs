//! The policy in worlds of known rates, on virtual seconds.

use super::{
    policy::{CPU, Policy, Shares},
    start_up::StartUp,
};

/// What parts take. The CPU takes a second an item, on average over all that its cores and lanes take at once.
#[derive(Clone, Copy, Debug)]
struct World {
    /// Seconds an item of the device.
    rate: f64,
    /// Seconds of the device before it begins, as measured at start.
    start: f64,
    /// Items up to which the device takes the same time.
    full: f64,
    /// Whether both run on the same cores.
    shares_cores: bool,
    /// Items that the CPU takes at once: fewer take as long.
    width: usize,
    /// Seconds of the first run of the device beside its work, which nobody knows before: it makes pipelines.
    first: f64,
    /// What CPU and device are slower in the second half.
    drift: [f64; 2],
}

const PLAIN: World = World {
    rate: 1.0,
    start: 0.0,
    full: 0.0,
    shares_cores: false,
    width: 1,
    first: 0.0,
    drift: [1.0, 1.0],
};

/// From 0.9 to 1.1, the same each time.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        0.9 + 0.2 * (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }
}

impl World {
    fn seconds(&self, engine: usize, items: usize, is_late: bool) -> f64 {
        let seconds = match (engine, items) {
            (_, 0) => 0.0,
            (CPU, items) => items.next_multiple_of(self.width) as f64,
            (_, items) => self.start + self.rate * (items as f64).max(self.full),
        };
        seconds * if is_late { self.drift[engine] } else { 1.0 }
    }

    /// Seconds of batches of these sizes, and what they take on the better of both engines.
    fn play(&self, sizes: &[usize], noise: u64) -> (f64, f64) {
        let each = self.start.max(1e-3);
        let mut policy = Policy::new(&[StartUp { first: 3.0 * each, each }]);
        let (mut noise, mut total, mut alone) = (Noise(noise), 0.0, [0.0; 2]);
        let mut first = self.first;
        for (run, &items) in sizes.iter().enumerate() {
            let is_late = run >= sizes.len() / 2;
            for (engine, total) in alone.iter_mut().enumerate() {
                *total += self.seconds(engine, items, is_late);
            }
            let mut left = items;
            while left > 0 {
                let shares = policy.next(left, &[true, true]);
                let [cpu, mut device] =
                    [0, 1].map(|e| self.seconds(e, shares.items[e], is_late) * noise.next());
                if device > 0.0 {
                    device += std::mem::take(&mut first);
                }
                let seconds = match self.shares_cores {
                    true if cpu < device => [2.0 * cpu, cpu + device],
                    true => [cpu + device, 2.0 * device],
                    false => [cpu, device],
                };
                policy.ran(&shares, Some(&seconds));
                total += seconds[0].max(seconds[1]);
                left -= shares.items.iter().sum::<usize>();
            }
        }
        (total, alone[0].min(alone[1]))
    }

    /// Asserts that batches take at most so many times what they take on the better engine; and besides what so many
    /// of the first size take on the CPU, and what the device's first run takes beside its work, once.
    fn assert(&self, most: f64, batches: f64, sizes: &[usize]) {
        let once = batches * self.seconds(CPU, sizes[0], false) + self.first;
        for noise in [7, 8, 9] {
            let (found, better) = self.play(sizes, noise);
            let bound = most * better + once;
            assert!(found <= bound, "{found} > {bound} for {} in {self:?}", sizes[0]);
        }
    }
}

const RATES: [f64; 9] = [0.05, 0.2, 0.667, 1.0, 1.5, 3.0, 10.0, 30.0, 100.0];
const SIZES: [usize; 4] = [64, 500, 4096, 100_000];

/// Devices that start late, or that take the same time for a few items as for many.
fn worlds(rate: f64, items: usize) -> impl Iterator<Item = World> {
    let items = items as f64;
    let starts = [0.0, 0.01, 0.3, 0.9, 3.0].map(|start| World { start: start * items, ..PLAIN });
    let flat = [0.25, 1.0].map(|full| World { full: full * items, ..PLAIN });
    // More than the CPU takes for the whole, though the smallest program took nothing: no trial of it is cheap.
    let flat = flat.into_iter().filter(move |world| rate * world.full <= 1.1 * items);
    starts.into_iter().chain(flat).map(move |world| World { rate, ..world })
}

#[test]
fn never_much_slower_than_the_better_engine() {
    for items in SIZES {
        for world in RATES.into_iter().flat_map(|rate| worlds(rate, items)) {
            world.assert(1.05, 2.0, &[items; 400]);
        }
    }
}

/// What runs on the same cores is not much faster than the CPU.
#[test]
fn a_device_on_the_same_cores_is_no_help_and_no_harm() {
    for items in SIZES {
        let rates = RATES.into_iter().filter(|&rate| rate > 0.5);
        for world in rates.flat_map(|rate| worlds(rate, items)) {
            World { shares_cores: true, ..world }.assert(1.05, 2.0, &[items; 400]);
        }
    }
}

/// On lanes and cores small parts of a batch are as dear as large ones, which costs some more batches once.
#[test]
fn a_wide_cpu() {
    for width in [8, 64, 1000] {
        for items in SIZES {
            for world in RATES.into_iter().flat_map(|rate| worlds(rate, items)) {
                World { width, ..world }.assert(1.05, 6.0, &[items; 400]);
            }
        }
    }
    for rate in RATES {
        World { rate, width: 64, ..PLAIN }.assert(1.05, 0.0, &[64; 4000]);
    }
}

/// What a device needs to make pipelines is spent once, and not waited for again.
#[test]
fn a_device_whose_first_run_takes_long() {
    for items in SIZES {
        for (rate, width) in RATES.into_iter().flat_map(|rate| [(rate, 1), (rate, 64)]) {
            let world = World { rate, width, first: 50.0 * items as f64, ..PLAIN };
            [20, 100, 400].into_iter().for_each(|n| world.assert(1.05, 8.0, &vec![items; n]));
        }
    }
}

#[test]
fn comparable_engines_share_the_work() {
    for (rate, most) in [(0.667, 0.68), (1.0, 0.58), (1.5, 0.68), (3.0, 0.82)] {
        for items in SIZES {
            World { rate, ..PLAIN }.assert(most, 0.0, &[items; 400]);
        }
    }
}

#[test]
fn engines_that_become_faster_or_slower_are_noticed() {
    for items in SIZES {
        for rate in RATES {
            for drift in [[0.5, 1.0], [2.0, 1.0], [1.0, 0.5], [1.0, 2.0]] {
                World { rate, drift, ..PLAIN }.assert(1.05, 2.0, &[items; 400]);
            }
        }
    }
}

/// No trial of a batch of a few items is cheap, so one waits until the CPU has run many.
#[test]
fn few_items_stay_on_the_cpu_for_long() {
    for items in [1, 7, 20] {
        for rate in [1.0, 3.0, 100.0] {
            World { rate, ..PLAIN }.assert(1.05, 0.0, &[items; 1000]);
        }
        World { rate: 0.05, ..PLAIN }.assert(2.0, 0.0, &vec![items; 100_000 / items]);
    }
}

/// What the CPU finishes before the device would have begun never goes there.
#[test]
fn small_batches_stay_on_the_cpu() {
    let mut policy = Policy::new(&[StartUp { first: 1.0, each: 1.0 }]);
    let mut run = |items: usize| {
        let shares = policy.next(items, &[true, true]);
        let seconds = [shares.items[0] as f64 * 0.01, shares.items[1] as f64 * 1e-6];
        policy.ran(&shares, Some(&seconds));
        shares.items
    };
    (0..1000).for_each(|_| assert_eq!(run(90)[1], 0));
    (0..100).for_each(|_| drop(run(10_000)));
    assert_eq!((run(90), run(10_000)[0] < 1000), (vec![90, 0], true));
}

#[test]
fn sizes_may_mix() {
    let sizes: Vec<_> = (0..1200).map(|run| [4096, 100, 20_000, 17, 4096, 1][run % 6]).collect();
    for rate in RATES {
        for start in [0.0, 50.0] {
            World { rate, start, ..PLAIN }.assert(1.05, 0.0, &sizes);
            if rate > 0.5 {
                World { rate, start, shares_cores: true, ..PLAIN }.assert(1.05, 0.0, &sizes);
            }
        }
    }
}

/// Three engines alike take a third each; one that fails is left out.
#[test]
fn several_devices() {
    let mut policy = Policy::new(&[StartUp::default(); 2]);
    let mut noise = Noise(3);
    let mut run = |fit: &[bool]| {
        let (mut left, mut total) = (3000, 0.0);
        while left > 0 {
            let shares = policy.next(left, fit);
            let seconds: Vec<_> = shares.items.iter().map(|&n| n as f64 * noise.next()).collect();
            assert!(shares.items.iter().zip(fit).all(|(&items, &fit)| fit || items == 0));
            policy.ran(&shares, Some(&seconds));
            total += seconds.into_iter().fold(0.0, f64::max);
            left -= shares.items.iter().sum::<usize>();
        }
        total / 3000.0
    };
    let mut mean = |fit: &[bool]| (0..200).map(|_| run(fit)).sum::<f64>() / 200.0;
    assert!(mean(&[true; 3]) < 0.42);
    let two = mean(&[true, false, true]);
    assert!(0.5 < two && two < 0.6, "{two}");
}

/// Callers at once, each with one batch after the other: each of the CPU's cores runs a part at a time, at a second an item, and the
/// device one after the other, at `rate` of what all cores take. Gives the seconds of all batches, what
/// they take on the CPU alone, and on the device alone.
fn crowd(cores: usize, items: usize, batches: usize, rate: f64, start: f64) -> (f64, f64, f64) {
    let device = |items: usize| start + rate * items as f64 / cores as f64;
    let mut policy = Policy::new(&[StartUp { first: 3.0 * start, each: start }]);
    let (mut noise, mut left, mut end) = (Noise(7), batches, 0.0_f64);
    let (mut free, mut queue) = (vec![0.0_f64; cores], 0.0_f64);
    // When each goes on, what it ran and how long, and what is left of its batch.
    let mut callers = vec![(0.0_f64, None::<(Shares, Vec<f64>)>, 0); 16];
    while let Some(next) = (0..callers.len()).min_by(|&a, &b| callers[a].0.total_cmp(&callers[b].0))
    {
        let (now, ran, mut rest) = callers.swap_remove(next);
        end = end.max(now);
        if let Some((shares, seconds)) = ran {
            policy.ran(&shares, Some(&seconds));
        }
        if rest == 0 && left == 0 {
            continue;
        } else if rest == 0 {
            (left, rest) = (left - 1, items);
        }
        let shares = policy.next(rest, &[true, true]);
        let mut ends = [now; 2];
        if shares.items[CPU] > 0 {
            let core = free.iter_mut().min_by(|a, b| a.total_cmp(b)).unwrap();
            *core = core.max(now) + shares.items[CPU] as f64 * noise.next();
            ends[CPU] = *core;
        }
        if shares.items[1] > 0 {
            queue = queue.max(now) + device(shares.items[1]) * noise.next();
            ends[1] = queue;
        }
        rest -= shares.items.iter().sum::<usize>();
        let seconds = ends.iter().map(|end| end - now).collect();
        callers.push((ends[0].max(ends[1]), Some((shares, seconds)), rest));
    }
    let cpu = (items * batches) as f64 / cores as f64;
    (end, cpu, device(items) * batches as f64)
}

/// Nobody learns or tries what another does already, and nobody queues for what is quick only for one.
#[test]
fn callers_at_once() {
    for cores in [1, 16] {
        for items in [1, 16, 64, 4096] {
            for (rate, start) in RATES.into_iter().flat_map(|r| [0.0, 0.3, 3.0].map(|s| (r, s))) {
                let here = format!("{items} items on {cores} cores, {rate}, {start}");
                let (found, cpu, _) = crowd(cores, items, 400, rate, start * items as f64);
                assert!(found <= 1.2 * cpu, "{found} > 1.2 · {cpu}: {here}");
                let (found, cpu, device) = crowd(cores, items, 6400, rate, start * items as f64);
                // Of a few items no trial is cheap.
                let better = if items < 64 { cpu } else { cpu.min(device) };
                assert!(found <= 1.05 * better, "{found} > 1.05 · {better}: {here}");
            }
        }
    }
}

/// While one caller learns, no other runs on the device; once that failed, the next may.
#[test]
fn one_learns_at_a_time() {
    let mut policy = Policy::new(&[StartUp::default()]);
    let next = |policy: &mut Policy| policy.next(64, &[true, true]);
    for _ in 0..2 {
        let shares = next(&mut policy);
        policy.ran(&shares, Some(&[64.0, 0.0]));
    }
    let learns = next(&mut policy);
    assert!(learns.items[1] > 0);
    let others = [next(&mut policy), next(&mut policy)];
    assert!(others.iter().all(|other| other.items == [64, 0]), "{others:?}");
    policy.ran(&learns, None);
    assert_eq!(next(&mut policy).items, learns.items);
}
