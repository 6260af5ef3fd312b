//! The table at the end, the JSON file, and the verdict.

use serde_json::{Value, json};

use super::{check::RoundCheck, client::ClientReport, model::Quality};
use crate::{args::DemoArgs, failure::Failure};

/// One round's figures, means over clients.
pub(super) struct RoundFigures {
    pub(super) round: u32,
    pub(super) agrees: bool,
    pub(super) encrypted: Quality,
    pub(super) plain: Quality,
    values: usize,
    up_bytes: f64,
    down_bytes: f64,
    /// Since the start of the training.
    wire_bytes: f64,
    encrypting_s: f64,
    exchanging_s: f64,
    decrypting_s: f64,
    round_s: f64,
    /// Of each client that took part.
    encryption_shares: Vec<f64>,
}

impl RoundFigures {
    pub(super) fn new(
        round: u32,
        plain: &Quality,
        checked: &RoundCheck,
        reports: &[ClientReport],
    ) -> Self {
        let mean = |figure: &dyn Fn(&ClientReport) -> f64| {
            reports.iter().map(figure).sum::<f64>() / reports.len() as f64
        };
        // A contribution and the sum of all have the same chunks.
        let down_bytes = mean(&|r| r.ciphertext_bytes as f64);
        Self {
            round,
            agrees: checked.agrees,
            encrypted: checked.evaluation,
            plain: *plain,
            values: reports[0].values,
            up_bytes: down_bytes + mean(&|r| r.shares_bytes as f64),
            down_bytes,
            wire_bytes: mean(&|r| r.wire_bytes_sent as f64),
            encrypting_s: mean(&|r| r.encrypting_s),
            exchanging_s: mean(&|r| r.exchanging_s),
            decrypting_s: mean(&|r| r.decrypting_s),
            round_s: mean(&|r| r.round_s),
            encryption_shares: reports.iter().map(ClientReport::encryption_share).collect(),
        }
    }

    fn up(&self) -> f64 {
        self.up_bytes / self.values as f64
    }

    fn down(&self) -> f64 {
        self.down_bytes / self.values as f64
    }

    /// Returns the line of the table.
    fn line(&self) -> String {
        format!(
            "{:>5}  {:>6.4}  {:>9.4}  {:>6.4}  {:>7.3}  {:>7.3}  {:>7.3}  {:>8.3}  {:>7.3}  \
             {:>7.3}{}",
            self.round + 1,
            self.encrypted.loss,
            self.encrypted.accuracy,
            self.plain.accuracy,
            self.up(),
            self.down(),
            self.encrypting_s,
            self.exchanging_s,
            self.decrypting_s,
            self.round_s,
            if self.agrees { "" } else { "  NOT EQUAL" }
        )
    }

    fn to_json(&self) -> Value {
        json!({
            "round": self.round + 1,
            "agree": self.agrees,
            "loss_encrypted": self.encrypted.loss,
            "loss_plaintext": self.plain.loss,
            "accuracy_encrypted": self.encrypted.accuracy,
            "accuracy_plaintext": self.plain.accuracy,
            "bytes_per_value_up": self.up(),
            "bytes_per_value_down": self.down(),
            "encrypting_s": self.encrypting_s,
            "exchanging_s": self.exchanging_s,
            "decrypting_s": self.decrypting_s,
            "round_s": self.round_s,
        })
    }
}

/// The whole training.
#[derive(Default)]
pub(super) struct Summary {
    pub(super) rounds: Vec<RoundFigures>,
}

impl Summary {
    fn agrees(&self) -> bool {
        !self.rounds.is_empty() && self.rounds.iter().all(|r| r.agrees)
    }

    /// Returns the bytes that a client sent per value and round, everything but UDP and IP headers
    /// included.
    fn wire_bytes_per_value(&self) -> f64 {
        self.rounds.last().map_or(0.0, |r| r.wire_bytes / (r.values * self.rounds.len()) as f64)
    }

    /// Returns the part of a round that encryption and decryption take: the median over clients and
    /// rounds.
    fn encryption_share(&self) -> Option<f64> {
        let all = self.rounds.iter().flat_map(|r| &r.encryption_shares);
        median(all.copied().collect())
    }

    /// Returns the table and what it shows.
    pub(super) fn text(&self) -> String {
        let mut lines = vec![
            String::new(),
            "                 test accuracy       bytes a value           seconds a client".into(),
            "round    loss  encrypted   plain       up     down  encrypt  send+sum  decrypt    round"
                .into(),
        ];
        lines.extend(self.rounds.iter().map(RoundFigures::line));
        lines.push(format!(
            "\nfloat32 takes 4 bytes a value; on the wire, with headers, acknowledgements and \
             retransmissions, a client sent {:.3}",
            self.wire_bytes_per_value()
        ));
        if let Some(share) = self.encryption_share() {
            lines.push(format!(
                "encryption and decryption took {:.1} % of a round (median over clients and \
                 rounds)",
                100.0 * share
            ));
        }
        if self.agrees() {
            lines.push(format!(
                "encrypted and plaintext training agree: each of {} means that clients decrypted equals the \
                 plaintext mean of the quantised updates, bit for bit",
                self.rounds.iter().map(|r| r.encryption_shares.len()).sum::<usize>()
            ));
        }
        lines.join("\n")
    }

    pub(super) fn to_json(&self, args: &DemoArgs) -> Value {
        let last = self.rounds.last();
        json!({
            "kind": "ciphergram-report",
            "agree": self.agrees(),
            "rounds": self.rounds.len(),
            "clients": args.clients,
            "killed": args.kill,
            "scheme": args.scheme.name(),
            "bits": args.bits,
            "seed": args.seed,
            "values": last.map(|r| r.values),
            "accuracy_encrypted": last.map(|r| r.encrypted.accuracy),
            "accuracy_plaintext": last.map(|r| r.plain.accuracy),
            "bytes_per_value_up": last.map(RoundFigures::up),
            "bytes_per_value_down": last.map(RoundFigures::down),
            "wire_bytes_per_value_up": self.wire_bytes_per_value(),
            "encryption_share": self.encryption_share(),
            "per_round": self.rounds.iter().map(RoundFigures::to_json).collect::<Vec<_>>(),
        })
    }

    pub(super) fn verdict(&self) -> Result<(), Failure> {
        if self.agrees() {
            return Ok(());
        }
        let rounds: Vec<_> =
            self.rounds.iter().filter(|r| !r.agrees).map(|r| r.round + 1).collect();
        let text = format!(
            "encrypted and plaintext training do NOT agree: a decrypted mean differs from the \
             plaintext mean of the quantised updates in rounds {rounds:?}"
        );
        Err(Failure::Work(text))
    }
}

/// Returns the middle value, or the mean of the middle two; none of none.
fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let (low, high) = (values.len().checked_sub(1)? / 2, values.len() / 2);
    Some((values[low] + values[high]) / 2.0)
}

#[cfg(test)]
mod tests {
    use super::median;

    #[test]
    fn medians_are_of_the_middle() {
        assert_eq!(median(vec![]), None);
        assert_eq!(median(vec![3.0]), Some(3.0));
        assert_eq!(median(vec![9.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![9.0, 1.0, 4.0, 2.0]), Some(3.0));
    }
}
