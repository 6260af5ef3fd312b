//! A network on virtual time, with faults drawn from one seed.
//!
//! Nodes are anything that implements [`Node`]; the caller decides when they crash or are
//! suspended, by the nodes that it hands to [`Network::step`]. A machine is an IP address: cuts are
//! between machines, and each has a clock. Two runs with the same seed and the same calls are the
//! same, datagram for datagram. Used by the tests of this crate and of others.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use crate::faults::{Delivery, Faults, Injected, Injector};
use crate::node::Node;
use crate::proto::{Origin, Route, Time, path::MAX_PATHS};

/// The distance between the ports of one node's sockets: more nodes than this cannot share an
/// address.
pub const PORT_STRIDE: u16 = 4000;

/// Counts of what the network did, in datagrams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NetworkTally {
    /// Faults that were injected.
    pub injected: Injected,
    /// Handed to a node.
    pub delivered: u64,
    /// Due before one that was sent earlier by the same path.
    pub reordered: u64,
    /// Lost where the path was cut.
    pub cut: u64,
    /// Lost since they were longer than the path takes.
    pub too_long: u64,
    /// Addressed to nobody: the node had crashed, or was suspended.
    pub undeliverable: u64,
}

/// A machine's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clock {
    /// The time shown at the network's time zero.
    pub offset: Duration,
    /// Its gain on the network's time, in parts per million; below zero it is slow.
    pub drift_ppm: i32,
}

impl Clock {
    const MILLION: u128 = 1_000_000;

    fn rate(self) -> u128 {
        (1_000_000 + i64::from(self.drift_ppm)).max(1) as u128
    }

    /// Returns the time shown at `now`, a time of the network's.
    #[must_use]
    pub fn shows(self, now: Time) -> Time {
        let passed = u128::from(now.0) * self.rate() / Self::MILLION;
        Time(clamped(passed + self.offset.as_nanos()))
    }

    /// Returns the first time of the network's at which the clock shows `shown`, or later.
    #[must_use]
    pub fn reaches(self, shown: Time) -> Time {
        let passed = u128::from(shown.0).saturating_sub(self.offset.as_nanos());
        Time(clamped((passed * Self::MILLION).div_ceil(self.rate())))
    }
}

fn clamped(nanoseconds: u128) -> u64 {
    u64::try_from(nanoseconds).unwrap_or(u64::MAX)
}

struct InFlight {
    from: SocketAddr,
    to: SocketAddr,
    bytes: Vec<u8>,
    congested: bool,
}

/// The network: virtual time, datagrams on their way, and a seeded source of trouble.
pub struct Network {
    now: Time,
    injector: Injector,
    /// By time of arrival; the number keeps arrivals at one instant apart.
    in_flight: BTreeMap<(Time, u64), InFlight>,
    sequence: u64,
    /// The latest arrival by each path.
    latest: BTreeMap<(SocketAddr, SocketAddr), Time>,
    /// Pairs of machines, from one to the other, that are cut.
    cuts: BTreeSet<(IpAddr, IpAddr)>,
    /// Bytes of the longest datagram from one machine to the other, where not every one passes.
    longest: BTreeMap<(IpAddr, IpAddr), usize>,
    /// The clocks that do not show the network's time.
    clocks: BTreeMap<IpAddr, Clock>,
    tally: NetworkTally,
}

impl Network {
    /// Returns an empty network at time zero.
    #[must_use]
    pub fn new(seed: u64, faults: Faults) -> Self {
        Self {
            now: Time::ZERO,
            injector: Injector::new(faults, seed),
            in_flight: BTreeMap::new(),
            sequence: 0,
            latest: BTreeMap::new(),
            cuts: BTreeSet::new(),
            longest: BTreeMap::new(),
            clocks: BTreeMap::new(),
            tally: NetworkTally::default(),
        }
    }

    /// Returns the virtual time.
    #[must_use]
    pub fn now(&self) -> Time {
        self.now
    }

    /// Returns the counts so far.
    #[must_use]
    pub fn tally(&self) -> NetworkTally {
        NetworkTally { injected: self.injector.injected(), ..self.tally }
    }

    /// Sets how the network misbehaves from here on.
    pub fn set_faults(&mut self, faults: Faults) {
        self.injector.set_faults(faults);
    }

    /// Loses all that one machine sends another from here on. A partition is several cuts.
    pub fn cut(&mut self, from: IpAddr, to: IpAddr) {
        self.cuts.insert((from, to));
    }

    /// Ends a cut.
    pub fn mend(&mut self, from: IpAddr, to: IpAddr) {
        self.cuts.remove(&(from, to));
    }

    /// Ends every cut.
    pub fn mend_all(&mut self) {
        self.cuts.clear();
    }

    /// Loses datagrams of more bytes that one machine sends another from here on, without a word: a black hole.
    pub fn narrow(&mut self, from: IpAddr, to: IpAddr, longest: usize) {
        self.longest.insert((from, to), longest);
    }

    /// Gives a machine a clock of its own.
    pub fn set_clock(&mut self, machine: IpAddr, clock: Clock) {
        self.clocks.insert(machine, clock);
    }

    /// Returns the time on the clock of a node's machine.
    #[must_use]
    pub fn time_at(&self, node: SocketAddr) -> Time {
        self.clock(node).shows(self.now)
    }

    /// Returns all datagrams under way: sender, receiver and bytes, in the order of their arrival.
    pub fn in_flight(&self) -> impl ExactSizeIterator<Item = (SocketAddr, SocketAddr, &[u8])> {
        self.in_flight.values().map(|flight| (flight.from, flight.to, &flight.bytes[..]))
    }

    /// Sends everything the nodes have to send, then moves time to the next arrival or timer, but
    /// not beyond `until`, and hands it to its node. Returns `false` once `until` is reached.
    pub fn step(&mut self, nodes: &mut [(SocketAddr, &mut dyn Node)], until: Time) -> bool {
        self.collect(nodes);
        let arrival = self.in_flight.first_key_value().map(|((due, _), _)| *due);
        let due = |(addr, node): &(SocketAddr, &mut dyn Node)| {
            Some(self.clock(*addr).reaches(node.poll_timeout()?))
        };
        let timers = nodes.iter().filter_map(due);
        let next = timers.chain(arrival).min();
        let Some(next) = next.filter(|next| *next <= until) else {
            self.now = self.now.max(until);
            return false;
        };
        self.now = self.now.max(next);
        for (addr, node) in nodes.iter_mut() {
            let now = self.time_at(*addr);
            if node.poll_timeout().is_some_and(|due| due <= now) {
                node.handle_timeout(now);
            }
        }
        let mut reached = BTreeSet::new();
        while let Some(entry) = self.in_flight.first_entry() {
            if entry.key().0 > self.now {
                break;
            }
            let datagram = entry.remove();
            reached.extend(self.deliver(nodes, datagram));
        }
        for index in reached {
            let (addr, node) = &mut nodes[index];
            node.handle_arrivals(self.time_at(*addr));
        }
        true
    }

    /// Sends one datagram, faults included.
    pub fn send(&mut self, from: SocketAddr, to: SocketAddr, bytes: &[u8]) {
        self.launch(from, to, &mut bytes.to_vec());
    }

    fn launch(&mut self, from: SocketAddr, to: SocketAddr, bytes: &mut [u8]) {
        if self.cuts.contains(&(from.ip(), to.ip())) {
            self.tally.cut += 1;
            return;
        }
        if self.longest.get(&(from.ip(), to.ip())).is_some_and(|longest| bytes.len() > *longest) {
            self.tally.too_long += 1;
            return;
        }
        let Self { now, injector, in_flight, sequence, latest, tally, .. } = self;
        injector.inject(bytes, |Delivery { bytes, delay, congested, .. }| {
            let due = *now + delay;
            let latest = latest.entry((from, to)).or_default();
            tally.reordered += u64::from(due < *latest);
            *latest = due.max(*latest);
            *sequence += 1;
            let datagram = InFlight { from, to, bytes: bytes.to_vec(), congested };
            in_flight.insert((due, *sequence), datagram);
        });
    }

    fn collect(&mut self, nodes: &mut [(SocketAddr, &mut dyn Node)]) {
        let mut bytes = Vec::new();
        for (from, node) in nodes {
            let now = self.time_at(*from);
            while let Some(to) = node.poll_transmit(now, &mut bytes) {
                self.launch(at(*from, to.via), to.addr, &mut bytes);
                bytes.clear();
            }
        }
    }

    /// Hands a datagram to its node. Returns the node's index, if it is there.
    fn deliver(
        &mut self,
        nodes: &mut [(SocketAddr, &mut dyn Node)],
        mut datagram: InFlight,
    ) -> Option<usize> {
        let via = |addr: SocketAddr| {
            let ports = datagram.to.port().wrapping_sub(addr.port());
            let via = ports / PORT_STRIDE;
            let its = addr.ip() == datagram.to.ip() && ports.is_multiple_of(PORT_STRIDE);
            (its && usize::from(via) < MAX_PATHS).then_some(via)
        };
        let found = nodes.iter().position(|(addr, _)| via(*addr).is_some());
        let Some((index, via)) = found.and_then(|index| Some((index, via(nodes[index].0)?))) else {
            self.tally.undeliverable += 1;
            return None;
        };
        let now = self.time_at(datagram.to);
        let route = Route { via, ..Route::from(datagram.from) };
        let from = Origin { route, congested: datagram.congested };
        nodes[index].1.handle_datagram(now, from, &mut datagram.bytes);
        self.tally.delivered += 1;
        Some(index)
    }

    fn clock(&self, node: SocketAddr) -> Clock {
        self.clocks.get(&node.ip()).copied().unwrap_or_default()
    }
}

/// Returns the address of a node's socket `via`: the first socket's port, plus `via` times
/// [`PORT_STRIDE`].
#[must_use]
pub fn at(first: SocketAddr, via: u16) -> SocketAddr {
    SocketAddr::new(first.ip(), first.port().wrapping_add(PORT_STRIDE.wrapping_mul(via)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timer_fires_when_its_clock_shows_it_and_not_before() {
        for drift_ppm in [-500, -1, 0, 1, 500, 100_000] {
            let clock = Clock { offset: Duration::from_secs(77), drift_ppm };
            for shown in [0, 1, 77_000_000_000, 77_000_000_001, 123_456_789_012, 1 << 60] {
                let at = clock.reaches(Time(shown));
                assert!(clock.shows(at) >= Time(shown), "{clock:?}: {shown}");
                assert!(
                    at.0 == 0 || clock.shows(Time(at.0 - 1)) < Time(shown),
                    "{clock:?}: {shown}"
                );
            }
        }
    }

    #[test]
    fn a_cut_loses_one_way_until_it_is_mended() {
        let mut network = Network::new(1, Faults::default());
        let [one, two] = [1, 2].map(|host| SocketAddr::from(([10, 0, 0, host], 7)));
        network.cut(one.ip(), two.ip());
        network.send(one, two, b"lost");
        network.send(two, one, b"back");
        assert_eq!(network.tally().cut, 1);
        network.mend(one.ip(), two.ip());
        network.send(one, two, b"there");
        let flights = [(two, one, &b"back"[..]), (one, two, &b"there"[..])];
        assert_eq!(network.in_flight().collect::<Vec<_>>(), flights);
    }
}
