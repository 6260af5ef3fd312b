//! What an endpoint keeps of one process it talks to: who it is, how it is reached, handshakes.

use std::sync::Arc;
use std::time::Duration;

use super::event::Peer;
use super::lock::lock;
use super::secure::{Cookie, Initiator};
use super::shared::Messages;
use super::time::Time;

/// How long to wait for the answer to a HELLO before the next; doubled by each, up to
/// [`MAX_HELLO_SPAN`].
pub const HELLO_SPAN: Duration = Duration::from_millis(100);
/// The longest wait between two HELLOs.
pub const MAX_HELLO_SPAN: Duration = Duration::from_millis(500);
/// Silence after which an initiator shakes hands anew: the process that it knew may be gone.
pub const SILENCE_SPAN: Duration = Duration::from_millis(600);

/// A handshake under way.
pub(super) struct Handshake {
    /// None if no HELLO could be made.
    pub(super) initiator: Option<Initiator>,
    pub(super) index: u32,
    pub(super) next: Time,
    pub(super) attempts: u32,
    /// By which path it went.
    pub(super) socket: u32,
    pub(super) cookie: Option<Cookie>,
}

/// A session that a HELLO of the peer's made: whose, its index, and its channels.
pub(super) type Offered = (Peer, u32, u16);

pub(super) struct Link {
    /// Its incarnation is 0 until a handshake tells.
    pub(super) peer: Peer,
    /// Whether we know where it listens, and so shake hands when it is silent.
    pub(super) contact: bool,
    pub(super) messages: Arc<Messages>,
    /// Channels that there are.
    pub(super) channels: u16,
    /// Whether there is a session.
    pub(super) established: bool,
    /// Not confirmed yet.
    pub(super) offered: Option<Box<Offered>>,
    /// The number of the HELLO that made it: an older one is a replay.
    pub(super) hello: u32,
    pub(super) handshake: Option<Box<Handshake>>,
}

impl Link {
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

    /// Whether it is to a process that said HELLO and nothing since.
    pub(super) fn is_unconfirmed(&self) -> bool {
        !self.established && self.offered.is_some()
    }

    /// Gives up the handshake under way; its index.
    pub(super) fn cancel_handshake(&mut self) -> Option<u32> {
        self.handshake.take().map(|handshake| handshake.index)
    }

    /// When the silence of a peer with something unanswered, the handshake, or the lack of one needs something
    /// done; none if nothing is unanswered and nothing under way.
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
