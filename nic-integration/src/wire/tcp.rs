//! Datagrams over TCP, for networks that drop UDP: an aggregator listens, a client connects (PROTOCOL §10).

pub mod dial;
pub mod framing;

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use socket2::{SockRef, TcpKeepalive};
use tracing::{debug, info};

use crate::NicError;
use crate::proto::{Origin, Route, recovery::MAX_WINDOW_BYTES};

use self::dial::{Dial, DialError};
use self::framing::{FrameSplitter, GREETING, append_frame};

/// Bytes of datagrams that may wait for a connection to take them: what a sender has in flight, and its answers.
pub const QUEUE_BYTES: usize = 2 * MAX_WINDOW_BYTES;
/// The most connections of an aggregator. One more closes the connection that the least was sent by.
pub const MAX_CONNECTIONS: usize = 512;
/// Bytes that are read from a connection before others have their turn.
const READ_BYTES: usize = 1 << 18;
/// The wait before a lost connection is made anew.
pub const REDIAL_SPAN: Duration = Duration::from_secs(1);
/// The silence after which the system asks whether the other end is there; it keeps mappings of NATs alive, too.
const KEEPALIVE_SPAN: Duration = Duration::from_secs(20);

/// The connections of one wire.
#[derive(Debug)]
pub(super) struct Connections {
    role: Role,
    all: Vec<Connection>,
    buffer: Box<[u8]>,
}

#[derive(Debug)]
enum Role {
    Listens(TcpListener),
    Dials(Dial, Dialing),
}

/// The state of a client's only connection.
#[derive(Debug)]
enum Dialing {
    Connected,
    /// It was lost; another is made from then on.
    Waits(Instant),
    /// A thread makes another.
    Under(Receiver<Result<TcpStream, DialError>>),
}

/// One connection.
#[derive(Debug)]
struct Connection {
    stream: TcpStream,
    peer: SocketAddr,
    splitter: FrameSplitter,
    /// Bytes to be sent, from `head` on.
    queue: Vec<u8>,
    head: usize,
    /// Bytes sent in all.
    sent: u64,
}

impl Connections {
    /// Listens at an address.
    pub(super) fn listen(address: SocketAddr) -> Result<Self, NicError> {
        let bind = || {
            let listener = TcpListener::bind(address)?;
            listener.set_nonblocking(true)?;
            Ok(listener)
        };
        let listener = bind().map_err(|e: io::Error| NicError::Bind { address, kind: e.kind() })?;
        Ok(Self::new(Role::Listens(listener)))
    }

    /// Connects to an aggregator; from then on a lost connection is made anew.
    pub(super) fn dial(dial: Dial) -> Result<Self, NicError> {
        let connection = Connection::new(dial.connect()?, dial.address)?;
        let mut connections = Self::new(Role::Dials(dial, Dialing::Connected));
        connections.all.push(connection);
        Ok(connections)
    }

    fn new(role: Role) -> Self {
        Self { role, all: vec![], buffer: vec![0; READ_BYTES].into() }
    }

    /// Returns where it listens, or what it connects from.
    pub(super) fn local_addr(&self) -> Result<SocketAddr, NicError> {
        Ok(match (&self.role, self.all.first()) {
            (Role::Listens(listener), _) => listener.local_addr()?,
            (Role::Dials(..), Some(connection)) => connection.stream.local_addr()?,
            (Role::Dials(dial, _), None) => dial.address,
        })
    }

    /// Returns whether nobody is connected.
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Iterates over all that may become ready: the connections, then the listener.
    pub(super) fn polled(&self) -> impl Iterator<Item = PollFd<'_>> {
        let connections = self.all.iter().map(|connection| {
            let idle = connection.queue.is_empty();
            let flags = if idle { PollFlags::IN } else { PollFlags::IN | PollFlags::OUT };
            PollFd::from_borrowed_fd(connection.stream.as_fd(), flags)
        });
        let listener = match &self.role {
            Role::Listens(listener) => Some(PollFd::new(listener, PollFlags::IN)),
            Role::Dials(..) => None,
        };
        connections.chain(listener)
    }

    /// Returns the route of a connection's datagrams.
    fn route(&self, peer: SocketAddr) -> Route {
        Route { via: 0, addr: peer, is_accepted: matches!(self.role, Role::Listens(_)) }
    }

    /// Queues a burst, and sends what it can. Returns `false` if a client's connection has no space just now; an
    /// aggregator closes those that have none.
    pub(super) fn send(&mut self, to: SocketAddr, burst: &[u8], each: usize) -> bool {
        let Some(at) = self.all.iter().position(|connection| connection.peer == to) else {
            return true;
        };
        let connection = &mut self.all[at];
        if connection.queue.len() - connection.head > QUEUE_BYTES {
            if let Role::Dials(..) = self.role {
                return false;
            }
            // No window allows so much to whoever reads.
            self.close(at, &io::Error::other("nobody reads"));
            return true;
        }
        burst.chunks(each.max(1)).for_each(|bytes| append_frame(&mut connection.queue, bytes));
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
        if ready.last() == Some(&true) {
            self.accept();
        }
        self.redial();
        count
    }

    /// Accepts one of those who connect.
    pub(super) fn accept(&mut self) {
        let Role::Listens(listener) = &self.role else { return };
        let accept = || {
            let (stream, peer) = listener.accept()?;
            Connection::new(stream, peer)
        };
        match accept() {
            Ok(connection) => self.all.push(connection),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return,
            // The process has no space for one more.
            Err(error) => return self.close_least(&error),
        }
        if self.all.len() > MAX_CONNECTIONS {
            self.close_least(&io::Error::other("there are too many connections"));
        }
    }

    /// Closes the connection that the least was sent by: strangers get little.
    fn close_least(&mut self, error: &io::Error) {
        let least = self.all.iter().enumerate().min_by_key(|(_, connection)| connection.sent);
        if let Some((at, _)) = least {
            self.close(at, error);
        }
    }

    /// Makes a lost connection anew, on a thread of its own, since that takes its time.
    fn redial(&mut self) {
        let Role::Dials(dial, dialing) = &mut self.role else { return };
        let now = Instant::now();
        match dialing {
            Dialing::Waits(until) if *until <= now => {
                let (sender, receiver) = channel();
                let dial = dial.clone();
                thread::spawn(move || sender.send(dial.connect()));
                *dialing = Dialing::Under(receiver);
            }
            Dialing::Under(receiver) => match receiver.try_recv() {
                Err(TryRecvError::Empty) => {}
                ended => {
                    let stream = ended
                        .map_err(io::Error::other)
                        .and_then(|dialed| dialed.map_err(io::Error::other));
                    match stream.and_then(|stream| Connection::new(stream, dial.address)) {
                        Ok(connection) => {
                            info!(to = %dial.address, "connected again");
                            self.all.push(connection);
                            *dialing = Dialing::Connected;
                        }
                        Err(error) => {
                            debug!(to = %dial.address, %error, "not connected yet");
                            *dialing = Dialing::Waits(now + REDIAL_SPAN);
                        }
                    }
                }
            },
            Dialing::Connected | Dialing::Waits(_) => {}
        }
    }

    fn close(&mut self, at: usize, error: &io::Error) {
        let Connection { peer, sent, .. } = self.all.swap_remove(at);
        info!(%peer, sent, %error, "the connection ends");
        if let Role::Dials(_, dialing) = &mut self.role {
            *dialing = Dialing::Waits(Instant::now() + REDIAL_SPAN);
        }
    }
}

impl Connection {
    fn new(stream: TcpStream, peer: SocketAddr) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        let keepalive = TcpKeepalive::new().with_time(KEEPALIVE_SPAN).with_interval(KEEPALIVE_SPAN);
        SockRef::from(&stream).set_tcp_keepalive(&keepalive)?;
        let splitter = FrameSplitter::default();
        Ok(Self { stream, peer, splitter, queue: GREETING.to_vec(), head: 0, sent: 0 })
    }

    /// Sends what waits, as far as the system takes it.
    fn flush(&mut self) -> io::Result<()> {
        while self.head < self.queue.len() {
            match self.stream.write(&self.queue[self.head..]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(sent) => {
                    self.head += sent;
                    self.sent += sent as u64;
                }
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
