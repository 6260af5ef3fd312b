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

use crate::errors::{Error, Result, whole_or_none};

/// The pool, the process that it belongs to, and how many threads it was asked to have.
struct Current {
    pool: Option<(u32, Arc<ThreadPool>)>,
    /// 0 for as many as there are cores.
    threads: usize,
}

static CURRENT: Mutex<Current> = Mutex::new(Current { pool: None, threads: 0 });

/// The most threads that make sense on any machine.
const MAX_THREADS: usize = 1024;

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

/// Does work on what a lock guards, as [`run`] does. The lock is taken before the work is on a thread of the pool: one
/// that waits for its own part may take up other work there, which must not wait for this lock.
pub(crate) fn run_with<G: Send, T: Send>(
    py: Python<'_>,
    lock: &Mutex<G>,
    work: impl FnOnce(&mut G) -> Result<T> + Send,
) -> Result<T> {
    let pool = pool()?;
    py.detach(|| {
        let mut guarded = lock.lock().unwrap_or_else(PoisonError::into_inner);
        let guarded = &mut *guarded;
        pool.install(|| work(guarded))
    })
}

/// Sets the number of threads that computations use; None for as many as there are cores.
#[pyfunction]
#[pyo3(signature = (threads=None, /))]
pub(crate) fn set_threads(
    #[pyo3(from_py_with = whole_or_none)] threads: Option<usize>,
) -> Result<()> {
    if let Some(threads) = threads.filter(|threads| !(1..=MAX_THREADS).contains(threads)) {
        let text = format!(
            "{threads} threads: choose 1 to {MAX_THREADS}, or None for as many as there are cores"
        );
        return Err(Error::parameter(text));
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
