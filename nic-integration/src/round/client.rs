//! A client's side of rounds: join, contribute, receive the sums (PROTOCOL §7).

mod event;

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::task::Waker;
use std::time::Duration;

use bytes::Bytes;
use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng;

use crate::NicError;
use crate::node::Node;
use crate::proto::{
    Cause, Config, Endpoint, EndpointEvent, MessageId, NodeId, Origin, Peer, Pipeline, Refusal,
    Route, Stats, SumMessage, Time,
};

use super::message::{
    AnswerMessage, AttendMessage, JoinMessage, MAX_ROUND_MESSAGE_BYTES, MessageKind, OpenMessage,
    ProbeMessage, ReadyMessage, RefuseMessage, RequestMessage, RoundVersion, SharesMessage,
};
pub use event::{RoundClientEvent, RoundOpening, SumLayout, Sums};

use super::rkey::fresh_rkey;
use super::{ContributionId, JOIN_INBOX, Resume, RoundEnd};

/// The span between two probes of a client that waits.
pub const PROBE_SPAN: Duration = Duration::from_secs(1);
/// Pushes that may be unanswered at once. Other messages wait for those before them: a probe, a join or a farewell must
/// not wait for a whole contribution.
const MAX_PUSHES: usize = 64;

/// The configuration of a client.
#[derive(Clone)]
pub struct RoundClientConfig {
    /// The endpoint's.
    pub endpoint: Config,
    /// The aggregator's address.
    pub addr: SocketAddr,
    /// The aggregator's node.
    pub aggregator: NodeId,
    /// The number it contributes as.
    pub contributor: u16,
    /// Source of rkeys: from the operating system, fresh at every start.
    pub seed: [u8; 32],
}

/// An accepted round.
struct Accepted {
    rkey: u32,
    stride: usize,
    /// One flag per chunk: its sum was reported.
    reported: Vec<bool>,
    count: u32,
}

/// A round that is open for us.
struct ActiveRound {
    round: u32,
    incarnation: u32,
    grant: u32,
    rkey: u32,
    by_chunk: bool,
    bitmap_bytes: usize,
    accepted: Option<Accepted>,
    /// Pushes not yet answered: their first chunks, and the bytes of a chunk.
    pushes: BTreeMap<MessageId, (u32, NonZeroU32)>,
    end: Option<RoundEnd>,
}

/// An opener's answer on its way.
struct PendingAnswer {
    data: Vec<u8>,
    sent: Option<MessageId>,
}

/// An opener, as it says that it is there.
struct Attendance {
    opener: u8,
    hello: Vec<u8>,
    said: Option<MessageId>,
    /// The aggregator has it.
    is_known: bool,
}

enum ClientState {
    /// Not asked to join, refused, or done.
    Idle,
    /// JOIN is on its way, or taken: then the client waits for others.
    Joining {
        join: MessageId,
        taken: bool,
    },
    Contributing(ActiveRound),
}

/// One client of an aggregator, for any number of rounds one after the other. A [`Node`].
pub struct RoundClient {
    config: RoundClientConfig,
    endpoint: Endpoint,
    rng: ChaCha20Rng,
    inbox: u32,
    contribution: ContributionId,
    hello: Vec<u8>,
    resume: Option<Resume>,
    /// The sums of the round that ended last.
    sums: Option<Sums>,
    state: ClientState,
    /// The BYE that is not answered yet.
    bye: Option<MessageId>,
    /// The opener that this process is.
    attendance: Option<Attendance>,
    /// What it is asked, and of which round. Apart from events, which a rejoin clears.
    request: Option<(u32, Vec<u8>)>,
    /// Its answer, until the aggregator has it.
    answer: Option<PendingAnswer>,
    next_probe: Time,
    events: VecDeque<RoundClientEvent>,
}

impl RoundClient {
    /// Makes a client that has not joined yet.
    ///
    /// # Errors
    ///
    /// Those of [`Endpoint::new`] and [`Endpoint::register_inbox`].
    pub fn new(config: RoundClientConfig) -> Result<Self, NicError> {
        let mut endpoint = Endpoint::new(config.endpoint.clone())?;
        endpoint.contact(config.aggregator, config.addr);
        let mut rng = ChaCha20Rng::from_seed(config.seed);
        let inbox = fresh_rkey(&mut rng, &endpoint);
        endpoint.register_inbox(inbox, MAX_ROUND_MESSAGE_BYTES)?;
        Ok(Self {
            config,
            endpoint,
            rng,
            inbox,
            contribution: ContributionId::default(),
            hello: Vec::new(),
            resume: None,
            sums: None,
            state: ClientState::Idle,
            bye: None,
            attendance: None,
            request: None,
            answer: None,
            next_probe: Time::ZERO,
            events: VecDeque::new(),
        })
    }

    /// Asks to take part in a round with one contribution. `resume` names the round that a spooled
    /// contribution was sealed for, if there is one.
    ///
    /// # Errors
    ///
    /// [`NicError::MessageTooLong`] for a hello beyond a round message; [`NicError::WindowFull`].
    pub fn join(
        &mut self,
        now: Time,
        contribution: ContributionId,
        hello: Vec<u8>,
        resume: Option<Resume>,
    ) -> Result<(), NicError> {
        (self.contribution, self.hello, self.resume) = (contribution, hello, resume);
        self.rejoin(now)
    }

    /// Replaces the hello of the next join with the same contribution: chunks that are sealed bind
    /// it to the round terms that they were sealed under.
    pub fn amend(&mut self, hello: Vec<u8>) {
        self.hello = hello;
    }

    /// Sends the last [`join`](Self::join) again, naming the round reached since, if any.
    ///
    /// # Errors
    ///
    /// As [`join`](Self::join).
    pub fn rejoin(&mut self, now: Time) -> Result<(), NicError> {
        self.abandon();
        // Before the round can open: its terms name what openers told.
        self.say_attending(now);
        let join = JoinMessage {
            version: RoundVersion,
            contributor: self.config.contributor,
            inbox: self.inbox,
            resume: self.resume,
            contribution: self.contribution,
            hello: self.hello.clone(),
        };
        let data = join.encode();
        let limit = MAX_ROUND_MESSAGE_BYTES as usize;
        if data.len() > limit {
            return Err(NicError::MessageTooLong { bytes: data.len(), limit });
        }
        self.state =
            ClientState::Joining { join: self.send(now, MessageKind::Join, data)?, taken: false };
        self.next_probe = now + PROBE_SPAN;
        Ok(())
    }

    /// Accepts the open round: from here on sums can arrive and chunks can be pushed.
    ///
    /// # Errors
    ///
    /// [`NicError::NoOpenRound`]; [`NicError::MessageTooLong`] if the sums would not fit a region.
    pub fn accept(&mut self, now: Time, layout: SumLayout) -> Result<(), NicError> {
        let ClientState::Contributing(round) = &mut self.state else {
            return Err(NicError::NoOpenRound);
        };
        let stride = round.bitmap_bytes.saturating_add(layout.sum_bytes);
        let bytes = stride.saturating_mul(layout.chunks as usize);
        let limit = u32::MAX as usize;
        if bytes > limit {
            return Err(NicError::MessageTooLong { bytes, limit });
        }
        if let Some(former) = round.accepted.take() {
            self.endpoint.deregister(former.rkey);
        }
        let rkey = fresh_rkey(&mut self.rng, &self.endpoint);
        self.endpoint.register_memory(rkey, bytes, Some(self.config.aggregator))?;
        let reported = vec![false; layout.chunks as usize];
        round.accepted = Some(Accepted { rkey, stride, reported, count: 0 });
        let ready =
            ReadyMessage { round: round.round, grant: round.grant, rkey, stride: stride as u32 };
        self.send(now, MessageKind::Ready, ready.encode()).map(|_| ())
    }

    /// Returns the sums of the round that ended last, once, where they landed.
    #[must_use]
    pub fn take_sums(&mut self) -> Option<Sums> {
        self.sums.take()
    }

    /// Returns whether the aggregator has the join, and the client waits for others.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        matches!(self.state, ClientState::Joining { taken: true, .. })
    }

    /// Takes leave of the aggregator, which sends this client nothing new: for one that ends, and joins no more.
    /// Forgets the round, if any.
    ///
    /// # Errors
    ///
    /// [`NicError::WindowFull`]; [`NicError::NoSuchPeer`], if that aggregator is known to be gone.
    pub fn bye(&mut self, now: Time) -> Result<(), NicError> {
        let sent = self.send(now, MessageKind::Bye, vec![]);
        self.attendance = None;
        self.abandon();
        self.bye = Some(sent?);
        Ok(())
    }

    /// Returns whether the aggregator may not know yet that this client leaves.
    #[must_use]
    pub fn is_leaving(&self) -> bool {
        self.bye.is_some()
    }

    /// Returns whether [`push`](Self::push) would find space now.
    #[must_use]
    pub fn can_push(&self) -> bool {
        matches!(&self.state, ClientState::Contributing(round)
            if round.accepted.is_some() && round.pushes.len() < MAX_PUSHES)
            && self.endpoint.headroom(self.aggregator()) > 0
    }

    /// Contributes whole chunks of `chunk_bytes` each, `first_chunk` onwards; the last of all may be shorter.
    ///
    /// # Errors
    ///
    /// [`NicError::NoOpenRound`] before [`accept`](Self::accept); [`NicError::WindowFull`];
    /// [`NicError::MessageTooLong`] if a chunk fits no datagram, or all of them no message.
    pub fn push(
        &mut self,
        now: Time,
        first_chunk: u32,
        chunk_bytes: NonZeroU32,
        data: Bytes,
    ) -> Result<(), NicError> {
        let peer = self.aggregator();
        if matches!(self.state, ClientState::Contributing(_)) && !self.can_push() {
            return Err(NicError::WindowFull { peer });
        }
        let ClientState::Contributing(round) = &mut self.state else {
            return Err(NicError::NoOpenRound);
        };
        let contributor = self.config.contributor;
        let (rkey, by_chunk) = (round.rkey, round.by_chunk);
        let round_number = round.round;
        let sum = SumMessage {
            rkey,
            round: round_number,
            contributor,
            first_chunk,
            chunk_bytes,
            by_chunk,
            data,
        };
        let message = self.endpoint.sum(now, peer, sum)?;
        round.pushes.insert(message, (first_chunk, chunk_bytes));
        Ok(())
    }

    /// Sends the shares that a contribution of which every chunk is pushed opens by.
    ///
    /// # Errors
    ///
    /// [`NicError::NoOpenRound`]; [`NicError::WindowFull`]; [`NicError::MessageTooLong`].
    pub fn push_shares(&mut self, now: Time, shares: Vec<u8>) -> Result<(), NicError> {
        let ClientState::Contributing(round) = &self.state else {
            return Err(NicError::NoOpenRound);
        };
        let contribution = self.contribution;
        let message = SharesMessage { round: round.round, contribution, shares };
        self.send(now, MessageKind::Shares, message.encode()).map(|_| ())
    }

    /// Says, now and then from now on, that this process is an opener that can be asked.
    pub fn attend(&mut self, now: Time, opener: u8, hello: Vec<u8>) {
        self.attendance = Some(Attendance { opener, hello, said: None, is_known: false });
        self.say_attending(now);
    }

    /// Takes what this opener is asked, and the aggregator's number of the round.
    pub fn take_request(&mut self) -> Option<(u32, Vec<u8>)> {
        self.request.take()
    }

    /// Answers a request of a round, or says why not: again and again, until the aggregator has it. Who attends as no
    /// opener says nothing.
    pub fn answer(&mut self, now: Time, round: u32, answer: Result<Vec<u8>, String>) {
        let Some(Attendance { opener, .. }) = self.attendance else { return };
        let data = AnswerMessage { round, opener, answer }.encode();
        self.answer = Some(PendingAnswer { data, sent: None });
        self.send_answer(now);
    }

    fn send_answer(&mut self, now: Time) {
        let Some(answer) = self.answer.as_ref().filter(|answer| answer.sent.is_none()) else {
            return;
        };
        let sent = self.send(now, MessageKind::Answer, answer.data.clone()).ok();
        if let Some(answer) = &mut self.answer {
            answer.sent = sent;
        }
    }

    /// Returns whether the aggregator may not have the answer yet.
    #[must_use]
    pub fn is_answering(&self) -> bool {
        self.answer.is_some()
    }

    /// Returns whether the aggregator answers this opener.
    #[must_use]
    pub fn is_attending(&self) -> bool {
        self.attendance.as_ref().is_some_and(|attendance| attendance.is_known)
    }

    fn say_attending(&mut self, now: Time) {
        let Some(Attendance { opener, hello, .. }) = &self.attendance else { return };
        let message = AttendMessage { opener: *opener, inbox: self.inbox, hello: hello.clone() };
        // Where that finds no space it is said again.
        let sent = self.send(now, MessageKind::Attend, message.encode());
        if let (Ok(sent), Some(attendance)) = (sent, &mut self.attendance) {
            attendance.said = Some(sent);
        }
        self.next_probe = self.next_probe.max(now + PROBE_SPAN);
    }

    /// Returns the endpoint's counters.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.endpoint.stats()
    }

    /// Hands over the endpoint's pipelines from the second on: see [`Endpoint::detach`].
    pub fn detach(&mut self, wakers: Vec<Waker>) -> Vec<Pipeline> {
        self.endpoint.detach(wakers)
    }

    /// Returns the endpoint.
    #[must_use]
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Takes the next event.
    pub fn poll_event(&mut self) -> Option<RoundClientEvent> {
        self.events.pop_front()
    }

    /// Returns the aggregator's process: the one that opened our round, or whichever runs before
    /// that.
    fn aggregator(&self) -> Peer {
        let incarnation = match &self.state {
            ClientState::Contributing(round) => round.incarnation,
            ClientState::Idle | ClientState::Joining { .. } => 0,
        };
        Peer { node: self.config.aggregator, incarnation }
    }

    /// Sends a message to the aggregator's process.
    fn send(&mut self, now: Time, kind: MessageKind, data: Vec<u8>) -> Result<MessageId, NicError> {
        let peer = self.aggregator();
        self.endpoint.write(now, peer, JOIN_INBOX, 0, data.into(), Some(kind as u32))
    }

    /// Forgets the round, if any, and its events that the owner has not taken: they are void.
    fn abandon(&mut self) {
        self.leave();
        self.events.clear();
    }

    /// Forgets the round, if any.
    fn leave(&mut self) {
        if let ClientState::Contributing(round) =
            std::mem::replace(&mut self.state, ClientState::Idle)
            && let Some(accepted) = round.accepted
        {
            self.endpoint.deregister(accepted.rkey);
        }
    }

    fn advance(&mut self, now: Time) {
        while let Some(event) = self.endpoint.poll_event() {
            self.on_event(now, event);
        }
        self.try_end();
        if now >= self.next_probe {
            self.next_probe = now + PROBE_SPAN;
            self.say_attending(now);
            self.send_answer(now);
            self.probe(now);
        }
    }

    /// Probes for our contribution, but not before the aggregator can know of it.
    fn probe(&mut self, now: Time) {
        if matches!(self.state, ClientState::Idle | ClientState::Joining { taken: false, .. }) {
            return;
        }
        let RoundClientConfig { contributor, .. } = self.config;
        let probe =
            ProbeMessage { contributor, inbox: self.inbox, contribution: self.contribution };
        // Without space there is traffic already, which serves as well.
        if let Err(NicError::NoSuchPeer { .. }) = self.send(now, MessageKind::Probe, probe.encode())
        {
            self.start_over(now);
        }
    }

    fn on_event(&mut self, now: Time, event: EndpointEvent) {
        match &event {
            EndpointEvent::Completed { message, .. } | EndpointEvent::Refused { message, .. } => {
                self.bye.take_if(|bye| bye == message);
                self.answer.take_if(|answer| answer.sent == Some(*message));
                let is_taken = matches!(event, EndpointEvent::Completed { .. });
                if let Some(attendance) = &mut self.attendance {
                    attendance.is_known |= is_taken && attendance.said == Some(*message);
                }
            }
            EndpointEvent::Unreachable { .. } => {
                self.bye = None;
                if let Some(answer) = &mut self.answer {
                    answer.sent = None;
                }
                if let Some(attendance) = &mut self.attendance {
                    attendance.is_known = false;
                }
            }
            _ => {}
        }
        match event {
            EndpointEvent::Received { from, immediate, data, .. } => {
                if from.node == self.config.aggregator {
                    self.on_message(MessageKind::from_immediate(immediate), &data);
                }
            }
            EndpointEvent::Written { rkey, offset, bytes, immediate: Some(chunk), .. } => {
                self.on_sums(rkey, offset, bytes as usize, chunk);
            }
            EndpointEvent::Completed { message, .. } => match &mut self.state {
                ClientState::Joining { join, taken } => *taken |= *join == message,
                ClientState::Contributing(round) => {
                    if let Some((first_chunk, _)) = round.pushes.remove(&message) {
                        self.events.push_back(RoundClientEvent::Counted { first_chunk });
                    }
                }
                ClientState::Idle => {}
            },
            EndpointEvent::Refused { message, start, refusal, .. } => {
                self.on_refused(now, message, start, refusal);
            }
            EndpointEvent::Unreachable { cause: Cause::Restarted, .. } => self.start_over(now),
            EndpointEvent::Unreachable { cause: Cause::Silence, .. } => {
                self.abandon();
                self.events.push_back(RoundClientEvent::Unreachable);
            }
            EndpointEvent::Unreachable { cause: Cause::Unlisted, .. } => {
                self.abandon();
                self.events.push_back(RoundClientEvent::Unlisted);
            }
            EndpointEvent::Written { .. }
            | EndpointEvent::ChunkClosed { .. }
            | EndpointEvent::Staged { .. }
            | EndpointEvent::Stranger { .. } => {}
        }
    }

    fn on_message(&mut self, kind: Option<MessageKind>, data: &[u8]) {
        match kind {
            Some(MessageKind::Open) => {
                let open = OpenMessage::parse(data).ok();
                if let Some(open) = open.filter(|open| open.contribution == self.contribution) {
                    self.on_open(open);
                }
            }
            Some(MessageKind::Refuse) => {
                let refuse = RefuseMessage::parse(data).ok();
                let ours = |refuse: &RefuseMessage| refuse.contribution == self.contribution;
                if let Some(RefuseMessage { reason, .. }) = refuse.filter(ours)
                    && !matches!(self.state, ClientState::Idle)
                {
                    self.abandon();
                    self.events.push_back(RoundClientEvent::Refused { reason });
                }
            }
            Some(MessageKind::End) => {
                let end = RoundEnd::parse(data).ok();
                if let ClientState::Contributing(round) = &mut self.state
                    && let Some(end) = end
                    && end.contribution == self.contribution
                    && end.round == round.round
                {
                    round.end = Some(end);
                }
            }
            Some(MessageKind::Request) => {
                if let (Ok(message), Some(_)) = (RequestMessage::parse(data), &self.attendance) {
                    self.request = Some((message.round, message.request));
                }
            }
            Some(
                MessageKind::Join
                | MessageKind::Ready
                | MessageKind::Probe
                | MessageKind::Bye
                | MessageKind::Shares
                | MessageKind::Attend
                | MessageKind::Answer,
            )
            | None => {}
        }
    }

    fn on_open(&mut self, open: OpenMessage) {
        let OpenMessage { round, incarnation, rkey, grant, declared, .. } = open;
        let stale = match &self.state {
            ClientState::Idle => true,
            ClientState::Joining { .. } => false,
            // Two JOINs were answered, and the answers overtook one another.
            ClientState::Contributing(known) => {
                (known.round, known.incarnation) == (round, incarnation) && known.grant >= grant
            }
        };
        if stale {
            return;
        }
        self.abandon();
        self.resume = Some(Resume { incarnation, round });
        self.state = ClientState::Contributing(ActiveRound {
            round,
            incarnation,
            grant,
            rkey,
            by_chunk: open.by_chunk,
            bitmap_bytes: usize::from(declared).div_ceil(64) * 8,
            accepted: None,
            pushes: BTreeMap::new(),
            end: None,
        });
        self.events.push_back(RoundClientEvent::Opened(RoundOpening {
            round,
            incarnation,
            declared,
            min_clients: open.min_clients,
            deadline_ms: open.deadline_ms,
            contributors: open.contributors,
            terms: open.terms,
        }));
    }

    /// Reports the sums in a message, of adjacent chunks from `first` on.
    fn on_sums(&mut self, rkey: u32, offset: u64, bytes: usize, first: u32) {
        let ClientState::Contributing(round) = &mut self.state else { return };
        let Some(accepted) = round.accepted.as_mut().filter(|a| a.rkey == rkey) else { return };
        let start = first as usize * accepted.stride;
        let landed = self.endpoint.read(rkey, start..start + bytes).ok().flatten();
        let Some(sums) = landed.filter(|_| offset == start as u64) else { return };
        for (chunk, sum) in (first..).zip(sums.chunks(accepted.stride.max(1))) {
            let new = accepted.reported.get_mut(chunk as usize).filter(|reported| !**reported);
            let split = sum.split_at_checked(round.bitmap_bytes);
            let (Some(reported), Some((bitmap, sum))) = (new, split) else { continue };
            *reported = true;
            accepted.count += 1;
            let (bitmap, bytes) = (bitmap.to_vec(), sum.to_vec());
            self.events.push_back(RoundClientEvent::Sum { chunk, bitmap, bytes });
        }
    }

    fn on_refused(&mut self, now: Time, message: MessageId, start: u32, refusal: Refusal) {
        if matches!(self.state, ClientState::Joining { join, .. } if join == message) {
            self.abandon();
            let reason = format!("no aggregator there: {refusal}");
            self.events.push_back(RoundClientEvent::Refused { reason });
        }
        let ClientState::Contributing(round) = &mut self.state else { return };
        let Some((first, chunk_bytes)) = round.pushes.remove(&message) else { return };
        if refusal == Refusal::UnknownRkey {
            // The round is over and no longer retained; the aggregator will refuse by name.
            return self.start_over(now);
        }
        let first_chunk = first + start / chunk_bytes;
        self.events.push_back(RoundClientEvent::Rejected { first_chunk, refusal });
    }

    /// Joins again with the same contribution, because the round is no longer there.
    fn start_over(&mut self, now: Time) {
        if matches!(self.state, ClientState::Idle) {
            return;
        }
        if self.rejoin(now).is_err() {
            self.events.push_back(RoundClientEvent::Unreachable);
        }
    }

    /// Ends the round when as many sums have come as END counts; sums and END come in any order.
    fn try_end(&mut self) {
        let ClientState::Contributing(round) = &mut self.state else { return };
        let count = round.accepted.as_ref().map_or(0, |accepted| accepted.count);
        if let Some(end) = round.end.take_if(|end| end.closed == count) {
            if let Some(accepted) = round.accepted.take() {
                let bytes = self.endpoint.take_memory(accepted.rkey).unwrap_or_default();
                let skipped = round.bitmap_bytes;
                self.sums = Some(Sums { bytes, stride: accepted.stride, skipped });
            }
            self.leave();
            // The key of an answer that nobody waits for is for the next round.
            self.request.take_if(|(round, _)| *round == end.round);
            self.events.push_back(RoundClientEvent::Ended(end));
        }
    }
}

impl Node for RoundClient {
    fn handle_datagram(&mut self, now: Time, from: Origin, bytes: &mut [u8]) {
        self.endpoint.handle_datagram(now, from, bytes);
    }

    fn handle_arrivals(&mut self, now: Time) {
        self.advance(now);
    }

    fn handle_timeout(&mut self, now: Time) {
        self.endpoint.handle_timeout(now);
        self.advance(now);
    }

    fn poll_transmit(&mut self, now: Time, bytes: &mut Vec<u8>) -> Option<Route> {
        self.endpoint.poll_transmit(now, bytes)
    }

    fn poll_timeout(&self) -> Option<Time> {
        let is_idle = matches!(self.state, ClientState::Idle) && self.attendance.is_none();
        let probe = (!is_idle).then_some(self.next_probe);
        // Events of pipelines on other threads are acted upon at once.
        let events = self.endpoint.has_events().then_some(Time::ZERO);
        [self.endpoint.poll_timeout(), events, probe].into_iter().flatten().min()
    }
}
