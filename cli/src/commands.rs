//! One module a command.

pub(crate) mod aggregate;
pub(crate) mod bench;
pub(crate) mod decrypt;
pub(crate) mod devices;
pub(crate) mod encrypt;
pub(crate) mod explain;
pub(crate) mod identity;
pub(crate) mod inspect;
pub(crate) mod join;
pub(crate) mod keygen;
pub(crate) mod params;
pub(crate) mod ranges;
pub(crate) mod relay;
pub(crate) mod serve;

use std::sync::Arc;

use ciphergram_accel::{CpuEngine, Engine};

/// The engine that commands run on. A log line says which it is.
pub(crate) fn engine() -> Arc<dyn Engine> {
    let engine = Arc::new(CpuEngine::new());
    tracing::info!("engine {}: {}", engine.name(), engine.describe());
    engine
}
