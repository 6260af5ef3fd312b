//! Drives a [`Node`] over a [`Wire`] in real time. It tells every node the time.

use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use crate::NicError;
use crate::node::Node;
use crate::proto::Time;
use crate::wire::Wire;

/// Datagrams taken, then sent, before the other direction has its turn.
const BATCH: usize = 256;
/// The longest sleep: how long a node may be kept from noticing what its owner did.
pub const MAX_SLEEP: Duration = Duration::from_millis(100);
/// Larger than any UDP datagram.
const RECEIVE_BYTES: usize = 1 << 16;

/// One wire and one clock.
pub struct Driver<W> {
    wire: W,
    origin: Instant,
    incoming: Vec<u8>,
    outgoing: Vec<u8>,
    /// Where `outgoing` still has to go, if the wire had no room for it.
    blocked: Option<SocketAddr>,
}

impl<W: Wire> Driver<W> {
    /// A driver whose time begins now.
    pub fn new(wire: W) -> Self {
        Self {
            wire,
            origin: Instant::now(),
            incoming: vec![0; RECEIVE_BYTES],
            outgoing: Vec::new(),
            blocked: None,
        }
    }

    /// The wire.
    pub fn wire(&self) -> &W {
        &self.wire
    }

    /// The time, as the node is told it.
    #[must_use]
    pub fn now(&self) -> Time {
        Time::ZERO + self.origin.elapsed()
    }

    /// Drives `node` until the owner's `hook` breaks with a value.
    ///
    /// The hook runs once a turn: it takes the node's events and gives it work. It continues with
    /// how long the next sleep may last at most: [`MAX_SLEEP`] when it waits for the network only,
    /// less when it also waits for another thread, zero when it has more to do at once.
    ///
    /// # Errors
    ///
    /// [`NicError::Wire`] if the wire has failed for good.
    pub fn run<N: Node, T>(
        &mut self,
        node: &mut N,
        mut hook: impl FnMut(&mut N, Time) -> ControlFlow<T, Duration>,
    ) -> Result<T, NicError> {
        loop {
            match hook(node, self.now()) {
                ControlFlow::Break(value) => {
                    self.transmit(node);
                    return Ok(value);
                }
                ControlFlow::Continue(sleep) => self.turn(node, sleep)?,
            }
        }
    }

    /// Keeps answering for `span`, so that the last acknowledgements are not lost with the process.
    ///
    /// # Errors
    ///
    /// [`NicError::Wire`] if the wire has failed for good.
    pub fn linger<N: Node>(&mut self, node: &mut N, span: Duration) -> Result<(), NicError> {
        let end = self.now() + span;
        self.run(node, |_, now| match end.since(now) {
            Duration::ZERO => ControlFlow::Break(()),
            rest => ControlFlow::Continue(rest),
        })
    }

    /// Sends what the node has to send, sleeps if there is nothing to do, and takes what arrived.
    ///
    /// # Errors
    ///
    /// [`NicError::Wire`] if the wire has failed for good.
    pub fn turn<N: Node>(&mut self, node: &mut N, sleep: Duration) -> Result<(), NicError> {
        let busy = self.transmit(node);
        let mut wait = if busy { Duration::ZERO } else { self.sleep_span(node, sleep) };
        for _ in 0..BATCH {
            let Some((length, from)) = self.wire.receive(&mut self.incoming, wait)? else { break };
            let now = self.now();
            node.handle_datagram(now, from, &self.incoming[..length]);
            wait = Duration::ZERO;
        }
        let now = self.now();
        if node.poll_timeout().is_some_and(|due| due <= now) {
            node.handle_timeout(now);
        }
        Ok(())
    }

    fn sleep_span<N: Node>(&self, node: &N, sleep: Duration) -> Duration {
        let now = self.now();
        let due = node.poll_timeout().map_or(MAX_SLEEP, |due| due.since(now));
        let longest = if self.blocked.is_some() { Duration::from_millis(1) } else { MAX_SLEEP };
        sleep.min(due).min(longest)
    }

    /// Sends up to a batch; whether there may be more.
    fn transmit<N: Node>(&mut self, node: &mut N) -> bool {
        for _ in 0..BATCH {
            let now = self.now();
            let next = self.blocked.take().or_else(|| node.poll_transmit(now, &mut self.outgoing));
            let Some(to) = next else { return false };
            if !self.wire.send(to, &self.outgoing) {
                self.blocked = Some(to);
                return false;
            }
        }
        true
    }
}
