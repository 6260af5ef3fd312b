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
    /// Whether the region counts each chunk by itself, so that datagrams carry whole ones.
    pub by_chunk: bool,
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
    /// Bytes of which datagrams carry whole multiples, unless they end the message.
    pub(super) grain: NonZeroU32,
}

#[derive(Debug)]
struct Outgoing {
    message: Message,
    /// Datagrams that were cut off so far, each at least once on its way.
    cut: Vec<Cut>,
    /// Of those: not yet answered.
    open: u32,
    /// Bytes that they carry.
    taken: u32,
}

impl Outgoing {
    /// Returns the most bytes that a datagram of at most `limit` carries, of `rest` bytes.
    fn fitting(&self, limit: u32, rest: u32) -> u32 {
        let grain = self.message.grain.get();
        // Where not even one grain fits, the datagram is as long as that takes.
        ((limit / grain).max(1) * grain).min(rest)
    }

    /// Returns whether all of it is cut off. An empty message still needs one datagram to carry its immediate.
    fn is_all_cut(&self) -> bool {
        self.taken as usize == self.message.data.len() && !self.cut.is_empty()
    }
}

/// What one datagram of a message carries, and which packet carries it.
#[derive(Clone, Copy, Debug)]
struct Cut {
    start: u32,
    bytes: u32,
    carrier: Carrier,
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

/// A datagram's place: its message, and the number of the message's datagrams that were cut off before it.
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
    outgoing: Numbered<Outgoing>,
    /// Empty while all flows are.
    flows: Box<[Flow]>,
    flow_count: u16,
    /// Without flows: channels that found nothing to send.
    idle: u16,
}

impl Outbox {
    pub(super) fn new(flows: u16, first_message: u64) -> Self {
        Self {
            outgoing: Numbered::new(first_message),
            flows: Box::default(),
            flow_count: flows.max(1),
            idle: 0,
        }
    }

    /// Makes an empty outbox for another process in the place of this one's: ids ascend from here
    /// on.
    pub(super) fn successor(&self) -> Self {
        Self::new(self.flow_count, self.next_message())
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
        let id = self.outgoing.push(Outgoing { message, cut: vec![], open: 0, taken: 0 });
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

    /// Takes a flow's next datagram, for a path whose datagrams have at most `limit` bytes of payload: those to be sent
    /// again come first, unless they were answered meanwhile. The caller must [carry](Self::carry) it.
    pub(super) fn take(&mut self, flow: usize, limit: u32) -> Option<(DatagramSlot, Reason)> {
        while let Some((slot, reason)) = self.flows.get_mut(flow)?.resend.pop_front() {
            if self.cut(slot).is_some_and(|cut| cut.carrier == Carrier::QUEUED) {
                self.shorten(slot, limit);
                return Some((slot, reason));
            }
        }
        let unsent = &mut self.flows[flow].unsent;
        let id = *unsent.front()?;
        let outgoing = self.outgoing.get_mut(id)?;
        let start = outgoing.taken;
        let bytes = outgoing.fitting(limit, outgoing.message.data.len() as u32 - start);
        let place = outgoing.cut.len() as u32;
        outgoing.cut.push(Cut { start, bytes, carrier: Carrier::QUEUED });
        outgoing.taken += bytes;
        outgoing.open += 1;
        if outgoing.is_all_cut() {
            unsent.pop_front();
        }
        Some(((id, place), Reason::Fresh))
    }

    /// Leaves to a datagram what `limit` bytes hold, and queues the rest as another one.
    pub(super) fn shorten(&mut self, slot: DatagramSlot, limit: u32) {
        let Some(outgoing) = self.outgoing.get_mut(slot.0) else { return };
        let Some(&Cut { start, bytes, .. }) = outgoing.cut.get(slot.1 as usize) else { return };
        let kept = outgoing.fitting(limit, bytes);
        if kept == bytes {
            return;
        }
        outgoing.cut[slot.1 as usize].bytes = kept;
        let place = outgoing.cut.len() as u32;
        let (start, bytes) = (start + kept, bytes - kept);
        outgoing.cut.push(Cut { start, bytes, carrier: Carrier::QUEUED });
        outgoing.open += 1;
        self.flow(slot.0).resend.push_front(((slot.0, place), Reason::Again));
    }

    /// Returns the bytes of a flow's next payload as a function of their limit; none if it is to be sent again.
    pub(super) fn next_cut(&self, flow: usize) -> Option<impl Fn(u32) -> u32> {
        let flow = self.flows.get(flow).filter(|flow| flow.resend.is_empty())?;
        let outgoing = self.outgoing.get(*flow.unsent.front()?)?;
        let rest = outgoing.message.data.len() as u32 - outgoing.taken;
        Some(move |limit| outgoing.fitting(limit, rest))
    }

    /// Notes the carrier of a datagram.
    pub(super) fn carry(&mut self, (id, place): DatagramSlot, by: Carrier) {
        let outgoing = self.outgoing.get_mut(id);
        if let Some(cut) = outgoing.and_then(|outgoing| outgoing.cut.get_mut(place as usize)) {
            cut.carrier = by;
        }
    }

    /// Returns whether that packet is the last that carried the datagram, which is not answered.
    pub(super) fn is_carried(&self, slot: DatagramSlot, by: Carrier) -> bool {
        self.cut(slot).is_some_and(|cut| cut.carrier == by)
    }

    fn cut(&self, (id, place): DatagramSlot) -> Option<&Cut> {
        self.outgoing.get(id)?.cut.get(place as usize)
    }

    /// Finds a datagram of a flow that is in flight by another channel.
    pub(super) fn carried_elsewhere(&self, flow: usize, channel: u16) -> Option<DatagramSlot> {
        let own = self
            .outgoing
            .iter()
            .filter(|(id, _)| (*id % self.flow_count() as u64) as usize == flow);
        own.flat_map(|(id, outgoing)| {
            (0..).zip(&outgoing.cut).map(move |(at, cut)| ((id, at), cut.carrier))
        })
        .find_map(|(slot, by)| by.is_by_another(channel).then_some(slot))
    }

    /// Builds the header of a datagram, and finds its payload.
    pub(super) fn outbound(&self, (id, place): DatagramSlot) -> Option<Outbound> {
        let Outgoing { message, cut, .. } = self.outgoing.get(id)?;
        let &Cut { start, bytes, .. } = cut.get(place as usize)?;
        let header = DatagramHeader {
            opcode: message.opcode,
            contributor: message.contributor,
            message: id,
            offset: message.offset + u64::from(start),
            rkey: message.rkey,
            message_bytes: message.data.len() as u32,
            start,
            immediate: message.immediate,
            ..DatagramHeader::default()
        };
        let range = start as usize..(start + bytes) as usize;
        Some(Outbound { header, data: message.data.clone(), range })
    }

    /// Notes that a datagram is committed.
    pub(super) fn on_committed(
        &mut self,
        (id, place): DatagramSlot,
        peer: Peer,
        events: &mut impl Extend<EndpointEvent>,
    ) {
        let Some(outgoing) = self.outgoing.get_mut(id) else { return };
        let Some(cut) = outgoing.cut.get_mut(place as usize) else { return };
        if std::mem::replace(&mut cut.carrier, Carrier::DONE) == Carrier::DONE {
            return;
        }
        outgoing.open -= 1;
        if outgoing.open == 0 && outgoing.is_all_cut() {
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
            let start = outgoing.cut.get(place as usize).map_or(0, |cut| cut.start);
            events.extend([EndpointEvent::Refused {
                peer,
                message: MessageId(id),
                start,
                refusal,
            }]);
        }
    }

    /// Queues a datagram again, before any that was never sent; an early one goes first.
    pub(super) fn requeue(&mut self, slot: DatagramSlot, reason: Reason) {
        let cut = self.outgoing.get_mut(slot.0).map(|outgoing| &mut outgoing.cut);
        if let Some(cut) = cut.and_then(|all| all.get_mut(slot.1 as usize)) {
            cut.carrier = Carrier::QUEUED;
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
            let sent = outgoing.cut.iter().map(|cut| cut.carrier).zip(0..);
            let open = sent.filter(|(by, _)| *by != Carrier::DONE && *by != Carrier::QUEUED);
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

    fn message(grain: u32, data: &[u8]) -> Message {
        Message {
            opcode: Opcode::Write,
            contributor: 0,
            rkey: 4,
            offset: 1000,
            data: data.to_vec().into(),
            immediate: 5,
            grain: NonZeroU32::new(grain).unwrap(),
        }
    }

    proptest! {
        /// Datagrams of a message have all of it, cut at its grain, however the path's limit changes; also of those
        /// that are sent again.
        #[test]
        fn datagrams_have_all_of_their_message(
            limits in proptest::collection::vec((1u32..2000, any::<bool>()), 1..20),
            grain in 1u32..300,
            bytes in 0usize..9000,
        ) {
            let data: Vec<u8> = (0..bytes).map(|at| at as u8).collect();
            let mut outbox = Outbox::new(1, 40);
            prop_assert_eq!(outbox.queue(Time::ZERO, message(grain, &data)), MessageId(40));
            let (mut seen, peer, mut events) = (vec![false; bytes], Peer::of(super::super::NodeId([1; 32])), vec![]);
            let limits = limits.into_iter().chain(std::iter::repeat((70, true)));
            for (limit, arrives) in limits {
                let Some((slot, _)) = outbox.take(0, limit) else { break };
                outbox.carry(slot, Carrier::new(0, slot.1.into()));
                let Outbound { header, data, range } = outbox.outbound(slot).unwrap();
                prop_assert_eq!((header.offset, header.start as usize), (1000 + range.start as u64, range.start));
                prop_assert!(header.cuts_at(grain, range.len()) && range.len() <= limit.max(grain) as usize);
                prop_assert!(data[range.clone()].iter().zip(range.clone()).all(|(byte, at)| *byte == at as u8));
                if arrives {
                    range.for_each(|at| seen[at] = true);
                    outbox.on_committed(slot, peer, &mut events);
                } else {
                    outbox.requeue(slot, Reason::Again);
                }
            }
            prop_assert!(seen.iter().all(|seen| *seen));
            prop_assert_eq!(events, [EndpointEvent::Completed { peer, message: MessageId(40) }]);
            prop_assert!(outbox.is_idle());
        }
    }

    /// An answer to a datagram that was longer before counts for what it still carries.
    #[test]
    fn what_was_shortened_on_its_way_is_sent_again() {
        let (mut outbox, data) = (Outbox::new(1, 0), vec![7; 640]);
        outbox.queue(Time::ZERO, message(64, &data));
        let (slot, _) = outbox.take(0, 640).unwrap();
        outbox.carry(slot, Carrier::new(0, 3));
        outbox.shorten(slot, 200);
        let (rest, reason) = outbox.take(0, 200).unwrap();
        assert_eq!((outbox.outbound(slot).unwrap().range, reason), (0..192, Reason::Again));
        assert_eq!(outbox.outbound(rest).unwrap().range, 192..384);
        let (peer, mut events) = (Peer::of(super::super::NodeId([1; 32])), vec![]);
        outbox.on_committed(slot, peer, &mut events);
        outbox.on_committed(rest, peer, &mut events);
        assert!(events.is_empty(), "there is more");
    }
}
