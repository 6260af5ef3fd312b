//! Clients that wait for the next round (PROTOCOL §7.3).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::proto::{Peer, Time};

use super::message::ContributionId;

/// A client that was admitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AdmittedClient {
    pub(super) peer: Peer,
    pub(super) inbox: u32,
    pub(super) contribution: ContributionId,
}

/// The next round: the clients admitted to it so far.
#[derive(Default)]
pub(super) struct PendingRound {
    joined: BTreeMap<u16, AdmittedClient>,
    hellos: BTreeMap<u16, Vec<u8>>,
    /// When the round opens without those that are missing: set when the first client joins.
    deadline: Option<Time>,
    /// When it is noticed, or noticed again, that too few have joined.
    notice: Option<Time>,
    /// The number of times that it was.
    notices: u32,
}

impl PendingRound {
    pub(super) fn hellos(&self) -> &BTreeMap<u16, Vec<u8>> {
        &self.hellos
    }

    /// Returns the number of clients that wait.
    pub(super) fn count(&self) -> usize {
        self.joined.len()
    }

    /// Returns the number of clients that wait, but for these.
    pub(super) fn count_but(&self, late: Option<&BTreeSet<u16>>) -> usize {
        let is_late = |contributor| late.is_some_and(|late| late.contains(contributor));
        self.joined.keys().filter(|contributor| !is_late(contributor)).count()
    }

    /// Returns the client that waits as `contributor`.
    pub(super) fn joined(&self, contributor: u16) -> Option<&AdmittedClient> {
        self.joined.get(&contributor)
    }

    /// Returns whether this very client waits.
    pub(super) fn waits(&self, contributor: u16, joined: &AdmittedClient) -> bool {
        self.joined.get(&contributor) == Some(joined)
    }

    /// Adds a client; returns the one whose place it takes.
    pub(super) fn join(
        &mut self,
        contributor: u16,
        joined: AdmittedClient,
        hello: Vec<u8>,
        deadline: Time,
    ) -> Option<AdmittedClient> {
        self.deadline.get_or_insert(deadline);
        self.notice.get_or_insert(deadline);
        self.hellos.insert(contributor, hello);
        self.joined.insert(contributor, joined)
    }

    /// Takes a client out. The deadline counts on for the others, if there are any.
    pub(super) fn leave(&mut self, contributor: u16) -> Option<AdmittedClient> {
        self.hellos.remove(&contributor);
        let joined = self.joined.remove(&contributor);
        if self.joined.is_empty() {
            (self.deadline, self.notice, self.notices) = (None, None, 0);
        }
        joined
    }

    /// Takes out what a process waits as.
    pub(super) fn leave_all_of(&mut self, peer: Peer) {
        let own = self.joined.iter().filter(|(_, joined)| joined.peer == peer);
        let own: Vec<u16> = own.map(|(contributor, _)| *contributor).collect();
        for contributor in own {
            self.leave(contributor);
        }
    }

    /// Sets another deadline, if anybody waits.
    pub(super) fn restart(&mut self, deadline: Time) {
        if !self.joined.is_empty() {
            (self.deadline, self.notice, self.notices) = (Some(deadline), Some(deadline), 0);
        }
    }

    /// Returns for how many spans the clients have waited, if it is to be noticed now that they are too
    /// few; it is again after one more span.
    pub(super) fn shortage(&mut self, now: Time, min_clients: u16, span: Duration) -> Option<u32> {
        let due = self.notice.is_some_and(|notice| notice <= now);
        if !due || self.count() >= usize::from(min_clients) {
            return None;
        }
        self.notice = Some(now + span);
        self.notices += 1;
        Some(self.notices)
    }

    /// Returns whether the round can open: every client is there, or enough are and the deadline
    /// has passed.
    pub(super) fn is_ready(&self, now: Time, clients: u16, min_clients: u16) -> bool {
        let count = self.count();
        let late = self.deadline.is_some_and(|deadline| deadline <= now);
        count == usize::from(clients) || (late && count >= usize::from(min_clients))
    }

    /// Returns when [`is_ready`](Self::is_ready) or [`shortage`](Self::shortage) may change by
    /// itself.
    pub(super) fn next_timeout(&self, now: Time) -> Option<Time> {
        let all = [self.deadline, self.notice].into_iter().flatten();
        all.filter(|due| *due > now).min()
    }

    /// Takes out all but these clients, who wait for the next round.
    pub(super) fn take_all_but(&mut self, late: &BTreeSet<u16>) -> BTreeMap<u16, AdmittedClient> {
        let all: Vec<u16> = self.joined.keys().copied().collect();
        let taken = all.into_iter().filter(|contributor| !late.contains(contributor));
        taken.filter_map(|contributor| Some((contributor, self.leave(contributor)?))).collect()
    }
}
