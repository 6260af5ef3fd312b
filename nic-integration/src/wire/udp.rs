//! UDP sockets.

use std::io::{Error, ErrorKind};
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};
use tracing::debug;

use crate::NicError;

use super::Wire;

/// Bytes asked for in either direction; the system may grant less.
pub const SOCKET_BUFFER_BYTES: usize = 4 << 20;
/// The shortest wait that the socket is made to block for.
const MIN_WAIT: Duration = Duration::from_micros(1);

/// One UDP socket.
#[derive(Debug)]
pub struct UdpWire {
    socket: UdpSocket,
}

impl UdpWire {
    /// Binds a loopback address; port 0 for any.
    ///
    /// # Errors
    ///
    /// [`NicError::NotLoopback`] for any other address, as PROTOCOL §8 demands;
    /// [`NicError::Wire`].
    pub fn bind(addr: SocketAddr) -> Result<Self, NicError> {
        if !addr.ip().is_loopback() {
            return Err(NicError::NotLoopback { addr });
        }
        let socket = Socket::new(Domain::for_address(addr), Type::DGRAM, Some(Protocol::UDP))?;
        socket.set_recv_buffer_size(SOCKET_BUFFER_BYTES)?;
        socket.set_send_buffer_size(SOCKET_BUFFER_BYTES)?;
        socket.set_nonblocking(true)?;
        socket.bind(&addr.into())?;
        Ok(Self { socket: socket.into() })
    }

    /// Blocks for one datagram; the socket is non-blocking again afterwards.
    fn receive_blocking(
        &self,
        bytes: &mut [u8],
        wait: Duration,
    ) -> Result<(usize, SocketAddr), Error> {
        self.socket.set_read_timeout(Some(wait))?;
        self.socket.set_nonblocking(false)?;
        let received = self.socket.recv_from(bytes);
        self.socket.set_nonblocking(true)?;
        received
    }
}

impl Wire for UdpWire {
    fn local_addr(&self) -> Result<SocketAddr, NicError> {
        Ok(self.socket.local_addr()?)
    }

    fn send(&mut self, to: SocketAddr, bytes: &[u8]) -> bool {
        match self.socket.send_to(bytes, to) {
            Ok(_) => true,
            Err(error) if error.kind() == ErrorKind::WouldBlock => false,
            Err(error) => {
                debug!(%to, %error, "datagram lost at the socket");
                true
            }
        }
    }

    fn receive(
        &mut self,
        bytes: &mut [u8],
        wait: Duration,
    ) -> Result<Option<(usize, SocketAddr)>, NicError> {
        let received = if wait < MIN_WAIT {
            self.socket.recv_from(bytes)
        } else {
            self.receive_blocking(bytes, wait)
        };
        match received {
            Ok(datagram) => Ok(Some(datagram)),
            Err(error) if is_transient(&error) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

/// Whether an error says nothing about the socket itself. A dead peer's refusal arrives as an error
/// of ours: on loopback the kernel reports it at the next receive.
fn is_transient(error: &Error) -> bool {
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
