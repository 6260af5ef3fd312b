//! Rounds that too few clients joined (PROTOCOL §7.3).

use std::fmt;
use std::time::Duration;

/// A round that too few clients joined by its join deadline. Its text names numbers of clients only:
/// it is what those who waited are sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shortage {
    /// The round.
    pub round: u32,
    /// The fewest clients that it opens with.
    pub min_clients: u16,
    /// The span that it waited for clients.
    pub waited: Duration,
    /// The clients that wait for it, ascending.
    pub joined: Vec<u16>,
    /// The clients declared that do not, ascending.
    pub missing: Vec<u16>,
    /// The numbers that clients claimed who were refused since the last round opened, ascending, each
    /// with the reason. A number may be beyond those declared.
    pub refused: Vec<(u16, String)>,
    /// Whether those who joined go on waiting. Otherwise they were refused.
    pub waits_on: bool,
}

impl Shortage {
    /// Returns its text, and who was refused since the last round opened, for the aggregator's eyes.
    #[must_use]
    pub fn cause(&self) -> String {
        let refused = self.refused.iter().map(|(client, reason)| {
            format!(
                "; client {client} was refused: {}",
                reason.trim_start_matches(&format!("client {client}: "))
            )
        });
        format!("{self}{}", refused.collect::<String>())
    }
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (joined, needed) = (self.joined.len(), self.min_clients);
        let (waited, missing) = (self.waited.as_secs_f64(), numbers(&self.missing));
        let clients = if joined == 1 { "client" } else { "clients" };
        write!(f, "{joined} {clients} joined within {waited} s, and a round needs {needed}; ")?;
        match &self.missing[..] {
            [_] => write!(f, "client {missing} is missing"),
            _ => write!(f, "clients {missing} are missing"),
        }
    }
}

/// Writes ascending numbers, those that follow one another as a range: `0, 3 to 5`.
pub(super) fn numbers(all: &[u16]) -> String {
    let runs = all.chunk_by(|a, b| a + 1 == *b).map(|run| match run {
        [first, _, .., last] => format!("{first} to {last}"),
        few => few.iter().map(u16::to_string).collect::<Vec<_>>().join(", "),
    });
    runs.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_follow_one_another_are_a_range() {
        assert_eq!(numbers(&[]), "");
        assert_eq!(numbers(&[4]), "4");
        assert_eq!(numbers(&[0, 1, 3, 4, 5, 9]), "0, 1, 3 to 5, 9");
    }

    #[test]
    fn a_shortage_says_how_many_are_missing() {
        let mut shortage = Shortage {
            round: 0,
            min_clients: 3,
            waited: Duration::from_millis(1500),
            joined: vec![0],
            missing: vec![1, 2],
            refused: vec![],
            waits_on: false,
        };
        let text = "1 client joined within 1.5 s, and a round needs 3; clients 1, 2 are missing";
        assert_eq!(shortage.to_string(), text);
        (shortage.joined, shortage.missing) = (vec![0, 2], vec![1]);
        let text = "2 clients joined within 1.5 s, and a round needs 3; client 1 is missing";
        assert_eq!(shortage.to_string(), text);
    }
}
