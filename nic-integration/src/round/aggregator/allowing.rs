//! The nodes that may take part, which may change while rounds run (PROTOCOL §7.10).

use std::collections::{BTreeMap, BTreeSet};

use crate::proto::{NodeId, Time};
use crate::round::Application;
use crate::round::open::HeldRound;

use super::{Aggregator, AggregatorEvent};

impl<A: Application> Aggregator<A> {
    /// Replaces the nodes that may take part, from the next round on: a node that may not any more,
    /// or as another contributor, is refused if it waits. It finishes the open round and takes the
    /// sums of the last one; then its sessions end, and it gets no answer.
    pub fn allow(&mut self, now: Time, nodes: BTreeMap<NodeId, Option<u16>>) {
        let former = std::mem::replace(&mut self.config.nodes, nodes);
        let nodes = &self.config.nodes;
        let added = nodes.keys().filter(|node| !former.contains_key(node)).copied().collect();
        let removed = former.keys().filter(|node| !nodes.contains_key(node)).copied();
        let removed: Vec<NodeId> = removed.collect();
        let bound_elsewhere = |node: &&NodeId| former.get(node).is_some_and(|b| *b != nodes[*node]);
        let rebound = nodes.keys().filter(bound_elsewhere).copied().collect();
        self.leaving.extend(&removed);
        self.leaving.retain(|node| !self.config.nodes.contains_key(node));
        self.emit(AggregatorEvent::Allowed { added, removed, rebound });
        self.attendants.retain(|peer, _| self.config.nodes.contains_key(&peer.node));
        self.leave_out_unbound(now);
        self.admit_nodes();
        self.advance(now);
    }

    /// Checks that a node may be that contributor.
    pub(super) fn check_bound(&self, contributor: u16, node: NodeId) -> Result<(), String> {
        match self.config.nodes.get(&node) {
            None => Err(format!("node {node} is no longer allowed")),
            Some(Some(own)) if *own != contributor => Err(format!(
                "node {node} is allowed as contributor {own}, not as contributor {contributor}"
            )),
            Some(_) => Ok(()),
        }
    }

    /// Returns whether a node is that contributor in a round that is held.
    pub(super) fn is_held(&self, contributor: u16, node: NodeId) -> bool {
        let mut held = self.current.iter().chain(&self.last);
        held.any(|round| round.joined(contributor).is_some_and(|j| j.peer.node == node))
    }

    /// Refuses those who wait and may not any more.
    fn leave_out_unbound(&mut self, now: Time) {
        let waiting: Vec<u16> = self.pending.hellos().keys().copied().collect();
        for contributor in waiting {
            let node = self.pending.joined(contributor).map(|joined| joined.peer.node);
            let bound = node.map_or(Ok(()), |node| self.check_bound(contributor, node));
            if let Err(reason) = bound {
                self.leave_out(now, contributor, reason);
            }
        }
    }

    /// Ends the sessions of nodes that may no longer take part and have nothing more to come.
    pub(super) fn let_go(&mut self) {
        let unfinished = self.last.as_ref().filter(|round| !round.finished);
        let rounds: Vec<&HeldRound> = self.current.iter().chain(unfinished).collect();
        let stays = |node: &NodeId| {
            rounds.iter().any(|round| round.has(*node)) || !self.endpoint.is_idle(*node)
        };
        let leaving: BTreeSet<NodeId> = self.leaving.iter().filter(|n| stays(n)).copied().collect();
        if leaving.len() < self.leaving.len() {
            self.leaving = leaving;
            self.admit_nodes();
        }
    }

    fn admit_nodes(&mut self) {
        let nodes = self.config.nodes.keys().chain(&self.leaving).copied().collect();
        self.endpoint.allow(nodes);
    }
}
