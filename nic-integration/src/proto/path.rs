//! Paths to a peer, each with its own window and timers; packets are sprayed over them
//! (PROTOCOL §4.8).

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use super::datagram::OVERHEAD_BYTES;
use super::outbox::FlowHealth;
use super::path_size::{DatagramSizes, PathSize};
use super::recovery::Recovery;
use super::time::Time;

/// The most paths to one peer.
pub const MAX_PATHS: usize = 16;
/// Timeouts in a row after which a path rests, if there is another.
pub const REST_TIMEOUTS: u32 = 2;
/// The factor by which a path's round trips exceed those of the quickest before it rests, if they
/// also exceed them by [`LAG_FLOOR`].
pub const LAG: u32 = 8;
/// The difference of round trips up to which a path does not lag.
pub const LAG_FLOOR: Duration = Duration::from_millis(5);
/// Samples of the round-trip time before a path is taken to lag.
pub const LAG_SAMPLES: u32 = 4;
/// The wait before the first datagram tries a path that rests; doubled by each, up to
/// [`MAX_REST_SPAN`].
pub const REST_SPAN: Duration = Duration::from_millis(100);
/// The longest wait between two datagrams that try a path.
pub const MAX_REST_SPAN: Duration = Duration::from_secs(2);

/// The address at the other end of a datagram's path, and our own socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Route {
    /// The number of the wire's socket, from 0.
    pub via: u16,
    /// The other end.
    pub addr: SocketAddr,
    /// Whether it is a connection that we accepted (TCP), and no socket of ours.
    pub is_accepted: bool,
}

impl From<SocketAddr> for Route {
    /// Makes a route by the first socket.
    fn from(addr: SocketAddr) -> Self {
        Self { via: 0, addr, is_accepted: false }
    }
}

/// The route that a datagram came by, and its mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The route back.
    pub route: Route,
    /// A queue on the path marked it: it was about to drop datagrams (ECN, RFC 3168).
    pub congested: bool,
}

impl<T: Into<Route>> From<T> for Origin {
    /// Makes the origin of a datagram that is not marked.
    fn from(route: T) -> Self {
        Self { route: route.into(), congested: false }
    }
}

/// Packets of one path that were answered together.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Answered {
    pub(super) path: usize,
    pub(super) count: usize,
    /// The newest of them, and when it was sent.
    pub(super) newest: (u64, Time),
    /// One of them tried the path.
    pub(super) tried: bool,
    /// Bytes of the longest of them.
    pub(super) longest: u32,
}

/// The state of a path that is tried now and then, and otherwise avoided.
#[derive(Clone, Copy, Debug)]
struct Rest {
    next: Time,
    span: Duration,
    /// The next datagram tries it.
    due: bool,
}

/// One path to a peer.
#[derive(Debug)]
pub(super) struct NetworkPath {
    pub(super) route: Route,
    pub(super) recovery: Recovery,
    pub(super) size: PathSize,
    pub(super) in_flight: u32,
    /// Packets sent by it, oldest first; some are no longer in flight.
    pub(super) sent: VecDeque<u64>,
    /// One more than the newest packet that was answered, 0 before the first: those before it were
    /// overtaken.
    pub(super) answered_to: u64,
    /// When something was last sent or answered: the timeout counts from here.
    pub(super) timer_start: Time,
    /// When something was last answered.
    answered: Time,
    /// When something last came by it.
    pub(super) last_received: Time,
    /// Datagrams that must ask for an answer by it, however full the window.
    pub(super) probes: u32,
    /// When the first of the newest timeouts in a row expired.
    silent: Time,
    rest: Option<Box<Rest>>,
}

impl NetworkPath {
    pub(super) fn new(route: Route, sizes: DatagramSizes) -> Self {
        let size = PathSize::new(sizes);
        Self {
            route,
            recovery: Recovery::new(size.current()),
            size,
            in_flight: 0,
            sent: VecDeque::new(),
            answered_to: 0,
            timer_start: Time::ZERO,
            answered: Time::ZERO,
            last_received: Time::ZERO,
            probes: 0,
            silent: Time::ZERO,
            rest: None,
        }
    }

    /// Returns whether datagrams may be sent by it as the window has headroom.
    pub(super) fn is_up(&self) -> bool {
        self.rest.is_none()
    }

    pub(super) fn has_headroom(&self) -> bool {
        self.is_up() && (self.in_flight as usize) < self.recovery.window()
    }

    /// Compares how full the windows of two paths will be with one more.
    pub(super) fn fill_with_one_more(&self, other: &Self) -> std::cmp::Ordering {
        let fill = |path: &Self, of: &Self| (path.in_flight as usize + 1) * of.recovery.window();
        fill(self, other).cmp(&fill(other, self))
    }

    /// Returns the round-trip time that others' are compared with, while the path answers.
    fn answering_rtt(&self) -> Option<Duration> {
        self.recovery.round_trip().filter(|_| self.recovery.timeouts() == 0)
    }

    /// Rests from now on.
    pub(super) fn rest(&mut self, now: Time) {
        self.probes = 0;
        self.rest = Some(Box::new(Rest { next: now + REST_SPAN, span: REST_SPAN, due: false }));
    }

    /// Notes that a datagram tries it now.
    pub(super) fn on_trial(&mut self) {
        if let Some(rest) = &mut self.rest {
            rest.due = false;
        }
    }

    /// Returns whether a datagram is to try it.
    pub(super) fn wants_trial(&self) -> bool {
        self.rest.as_ref().is_some_and(|rest| rest.due)
    }

    /// Returns the bytes of payload of datagrams that are sent without trying whether the path takes them.
    pub(super) fn payload_limit(&self) -> u32 {
        self.size.current().saturating_sub(OVERHEAD_BYTES as u32)
    }

    /// Returns the bytes of payload of a datagram that asks for an answer.
    pub(super) fn asking_limit(&self) -> u32 {
        self.size.asking(self.recovery.timeouts()).saturating_sub(OVERHEAD_BYTES as u32)
    }

    /// Notes that datagrams were answered.
    pub(super) fn on_answered(&mut self, longest: u32) {
        if self.size.on_answered(longest, self.recovery.timeouts()) {
            self.recovery.set_datagram_bytes(self.size.current());
        }
    }

    /// Falls back to short datagrams.
    pub(super) fn fall_back(&mut self) {
        self.size.fall_back();
        self.recovery.set_datagram_bytes(self.size.current());
    }

    /// Notes a timeout; `true` if everything in flight is lost by it.
    pub(super) fn on_silence(&mut self, now: Time) -> bool {
        self.timer_start = now;
        if self.recovery.timeouts() == 0 {
            self.silent = now;
        }
        self.recovery.on_timeout()
    }

    /// Ends the wait between two trials, if it is over.
    pub(super) fn on_timeout(&mut self, now: Time) {
        if let Some(rest) = self.rest.as_mut().filter(|rest| rest.next <= now) {
            rest.due = true;
            rest.span = (2 * rest.span).min(MAX_REST_SPAN);
            rest.next = now + rest.span;
        }
    }

    /// Uses it again: a datagram that tried it was answered, and quickly enough.
    pub(super) fn resume(&mut self) {
        self.rest = None;
        self.recovery.begin_anew();
    }

    /// Returns when the next trial is due.
    pub(super) fn next_trial(&self) -> Option<Time> {
        self.rest.as_ref().map(|rest| rest.next)
    }

    /// Forgets its packets, because packets are numbered anew.
    pub(super) fn clear(&mut self) {
        self.sent.clear();
        (self.in_flight, self.probes, self.answered_to) = (0, 0, 0);
        self.size.forget_packets();
    }
}

/// A channel's paths to a peer. Messages are dealt to *flows*; a flow's datagrams are sprayed over
/// its own paths.
#[derive(Debug)]
pub(super) struct Paths {
    all: Vec<NetworkPath>,
    sizes: DatagramSizes,
    /// Paths are our own sockets, not learned from the peer's addresses.
    fixed: bool,
    /// The most paths.
    most: u16,
    /// The path that something last came by.
    last: u16,
    /// Datagrams sent by one path before the next is chosen.
    spray: u16,
    /// For each flow: the path in use, and datagrams since it was chosen.
    flows: Box<[(u16, u16)]>,
    /// The number of times that a path began to rest.
    rested: u32,
}

impl Paths {
    /// Makes paths by `routes`, dealt to `flows`. If `fixed` they are our own sockets; otherwise
    /// there is none yet, and they are learned from the addresses that the peer sends from.
    pub(super) fn new(
        routes: &[Route],
        fixed: bool,
        flows: usize,
        spray: u32,
        sizes: DatagramSizes,
    ) -> Self {
        Self {
            all: routes.iter().map(|route| NetworkPath::new(*route, sizes)).collect(),
            sizes,
            fixed,
            most: routes.len().max(1) as u16,
            last: 0,
            spray: u16::try_from(spray).unwrap_or(u16::MAX),
            flows: (0..flows.max(1) as u16).map(|flow| (flow, 0)).collect(),
            rested: 0,
        }
    }

    /// Frees memory that can be remade: nothing is in flight.
    pub(super) fn shrink(&mut self) {
        self.all.shrink_to_fit();
        self.all.iter_mut().for_each(|path| path.sent = VecDeque::new());
    }

    pub(super) fn all(&self) -> &[NetworkPath] {
        &self.all
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn get(&mut self, path: usize) -> &mut NetworkPath {
        &mut self.all[path]
    }

    pub(super) fn flows(&self) -> usize {
        self.flows.len()
    }

    /// Returns the most datagrams in flight by all paths together.
    pub(super) fn limit(&self) -> usize {
        self.all.first().map_or(0, |path| path.recovery.limit())
    }

    /// Returns the route of answers: that by which something last came.
    pub(super) fn answers(&self) -> Option<Route> {
        self.all.get(usize::from(self.last)).map(|path| path.route)
    }

    /// Sets the peer's address.
    pub(super) fn set_addr(&mut self, addr: SocketAddr) {
        if !self.fixed {
            return;
        }
        self.all.iter_mut().for_each(|path| path.route.addr = addr);
    }

    /// Sets the most paths, as many as the peer has sockets. Paths that are there already stay.
    pub(super) fn admit_up_to(&mut self, most: usize) {
        self.most = most.clamp(1, MAX_PATHS) as u16;
    }

    /// Notes that a new packet came by `route`. If there are more than the most, the learned path
    /// that was silent for longest is replaced, and its state with it: its number is returned.
    pub(super) fn on_received(&mut self, now: Time, route: Route) -> Option<usize> {
        let (fixed, mut replaced) = (self.fixed, None);
        let is = |path: &NetworkPath| {
            if fixed { path.route.via == route.via } else { path.route == route }
        };
        // Most packets come by the same path as the one before.
        if !self.all.get(usize::from(self.last)).is_some_and(is) {
            let known = self.all.iter().position(is);
            let last = match known {
                Some(path) => path,
                None if fixed => return None,
                None if self.all.len() < usize::from(self.most) => {
                    self.all.push(NetworkPath::new(route, self.sizes));
                    self.all.len() - 1
                }
                None => {
                    let silence = |(_, path): &(usize, &NetworkPath)| path.last_received;
                    let silent = self.all.iter().enumerate().min_by_key(silence);
                    let path = silent.map_or(0, |(path, _)| path);
                    let own = &mut self.all[path];
                    own.size = PathSize::new(self.sizes);
                    (own.recovery, own.rest) = (Recovery::new(own.size.current()), None);
                    replaced = Some(path);
                    path
                }
            };
            self.last = last as u16;
        }
        let path = &mut self.all[usize::from(self.last)];
        (path.route, path.last_received) = (route, now);
        replaced
    }

    fn of_flow(&self, flow: usize) -> impl Iterator<Item = usize> + Clone + '_ {
        (flow..self.all.len()).step_by(self.flows.len())
    }

    /// Chooses the path of a flow's next datagram, if one has headroom: the same for some datagrams,
    /// then the one whose window is least full, of those that are not silent if there are any.
    pub(super) fn choose(&self, flow: usize) -> Option<usize> {
        let (at, streak) = self.flows[flow];
        let at = at as usize;
        let silent = |path: usize| self.all[path].recovery.timeouts() > 0;
        if streak < self.spray
            && self.all.get(at).is_some_and(NetworkPath::has_headroom)
            && !silent(at)
        {
            return Some(at);
        }
        let open = self.of_flow(flow).filter(|&path| self.all[path].has_headroom());
        let fill = |a: usize, b: usize| self.all[a].fill_with_one_more(&self.all[b]);
        open.min_by(|&a, &b| silent(a).cmp(&silent(b)).then_with(|| fill(a, b)))
    }

    /// Notes that a datagram of a flow goes by that path; `true` if it is the last before the next
    /// path is chosen.
    pub(super) fn take(&mut self, flow: usize, path: usize) -> bool {
        let (at, streak) = &mut self.flows[flow];
        let path = path as u16;
        *streak = if *at == path && *streak < self.spray { *streak + 1 } else { 1 };
        *at = path;
        *streak >= self.spray
    }

    /// Iterates over the other paths of a path's flow that do not rest.
    fn others(&self, path: usize) -> impl Iterator<Item = &NetworkPath> {
        let flow = path % self.flows.len();
        let others = self.of_flow(flow).filter(move |&other| other != path);
        others.map(|other| &self.all[other]).filter(|other| other.is_up())
    }

    /// Returns the health of a flow's paths.
    pub(super) fn health(&self, flow: usize) -> FlowHealth {
        let paths = self.of_flow(flow).map(|path| &self.all[path]);
        let up = paths.clone().filter(|path| path.is_up());
        FlowHealth {
            up: up.clone().next().is_some(),
            answered: up.clone().map(|path| path.answered).max().unwrap_or(Time::ZERO),
            quickest: up.filter_map(NetworkPath::answering_rtt).min(),
        }
    }

    /// Rests a path if it alone is silent: another, maybe of another channel, was answered since
    /// its first timeout. Returns whether it begins to rest.
    pub(super) fn rest_if_silent(
        &mut self,
        now: Time,
        path: usize,
        elsewhere: Option<FlowHealth>,
    ) -> bool {
        let own = &self.all[path];
        let silent = own.recovery.timeouts() >= REST_TIMEOUTS && own.is_up();
        let others = self.others(path).map(|other| other.answered);
        let answered = others.chain(elsewhere.map(|others| others.answered)).max();
        if silent && answered.is_some_and(|answered| answered >= own.silent) {
            self.rested += 1;
            self.all[path].rest(now);
            return true;
        }
        false
    }

    /// Returns whether another path of the same flow may carry its datagrams.
    pub(super) fn has_other(&self, path: usize) -> bool {
        self.others(path).next().is_some()
    }

    /// Notes answers to datagrams that went by a path.
    pub(super) fn on_answers(
        &mut self,
        now: Time,
        answered: &Answered,
        elsewhere: Option<FlowHealth>,
    ) {
        let Answered { path, count, newest: (packet, sent), tried, longest } = *answered;
        let own = &mut self.all[path];
        // The answer to an older one may have waited any time for this ACK.
        let sample = (own.answered_to <= packet).then(|| now.since(sent));
        own.answered_to = own.answered_to.max(packet + 1);
        (own.timer_start, own.answered, own.probes) = (now, now, 0);
        let tried = tried && sample.is_some();
        if tried {
            own.recovery.forget_round_trip();
        }
        own.on_answered(longest);
        own.recovery.on_answers(count, sample);
        if tried && !self.lags(path, 1, elsewhere) {
            self.all[path].resume();
        }
    }

    /// Rests a path whose round trips take too long, once all answers of one ACK are counted.
    pub(super) fn rest_if_late(&mut self, now: Time, path: usize, elsewhere: Option<FlowHealth>) {
        if self.all[path].is_up() && self.lags(path, LAG_SAMPLES, elsewhere) {
            self.rested += 1;
            self.all[path].rest(now);
        }
    }

    /// Returns whether a path's round trips, given at least `samples` of them, take too much longer
    /// than those of the quickest other.
    fn lags(&self, path: usize, samples: u32, elsewhere: Option<FlowHealth>) -> bool {
        let own = &self.all[path].recovery;
        let others = self.others(path).filter_map(NetworkPath::answering_rtt);
        let quickest = others.chain(elsewhere.and_then(|others| others.quickest)).min();
        let pair = quickest.zip(own.round_trip()).filter(|_| own.samples() >= samples);
        pair.is_some_and(|(quick, own)| own > LAG * quick && own > quick + LAG_FLOOR)
    }

    /// Rests all paths until something comes by one.
    pub(super) fn rest_all(&mut self, now: Time) {
        self.all.iter_mut().for_each(|path| path.rest(now));
    }

    /// Uses all paths again.
    pub(super) fn resume_all(&mut self) {
        self.all.iter_mut().filter(|path| !path.is_up()).for_each(NetworkPath::resume);
    }

    /// Uses the path again by which something last came.
    pub(super) fn resume_last(&mut self) {
        let path = self.all.get_mut(usize::from(self.last));
        if let Some(path) = path.filter(|path| !path.is_up()) {
            path.resume();
        }
    }

    /// Returns a path by which a datagram must ask for an answer.
    pub(super) fn wants_probe(&self) -> Option<usize> {
        self.all.iter().position(|path| path.probes > 0)
    }

    /// Returns a resting path that a datagram must try.
    pub(super) fn wants_trial(&self) -> Option<usize> {
        self.all.iter().position(NetworkPath::wants_trial)
    }

    /// Takes the number of times that a path began to rest since the last call.
    pub(super) fn take_rested(&mut self) -> u64 {
        std::mem::take(&mut self.rested).into()
    }

    /// Forgets the state of all paths but their routes.
    pub(super) fn reset(&mut self) {
        for path in &mut self.all {
            let last_received = path.last_received;
            *path = NetworkPath { last_received, ..NetworkPath::new(path.route, self.sizes) };
        }
    }
}
