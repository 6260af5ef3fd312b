//! An endpoint's state of one process it talks to: its name and address, and handshakes.

use std::sync::Arc;
use std::time::Duration;

use super::event::Peer;
use super::lock::lock;
use super::secure::{Cookie, Initiator};
use super::shared::Messages;
use super::time::Time;

/// The wait for the answer to a HELLO before the next; doubled by each, up to [`MAX_HELLO_SPAN`].
pub const HELLO_SPAN: Duration = Duration::from_millis(100);
/// The longest wait between two HELLOs. Round trips must be shorter: each HELLO has keys of its own,
/// and only the answer to the last one is taken.
pub const MAX_HELLO_SPAN: Duration = Duration::from_secs(1);
/// Silence after which an initiator shakes hands anew: the process that it knew may be gone.
pub const SILENCE_SPAN: Duration = Duration::from_millis(600);

/// A handshake under way.
pub(super) struct Handshake {
    /// `None` if no HELLO could be made.
    pub(super) initiator: Option<Initiator>,
    pub(super) index: u32,
    /// When its first HELLO was sent.
    pub(super) began: Time,
    pub(super) next: Time,
    pub(super) attempts: u32,
    /// The socket that it was sent by, modulo the number of sockets.
    pub(super) socket: u32,
    pub(super) cookie: Option<Cookie>,
}

/// A session made by the peer's HELLO: the peer, the session's index, and its number of channels.
pub(super) type Offered = (Peer, u32, u16);

pub(super) struct PeerLink {
    /// Its incarnation is 0 until a handshake names it.
    pub(super) peer: Peer,
    /// We know the peer's address, and so shake hands when it is silent.
    pub(super) contact: bool,
    pub(super) messages: Arc<Messages>,
    /// The number of channels.
    pub(super) channels: u16,
    /// There is a session.
    pub(super) established: bool,
    /// A session that is not confirmed yet.
    pub(super) offered: Option<Box<Offered>>,
    /// The number of the HELLO that made the session: an older one is a replay.
    pub(super) hello: u32,
    pub(super) handshake: Option<Box<Handshake>>,
}

impl PeerLink {
    pub(super) fn new(peer: Peer, contact: bool, messages: Arc<Messages>) -> Self {
        Self {
            peer,
            contact,
            messages,
            channels: 0,
            established: false,
            offered: None,
            hello: 0,
            handshake: None,
        }
    }

    /// Returns whether the peer has sent a HELLO and nothing since.
    pub(super) fn is_unconfirmed(&self) -> bool {
        !self.established && self.offered.is_some()
    }

    /// Cancels the handshake under way, and returns its index.
    pub(super) fn cancel_handshake(&mut self) -> Option<u32> {
        self.handshake.take().map(|handshake| handshake.index)
    }

    /// Returns whether the handshake under way is needless: the process that it asks for was silent for
    /// no longer than a long round trip.
    pub(super) fn receives_again(&self) -> bool {
        let handshake = self.handshake.as_ref().filter(|_| self.established);
        handshake.is_some_and(|handshake| self.messages.last_received() > handshake.began)
    }

    /// Returns when a timer of the link expires: that of a silent peer with something unanswered,
    /// that of the handshake, or that after which one begins. `None` if nothing is unanswered and
    /// nothing under way.
    pub(super) fn due(&self, give_up: Duration) -> Option<Time> {
        let outbox = lock(&self.messages.outbox);
        let waiting = (!outbox.is_idle()).then(|| outbox.waiting_since());
        drop(outbox);
        let silence = waiting.map(|since| since + give_up);
        let handshake = match &self.handshake {
            Some(handshake) => Some(handshake.next),
            None => waiting.filter(|_| self.contact).map(|since| {
                // A handshake counts as well.
                since.max(self.messages.last_received()) + SILENCE_SPAN
            }),
        };
        silence.into_iter().chain(handshake).min()
    }
}
