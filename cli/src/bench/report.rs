//! The report of a run: the table that is printed, and the file that `--json` writes and `--compare` reads.

use std::{
    fs::{self, File},
    io::Read as _,
    path::Path,
    sync::Arc,
    thread,
};

use ciphergram_accel::Engine as _;
use ciphergram_benches::cases::{Metered, Row, number};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::failure::{Failure, at};

/// The version of the files that this program writes. It reads those of all before.
pub(crate) const VERSION: u32 = 1;
/// Longer than any report, in bytes.
const LONGEST: u64 = 64 << 20;
/// More rows than any run has: each is held against all others.
const MAX_ROWS: usize = 10_000;
/// The part of the time that other work had the cores, above which figures are marked.
const DISTURBED: f64 = 0.1;

/// The figures of a run, and of what they are.
#[derive(Serialize, Deserialize)]
pub(crate) struct Report {
    /// The kind of this file, as every file of ours says it.
    #[serde(default)]
    pub(crate) kind: String,
    /// None in files from before there were versions.
    #[serde(default)]
    pub(crate) version: u32,
    /// When the run began, in UTC as RFC 3339 has it: `2026-11-23T08:00:00.000000Z`.
    pub(crate) time: Option<String>,
    /// The commit of the source, `unknown` if nobody knows.
    pub(crate) commit: String,
    /// The options of the run.
    pub(crate) options: Option<Value>,
    pub(crate) machine: Map<String, Value>,
    pub(crate) rows: Vec<Row>,
}

/// Returns a warning if other work had the cores too.
pub(crate) fn busy(rows: &[Row]) -> Option<String> {
    let disturbed = || rows.iter().filter_map(|row| row.disturbed());
    let busy = disturbed().filter(|&part| part > DISTURBED).count();
    let most = 100.0 * disturbed().fold(0.0, f64::max);
    (busy > 0).then(|| {
        format!(
            "other work had the cores too while {busy} of {} rows were measured, at worst {most:.0} % of the time, \
             and no quiet spell came: all may be faster than it looks here",
            rows.len()
        )
    })
}

impl Report {
    /// Reads a file that `bench --json` wrote.
    ///
    /// # Errors
    /// It cannot be read, is of a later version, holds something else, or has figures that are none.
    pub(crate) fn read(path: &Path) -> Result<Self, Failure> {
        let refuse = |why: String| Failure::Work(format!("{}: {why}", path.display()));
        let mut bytes = vec![];
        // No more than shows that it is too long: a device may have no end.
        let file = File::open(path).map_err(at(path))?;
        file.take(LONGEST + 1).read_to_end(&mut bytes).map_err(at(path))?;
        if bytes.len() as u64 > LONGEST {
            return Err(refuse("too long for a report of `bench --json`".into()));
        }
        let other = |why: serde_json::Error| refuse(format!("no report of `bench --json`: {why}"));
        let json: Value = serde_json::from_slice(&bytes).map_err(other)?;
        if let Some(later) = json["version"].as_u64().filter(|v| *v > u64::from(VERSION)) {
            let text = format!("a report of version {later}; this reads {VERSION} at most");
            return Err(refuse(text));
        }
        let report = Self::deserialize(json).map_err(other)?;
        if report.rows.len() > MAX_ROWS {
            return Err(refuse("too many rows for a report of `bench --json`".into()));
        }
        match report.rows.iter().find(|row| !row.has_figures()) {
            Some(row) => Err(refuse(format!("the figures of {:?} are none", row.name()))),
            None => Ok(report),
        }
    }
}

/// Returns a table of reports side by side: operations a second, and beside those of the first how many times as many.
pub(crate) fn side_by_side(sources: &[(String, Report)]) -> Vec<String> {
    let mut subjects: Vec<&Row> = vec![];
    for row in sources.iter().flat_map(|(_, report)| &report.rows) {
        if !subjects.iter().any(|subject| subject.subject() == row.subject()) {
            subjects.push(row);
        }
    }
    let line = |[name, bits, engine, threads]: [&str; 4], cells: Vec<String>| {
        let mut line = format!("{name:<25}  {bits:>5}  {engine:<10}  {threads:>7}");
        cells.iter().for_each(|cell| line += &format!("  {cell:>22}"));
        // Words of a file could move the cursor of a terminal.
        line.replace(char::is_control, " ")
    };
    let labels = sources.iter().map(|(label, _)| label.clone()).collect();
    let head = line(["operation", "bits", "engine", "threads"], labels);
    let rows = subjects.iter().map(|subject| {
        let rates = sources.iter().map(|(_, report)| {
            report.rows.iter().find(|row| row.subject() == subject.subject()).and_then(Row::rate)
        });
        let rates: Vec<_> = rates.collect();
        let cells = rates.iter().enumerate().map(|(i, rate)| match (rate, rates[0]) {
            (None, _) => "-".into(),
            (&Some(rate), Some(first)) if i > 0 => {
                format!("{} {:>7.2}x", number(rate), rate / first)
            }
            (&Some(rate), _) => number(rate),
        });
        let (.., bits, engine, threads) = subject.subject();
        let (bits, threads) = (bits.to_string(), threads.to_string());
        line([&subject.name(), &bits, engine, &threads], cells.collect())
    });
    [head].into_iter().chain(rows).collect()
}

/// Describes this machine with these engines, for a report.
pub(crate) fn machine(engines: &[Arc<Metered>]) -> Map<String, Value> {
    let uname = rustix::system::uname();
    let kernel = [uname.sysname(), uname.release()].map(|word| word.to_string_lossy());
    let processor = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let of_processor = |name| field(&processor, name);
    let number = |name| of_processor(name)?.parse::<u32>().ok();
    let signature = || Some([number("cpu family")?, number("model\t")?, number("stepping")?]);
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kibibytes = || field(&memory, "MemTotal")?.strip_suffix(" kB")?.parse::<u64>().ok();
    let engine = |engine: &Arc<Metered>| {
        let (name, description) = (engine.name(), engine.info().description);
        json!({ "name": name, "description": description, "multiply_rate": engine.multiply_rate() })
    };
    // Fields are added one by one: `json!` gives a value of any kind.
    let fields = [
        ("cpu", of_processor("model name").unwrap_or(std::env::consts::ARCH).into()),
        ("signature", signature().into_iter().flatten().collect()),
        ("features", features().into()),
        ("cores", thread::available_parallelism().map_or(1, usize::from).into()),
        ("memory_bytes", kibibytes().map(|kibibytes| 1024 * kibibytes).into()),
        ("kernel", kernel.join(" ").into()),
        ("compiler", env!("CIPHERGRAM_COMPILER").into()),
        ("engines", engines.iter().map(engine).collect()),
        ("multiply_rate", engines.iter().find_map(|engine| engine.multiply_rate()).into()),
    ];
    fields.map(|(name, value)| (name.to_owned(), value)).into_iter().collect()
}

/// Returns what stands behind a name and a colon.
fn field<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    let mut lines = text.lines();
    lines.find_map(|line| Some(line.strip_prefix(name)?.trim_start().strip_prefix(':')?.trim()))
}

/// Describes the processor, its cores and the memory in a line.
pub(crate) fn describe(machine: &Map<String, Value>) -> String {
    let number = |name: &str| machine[name].as_u64();
    let cores = number("cores").unwrap_or(1);
    let memory = number("memory_bytes").map_or_else(String::new, |bytes| {
        format!(", {:.0} GiB of memory", bytes as f64 / f64::from(1 << 30))
    });
    let signature: Vec<_> = machine["signature"].as_array().into_iter().flatten().collect();
    let signature = match signature[..] {
        [family, model, stepping] => {
            format!(" (family {family}, model {model}, stepping {stepping})")
        }
        _ => String::new(),
    };
    let cpu = machine["cpu"].as_str().unwrap_or_default();
    format!("{cpu}{signature}, {cores} {}{memory}", if cores == 1 { "core" } else { "cores" })
}

/// Returns those instructions of the processor that the CPU engine has paths for.
#[cfg(target_arch = "x86_64")]
fn features() -> Vec<&'static str> {
    let all = [
        ("avx512ifma", is_x86_feature_detected!("avx512ifma")),
        ("avx512vbmi", is_x86_feature_detected!("avx512vbmi")),
        ("bmi2", is_x86_feature_detected!("bmi2")),
        ("adx", is_x86_feature_detected!("adx")),
    ];
    all.into_iter().filter(|(_, is_there)| *is_there).map(|(name, _)| name).collect()
}

#[cfg(not(target_arch = "x86_64"))]
fn features() -> Vec<&'static str> {
    vec![]
}
