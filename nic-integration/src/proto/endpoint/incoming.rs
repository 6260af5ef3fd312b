//! The endpoint's receiving side: from bytes to committed regions and answers (PROTOCOL §2.3, §5).

use std::net::SocketAddr;

use crate::proto::ack::{AckEntry, Refusal};
use crate::proto::datagram::{Datagram, Header, Opcode};
use crate::proto::event::{Event, Peer};
use crate::proto::receiver::{Incoming, Partial, Receiver};
use crate::proto::region::Region;
use crate::proto::time::Time;

use super::{Endpoint, MAX_EVENTS, MAX_PEERS, MAX_STRAY_ANSWERS, schedule};

/// What became of a WRITE datagram.
enum Outcome {
    /// Answer with this.
    Answer(Result<(), Refusal>),
    /// No memory for it now: say nothing, it will come again.
    Drop,
}

impl Endpoint {
    /// Takes what arrived from the wire. Anything may arrive; what is no datagram is counted.
    pub fn handle_datagram(&mut self, now: Time, from: SocketAddr, bytes: &[u8]) {
        let Ok(datagram) = Datagram::parse(bytes) else {
            self.stats.malformed += 1;
            return;
        };
        self.stats.received.count(datagram.payload.len());
        let header = &datagram.header;
        let peer = Peer { addr: from, incarnation: header.source };
        let for_anyone = header.destination == 0 && header.opcode != Opcode::Ack;
        if header.destination != self.incarnation() && !for_anyone {
            return self.on_misdirected(peer, header);
        }
        match header.opcode {
            Opcode::Ack => self.on_ack(now, peer, datagram.payload),
            _ if self.events.len() >= MAX_EVENTS => self.stats.overrun += 1,
            Opcode::Write => self.on_write(now, peer, header, None, datagram.payload),
            Opcode::WriteImm => {
                self.on_write(now, peer, header, Some(header.immediate), datagram.payload);
            }
            Opcode::Sum => self.on_sum(now, peer, header, datagram.payload),
        }
    }

    /// Tells the sender that the process it means is gone (PROTOCOL §4.6).
    fn on_misdirected(&mut self, peer: Peer, header: &Header) {
        self.stats.misdirected += 1;
        if header.opcode != Opcode::Ack && self.strays.len() < MAX_STRAY_ANSWERS {
            let status = Err(Refusal::WrongIncarnation);
            let entry = AckEntry { message: header.message, index: header.index, status };
            self.strays.push_back((peer, entry));
        }
    }

    fn on_ack(&mut self, now: Time, peer: Peer, payload: &[u8]) {
        let Some(sender) = self.senders.get_mut(&peer.addr) else { return };
        let Ok(entries) = AckEntry::parse_all(payload) else {
            self.stats.malformed += 1;
            return;
        };
        for entry in entries {
            sender.on_ack(now, peer.incarnation, entry, &mut self.events);
        }
        schedule(&mut self.ready, sender);
    }

    fn on_sum(&mut self, now: Time, peer: Peer, header: &Header, payload: &[u8]) {
        if self.receiver(now, peer).is_none() {
            return;
        }
        let rkey = header.rkey;
        let status = match self.regions.get_mut(&rkey) {
            None => Err(Refusal::UnknownRkey),
            Some(Region::Memory(_) | Region::Inbox { .. }) => Err(Refusal::NoRight),
            Some(Region::Sum(region)) => match region.accept(peer, header, payload) {
                Ok(committed) => {
                    self.stats.duplicates += u64::from(committed.added == 0);
                    let closed = committed.closed.into_iter();
                    self.events.extend(closed.map(|chunk| Event::ChunkClosed { rkey, chunk }));
                    Ok(())
                }
                Err(refused) => {
                    if refused.refusal == Refusal::Equivocation {
                        let (contributor, chunk) = (header.contributor, refused.chunk);
                        self.events.push_back(Event::Equivocation { rkey, contributor, chunk });
                    }
                    Err(refused.refusal)
                }
            },
        };
        self.answer(peer, header, status);
    }

    fn on_write(
        &mut self,
        now: Time,
        peer: Peer,
        header: &Header,
        immediate: Option<u32>,
        payload: &[u8],
    ) {
        let Some(receiver) = self.receiver(now, peer) else { return };
        let Some(forgotten) = receiver.admit(header.message) else {
            self.stats.duplicates += 1;
            return;
        };
        self.held -= forgotten;
        if let Outcome::Answer(status) = self.place(peer, header, immediate, payload) {
            self.answer(peer, header, status);
        }
    }

    /// Commits a WRITE datagram once, by (message, index), never by packet number (PROTOCOL §5.1).
    fn place(
        &mut self,
        peer: Peer,
        header: &Header,
        immediate: Option<u32>,
        payload: &[u8],
    ) -> Outcome {
        let held_limit = self.peer_held_limit();
        let Some(receiver) = self.receivers.get_mut(&peer) else { return Outcome::Drop };
        let repeated = match receiver.message(header.message) {
            Some(Incoming::Done) => Some(Ok(())),
            Some(Incoming::Refused(refusal)) => Some(Err(*refusal)),
            Some(Incoming::Partial(partial)) if partial.has(header.index) => Some(Ok(())),
            _ => None,
        };
        if let Some(status) = repeated {
            self.stats.duplicates += 1;
            return Outcome::Answer(status);
        }
        let Some(region) = self.regions.get_mut(&header.rkey) else {
            return self.refuse(peer, header, Refusal::UnknownRkey);
        };
        if let Err(refusal) = region.check_write(peer.addr, header, payload) {
            return self.refuse(peer, header, refusal);
        }
        if receiver.message(header.message).is_none() {
            let needed = region.assembly_bytes(header);
            let mine = receiver.held_bytes() + needed;
            if mine > held_limit || self.held + needed > self.config.held_bytes {
                self.stats.overrun += 1;
                return Outcome::Drop;
            }
            self.held += needed;
            let mut partial = Partial::new(header, immediate);
            partial.assembly = vec![0; needed];
            receiver.set(header.message, Incoming::Partial(Box::new(partial)));
        }
        let Some(Incoming::Partial(partial)) = receiver.message(header.message) else {
            return Outcome::Drop;
        };
        if !partial.agrees(header, immediate) || partial.would_overrun(payload.len()) {
            return self.refuse(peer, header, Refusal::WrongLength);
        }
        if !region.place(partial, header, payload) {
            return self.refuse(peer, header, Refusal::UnknownRkey);
        }
        if partial.commit(header, payload.len()) {
            let event = completion(region, peer, partial);
            // The bytes stay counted as held, now in the event, until it is polled.
            receiver.set(header.message, Incoming::Done);
            self.events.push_back(event);
        }
        Outcome::Answer(Ok(()))
    }

    /// Fails the whole message: its other datagrams get the same answer.
    fn refuse(&mut self, peer: Peer, header: &Header, refusal: Refusal) -> Outcome {
        if let Some(receiver) = self.receivers.get_mut(&peer) {
            self.held -= receiver.set(header.message, Incoming::Refused(refusal));
        }
        Outcome::Answer(Err(refusal))
    }

    fn receiver(&mut self, now: Time, peer: Peer) -> Option<&mut Receiver> {
        if !self.receivers.contains_key(&peer) && self.receivers.len() >= MAX_PEERS {
            self.stats.overrun += 1;
            return None;
        }
        let receiver = self.receivers.entry(peer).or_insert_with(|| Receiver::new(now));
        receiver.heard = now;
        Some(receiver)
    }

    fn answer(&mut self, peer: Peer, header: &Header, status: Result<(), Refusal>) {
        self.stats.refused += u64::from(status.is_err());
        let Some(receiver) = self.receivers.get_mut(&peer) else { return };
        receiver.answer(AckEntry { message: header.message, index: header.index, status });
        if !std::mem::replace(&mut receiver.scheduled, true) {
            self.answering.push_back(peer);
        }
    }
}

fn completion(region: &Region, from: Peer, partial: &mut Partial) -> Event {
    let (rkey, immediate) = (partial.rkey, partial.immediate);
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
