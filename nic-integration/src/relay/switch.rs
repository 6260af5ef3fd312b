//! A switch on real sockets: many clients, one server, and a bad network in each direction.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use socket2::SockRef;
use tracing::{debug, warn};

use super::{Bottleneck, Datagram, Direction, DirectionTally};
use crate::NicError;
use crate::faults::Faults;
use crate::proto::Time;
use crate::wire::socket::{is_transient, open};

/// The most clients at a time; each has a socket towards the server.
pub const MAX_CLIENTS: usize = 512;
/// A client with no traffic for this long gives way to a new one.
pub const IDLE_SPAN: Duration = Duration::from_secs(60);
/// Datagrams taken from one socket before those that are due have their turn.
const BATCH: usize = 64;
/// The ECN field of a datagram that met congestion.
const CONGESTED: u32 = 3;
/// The longest sleep.
const MAX_SLEEP: Duration = Duration::from_millis(100);

/// A switch that forwards datagrams between its clients and one server.
pub struct RelaySwitch {
    listener: UdpSocket,
    server: SocketAddr,
    /// By the address that they send from.
    clients: BTreeMap<SocketAddr, SwitchClient>,
    /// Datagrams for the server, each with its client.
    to_server: Direction<SocketAddr>,
    /// Datagrams for clients, each with its client.
    to_clients: Direction<SocketAddr>,
    origin: Instant,
    buffer: Vec<u8>,
    turned_away: u64,
    unsent: u64,
    /// Bytes of datagrams that the server was sent.
    bytes_to_server: u64,
}

/// A client, as the server sees it.
struct SwitchClient {
    socket: UdpSocket,
    /// The time of its last datagram, in either direction.
    active: Time,
}

impl RelaySwitch {
    /// Listens at `listen` for clients of `server`. Both directions have the same faults, and a
    /// line of their own that all clients share; one seed is for both.
    ///
    /// # Errors
    ///
    /// [`NicError::Wire`]: the address is not free, or no route leads to the server.
    pub fn bind(
        listen: SocketAddr,
        server: SocketAddr,
        faults: Faults,
        line: Bottleneck,
        seed: u64,
    ) -> Result<Self, NicError> {
        let listener = open(listen)?;
        listener.set_nonblocking(true)?;
        // A server that no client could reach is an error now, before the first one comes.
        upstream(server)?;
        Ok(Self {
            listener,
            server,
            clients: BTreeMap::new(),
            to_server: Direction::new(faults, line, seed),
            to_clients: Direction::new(faults, line, !seed),
            origin: Instant::now(),
            buffer: vec![0; 1 << 16],
            turned_away: 0,
            unsent: 0,
            bytes_to_server: 0,
        })
    }

    /// Returns the address in use, its port chosen by the system if none was asked for.
    ///
    /// # Errors
    ///
    /// [`NicError::Wire`].
    pub fn local_addr(&self) -> Result<SocketAddr, NicError> {
        Ok(self.listener.local_addr()?)
    }

    /// Returns the counts of datagrams for the server, and of those for clients.
    #[must_use]
    pub fn tallies(&self) -> (DirectionTally, DirectionTally) {
        (self.to_server.tally(), self.to_clients.tally())
    }

    /// Returns the number of datagrams of clients that there was no space for.
    #[must_use]
    pub fn turned_away(&self) -> u64 {
        self.turned_away
    }

    /// Returns the number of datagrams, counted as forwarded, that no socket took.
    #[must_use]
    pub fn unsent(&self) -> u64 {
        self.unsent
    }

    /// Forwards until `span` is over or `most` bytes were sent to the server, and without both for ever. Datagrams then
    /// under way are lost.
    ///
    /// # Errors
    ///
    /// [`NicError::Wire`] if a socket has failed for good.
    pub fn run(&mut self, span: Option<Duration>, most: Option<u64>) -> Result<(), NicError> {
        let end = span.map(|span| self.now() + span);
        let most = most.map_or(u64::MAX, |most| self.bytes_to_server.saturating_add(most));
        loop {
            let now = self.now();
            self.forward(now, most);
            if end.is_some_and(|end| end <= now) || most <= self.bytes_to_server {
                return Ok(());
            }
            let due = [self.to_server.due(), self.to_clients.due(), end].into_iter().flatten();
            let wait = due.min().map_or(MAX_SLEEP, |due| due.since(now)).min(MAX_SLEEP);
            let (listener, clients) = self.ready(wait)?;
            let now = self.now();
            if listener {
                self.receive_from_clients(now)?;
            }
            for addr in clients {
                self.receive_from_server(now, addr)?;
            }
        }
    }

    fn now(&self) -> Time {
        Time::ZERO + self.origin.elapsed()
    }

    /// Sends the datagrams that are due, to the server up to so many bytes.
    fn forward(&mut self, now: Time, most: u64) {
        while self.bytes_to_server < most
            && let Some(Datagram { to: from, bytes, congested, .. }) = self.to_server.pop(now)
        {
            let send = |client: &SwitchClient| {
                marked(&client.socket, congested, || client.socket.send(&bytes).is_ok())
            };
            if self.clients.get(&from).is_some_and(send) {
                self.bytes_to_server += bytes.len() as u64;
            } else {
                self.unsent += 1;
            }
        }
        while let Some(Datagram { to, bytes, congested, .. }) = self.to_clients.pop(now) {
            let send = || self.listener.send_to(&bytes, to).is_ok();
            self.unsent += u64::from(!marked(&self.listener, congested, send));
        }
    }

    /// Waits until something arrives. Returns whether it is for the listener, and the clients whose
    /// sockets have something.
    fn ready(&self, wait: Duration) -> Result<(bool, Vec<SocketAddr>), NicError> {
        let sockets = [&self.listener].into_iter().chain(self.clients.values().map(|c| &c.socket));
        let mut polled: Vec<_> = sockets.map(|s| PollFd::new(s, PollFlags::IN)).collect();
        let span = Timespec::try_from(wait).ok();
        match poll(&mut polled, span.as_ref()).map_err(std::io::Error::from) {
            Err(error) if !is_transient(&error) => return Err(error.into()),
            _ => {}
        }
        let is_ready = |fd: &PollFd<'_>| !fd.revents().is_empty();
        let named = self.clients.keys().zip(&polled[1..]);
        let clients = named.filter(|(_, fd)| is_ready(fd)).map(|(addr, _)| *addr).collect();
        Ok((is_ready(&polled[0]), clients))
    }

    fn receive_from_clients(&mut self, now: Time) -> Result<(), NicError> {
        for _ in 0..BATCH {
            let (length, from) = match self.listener.recv_from(&mut self.buffer) {
                Ok(received) => received,
                Err(error) if is_transient(&error) => break,
                Err(error) => return Err(error.into()),
            };
            if self.admit(now, from) {
                self.to_server.push(now, &from, &mut self.buffer[..length]);
            } else {
                self.turned_away += 1;
            }
        }
        Ok(())
    }

    fn receive_from_server(&mut self, now: Time, to: SocketAddr) -> Result<(), NicError> {
        let Some(client) = self.clients.get_mut(&to) else { return Ok(()) };
        for _ in 0..BATCH {
            let length = match client.socket.recv(&mut self.buffer) {
                Ok(length) => length,
                Err(error) if is_transient(&error) => break,
                Err(error) => return Err(error.into()),
            };
            client.active = now;
            self.to_clients.push(now, &to, &mut self.buffer[..length]);
        }
        Ok(())
    }

    /// Notes a client's datagram, be it known or new. Returns whether there is space for the client.
    fn admit(&mut self, now: Time, from: SocketAddr) -> bool {
        if let Some(client) = self.clients.get_mut(&from) {
            client.active = now;
            return true;
        }
        self.clients.retain(|_, client| now.since(client.active) < IDLE_SPAN);
        if self.clients.len() >= MAX_CLIENTS {
            return false;
        }
        match upstream(self.server) {
            Ok(socket) => {
                debug!(%from, "a new client");
                self.clients.insert(from, SwitchClient { socket, active: now });
                true
            }
            Err(error) => {
                warn!(%from, %error, "no socket for another client");
                false
            }
        }
    }
}

/// Sends, with a mark of congestion if there is to be one. Returns what `send` returns.
fn marked(socket: &UdpSocket, congested: bool, send: impl FnOnce() -> bool) -> bool {
    if !congested {
        return send();
    }
    // A system that cannot mark still forwards.
    let set = |ecn| match socket.local_addr() {
        Ok(SocketAddr::V6(_)) => SockRef::from(socket).set_tclass_v6(ecn),
        _ => SockRef::from(socket).set_tos_v4(ecn),
    };
    let _ = set(CONGESTED);
    let sent = send();
    let _ = set(0);
    sent
}

/// Opens a socket that exchanges datagrams with the server only.
fn upstream(server: SocketAddr) -> Result<UdpSocket, NicError> {
    let any: IpAddr = match server {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = open((any, 0).into())?;
    socket.connect(server)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}
