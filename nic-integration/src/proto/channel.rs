//! A pipeline's state towards one pipeline of a peer: a session, packets answered, datagrams in
//! flight.

use std::sync::Arc;
use std::time::Duration;

use super::ack::{AckNotice, MAX_ACK_NOTICES, append_ack};
use super::event::Peer;
use super::lock::lock;
use super::path::Route;
use super::secure::{PacketWindow, Session};
use super::sender::Sender;
use super::shared::Messages;
use super::time::Time;

/// Silence after which a peer to whom nothing is outstanding keeps no more than it must: longer
/// than any datagram is under way, [`MAX_PTO`](super::recovery::MAX_PTO) included.
pub const QUIET_SPAN: Duration = Duration::from_millis(500);

pub(super) struct Channel {
    /// The process at the other end of the session.
    pub(super) peer: Peer,
    pub(super) messages: Arc<Messages>,
    pub(super) session: Option<Session>,
    /// The session before: a datagram under it shows that the peer has not seen the present one.
    pub(super) former: Option<Box<Session>>,
    /// A session made by the peer's HELLO, and not confirmed yet.
    pub(super) offered: Option<Box<Offer>>,
    pub(super) sender: Sender,
    /// Packets that came.
    window: PacketWindow,
    /// Of those: committed.
    committed: PacketWindow,
    /// `None` instead of an empty list.
    notices: Option<Box<Notices>>,
    /// Packets that came marked for congestion since the session began.
    congested: u32,
    answer_due: bool,
    /// Nothing has ever come by it: its paths rest.
    unproven: bool,
    /// The pipeline has already queued this channel for answers, and for messages.
    pub(super) answering: bool,
    pub(super) sending: bool,
}

/// Notices that wait, oldest first.
#[derive(Default)]
struct Notices(Vec<(u64, AckNotice)>);

/// A session that the peer may begin.
pub(super) struct Offer {
    pub(super) peer: Peer,
    pub(super) session: Session,
    pub(super) messages: Arc<Messages>,
}

impl Channel {
    pub(super) fn new(peer: Peer, messages: Arc<Messages>, sender: Sender) -> Self {
        Self {
            peer,
            messages,
            session: None,
            former: None,
            offered: None,
            sender,
            window: PacketWindow::new(),
            committed: PacketWindow::new(),
            notices: None,
            congested: 0,
            answer_due: false,
            unproven: false,
            answering: false,
            sending: false,
        }
    }

    /// Continues under another session: packets are numbered anew, messages are not. An answer is
    /// due even if it is empty: it shows the peer that the session is begun. Returns the session
    /// that is no longer needed.
    pub(super) fn renew(&mut self, offer: Offer) -> Option<Box<Session>> {
        let former = self.session.replace(offer.session).map(Box::new);
        let before = std::mem::replace(&mut self.former, former);
        (self.window, self.committed) = (PacketWindow::new(), PacketWindow::new());
        (self.notices, self.congested) = (None, 0);
        self.answer_due = true;
        self.peer = offer.peer;
        self.sender.renumber(&mut lock(&self.messages.outbox));
        self.sender.forget_marks();
        if !Arc::ptr_eq(&self.messages, &offer.messages) {
            self.sender.reset();
            self.messages = offer.messages;
        }
        before
    }

    /// Leaves the datagrams in flight to other channels, and the waiting for their answers.
    pub(super) fn hand_over(&mut self) {
        let mut outbox = lock(&self.messages.outbox);
        self.sender.renumber(&mut outbox);
        self.sender.retract_health(&mut outbox);
    }

    /// Sends nothing but trials until something comes.
    pub(super) fn mark_unproven(&mut self, now: Time) {
        self.unproven = true;
        self.sender.paths.rest_all(now);
    }

    /// Returns whether a packet is to be processed. One that came before is answered again, unless
    /// it is an ACK.
    pub(super) fn admits(&mut self, packet: u64, asks: bool) -> bool {
        if !self.window.remembers(packet) {
            return false;
        }
        let repeated = self.window.has(packet);
        self.answer_due |= repeated && asks;
        !repeated
    }

    /// Notes a packet that a session vouches for, and where it came from. Of a packet that was
    /// overtaken the address may be old.
    pub(super) fn on_received(&mut self, now: Time, from: Route, packet: u64) {
        self.messages.on_received(now);
        if std::mem::take(&mut self.unproven) {
            self.sender.paths.resume_all();
        }
        if self.window.is_newest(packet) {
            self.sender.on_received(now, from);
        }
    }

    /// Counts a packet that a queue on the path marked.
    pub(super) fn on_congested(&mut self) {
        self.congested = self.congested.wrapping_add(1);
    }

    /// Notes a packet that needs no answer, or none yet.
    pub(super) fn note(&mut self, packet: u64) {
        self.window.set(packet);
    }

    /// Notes the answer to a packet: committed, or refused with a notice. A notice that is lost
    /// leaves the packet unanswered, and its datagram comes again.
    pub(super) fn answer(&mut self, packet: u64, refused: Option<AckNotice>) {
        self.window.set(packet);
        match refused {
            Some(notice) => self.notify(packet, notice),
            None => self.committed.set(packet),
        }
        self.answer_due = true;
    }

    /// Queues a notice that a packet came without its payload. The packet stays unanswered.
    pub(super) fn on_trimmed(&mut self, packet: u64) {
        if self.window.remembers(packet) && !self.window.has(packet) {
            self.notify(packet, AckNotice::Trimmed);
            self.answer_due = true;
        }
    }

    /// Answers again, because a datagram under the former session shows that an answer was lost.
    pub(super) fn answer_again(&mut self) {
        self.answer_due = true;
    }

    /// Queues a notice. The oldest ones are dropped: a retransmission asks for them again.
    fn notify(&mut self, packet: u64, notice: AckNotice) {
        let Notices(notices) = &mut **self.notices.get_or_insert_default();
        if notices.len() == 4 * MAX_ACK_NOTICES {
            notices.remove(0);
        }
        notices.push((packet, notice));
    }

    pub(super) fn wants_answer(&self) -> bool {
        self.answer_due && self.session.is_some()
    }

    /// Writes the payload of the next ACK; `false` if none is due.
    pub(super) fn take_answer(&mut self, payload: &mut Vec<u8>) -> bool {
        if !self.wants_answer() {
            return false;
        }
        let notices = self.notices.as_deref_mut().map(|Notices(notices)| notices);
        let count = notices.as_ref().map_or(0, |notices| notices.len().min(MAX_ACK_NOTICES));
        let due = notices.into_iter().flat_map(|notices| notices.drain(..count));
        append_ack(self.committed.recent(), self.congested, due, payload);
        self.notices.take_if(|notices| notices.0.is_empty());
        self.answer_due = self.notices.is_some();
        true
    }

    /// Frees memory that can be remade, if nothing is outstanding and nothing has come for a while.
    pub(super) fn shrink(&mut self, now: Time) {
        if !self.messages.is_idle()
            || self.answer_due
            || now.since(self.messages.last_received()) < QUIET_SPAN
        {
            return;
        }
        let sessions = self.session.iter_mut().chain(self.former.as_deref_mut());
        sessions.for_each(Session::shrink);
        self.window.shrink();
        self.committed.shrink();
        self.sender.shrink();
        lock(&self.messages.outbox).shrink();
        lock(&self.messages.inbox).shrink();
    }
}
