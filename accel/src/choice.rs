//! Choosing an engine by name: one rule for all front ends.

use std::{fmt, str::FromStr, sync::Arc};

use crate::{CpuEngine, Engine, FpgaEngine, Measure, ReferenceEngine, Scheduler, scheduler::Event};

/// An engine, or a way to choose one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// The CPU.
    Cpu,
    /// A GPU; the CPU where there is none, and for programs with a step that the GPU lacks.
    Gpu,
    /// A card; the CPU where there is none, and for programs with a step that cards lack.
    Fpga,
    /// The CPU, a GPU, or both with a part of each batch: the fastest of these.
    Auto,
    /// The oracle that engines are tested against.
    Reference,
}

impl Choice {
    /// All choices.
    pub const ALL: [Self; 5] = [Self::Cpu, Self::Gpu, Self::Fpga, Self::Auto, Self::Reference];

    /// Returns the name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Gpu => "gpu",
            Self::Fpga => "fpga",
            Self::Auto => "auto",
            Self::Reference => "reference",
        }
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Choice {
    type Err = UnknownEngine;

    fn from_str(name: &str) -> Result<Self, UnknownEngine> {
        let found = Self::ALL.into_iter().find(|choice| choice.name() == name);
        found.ok_or_else(|| UnknownEngine { name: name.into() })
    }
}

/// A name that no engine has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no engine {name:?}; there are cpu, gpu, fpga, auto and reference")]
pub struct UnknownEngine {
    /// The name given.
    pub name: String,
}

/// Something that a choice tells its owner.
pub enum Notice<'a> {
    /// A device is there.
    Present(&'a dyn Engine),
    /// There is no device, and programs run on the CPU.
    Absent {
        /// The reason.
        why: &'a str,
        /// Whether a device was asked for by name.
        is_asked: bool,
    },
    /// The scheduler's events.
    Scheduler(Event<'a>),
}

/// A way to open the device, or the reason why there is none.
pub type OpenGpu = fn() -> Result<Arc<dyn Measure>, String>;
/// A listener to notices.
pub type Tell = fn(Notice<'_>);

/// Opens the GPU engine, or says why there is none.
///
/// # Errors
/// No adapter, none that will do, or a build without the feature `gpu`.
pub fn open_gpu() -> Result<Arc<dyn Measure>, String> {
    #[cfg(feature = "gpu")]
    return crate::GpuEngine::new()
        .map(|gpu| Arc::new(gpu) as Arc<dyn Measure>)
        .map_err(|why| why.to_string());
    #[cfg(not(feature = "gpu"))]
    Err("this was built without the feature gpu".into())
}

/// Opens the FPGA engine, or says why there is none.
///
/// # Errors
/// The environment names no card, or one that will not do.
pub fn open_fpga() -> Result<Arc<dyn Measure>, String> {
    let card = FpgaEngine::new().map(|card| Arc::new(card) as Arc<dyn Measure>);
    card.map_err(|why| why.to_string())
}

/// Returns the engine of a choice. `open` opens the GPU: [`open_gpu`], or that with precautions of one's own; at once
/// if the GPU is asked for, and under [`Choice::Auto`] once there is work enough.
pub fn choose(choice: Choice, open: OpenGpu, tell: Tell) -> Arc<dyn Engine> {
    let cpu = Arc::new(CpuEngine::new());
    match choice {
        Choice::Cpu => cpu,
        Choice::Reference => Arc::new(ReferenceEngine),
        Choice::Gpu => preferred(open(), cpu, tell),
        Choice::Fpga => preferred(open_fpga(), cpu, tell),
        Choice::Auto => {
            let device = move || present(open().and_then(real), tell);
            Arc::new(Scheduler::measuring(cpu, device, move |e| tell(Notice::Scheduler(e))))
        }
    }
}

/// Returns an engine over the device that was asked for and the CPU, or the CPU alone.
fn preferred(
    device: Result<Arc<dyn Measure>, String>,
    cpu: Arc<dyn Engine>,
    tell: Tell,
) -> Arc<dyn Engine> {
    match device {
        Ok(device) => {
            Arc::new(Scheduler::preferring(device, cpu, move |e| tell(Notice::Scheduler(e))))
        }
        Err(why) => {
            tell(Notice::Absent { why: &why, is_asked: true });
            cpu
        }
    }
}

/// Returns the device, or tells why there is none.
pub fn present(gpu: Result<Arc<dyn Measure>, String>, tell: Tell) -> Option<Arc<dyn Engine>> {
    match &gpu {
        Ok(gpu) => tell(Notice::Present(&**gpu)),
        Err(why) => tell(Notice::Absent { why, is_asked: false }),
    }
    gpu.ok().map(|gpu| gpu as Arc<dyn Engine>)
}

/// Refuses an adapter that is emulated: it runs on the CPU's own cores, many times slower, and to measure that takes
/// seconds.
fn real(gpu: Arc<dyn Measure>) -> Result<Arc<dyn Measure>, String> {
    let info = gpu.info();
    if info.is_emulated { Err(format!("{} is a program", info.description)) } else { Ok(gpu) }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use super::*;

    #[test]
    fn names_are_those_of_choices() {
        for choice in Choice::ALL {
            assert_eq!(choice.name().parse(), Ok(choice));
        }
        let error = "tpu".parse::<Choice>().unwrap_err().to_string();
        assert_eq!(error, "no engine \"tpu\"; there are cpu, gpu, fpga, auto and reference");
    }

    #[test]
    fn without_a_device_the_cpu_runs_and_it_is_told_once() {
        static TOLD: AtomicUsize = AtomicUsize::new(0);
        let tell: Tell = |notice| {
            assert!(matches!(notice, Notice::Absent { why: "gone", is_asked: true }));
            TOLD.fetch_add(1, Relaxed);
        };
        let engine = choose(Choice::Gpu, || Err("gone".into()), tell);
        assert_eq!((engine.name(), TOLD.load(Relaxed)), (CpuEngine::new().name(), 1));
        assert_eq!(choose(Choice::Reference, || Err("gone".into()), tell).name(), "reference");
    }

    #[test]
    fn without_a_card_the_cpu_runs() {
        if std::env::var_os("CIPHERGRAM_FPGA").is_some() {
            return println!("SKIPPED, there may be a card");
        }
        let tell: Tell = |notice| {
            let Notice::Absent { why, is_asked: true } = notice else { panic!("a card") };
            assert_eq!(why, "CIPHERGRAM_FPGA names no card");
        };
        let engine = choose(Choice::Fpga, || panic!("no GPU is asked for"), tell);
        assert_eq!(engine.name(), CpuEngine::new().name());
    }
}
