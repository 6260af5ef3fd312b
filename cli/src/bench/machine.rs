//! The subject of a report: processor, memory, kernel and engines.

mod processor;

use std::{fs, sync::Arc, thread};

use ciphergram_accel::{CpuEngine, Engine, Measure, Present, ReferenceEngine, choice::open_fpga};
use serde::{Deserialize, Serialize};

use crate::{
    args::EngineName,
    engines::{auto, gpu},
    failure::Failure,
};
use processor::Processor;

/// An engine and its rate of multiplications.
pub(crate) struct Measured {
    pub(crate) engine: Arc<dyn Engine>,
    /// The same engine, if it counts its multiplications.
    pub(crate) measure: Option<Arc<dyn Measure>>,
    /// Multiply instructions a second that one thread or the device can issue, if the engine
    /// measures it.
    pub(crate) multiply_rate: Option<f64>,
}

/// Says that a device is not there.
fn absent(name: &str, why: &str) -> Failure {
    Failure::Misuse(format!("no engine {name:?} ({why}); there are cpu, reference"))
}

impl Measured {
    /// Opens the engine of this name, and measures its rate of multiplications. No driver of a
    /// device is touched for another name.
    ///
    /// # Errors
    /// There is none of this name.
    pub(crate) fn open(name: EngineName) -> Result<Self, Failure> {
        let counting =
            |engine: Arc<dyn Measure>| Present { engine: engine.clone(), measure: Some(engine) };
        let alone = |engine| Present { engine, measure: None };
        let Present { engine, measure } = match name {
            EngineName::Cpu => counting(Arc::new(CpuEngine::new())),
            EngineName::Reference => alone(Arc::new(ReferenceEngine)),
            EngineName::Auto => alone(auto()),
            EngineName::Gpu => counting(gpu().map_err(|why| absent("gpu", &why))?),
            EngineName::Fpga => counting(open_fpga().map_err(|why| absent("fpga", &why))?),
        };
        let multiply_rate = measure.as_ref().and_then(|measure| measure.multiply_rate());
        Ok(Self { engine, measure, multiply_rate })
    }

    /// Returns the rate of all its parts while `threads` threads call it.
    pub(crate) fn rate_of(&self, threads: usize) -> Option<f64> {
        let threads = if self.engine.info().is_device { 1 } else { threads };
        self.multiply_rate.map(|rate| rate * threads as f64)
    }

    /// Returns whether a program stands in for a card: its time says nothing but how fast it simulates.
    pub(crate) fn is_simulated(&self) -> bool {
        let counts = self.measure.as_ref().is_some_and(|measure| measure.cycles().is_some());
        counts && self.engine.info().is_emulated
    }

    /// Describes it for a report.
    fn description(&self) -> EngineDescription {
        let info = self.engine.info();
        EngineDescription {
            name: self.engine.name().into(),
            description: info.description,
            multiply_rate: self.multiply_rate,
        }
    }

    /// Describes it and its limit in a line.
    pub(crate) fn line(&self) -> String {
        let info = self.engine.info();
        let each = if info.is_device { "" } else { " a thread" };
        let rate = self.multiply_rate.map_or("no measure of its limit".into(), |rate| {
            format!("at most {:.2} G multiplies/s{each}", rate / 1e9)
        });
        format!("{}: {}, {rate}", self.engine.name(), info.description)
    }
}

/// The field `machine` of a report.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Machine {
    #[serde(flatten)]
    pub(crate) processor: Processor,
    /// Cores that the program was allowed to use.
    pub(crate) cores: usize,
    /// Bytes of main memory.
    #[serde(default)]
    pub(crate) memory_bytes: Option<u64>,
    /// The operating system's kernel and its release.
    #[serde(default)]
    pub(crate) kernel: Option<String>,
    /// The compiler of the binary.
    #[serde(default)]
    pub(crate) compiler: Option<String>,
    /// The engines measured.
    pub(crate) engines: Vec<EngineDescription>,
    /// The rate of the first engine that measures it.
    pub(crate) multiply_rate: Option<f64>,
}

/// An engine of a report.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct EngineDescription {
    pub(crate) name: String,
    pub(crate) description: String,
    /// Multiply instructions a second that one thread, or a device, can issue at most.
    pub(crate) multiply_rate: Option<f64>,
}

impl Machine {
    /// Describes this machine with these engines.
    pub(crate) fn of(engines: &[Measured]) -> Self {
        let uname = rustix::system::uname();
        let kernel = [uname.sysname(), uname.release()].map(|word| word.to_string_lossy());
        Self {
            processor: Processor::here(),
            cores: thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: memory_bytes(),
            kernel: Some(kernel.join(" ")),
            compiler: Some(env!("CIPHERGRAM_COMPILER").into()),
            engines: engines.iter().map(Measured::description).collect(),
            multiply_rate: engines.iter().find_map(|engine| engine.multiply_rate),
        }
    }

    /// Describes the processor, its cores and the memory in a line.
    pub(crate) fn line(&self) -> String {
        let cores = if self.cores == 1 { "core" } else { "cores" };
        let memory = self.memory_bytes.map_or_else(String::new, |bytes| {
            format!(", {:.0} GiB of memory", bytes as f64 / f64::from(1 << 30))
        });
        format!("{}, {} {cores}{memory}", self.processor.describe(), self.cores)
    }
}

/// Returns the bytes of main memory, where Linux says.
fn memory_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let kibibytes = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    Some(1024 * kibibytes.trim().strip_suffix(" kB")?.parse::<u64>().ok()?)
}
