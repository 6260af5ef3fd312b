//! Events of an aggregator, each in a line for people.

use std::net::SocketAddr;

use super::{AggregatorEvent, RoundSummary, Shortage, shortage::numbers};
use crate::proto::{NodeId, Stranger};

impl AggregatorEvent {
    /// Returns its line; none for an event that comes by the hundred, which only a summary counts.
    #[must_use]
    pub fn line(&self) -> Option<String> {
        Some(match self {
            Self::Joined { contributor, peer, missing } => {
                let joined = format!("client {contributor} joined from node {}", peer.node);
                match missing.len() {
                    0 => joined,
                    1 => format!("{joined}; waiting for client {}", missing[0]),
                    _ => format!("{joined}; waiting for clients {}", numbers(missing)),
                }
            }
            Self::Refused { contributor, reason } => {
                format!("client {contributor} refused: {reason}")
            }
            Self::Resumed { round, contributor } => {
                format!("round {round}: client {contributor} is back with its contribution")
            }
            Self::Preparing { round, clients } => {
                format!("round {round}: preparing it with {clients} clients")
            }
            Self::Opened { round, contributors, .. } => {
                format!("round {round} opened with clients {contributors:?}")
            }
            Self::OpenFailed { reason } => format!("the round cannot open: {reason}"),
            Self::Stranger { from, stranger } => of_stranger(*from, stranger),
            Self::TooFew(shortage) => of_shortage(shortage),
            Self::Allowed { added, removed, rebound } => of_allowed([added, removed, rebound]),
            Self::Lost { round, contributor } => {
                format!("round {round}: client {contributor} no longer answers, or takes too long")
            }
            Self::Closed(summary) => of_summary(summary),
            Self::Finished { round } => format!("round {round} finished: its sums are delivered"),
            Self::OpenerAttends { opener, peer } => {
                format!("opener {opener} is there, at node {}", peer.node)
            }
            Self::OpenerRefused { opener, reason } => format!("opener {opener}: {reason}"),
            Self::OpenerAnswered { round, opener } => {
                format!("round {round}: opener {opener} answered")
            }
            Self::TooFewAnswers { round, found, needed } => {
                format!("round {round}: nobody opens it: {found} of {needed} openers answered")
            }
            Self::Settled { .. } => return None,
        })
    }

    /// Returns whether something is wrong that somebody should look at.
    #[must_use]
    pub fn is_warning(&self) -> bool {
        match self {
            Self::Refused { .. }
            | Self::OpenFailed { .. }
            | Self::TooFew(_)
            | Self::Stranger { .. }
            | Self::OpenerRefused { .. }
            | Self::TooFewAnswers { .. }
            | Self::Lost { .. } => true,
            Self::Closed(RoundSummary { closed, withheld, contributed, .. }) => {
                contributed.iter().any(|(_, count)| *count < closed + withheld) || *withheld > 0
            }
            _ => false,
        }
    }
}

fn of_stranger(from: SocketAddr, stranger: &Stranger) -> String {
    match stranger {
        Stranger::Unlisted(node) => {
            format!(
                "{from}: node {node} is not listed, and was turned away: the allow list names who may join"
            )
        }
        Stranger::WrongKey => format!(
            "{from}: a first message for another node key than this server's, or a damaged one, got no answer: its \
             server key may be another server's"
        ),
    }
}

/// Describes a round that too few joined, and what becomes of those who did.
fn of_shortage(shortage: &Shortage) -> String {
    let then = if shortage.waits_on { "they wait on" } else { "they are refused" };
    format!("round {}: {}; {then}", shortage.round, shortage.cause())
}

/// Describes a new list of nodes by those that were added, struck out, and given to another client.
fn of_allowed(changes: [&Vec<NodeId>; 3]) -> String {
    let names = |nodes: &Vec<NodeId>| nodes.iter().map(NodeId::to_string).collect::<Vec<_>>();
    let changes = ["added", "struck out", "of another client"].into_iter().zip(changes);
    let changes = changes.filter(|(_, nodes)| !nodes.is_empty());
    let changes: Vec<_> =
        changes.map(|(how, nodes)| format!("{how} {}", names(nodes).join(", "))).collect();
    let line = if changes.is_empty() { "as before".into() } else { changes.join("; ") };
    format!("allow list read again: {line}")
}

/// Describes a round's end: whole contributions, and each client that is not in all chunks.
fn of_summary(s: &RoundSummary) -> String {
    let total = s.closed + s.withheld;
    let whole: Vec<_> = s.contributed.iter().filter(|(_, n)| *n == total).map(|(c, _)| c).collect();
    let mut line = format!("round {}: {} of {total} chunks summed", s.round, s.closed);
    line += &format!(", whole contributions of clients {whole:?}");
    for (client, count) in s.contributed.iter().filter(|(_, n)| *n < total) {
        line += &format!("; deadline passed with client {client} in {count} of {total} chunks");
    }
    if s.withheld > 0 {
        line += &format!("; {} withheld: {}", s.withheld, s.reason);
    }
    line
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_shortage_says_who_was_refused_and_what_becomes_of_the_others() {
        let event = AggregatorEvent::TooFew(Shortage {
            round: 4,
            min_clients: 3,
            waited: Duration::from_secs(5),
            joined: vec![0, 2],
            missing: vec![1],
            refused: vec![(1, "client 1: it is of job 0123".into())],
            waits_on: true,
        });
        let said = "round 4: 2 clients joined within 5 s, and a round needs 3; client 1 is missing; client 1 was \
                    refused: it is of job 0123; they wait on";
        assert_eq!(event.line().as_deref(), Some(said));
        assert!(event.is_warning());
    }

    #[test]
    fn a_round_without_all_of_a_client_is_a_warning() {
        let mut summary = RoundSummary {
            round: 2,
            closed: 5,
            withheld: 0,
            contributed: vec![(0, 5), (3, 5)],
            reason: "-".into(),
        };
        let event = AggregatorEvent::Closed(summary.clone());
        let said = "round 2: 5 of 5 chunks summed, whole contributions of clients [0, 3]";
        assert_eq!((event.line().as_deref(), event.is_warning()), (Some(said), false));
        summary.contributed[1].1 = 4;
        let event = AggregatorEvent::Closed(summary);
        assert!(
            event.is_warning() && event.line().is_some_and(|l| l.contains("client 3 in 4 of 5"))
        );
    }
}
