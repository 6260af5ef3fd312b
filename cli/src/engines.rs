//! The engine that commands run on.

use std::{
    io::{Read as _, Seek as _},
    os::fd::OwnedFd,
    sync::Arc,
};

use ciphergram_accel::{
    Choice, CpuEngine, Engine, FpgaEngine, Measure, Present, Scheduler,
    choice::{Notice, choose, open_gpu, present},
    fpga::FpgaError,
    scheduler::Event,
};

/// Returns the engine of this name, or the CPU where a GPU is asked for and there is none. A log
/// line names it.
pub(crate) fn engine(name: Choice) -> Arc<dyn Engine> {
    let engine = choose(name, gpu, log);
    tracing::info!("engine {}: {}", engine.name(), engine.info().description);
    engine
}

/// Returns the engine `auto` with any adapter, opened at once.
pub(crate) fn auto() -> Arc<dyn Engine> {
    let scheduled = |event: Event<'_>| log(Notice::Scheduler(event));
    let cpu = Arc::new(CpuEngine::new());
    Arc::new(Scheduler::measuring(cpu, || present(gpu(), log), scheduled).after(0.0))
}

/// Writes what a choice of engine tells to the log.
fn log(notice: Notice<'_>) {
    match notice {
        Notice::Present(gpu) => {
            tracing::info!("engine {}: {}", gpu.name(), gpu.info().description);
        }
        Notice::Absent { why, is_asked: true } => tracing::warn!("programs run on the CPU: {why}"),
        Notice::Absent { why, is_asked: false } => tracing::info!("programs run on the CPU: {why}"),
        Notice::Scheduler(Event::Unsupported { program, engine, step }) => {
            tracing::info!("{program} does not run on engine {engine}: it has no step {step}");
        }
        Notice::Scheduler(Event::Failed { program, engine, why }) => {
            tracing::warn!("engine {engine} failed at {program}, and the CPU takes over: {why}");
        }
        Notice::Scheduler(event) => tracing::info!("{event:?}"),
    }
}

/// Returns every engine that is present, and opens the adapter for it.
pub(crate) fn engines() -> Vec<Present> {
    apart(ciphergram_accel::engines)
}

/// Closes engines, whose drivers may write to standard error once more.
pub(crate) fn close(engines: Vec<Present>) {
    apart(|| drop(engines));
}

/// Returns the GPU engine.
pub(crate) fn gpu() -> Result<Arc<dyn Measure>, String> {
    apart(open_gpu)
}

/// Returns the GPU engine over its other prelude, where the adapter can take both.
#[cfg(feature = "gpu")]
pub(crate) fn split_gpu() -> Option<Arc<dyn Engine>> {
    use ciphergram_accel::{GpuEngine, gpu::Prelude};
    apart(|| {
        let native = GpuEngine::new().ok()?.prelude() == Prelude::Native;
        native.then(GpuEngine::split)?.ok().map(|engine| Arc::new(engine) as Arc<dyn Engine>)
    })
}

#[cfg(not(feature = "gpu"))]
pub(crate) fn split_gpu() -> Option<Arc<dyn Engine>> {
    None
}

/// Returns why there is no GPU engine, if there is none.
pub(crate) fn gpu_absence() -> Option<String> {
    gpu().err()
}

/// Returns why there is no card, if the environment names one that cannot be used.
pub(crate) fn card_absence() -> Option<String> {
    FpgaEngine::new().err().filter(|why| *why != FpgaError::None).map(|why| why.to_string())
}

/// Runs what opens drivers, and logs what they write to standard error, line by line: some write there whatever they
/// find, and errors of this program are one line. What other threads write there meanwhile is logged as well.
fn apart<T>(open: impl FnOnce() -> T) -> T {
    let Ok(file) = tempfile::tempfile() else { return open() };
    let Ok(aside) = Aside::new(&file) else { return open() };
    let opened = open();
    drop(aside);
    written(file).lines().for_each(|line| tracing::info!("driver: {line}"));
    opened
}

/// Returns all that a file holds.
fn written(mut file: std::fs::File) -> String {
    let mut bytes = vec![];
    let read = file.rewind().and_then(|()| file.read_to_end(&mut bytes));
    read.map_or_else(|_| String::new(), |_| String::from_utf8_lossy(&bytes).into_owned())
}

/// Standard error, while a file is in its place.
struct Aside(OwnedFd);

impl Aside {
    /// Puts `file` in the place of standard error until this is dropped.
    fn new(file: &std::fs::File) -> rustix::io::Result<Self> {
        // Above the standard ones, and closed in processes that this one starts.
        let stderr = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stderr(), 3)?;
        rustix::stdio::dup2_stderr(file)?;
        Ok(Self(stderr))
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        // Fails for no descriptor that is open, as this one is.
        let _ = rustix::stdio::dup2_stderr(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drivers_write_elsewhere_until_they_are_open() {
        let file = tempfile::tempfile().unwrap();
        let write = |text: &str| rustix::io::write(rustix::stdio::stderr(), text.as_bytes());
        let aside = Aside::new(&file).unwrap();
        write("error: no desktop\n").unwrap();
        drop(aside);
        // To standard error again, and not to the file.
        write("this line belongs to a test\n").unwrap();
        assert_eq!(apart(|| 7), 7);
        assert_eq!(written(file), "error: no desktop\n");
    }
}
