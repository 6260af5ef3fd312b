//! A wire that loses and trims what arrives, from one seed.

use std::net::SocketAddr;
use std::task::Waker;
use std::time::Duration;

use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};

use crate::NicError;
use crate::proto::{Origin, Route, datagram::HEADER_BYTES};

use super::Wire;

/// Another wire, and what goes wrong on it.
pub struct Faulty<W> {
    wire: W,
    rng: ChaCha8Rng,
    loss: u32,
    trimming: u32,
}

impl<W: Wire> Faulty<W> {
    /// Of a thousand datagrams that arrive over `wire`, so many are lost, and so many of the others
    /// arrive without their payload.
    pub fn new(wire: W, seed: u64, loss: u32, trimming: u32) -> Self {
        Self { wire, rng: ChaCha8Rng::seed_from_u64(seed), loss, trimming }
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
        let Self { wire, rng, loss, trimming } = self;
        wire.receive(wait, &mut |from, bytes| {
            let mut chance =
                |per_thousand: u32| per_thousand > 0 && rng.next_u32() % 1000 < per_thousand;
            if chance(*loss) {
                return;
            }
            let whole = bytes.len() <= HEADER_BYTES || !chance(*trimming);
            let length = if whole { bytes.len() } else { HEADER_BYTES };
            take(from, &mut bytes[..length]);
        })
    }

    fn waker(&mut self) -> Result<Waker, NicError> {
        self.wire.waker()
    }
}
