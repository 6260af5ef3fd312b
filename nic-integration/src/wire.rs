//! Wires: what carries datagrams between processes.

pub mod capture;
mod faulty;
pub(crate) mod socket;
pub mod tcp;
mod waker;

use std::net::SocketAddr;
use std::task::Waker;
use std::time::Duration;

use crate::NicError;
use crate::proto::{Origin, Route};

pub use capture::{Captured, PcapFile};
pub use faulty::Faulty;
pub use socket::{SOCKET_BUFFER_BYTES, SocketWire};

/// The most bytes of a [burst](Wire::send).
pub const MAX_BURST_BYTES: usize = 65_000;

/// Carries datagrams, unreliably. A process has one for each of its pipelines.
pub trait Wire: Send + 'static {
    /// Returns where each of its sockets can be reached; there is one at least.
    ///
    /// # Errors
    ///
    /// [`NicError::Wire`].
    fn local_addrs(&self) -> Result<Vec<SocketAddr>, NicError>;

    /// Returns where its first socket can be reached.
    ///
    /// # Errors
    ///
    /// [`NicError::Wire`].
    fn local_addr(&self) -> Result<SocketAddr, NicError> {
        self.local_addrs().map(|all| all[0])
    }

    /// Returns the most datagrams that one burst may hold.
    fn burst_limit(&self) -> usize;

    /// Sends a burst of datagrams that lie one after the other, of `each` bytes, but for the last,
    /// which may be shorter. Returns `false` if there is no space just now: then it may be offered
    /// again. A burst that cannot be sent for any other reason is lost.
    fn send(&mut self, to: Route, burst: &[u8], each: usize) -> bool;

    /// Hands over datagrams that arrived, one by one, waiting at most `wait` for the first. Returns
    /// how many they were.
    ///
    /// # Errors
    ///
    /// [`NicError::Wire`] if the wire has failed for good.
    fn receive(
        &mut self,
        wait: Duration,
        take: &mut dyn FnMut(Origin, &mut [u8]),
    ) -> Result<usize, NicError>;

    /// Returns a waker that ends the wait of [`receive`](Self::receive) from another thread, or the
    /// next one if none is going on.
    ///
    /// # Errors
    ///
    /// [`NicError::Wire`].
    fn waker(&mut self) -> Result<Waker, NicError>;
}
