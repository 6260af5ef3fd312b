//! Datagrams over TCP, for networks that drop UDP: an aggregator listens, a client connects (PROTOCOL §10).

pub mod dial;
pub mod stream;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use socket2::{SockRef, TcpKeepalive};
use tracing::{debug, info};

use self::dial::{DialError, Dialer, REFUSED_SPAN};
use self::stream::{DatagramSplitter, MAGIC, append_datagram};
use crate::NicError;
use crate::proto::{Origin, Route, datagram::is_sealed, recovery::MAX_WINDOW_BYTES};

/// Bytes of datagrams that may wait for a connection to take them: what a sender has in flight, and its answers.
pub const QUEUE_BYTES: usize = 2 * MAX_WINDOW_BYTES;
/// The most connections of an aggregator: before one more it closes one, a stranger's if there is one.
pub const MAX_CONNECTIONS: usize = 1280;
/// The time in which a connection has to lead to a session: later it is closed when another one is made.
pub const NAMELESS_SPAN: Duration = Duration::from_secs(10);
/// The wait before a lost connection is made anew.
pub const REDIAL_SPAN: Duration = Duration::from_secs(1);
/// The time after which a connection is lost whose other end acknowledges nothing that was sent: in the midst of a
/// round another one must be made before the peer gives up.
pub const SILENT_SPAN: Duration = Duration::from_secs(5);
/// Bytes that are read from a connection before others have their turn.
const READ_BYTES: usize = 1 << 18;
/// The silence after which the system asks whether the other end is there; it keeps mappings of NATs alive, too.
const KEEPALIVE_SPAN: Duration = Duration::from_secs(20);
/// Files that a process has open beside connections.
const OTHER_FILES: u64 = 256;
/// The wait after which a process that has no space for a connection looks for others.
const FULL_SPAN: Duration = Duration::from_secs(1);

/// The connections of one wire.
#[derive(Debug)]
pub(super) struct Connections {
    role: Role,
    /// Those that were accepted first are first.
    all: Vec<Connection>,
    buffer: Box<[u8]>,
}

#[derive(Debug)]
enum Role {
    /// Accepts connections, but not before this time.
    Listener(TcpListener, Instant),
    Dialer(Dialer, Dialing),
}

/// The state of a client's only connection.
#[derive(Debug)]
enum Dialing {
    Connected,
    /// It was lost; another is made from then on.
    Waiting(Instant),
    /// A thread makes another.
    Connecting(Receiver<Result<TcpStream, DialError>>),
}

/// One connection.
#[derive(Debug)]
struct Connection {
    stream: TcpStream,
    peer: SocketAddr,
    splitter: DatagramSplitter,
    /// Bytes to be sent, from `head` on.
    queue: Vec<u8>,
    head: usize,
    /// Bytes of sealed datagrams that were queued: strangers are sent none.
    sealed: u64,
    since: Instant,
}

impl Connections {
    /// Listens at an address.
    pub(super) fn listen(address: SocketAddr) -> Result<Self, NicError> {
        allow_connections();
        let bind = || {
            let listener = TcpListener::bind(address)?;
            listener.set_nonblocking(true)?;
            Ok(listener)
        };
        let listener = bind().map_err(|e: io::Error| NicError::Bind { address, kind: e.kind() })?;
        Ok(Self::new(Role::Listener(listener, Instant::now())))
    }

    /// Takes the connection that a dialer made; if it is lost another one is made.
    pub(super) fn dialed(stream: TcpStream, dialer: Dialer) -> Result<Self, NicError> {
        let connection = Connection::new(stream, dialer.address)?;
        let mut connections = Self::new(Role::Dialer(dialer, Dialing::Connected));
        connections.all.push(connection);
        Ok(connections)
    }

    fn new(role: Role) -> Self {
        Self { role, all: vec![], buffer: vec![0; READ_BYTES].into() }
    }

    /// Returns where it listens, or what it connects from.
    pub(super) fn local_addr(&self) -> Result<SocketAddr, NicError> {
        Ok(match (&self.role, self.all.first()) {
            (Role::Listener(listener, _), _) => listener.local_addr()?,
            (Role::Dialer(..), Some(connection)) => connection.stream.local_addr()?,
            (Role::Dialer(dialer, _), None) => dialer.address,
        })
    }

    /// Returns whether nobody is connected.
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Iterates over all that may become ready: the connections, then the listener if it accepts now.
    pub(super) fn polled(&self) -> impl Iterator<Item = PollFd<'_>> {
        let connections = self.all.iter().map(|connection| {
            let idle = connection.queue.is_empty();
            let flags = if idle { PollFlags::IN } else { PollFlags::IN | PollFlags::OUT };
            PollFd::from_borrowed_fd(connection.stream.as_fd(), flags)
        });
        let listener = match &self.role {
            Role::Listener(listener, from) if *from <= Instant::now() => {
                Some(PollFd::new(listener, PollFlags::IN))
            }
            _ => None,
        };
        connections.chain(listener)
    }

    /// Returns the route of a connection's datagrams.
    fn route(&self, peer: SocketAddr) -> Route {
        Route { via: 0, addr: peer, is_accepted: matches!(self.role, Role::Listener(..)) }
    }

    /// Queues a burst, and sends what it can. Returns `false` if a client's connection has no space just now; an
    /// aggregator closes those that have none.
    pub(super) fn send(&mut self, to: SocketAddr, burst: &[u8], each: usize) -> bool {
        let Some(at) = self.all.iter().position(|connection| connection.peer == to) else {
            return true;
        };
        let connection = &mut self.all[at];
        if connection.queue.len() - connection.head > QUEUE_BYTES {
            if let Role::Dialer(..) = self.role {
                return false;
            }
            // No window allows so much to whoever reads.
            self.close(at, &io::Error::other("nobody reads"));
            return true;
        }
        for datagram in burst.chunks(each.max(1)) {
            append_datagram(&mut connection.queue, datagram);
            connection.sealed += if is_sealed(datagram) { datagram.len() as u64 } else { 0 };
        }
        if let Err(error) = connection.flush() {
            self.close(at, &error);
        }
        true
    }

    /// Makes, accepts and drops connections, sends what waits, and hands over what came. `ready` says it of each that
    /// was [polled](Self::polled).
    pub(super) fn receive(
        &mut self,
        ready: &[bool],
        take: &mut dyn FnMut(Origin, &mut [u8]),
    ) -> usize {
        let mut count = 0;
        let accepts = ready.get(self.all.len()) == Some(&true);
        // From the last one, since closing one moves those behind it.
        for at in (0..self.all.len()).rev().filter(|at| ready[*at]) {
            let route = self.route(self.all[at].peer);
            let origin = Origin { route, congested: false };
            let connection = &mut self.all[at];
            let read = connection.read(&mut self.buffer, |bytes| take(origin, bytes));
            match read.and_then(|read| connection.flush().map(|()| read)) {
                Ok(read) => count += read,
                Err(error) => self.close(at, &error),
            }
        }
        if accepts {
            self.accept();
        }
        self.redial();
        count
    }

    /// Accepts one of those who connect.
    fn accept(&mut self) {
        for at in (0..self.all.len()).rev() {
            let Connection { sealed, since, .. } = self.all[at];
            if sealed == 0 && since.elapsed() > NAMELESS_SPAN {
                self.close(at, &io::Error::other("no session in time"));
            }
        }
        let Role::Listener(listener, from) = &mut self.role else { return };
        let (stream, peer) = match listener.accept() {
            Ok(accepted) => accepted,
            Err(error) if is_full(&error) => {
                *from = Instant::now() + FULL_SPAN;
                return self.close_least(&error);
            }
            // Whoever connected is gone.
            Err(error) => return debug!(%error, "no connection"),
        };
        if self.all.len() >= MAX_CONNECTIONS {
            self.close_least(&io::Error::other("there are too many connections"));
        }
        match Connection::new(stream, peer) {
            Ok(connection) => self.all.push(connection),
            Err(error) => debug!(%peer, %error, "no connection"),
        }
    }

    /// Closes the connection that is missed least.
    fn close_least(&mut self, error: &io::Error) {
        let all = self.all.iter().map(|connection| (connection.peer.ip(), connection.sealed));
        if let Some(at) = least_missed(&all.collect::<Vec<_>>()) {
            self.close(at, error);
        }
    }

    /// Makes a lost connection anew.
    fn redial(&mut self) {
        let Role::Dialer(dialer, dialing) = &mut self.role else { return };
        let (now, to) = (Instant::now(), dialer.address);
        let ended = match dialing {
            Dialing::Waiting(until) if *until <= now => {
                *dialing = Dialing::Connecting(dialer.start());
                return;
            }
            Dialing::Connecting(receiver) => receiver.try_recv(),
            Dialing::Connected | Dialing::Waiting(_) => return,
        };
        let stream = match ended {
            Err(TryRecvError::Empty) => return,
            Err(TryRecvError::Disconnected) => {
                Err(DialError::Connect { to, kind: ErrorKind::Other })
            }
            Ok(dialed) => dialed,
        };
        let made = stream.and_then(|stream| {
            Connection::new(stream, to).map_err(|e| DialError::Connect { to, kind: e.kind() })
        });
        match made {
            Ok(connection) => {
                info!(%to, "connected again");
                self.all.push(connection);
                *dialing = Dialing::Connected;
            }
            Err(error) => {
                debug!(%to, %error, "not connected yet");
                let wait = if error.is_final() { REFUSED_SPAN } else { REDIAL_SPAN };
                *dialing = Dialing::Waiting(now + wait);
            }
        }
    }

    fn close(&mut self, at: usize, error: &io::Error) {
        let Connection { peer, sealed, .. } = self.all.remove(at);
        info!(%peer, sealed, %error, "the connection ends");
        if let Role::Dialer(_, dialing) = &mut self.role {
            *dialing = Dialing::Waiting(Instant::now() + REDIAL_SPAN);
        }
    }
}

impl Connection {
    fn new(stream: TcpStream, peer: SocketAddr) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        let keepalive = TcpKeepalive::new().with_time(KEEPALIVE_SPAN).with_interval(KEEPALIVE_SPAN);
        let socket = SockRef::from(&stream);
        socket.set_tcp_keepalive(&keepalive)?;
        #[cfg(target_os = "linux")]
        socket.set_tcp_user_timeout(Some(SILENT_SPAN))?;
        let splitter = DatagramSplitter::default();
        let (queue, since) = (MAGIC.to_vec(), Instant::now());
        Ok(Self { stream, peer, splitter, queue, head: 0, sealed: 0, since })
    }

    /// Sends what waits, as far as the system takes it.
    fn flush(&mut self) -> io::Result<()> {
        while self.head < self.queue.len() {
            match self.stream.write(&self.queue[self.head..]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(sent) => self.head += sent,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    // What was sent goes once it is most of the queue.
                    if self.head > self.queue.len() / 2 {
                        self.queue.drain(..self.head);
                        self.head = 0;
                    }
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
        self.queue.clear();
        self.head = 0;
        Ok(())
    }

    /// Hands over the datagrams that came, and returns how many they are.
    fn read(&mut self, buffer: &mut [u8], take: impl FnMut(&mut [u8])) -> io::Result<usize> {
        match self.stream.read(buffer) {
            Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
            Ok(length) => {
                let split = self.splitter.split(&mut buffer[..length], take);
                split.map_err(|fault| io::Error::new(ErrorKind::InvalidData, fault))
            }
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) =>
            {
                Ok(0)
            }
            Err(error) => Err(error),
        }
    }
}

/// Raises this process's limit of open files, as far as it may, to what connections and all else take.
fn allow_connections() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let wanted = maximum.unwrap_or(u64::MAX).min(MAX_CONNECTIONS as u64 + OTHER_FILES);
    if current.is_some_and(|current| current < wanted) {
        // Without it those that are missed least are closed.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum });
    }
}

/// Returns which of some connections, by address and sealed bytes sent, is missed least: one without a session, else
/// the one that was sent least; of the network with most such, so that nobody drives out others by many of his own.
fn least_missed(all: &[(IpAddr, u64)]) -> Option<usize> {
    let group = |(ip, sealed): &(IpAddr, u64)| (*sealed > 0, network(*ip));
    let mut sizes: BTreeMap<_, usize> = BTreeMap::new();
    all.iter().for_each(|one| *sizes.entry(group(one)).or_default() += 1);
    let rank = |one: &(IpAddr, u64)| (one.1 > 0, Reverse(sizes[&group(one)]), one.1);
    (0..all.len()).min_by_key(|at| rank(&all[*at]))
}

/// Returns the network of an address: whoever has one address by IPv6 may have 80 bits of them.
fn network(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits() >> 80 << 80).into(),
        ip => ip,
    }
}

/// Returns whether the process, or the system, has no space for one more connection.
fn is_full(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let full = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM];
    full.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_connections_of_one_network_drive_out_each_other() {
        let at = |ip: &str, sealed| (ip.parse().unwrap(), sealed);
        let all = |others: &[_]| {
            let clients = [at("10.0.0.1", 9), at("10.0.0.2", 7), at("10.0.0.2", 8)];
            least_missed(&[&clients, others].concat())
        };
        assert_eq!(all(&[]), Some(1), "of those at most from one address the one sent least");
        assert_eq!(all(&[at("fd00::1", 0)]), Some(3), "whoever has no session goes first");
        let flood = [at("192.0.2.1", 0), at("fd00::1", 0), at("fd00:0:0:2::1", 0)];
        assert_eq!(all(&flood), Some(4), "80 bits are one network");
        let members = [at("fd00::1", 900), at("fd00:0:0:9::2", 800), at("fd00::3", 1000)];
        assert_eq!(all(&members), Some(4), "also of those with sessions");
        assert_eq!(least_missed(&[]), None);
    }
}
