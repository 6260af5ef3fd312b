//! What an endpoint keeps of one process it talks to: sessions, packets answered, messages both ways.

use std::net::SocketAddr;
use std::time::Duration;

use super::ack::{MAX_ACK_NOTICES, Notice, append_ack};
use super::event::Peer;
use super::receiver::Receiver;
use super::secure::{Cookie, Initiator, Session, Window};
use super::sender::Sender;
use super::time::Time;

/// How long to wait for the answer to a HELLO before the next; doubled by each, up to
/// [`MAX_HELLO_SPAN`].
pub const HELLO_SPAN: Duration = Duration::from_millis(100);
/// The longest wait between two HELLOs.
pub const MAX_HELLO_SPAN: Duration = Duration::from_millis(500);
/// Silence after which an initiator shakes hands anew: the process that it knew may be gone.
pub const SILENCE_SPAN: Duration = Duration::from_millis(600);

/// A handshake under way.
pub(super) struct Greeting {
    /// None while only a cookie has come.
    pub(super) initiator: Option<Initiator>,
    pub(super) index: u32,
    pub(super) next: Time,
    pub(super) attempts: u32,
    pub(super) cookie: Option<Cookie>,
}

pub(super) struct Link {
    /// Its incarnation is 0 until a handshake tells.
    pub(super) peer: Peer,
    /// Where its last trustworthy datagram came from.
    pub(super) addr: SocketAddr,
    /// Whether we know where it listens, and so shake hands when it is silent.
    pub(super) contact: bool,
    pub(super) session: Option<Session>,
    /// Made by a HELLO of the peer's, and not confirmed yet.
    pub(super) offered: Option<Session>,
    pub(super) greeting: Option<Greeting>,
    pub(super) sender: Sender,
    pub(super) receiver: Receiver,
    window: Window,
    notices: Vec<(u64, Notice)>,
    answer_due: bool,
    /// When a trustworthy datagram last came.
    pub(super) heard: Time,
    /// When a HELLO was last sent that was answered, or the link was made.
    pub(super) greeted: Time,
    /// Whether the endpoint already means to ask this link for answers, and for messages.
    pub(super) answering: bool,
    pub(super) sending: bool,
}

impl Link {
    pub(super) fn new(
        now: Time,
        peer: Peer,
        addr: SocketAddr,
        contact: bool,
        sender: Sender,
    ) -> Self {
        Self {
            peer,
            addr,
            contact,
            session: None,
            offered: None,
            greeting: None,
            sender,
            receiver: Receiver::default(),
            window: Window::new(),
            notices: vec![],
            answer_due: false,
            heard: now,
            greeted: now,
            answering: false,
            sending: false,
        }
    }

    /// Goes on under another session: packets are numbered anew, messages are not.
    pub(super) fn renew(&mut self, session: Session) {
        self.session = Some(session);
        self.window = Window::new();
        self.notices.clear();
        self.sender.renumber();
    }

    /// Whether a packet is to be processed; one that was answered is answered again.
    pub(super) fn admits(&mut self, packet: u64) -> bool {
        if !self.window.remembers(packet) {
            return false;
        }
        let repeated = self.window.has(packet);
        self.answer_due |= repeated;
        !repeated
    }

    /// A packet that asks for no answer came.
    pub(super) fn note(&mut self, packet: u64) {
        self.window.set(packet);
    }

    /// A packet is answered: committed, or refused with a notice.
    pub(super) fn answer(&mut self, packet: u64, refused: Option<Notice>) {
        self.window.set(packet);
        self.notify(packet, refused);
        self.answer_due = true;
    }

    /// A packet came without its payload: it stays unanswered.
    pub(super) fn on_trimmed(&mut self, packet: u64) {
        if self.window.remembers(packet) && !self.window.has(packet) {
            self.notify(packet, Some(Notice::Trimmed));
            self.answer_due = true;
        }
    }

    /// The oldest notices give way: a retransmission asks for them again.
    fn notify(&mut self, packet: u64, notice: Option<Notice>) {
        if let Some(notice) = notice {
            if self.notices.len() == 4 * MAX_ACK_NOTICES {
                self.notices.remove(0);
            }
            self.notices.push((packet, notice));
        }
    }

    pub(super) fn wants_answer(&self) -> bool {
        self.answer_due && self.session.is_some()
    }

    /// Writes the payload of the next ACK; `false` if none is due.
    pub(super) fn take_answer(&mut self, payload: &mut Vec<u8>) -> bool {
        if !self.wants_answer() {
            return false;
        }
        let count = self.notices.len().min(MAX_ACK_NOTICES);
        append_ack(self.window.recent(), self.notices.drain(..count), payload);
        self.answer_due = !self.notices.is_empty();
        true
    }

    /// When the handshake, or the lack of one, needs something done.
    pub(super) fn next_greeting(&self) -> Option<Time> {
        match &self.greeting {
            Some(greeting) => Some(greeting.next),
            None if self.contact && !self.sender.is_idle() => {
                Some(self.sender.heard().max(self.greeted) + SILENCE_SPAN)
            }
            None => None,
        }
    }
}
