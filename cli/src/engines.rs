//! The engine that commands run on.

use std::sync::Arc;

use ciphergram_accel::{CpuEngine, Engine, ReferenceEngine, Scheduler, scheduler::Event};

use crate::args::EngineName;

/// The engine of this name. Where a GPU is asked for and there is none, the CPU. A log line says which it is.
pub(crate) fn engine(name: EngineName) -> Arc<dyn Engine> {
    let cpu = Arc::new(CpuEngine::new());
    let engine: Arc<dyn Engine> = match name {
        EngineName::Cpu => cpu,
        EngineName::Reference => Arc::new(ReferenceEngine),
        EngineName::Gpu => match gpu() {
            Ok(gpu) => Arc::new(Scheduler::preferring(gpu, cpu, tell)),
            Err(why) => {
                tracing::warn!("programs run on the CPU: {why}");
                cpu
            }
        },
        EngineName::Auto => {
            Arc::new(Scheduler::measuring(cpu, || told(gpu().and_then(real)), tell))
        }
    };
    tracing::info!("engine {}: {}", engine.name(), engine.info().description);
    engine
}

/// The engine `auto` with any adapter, open from the start.
pub(crate) fn auto() -> Arc<dyn Engine> {
    Arc::new(Scheduler::measuring(Arc::new(CpuEngine::new()), || told(gpu()), tell).after(0.0))
}

/// The GPU for programs that take long, or a log line on why there is none.
fn told(gpu: Result<Arc<dyn Engine>, String>) -> Option<Arc<dyn Engine>> {
    match &gpu {
        Ok(gpu) => tracing::info!("engine {}: {}", gpu.name(), gpu.info().description),
        Err(why) => tracing::info!("programs run on the CPU: {why}"),
    }
    gpu.ok()
}

/// Refuses an adapter that is a program: on the CPU's own cores it is many times slower, and to learn how many takes
/// seconds.
fn real(gpu: Arc<dyn Engine>) -> Result<Arc<dyn Engine>, String> {
    let info = gpu.info();
    if info.is_emulated { Err(format!("{} is a program", info.description)) } else { Ok(gpu) }
}

/// A line of the log.
fn tell(event: Event<'_>) {
    match event {
        Event::Unsupported { program, engine, step } => {
            tracing::info!("{program} does not run on engine {engine}: it has no step {step}");
        }
        Event::Failed { program, engine, why } => {
            tracing::warn!("engine {engine} failed at {program}, and the CPU takes over: {why}");
        }
        _ => tracing::info!("{event:?}"),
    }
}

/// The GPU engine.
#[cfg(feature = "gpu")]
fn gpu() -> Result<Arc<dyn Engine>, String> {
    let engine = ciphergram_accel::GpuEngine::new().map_err(|why| why.to_string())?;
    Ok(Arc::new(engine))
}

#[cfg(not(feature = "gpu"))]
fn gpu() -> Result<Arc<dyn Engine>, String> {
    Err("this ciphergram was built without the feature gpu".into())
}

/// The GPU engine over its other prelude, where the adapter can take both.
#[cfg(feature = "gpu")]
pub(crate) fn split_gpu() -> Option<Arc<dyn Engine>> {
    use ciphergram_accel::{GpuEngine, gpu::Prelude};
    let native = GpuEngine::new().ok()?.prelude() == Prelude::Native;
    native.then(GpuEngine::split)?.ok().map(|engine| Arc::new(engine) as Arc<dyn Engine>)
}

#[cfg(not(feature = "gpu"))]
pub(crate) fn split_gpu() -> Option<Arc<dyn Engine>> {
    None
}

/// Why there is no GPU engine, if there is none.
pub(crate) fn gpu_absence() -> Option<String> {
    gpu().err()
}
