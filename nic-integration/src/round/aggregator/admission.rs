//! Clients that join, come back, or ask whether they are still known (PROTOCOL §7.3, §7.7, §7.8).

use crate::proto::{Peer, Time};
use crate::round::Application;
use crate::round::message::{JoinMessage, MessageKind, ProbeMessage, RefuseMessage};
use crate::round::open::{HeldRound, ParticipantStatus};
use crate::round::pending::AdmittedClient;

use super::{Aggregator, AggregatorEvent};

impl<A: Application> Aggregator<A> {
    /// Answers a client that asks whether it is still known. The acknowledgement shows that this
    /// incarnation lives. A client that was given up resumes; an unknown one is refused
    /// (PROTOCOL §7.8).
    pub(super) fn on_probe(&mut self, now: Time, peer: Peer, probe: ProbeMessage) {
        let ProbeMessage { contributor, inbox, contribution } = probe;
        let joined = AdmittedClient { peer, inbox, contribution };
        if self.pending.waits(contributor, &joined) {
            return;
        }
        let status = self.rounds().find_map(|round| round.status(contributor, &joined));
        match status {
            Some(ParticipantStatus::Served) => {}
            Some(ParticipantStatus::GivenUp) => {
                self.resume(contributor, &joined);
            }
            None => {
                let left_out = self.left_out.get(&contributor).filter(|(who, _)| *who == joined);
                let left_out = left_out.map(|(_, reason)| reason.clone());
                let reason = left_out.or_else(|| self.taken(contributor)).unwrap_or_else(|| {
                    format!("the contribution of contributor {contributor} is in no round held")
                });
                self.refuse(now, contributor, &joined, reason);
            }
        }
    }

    /// Admits, resumes or refuses a client (PROTOCOL §7.3, §7.7).
    pub(super) fn on_join(
        &mut self,
        now: Time,
        join: JoinMessage,
        joined: AdmittedClient,
    ) -> Result<(), String> {
        let JoinMessage { contributor, contribution, .. } = join;
        let clients = self.config.clients;
        if contributor >= clients {
            return Err(format!(
                "contributor {contributor} is out of range: {clients} clients are declared, \
                 numbered from 0"
            ));
        }
        let bound = self.check_bound(contributor, joined.peer.node);
        if !self.is_held(contributor, joined.peer.node) {
            bound.clone()?;
        }
        self.rounds().for_each(|round| round.give_up_predecessor(contributor, joined.peer));
        if self.resume(contributor, &joined) {
            return Ok(());
        }
        bound?;
        if let Some(reason) = self.taken(contributor) {
            return Err(reason);
        }
        // A resume of another incarnation's round is void: that round died with its aggregator.
        if let Some(resume) = join.resume
            && resume.incarnation == self.endpoint.incarnation()
        {
            return Err(format!("round {} is over and its sums are no longer here", resume.round));
        }
        if self.given_up {
            return Err("too few clients joined, and no further round opens".into());
        }
        if self.is_last_opened() {
            return Err(format!("the last round opened without contributor {contributor}"));
        }
        self.application.admit(contributor, &contribution, &join.hello)?;
        self.left_out.remove(&contributor);
        self.refused.remove(&contributor);
        let deadline = now + self.config.join_deadline;
        let former = self.pending.join(contributor, joined.clone(), join.hello, deadline);
        if let Some(former) = former.filter(|former| former.contribution != contribution) {
            let reason =
                format!("another contribution took the place of contributor {contributor}");
            // The client itself is in the round: that is no refusal of it.
            self.tell_refused(now, &former, reason);
        }
        let missing = self.missing();
        self.emit(AggregatorEvent::Joined { contributor, peer: joined.peer, missing });
        Ok(())
    }

    /// Returns the reason why nobody else can be that contributor now, if the open round has one.
    fn taken(&self, contributor: u16) -> Option<String> {
        let round = self.current.as_ref().filter(|round| round.joined(contributor).is_some())?;
        Some(format!(
            "contributor {contributor} already joined round {} with another contribution; \
             without its spool it is refused for this round",
            round.number()
        ))
    }

    /// Lets a client that holds its contribution continue, in the open round or the retained one.
    fn resume(&mut self, contributor: u16, joined: &AdmittedClient) -> bool {
        let same = |round: &&mut HeldRound| {
            round.joined(contributor).is_some_and(|j| j.contribution == joined.contribution)
        };
        let Some(round) = self.rounds().find(same) else { return false };
        round.take_over(contributor, joined.clone());
        let (number, rkey) = (round.number(), round.rkey());
        if let Ok(region) = self.endpoint.sum_region(rkey) {
            region.bind(contributor, joined.peer);
        }
        self.emit(AggregatorEvent::Resumed { round: number, contributor });
        true
    }

    pub(super) fn refuse(
        &mut self,
        now: Time,
        contributor: u16,
        joined: &AdmittedClient,
        reason: String,
    ) {
        self.tell_refused(now, joined, reason.clone());
        if self.refused.len() < usize::from(self.config.clients) {
            self.refused.insert(contributor, reason.clone());
        }
        self.emit(AggregatorEvent::Refused { contributor, reason });
    }

    /// Sends a process the reason why its contribution is in no round.
    fn tell_refused(&mut self, now: Time, joined: &AdmittedClient, reason: String) {
        let refuse = RefuseMessage { contribution: joined.contribution, reason };
        let kind = Some(MessageKind::Refuse as u32);
        let data = refuse.encode().into();
        // A client that does not receive this finds out by silence.
        if let Ok(message) = self.endpoint.write(now, joined.peer, joined.inbox, 0, data, kind) {
            self.refusals.insert((joined.peer, message));
        }
    }
}
