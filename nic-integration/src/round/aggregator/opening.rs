//! The opening of rounds (PROTOCOL §7.3, §7.4).

use std::{collections::BTreeSet, time::Duration};

use crate::proto::{Counts, SumConfig, SumRegion, Time};
use crate::round::message::OpenMessage;
use crate::round::open::HeldRound;
use crate::round::rkey::fresh_rkey;
use crate::round::{Application, Readiness, ReadyRound, Shortage};

use super::openers::Asking;
use super::{Aggregator, AggregatorConfig, AggregatorEvent};

impl<A: Application> Aggregator<A> {
    /// Opens the next round if it can begin now; says so if too few have joined by their deadline.
    pub(super) fn try_open(&mut self, now: Time) {
        let AggregatorConfig { clients, min_clients, .. } = self.config;
        let was_preparing = std::mem::take(&mut self.is_preparing);
        if self.current.is_some() || self.is_last_opened() {
            return;
        }
        // One that is prepared goes on without those who leave meanwhile.
        let goes_on = was_preparing && self.pending.count() >= usize::from(min_clients);
        if goes_on || self.pending.is_ready(now, clients, min_clients) {
            if self.waits_for_openers(now) {
                self.is_preparing = true;
                return;
            }
            self.open_with_those_who_fit(now, was_preparing);
        }
        let span = self.config.join_deadline;
        if self.current.is_none()
            && let Some(spans) = self.pending.shortage(now, min_clients, span)
        {
            self.on_shortage(now, span.saturating_mul(spans));
        }
    }

    fn open_with_those_who_fit(&mut self, now: Time, was_preparing: bool) {
        let answer = match self.application.open(self.opened, self.pending.hellos()) {
            Ok(answer) => answer,
            Err(reason) => return self.fail_open(now, reason),
        };
        let (left_out, opened) = match answer {
            Readiness::Ready(mut opened) => (std::mem::take(&mut opened.left_out), Some(opened)),
            Readiness::Preparing { left_out } => (left_out, None),
        };
        for (contributor, reason) in left_out {
            self.leave_out(now, contributor, reason);
        }
        let (min, late) = (self.config.min_clients, opened.as_ref().map(|opened| &opened.late));
        if self.pending.count_but(late) < usize::from(min) {
            // They wait for others, who open the round at once if the deadline has passed; or the round is prepared
            // anew, with those who came too late.
            self.is_preparing = self.pending.count() >= usize::from(min);
            return;
        }
        let Some(opened) = opened else {
            self.is_preparing = true;
            if !was_preparing {
                let (round, clients) = (self.opened, self.pending.count());
                self.emit(AggregatorEvent::Preparing { round, clients });
            }
            return;
        };
        let ReadyRound { terms, layout, shards, late, .. } = opened;
        let counts = match (self.application.openers(), self.config.whole) {
            (Some(_), _) => Counts::Admitted,
            (None, true) => Counts::Whole,
            (None, false) => Counts::Chunks,
        };
        let region = SumRegion::new(SumConfig {
            round: self.opened,
            contributors: self.config.clients,
            target: self.pending.count_but(Some(&late)) as u32,
            layout,
            shards,
            counts,
        });
        match region.map_err(|error| error.to_string()) {
            Ok(region) => self.open(now, region, terms, late),
            Err(reason) => self.fail_open(now, reason),
        }
    }

    /// Reports that too few have joined. Unless they are to wait on, they are refused, and no
    /// further round opens if the number of rounds is bounded.
    fn on_shortage(&mut self, now: Time, waited: Duration) {
        let waits_on = self.config.wait_for_clients;
        let shortage = Shortage {
            round: self.opened,
            min_clients: self.config.min_clients,
            waited,
            joined: self.pending.hellos().keys().copied().collect(),
            missing: self.missing(),
            refused: self.refused.clone().into_iter().collect(),
            waits_on,
        };
        let reason = shortage.to_string();
        self.emit(AggregatorEvent::TooFew(shortage));
        if !waits_on {
            self.given_up = self.config.rounds > 0;
            self.leave_out_all(now, &reason);
        }
    }

    /// Returns the clients declared that do not wait for the next round, ascending.
    pub(super) fn missing(&self) -> Vec<u16> {
        let is_missing = |number: &u16| !self.pending.hellos().contains_key(number);
        (0..self.config.clients).filter(is_missing).collect()
    }

    /// Refuses all who wait: no round can open over them.
    fn fail_open(&mut self, now: Time, reason: String) {
        self.emit(AggregatorEvent::OpenFailed { reason: reason.clone() });
        self.leave_out_all(now, &reason);
    }

    fn leave_out_all(&mut self, now: Time, reason: &str) {
        let all: Vec<u16> = self.pending.hellos().keys().copied().collect();
        all.into_iter().for_each(|contributor| self.leave_out(now, contributor, reason.into()));
    }

    /// Refuses a client that waits.
    pub(super) fn leave_out(&mut self, now: Time, contributor: u16, reason: String) {
        let Some(joined) = self.pending.leave(contributor) else { return };
        self.refuse(now, contributor, &joined, reason.clone());
        self.left_out.insert(contributor, (joined, reason));
    }

    /// Opens a round with all who wait, but for those who came too late.
    fn open(&mut self, now: Time, region: SumRegion, terms: Vec<u8>, late: BTreeSet<u16>) {
        let joined = self.pending.take_all_but(&late);
        let contributors: Vec<u16> = joined.keys().copied().collect();
        let (round, chunks, by_chunk) = (self.opened, region.chunk_count(), region.is_by_chunk());
        joined.iter().for_each(|(contributor, joined)| region.bind(*contributor, joined.peer));
        let rkey = fresh_rkey(&mut self.rng, &self.endpoint);
        if self.endpoint.register_sum(rkey, region).is_err() {
            return; // A fresh rkey is free.
        }
        let opening = OpenMessage {
            contribution: Default::default(),
            round,
            incarnation: self.endpoint.incarnation(),
            rkey,
            grant: 0,
            declared: self.config.clients,
            min_clients: self.config.min_clients,
            by_chunk,
            deadline_ms: 0,
            contributors: contributors.clone(),
            terms,
        };
        let deadline = now + self.config.round_deadline;
        self.opened += 1;
        self.refused.clear();
        self.current = Some(HeldRound::new(opening, deadline, chunks, joined));
        self.asking = self.application.openers().is_some().then(Asking::default);
        self.emit(AggregatorEvent::Opened { round, contributors, chunks });
        if self.is_last_opened() {
            for contributor in late {
                let reason = format!("the last round opened without contributor {contributor}");
                self.leave_out(now, contributor, reason);
            }
        }
        self.try_end(now);
    }
}
