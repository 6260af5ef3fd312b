//! How a batch is shared out: what is known of programs of one shape, and what follows from it.
//!
//! A [`Policy`] reads no clock: it is asked for the next [`Shares`] of a batch, and told what they took. While it
//! learns it cuts a batch into several runs, one after the other; once it knows, one run takes all items.
//! A device that nobody knows begins with a small part, and gets larger ones for as long as the bounds
//! of [`figures`](super::figures) say that they cannot take long. From then on a batch goes the way that was
//! quickest, one engine or all together; the others are tried again within a budget.
//!
//! Callers run at once. While one learns or tries a device the others leave it alone, and what a device takes counts
//! as often as parts are before it in its queue.

use super::{
    figures::{Known, class},
    start_up::StartUp,
};

/// The CPU's place among engines. It can run everything.
pub(super) const CPU: usize = 0;
/// Runs of an engine before its time counts: in the first it makes what it keeps.
const TRIES: u32 = 2;
/// The part of a batch that is worth a figure of the CPU.
const PROBE: usize = 16;
/// But no fewer items, where there are as many: fewer leave some of its lanes and cores idle, and take as long as more. Sixteen
/// cores of eight lanes take eight each.
const WIDE: usize = 1024;
/// A device that nobody knows begins with this part of a batch, rounded: if it is a hundred times slower than
/// the CPU, that costs one and a half batches each time.
const FIRST_PART: usize = 64;
/// Or with this part of all items so far, where that is more: small batches wait for their trial until it costs as little.
const FIRST_OF_ALL: f64 = 3000.0;
/// How much more a device gets if it did not take too long.
const GROWTH: usize = 4;
/// Too long: so many times what the CPU takes for the whole batch.
const TOO_LONG: f64 = 3.0;
/// The part of all time that may be lost to trials of what was slower before.
const REGRET: f64 = 0.015;
/// Another way must be so much quicker than the last one taken, and a split than one engine: below, noise decides.
const MARGIN: f64 = 0.95;
/// No part takes less, in seconds: clocks are coarse.
const RESOLUTION: f64 = 1e-9;
/// Steps to find shares.
const STEPS: usize = 12;
/// Runs until a way that lost is tried again; doubled every time it loses.
const WAIT: u64 = 8;
/// But no longer than this.
const LONGEST: u64 = 32;

/// Who runs how many of the next items of a batch.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Shares {
    /// Items of each engine. They run at once, and may be fewer than the batch has.
    pub(super) items: Vec<usize>,
    /// Whether batches like this one were shared out otherwise before.
    pub(super) is_new: bool,
    why: Why,
    /// Devices that nobody else gets before it is told what these took.
    holds: Vec<usize>,
    /// For each engine, parts in its queue before these.
    ahead: Vec<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Why {
    /// It is the quickest way known.
    Quickest,
    /// A way that nobody knows.
    Learning,
    /// Another way than the quickest, which would take so many seconds.
    Trial(f64),
}

impl Shares {
    /// All `items` on the first device that can run them, or on the CPU.
    pub(super) fn of_first(items: usize, fit: &[bool]) -> Self {
        let first = (CPU + 1..fit.len()).find(|&engine| fit[engine]).unwrap_or(CPU);
        Self::new((0..fit.len()).map(|engine| if engine == first { items } else { 0 }).collect())
    }

    fn new(items: Vec<usize>) -> Self {
        Self { items, is_new: false, why: Why::Quickest, holds: vec![], ahead: vec![] }
    }

    /// Those that have a part.
    fn devices(&self) -> impl Iterator<Item = usize> {
        (CPU + 1..self.items.len()).filter(|&engine| self.items[engine] > 0)
    }
}

/// What is known of programs of one shape. See the [module](self) documentation.
pub(super) struct Policy {
    engines: Vec<Known>,
    /// For each engine, whether a run that learns or tries has it. What such a run may cost is bounded, what all callers' at once
    /// may is not.
    held: Vec<bool>,
    /// For each device, the parts that it has: it takes one after the other. Callers on the CPU each have some of its cores.
    queues: Vec<u32>,
    /// By bits of the number of items of a batch.
    classes: Vec<Class>,
    runs: u64,
    /// Seconds of all runs, of those that learned, and those that trials took longer; and items.
    spent: f64,
    learning: f64,
    lost: f64,
    items: f64,
}

/// The ways to run batches of one class: one engine each, and last all together.
#[derive(Clone)]
struct Class {
    /// The one that was taken last, trials aside.
    way: usize,
    runs: u64,
    /// For each way, the run from which on it may be tried again, and how long it waits after that.
    due: Vec<(u64, u64)>,
}

impl Policy {
    /// Nothing is known but what runs cost the devices.
    pub(super) fn new(devices: &[StartUp]) -> Self {
        let cpu = std::iter::once(StartUp::default());
        let engines: Vec<_> = cpu.chain(devices.iter().copied()).map(Known::new).collect();
        Self {
            held: vec![false; engines.len()],
            queues: vec![0; engines.len()],
            engines,
            classes: vec![],
            runs: 0,
            spent: 0.0,
            learning: 0.0,
            lost: 0.0,
            items: 0.0,
        }
    }

    /// The shares of the next run, for a batch of which `items` are left, at least one; `fit` tells which engines can
    /// run it. What the CPU finishes before a device would have begun stays on the CPU. Callers may run at
    /// once: what each ran is told to [`ran`](Self::ran), however it ended.
    pub(super) fn next(&mut self, items: usize, fit: &[bool]) -> Shares {
        let mut shares = self.choose(items, fit);
        shares.ahead.clone_from(&self.queues);
        shares.holds.iter().for_each(|&device| self.held[device] = true);
        shares.devices().for_each(|device| self.queues[device] += 1);
        shares
    }

    fn choose(&mut self, items: usize, fit: &[bool]) -> Shares {
        if !fit[CPU] {
            return Shares::of_first(items, fit);
        }
        if self.engines[CPU].runs < TRIES {
            return self.shares([(CPU, items.div_ceil(PROBE).max(WIDE).min(items))]);
        }
        let cpu = self.engines[CPU].alone(items);
        let worth = |e: usize| fit[e] && !self.held[e] && self.engines[e].start_up.each <= cpu;
        if !(CPU + 1..fit.len()).any(worth) {
            return self.shares([(CPU, items)]);
        }
        let fit: Vec<_> = (0..fit.len()).map(worth).collect();
        let mut devices = (CPU + 1..fit.len()).filter(|&engine| fit[engine]);
        let learn = |e| self.begin(e, items, cpu).or_else(|| self.grow(e, items, cpu));
        devices.find_map(learn).unwrap_or_else(|| self.quickest(items, &fit))
    }

    /// Tells what the parts of `shares` took, in seconds from their common start; nothing if one failed.
    pub(super) fn ran(&mut self, shares: &Shares, seconds: Option<&[f64]>) {
        shares.holds.iter().for_each(|&device| self.held[device] = false);
        shares.devices().for_each(|device| self.queues[device] -= 1);
        let Some(seconds) = seconds else { return };
        let is_alone = shares.items.iter().filter(|&&items| items > 0).count() == 1;
        let whole = seconds.iter().copied().fold(0.0, f64::max);
        self.runs += 1;
        self.spent += whole;
        match shares.why {
            Why::Quickest => {}
            Why::Learning => self.learning += whole,
            Why::Trial(quickest) => self.lost += (whole - quickest).max(0.0),
        }
        for (e, engine) in self.engines.iter_mut().enumerate() {
            if shares.items[e] == 0 {
                continue;
            }
            let (items, seconds) = (shares.items[e], seconds[e] / turns(shares.ahead[e]));
            self.items += items as f64;
            engine.runs = engine.runs.saturating_add(1);
            if engine.runs >= TRIES {
                engine.add(items, seconds.max(RESOLUTION), is_alone, self.runs);
            }
        }
    }

    /// Whether no caller has a device.
    #[cfg(test)]
    pub(super) fn is_idle(&self) -> bool {
        !self.held.contains(&true) && self.queues.iter().all(|&parts| parts == 0)
    }

    /// A small part of a device that is not known yet, where the batch, or all before, is worth it.
    fn begin(&self, device: usize, items: usize, cpu: f64) -> Option<Shares> {
        let Known { start_up: StartUp { first, each }, runs, .. } = self.engines[device];
        let part = ((items + FIRST_PART / 2) / FIRST_PART)
            .max((self.items / FIRST_OF_ALL) as usize)
            .min(items);
        if runs >= TRIES || part == 0 || self.spent - self.learning + cpu < first {
            return None;
        }
        let expected = if runs == 0 { first } else { each };
        Some(self.pair(device, part, items, expected.max(cpu / PROBE as f64)))
    }

    /// A larger part of a device than any before, where by what is known it does not take too long.
    fn grow(&self, device: usize, items: usize, cpu: f64) -> Option<Shares> {
        let known = &self.engines[device];
        let (largest, long) = (known.largest(), TOO_LONG * cpu);
        let parts = [GROWTH, 2].map(|growth| items.min(growth * largest));
        let larger = parts.into_iter().filter(|&part| class(part) > class(largest));
        // It may take as long as that, or as long as a smaller part: the CPU's is between.
        let beside = larger.clone().find(|&part| known.beside(part) <= long);
        let beside = beside.map(|part| self.pair(device, part, items, known.beside(part) / 2.0));
        // If engines share cores, it may be quick only alone.
        beside.or_else(|| {
            let part = larger.clone().find(|&part| known.alone(part) <= long)?;
            Some(self.pair(device, part, items, 0.0))
        })
    }

    /// A part of a device, and what the CPU does in `seconds`.
    fn pair(&self, device: usize, part: usize, items: usize, seconds: f64) -> Shares {
        let cpu = &self.engines[CPU];
        let own = (items as f64 * seconds / cpu.beside(items)) as usize;
        let own = own.min(items - part);
        let shares = self.shares([(CPU, own), (device, part)]);
        Shares { why: Why::Learning, holds: vec![device], ..shares }
    }

    /// The quickest way for all items; or, if that is cheap, another one that was slower when it was last tried.
    fn quickest(&mut self, items: usize, fit: &[bool]) -> Shares {
        let together = self.engines.len();
        let mut ways: Vec<(usize, f64, Shares)> = (0..together)
            .filter(|&e| fit[e])
            .map(|e| (e, self.queued(e, self.engines[e].alone(items)), self.shares([(e, items)])))
            .collect();
        ways.extend(self.split(items, fit).map(|(seconds, shares)| (together, seconds, shares)));
        let size = class(items);
        if self.classes.len() <= size {
            let due = vec![(WAIT, WAIT); together + 1];
            self.classes.resize(size + 1, Class { way: CPU, runs: 0, due });
        }
        let class = &mut self.classes[size];
        class.runs += 1;
        let weigh = |&(way, seconds, _): &(usize, f64, Shares)| {
            let seconds = if way == class.way { MARGIN * seconds } else { seconds };
            if way == together { seconds / MARGIN } else { seconds }
        };
        ways.sort_by(|a, b| weigh(a).total_cmp(&weigh(b)));
        let (way, best, mut shares) = ways.remove(0);
        let allowed = REGRET * self.spent - self.lost;
        let again = ways.into_iter().find(|(other, seconds, _)| {
            class.runs >= class.due[*other].0 && seconds - best <= allowed
        });
        if let Some((other, _, trial)) = again {
            let is_new = |&e: &usize| trial.items[e] > 0 && shares.items[e] == 0;
            let holds = (CPU + 1..together).filter(is_new).collect();
            let (due, wait) = &mut class.due[other];
            (*due, *wait) = (class.runs + *wait, (2 * *wait).min(LONGEST));
            return Shares { why: Why::Trial(best), holds, ..trial };
        }
        if way != class.way {
            class.due[class.way] = (class.runs + WAIT, WAIT);
            class.way = way;
            shares.is_new = true;
        }
        shares
    }

    /// Shares of all fit engines with which they end at about the same time, and when that is.
    fn split(&self, items: usize, fit: &[bool]) -> Option<(f64, Shares)> {
        let mut speeds: Vec<_> = fit.iter().map(|&fit| f64::from(u8::from(fit))).collect();
        let mut best: Option<(f64, Vec<usize>)> = None;
        // What a part takes for each item depends on its size: a few steps find sizes that suit.
        for _ in 0..STEPS {
            let each = items as f64 / speeds.iter().sum::<f64>();
            let mut parts: Vec<_> = speeds.iter().map(|speed| (each * speed) as usize).collect();
            parts[CPU] += items - parts.iter().sum::<usize>();
            if parts.iter().filter(|&&part| part > 0).count() < 2 {
                break;
            }
            let mut whole = 0.0_f64;
            for (e, (speed, &part)) in speeds.iter_mut().zip(&parts).enumerate() {
                let seconds =
                    if part > 0 { self.queued(e, self.engines[e].beside(part)) } else { 0.0 };
                *speed = if part > 0 { part as f64 / seconds } else { 0.0 };
                whole = whole.max(seconds);
            }
            if best.as_ref().is_none_or(|&(least, _)| whole < least) {
                best = Some((whole, parts));
            }
        }
        best.map(|(seconds, parts)| (seconds, self.shares(parts.into_iter().enumerate())))
    }

    /// What takes an engine so many seconds, after what is in its queue: of parts about as large.
    fn queued(&self, engine: usize, seconds: f64) -> f64 {
        seconds * turns(self.queues[engine])
    }

    fn shares(&self, parts: impl IntoIterator<Item = (usize, usize)>) -> Shares {
        let mut items = vec![0; self.engines.len()];
        parts.into_iter().for_each(|(engine, part)| items[engine] = part);
        Shares::new(items)
    }
}

/// How many times its own time a part takes behind others.
fn turns(ahead: u32) -> f64 {
    1.0 + f64::from(ahead)
}
