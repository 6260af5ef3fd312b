//! The subject of a report: processor, engines, and the state of the source.

use std::{fs, process::Command, sync::Arc, thread};

use ciphergram_accel::{Engine, Measure, Present, engines};
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
    /// The same engine, if it counts its multiplications.
    pub(crate) measure: Option<Arc<dyn Measure>>,
    /// Multiply instructions a second that one thread or the device can issue, if the engine
    /// measures it.
    pub(crate) multiply_rate: Option<f64>,
}

/// Returns the engines to measure: the one of this name, or all but slow ones.
///
/// # Errors
/// There is none of this name.
pub(crate) fn choose(name: Option<&str>) -> Result<Vec<Present>, Failure> {
    if name == Some("auto") {
        return Ok(vec![Present { engine: auto(), measure: None }]);
    }
    let all = engines();
    let names: Vec<_> = all.iter().map(|present| present.engine.name()).collect();
    let is_chosen = |Present { engine, .. }: &Present| match name {
        Some(name) => engine.name() == name,
        None => engine.name() != ORACLE && !engine.info().is_emulated,
    };
    let chosen: Vec<_> = all.into_iter().filter(is_chosen).collect();
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
        let threads = if self.engine.info().is_device { 1 } else { threads };
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
    pub(crate) fn measure(engines: Vec<Present>) -> Self {
        let measured = |Present { engine, measure }| {
            let multiply_rate =
                measure.as_ref().and_then(|it: &Arc<dyn Measure>| it.multiply_rate());
            Measured { engine, measure, multiply_rate }
        };
        Self {
            cpu: cpu(),
            cores: thread::available_parallelism().map_or(1, usize::from),
            engines: engines.into_iter().map(measured).collect(),
        }
    }

    /// Describes the processor and each engine, a line each.
    pub(crate) fn lines(&self) -> Vec<String> {
        let cores = if self.cores == 1 { "core" } else { "cores" };
        let mut lines = vec![format!("{}, {} {cores}", self.cpu, self.cores)];
        for Measured { engine, multiply_rate, .. } in &self.engines {
            let info = engine.info();
            let each = if info.is_device { "" } else { " a thread" };
            let rate = multiply_rate.map_or("no measure of its limit".into(), |rate| {
                format!("at most {:.2} G multiplies/s{each}", rate / 1e9)
            });
            lines.push(format!("{}: {}, {rate}", engine.name(), info.description));
        }
        lines
    }

    /// Returns the field `machine` of a report.
    pub(crate) fn json(&self) -> Value {
        let engine = |m: &Measured| {
            json!({
                "name": m.engine.name(), "description": m.engine.info().description,
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
