//! The aggregator's side of rounds: admission, opening, deadlines, delivery (PROTOCOL §7).

mod admission;
mod allowing;
mod openers;
mod opening;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::task::Waker;
use std::time::Duration;

use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng;

use crate::NicError;
use crate::node::Node;
use crate::proto::{
    Cause, Config, Endpoint, EndpointEvent, MessageId, NodeId, Origin, Peer, Pipeline, Route,
    Stats, Stranger, Time,
};

use super::message::{
    AnswerMessage, AttendMessage, JoinMessage, MAX_ROUND_MESSAGE_BYTES, MessageKind, ProbeMessage,
    ReadyMessage, SharesMessage,
};
use super::open::{HeldRound, RoundProgress, RoundSummary};
use super::pending::{AdmittedClient, PendingRound};
use super::{Application, JOIN_INBOX, Shortage};
pub use openers::SPARE_SPAN;
use openers::{Asking, Attendant};

/// The span after which an application that prepares a round is asked again.
const PREPARING_SPAN: Duration = Duration::from_millis(20);

/// Events that may wait for the owner; newer ones are dropped.
pub const MAX_AGGREGATOR_EVENTS: usize = 1 << 16;

/// The configuration of an aggregator.
#[derive(Clone)]
pub struct AggregatorConfig {
    /// The endpoint's, but for the nodes that it allows, which are `nodes`.
    pub endpoint: Config,
    /// The nodes that may take part, and the one contributor that each may be, if it is bound to
    /// one.
    pub nodes: BTreeMap<NodeId, Option<u16>>,
    /// The number of clients declared; contributor numbers are below it.
    pub clients: u16,
    /// No sum of fewer ever leaves.
    pub min_clients: u16,
    /// The number of rounds to run; 0 for no end.
    pub rounds: u32,
    /// The span in which a round waits for clients: from the first one's joining, or from the
    /// closing of the round before if that is later.
    pub join_deadline: Duration,
    /// Whether clients that are fewer than the minimum at the join deadline go on waiting. Otherwise
    /// they are refused; and no further round opens, unless there is no end of them.
    pub wait_for_clients: bool,
    /// The span after its opening in which a round waits for contributions, and then again for openers.
    pub round_deadline: Duration,
    /// Whether only whole contributions count, as always with openers. They are staged until all of their chunks are
    /// there.
    /// Takes memory for all contributions of a round, at most
    /// [`MAX_STAGED_BYTES`](crate::proto::MAX_STAGED_BYTES): a larger round does not open.
    pub whole: bool,
    /// The span for which a closed round goes on that nobody acknowledges a delivery of. While somebody does, all of
    /// its deliveries may take as long as its contributions, and this span.
    pub linger: Duration,
    /// Source of rkeys: from the operating system, fresh at every start.
    pub seed: [u8; 32],
}

/// An event of an aggregator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AggregatorEvent {
    /// A client waits for the next round.
    Joined {
        /// Its number.
        contributor: u16,
        /// Its process.
        peer: Peer,
        /// The clients declared that the round still waits for, ascending.
        missing: Vec<u16>,
    },
    /// A client was refused, at its JOIN or by a round that opened without it, and sent the reason.
    Refused {
        /// The number it claimed.
        contributor: u16,
        /// The reason.
        reason: String,
    },
    /// A client came back with its contribution and continues.
    Resumed {
        /// The round it continues.
        round: u32,
        /// Its number.
        contributor: u16,
    },
    /// The application prepares a round that takes time: those who join meanwhile are in the next one.
    Preparing {
        /// The round.
        round: u32,
        /// The number of clients that wait.
        clients: usize,
    },
    /// A round began.
    Opened {
        /// The round.
        round: u32,
        /// Its contributors, ascending.
        contributors: Vec<u16>,
        /// The number of its chunks.
        chunks: u32,
    },
    /// The application could not open a round; everyone was refused and may join anew.
    OpenFailed {
        /// The reason.
        reason: String,
    },
    /// The join deadline passed with fewer clients than a round needs.
    TooFew(Shortage),
    /// Other nodes may take part from the next round on. Each list is ascending.
    Allowed {
        /// Nodes that may take part now.
        added: Vec<NodeId>,
        /// Nodes that no longer may.
        removed: Vec<NodeId>,
        /// Nodes that may be another contributor than before.
        rebound: Vec<NodeId>,
    },
    /// A chunk is settled.
    Settled {
        /// The round.
        round: u32,
        /// The chunk.
        chunk: u32,
        /// The number of contributors.
        contributors: u32,
        /// `true` if the sum is written back, `false` if it is withheld.
        leaves: bool,
    },
    /// Somebody who may not take part tried to. Reported now and then only.
    Stranger {
        /// The address that it came from; nobody vouches for that.
        from: SocketAddr,
        /// What is wrong with it.
        stranger: Stranger,
    },
    /// A client no longer answers, or takes too long; deliveries to it are given up unless it joins again.
    Lost {
        /// The round.
        round: u32,
        /// The client.
        contributor: u16,
    },
    /// An opener can be asked.
    OpenerAttends {
        /// Its place.
        opener: u8,
        /// Its process.
        peer: Peer,
    },
    /// An opener cannot be asked, or gave no answer that opens the sums of the round.
    OpenerRefused {
        /// Its place, as it said.
        opener: u8,
        /// The reason.
        reason: String,
    },
    /// An opener answered.
    OpenerAnswered {
        /// The round.
        round: u32,
        /// Its place.
        opener: u8,
    },
    /// The round ended with fewer answers of openers than open its sums.
    TooFewAnswers {
        /// The round.
        round: u32,
        /// The answers.
        found: usize,
        /// The number that opens sums.
        needed: usize,
    },
    /// Every chunk of the round is settled, and openers have answered if it has such.
    Closed(RoundSummary),
    /// Every sum is delivered, or given up.
    Finished {
        /// The round.
        round: u32,
    },
}

/// An aggregator of `rounds` rounds over one [`Application`]. A [`Node`].
pub struct Aggregator<A> {
    config: AggregatorConfig,
    endpoint: Endpoint,
    application: A,
    rng: ChaCha20Rng,
    pending: PendingRound,
    /// Clients that waited and were refused, until others join by their numbers: one whose refusal
    /// is still on its way may ask whether it is known.
    left_out: BTreeMap<u16, (AdmittedClient, String)>,
    /// The reasons of refusals since the last round opened, by the numbers claimed.
    refused: BTreeMap<u16, String>,
    /// Refusals that are not answered yet.
    refusals: BTreeSet<(Peer, MessageId)>,
    /// Nodes that may no longer take part, and are still received from: they finish the round under way, or
    /// are sent the reason.
    leaving: BTreeSet<NodeId>,
    /// The application prepares the next round, and is asked again soon.
    is_preparing: bool,
    /// Too few clients came: no further round opens.
    given_up: bool,
    current: Option<HeldRound>,
    /// Of the open round, if sums take the answers of openers.
    asking: Option<Asking>,
    /// Openers that can be asked.
    attendants: BTreeMap<Peer, Attendant>,
    /// Until when the first round waits for openers, once it could open.
    openers_until: Option<Time>,
    /// Nodes that cannot be asked as the openers that they say they are.
    turned_away: BTreeSet<NodeId>,
    /// The last round that closed: its sums are kept until the next one closes.
    last: Option<HeldRound>,
    /// Rounds opened so far.
    opened: u32,
    /// The latest time.
    seen: Time,
    events: VecDeque<AggregatorEvent>,
}

impl<A: Application> Aggregator<A> {
    /// Makes an aggregator that waits for its first client.
    ///
    /// # Errors
    ///
    /// [`NicError::Quorum`] unless 1 ≤ `min_clients` ≤ `clients`; those of [`Endpoint::new`] and
    /// [`Endpoint::register_inbox`].
    pub fn new(config: AggregatorConfig, application: A) -> Result<Self, NicError> {
        let AggregatorConfig { clients, min_clients, .. } = config;
        if min_clients == 0 || min_clients > clients {
            return Err(NicError::Quorum { clients, min_clients });
        }
        let allow = config.nodes.keys().copied().collect();
        let mut endpoint = Endpoint::new(Config { allow, ..config.endpoint.clone() })?;
        endpoint.register_inbox(JOIN_INBOX, MAX_ROUND_MESSAGE_BYTES)?;
        Ok(Self {
            rng: ChaCha20Rng::from_seed(config.seed),
            config,
            endpoint,
            application,
            pending: PendingRound::default(),
            left_out: BTreeMap::new(),
            refused: BTreeMap::new(),
            refusals: BTreeSet::new(),
            leaving: BTreeSet::new(),
            is_preparing: false,
            given_up: false,
            current: None,
            asking: None,
            attendants: BTreeMap::new(),
            openers_until: None,
            turned_away: BTreeSet::new(),
            last: None,
            opened: 0,
            seen: Time::ZERO,
            events: VecDeque::new(),
        })
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

    /// Returns the progress of the open round, or of the last one; `None` before the first.
    #[must_use]
    pub fn progress(&mut self) -> Option<RoundProgress> {
        let round = self.current.as_ref().or(self.last.as_ref())?;
        let region = self.endpoint.sum_region(round.rkey()).ok()?;
        Some(round.progress(&region))
    }

    /// Returns the application.
    #[must_use]
    pub fn application(&self) -> &A {
        &self.application
    }

    /// Returns the number of clients that wait for the next round.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.pending.count()
    }

    /// Returns whether all rounds are over and delivered; or too few clients came to the next one,
    /// and those who did know.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        let reported = !self.given_up || self.refusals.is_empty();
        self.is_last_opened() && self.current.is_none() && self.is_delivered() && reported
    }

    /// Returns whether the sums of the last round that closed are delivered, or given up.
    #[must_use]
    pub fn is_delivered(&self) -> bool {
        self.last.as_ref().is_none_or(|round| round.finished)
    }

    /// Returns whether everybody of the round that closed last has left, or is given up.
    #[must_use]
    pub fn is_left(&self) -> bool {
        self.last.as_ref().is_none_or(HeldRound::is_left)
    }

    /// Returns whether no further round opens.
    fn is_last_opened(&self) -> bool {
        let most = if self.config.rounds == 0 { u32::MAX } else { self.config.rounds };
        self.given_up || self.opened == most
    }

    /// Takes the next event.
    pub fn poll_event(&mut self) -> Option<AggregatorEvent> {
        self.events.pop_front()
    }

    /// Acts on the endpoint's events and on deadlines.
    fn advance(&mut self, now: Time) {
        self.seen = now;
        while let Some(event) = self.endpoint.poll_event() {
            self.on_event(now, event);
        }
        self.close_late_chunks(now);
        self.try_end(now);
        self.try_open(now);
        for round in self.current.iter_mut().chain(&mut self.last) {
            round.pump(now, &mut self.endpoint);
        }
        self.try_finish(now);
        self.let_go();
    }

    fn on_event(&mut self, now: Time, event: EndpointEvent) {
        match event {
            EndpointEvent::Received { from, immediate, data, .. } => {
                self.on_message(now, from, MessageKind::from_immediate(immediate), &data);
            }
            EndpointEvent::ChunkClosed { rkey, chunk } => self.settle(rkey, chunk),
            EndpointEvent::Completed { peer, message } => {
                self.refusals.remove(&(peer, message));
                self.rounds().for_each(|round| round.on_completed(now, peer, message));
            }
            EndpointEvent::Refused { peer, message, .. } => {
                self.refusals.remove(&(peer, message));
                self.report_lost(|round| round.on_refused(peer, message));
            }
            EndpointEvent::Unreachable {
                peer,
                cause: Cause::Silence | Cause::Restarted | Cause::Unlisted,
            } => {
                self.refusals.retain(|(to, _)| *to != peer);
                self.forget_attendant(peer);
                self.report_lost(|round| round.give_up(peer));
            }
            EndpointEvent::Stranger { from, stranger } => {
                self.emit(AggregatorEvent::Stranger { from, stranger });
            }
            EndpointEvent::Staged { rkey, contributor } => self.try_admit(now, rkey, contributor),
            EndpointEvent::Written { .. } => {}
        }
    }

    fn on_message(&mut self, now: Time, from: Peer, kind: Option<MessageKind>, data: &[u8]) {
        match kind {
            Some(MessageKind::Join) => {
                let Ok(join) = JoinMessage::parse(data) else { return };
                let (contributor, inbox) = (join.contributor, join.inbox);
                let joined = AdmittedClient { peer: from, inbox, contribution: join.contribution };
                if let Err(reason) = self.on_join(now, join, joined.clone()) {
                    self.refuse(now, contributor, &joined, reason);
                }
            }
            Some(MessageKind::Ready) => {
                let Ok(ready) = ReadyMessage::parse(data) else { return };
                let Some(round) = self.rounds().find(|round| round.number() == ready.round) else {
                    return;
                };
                if let Some(contributor) = round.contributor_at(from) {
                    round.on_ready(contributor, ready);
                }
            }
            Some(MessageKind::Probe) => {
                let Ok(probe) = ProbeMessage::parse(data) else { return };
                self.on_probe(now, from, probe);
            }
            Some(MessageKind::Bye) => {
                self.refusals.retain(|(to, _)| *to != from);
                self.pending.leave_all_of(from);
                self.forget_attendant(from);
                self.report_lost(|round| round.leave(from));
            }
            Some(MessageKind::Shares) => {
                let Ok(shares) = SharesMessage::parse(data) else { return };
                self.on_shares(now, from, &shares);
            }
            Some(MessageKind::Attend) => {
                let Ok(attend) = AttendMessage::parse(data) else { return };
                self.on_attend(from, &attend);
            }
            Some(MessageKind::Answer) => {
                let Ok(answer) = AnswerMessage::parse(data) else { return };
                self.on_answer(from, answer);
            }
            Some(
                MessageKind::Open | MessageKind::Refuse | MessageKind::End | MessageKind::Request,
            )
            | None => {}
        }
    }

    fn settle(&mut self, rkey: u32, chunk: u32) {
        let Some(round) = self.current.as_mut().filter(|round| round.rkey() == rkey) else {
            return;
        };
        let Ok(region) = self.endpoint.sum_region(rkey) else { return };
        let Some((contributors, leaves)) = round.settle(chunk, &region) else { return };
        let round = round.number();
        self.emit(AggregatorEvent::Settled { round, chunk, contributors, leaves });
    }

    fn close_late_chunks(&mut self, now: Time) {
        let Some(round) = self.current.as_ref().filter(|round| round.deadline <= now) else {
            return;
        };
        let (rkey, unsettled) = (round.rkey(), round.unsettled());
        let Ok(region) = self.endpoint.sum_region(rkey) else { return };
        // Before any is settled: pipelines still add.
        region.close_all(&unsettled);
        unsettled.into_iter().for_each(|chunk| self.settle(rkey, chunk));
    }

    /// Moves the open round, once every chunk is settled and openers have answered, to where sums are delivered from.
    fn try_end(&mut self, now: Time) {
        if !self.current.as_ref().is_some_and(HeldRound::is_settled) {
            return;
        }
        self.ask(now);
        let Some(answers) = self.answers(now) else { return };
        let Some(round) = self.current.as_mut() else { return };
        round.end_with(now, answers, now + self.config.round_deadline + self.config.linger);
        let end = round.end(Default::default());
        // Its clients join the next round only now.
        self.pending.restart(now + self.config.join_deadline);
        let former = std::mem::replace(&mut self.last, self.current.take());
        if let Some(mut former) = former {
            self.endpoint.deregister(former.rkey());
            if !former.finished {
                self.report_finished(former.number(), former.finish());
            }
        }
        self.emit(AggregatorEvent::Closed(RoundSummary {
            round: end.round,
            closed: end.closed,
            withheld: end.withheld,
            reason: end.reason,
            contributed: end.contributed,
        }));
    }

    fn try_finish(&mut self, now: Time) {
        let Some(held) = self.last.as_mut().filter(|round| !round.finished) else { return };
        let is_late = held.delivery_end(self.config.linger).is_some_and(|end| now >= end);
        if is_late || held.is_served() {
            let (round, unserved) = (held.number(), held.finish());
            self.report_finished(round, unserved);
        }
    }

    fn report_finished(&mut self, round: u32, unserved: Vec<u16>) {
        let lost = |contributor| AggregatorEvent::Lost { round, contributor };
        unserved.into_iter().map(lost).for_each(|event| self.emit(event));
        self.emit(AggregatorEvent::Finished { round });
    }

    /// Lets deliveries of the round that closed last take no longer than the linger span from now on.
    pub fn hasten(&mut self, now: Time) {
        let end = now + self.config.linger;
        self.last.iter_mut().for_each(|round| round.end_deliveries_by(end));
    }

    fn report_lost(&mut self, mut give_up: impl FnMut(&mut HeldRound) -> Option<u16>) {
        let lost: Vec<AggregatorEvent> = self
            .rounds()
            .filter_map(|round| {
                let contributor = give_up(round)?;
                Some(AggregatorEvent::Lost { round: round.number(), contributor })
            })
            .collect();
        lost.into_iter().for_each(|event| self.emit(event));
    }

    fn rounds(&mut self) -> impl Iterator<Item = &mut HeldRound> {
        self.current.iter_mut().chain(&mut self.last)
    }

    fn emit(&mut self, event: AggregatorEvent) {
        if self.events.len() < MAX_AGGREGATOR_EVENTS {
            self.events.push_back(event);
        }
    }
}

impl<A: Application> Node for Aggregator<A> {
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
        let pending = self.pending.next_timeout(self.seen);
        let open = self.current.as_ref().filter(|round| !round.is_settled());
        let deadline = open.map(|round| round.deadline);
        let last = self.last.as_ref().filter(|round| !round.finished);
        let linger = last.and_then(|round| round.delivery_end(self.config.linger));
        // Events of pipelines on other threads are acted upon at once.
        let events = self.endpoint.has_events().then_some(Time::ZERO);
        let preparing = self.is_preparing.then_some(self.seen + PREPARING_SPAN);
        let asking = self.asking_timeout();
        let all =
            [self.endpoint.poll_timeout(), events, pending, deadline, linger, preparing, asking];
        all.into_iter().flatten().min()
    }
}
