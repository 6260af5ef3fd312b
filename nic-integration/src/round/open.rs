//! One round from its opening until its sums are delivered (PROTOCOL §7.4 to §7.6).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;

use crate::proto::datagram::{BLOCK_BYTES, OVERHEAD_BYTES};
use crate::proto::{DatagramSizes, Endpoint, MessageId, NodeId, Peer, SumRegion, Time};

use super::message::{MessageKind, OpenMessage, ReadyMessage, RoundEnd};
use super::pending::AdmittedClient;

/// Messages to a client that deliveries leave space for, so that a refusal always finds a place.
const RESERVED_MESSAGES: usize = 8;
/// Deliveries that may be unanswered, of all participants together. A queued one takes some 200
/// bytes, and thousands of sums may be due to each of a thousand participants.
const MAX_UNANSWERED: usize = 1 << 15;
/// Deliveries to one participant that may be unanswered, however many participants there are.
const MIN_UNANSWERED: usize = 16;
/// Bytes of sums packed into one message, which the longest datagram then carries; a longer sum goes alone.
const MAX_SUMS_BYTES: usize = {
    let bytes = DatagramSizes::DEFAULT.most - OVERHEAD_BYTES as u32;
    (bytes - bytes % BLOCK_BYTES) as usize
};
/// Bytes of OPENs that may be unanswered. Each lists every participant: those of a thousand come to
/// 36 MB.
const MAX_OPENING_BYTES: usize = 4 << 20;

/// The outcome of a round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoundSummary {
    /// The round.
    pub round: u32,
    /// Chunks summed and written back.
    pub closed: u32,
    /// Chunks whose sums never leave.
    pub withheld: u32,
    /// The reason for the first of those; empty if there is none.
    pub reason: String,
    /// Each contributor's number and the number of closed chunks that it is in, ascending.
    pub contributed: Vec<(u16, u32)>,
}

/// The progress of a round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoundProgress {
    /// The round.
    pub round: u32,
    /// The contributors that it opened with, ascending, and the number of chunks that came from each.
    pub received: Vec<(u16, u32)>,
    /// The number of its chunks.
    pub chunks: u32,
    /// Chunks settled so far: summed or withheld.
    pub settled: u32,
}

/// The sums of adjacent chunks that leave in one message, all of one length.
struct SumRun {
    first: u32,
    /// The contributor bitmap and the sum of each, as written back.
    bytes: Bytes,
}

/// The state of a participant.
pub(super) enum ParticipantStatus {
    /// It has been sent, or will be, all that is due to it; or it left.
    Served,
    /// It did not answer, or refused a delivery: it is sent nothing.
    GivenUp,
}

/// A delivery to a participant.
#[derive(Clone, Copy)]
enum RoundDelivery {
    Open,
    Sums,
    End,
}

struct Participant {
    joined: AdmittedClient,
    /// The number of its valid OPEN; a READY for an earlier one is stale.
    grant: u32,
    /// Its region for the sums, once it has declared one.
    ready: Option<ReadyMessage>,
    open_sent: bool,
    /// The number of runs of sums that it was sent, in the order in which chunks closed.
    runs_sent: usize,
    unanswered: BTreeSet<MessageId>,
    end_sent: bool,
    /// Given up or left, until it joins again.
    gone: bool,
    /// It said itself that it leaves.
    left: bool,
}

impl Participant {
    fn new(joined: AdmittedClient, grant: u32) -> Self {
        Self {
            joined,
            grant,
            ready: None,
            open_sent: false,
            runs_sent: 0,
            unanswered: BTreeSet::new(),
            end_sent: false,
            gone: false,
            left: false,
        }
    }

    /// Returns whether it was sent everything: END is the last delivery.
    fn is_served(&self) -> bool {
        self.gone || (self.end_sent && self.unanswered.is_empty())
    }
}

/// How far the deliveries of a closed round are.
struct Delivery {
    /// When one was last acknowledged; at first, when the round closed.
    last: Time,
    /// When all are over.
    end: Time,
}

/// A round that is open, or closed and retained.
pub(super) struct HeldRound {
    /// The OPEN, with the latest grant; contribution, remaining time and its own grant are filled
    /// in for each participant.
    opening: OpenMessage,
    pub(super) deadline: Time,
    participants: BTreeMap<u16, Participant>,
    by_peer: BTreeMap<Peer, u16>,
    /// One flag per chunk: it is summed or withheld.
    settled: Vec<bool>,
    /// Sums that leave, and their chunks, since the last `pump`, which packs them.
    unpacked: Vec<(u32, Vec<u8>)>,
    /// The packed sums, in the order in which their chunks closed.
    runs: Vec<SumRun>,
    /// Participants whose OPEN is unanswered.
    opening_now: BTreeMap<u16, MessageId>,
    unsettled: u32,
    withheld: u32,
    /// The reason for the first chunk withheld.
    reason: String,
    contributed: BTreeMap<u16, u32>,
    /// Of openers, once the round is closed.
    answers: Vec<u8>,
    /// Once it is closed.
    delivery: Option<Delivery>,
    pub(super) finished: bool,
    /// `pump` must look at every participant.
    dirty: bool,
    /// Participants that `pump` must look at: an answer makes space for the next delivery.
    asking: BTreeSet<u16>,
}

impl HeldRound {
    pub(super) fn new(
        opening: OpenMessage,
        deadline: Time,
        chunks: u32,
        joined: BTreeMap<u16, AdmittedClient>,
    ) -> Self {
        Self {
            deadline,
            by_peer: joined.iter().map(|(number, joined)| (joined.peer, *number)).collect(),
            contributed: joined.keys().map(|number| (*number, 0)).collect(),
            participants: joined.into_iter().map(|(n, j)| (n, Participant::new(j, 0))).collect(),
            settled: vec![false; chunks as usize],
            unpacked: vec![],
            runs: vec![],
            opening_now: BTreeMap::new(),
            unsettled: chunks,
            withheld: 0,
            reason: String::new(),
            answers: vec![],
            delivery: None,
            finished: false,
            dirty: true,
            asking: BTreeSet::new(),
            opening,
        }
    }

    pub(super) fn number(&self) -> u32 {
        self.opening.round
    }

    pub(super) fn progress(&self, region: &SumRegion) -> RoundProgress {
        let chunks = self.settled.len() as u32;
        RoundProgress {
            round: self.number(),
            received: self.participants.keys().map(|n| (*n, region.received(*n))).collect(),
            chunks,
            settled: chunks - self.unsettled,
        }
    }

    pub(super) fn rkey(&self) -> u32 {
        self.opening.rkey
    }

    /// Returns the client that has joined as `contributor`.
    pub(super) fn joined(&self, contributor: u16) -> Option<&AdmittedClient> {
        self.participants.get(&contributor).map(|participant| &participant.joined)
    }

    /// Returns whether a process of that node takes part.
    pub(super) fn has(&self, node: NodeId) -> bool {
        self.participants.values().any(|participant| participant.joined.peer.node == node)
    }

    /// Returns the state of a participant, if it is this very client.
    pub(super) fn status(
        &self,
        contributor: u16,
        joined: &AdmittedClient,
    ) -> Option<ParticipantStatus> {
        let participant = self.participants.get(&contributor).filter(|p| p.joined == *joined)?;
        // A PROBE that its BYE overtook brings nobody back.
        let is_given_up = participant.gone && !participant.left;
        Some(if is_given_up { ParticipantStatus::GivenUp } else { ParticipantStatus::Served })
    }

    pub(super) fn contributor_at(&self, peer: Peer) -> Option<u16> {
        self.by_peer.get(&peer).copied()
    }

    /// Returns the chunks that are not settled yet.
    pub(super) fn unsettled(&self) -> Vec<u32> {
        let open = self.settled.iter().zip(0..).filter(|(settled, _)| !**settled);
        open.map(|(_, number)| number).collect()
    }

    /// Returns the number of chunks whose sums leave.
    pub(super) fn summed(&self) -> u32 {
        self.settled.len() as u32 - self.unsettled - self.withheld
    }

    pub(super) fn end(&self, contribution: super::ContributionId) -> RoundEnd {
        RoundEnd {
            contribution,
            round: self.number(),
            closed: self.summed(),
            withheld: self.withheld,
            reason: self.reason.clone(),
            contributed: self.contributed.iter().map(|(n, chunks)| (*n, *chunks)).collect(),
            answers: self.answers.clone(),
        }
    }

    /// Hands a participant's place to the process that joined again (PROTOCOL §7.7).
    pub(super) fn take_over(&mut self, contributor: u16, joined: AdmittedClient) {
        if let Some(former) = self.participants.get(&contributor) {
            self.by_peer.remove(&former.joined.peer);
        }
        self.opening.grant += 1;
        self.opening_now.remove(&contributor);
        self.by_peer.insert(joined.peer, contributor);
        self.participants.insert(contributor, Participant::new(joined, self.opening.grant));
        self.dirty = true;
    }

    /// Notes a participant's region: it is sent all sums so far, then those that follow.
    pub(super) fn on_ready(&mut self, contributor: u16, ready: ReadyMessage) {
        let Some(participant) = self.participants.get_mut(&contributor) else { return };
        if participant.grant != ready.grant || participant.ready.is_some() {
            return;
        }
        participant.ready = Some(ready);
        self.dirty = true;
    }

    /// Settles a closed chunk: its sum leaves at once if enough contributed, and never otherwise
    /// (PROTOCOL §7.5). Returns the number of contributors, and whether the sum leaves; `None` if
    /// the chunk is settled already.
    pub(super) fn settle(&mut self, chunk: u32, region: &SumRegion) -> Option<(u32, bool)> {
        let settled = self.settled.get_mut(chunk as usize).filter(|settled| !**settled)?;
        *settled = true;
        self.unsettled -= 1;
        self.dirty = true;
        let count = region.contributor_count(chunk);
        let sum = if count < u32::from(self.opening.min_clients) {
            Err(format!("{count} of at least {} contributed", self.opening.min_clients))
        } else {
            region.finish(chunk)
        };
        let leaves = sum.is_ok();
        match sum {
            Ok(sum) => self.close(chunk, region, &sum),
            Err(reason) => self.withhold(chunk, &reason),
        }
        Some((count, leaves))
    }

    fn close(&mut self, chunk: u32, region: &SumRegion, sum: &[u8]) {
        for (contributor, chunks) in &mut self.contributed {
            *chunks += u32::from(region.has(chunk, *contributor));
        }
        let mut bytes = region.bitmap(chunk);
        bytes.extend_from_slice(sum);
        self.unpacked.push((chunk, bytes));
    }

    fn withhold(&mut self, chunk: u32, reason: &str) {
        if self.withheld == 0 {
            self.reason = format!("chunk {chunk}: {reason}");
        }
        self.withheld += 1;
    }

    /// Returns whether every chunk is settled.
    pub(super) fn is_settled(&self) -> bool {
        self.unsettled == 0
    }

    /// Ends the round, of which every chunk is settled. Its deliveries may take until `end`.
    pub(super) fn end_with(&mut self, now: Time, answers: Vec<u8>, end: Time) {
        (self.delivery, self.answers) = (Some(Delivery { last: now, end }), answers);
        self.dirty = true;
    }

    /// Returns when its deliveries are over, if nobody acknowledges one for the linger span; `None` before it closes.
    pub(super) fn delivery_end(&self, linger: Duration) -> Option<Time> {
        self.delivery.as_ref().map(|delivery| delivery.end.min(delivery.last + linger))
    }

    /// Lets deliveries take no longer than until `end`.
    pub(super) fn end_deliveries_by(&mut self, end: Time) {
        self.delivery.iter_mut().for_each(|delivery| delivery.end = delivery.end.min(end));
    }

    pub(super) fn is_served(&self) -> bool {
        self.delivery.is_some() && self.participants.values().all(Participant::is_served)
    }

    /// Ends its deliveries. Returns the participants that are given up for that, ascending.
    pub(super) fn finish(&mut self) -> Vec<u16> {
        self.finished = true;
        let all = self.participants.iter_mut();
        let unserved = all.filter(|(_, participant)| !participant.is_served());
        unserved
            .map(|(number, participant)| {
                participant.gone = true;
                participant.unanswered.clear();
                *number
            })
            .collect()
    }

    pub(super) fn is_left(&self) -> bool {
        self.participants.values().all(|participant| participant.gone)
    }

    pub(super) fn on_completed(&mut self, now: Time, peer: Peer, message: MessageId) {
        let Some(contributor) = self.contributor_at(peer) else { return };
        let Some(participant) = self.participants.get_mut(&contributor) else { return };
        let is_known = participant.unanswered.remove(&message);
        if is_known {
            self.asking.insert(contributor);
        }
        if self.opening_now.get(&contributor) == Some(&message) {
            self.opening_now.remove(&contributor);
            self.dirty = true;
        } else if let (true, Some(delivery)) = (is_known, &mut self.delivery) {
            delivery.last = now;
        }
    }

    /// Gives up a participant whose delivery failed; the others are not held back. Returns its
    /// number if it was not given up before.
    pub(super) fn on_refused(&mut self, peer: Peer, message: MessageId) -> Option<u16> {
        let known = self.at(peer)?.unanswered.contains(&message);
        if known { self.give_up(peer) } else { None }
    }

    pub(super) fn give_up(&mut self, peer: Peer) -> Option<u16> {
        let contributor = self.contributor_at(peer)?;
        let participant = self.participants.get_mut(&contributor)?;
        let news = !std::mem::replace(&mut participant.gone, true);
        participant.unanswered.clear();
        // Another may be opened in its place.
        self.dirty |= self.opening_now.remove(&contributor).is_some();
        news.then_some(contributor)
    }

    /// Sends a participant nothing more, which said so itself. Returns its number if it leaves before its END.
    pub(super) fn leave(&mut self, peer: Peer) -> Option<u16> {
        let participant = self.at(peer)?;
        participant.left = true;
        let has_end = participant.end_sent;
        self.give_up(peer).filter(|_| !has_end)
    }

    /// Gives up the former process of the node that `peer` is a process of, if it was the same
    /// contributor.
    pub(super) fn give_up_predecessor(&mut self, contributor: u16, peer: Peer) {
        let former = self.joined(contributor).map(|joined| joined.peer);
        if let Some(former) = former.filter(|former| former.node == peer.node && *former != peer) {
            self.give_up(former);
        }
    }

    /// Queues the deliveries that are due, as far as there is space.
    pub(super) fn pump(&mut self, now: Time, endpoint: &mut Endpoint) {
        self.pack_sums();
        let mut numbers = std::mem::take(&mut self.asking);
        if std::mem::replace(&mut self.dirty, false) {
            numbers = self.participants.keys().copied().collect();
        }
        numbers.into_iter().for_each(|number| self.serve(now, number, endpoint));
    }

    /// Packs the sums finished since the last call: adjacent ones together, as many as a datagram carries.
    fn pack_sums(&mut self) {
        let mut sums = std::mem::take(&mut self.unpacked).into_iter().peekable();
        while let Some((first, mut bytes)) = sums.next() {
            let (stride, mut next) = (bytes.len(), first + 1);
            while bytes.len() + stride <= MAX_SUMS_BYTES
                && let Some((_, sum)) =
                    sums.next_if(|(chunk, sum)| *chunk == next && sum.len() == stride)
            {
                bytes.extend_from_slice(&sum);
                next += 1;
            }
            // Kept until they are delivered, so without space to grow.
            self.runs.push(SumRun { first, bytes: bytes.into_boxed_slice().into() });
        }
    }

    fn serve(&mut self, now: Time, contributor: u16, endpoint: &mut Endpoint) {
        let most = (MAX_UNANSWERED / self.participants.len().max(1)).max(MIN_UNANSWERED);
        while let Some(participant) = self.participants.get(&contributor) {
            let peer = participant.joined.peer;
            let Some(delivery) = self.due(participant) else { return };
            let full = participant.unanswered.len() >= most;
            if participant.gone || full || endpoint.headroom(peer) <= RESERVED_MESSAGES {
                return;
            }
            let sent = self.deliver(now, participant, delivery, endpoint);
            let Some(participant) = self.participants.get_mut(&contributor) else { return };
            match delivery {
                RoundDelivery::Open => participant.open_sent = true,
                RoundDelivery::Sums => participant.runs_sent += 1,
                RoundDelivery::End => participant.end_sent = true,
            }
            let Some(message) = sent else {
                self.give_up(peer);
                return;
            };
            participant.unanswered.insert(message);
            if matches!(delivery, RoundDelivery::Open) {
                self.opening_now.insert(contributor, message);
            }
        }
    }

    /// Returns a participant's next delivery: OPEN, the sums once it is ready, and END after the
    /// last of them.
    fn due(&self, participant: &Participant) -> Option<RoundDelivery> {
        if !participant.open_sent {
            let bytes = (self.opening_now.len() + 1) * self.opening.terms.len();
            let free = self.opening_now.is_empty() || bytes <= MAX_OPENING_BYTES;
            return free.then_some(RoundDelivery::Open);
        }
        participant.ready.as_ref()?;
        match self.runs.get(participant.runs_sent) {
            Some(_) => Some(RoundDelivery::Sums),
            None if participant.end_sent || self.delivery.is_none() => None,
            None => Some(RoundDelivery::End),
        }
    }

    fn deliver(
        &self,
        now: Time,
        participant: &Participant,
        delivery: RoundDelivery,
        endpoint: &mut Endpoint,
    ) -> Option<MessageId> {
        let AdmittedClient { peer, inbox, contribution } = participant.joined;
        let (rkey, offset, data, immediate) = match delivery {
            RoundDelivery::Open => {
                let deadline_ms = self.deadline.since(now).as_millis() as u64;
                let open = OpenMessage {
                    contribution,
                    deadline_ms,
                    grant: participant.grant,
                    ..self.opening.clone()
                };
                (inbox, 0, open.encode().into(), MessageKind::Open as u32)
            }
            RoundDelivery::End => {
                (inbox, 0, self.end(contribution).encode().into(), MessageKind::End as u32)
            }
            RoundDelivery::Sums => {
                let ready = participant.ready.as_ref()?;
                let run = self.runs.get(participant.runs_sent)?;
                let offset = u64::from(run.first) * u64::from(ready.stride);
                (ready.rkey, offset, run.bytes.clone(), run.first)
            }
        };
        endpoint.write(now, peer, rkey, offset, data, Some(immediate)).ok()
    }

    fn at(&mut self, peer: Peer) -> Option<&mut Participant> {
        self.participants.get_mut(self.by_peer.get(&peer)?)
    }
}
