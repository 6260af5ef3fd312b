//! Ends the wait of a wire from another thread.

use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;
use std::task::{Wake, Waker};

use crate::NicError;

/// The sending end of a [`WakeSocket`].
struct WakeSender(UnixDatagram);

impl Wake for WakeSender {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // If there is no space, it is awake already.
        let _ = self.0.send(&[0]);
    }
}

/// A socket that becomes readable when its [`Waker`] is used, and stays so until it is cleared.
#[derive(Debug)]
pub(super) struct WakeSocket {
    waker: Waker,
    socket: UnixDatagram,
}

impl WakeSocket {
    pub(super) fn new() -> Result<Self, NicError> {
        let (sender, socket) = UnixDatagram::pair()?;
        sender.set_nonblocking(true)?;
        socket.set_nonblocking(true)?;
        Ok(Self { waker: Arc::new(WakeSender(sender)).into(), socket })
    }

    pub(super) fn waker(&self) -> Waker {
        self.waker.clone()
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Makes it unreadable until its waker is used again.
    pub(super) fn clear(&self) {
        while self.socket.recv(&mut [0; 8]).is_ok() {}
    }
}
