//! The report of a run: the file that `--json` writes, and `--compare` and `benches/report.py` read.

use std::{
    fs::File,
    io::{self, Read as _},
    path::Path,
    time::Duration,
};

use serde::{Deserialize, Serialize};

use super::{machine::Machine, row::Row};
use crate::{
    failure::{Failure, at},
    files::Output,
    report::time_now,
};

/// The version of the files that this program writes. It reads those of all before.
const VERSION: u32 = 1;
/// Longer than any report, in bytes.
const LONGEST: u64 = 64 << 20;
/// More rows than any run has: each is held against all others.
const MAX_ROWS: usize = 10_000;

/// The figures of a run, and of what they are.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Report {
    /// The kind of this file, as every file of ours says it.
    #[serde(default)]
    kind: String,
    /// Version of this file; none in those from before there were versions.
    #[serde(default)]
    version: u32,
    /// When the run began, in UTC as RFC 3339 has it: `2026-11-23T08:00:00.000000Z`.
    #[serde(default)]
    pub(crate) time: Option<String>,
    /// The commit of the source, `unknown` if nobody knows.
    pub(crate) commit: String,
    /// The options of the run.
    #[serde(default)]
    pub(crate) options: Option<Options>,
    pub(crate) machine: Machine,
    pub(crate) rows: Vec<Row>,
}

/// The options that decide what a run's figures are.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Options {
    pub(crate) threads: usize,
    /// Seconds for which each row was measured.
    pub(crate) seconds: f64,
    /// The value of `CIPHERGRAM_CPU`, if it was set.
    pub(crate) cpu_path: Option<String>,
}

impl Options {
    /// Returns the options of a run that begins in this process.
    pub(crate) fn of(threads: usize, duration: Duration) -> Self {
        let cpu_path = std::env::var("CIPHERGRAM_CPU").ok();
        Self { threads, seconds: duration.as_secs_f64(), cpu_path }
    }
}

/// A report and its name beside others.
pub(crate) struct Source {
    pub(crate) label: String,
    pub(crate) report: Report,
}

impl Source {
    /// Reads a file that `bench --json` wrote, and calls the report by its name.
    ///
    /// # Errors
    /// It cannot be read, or holds something else.
    pub(crate) fn read(path: &Path) -> Result<Self, Failure> {
        let refuse = |why: &str| Failure::Work(format!("{}: {why}", path.display()));
        let bytes = start(path).map_err(at(path))?;
        if bytes.len() as u64 > LONGEST {
            return Err(refuse("too long for a report of `bench --json`"));
        }
        let json: serde_json::Value = serde_json::from_slice(&bytes)
            .map_err(|why| refuse(&format!("no report of `bench --json`: {why}")))?;
        let label = path.file_stem().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        Ok(Self { label, report: Report::from_json(path, &json)? })
    }
}

/// Returns the beginning of a file, no more than shows that it is too long: a device may have no end.
fn start(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = vec![];
    File::open(path)?.take(LONGEST + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

impl Report {
    /// Makes a report of a run that begins now, without rows.
    pub(crate) fn begin(options: Options, machine: Machine) -> Self {
        let (commit, options) = (env!("CIPHERGRAM_COMMIT").into(), Some(options));
        let kind = "ciphergram-report".into();
        Self {
            kind,
            version: VERSION,
            time: Some(time_now()),
            commit,
            options,
            machine,
            rows: vec![],
        }
    }

    /// Reads a report out of what a file holds.
    ///
    /// # Errors
    /// It is of a later version, or no report, or has figures that are none.
    pub(crate) fn from_json(path: &Path, json: &serde_json::Value) -> Result<Self, Failure> {
        let refuse = |why: &str| Failure::Work(format!("{}: {why}", path.display()));
        if let Some(later) = json["version"].as_u64().filter(|v| *v > u64::from(VERSION)) {
            return Err(refuse(&format!(
                "a report of version {later}; this reads {VERSION} at most"
            )));
        }
        let report = Self::deserialize(json);
        let report =
            report.map_err(|why| refuse(&format!("no report of `bench --json`: {why}")))?;
        if report.rows.len() > MAX_ROWS {
            return Err(refuse("too many rows for a report of `bench --json`"));
        }
        let is_time = |time: Option<f64>| time.is_none_or(|time| (1e-15..1e9).contains(&time));
        let is_part = |part: Option<f64>| part.is_none_or(|part| (1e-6..100.0).contains(&part));
        let is_size = |bytes: f64| (1e-6..1e9).contains(&bytes);
        for row in &report.rows {
            let has_times = [row.p10_s, row.median_s, row.p90_s].into_iter().all(is_time);
            let has_sizes = row.values != Some(0)
                && row.upload.as_ref().is_none_or(|upload| is_size(upload.bytes_per_value));
            if !has_times || !has_sizes || !is_part(row.limit_fraction) {
                return Err(refuse(&format!("the figures of {:?} are none", row.name())));
            }
        }
        Ok(report)
    }

    /// Writes it as JSON.
    pub(crate) fn write(&self, mut out: Output) -> Result<(), Failure> {
        out.put(format!("{}\n", serde_json::to_string_pretty(self)?).as_bytes())?;
        out.commit()
    }
}
