//! What a driver or a simulation needs to know of a state machine.

use crate::proto::{Endpoint, Origin, Pipeline, Route, Time};

/// A state machine between a wire and a clock; events are each machine's own.
pub trait Node {
    /// Takes bytes that arrived from `from`; what they are afterwards is the machine's business.
    fn handle_datagram(&mut self, now: Time, from: Origin, bytes: &mut [u8]);

    /// All that arrived at once was handed over: acts on it.
    fn handle_arrivals(&mut self, _now: Time) {}

    /// Lets timers expire.
    fn handle_timeout(&mut self, now: Time);

    /// Appends the next datagram to send to `bytes`, and says where to.
    fn poll_transmit(&mut self, now: Time, bytes: &mut Vec<u8>) -> Option<Route>;

    /// When [`handle_timeout`](Self::handle_timeout) is next needed.
    fn poll_timeout(&self) -> Option<Time>;
}

impl Node for Endpoint {
    fn handle_datagram(&mut self, now: Time, from: Origin, bytes: &mut [u8]) {
        Self::handle_datagram(self, now, from, bytes);
    }

    fn handle_timeout(&mut self, now: Time) {
        Self::handle_timeout(self, now);
    }

    fn poll_transmit(&mut self, now: Time, bytes: &mut Vec<u8>) -> Option<Route> {
        Self::poll_transmit(self, now, bytes)
    }

    fn poll_timeout(&self) -> Option<Time> {
        Self::poll_timeout(self)
    }
}

impl Node for Pipeline {
    fn handle_datagram(&mut self, now: Time, from: Origin, bytes: &mut [u8]) {
        Self::handle_datagram(self, now, from, bytes);
    }

    fn handle_timeout(&mut self, now: Time) {
        Self::handle_timeout(self, now);
    }

    fn poll_transmit(&mut self, now: Time, bytes: &mut Vec<u8>) -> Option<Route> {
        Self::poll_transmit(self, now, bytes)
    }

    fn poll_timeout(&self) -> Option<Time> {
        Self::poll_timeout(self)
    }
}
