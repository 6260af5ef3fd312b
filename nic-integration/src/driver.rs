//! The loop that drives a [`Node`] over a [`Wire`] in real time, and every node's clock.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use crate::NicError;
use crate::node::Node;
use crate::proto::{Route, Time};
use crate::wire::{MAX_BURST_BYTES, Wire};

/// Bursts sent before arrivals have their turn.
const BURSTS: usize = 16;
/// The longest sleep, after which a node notices what its owner did.
pub const MAX_SLEEP: Duration = Duration::from_millis(100);
/// The wait after which a wire that had no space is tried again.
const BLOCKED_SLEEP: Duration = Duration::from_millis(1);

/// A wire and a clock.
pub struct Driver<W> {
    wire: W,
    origin: Instant,
    burst: Burst,
    /// The wire had no space for the burst.
    blocked: bool,
    /// Never sleeps.
    polling: bool,
}

/// Datagrams by one route, all of one size but the last, which is shorter; and maybe one more, for
/// which another burst begins.
#[derive(Default)]
struct Burst {
    bytes: Vec<u8>,
    to: Option<Route>,
    each: usize,
    /// The offset and the route of the datagram that does not belong to it.
    next: Option<(usize, Route)>,
}

impl Burst {
    fn end(&self) -> usize {
        self.next.map_or(self.bytes.len(), |(at, _)| at)
    }

    /// Takes from `node` until the burst is whole. Returns whether there is one.
    fn fill<N: Node>(&mut self, node: &mut N, now: Time, limit: usize) -> bool {
        while self.next.is_none() {
            let start = self.bytes.len();
            let Some(to) = node.poll_transmit(now, &mut self.bytes) else { break };
            let size = self.bytes.len() - start;
            let full =
                start >= limit.saturating_mul(self.each) || self.bytes.len() > MAX_BURST_BYTES;
            match self.to {
                None => (self.to, self.each) = (Some(to), size),
                Some(route) if route != to || size > self.each || full => {
                    self.next = Some((start, to));
                }
                Some(_) => {}
            }
            if size < self.each {
                break;
            }
        }
        self.to.is_some()
    }

    /// Begins the next burst with the datagram that did not belong to this one.
    fn advance(&mut self) {
        match self.next.take() {
            Some((at, to)) => {
                self.bytes.drain(..at);
                (self.to, self.each) = (Some(to), self.bytes.len());
            }
            None => {
                self.bytes.clear();
                self.to = None;
            }
        }
    }
}

impl<W: Wire> Driver<W> {
    /// Returns a driver whose time begins now.
    pub fn new(wire: W) -> Self {
        Self {
            wire,
            origin: Instant::now(),
            burst: Burst::default(),
            blocked: false,
            polling: false,
        }
    }

    /// Returns a driver of another wire with the same clock, for another pipeline of the same
    /// endpoint.
    pub fn with_wire<V: Wire>(&self, wire: V) -> Driver<V> {
        Driver { origin: self.origin, polling: self.polling, ..Driver::new(wire) }
    }

    /// Returns the wire.
    pub fn wire(&self) -> &W {
        &self.wire
    }

    /// Returns the wire, to change it.
    pub fn wire_mut(&mut self) -> &mut W {
        &mut self.wire
    }

    /// Sets whether to poll the wire instead of sleeping until something comes: a core's worth of
    /// time for some microseconds less.
    pub fn set_polling(&mut self, polling: bool) {
        self.polling = polling;
    }

    /// Returns the node's time.
    #[must_use]
    pub fn now(&self) -> Time {
        Time::ZERO + self.origin.elapsed()
    }

    /// Drives `node` until the owner's `hook` breaks with a value.
    ///
    /// The hook runs once an iteration: it takes the node's events and gives it work. It continues with
    /// how long the next sleep may last at most: [`MAX_SLEEP`] when it waits for the network only,
    /// less when it also waits for another thread, zero when it has more to do at once. The time
    /// that it is given is the iteration's: older by what the node did with what arrived in it.
    ///
    /// # Errors
    ///
    /// [`NicError::Wire`] if the wire has failed for good.
    pub fn run<N: Node, T>(
        &mut self,
        node: &mut N,
        mut hook: impl FnMut(&mut N, Time) -> ControlFlow<T, Duration>,
    ) -> Result<T, NicError> {
        let mut now = self.now();
        loop {
            match hook(node, now) {
                ControlFlow::Break(value) => {
                    self.transmit(node);
                    return Ok(value);
                }
                ControlFlow::Continue(sleep) => now = self.iterate(node, sleep)?,
            }
        }
    }

    /// Keeps answering for `span`: for a node without a farewell of its own.
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

    /// Sends what the node has to send, sleeps if there is nothing to do, and takes what arrived. Returns the time at
    /// which that was: of the first arrival, or, of a poll that found nothing, of the sending before it.
    fn iterate<N: Node>(&mut self, node: &mut N, sleep: Duration) -> Result<Time, NicError> {
        let (busy, sent) = self.transmit(node);
        let mut due = node.poll_timeout();
        let wait = match busy || self.polling {
            true => Duration::ZERO,
            false => self.sleep_span(sent, due, sleep),
        };
        let (origin, mut arrived) = (self.origin, None);
        self.wire.receive(wait, &mut |from, bytes| {
            let now = *arrived.get_or_insert_with(|| Time::ZERO + origin.elapsed());
            node.handle_datagram(now, from, bytes);
        })?;
        let now = match arrived {
            Some(now) => {
                node.handle_arrivals(now);
                now
            }
            // A poll that found nothing took no time to speak of.
            None if wait.is_zero() => sent,
            // Another thread may have ended the sleep, and has something for the node.
            None => {
                due = node.poll_timeout();
                self.now()
            }
        };
        if due.is_some_and(|due| due <= now) {
            node.handle_timeout(now);
        }
        Ok(now)
    }

    fn sleep_span(&self, now: Time, due: Option<Time>, sleep: Duration) -> Duration {
        let longest = if self.blocked { BLOCKED_SLEEP } else { MAX_SLEEP };
        due.map_or(longest, |due| due.since(now).min(longest)).min(sleep)
    }

    /// Sends some bursts. Returns whether there may be more, and the time at which it stopped.
    fn transmit<N: Node>(&mut self, node: &mut N) -> (bool, Time) {
        let (limit, mut now) = (self.wire.burst_limit(), self.now());
        for _ in 0..BURSTS {
            let ready = self.blocked || self.burst.fill(node, now, limit);
            let Some(to) = self.burst.to.filter(|_| ready) else { return (false, now) };
            self.blocked =
                !self.wire.send(to, &self.burst.bytes[..self.burst.end()], self.burst.each);
            if self.blocked {
                return (false, now);
            }
            self.burst.advance();
            now = self.now();
        }
        (true, now)
    }
}
