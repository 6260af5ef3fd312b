//! A pipeline's receiving side: from bytes to committed regions and answers (PROTOCOL §2.3, §5).

use crate::NicError;
use crate::proto::ack::{Ack, AckNotice, Refusal};
use crate::proto::datagram::{DatagramHeader, DatagramKind, Opcode, read_prefix};
use crate::proto::event::{EndpointEvent, Peer};
use crate::proto::lock::{lock, read};
use crate::proto::path::Origin;
use crate::proto::receiver::{Incoming, Partial, Receiver};
use crate::proto::region::Region;
use crate::proto::secure::{OpenedDatagram, Session};
use crate::proto::shared::{ChannelId, MAX_EVENTS, SharedState};
use crate::proto::sum::Added;
use crate::proto::time::Time;

use super::Pipeline;

/// The outcome of a datagram.
enum Outcome {
    /// It is answered with this.
    Answer(Result<(), Refusal>),
    /// It was answered before.
    Repeated(Result<(), Refusal>),
    /// Older than the window: it is not answered.
    Old,
    /// No memory for it now: it is not answered, and will come again.
    Full,
}

impl Pipeline {
    /// Takes a datagram from the wire, and opens it in place. Anything may arrive; what no session
    /// vouches for is counted, and has no other effect. Handshakes are the endpoint's.
    pub fn handle_datagram(&mut self, now: Time, from: impl Into<Origin>, bytes: &mut [u8]) {
        self.on_datagram(now, from.into(), read_prefix(bytes), bytes);
    }

    /// As [`handle_datagram`](Self::handle_datagram), of one whose prefix is read.
    pub(in crate::proto) fn on_datagram(
        &mut self,
        now: Time,
        from: Origin,
        prefix: Result<(DatagramKind, u32), NicError>,
        bytes: &mut [u8],
    ) {
        self.drain_commands();
        match prefix {
            Ok((DatagramKind::Sealed(_), spi)) => self.on_sealed(now, from, spi >> 8, bytes),
            Ok(_) | Err(_) => self.stats.malformed += 1,
        }
    }

    fn on_sealed(&mut self, now: Time, from: Origin, index: u32, bytes: &mut [u8]) {
        let Some(id) = self.sessions.get(&index).copied() else {
            self.stats.malformed += 1;
            return;
        };
        let Some(channel) = self.channels.get_mut(&id) else { return };
        let is = |session: Option<&Session>| session.is_some_and(|s| s.local() == index);
        let current = is(channel.session.as_ref());
        let offered = is(channel.offered.as_deref().map(|offer| &offer.session));
        let session = match (current, offered) {
            (true, _) => channel.session.as_mut(),
            (_, true) => channel.offered.as_deref_mut().map(|offer| &mut offer.session),
            _ => channel.former.as_deref_mut(),
        };
        let opened = session.filter(|session| session.local() == index);
        let Some(Ok(opened)) = opened.map(|session| session.open(bytes)) else {
            self.stats.malformed += 1;
            return;
        };
        match opened {
            OpenedDatagram::Trimmed(header) => {
                self.stats.trimmed += 1;
                if current && header.opcode != Opcode::Ack {
                    channel.on_trimmed(header.packet);
                }
            }
            OpenedDatagram::Whole(..) if !current && !offered => {
                self.stats.duplicates += 1;
                channel.answer_again();
            }
            OpenedDatagram::Whole(header, payload) => {
                if offered && let Some(offer) = channel.offered.take() {
                    if !self.begin(id, *offer) {
                        self.stats.malformed += 1;
                        return;
                    }
                    self.shared.confirm(self.number, id.link, index);
                }
                self.stats.received.count(payload.len());
                self.on_opened(now, from, id, &header, payload);
            }
        }
        self.schedule(id);
    }

    /// Processes a datagram that a session vouches for.
    fn on_opened(
        &mut self,
        now: Time,
        from: Origin,
        id: ChannelId,
        header: &DatagramHeader,
        payload: &[u8],
    ) {
        let Some(channel) = self.channels.get_mut(&id) else { return };
        if !channel.admits(header.packet, header.opcode != Opcode::Ack) {
            self.stats.duplicates += 1;
            return;
        }
        channel.on_received(now, from.route, header.packet);
        if from.congested {
            self.stats.congested += 1;
            channel.on_congested();
        }
        let outcome = match header.opcode {
            Opcode::Ack => {
                channel.note(header.packet);
                match Ack::parse(payload) {
                    Ok(ack) => self.on_ack(now, id, &ack),
                    Err(_) => self.stats.malformed += 1,
                }
                return;
            }
            _ if self.shared.event_count() >= MAX_EVENTS => Outcome::Full,
            Opcode::Sum => {
                let (closed, events) = (&mut self.closed, &mut self.events);
                add(&self.shared, channel.peer, header, payload, closed, events)
            }
            Opcode::Write | Opcode::WriteImm => {
                let mut inbox = lock(&channel.messages.inbox);
                let (peer, events) = (channel.peer, &mut self.events);
                place(&self.shared, &mut inbox, peer, header, payload, events)
            }
        };
        match outcome {
            Outcome::Answer(status) | Outcome::Repeated(status) => {
                self.stats.refused += u64::from(status.is_err());
                channel.answer(header.packet, status.err().map(AckNotice::Refused));
            }
            Outcome::Old | Outcome::Full => {}
        }
        self.shared.report(self.number, self.events.drain(..));
        self.stats.duplicates += u64::from(matches!(outcome, Outcome::Repeated(_) | Outcome::Old));
        self.stats.overrun += u64::from(matches!(outcome, Outcome::Full));
    }

    fn on_ack(&mut self, now: Time, id: ChannelId, ack: &Ack<'_>) {
        let Some(channel) = self.channels.get_mut(&id) else { return };
        let mut outbox = lock(&channel.messages.outbox);
        channel.sender.on_ack(now, ack, channel.peer, &mut outbox, &mut self.events);
        let idle = outbox.take_wakeups() & !(1 << id.channel);
        drop(outbox);
        self.stats.paths_rested += channel.sender.paths.take_rested();
        self.shared.report(self.number, self.events.drain(..));
        self.wake_channels(id.link, idle);
    }
}

/// Adds a SUM datagram from where its payload lies. Under the lock of regions: nothing is added to one that is
/// withdrawn.
fn add(
    shared: &SharedState,
    from: Peer,
    header: &DatagramHeader,
    payload: &[u8],
    closed: &mut Vec<u32>,
    events: &mut Vec<EndpointEvent>,
) -> Outcome {
    let rkey = header.rkey;
    let added = shared.with_region(rkey, |region| match region {
        Region::Sum(region) => region.add(from, header, payload, closed),
        Region::Memory(_) | Region::Inbox { .. } => Err(Refusal::NoRight),
    });
    events.extend(closed.drain(..).map(|chunk| EndpointEvent::ChunkClosed { rkey, chunk }));
    match added.unwrap_or(Err(Refusal::UnknownRkey)) {
        Ok(Added { is_new: false, .. }) => Outcome::Repeated(Ok(())),
        Ok(Added { is_staged, .. }) => {
            let contributor = header.contributor;
            events.extend(is_staged.then_some(EndpointEvent::Staged { rkey, contributor }));
            Outcome::Answer(Ok(()))
        }
        Err(refusal) => Outcome::Answer(Err(refusal)),
    }
}

/// Commits a WRITE datagram once, by the blocks of its message, never by packet number (PROTOCOL §5.1).
fn place(
    shared: &SharedState,
    inbox: &mut Receiver,
    peer: Peer,
    header: &DatagramHeader,
    payload: &[u8],
    events: &mut Vec<EndpointEvent>,
) -> Outcome {
    let Some(forgotten) = inbox.admit(header.message) else { return Outcome::Old };
    shared.release(forgotten);
    if let Some(answer) = former_answer(inbox, header) {
        return Outcome::Repeated(answer);
    }
    commit(shared, inbox, peer, header, payload, events).unwrap_or_else(|refusal| {
        // Fails the whole message: its other datagrams get the same answer.
        shared.release(inbox.set(header.message, Incoming::Refused(refusal)));
        Outcome::Answer(Err(refusal))
    })
}

/// Returns the answer to a WRITE datagram if its message is done or refused.
fn former_answer(inbox: &mut Receiver, header: &DatagramHeader) -> Option<Result<(), Refusal>> {
    if inbox.is_done(header.message) {
        return Some(Ok(()));
    }
    match inbox.message(header.message)? {
        Incoming::Refused(refusal) => Some(Err(*refusal)),
        Incoming::Partial(_) => None,
    }
}

/// Commits what is new of a WRITE datagram, if there is space to assemble its message.
fn commit(
    shared: &SharedState,
    inbox: &mut Receiver,
    peer: Peer,
    header: &DatagramHeader,
    payload: &[u8],
    events: &mut Vec<EndpointEvent>,
) -> Result<Outcome, Refusal> {
    let regions = read(&shared.regions);
    let region = regions.get(&header.rkey).ok_or(Refusal::UnknownRkey)?;
    region.check_write(peer, header, payload)?;
    let immediate = (header.opcode == Opcode::WriteImm).then_some(header.immediate);
    if inbox.message(header.message).is_none() {
        let needed = region.assembly_bytes(header);
        if inbox.held_bytes() + needed > shared.peer_held_limit() || !shared.reserve(needed) {
            return Ok(Outcome::Full);
        }
        let partial = Partial::new(header, immediate, needed);
        inbox.set(header.message, Incoming::Partial(Box::new(partial)));
    }
    let Some(Incoming::Partial(partial)) = inbox.message(header.message) else {
        return Ok(Outcome::Full);
    };
    if !partial.agrees(header, immediate) {
        return Err(Refusal::WrongLength);
    }
    if partial.has(header, payload.len()) {
        return Ok(Outcome::Repeated(Ok(())));
    }
    if !region.place(partial, header, payload) {
        return Err(Refusal::UnknownRkey);
    }
    if partial.commit(header, payload.len()) {
        events.push(completion(region, peer, partial));
        // The bytes stay counted as held, now in the event, until it is polled.
        shared.release(inbox.finish(header.message));
    }
    Ok(Outcome::Answer(Ok(())))
}

fn completion(region: &Region, from: Peer, partial: &mut Partial) -> EndpointEvent {
    let (rkey, immediate) = (partial.rkey, partial.immediate);
    if let (Region::Memory(memory), Some(_)) = (region, immediate) {
        memory.with(|landed| landed.immediates += 1);
    }
    match region {
        Region::Inbox { .. } => {
            let data = std::mem::take(&mut partial.assembly);
            EndpointEvent::Received { from, rkey, immediate, data }
        }
        Region::Memory(_) | Region::Sum(_) => EndpointEvent::Written {
            from,
            rkey,
            offset: partial.offset,
            bytes: partial.message_bytes,
            immediate,
        },
    }
}
