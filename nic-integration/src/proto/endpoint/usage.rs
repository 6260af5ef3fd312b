//! Counts of all that an endpoint holds: for metrics, and for tests that it stays within bounds.

use crate::proto::secure::NodeId;

use super::Endpoint;

/// Numbers of all that an endpoint holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Processes that have state here.
    pub links: usize,
    /// Of those: processes that have sent a HELLO and nothing since.
    pub unconfirmed: usize,
    /// Indices of handshakes under way, and of sessions of first channels.
    pub sessions: usize,
    /// Datagrams of handshakes that wait to be sent.
    pub handshakes: usize,
    /// Events that wait to be polled.
    pub events: usize,
    /// Inbox bytes under assembly, or waiting to be polled.
    pub held_bytes: usize,
}

impl Endpoint {
    /// Counts all that is held now.
    #[must_use]
    pub fn usage(&self) -> Usage {
        let waits = self.links.values().filter(|link| link.is_unconfirmed());
        Usage {
            links: self.links.len(),
            unconfirmed: waits.count(),
            sessions: self.session_count(),
            handshakes: self.handshakes.len(),
            events: self.shared.event_count(),
            held_bytes: self.shared.held(),
        }
    }

    /// Counts the processes of a node that have state here.
    #[must_use]
    pub fn links_to(&self, node: NodeId) -> usize {
        self.links.values().filter(|link| link.peer.node == node).count()
    }
}
