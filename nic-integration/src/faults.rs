//! Faults of a network: how often each happens, and what becomes of a datagram, decided from one
//! seed.
//!
//! The simulated network, the relay and the faulty wire all misbehave by this one model. A time is
//! only ever a delay here; the holder of a delayed datagram knows the clock.

use std::time::Duration;

use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};

use crate::proto::datagram::HEADER_BYTES;

/// Probabilities are parts of a million.
pub const MILLION: u32 = 1_000_000;
/// The longest that a late datagram is held back.
pub const MAX_LATENESS: Duration = Duration::from_secs(5);
/// Random datagrams are shorter than this.
const JUNK_BYTES: u64 = 200;

/// The faults of a network. Probabilities are per million datagrams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Lost without a trace.
    pub loss: u32,
    /// Delivered twice, each with its own delay and further faults.
    pub duplication: u32,
    /// Delivered with one bit flipped.
    pub corruption: u32,
    /// Cut to their header, if they are longer.
    pub trimming: u32,
    /// Marked for congestion (ECN).
    pub marking: u32,
    /// Preceded by a datagram of random bytes to the same node.
    pub junk: u32,
    /// Held back for up to [`MAX_LATENESS`] more: longer than a round may take.
    pub lateness: u32,
    /// The shortest delay.
    pub delay: Duration,
    /// The most that is added to it, drawn per datagram, so that datagrams overtake each other.
    pub jitter: Duration,
}

/// Counts of the faults that happened, in datagrams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Injected {
    /// Lost.
    pub lost: u64,
    /// Delivered twice.
    pub duplicated: u64,
    /// Delivered with a flipped bit.
    pub corrupted: u64,
    /// Cut to their header.
    pub trimmed: u64,
    /// Marked for congestion.
    pub marked: u64,
    /// Made of random bytes.
    pub junk: u64,
    /// Held back for long.
    pub late: u64,
}

/// A datagram that is to be delivered.
pub struct Delivery<'a> {
    /// Its bytes, after corruption and trimming.
    pub bytes: &'a mut [u8],
    /// The time until it arrives.
    pub delay: Duration,
    /// It is marked for congestion.
    pub congested: bool,
    /// Its payload was cut off.
    pub trimmed: bool,
}

/// Faults and the seeded random stream that they are drawn from.
pub struct Injector {
    faults: Faults,
    rng: ChaCha8Rng,
    injected: Injected,
}

impl Injector {
    /// Returns an injector whose decisions follow from `seed` and from the datagrams.
    #[must_use]
    pub fn new(faults: Faults, seed: u64) -> Self {
        Self { faults, rng: ChaCha8Rng::seed_from_u64(seed), injected: Injected::default() }
    }

    /// Sets the faults from here on.
    pub fn set_faults(&mut self, faults: Faults) {
        self.faults = faults;
    }

    /// Returns the counts so far.
    #[must_use]
    pub fn injected(&self) -> Injected {
        self.injected
    }

    /// Decides a datagram's fate: calls `deliver` for each datagram that comes of it, which are
    /// none to three. Its bytes are spent afterwards.
    pub fn inject(&mut self, bytes: &mut [u8], mut deliver: impl FnMut(Delivery<'_>)) {
        if self.chance(self.faults.junk) {
            let mut junk = vec![0; self.below(JUNK_BYTES) as usize];
            self.rng.fill_bytes(&mut junk);
            self.injected.junk += 1;
            deliver(self.delayed(&mut junk, false));
        }
        if self.chance(self.faults.loss) {
            self.injected.lost += 1;
            return;
        }
        if self.chance(self.faults.duplication) {
            self.injected.duplicated += 1;
            deliver(self.damaged(&mut bytes.to_vec()));
        }
        deliver(self.damaged(bytes));
    }

    fn damaged<'a>(&mut self, mut bytes: &'a mut [u8]) -> Delivery<'a> {
        let trimmed = bytes.len() > HEADER_BYTES && self.chance(self.faults.trimming);
        if trimmed {
            bytes = &mut bytes[..HEADER_BYTES];
            self.injected.trimmed += 1;
        }
        if !bytes.is_empty() && self.chance(self.faults.corruption) {
            let at = self.below(bytes.len() as u64) as usize;
            bytes[at] ^= 1 << self.below(8);
            self.injected.corrupted += 1;
        }
        self.delayed(bytes, trimmed)
    }

    fn delayed<'a>(&mut self, bytes: &'a mut [u8], trimmed: bool) -> Delivery<'a> {
        let mut delay = self.faults.delay + self.up_to(self.faults.jitter);
        if self.chance(self.faults.lateness) {
            delay += self.up_to(MAX_LATENESS);
            self.injected.late += 1;
        }
        let congested = self.chance(self.faults.marking);
        self.injected.marked += u64::from(congested);
        Delivery { bytes, delay, congested, trimmed }
    }

    /// Draws a span; none if it can only be zero, so that a network without faults draws nothing.
    fn up_to(&mut self, most: Duration) -> Duration {
        match most.as_nanos() as u64 {
            0 => Duration::ZERO,
            most => Duration::from_nanos(self.below(most.saturating_add(1))),
        }
    }

    fn chance(&mut self, per_million: u32) -> bool {
        per_million > 0 && self.below(MILLION.into()) < u64::from(per_million)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.rng.next_u64() % bound
    }
}
