//! A switch in user space, for trying real processes on a bad network.
//!
//! A [`Direction`] is a pure state machine, on the caller's time and from one seed, that datagrams
//! pass in one direction. A [`RelaySwitch`] stands between real sockets, with one for each direction. Of
//! the protocol it knows how long a header is, because trimming leaves that.

mod switch;

use std::collections::{BTreeMap, VecDeque};
use std::num::NonZeroU64;
use std::time::Duration;

use crate::faults::{Delivery, Faults, Injected, Injector};
use crate::proto::{Time, datagram::HEADER_BYTES};

pub use switch::{IDLE_SPAN, MAX_CLIENTS, RelaySwitch};

/// The most bytes that a direction holds, its own for each datagram included.
pub const MAX_HELD_BYTES: usize = 256 << 20;
/// Bytes that a datagram counts for beside its own.
const ENTRY_BYTES: usize = 128;

/// A line of bounded rate, and the queue before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bottleneck {
    /// Bits of datagrams a second, headers of IP and UDP not counted; none for no limit.
    pub rate: Option<NonZeroU64>,
    /// Datagrams that may wait for their turn at that rate; with none, nothing passes.
    pub queue: usize,
    /// A datagram that finds the queue full is cut to its header. Otherwise it is dropped.
    pub trim_on_full: bool,
}

impl Default for Bottleneck {
    /// Returns a line of any rate, and a queue of 128.
    fn default() -> Self {
        Self { rate: None, queue: 128, trim_on_full: false }
    }
}

/// Counts of what happened in one direction, in datagrams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DirectionTally {
    /// Handed to this direction.
    pub received: u64,
    /// Handed on.
    pub forwarded: u64,
    /// Of these, handed on after one that came later.
    pub reordered: u64,
    /// Faults that were injected.
    pub injected: Injected,
    /// Cut to their header because the queue was full.
    pub trimmed_full: u64,
    /// Dropped, as there was no space.
    pub dropped: u64,
}

/// A datagram under way.
pub struct Datagram<D> {
    /// Its destination.
    pub to: D,
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// It is marked for congestion.
    pub congested: bool,
    /// By order of arrival.
    number: u64,
    arrived: Time,
    /// Drawn on arrival, so that the draws do not depend on when the owner asks for datagrams.
    delay: Duration,
}

/// One direction: faults, then a queue that drains at a rate, then a delay. `D` is a datagram's
/// destination.
pub struct Direction<D> {
    injector: Injector,
    line: Bottleneck,
    /// Headers whose payload was cut off here: they go before whole datagrams, so that the
    /// receiver asks again before the queue has drained.
    headers: VecDeque<Datagram<D>>,
    queue: VecDeque<Datagram<D>>,
    /// The time at which the line is free for the next.
    free: Time,
    /// By the time at which they are due; the number keeps those of one instant apart.
    under_way: BTreeMap<(Time, u64), Datagram<D>>,
    held_bytes: usize,
    next: u64,
    newest: u64,
    tally: DirectionTally,
}

impl<D: Clone> Direction<D> {
    /// Returns an empty direction.
    #[must_use]
    pub fn new(faults: Faults, line: Bottleneck, seed: u64) -> Self {
        Self {
            injector: Injector::new(faults, seed),
            line,
            headers: VecDeque::new(),
            queue: VecDeque::new(),
            free: Time::ZERO,
            under_way: BTreeMap::new(),
            held_bytes: 0,
            next: 0,
            newest: 0,
            tally: DirectionTally::default(),
        }
    }

    /// Returns the counts so far.
    #[must_use]
    pub fn tally(&self) -> DirectionTally {
        DirectionTally { injected: self.injector.injected(), ..self.tally }
    }

    /// Takes a datagram for `to`, whose bytes are spent afterwards. Time never goes back from call
    /// to call.
    pub fn push(&mut self, now: Time, to: &D, bytes: &mut [u8]) {
        self.tally.received += 1;
        let mut arrivals = vec![];
        self.injector.inject(bytes, |Delivery { bytes, delay, congested, trimmed }| {
            let (to, bytes, number) = (to.clone(), bytes.to_vec(), self.next);
            self.next += 1;
            arrivals
                .push((Datagram { to, bytes, congested, number, arrived: now, delay }, trimmed));
        });
        arrivals.into_iter().for_each(|(datagram, trimmed)| self.enqueue(now, datagram, trimmed));
    }

    /// Removes and returns the next datagram that is due.
    pub fn pop(&mut self, now: Time) -> Option<Datagram<D>> {
        self.advance(now);
        let entry = self.under_way.first_entry().filter(|entry| entry.key().0 <= now)?;
        let datagram = entry.remove();
        self.held_bytes -= datagram.bytes.len() + ENTRY_BYTES;
        self.tally.forwarded += 1;
        self.tally.reordered += u64::from(datagram.number < self.newest);
        self.newest = self.newest.max(datagram.number);
        Some(datagram)
    }

    /// Returns when to [`pop`](Self::pop) next: maybe too early, never too late.
    #[must_use]
    pub fn due(&self) -> Option<Time> {
        let arrival = self.under_way.first_key_value().map(|((due, _), _)| *due);
        let waits = !(self.headers.is_empty() && self.queue.is_empty());
        arrival.into_iter().chain(waits.then_some(self.free)).min()
    }

    fn enqueue(&mut self, now: Time, mut datagram: Datagram<D>, mut trimmed: bool) {
        self.advance(now);
        let limit = self.line.queue;
        let trims = self.line.trim_on_full && datagram.bytes.len() > HEADER_BYTES;
        if !trimmed && self.queue.len() >= limit && trims {
            datagram.bytes.truncate(HEADER_BYTES);
            trimmed = true;
            self.tally.trimmed_full += 1;
        }
        let queue = if trimmed { &mut self.headers } else { &mut self.queue };
        let bytes = datagram.bytes.len() + ENTRY_BYTES;
        if queue.len() >= limit || self.held_bytes + bytes > MAX_HELD_BYTES {
            self.tally.dropped += 1;
            return;
        }
        self.held_bytes += bytes;
        queue.push_back(datagram);
        // An idle line takes it at once.
        self.advance(now);
    }

    /// Puts on the line the datagrams whose turn came until `now`.
    fn advance(&mut self, now: Time) {
        while self.free <= now {
            let next = self.headers.pop_front().or_else(|| self.queue.pop_front());
            let Some(datagram) = next else { break };
            self.free = self.free.max(datagram.arrived) + self.line_span(datagram.bytes.len());
            let due = self.free + datagram.delay;
            self.under_way.insert((due, datagram.number), datagram);
        }
    }

    /// Returns how long `bytes` bytes occupy the line.
    fn line_span(&self, bytes: usize) -> Duration {
        let nanoseconds = |rate: NonZeroU64| bytes as u64 * 8 * 1_000_000_000 / rate;
        Duration::from_nanos(self.line.rate.map_or(0, nanoseconds))
    }
}

#[cfg(test)]
mod tests;
