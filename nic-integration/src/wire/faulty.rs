//! A wire on which arriving datagrams meet faults, from one seed.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::task::Waker;
use std::time::{Duration, Instant};

use crate::NicError;
use crate::faults::{Delivery, Faults, Injector};
use crate::proto::{Origin, Route};

use super::Wire;

/// Delayed datagrams that are held at most; more are delivered at once.
const MAX_HELD: usize = 4096;

/// Another wire, and faults for the datagrams that arrive over it.
pub struct Faulty<W> {
    wire: W,
    injector: Injector,
    /// By when they are due; the number keeps those of one instant apart.
    held: BTreeMap<(Instant, u64), (Origin, Vec<u8>)>,
    next: u64,
}

impl<W: Wire> Faulty<W> {
    /// Returns `wire` with faults.
    pub fn new(wire: W, faults: Faults, seed: u64) -> Self {
        Self { wire, injector: Injector::new(faults, seed), held: BTreeMap::new(), next: 0 }
    }
}

impl<W: Wire> Wire for Faulty<W> {
    fn local_addrs(&self) -> Result<Vec<SocketAddr>, NicError> {
        self.wire.local_addrs()
    }

    fn burst_limit(&self) -> usize {
        self.wire.burst_limit()
    }

    fn send(&mut self, to: Route, burst: &[u8], each: usize) -> bool {
        self.wire.send(to, burst, each)
    }

    fn receive(
        &mut self,
        wait: Duration,
        take: &mut dyn FnMut(Origin, &mut [u8]),
    ) -> Result<usize, NicError> {
        let Self { wire, injector, held, next } = self;
        let due = held.first_key_value().map(|((due, _), _)| *due);
        let wait = due.map_or(wait, |due| wait.min(due.saturating_duration_since(Instant::now())));
        let mut count = 0;
        wire.receive(wait, &mut |from, bytes| {
            injector.inject(bytes, |Delivery { bytes, delay, congested, .. }| {
                let from = Origin { congested: from.congested || congested, ..from };
                if delay.is_zero() || held.len() >= MAX_HELD {
                    count += 1;
                    take(from, bytes);
                } else {
                    *next += 1;
                    held.insert((Instant::now() + delay, *next), (from, bytes.to_vec()));
                }
            });
        })?;
        while let Some(entry) = held.first_entry().filter(|e| e.key().0 <= Instant::now()) {
            let (from, mut bytes) = entry.remove();
            count += 1;
            take(from, &mut bytes);
        }
        Ok(count)
    }

    fn waker(&mut self) -> Result<Waker, NicError> {
        self.wire.waker()
    }
}
