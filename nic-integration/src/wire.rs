//! Wires: what carries datagrams between processes.

mod udp;

use std::net::SocketAddr;
use std::time::Duration;

use crate::NicError;

pub use udp::{SOCKET_BUFFER_BYTES, UdpWire};

/// Carries datagrams, unreliably.
pub trait Wire {
    /// Where this end can be reached.
    ///
    /// # Errors
    ///
    /// [`NicError::Wire`].
    fn local_addr(&self) -> Result<SocketAddr, NicError>;

    /// Sends a datagram. `false` if there is no room just now: then it may be offered again. A
    /// datagram that cannot be sent for any other reason is a lost datagram.
    fn send(&mut self, to: SocketAddr, bytes: &[u8]) -> bool;

    /// Receives a datagram into `bytes`, waiting at most `wait`; how many bytes, and from where.
    ///
    /// # Errors
    ///
    /// [`NicError::Wire`] if the wire has failed for good.
    fn receive(
        &mut self,
        bytes: &mut [u8],
        wait: Duration,
    ) -> Result<Option<(usize, SocketAddr)>, NicError>;
}
