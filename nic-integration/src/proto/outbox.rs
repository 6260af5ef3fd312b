//! Messages to one peer, whichever channels carry their datagrams (PROTOCOL §4.2, §4.9).

use std::collections::VecDeque;
use std::num::NonZeroU32;
use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;

use super::ack::Refusal;
use super::datagram::{DatagramHeader, Opcode};
use super::event::{EndpointEvent, MessageId, Peer};
use super::numbered::Numbered;
use super::time::Time;

/// Messages to one peer that may be unanswered at once. The ids of unanswered messages are no
/// further apart, so that a receiver can forget older ones (PROTOCOL §4.2).
pub const MESSAGE_WINDOW: u64 = 1024;

/// Whole chunks of a contribution, one after the other.
#[derive(Clone, Debug)]
pub struct SumMessage {
    /// The sum region.
    pub rkey: u32,
    /// The round that the region sums.
    pub round: u32,
    /// The number contributed as.
    pub contributor: u16,
    /// The first of the chunks.
    pub first_chunk: u32,
    /// Bytes of a chunk. Only the last of the contribution may be shorter.
    pub chunk_bytes: NonZeroU32,
    /// The bytes of the chunks.
    pub data: Bytes,
}

/// A message as the caller gave it.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) opcode: Opcode,
    pub(super) contributor: u16,
    pub(super) rkey: u32,
    pub(super) offset: u64,
    pub(super) data: Bytes,
    pub(super) immediate: u32,
    /// SUM: the first chunk. WRITE: 0.
    pub(super) first_index: u32,
    /// SUM: bytes of a chunk, of which datagrams carry whole ones. WRITE: none.
    pub(super) chunk_bytes: Option<NonZeroU32>,
}

#[derive(Debug)]
struct Outgoing {
    message: Message,
    cut: Cut,
    /// Datagrams that carry it.
    count: u32,
    /// Of those: not yet answered.
    open: u32,
    /// The last carrier of each datagram that was sent.
    carriers: Vec<Carrier>,
}

impl Outgoing {
    /// Returns the index of a datagram. A caller may name chunks that do not exist.
    fn index(&self, place: u32) -> u32 {
        self.message.first_index.saturating_add(place * self.cut.indices)
    }
}

/// The share of a message that each of its datagrams carries, the last one perhaps less.
#[derive(Clone, Copy, Debug)]
struct Cut {
    bytes: u32,
    /// The indices of the header that they take: SUM counts chunks, WRITE datagrams.
    indices: u32,
}

impl Cut {
    /// Fills datagrams with as many whole chunks as `limit` bytes hold, or with any bytes.
    fn new(limit: u32, chunk_bytes: Option<NonZeroU32>) -> Self {
        let Some(chunk) = chunk_bytes else { return Self { bytes: limit, indices: 1 } };
        let chunks = (limit / chunk).max(1);
        Self { bytes: chunks * chunk.get(), indices: chunks }
    }
}

/// The state of a datagram: answered, queued to be sent again, or carried by a packet of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Carrier(u64);

impl Carrier {
    const DONE: Self = Self(u64::MAX);
    const QUEUED: Self = Self(u64::MAX - 1);
    /// Packet numbers stay below: a channel would need centuries.
    const PACKET_BITS: u32 = 56;

    pub(super) fn new(channel: u16, packet: u64) -> Self {
        Self(u64::from(channel) << Self::PACKET_BITS | packet)
    }

    fn is_by_another(self, channel: u16) -> bool {
        let open = self != Self::DONE && self != Self::QUEUED;
        open && self.0 >> Self::PACKET_BITS != u64::from(channel)
    }
}

/// A datagram's place: its message, and the number of the message's datagrams before it.
pub(super) type DatagramSlot = (u64, u32);

/// The reason to send a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    /// It was never sent.
    Fresh,
    /// It was lost, or asks for an answer.
    Again,
    /// A trimmed header asked for it.
    Early,
    /// It tries a path that rests; the same datagram is in flight by another.
    Trial,
}

/// The state of one channel's paths of one flow, for the other channels.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FlowHealth {
    /// At least one of them does not rest.
    pub(super) up: bool,
    /// When a datagram by them was last answered.
    pub(super) answered: Time,
    /// The quickest round trip of those that do not rest.
    pub(super) quickest: Option<Duration>,
}

/// The datagrams that a flow has to send.
#[derive(Debug, Default)]
struct Flow {
    /// Messages not yet answered.
    open: u32,
    /// When something was last answered, or the first unanswered message was queued.
    waiting_since: Time,
    /// Messages with datagrams never sent, oldest first.
    unsent: VecDeque<u64>,
    /// Datagrams to send again.
    resend: VecDeque<(DatagramSlot, Reason)>,
    /// The health of each channel, if there are several.
    health: Vec<FlowHealth>,
    /// Channels that found nothing of it to send, one bit each. They are woken when there is
    /// something.
    idle: u16,
}

impl Flow {
    fn has_work(&self) -> bool {
        !self.unsent.is_empty() || !self.resend.is_empty()
    }
}

/// A datagram to seal: its header, and its payload's place in the message.
pub(super) struct Outbound {
    pub(super) header: DatagramHeader,
    pub(super) data: Bytes,
    pub(super) range: Range<usize>,
}

#[derive(Debug)]
pub(super) struct Outbox {
    payload_limit: u32,
    outgoing: Numbered<Outgoing>,
    /// Empty while all flows are.
    flows: Box<[Flow]>,
    flow_count: u16,
    /// Without flows: channels that found nothing to send.
    idle: u16,
}

impl Outbox {
    pub(super) fn new(payload_limit: usize, flows: u16, first_message: u64) -> Self {
        Self {
            payload_limit: payload_limit as u32,
            outgoing: Numbered::new(first_message),
            flows: Box::default(),
            flow_count: flows.max(1),
            idle: 0,
        }
    }

    /// Makes an empty outbox for another process in the place of this one's: ids ascend from here
    /// on.
    pub(super) fn successor(&self) -> Self {
        Self::new(self.payload_limit as usize, self.flow_count, self.next_message())
    }

    /// Returns the number of messages that may be queued (PROTOCOL §4.2).
    pub(super) fn headroom(&self) -> usize {
        MESSAGE_WINDOW as usize - self.outgoing.span()
    }

    pub(super) fn flow_count(&self) -> usize {
        self.flow_count.into()
    }

    pub(super) fn next_message(&self) -> u64 {
        self.outgoing.next()
    }

    /// Continues above ids that another link has used towards the same peer. Has no effect while
    /// messages are unanswered, for they keep their ids.
    pub(super) fn skip_to(&mut self, message: u64) {
        if self.is_idle() {
            self.outgoing = Numbered::new(self.next_message().max(message));
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.outgoing.is_empty()
    }

    /// Returns when something was last answered, or the first unanswered message was queued: the
    /// earliest such time of all flows with something unanswered.
    pub(super) fn waiting_since(&self) -> Time {
        let open = self.flows.iter().filter(|flow| flow.open > 0);
        open.map(|flow| flow.waiting_since).min().unwrap_or(Time::ZERO)
    }

    /// Queues a message; the caller has checked that there is space.
    pub(super) fn queue(&mut self, now: Time, message: Message) -> MessageId {
        let cut = Cut::new(self.payload_limit, message.chunk_bytes);
        // An empty message still needs one datagram to carry its immediate.
        let count = message.data.len().div_ceil(cut.bytes as usize).max(1) as u32;
        let carriers = Vec::with_capacity(count as usize);
        let id = self.outgoing.push(Outgoing { message, cut, count, open: count, carriers });
        let flow = self.flow(id);
        if flow.open == 0 {
            flow.waiting_since = now;
        }
        flow.open += 1;
        flow.unsent.push_back(id);
        MessageId(id)
    }

    /// Returns the flow that a message is dealt to.
    fn flow(&mut self, id: u64) -> &mut Flow {
        if self.flows.is_empty() {
            let flow = || Flow { idle: self.idle, ..Flow::default() };
            self.flows = std::iter::repeat_with(flow).take(self.flow_count()).collect();
        }
        let count = self.flows.len() as u64;
        &mut self.flows[(id % count) as usize]
    }

    /// Takes a flow's next datagram: those to be sent again come first, unless they were answered
    /// meanwhile. The caller must [carry](Self::carry) it.
    pub(super) fn take(&mut self, flow: usize) -> Option<(DatagramSlot, Reason)> {
        while let Some((slot, reason)) = self.flows.get_mut(flow)?.resend.pop_front() {
            if self.carrier(slot) == Some(Carrier::QUEUED) {
                return Some((slot, reason));
            }
        }
        let unsent = &mut self.flows[flow].unsent;
        let id = *unsent.front()?;
        let outgoing = self.outgoing.get(id)?;
        let place = outgoing.carriers.len() as u32;
        if place + 1 == outgoing.count {
            unsent.pop_front();
        }
        Some(((id, place), Reason::Fresh))
    }

    /// Notes the carrier of a datagram.
    pub(super) fn carry(&mut self, slot: DatagramSlot, by: Carrier) {
        let Some(outgoing) = self.outgoing.get_mut(slot.0) else { return };
        match outgoing.carriers.get_mut(slot.1 as usize) {
            Some(carrier) => *carrier = by,
            None => outgoing.carriers.push(by),
        }
    }

    /// Returns whether that packet is the last that carried the datagram, which is not answered.
    pub(super) fn is_carried(&self, slot: DatagramSlot, by: Carrier) -> bool {
        self.carrier(slot) == Some(by)
    }

    fn carrier(&self, (id, place): DatagramSlot) -> Option<Carrier> {
        self.outgoing.get(id)?.carriers.get(place as usize).copied()
    }

    /// Finds a datagram of a flow that is in flight by another channel.
    pub(super) fn carried_elsewhere(&self, flow: usize, channel: u16) -> Option<DatagramSlot> {
        let own = self
            .outgoing
            .iter()
            .filter(|(id, _)| (*id % self.flow_count() as u64) as usize == flow);
        own.flat_map(|(id, outgoing)| {
            (0..).zip(&outgoing.carriers).map(move |(at, by)| ((id, at), by))
        })
        .find_map(|(slot, by)| by.is_by_another(channel).then_some(slot))
    }

    /// Builds the header of a datagram, and finds its payload.
    pub(super) fn outbound(&self, (id, place): DatagramSlot) -> Option<Outbound> {
        let outgoing = self.outgoing.get(id)?;
        let Outgoing { message, cut, .. } = outgoing;
        let each = cut.bytes as usize;
        let start = place as usize * each;
        let end = message.data.len().min(start + each);
        let header = DatagramHeader {
            opcode: message.opcode,
            contributor: message.contributor,
            message: id,
            offset: message.offset + start as u64,
            rkey: message.rkey,
            message_bytes: message.data.len() as u32,
            index: outgoing.index(place),
            immediate: message.immediate,
            ..DatagramHeader::default()
        };
        Some(Outbound { header, data: message.data.clone(), range: start..end })
    }

    /// Notes that a datagram is committed.
    pub(super) fn on_committed(
        &mut self,
        (id, place): DatagramSlot,
        peer: Peer,
        events: &mut impl Extend<EndpointEvent>,
    ) {
        let Some(outgoing) = self.outgoing.get_mut(id) else { return };
        let Some(carrier) = outgoing.carriers.get_mut(place as usize) else { return };
        if std::mem::replace(carrier, Carrier::DONE) == Carrier::DONE {
            return;
        }
        outgoing.open -= 1;
        if outgoing.open == 0 {
            self.outgoing.remove(id);
            self.flow(id).open -= 1;
            events.extend([EndpointEvent::Completed { peer, message: MessageId(id) }]);
        }
    }

    /// Notes that a datagram was refused, and its message with it.
    pub(super) fn on_refused(
        &mut self,
        (id, place): DatagramSlot,
        refusal: Refusal,
        peer: Peer,
        events: &mut impl Extend<EndpointEvent>,
    ) {
        if let Some(outgoing) = self.outgoing.remove(id) {
            let flow = self.flow(id);
            flow.open -= 1;
            flow.unsent.retain(|unsent| *unsent != id);
            let index = outgoing.index(place);
            events.extend([EndpointEvent::Refused {
                peer,
                message: MessageId(id),
                index,
                refusal,
            }]);
        }
    }

    /// Queues a datagram again, before any that was never sent; an early one goes first.
    pub(super) fn requeue(&mut self, slot: DatagramSlot, reason: Reason) {
        let carriers = self.outgoing.get_mut(slot.0).map(|outgoing| &mut outgoing.carriers);
        if let Some(carrier) = carriers.and_then(|all| all.get_mut(slot.1 as usize)) {
            *carrier = Carrier::QUEUED;
            let resend = &mut self.flow(slot.0).resend;
            match reason {
                Reason::Early => resend.push_front((slot, reason)),
                _ => resend.push_back((slot, reason)),
            }
        }
    }

    /// Queues all datagrams in flight again: no channel knows of them any more.
    pub(super) fn requeue_all(&mut self) {
        let all = self.outgoing.iter().flat_map(|(id, outgoing)| {
            let sent = outgoing.carriers.iter().zip(0..);
            let open = sent.filter(|(by, _)| **by != Carrier::DONE && **by != Carrier::QUEUED);
            open.map(move |(_, place)| (id, place))
        });
        let all: Vec<DatagramSlot> = all.collect();
        all.into_iter().for_each(|slot| self.requeue(slot, Reason::Again));
    }

    /// Drops every message; ids go on ascending, since the receiver remembers those it has
    /// answered.
    pub(super) fn fail_all(&mut self) {
        self.outgoing = Numbered::new(self.next_message());
        let emptied = |flow: &mut Flow| *flow = Flow { idle: flow.idle, ..Flow::default() };
        self.flows.iter_mut().for_each(emptied);
    }

    /// Frees memory that can be remade.
    pub(super) fn shrink(&mut self) {
        if self.is_idle() {
            self.idle = self.flows.iter().fold(self.idle, |idle, flow| idle | flow.idle);
            self.flows = Box::default();
            self.outgoing = Numbered::new(self.next_message());
        }
    }

    // Channels.

    /// Notes that a channel could send more of a flow than there was: it is woken when there is
    /// more.
    pub(super) fn on_idle(&mut self, channel: u16) {
        if self.flows.is_empty() {
            self.idle |= 1 << channel;
        }
        let empty = self.flows.iter_mut().filter(|flow| !flow.has_work());
        empty.for_each(|flow| flow.idle |= 1 << channel);
    }

    /// Takes the set of channels to wake, one bit each, since there is something to send. They are
    /// not in the set again before they found nothing once more.
    pub(super) fn take_wakeups(&mut self) -> u16 {
        let full = self.flows.iter_mut().filter(|flow| flow.has_work());
        full.fold(0, |channels, flow| channels | std::mem::take(&mut flow.idle))
    }

    /// Notes that something of a flow was answered.
    pub(super) fn on_answered(&mut self, now: Time, flow: usize) {
        if let Some(flow) = self.flows.get_mut(flow) {
            flow.waiting_since = flow.waiting_since.max(now);
        }
    }

    /// Sets the health of a channel's paths of a flow.
    pub(super) fn set_health(&mut self, flow: usize, channel: u16, health: FlowHealth) {
        let Some(flow) = self.flows.get_mut(flow) else { return };
        let channel = usize::from(channel);
        if flow.health.len() <= channel {
            flow.health.resize(channel + 1, FlowHealth::default());
        }
        flow.health[channel] = health;
    }

    /// Returns the joint health of other channels' paths of a flow, if one of them does not rest.
    pub(super) fn health_elsewhere(&self, flow: usize, channel: u16) -> Option<FlowHealth> {
        let health = self.flows.get(flow).map_or(&[][..], |flow| &flow.health);
        let others = health.iter().zip(0..).filter(|(health, of)| *of != channel && health.up);
        others.map(|(health, _)| *health).reduce(|a, b| FlowHealth {
            up: true,
            answered: a.answered.max(b.answered),
            quickest: a.quickest.into_iter().chain(b.quickest).min(),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Datagrams of a message have all of it, in order; those of a SUM have whole chunks.
        #[test]
        fn datagrams_have_all_of_their_message(limit in 1u32..2000, chunk in 0u32..700, bytes in 0usize..9000) {
            let chunk_bytes = NonZeroU32::new(chunk).filter(|chunk| chunk.get() <= limit);
            let opcode = if chunk_bytes.is_some() { Opcode::Sum } else { Opcode::Write };
            let data: Vec<u8> = (0..bytes).map(|at| at as u8).collect();
            let message = Message {
                opcode,
                contributor: 3,
                rkey: 4,
                offset: 1000,
                data: data.clone().into(),
                immediate: 5,
                first_index: 7,
                chunk_bytes,
            };
            let mut outbox = Outbox::new(limit as usize, 1, 40);
            prop_assert_eq!(outbox.queue(Time::ZERO, message), MessageId(40));
            let each = chunk_bytes.map_or(limit, |chunk| limit / chunk * chunk.get()) as usize;
            let mut seen = vec![];
            while let Some((slot, reason)) = outbox.take(0) {
                prop_assert_eq!(reason, Reason::Fresh);
                outbox.carry(slot, Carrier::new(0, slot.1.into()));
                let Outbound { header, data, range } = outbox.outbound(slot).unwrap();
                prop_assert_eq!(header.offset, 1000 + seen.len() as u64);
                let index = chunk_bytes.map_or(slot.1, |chunk| seen.len() as u32 / chunk);
                prop_assert_eq!(header.index, 7 + index);
                prop_assert!(range.len() == each || seen.len() + range.len() == bytes);
                seen.extend_from_slice(&data[range]);
            }
            prop_assert_eq!(seen, data);
        }
    }
}
