//! What an endpoint keeps of one process it talks to: sessions, packets answered, messages both ways.

use std::time::Duration;

use super::ack::{MAX_ACK_NOTICES, Notice, append_ack};
use super::event::Peer;
use super::path::Route;
use super::receiver::Receiver;
use super::secure::{Cookie, Initiator, Session, Window};
use super::sender::Sender;
use super::time::Time;

/// How long to wait for the answer to a HELLO before the next; doubled by each, up to
/// [`MAX_HELLO_SPAN`].
pub const HELLO_SPAN: Duration = Duration::from_millis(100);
/// The longest wait between two HELLOs.
pub const MAX_HELLO_SPAN: Duration = Duration::from_millis(500);
/// Silence after which a peer that nothing is outstanding with keeps no more than it must: longer than
/// anything is under way, [`MAX_PTO`](super::pace::MAX_PTO) included.
pub const QUIET_SPAN: Duration = Duration::from_millis(500);
/// Silence after which an initiator shakes hands anew: the process that it knew may be gone.
pub const SILENCE_SPAN: Duration = Duration::from_millis(600);

/// A handshake under way.
pub(super) struct Greeting {
    /// None if no HELLO could be made.
    pub(super) initiator: Option<Initiator>,
    pub(super) index: u32,
    pub(super) next: Time,
    pub(super) attempts: u32,
    /// By which path it went.
    pub(super) way: u32,
    pub(super) cookie: Option<Cookie>,
}

pub(super) struct Link {
    /// Its incarnation is 0 until a handshake tells.
    pub(super) peer: Peer,
    /// Whether we know where it listens, and so shake hands when it is silent.
    pub(super) contact: bool,
    pub(super) session: Option<Session>,
    /// The session before: what arrives under it shows that the peer has not seen the present one.
    pub(super) former: Option<Box<Session>>,
    /// Made by a HELLO of the peer's, and not confirmed yet.
    pub(super) offered: Option<Box<(Peer, Session)>>,
    /// The number of that HELLO: an older one is a replay.
    pub(super) hello: u32,
    pub(super) greeting: Option<Box<Greeting>>,
    pub(super) sender: Sender,
    pub(super) receiver: Receiver,
    /// Packets that came.
    window: Window,
    /// Of those: committed.
    committed: Window,
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
    pub(super) fn new(now: Time, peer: Peer, contact: bool, sender: Sender) -> Self {
        Self {
            peer,
            contact,
            session: None,
            former: None,
            offered: None,
            hello: 0,
            greeting: None,
            sender,
            receiver: Receiver::default(),
            window: Window::new(),
            committed: Window::new(),
            notices: vec![],
            answer_due: false,
            heard: now,
            greeted: now,
            answering: false,
            sending: false,
        }
    }

    /// Goes on under another session: packets are numbered anew, messages are not. An answer is due even
    /// if there is nothing to tell: it shows the peer that the session is begun.
    pub(super) fn renew(&mut self, session: Session) -> Option<Box<Session>> {
        let former = self.session.replace(session).map(Box::new);
        let before = std::mem::replace(&mut self.former, former);
        (self.window, self.committed) = (Window::new(), Window::new());
        self.notices.clear();
        self.answer_due = true;
        self.sender.renumber();
        before
    }

    /// Whether a packet is to be processed; one that came before is answered again, but an ACK never is.
    pub(super) fn admits(&mut self, packet: u64, asks: bool) -> bool {
        if !self.window.remembers(packet) {
            return false;
        }
        let repeated = self.window.has(packet);
        self.answer_due |= repeated && asks;
        !repeated
    }

    /// A packet of a peer that is who it says came from `from`; the address of one that was overtaken may
    /// be old.
    pub(super) fn hear(&mut self, now: Time, from: Route, packet: u64) {
        self.heard = now;
        if self.window.is_newest(packet) {
            self.sender.paths.hear(now, from);
        }
    }

    /// A packet that asks for no answer came.
    pub(super) fn note(&mut self, packet: u64) {
        self.window.set(packet);
    }

    /// A packet is committed, or refused with a notice. A notice that is lost leaves the packet
    /// unanswered: its datagram comes again.
    pub(super) fn answer(&mut self, packet: u64, refused: Option<Notice>) {
        self.window.set(packet);
        match refused {
            Some(notice) => self.notify(packet, notice),
            None => self.committed.set(packet),
        }
        self.answer_due = true;
    }

    /// A packet came without its payload: it stays unanswered.
    pub(super) fn on_trimmed(&mut self, packet: u64) {
        if self.window.remembers(packet) && !self.window.has(packet) {
            self.notify(packet, Notice::Trimmed);
            self.answer_due = true;
        }
    }

    /// What arrives under the former session shows that an answer was lost.
    pub(super) fn answer_again(&mut self) {
        self.answer_due = true;
    }

    /// The oldest notices give way: a retransmission asks for them again.
    fn notify(&mut self, packet: u64, notice: Notice) {
        if self.notices.len() == 4 * MAX_ACK_NOTICES {
            self.notices.remove(0);
        }
        self.notices.push((packet, notice));
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
        append_ack(self.committed.recent(), self.notices.drain(..count), payload);
        self.answer_due = !self.notices.is_empty();
        true
    }

    /// Keeps no more than it must, if nothing is outstanding and nothing has come for a while.
    pub(super) fn shrink(&mut self, now: Time) {
        if !self.sender.is_idle() || self.answer_due || now.since(self.heard) < QUIET_SPAN {
            return;
        }
        let sessions = self.session.iter_mut().chain(self.former.as_deref_mut());
        sessions.for_each(Session::shrink);
        self.window.shrink();
        self.committed.shrink();
        self.notices = vec![];
        self.sender.shrink();
        self.receiver.shrink();
    }

    /// Gives up the handshake under way; its index.
    pub(super) fn drop_greeting(&mut self) -> Option<u32> {
        self.greeting.take().map(|greeting| greeting.index)
    }

    /// When the handshake, or the lack of one, needs something done.
    pub(super) fn next_greeting(&self) -> Option<Time> {
        match &self.greeting {
            Some(greeting) => Some(greeting.next),
            None if self.contact && !self.sender.is_idle() => {
                let last = self.sender.heard().max(self.greeted).max(self.heard);
                Some(last + SILENCE_SPAN)
            }
            None => None,
        }
    }
}
