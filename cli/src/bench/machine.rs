//! The subject of a report: processor, engines, and the state of the source.

use std::{fs, process::Command, sync::Arc, thread};

use ciphergram_accel::{Engine, engines};
use serde_json::{Value, json};

use crate::{
    engines::{auto, gpu_absence},
    failure::Failure,
};

/// The oracle. Like emulated devices it is slow, and measured only if it is named.
const ORACLE: &str = "reference";

/// An engine and its rate of multiplications.
pub(crate) struct Measured {
    pub(crate) engine: Arc<dyn Engine>,
    /// Multiply instructions a second that one thread or the device can issue, if the engine
    /// measures it.
    pub(crate) multiply_rate: Option<f64>,
}

/// Returns the engines to measure: the one of this name, or all but slow ones.
///
/// # Errors
/// There is none of this name.
pub(crate) fn choose(name: Option<&str>) -> Result<Vec<Arc<dyn Engine>>, Failure> {
    if name == Some("auto") {
        return Ok(vec![auto()]);
    }
    let all = engines();
    let names: Vec<_> = all.iter().map(|engine| engine.name()).collect();
    let chosen: Vec<_> = all
        .into_iter()
        .filter(|engine| match name {
            Some(name) => engine.name() == name,
            None => engine.name() != ORACLE && !engine.is_emulated(),
        })
        .collect();
    match name {
        Some(name) if chosen.is_empty() => {
            let why = (name == "gpu").then(gpu_absence).flatten();
            let why = why.map_or_else(String::new, |why| format!(" ({why})"));
            let text = format!("no engine {name:?}{why}; there are {}", names.join(", "));
            Err(Failure::Misuse(text))
        }
        _ => Ok(chosen),
    }
}

impl Measured {
    /// Returns the rate of all its parts while `threads` threads call it.
    pub(crate) fn rate_of(&self, threads: usize) -> Option<f64> {
        let threads = if self.engine.is_device() { 1 } else { threads };
        self.multiply_rate.map(|rate| rate * threads as f64)
    }
}

/// The machine of a report.
pub(crate) struct Machine {
    cpu: String,
    /// Cores that this program may use.
    cores: usize,
    pub(crate) engines: Vec<Measured>,
}

impl Machine {
    /// Describes the machine, and measures each engine's rate of multiplications.
    pub(crate) fn measure(engines: &[Arc<dyn Engine>]) -> Self {
        let measured = |engine: &Arc<dyn Engine>| {
            let (engine, multiply_rate) = (engine.clone(), engine.multiply_rate());
            Measured { engine, multiply_rate }
        };
        Self {
            cpu: cpu(),
            cores: thread::available_parallelism().map_or(1, usize::from),
            engines: engines.iter().map(measured).collect(),
        }
    }

    /// Describes the processor and each engine, a line each.
    pub(crate) fn lines(&self) -> Vec<String> {
        let cores = if self.cores == 1 { "core" } else { "cores" };
        let mut lines = vec![format!("{}, {} {cores}", self.cpu, self.cores)];
        for Measured { engine, multiply_rate } in &self.engines {
            let each = if engine.is_device() { "" } else { " a thread" };
            let rate = multiply_rate.map_or("no measure of its limit".into(), |rate| {
                format!("at most {:.2} G multiplies/s{each}", rate / 1e9)
            });
            lines.push(format!("{}: {}, {rate}", engine.name(), engine.describe()));
        }
        lines
    }

    /// Returns the field `machine` of a report.
    pub(crate) fn json(&self) -> Value {
        let engine = |m: &Measured| {
            json!({
                "name": m.engine.name(), "description": m.engine.describe(),
                "multiply_rate": m.multiply_rate,
            })
        };
        json!({
            "cpu": self.cpu, "cores": self.cores,
            "engines": self.engines.iter().map(engine).collect::<Vec<_>>(),
            "multiply_rate": self.engines.iter().find_map(|m| m.multiply_rate),
        })
    }
}

/// Returns the processor's model, or its architecture where the system has no name for it.
fn cpu() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find_map(|line| line.strip_prefix("model name")?.split(':').nth(1));
    model.map_or_else(|| std::env::consts::ARCH.into(), |model| model.trim().into())
}

/// Returns the commit of the source that this was built from: `CIPHERGRAM_COMMIT` at build time,
/// else what git says of the folder now, with `-dirty` where files differ from the commit.
pub(crate) fn commit() -> String {
    if let Some(commit) = option_env!("CIPHERGRAM_COMMIT") {
        return commit.into();
    }
    let output = Command::new("git")
        .args(["--no-optional-locks", "-C", env!("CARGO_MANIFEST_DIR")])
        .args(["describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"])
        .output();
    let text = output.ok().filter(|output| output.status.success()).map(|output| output.stdout);
    let commit = text.map(|text| String::from_utf8_lossy(&text).trim().to_owned());
    commit.filter(|commit| !commit.is_empty()).unwrap_or_else(|| "unknown".into())
}
