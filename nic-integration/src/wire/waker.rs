//! Ends the wait of a wire from another thread.

use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;

use crate::NicError;

/// Ends the wait of a wire; so does having done so before it began to wait.
#[derive(Clone, Debug)]
pub struct Waker(Arc<UnixDatagram>);

impl Waker {
    /// Ends the wait.
    pub fn wake(&self) {
        // If there is no room, it is awake already.
        let _ = self.0.send(&[0]);
    }
}

/// What a wire waits for beside its sockets.
#[derive(Debug)]
pub(super) struct Alarm {
    waker: Waker,
    heard: UnixDatagram,
}

impl Alarm {
    pub(super) fn new() -> Result<Self, NicError> {
        let (ours, heard) = UnixDatagram::pair()?;
        ours.set_nonblocking(true)?;
        heard.set_nonblocking(true)?;
        Ok(Self { waker: Waker(Arc::new(ours)), heard })
    }

    pub(super) fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// What becomes readable.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.heard.as_fd()
    }

    /// Has been heard.
    pub(super) fn clear(&self) {
        while self.heard.recv(&mut [0; 8]).is_ok() {}
    }
}
