//! Which values of a mean are of which clients: a line for people, and a file.

use std::{collections::BTreeMap, path::Path};

use ciphergram_he::{Cohort, PublicKey, Sum};
use serde_json::{Value, json};

use crate::{
    failure::Failure,
    files::{FileKind, OutputFile},
    report::counted,
};

/// The cohorts of a sum, and the file that lists them, if one is asked for.
pub(crate) struct Cohorts<'a> {
    sum: &'a Sum,
    cohorts: Vec<Cohort>,
}

impl<'a> Cohorts<'a> {
    pub(crate) fn of(sum: &'a Sum, key: &PublicKey) -> Self {
        Self { sum, cohorts: sum.cohorts(key) }
    }

    /// Describes the number of contributors, and of fewer ones in some chunks: `7 contributors; 6 in 89 % of
    /// chunks`.
    pub(crate) fn words(&self) -> String {
        let all = self.sum.contributed().len();
        let mut fewer: BTreeMap<usize, u32> = BTreeMap::new();
        for cohort in self.cohorts.iter().filter(|cohort| cohort.contributors.len() < all) {
            *fewer.entry(cohort.contributors.len()).or_default() += cohort.chunks;
        }
        let chunks: u32 = self.cohorts.iter().map(|cohort| cohort.chunks).sum();
        let share =
            |(count, of): (&usize, &u32)| format!("{count} in {} of chunks", percent(*of, chunks));
        let shares: Vec<_> = fewer.iter().rev().map(share).collect();
        let more =
            if shares.is_empty() { String::new() } else { format!("; {}", shares.join(", ")) };
        format!("{}{more}", counted(all, "contributor"))
    }

    /// Returns the clients and the number of chunks of each cohort, for a report.
    pub(crate) fn summary(&self) -> Value {
        let short = |c: &Cohort| json!({"clients": c.contributors, "chunks": c.chunks});
        self.cohorts.iter().map(short).collect()
    }

    /// Writes which values of which tensors are of which clients.
    pub(crate) fn write(&self, mut out: OutputFile) -> Result<(), Failure> {
        let specs = self.sum.agreement.specs();
        let run = |(tensor, values): &(usize, std::ops::Range<usize>)| {
            let name = specs.get(*tensor).map(|spec| &spec.name);
            json!({"tensor": name, "first": values.start, "end": values.end})
        };
        let cohort = |c: &Cohort| {
            let values: Vec<_> = c.values.iter().map(run).collect();
            json!({"clients": c.contributors, "chunks": c.chunks, "values": values})
        };
        let cohorts: Vec<_> = self.cohorts.iter().map(cohort).collect();
        let value = json!({
            "kind": "ciphergram-cohorts", "version": 1, "round": self.sum.round, "cohorts": cohorts,
        });
        out.put(&serde_json::to_vec_pretty(&value)?)?;
        out.commit()
    }
}

/// Opens the file for cohorts before the work, if one is asked for.
pub(crate) fn create(path: Option<&Path>, inputs: &[&Path]) -> Result<Option<OutputFile>, Failure> {
    path.map(|path| OutputFile::create(path, FileKind::Cohorts, inputs)).transpose()
}

/// Describes a share in whole percent, but never a part as nothing or as all.
fn percent(part: u32, all: u32) -> String {
    let percent = 100.0 * f64::from(part) / f64::from(all.max(1));
    match percent.round() as u32 {
        0 if part > 0 => "less than 1 %".into(),
        100 if part < all => "more than 99 %".into(),
        whole => format!("{whole} %"),
    }
}

#[cfg(test)]
mod tests {
    use super::percent;

    #[test]
    fn a_part_is_neither_nothing_nor_all() {
        let cases = [(0, 9, "0 %"), (1, 1000, "less than 1 %"), (8, 9, "89 %")];
        let more = [(999, 1000, "more than 99 %"), (9, 9, "100 %"), (1, 2, "50 %")];
        for (part, all, words) in cases.into_iter().chain(more) {
            assert_eq!(percent(part, all), words, "{part} of {all}");
        }
    }
}
