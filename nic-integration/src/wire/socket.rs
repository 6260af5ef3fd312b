//! UDP sockets, many datagrams a system call: the kernel cuts what is sent (GSO) and joins what
//! arrives (GRO), where it can. Beside them, or alone, connections by TCP.

use std::io::{Error, ErrorKind, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::task::Waker;
use std::time::Duration;

use quinn_udp::{EcnCodepoint, RecvMeta, Transmit, UdpSocketState};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use socket2::{Domain, Protocol, Socket, Type};
use tracing::{debug, warn};

use crate::NicError;
use crate::proto::{DatagramSizes, Origin, Route};

use super::Wire;
use super::tcp::{Connections, dial::Dialer};
use super::waker::WakeSocket;

/// Bytes of buffer asked for in either direction; the system may grant less.
pub const SOCKET_BUFFER_BYTES: usize = 4 << 20;
/// Buffers that one call may fill, for one socket; with GRO each holds many datagrams. No more, so
/// that what arrived by it is answered before the sender has run out of window.
const BUFFERS: usize = 4;
/// No datagram, nor what GRO joins, is longer.
const BUFFER_BYTES: usize = 1 << 16;

/// Receives without a poll in a row, while nobody is connected.
const UNPOLLED_RECEIVES: u8 = 16;

/// One UDP socket, or several of different ports, by which datagrams take different ways; connections by TCP; or both.
#[derive(Debug)]
pub struct SocketWire {
    sockets: Vec<(UdpSocket, UdpSocketState)>,
    connections: Option<Connections>,
    /// Such receives that are left.
    unpolled: u8,
    buffers: Vec<u8>,
    /// Once somebody may wake it.
    wake: Option<WakeSocket>,
    /// It was said that datagrams are too long.
    warned: bool,
}

impl SocketWire {
    /// Binds an address; port 0 for any.
    ///
    /// # Errors
    ///
    /// [`NicError::Bind`], [`NicError::Wire`].
    pub fn bind(addr: SocketAddr) -> Result<Self, NicError> {
        Self::bind_many(addr, 1)
    }

    /// Binds an address, and as many more sockets of other ports as it takes to have `count`.
    ///
    /// # Errors
    ///
    /// [`NicError::Bind`], [`NicError::Wire`].
    pub fn bind_many(addr: SocketAddr, count: u16) -> Result<Self, NicError> {
        let others = (1..count).map(|_| SocketAddr::new(addr.ip(), 0));
        let sockets = [addr].into_iter().chain(others).map(|addr| {
            let socket = open(addr)?;
            let state = UdpSocketState::new((&socket).into())?;
            Ok((socket, state))
        });
        let sockets = sockets.collect::<Result<_, NicError>>()?;
        Ok(Self::new(sockets, None))
    }

    fn new(sockets: Vec<(UdpSocket, UdpSocketState)>, connections: Option<Connections>) -> Self {
        let buffers = if sockets.is_empty() { vec![] } else { vec![0; BUFFERS * BUFFER_BYTES] };
        Self { sockets, connections, unpolled: 0, buffers, wake: None, warned: false }
    }

    /// Makes a wire of the connection by TCP that a dialer made, which is made anew if it is lost.
    ///
    /// # Errors
    ///
    /// [`NicError::Wire`].
    pub fn dialed(stream: TcpStream, dialer: Dialer) -> Result<Self, NicError> {
        Ok(Self::new(vec![], Some(Connections::dialed(stream, dialer)?)))
    }

    /// Makes a wire of the connections by TCP that others make to an address.
    ///
    /// # Errors
    ///
    /// [`NicError::Bind`].
    pub fn listen(addr: SocketAddr) -> Result<Self, NicError> {
        Ok(Self::new(vec![], Some(Connections::listen(addr)?)))
    }

    /// Also accepts connections by TCP at the address of the first socket.
    ///
    /// # Errors
    ///
    /// [`NicError::Bind`].
    pub fn listen_too(&mut self) -> Result<(), NicError> {
        self.connections = Some(Connections::listen(self.local_addr()?)?);
        Ok(())
    }

    /// Binds a wire of `sockets` sockets for each of `pipelines` pipelines of one process: the
    /// first at `addr`, each other at the port that follows; all at any ports, if port 0 is asked
    /// for.
    ///
    /// # Errors
    ///
    /// [`NicError::OutOfRange`] if there are no such ports; [`NicError::Bind`], [`NicError::Wire`].
    pub fn bind_all(addr: SocketAddr, pipelines: u16, sockets: u16) -> Result<Vec<Self>, NicError> {
        let wires = (0..pipelines).map(|pipeline| {
            let port = match addr.port() {
                0 => Some(0),
                port => port.checked_add(pipeline),
            };
            let most = u16::MAX - addr.port().saturating_sub(1);
            let port = port.ok_or_else(|| NicError::pipelines(pipelines, most))?;
            Self::bind_many(SocketAddr::new(addr.ip(), port), sockets)
        });
        wires.collect()
    }

    /// Binds the same at any ports of an address that reaches `server`.
    ///
    /// # Errors
    ///
    /// [`NicError::Bind`], [`NicError::Wire`].
    pub fn bind_towards(
        server: SocketAddr,
        pipelines: u16,
        sockets: u16,
    ) -> Result<Vec<Self>, NicError> {
        // What is near need not be reachable from afar.
        let local: IpAddr = match (server.ip(), server.ip().is_loopback()) {
            (IpAddr::V4(_), true) => Ipv4Addr::LOCALHOST.into(),
            (IpAddr::V6(_), true) => Ipv6Addr::LOCALHOST.into(),
            (IpAddr::V4(_), false) => Ipv4Addr::UNSPECIFIED.into(),
            (IpAddr::V6(_), false) => Ipv6Addr::UNSPECIFIED.into(),
        };
        Self::bind_all((local, 0).into(), pipelines, sockets)
    }

    /// Waits until there is something to receive. Returns for each socket, then for each connection and the listener,
    /// whether it has something.
    fn wait(&self, wait: Duration) -> Result<Vec<bool>, Error> {
        let sockets = self.sockets.iter();
        let sockets = sockets.map(|(socket, _)| PollFd::new(socket, PollFlags::IN));
        let connections = self.connections.iter().flat_map(Connections::polled);
        let wake = self.wake.as_ref();
        let wake_fd = wake.map(|wake| PollFd::from_borrowed_fd(wake.fd(), PollFlags::IN));
        let mut all: Vec<_> = sockets.chain(connections).chain(wake_fd).collect();
        let span = Timespec::try_from(wait).ok();
        poll(&mut all, span.as_ref())?;
        let mut ready: Vec<bool> = all.iter().map(|fd| !fd.revents().is_empty()).collect();
        if let Some(wake) = wake
            && ready.pop() == Some(true)
        {
            wake.clear();
        }
        Ok(ready)
    }

    /// Returns whether to try the only socket without a poll, which is quicker, but sees nobody connect.
    fn skips_poll(&mut self) -> bool {
        let Some(connections) = &self.connections else { return self.sockets.len() == 1 };
        self.unpolled = self.unpolled.checked_sub(1).unwrap_or(UNPOLLED_RECEIVES);
        self.sockets.len() == 1 && connections.is_empty() && self.unpolled > 0
    }
}

impl Wire for SocketWire {
    fn local_addrs(&self) -> Result<Vec<SocketAddr>, NicError> {
        if let (Some(connections), true) = (&self.connections, self.sockets.is_empty()) {
            return Ok(vec![connections.local_addr()?]);
        }
        self.sockets.iter().map(|(socket, _)| Ok(socket.local_addr()?)).collect()
    }

    fn burst_limit(&self) -> usize {
        let limits = self.sockets.iter().map(|(_, state)| state.max_gso_segments());
        // Of a connection bytes are the only bound.
        limits.min().unwrap_or(usize::MAX)
    }

    fn send(&mut self, to: Route, burst: &[u8], each: usize) -> bool {
        if let Some(connections) = &mut self.connections
            && (to.is_accepted || self.sockets.is_empty())
        {
            return connections.send(to.addr, burst, each);
        }
        if burst.len() > each && burst.len() < 2 * each {
            // The first may try a size, which is none of the second's business.
            let (first, second) = burst.split_at(each);
            return self.send(to, first, each) && self.send(to, second, second.len());
        }
        let segment_size = (burst.len() > each).then_some(each);
        let transmit = Transmit {
            destination: to.addr,
            // Receivers report marks, and the sender slows down.
            ecn: Some(EcnCodepoint::Ect0),
            contents: burst,
            segment_size,
            src_ip: None,
        };
        let (socket, state) = &self.sockets[usize::from(to.via)];
        match state.try_send(socket.into(), &transmit) {
            Ok(()) => true,
            Err(error) if error.kind() == ErrorKind::WouldBlock => false,
            Err(error) => {
                // Longer ones are tried, for the path may take them.
                let too_long =
                    error.raw_os_error() == Some(rustix::io::Errno::MSGSIZE.raw_os_error());
                let is_least = each <= DatagramSizes::DEFAULT.least as usize;
                if too_long && is_least && !std::mem::replace(&mut self.warned, true) {
                    let to = to.addr;
                    warn!(%to, bytes = each, "datagrams are too long for the path there, and lost");
                }
                debug!(to = %to.addr, %error, "datagrams lost at the socket");
                true
            }
        }
    }

    fn receive(
        &mut self,
        wait: Duration,
        take: &mut dyn FnMut(Origin, &mut [u8]),
    ) -> Result<usize, NicError> {
        let ready = if wait.is_zero() && self.skips_poll() {
            None
        } else {
            match self.wait(wait) {
                Ok(ready) => Some(ready),
                Err(error) if is_transient(&error) => return Ok(0),
                Err(error) => return Err(error.into()),
            }
        };
        let mut count = 0;
        for ((socket, state), via) in self.sockets.iter().zip(0..) {
            if ready.as_ref().is_some_and(|ready| !ready[usize::from(via)]) {
                continue;
            }
            let mut metas = [RecvMeta::default(); BUFFERS];
            let mut slices = self.buffers.chunks_mut(BUFFER_BYTES).map(IoSliceMut::new);
            let mut slices: [_; BUFFERS] =
                std::array::from_fn(|_| slices.next().unwrap_or(IoSliceMut::new(&mut [])));
            let filled = match state.recv(socket.into(), &mut slices, &mut metas) {
                Ok(filled) => filled,
                Err(error) if is_transient(&error) => continue,
                Err(error) => return Err(error.into()),
            };
            for (buffer, meta) in self.buffers.chunks_mut(BUFFER_BYTES).zip(&metas[..filled]) {
                let route = Route { via, ..Route::from(meta.addr) };
                let congested = meta.ecn == Some(EcnCodepoint::Ce);
                for datagram in buffer[..meta.len].chunks_mut(meta.stride.max(1)) {
                    take(Origin { route, congested }, datagram);
                    count += 1;
                }
            }
        }
        if let (Some(connections), Some(ready)) = (&mut self.connections, ready) {
            count += connections.receive(&ready[self.sockets.len()..], take);
        }
        Ok(count)
    }

    fn waker(&mut self) -> Result<Waker, NicError> {
        let wake = match self.wake.take() {
            Some(wake) => wake,
            None => WakeSocket::new()?,
        };
        Ok(self.wake.insert(wake).waker())
    }
}

/// Opens a socket with large buffers, bound to an address.
pub(crate) fn open(addr: SocketAddr) -> Result<UdpSocket, NicError> {
    let socket = Socket::new(Domain::for_address(addr), Type::DGRAM, Some(Protocol::UDP))?;
    // Some systems refuse what they do not grant; smaller buffers only lose more.
    let _ = socket.set_recv_buffer_size(SOCKET_BUFFER_BYTES);
    let _ = socket.set_send_buffer_size(SOCKET_BUFFER_BYTES);
    let bound = socket.bind(&addr.into());
    bound.map_err(|e| NicError::Bind { address: addr, kind: e.kind() })?;
    Ok(socket.into())
}

/// Returns whether an error is no fault of the socket itself. A dead peer's refusal arrives as an
/// error of ours: on loopback the kernel reports it at the next receive.
pub(crate) fn is_transient(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::WouldBlock
            | ErrorKind::TimedOut
            | ErrorKind::Interrupted
            | ErrorKind::ConnectionRefused
            | ErrorKind::ConnectionReset
            | ErrorKind::HostUnreachable
            | ErrorKind::NetworkUnreachable
            | ErrorKind::NetworkDown
    )
}
