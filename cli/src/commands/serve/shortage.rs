//! Lines of `serve` about a round that too few clients joined.

use ciphergram_nic::round::Shortage;
use serde_json::{Value, json};

pub(super) fn json(shortage: &Shortage) -> Value {
    let refused: Vec<_> =
        shortage.refused.iter().map(|(c, why)| json!({"client": c, "reason": why})).collect();
    json!({
        "event": "too_few", "round": shortage.round, "joined": shortage.joined, "missing": shortage.missing,
        "refused": refused, "min_clients": shortage.min_clients, "waited_s": shortage.waited.as_secs_f64(),
        "waits_on": shortage.waits_on,
    })
}

/// Describes why no round opened, and what would help.
pub(super) fn failure(shortage: &Shortage) -> String {
    let mut remedies = vec![
        "start those who are missing within --join-deadline".to_string(),
        "wait for them with --wait-for-clients".into(),
    ];
    // A sum of one is its update.
    if shortage.joined.len() > 1 {
        let count = shortage.joined.len();
        remedies.push(format!("sum as few with --min-clients {count}, of serve and of join"));
    }
    let (round, cause) = (shortage.round, shortage.cause());
    format!("round {round} did not open: {cause}; {}", remedies.join(", or "))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_shortage_says_what_would_help() {
        let mut shortage = Shortage {
            round: 4,
            min_clients: 3,
            waited: Duration::from_secs(5),
            joined: vec![0, 2],
            missing: vec![1],
            refused: vec![(1, "client 1: it is of job 0123".into())],
            waits_on: true,
        };
        assert!(
            failure(&shortage).starts_with("round 4 did not open: 2 clients joined within 5 s")
        );
        assert!(failure(&shortage).contains("--min-clients 2"));
        shortage.joined = vec![0];
        assert!(!failure(&shortage).contains("--min-clients"), "a sum of one is an update");
    }
}
