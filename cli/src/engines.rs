//! The engine that commands run on.

use std::sync::Arc;

use ciphergram_accel::{CpuEngine, Engine, ReferenceEngine, Scheduler, scheduler::Event};

use crate::args::EngineName;

/// Returns the engine of this name, or the CPU where a GPU is asked for and there is none. A log
/// line names it.
pub(crate) fn engine(name: EngineName) -> Arc<dyn Engine> {
    let cpu = Arc::new(CpuEngine::new());
    let engine: Arc<dyn Engine> = match name {
        EngineName::Cpu => cpu,
        EngineName::Reference => Arc::new(ReferenceEngine),
        EngineName::Gpu => match gpu() {
            Ok(gpu) => Arc::new(Scheduler::preferring(gpu, cpu, log)),
            Err(why) => {
                tracing::warn!("programs run on the CPU: {why}");
                cpu
            }
        },
        EngineName::Auto => {
            Arc::new(Scheduler::measuring(cpu, || present(gpu().and_then(real)), log))
        }
    };
    tracing::info!("engine {}: {}", engine.name(), engine.info().description);
    engine
}

/// Returns the engine `auto` with any adapter, opened at once.
pub(crate) fn auto() -> Arc<dyn Engine> {
    Arc::new(Scheduler::measuring(Arc::new(CpuEngine::new()), || present(gpu()), log).after(0.0))
}

/// Returns the GPU, or logs why there is none.
fn present(gpu: Result<Arc<dyn Engine>, String>) -> Option<Arc<dyn Engine>> {
    match &gpu {
        Ok(gpu) => tracing::info!("engine {}: {}", gpu.name(), gpu.info().description),
        Err(why) => tracing::info!("programs run on the CPU: {why}"),
    }
    gpu.ok()
}

/// Refuses an adapter that is emulated: it runs on the CPU's own cores, many times slower, and to
/// measure that takes seconds.
fn real(gpu: Arc<dyn Engine>) -> Result<Arc<dyn Engine>, String> {
    let info = gpu.info();
    if info.is_emulated { Err(format!("{} is a program", info.description)) } else { Ok(gpu) }
}

/// Writes a scheduler's event to the log.
fn log(event: Event<'_>) {
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

/// Returns the GPU engine.
#[cfg(feature = "gpu")]
fn gpu() -> Result<Arc<dyn Engine>, String> {
    let engine = ciphergram_accel::GpuEngine::new().map_err(|why| why.to_string())?;
    Ok(Arc::new(engine))
}

#[cfg(not(feature = "gpu"))]
fn gpu() -> Result<Arc<dyn Engine>, String> {
    Err("this ciphergram was built without the feature gpu".into())
}

/// Returns the GPU engine over its other prelude, where the adapter can take both.
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

/// Returns why there is no GPU engine, if there is none.
pub(crate) fn gpu_absence() -> Option<String> {
    gpu().err()
}
