//! Threads of our own to compute on.
//!
//! A process that forks has none of its parent's threads, and rayon's global pool would wait for them for ever. So all
//! work runs in a pool that belongs to a process id, and a child makes another.

use std::{
    process,
    sync::{Arc, Mutex, PoisonError},
};

use pyo3::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::errors::{Error, Result};

/// The most threads of a pool, as of a command's `--threads`: to start many more takes minutes.
const MAX_THREADS: usize = 1024;

/// The pool, the process that it belongs to, and how many threads it was asked to have.
struct Current {
    pool: Option<(u32, Arc<ThreadPool>)>,
    /// 0 for as many as there are cores.
    threads: usize,
}

static CURRENT: Mutex<Current> = Mutex::new(Current { pool: None, threads: 0 });

/// Returns the pool of this process.
pub(crate) fn pool() -> Result<Arc<ThreadPool>> {
    let mut current = CURRENT.lock().unwrap_or_else(PoisonError::into_inner);
    let own = process::id();
    if let Some((of, pool)) = &current.pool
        && *of == own
    {
        return Ok(pool.clone());
    }
    let named = |index| format!("ciphergram-{index}");
    let builder = ThreadPoolBuilder::new().num_threads(current.threads).thread_name(named);
    let pool = Arc::new(builder.build().map_err(|e| Error::Own("EngineError", e.to_string()))?);
    // The parent's, if there was one: to drop it would wait for threads that are not here.
    if let Some(former) = current.pool.replace((own, pool.clone())) {
        std::mem::forget(former);
    }
    Ok(pool)
}

/// Makes a pool for work that never ends, and what it spreads: as many threads, and one more.
pub(crate) fn beside() -> Result<ThreadPool> {
    let threads = pool()?.current_num_threads() + 1;
    let builder = ThreadPoolBuilder::new().num_threads(threads);
    builder.build().map_err(|e| Error::Own("EngineError", e.to_string()))
}

/// Does work on the threads of this process, without the interpreter.
pub(crate) fn run<T: Send>(py: Python<'_>, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    let pool = pool()?;
    py.detach(|| pool.install(work))
}

/// Sets the number of threads that computations use; None for as many as there are cores.
#[pyfunction]
#[pyo3(signature = (threads=None, /))]
pub(crate) fn set_threads(threads: Option<usize>) -> Result<()> {
    match threads {
        Some(0) => {
            let text = "0 threads: say None for as many as there are cores";
            return Err(Error::parameter(text));
        }
        Some(threads) if threads > MAX_THREADS => {
            let text = format!("{threads} threads: there are {MAX_THREADS} at most");
            return Err(Error::parameter(text));
        }
        _ => {}
    }
    let mut current = CURRENT.lock().unwrap_or_else(PoisonError::into_inner);
    current.threads = threads.unwrap_or(0);
    // Calls under way keep theirs until they return.
    if let Some((of, pool)) = current.pool.take()
        && of != process::id()
    {
        std::mem::forget(pool);
    }
    Ok(())
}
