//! Clients that wait for the next round (PROTOCOL §7.3).

use std::collections::BTreeMap;

use crate::proto::{Peer, Time};

use super::message::ContributionId;

/// A client that was admitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Joined {
    pub(super) peer: Peer,
    pub(super) inbox: u32,
    pub(super) contribution: ContributionId,
}

/// The next round: the clients admitted to it so far.
#[derive(Default)]
pub(super) struct PendingRound {
    joined: BTreeMap<u16, Joined>,
    hellos: BTreeMap<u16, Vec<u8>>,
    /// Set when the first client joins.
    deadline: Option<Time>,
}

impl PendingRound {
    pub(super) fn hellos(&self) -> &BTreeMap<u16, Vec<u8>> {
        &self.hellos
    }

    /// Returns the number of clients that wait.
    pub(super) fn count(&self) -> usize {
        self.joined.len()
    }

    /// Returns whether this very client waits.
    pub(super) fn waits(&self, contributor: u16, joined: &Joined) -> bool {
        self.joined.get(&contributor) == Some(joined)
    }

    /// Adds a client; returns the one whose place it takes.
    pub(super) fn join(
        &mut self,
        contributor: u16,
        joined: Joined,
        hello: Vec<u8>,
        deadline: Time,
    ) -> Option<Joined> {
        self.deadline.get_or_insert(deadline);
        self.hellos.insert(contributor, hello);
        self.joined.insert(contributor, joined)
    }

    /// Takes a client out. The deadline counts on for the others, if there are any.
    pub(super) fn leave(&mut self, contributor: u16) -> Option<Joined> {
        self.hellos.remove(&contributor);
        let joined = self.joined.remove(&contributor);
        self.deadline = self.deadline.filter(|_| !self.joined.is_empty());
        joined
    }

    /// Returns whether the round can open: every client is there, or enough are and the deadline
    /// has passed.
    pub(super) fn is_ready(&self, now: Time, clients: u16, min_clients: u16) -> bool {
        let count = self.count();
        let late = self.deadline.is_some_and(|deadline| deadline <= now);
        count == usize::from(clients) || (late && count >= usize::from(min_clients))
    }

    /// Returns when [`is_ready`](Self::is_ready) may change by itself.
    pub(super) fn next_timeout(&self, now: Time) -> Option<Time> {
        self.deadline.filter(|deadline| *deadline > now)
    }

    pub(super) fn into_joined(self) -> BTreeMap<u16, Joined> {
        self.joined
    }
}
