//! What parts of batches took an engine.
//!
//! Sizes of as many bits are a *class*, which has one mean. Of a class that was never measured the others tell a bound:
//! more items take no longer each, fewer no longer in all.

use super::start_up::StartUp;

/// Times in a mean: more forget the oldest, so that what changes is noticed.
const MOST: u32 = 4;
/// Runs of programs of this shape after which a mean counts no more, once there is a new time.
const OLD: u64 = 16;
/// What an engine may take alone, of what it took beside others, if they share cores.
const HOPE: f64 = 0.5;

/// What is known of one engine, for programs of one shape. Engines may share cores, so what it
/// takes alone is one thing, and what it takes beside others another.
pub(super) struct Known {
    pub(super) start_up: StartUp,
    pub(super) runs: u32,
    alone: Figures,
    beside: Figures,
}

impl Known {
    pub(super) fn new(start_up: StartUp) -> Self {
        Self { start_up, runs: 0, alone: Figures::default(), beside: Figures::default() }
    }

    /// Takes the time of a part in; `now` counts runs of programs of this shape.
    pub(super) fn add(&mut self, items: usize, seconds: f64, is_alone: bool, now: u64) {
        let figures = if is_alone { &mut self.alone } else { &mut self.beside };
        figures.add(items, seconds, now);
    }

    /// Seconds for `items` if nobody else runs: infinite where nothing is known.
    pub(super) fn alone(&self, items: usize) -> f64 {
        self.alone.own(items).unwrap_or_else(|| {
            let beside = self.beside.own(items).or_else(|| self.beside.bound(items));
            let hope = if self.alone.0.is_empty() { HOPE } else { 1.0 };
            let beside = beside.map(|seconds| hope * seconds);
            self.at_least(least([self.alone.bound(items), beside]))
        })
    }

    /// Seconds for `items` while others run theirs.
    pub(super) fn beside(&self, items: usize) -> f64 {
        let Self { alone, beside, .. } = self;
        beside.own(items).unwrap_or_else(|| {
            let alone = || alone.own(items).or_else(|| alone.bound(items));
            self.at_least(beside.bound(items).or_else(alone))
        })
    }

    /// About the most items that it ever ran.
    pub(super) fn largest(&self) -> usize {
        self.alone.largest().max(self.beside.largest())
    }

    fn at_least(&self, seconds: Option<f64>) -> f64 {
        seconds.map_or(f64::INFINITY, |seconds| seconds.max(self.start_up.each))
    }
}

/// Means by class.
#[derive(Default)]
struct Figures(Vec<Option<Figure>>);

#[derive(Clone, Copy, Default)]
struct Figure {
    items: f64,
    seconds: f64,
    count: u32,
    /// When it was last measured, in runs.
    last: u64,
}

/// The bits of a number of items.
pub(super) fn class(items: usize) -> usize {
    (usize::BITS - items.leading_zeros()) as usize
}

impl Figures {
    fn add(&mut self, items: usize, seconds: f64, now: u64) {
        let class = class(items);
        self.0.resize(self.0.len().max(class + 1), None);
        let figure = self.0[class].get_or_insert_default();
        let before = if now - figure.last > OLD { 0 } else { figure.count };
        (figure.count, figure.last) = ((before + 1).min(MOST), now);
        let weight = 1.0 / f64::from(figure.count);
        figure.items += weight * (items as f64 - figure.items);
        figure.seconds += weight * (seconds - figure.seconds);
    }

    /// By parts of about as many items.
    fn own(&self, items: usize) -> Option<f64> {
        let figure = self.0.get(class(items)).copied().flatten()?;
        Some(figure.seconds * items as f64 / figure.items)
    }

    /// By the next smaller and the next larger parts.
    fn bound(&self, items: usize) -> Option<f64> {
        let (below, above) = self.0.split_at(class(items).min(self.0.len()));
        let below = below.iter().rev().flatten().next();
        let above = above.iter().flatten().next();
        least([below.map(|f| f.seconds * items as f64 / f.items), above.map(|f| f.seconds)])
    }

    fn largest(&self) -> usize {
        self.0.iter().flatten().last().map_or(0, |figure| figure.items as usize)
    }
}

fn least(seconds: [Option<f64>; 2]) -> Option<f64> {
    seconds.into_iter().flatten().min_by(f64::total_cmp)
}
