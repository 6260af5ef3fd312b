//! The figures of one operation, and its line of a table.

use serde::{Deserialize, Serialize};

use super::PAILLIER;

/// The figures of one operation. Times are in seconds per single operation; none where others' work hid a difference of
/// two.
#[derive(Clone, Default, Serialize, Deserialize)]
pub struct Row {
    pub(super) operation: String,
    pub(super) scheme: String,
    /// Of n, under `ckks-sum` of a quantised value, or of all primes of a levelled preset.
    pub(super) bits: u32,
    pub(super) engine: String,
    pub(super) threads: usize,
    /// Operations of one batch, and in all.
    pub(super) batch: usize,
    pub(super) count: usize,
    pub(super) median_s: Option<f64>,
    pub(super) p10_s: Option<f64>,
    pub(super) p90_s: Option<f64>,
    /// Multiply instructions of one operation, if the engine counts them.
    pub(super) multiplies: Option<f64>,
    /// The part of the multiply instructions that the threads, or the device, could have issued; of its transforms, of
    /// an operation on vectors.
    pub(super) limit_fraction: Option<f64>,
    /// Gradient values that one operation carries, if it carries any.
    #[serde(rename = "values_per_operation")]
    pub(super) values: Option<usize>,
    /// Of a matrix product, and of rotations that share digits: the time of the same work in single operations,
    /// divided by its own.
    pub(super) speedup_over_single: Option<f64>,
    /// The part of the time for which other work had the cores, where the system counts it.
    pub(super) disturbed: Option<f64>,
    /// Whether its key is for comparison with papers only.
    #[serde(rename = "insecure")]
    pub(super) is_insecure: bool,
    /// Cycles of a card, of many operations at a time, and beats of 64 bytes of its memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cycles: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) beats: Option<f64>,
    /// Whether a program stands in for the card, so that its times are those of a simulation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) simulated: Option<bool>,
    /// A clock that somebody assumes, in MHz, and operations a second at that clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) projected_clock_mhz: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) projected_rate: Option<f64>,
    /// Contributions to a sum.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) clients: Option<u32>,
    /// Bytes of a client's file for each value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) bytes_per_value: Option<f64>,
    /// Of what encrypts vectors: the most that a slot is off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<f64>,
    /// Transforms modulo one prime that its program takes, of products and rotations of vectors.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) transforms: Option<usize>,
    /// Of a step by itself: its time, divided by that of a transform of the same degree, and bytes of memory that it at
    /// least reads and writes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) in_transforms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) bytes: Option<usize>,
}

impl Row {
    /// Adds the multiply instructions of an operation, and the part that they are of what the engine issues a second.
    pub(super) fn set_multiplies(&mut self, each: f64, rate: Option<f64>) {
        self.multiplies = Some(each).filter(|&each| each > 0.0);
        self.set_limit(self.multiplies.zip(rate).map(|(each, rate)| each / rate));
    }

    /// Adds the part of its time that it takes at least, in seconds.
    pub(super) fn set_limit(&mut self, least: Option<f64>) {
        self.limit_fraction = least.zip(self.median_s).map(|(least, time)| least / time);
    }

    /// Adds how it compares with the same work one by one, in seconds an operation.
    pub(super) fn set_singles(&mut self, singly: f64) {
        self.speedup_over_single = self.median_s.map(|time| singly / time);
    }

    /// Returns the name as it is typed.
    #[must_use]
    pub fn name(&self) -> String {
        match self.scheme.as_str() {
            PAILLIER => self.operation.clone(),
            scheme => format!("{scheme}/{}", self.operation),
        }
    }

    /// Returns the part of the time for which other work had the cores, where the system counts it.
    #[must_use]
    pub fn disturbed(&self) -> Option<f64> {
        self.disturbed
    }

    /// Returns the operations a second.
    #[must_use]
    pub fn rate(&self) -> Option<f64> {
        self.median_s.map(|time| 1.0 / time)
    }

    /// Returns what it is about, the same in every report.
    #[must_use]
    pub fn subject(&self) -> (&str, &str, u32, &str, usize) {
        (&self.scheme, &self.operation, self.bits, &self.engine, self.threads)
    }

    /// Returns whether times are such, and sizes.
    #[must_use]
    pub fn has_figures(&self) -> bool {
        let within = |x: Option<f64>, least, most| x.is_none_or(|x| (least..most).contains(&x));
        let mut times = [self.p10_s, self.median_s, self.p90_s].into_iter();
        times.all(|time| within(time, 1e-15, 1e9))
            && within(self.limit_fraction, 1e-6, 100.0)
            && within(self.bytes_per_value, 1e-6, 1e9)
            && self.values != Some(0)
    }

    /// Returns its line of the table, with notes at its end.
    #[must_use]
    pub fn line(&self) -> String {
        let dash = || "-".to_owned();
        let values = self.rate().zip(self.values).map(|(rate, values)| rate * values as f64);
        let cells = [
            self.name(),
            self.bits.to_string(),
            self.engine.clone(),
            self.threads.to_string(),
            self.rate().map_or_else(dash, number),
            values.map_or_else(dash, number),
            self.disturbed.map_or_else(dash, |part| format!("{:.0} %", 100.0 * part)),
            self.limit_fraction.map_or_else(dash, |part| format!("{:.1} %", 100.0 * part)),
        ];
        line(&cells, &self.notes().join(", "))
    }

    /// Returns what is said of it behind its figures.
    fn notes(&self) -> Vec<String> {
        let simulated = match self.simulated {
            Some(true) => " (rates are of the simulation)",
            _ => "",
        };
        let cycles = self.cycles.zip(self.beats).map(|(cycles, beats)| {
            format!("{} cycles{simulated}, {} beats of memory", number(cycles), number(beats))
        });
        let projected = self.projected_clock_mhz.zip(self.projected_rate);
        let memory = self.bytes.zip(self.rate()).map(|(bytes, rate)| rate * bytes as f64 / 1e9);
        let notes = [
            cycles,
            projected.map(|(mhz, rate)| format!("{}/s at {mhz} MHz (projected)", number(rate))),
            self.speedup_over_single.map(|times| format!("{times:.2}x single operations")),
            self.transforms.map(|transforms| format!("{transforms} transforms")),
            self.in_transforms.map(|times| format!("{times:.2} of a transform's time")),
            self.error.map(|error| format!("off by {error:.1e} at most")),
            self.bytes_per_value.map(|bytes| format!("{bytes:.2} bytes a value")),
            memory.map(|rate| format!("{rate:.1} GB/s")),
            self.is_insecure.then(|| "insecure".to_owned()),
        ];
        notes.into_iter().flatten().collect()
    }
}

/// Returns the first line of the table.
#[must_use]
pub fn head() -> String {
    let cells = "operation bits engine threads operations/s values/s disturbed".split(' ');
    let cells: Vec<_> = cells.chain(["of limit"]).map(str::to_owned).collect();
    line(&cells, "")
}

/// Aligns words to the left, numbers to the right.
fn line(cells: &[String], notes: &str) -> String {
    let mut line = String::new();
    for (column, (cell, width)) in cells.iter().zip([25, 5, 10, 7, 13, 13, 9, 9]).enumerate() {
        line += &match column {
            0 | 2 => format!("{cell:<width$}  "),
            _ => format!("{cell:>width$}  "),
        };
    }
    (line + notes).trim_end().to_owned()
}

/// Formats a number in three digits or more, with commas between thousands; millions as such.
#[must_use]
pub fn number(x: f64) -> String {
    match x {
        _ if x >= 999_950.0 => format!("{:.2} M", x / 1e6),
        _ if x >= 999.5 => format!("{},{:03}", x.round() as u64 / 1000, x.round() as u64 % 1000),
        _ if x >= 99.95 => format!("{x:.0}"),
        _ if x >= 9.995 => format!("{x:.1}"),
        _ => format!("{x:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_three_digits() {
        let cases = [
            (0.5, "0.50"),
            (9.996, "10.0"),
            (99.96, "100"),
            (999.4, "999"),
            (999.6, "1,000"),
            (14_003.4, "14,003"),
            (999_949.0, "999,949"),
            (1_234_567.0, "1.23 M"),
            (2.5e9, "2500.00 M"),
        ];
        for (x, text) in cases {
            assert_eq!(number(x), text);
        }
    }
}
