//! The endpoint's receiving side: from bytes to committed regions and answers (PROTOCOL §2.3, §5).

use std::collections::VecDeque;

use crate::proto::ack::{Ack, Notice, Refusal};
use crate::proto::datagram::{Header, Kind, Opcode, read_prefix};
use crate::proto::event::{Event, Peer};
use crate::proto::path::Route;
use crate::proto::receiver::{Incoming, Partial};
use crate::proto::region::Region;
use crate::proto::secure::{Opened, Session};
use crate::proto::stats::Stats;
use crate::proto::sum::{Accepted, Asker, SumCommitted, SumRefused};
use crate::proto::time::Time;

use super::{Endpoint, MAX_EVENTS};

/// What became of a datagram.
enum Outcome {
    /// Answer with this.
    Answer(Result<(), Refusal>),
    /// It will be answered when what it belongs to is settled.
    Later,
    /// No memory for it now: say nothing, it will come again.
    Drop,
}

impl Endpoint {
    /// Takes what arrived from the wire, and opens it in place. Anything may arrive; what no session
    /// vouches for is counted, and has no other effect.
    pub fn handle_datagram(&mut self, now: Time, from: impl Into<Route>, bytes: &mut [u8]) {
        let from = from.into();
        match read_prefix(bytes) {
            Ok((Kind::Sealed(_), spi)) => self.on_sealed(now, from, spi >> 8, bytes),
            Ok((Kind::Hello, _)) => {
                self.stats.handshakes += 1;
                self.on_hello(now, from, bytes);
            }
            Ok((Kind::Welcome, index)) => {
                self.stats.handshakes += 1;
                self.on_welcome(now, from, index, bytes);
            }
            Ok((Kind::Cookie, index)) => {
                self.stats.handshakes += 1;
                self.on_cookie(now, index, bytes);
            }
            Err(_) => self.stats.malformed += 1,
        }
    }

    fn on_sealed(&mut self, now: Time, from: Route, index: u32, bytes: &mut [u8]) {
        let Some(id) = self.sessions.get(&index).copied() else {
            self.stats.malformed += 1;
            return;
        };
        let Some(link) = self.links.get_mut(&id) else { return };
        let is = |session: Option<&Session>| session.is_some_and(|s| s.local() == index);
        let current = is(link.session.as_ref());
        let offered = is(link.offered.as_deref().map(|(_, session)| session));
        let session = match (current, offered) {
            (true, _) => link.session.as_mut(),
            (_, true) => link.offered.as_deref_mut().map(|(_, session)| session),
            _ => link.former.as_deref_mut(),
        };
        let opened = session.filter(|session| session.local() == index);
        let Some(Ok(opened)) = opened.map(|session| session.open(bytes)) else {
            self.stats.malformed += 1;
            return;
        };
        match opened {
            Opened::Trimmed(header) => {
                self.stats.trimmed += 1;
                if current && header.opcode != Opcode::Ack {
                    link.on_trimmed(header.packet);
                }
            }
            Opened::Whole(..) if !current && !offered => {
                self.stats.duplicates += 1;
                link.answer_again();
            }
            Opened::Whole(header, payload) => {
                if offered && let Some(offer) = link.offered.take() {
                    let (peer, session) = *offer;
                    link.peer = peer;
                    self.peers.insert(peer, id);
                    self.begin(id, session);
                }
                self.stats.received.count(payload.len());
                self.on_opened(now, from, id, &header, payload);
            }
        }
        self.schedule(id);
    }

    /// A datagram of a peer that is who it says.
    fn on_opened(&mut self, now: Time, from: Route, id: u32, header: &Header, payload: &[u8]) {
        let Some(link) = self.links.get_mut(&id) else { return };
        if !link.admits(header.packet, header.opcode != Opcode::Ack) {
            self.stats.duplicates += 1;
            return;
        }
        link.hear(now, from, header.packet);
        let peer = link.peer;
        let outcome = match header.opcode {
            Opcode::Ack => {
                link.note(header.packet);
                match Ack::parse(payload) {
                    Ok(ack) => {
                        link.sender.on_ack(now, &ack, peer, &mut self.events);
                        self.stats.paths_rested += link.sender.paths.take_rested();
                    }
                    Err(_) => self.stats.malformed += 1,
                }
                return;
            }
            _ if self.events.len() >= MAX_EVENTS => {
                self.stats.overrun += 1;
                Outcome::Drop
            }
            Opcode::Write => self.on_write(id, peer, header, None, payload),
            Opcode::WriteImm => self.on_write(id, peer, header, Some(header.immediate), payload),
            Opcode::Sum => self.on_sum((id, header.packet), peer, header, payload),
        };
        let Some(link) = self.links.get_mut(&id) else { return };
        match outcome {
            Outcome::Answer(status) => {
                self.stats.refused += u64::from(status.is_err());
                link.answer(header.packet, status.err().map(Notice::Refused));
            }
            Outcome::Later => link.note(header.packet),
            Outcome::Drop => {}
        }
    }

    fn on_sum(&mut self, asker: Asker, peer: Peer, header: &Header, payload: &[u8]) -> Outcome {
        let rkey = header.rkey;
        let settles = match self.regions.get(&rkey) {
            Some(Region::Sum(region)) => {
                self.unsettled != Some(rkey) || region.must_settle(header, payload)
            }
            Some(Region::Memory(_) | Region::Inbox { .. }) => {
                return Outcome::Answer(Err(Refusal::NoRight));
            }
            None => return Outcome::Answer(Err(Refusal::UnknownRkey)),
        };
        if settles {
            self.settle();
        }
        let Some(Region::Sum(region)) = self.regions.get_mut(&rkey) else { return Outcome::Drop };
        let became = match region.accept(peer, asker, header, payload) {
            Ok(Accepted::Waits) => {
                self.unsettled = Some(rkey);
                return Outcome::Later;
            }
            Ok(Accepted::Committed(committed)) => Ok(committed),
            Err(refused) => Err(refused),
        };
        let status = became.as_ref().map(|_| ()).map_err(|refused| refused.refusal);
        tell(rkey, header.contributor, became, &mut self.stats, &mut self.events);
        Outcome::Answer(status)
    }

    /// Adds the datagrams that wait to be added together, and answers them. Nobody is told anything
    /// before.
    pub(super) fn settle(&mut self) {
        let Some(rkey) = self.unsettled.take() else { return };
        let Some(Region::Sum(region)) = self.regions.get_mut(&rkey) else { return };
        region.settle(|((id, packet), contributor, became)| {
            if let Some(link) = self.links.get_mut(&id) {
                let refused = became.as_ref().err().map(|refused| refused.refusal);
                self.stats.refused += u64::from(refused.is_some());
                link.answer(packet, refused.map(Notice::Refused));
                if !std::mem::replace(&mut link.answering, true) {
                    self.answering.push_back(id);
                }
            }
            tell(rkey, contributor, became, &mut self.stats, &mut self.events);
        });
    }

    fn on_write(
        &mut self,
        id: u32,
        peer: Peer,
        header: &Header,
        immediate: Option<u32>,
        payload: &[u8],
    ) -> Outcome {
        let Some(link) = self.links.get_mut(&id) else { return Outcome::Drop };
        let Some(forgotten) = link.receiver.admit(header.message) else {
            self.stats.duplicates += 1;
            return Outcome::Drop;
        };
        self.held -= forgotten;
        self.place(id, peer, header, immediate, payload)
    }

    /// Commits a WRITE datagram once, by (message, index), never by packet number (PROTOCOL §5.1).
    fn place(
        &mut self,
        id: u32,
        peer: Peer,
        header: &Header,
        immediate: Option<u32>,
        payload: &[u8],
    ) -> Outcome {
        let held_limit = self.peer_held_limit();
        let Some(link) = self.links.get_mut(&id) else { return Outcome::Drop };
        let receiver = &mut link.receiver;
        let done = receiver.is_done(header.message);
        let repeated = match receiver.message(header.message) {
            _ if done => Some(Ok(())),
            Some(Incoming::Refused(refusal)) => Some(Err(*refusal)),
            Some(Incoming::Partial(partial)) if partial.has(header.index) => Some(Ok(())),
            _ => None,
        };
        if let Some(status) = repeated {
            self.stats.duplicates += 1;
            return Outcome::Answer(status);
        }
        let Some(region) = self.regions.get_mut(&header.rkey) else {
            return self.refuse(id, header, Refusal::UnknownRkey);
        };
        if let Err(refusal) = region.check_write(peer, header, payload) {
            return self.refuse(id, header, refusal);
        }
        if receiver.message(header.message).is_none() {
            let needed = region.assembly_bytes(header);
            let mine = receiver.held_bytes() + needed;
            if mine > held_limit || self.held + needed > self.config.held_bytes {
                self.stats.overrun += 1;
                return Outcome::Drop;
            }
            self.held += needed;
            let partial = Partial::new(header, immediate, needed);
            receiver.set(header.message, Incoming::Partial(Box::new(partial)));
        }
        let Some(Incoming::Partial(partial)) = receiver.message(header.message) else {
            return Outcome::Drop;
        };
        if !partial.agrees(header, immediate) || partial.would_overrun(payload.len()) {
            return self.refuse(id, header, Refusal::WrongLength);
        }
        if !region.place(partial, header, payload) {
            return self.refuse(id, header, Refusal::UnknownRkey);
        }
        if partial.commit(header, payload.len()) {
            let event = completion(region, peer, partial);
            // The bytes stay counted as held, now in the event, until it is polled.
            self.held -= receiver.finish(header.message);
            self.events.push_back(event);
        }
        Outcome::Answer(Ok(()))
    }

    /// Fails the whole message: its other datagrams get the same answer.
    fn refuse(&mut self, id: u32, header: &Header, refusal: Refusal) -> Outcome {
        if let Some(link) = self.links.get_mut(&id) {
            self.held -= link.receiver.set(header.message, Incoming::Refused(refusal));
        }
        Outcome::Answer(Err(refusal))
    }
}

fn completion(region: &mut Region, from: Peer, partial: &mut Partial) -> Event {
    let (rkey, immediate) = (partial.rkey, partial.immediate);
    if let (Region::Memory(memory), Some(_)) = (&mut *region, immediate) {
        memory.immediates += 1;
    }
    match region {
        Region::Inbox { .. } => {
            let data = std::mem::take(&mut partial.assembly);
            Event::Received { from, rkey, immediate, data }
        }
        Region::Memory(_) | Region::Sum(_) => Event::Written {
            from,
            rkey,
            offset: partial.offset,
            bytes: partial.message_bytes,
            immediate,
        },
    }
}

/// Tells the owner what a SUM led to.
fn tell(
    rkey: u32,
    contributor: u16,
    became: Result<SumCommitted, SumRefused>,
    stats: &mut Stats,
    events: &mut VecDeque<Event>,
) {
    match became {
        Ok(committed) => {
            stats.duplicates += u64::from(committed.added == 0);
            let closed = committed.closed.into_iter();
            events.extend(closed.map(|chunk| Event::ChunkClosed { rkey, chunk }));
        }
        Err(SumRefused { refusal: Refusal::Equivocation, chunk }) => {
            events.push_back(Event::Equivocation { rkey, contributor, chunk });
        }
        Err(_) => {}
    }
}
