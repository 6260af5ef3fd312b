//! The engines that computations run on, by name.

use std::{
    collections::BTreeMap,
    process,
    sync::{Arc, Mutex, PoisonError},
};

use ciphergram_accel::{CpuEngine, Engine};

use crate::errors::{Error, Result};

/// The engines of this process that are open.
static OPEN: Mutex<BTreeMap<(u32, String), Arc<dyn Engine>>> = Mutex::new(BTreeMap::new());

/// Returns the engine of this name, opened once in a process.
pub(crate) fn engine(name: &str) -> Result<Arc<dyn Engine>> {
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    let key = (process::id(), name.to_owned());
    if let Some(engine) = open.get(&key) {
        return Ok(engine.clone());
    }
    let engine: Arc<dyn Engine> = match name {
        "cpu" => Arc::new(CpuEngine::new()),
        _ => {
            let text = format!("engine={name:?}: there are \"cpu\", \"gpu\" and \"auto\"");
            return Err(Error::parameter(text));
        }
    };
    open.insert(key, engine.clone());
    Ok(engine)
}
