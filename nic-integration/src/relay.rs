//! A switch in user space, for trying real processes on a bad network.
//!
//! A [`Way`] is what becomes of datagrams in one direction: a pure state machine, on the caller's time
//! and from one seed. A [`Switch`] stands between real sockets, with one for either direction. Of the
//! protocol it knows how long a header is, because trimming leaves that.

mod switch;

use std::collections::{BTreeMap, VecDeque};
use std::num::NonZeroU64;
use std::time::Duration;

use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};

use crate::proto::{Time, datagram::HEADER_BYTES};

pub use switch::{IDLE_SPAN, MAX_CLIENTS, Switch};

/// Bytes that a way holds at most, its own for each datagram included.
pub const MAX_HELD_BYTES: usize = 256 << 20;
/// What a datagram counts for beside its bytes.
const ENTRY_BYTES: usize = 128;
/// What probabilities are parts of.
pub const MILLION: u32 = 1_000_000;

/// How a way misbehaves. Probabilities are per million datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Faults {
    /// Lost without a trace.
    pub loss: u32,
    /// Sent on twice.
    pub duplication: u32,
    /// Sent on with one bit flipped.
    pub corruption: u32,
    /// Cut to their header, if they are longer.
    pub trimming: u32,
    /// How long each is under way.
    pub delay: Duration,
    /// Up to this much longer, drawn for each: so they overtake each other.
    pub jitter: Duration,
    /// Bits of datagrams a second, headers of IP and UDP not counted; none for no limit.
    pub rate: Option<NonZeroU64>,
    /// Datagrams that may wait for their turn at that rate; with none, nothing passes.
    pub queue: usize,
    /// Whether what finds the queue full is cut to its header. Otherwise it is dropped.
    pub trim_on_full: bool,
}

impl Default for Faults {
    /// None, and a queue of 128.
    fn default() -> Self {
        Self {
            loss: 0,
            duplication: 0,
            corruption: 0,
            trimming: 0,
            delay: Duration::ZERO,
            jitter: Duration::ZERO,
            rate: None,
            queue: 128,
            trim_on_full: false,
        }
    }
}

/// What a way did, in datagrams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Handed to it.
    pub received: u64,
    /// Handed on.
    pub forwarded: u64,
    /// Of these, handed on after one that came later.
    pub reordered: u64,
    /// Lost on purpose.
    pub lost: u64,
    /// Doubled.
    pub duplicated: u64,
    /// With a flipped bit.
    pub corrupted: u64,
    /// Cut to their header by chance.
    pub trimmed: u64,
    /// Cut to their header because the queue was full.
    pub trimmed_full: u64,
    /// For which there was no room.
    pub dropped: u64,
}

struct Datagram<D> {
    to: D,
    bytes: Vec<u8>,
    /// By order of arrival.
    number: u64,
    arrived: Time,
    /// Drawn on arrival, so that the draws do not depend on when the owner asks for what is due.
    jitter: Duration,
}

/// One direction: faults, then a queue that drains at a rate, then a delay. `D` says where a
/// datagram goes.
pub struct Way<D> {
    faults: Faults,
    rng: ChaCha8Rng,
    /// Headers whose payload was cut off here: they go before whole datagrams, so that the
    /// receiver asks again before the queue has drained.
    headers: VecDeque<Datagram<D>>,
    queue: VecDeque<Datagram<D>>,
    /// When the line is free for the next.
    free: Time,
    /// By when they are due; the number keeps those of one instant apart.
    under_way: BTreeMap<(Time, u64), Datagram<D>>,
    held_bytes: usize,
    next: u64,
    newest: u64,
    tally: Tally,
}

impl<D: Clone> Way<D> {
    /// A way on which nothing is.
    #[must_use]
    pub fn new(faults: Faults, seed: u64) -> Self {
        Self {
            faults,
            rng: ChaCha8Rng::seed_from_u64(seed),
            headers: VecDeque::new(),
            queue: VecDeque::new(),
            free: Time::ZERO,
            under_way: BTreeMap::new(),
            held_bytes: 0,
            next: 0,
            newest: 0,
            tally: Tally::default(),
        }
    }

    /// What was done so far.
    #[must_use]
    pub fn tally(&self) -> Tally {
        self.tally
    }

    /// Takes a datagram for `to`. Time never goes back from call to call.
    pub fn push(&mut self, now: Time, to: &D, bytes: &[u8]) {
        self.tally.received += 1;
        if self.chance(self.faults.loss) {
            self.tally.lost += 1;
            return;
        }
        let copies = 1 + u64::from(self.chance(self.faults.duplication));
        self.tally.duplicated += copies - 1;
        for _ in 0..copies {
            let trims = bytes.len() > HEADER_BYTES && self.chance(self.faults.trimming);
            self.tally.trimmed += u64::from(trims);
            let mut bytes = if trims { &bytes[..HEADER_BYTES] } else { bytes }.to_vec();
            if !bytes.is_empty() && self.chance(self.faults.corruption) {
                let at = self.below(bytes.len() as u64) as usize;
                bytes[at] ^= 1 << self.below(8);
                self.tally.corrupted += 1;
            }
            let jitter = match self.faults.jitter.as_nanos() as u64 {
                0 => Duration::ZERO,
                most => Duration::from_nanos(self.below(most.saturating_add(1))),
            };
            let number = self.next;
            self.next += 1;
            let datagram = Datagram { to: to.clone(), bytes, number, arrived: now, jitter };
            self.enqueue(now, datagram, trims);
        }
    }

    /// The next datagram that is due, and where it goes.
    pub fn pop(&mut self, now: Time) -> Option<(D, Vec<u8>)> {
        self.advance(now);
        let entry = self.under_way.first_entry().filter(|entry| entry.key().0 <= now)?;
        let datagram = entry.remove();
        self.held_bytes -= datagram.bytes.len() + ENTRY_BYTES;
        self.tally.forwarded += 1;
        self.tally.reordered += u64::from(datagram.number < self.newest);
        self.newest = self.newest.max(datagram.number);
        Some((datagram.to, datagram.bytes))
    }

    /// When to [`pop`](Self::pop) next; maybe too early, never too late.
    #[must_use]
    pub fn due(&self) -> Option<Time> {
        let arrival = self.under_way.first_key_value().map(|((due, _), _)| *due);
        let waits = !(self.headers.is_empty() && self.queue.is_empty());
        arrival.into_iter().chain(waits.then_some(self.free)).min()
    }

    fn enqueue(&mut self, now: Time, mut datagram: Datagram<D>, mut trimmed: bool) {
        self.advance(now);
        let limit = self.faults.queue;
        let trims = self.faults.trim_on_full && datagram.bytes.len() > HEADER_BYTES;
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

    /// Puts on the line what had its turn until `now`.
    fn advance(&mut self, now: Time) {
        while self.free <= now {
            let next = self.headers.pop_front().or_else(|| self.queue.pop_front());
            let Some(datagram) = next else { break };
            self.free = self.free.max(datagram.arrived) + self.line_span(datagram.bytes.len());
            let due = self.free + self.faults.delay + datagram.jitter;
            self.under_way.insert((due, datagram.number), datagram);
        }
    }

    /// How long the line is taken by so many bytes.
    fn line_span(&self, bytes: usize) -> Duration {
        let nanoseconds = |rate: NonZeroU64| bytes as u64 * 8 * 1_000_000_000 / rate;
        Duration::from_nanos(self.faults.rate.map_or(0, nanoseconds))
    }

    fn chance(&mut self, per_million: u32) -> bool {
        per_million > 0 && self.below(MILLION.into()) < u64::from(per_million)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.rng.next_u64() % bound
    }
}

#[cfg(test)]
mod tests;
