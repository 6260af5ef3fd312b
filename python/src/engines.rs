//! The engines that computations run on, by name.

use std::{
    collections::BTreeMap,
    process,
    sync::{Arc, Mutex, PoisonError},
};

use ciphergram_accel::{
    Engine,
    choice::{Choice, Notice, choose, open_gpu},
};
use pyo3::prelude::*;

use crate::{
    errors::{Error, Result, warn},
    pool::run,
};

/// The engines that are open, by process: one of a parent may have threads that a child has not.
static OPEN: Mutex<OpenEngines> = Mutex::new(OpenEngines::new());

type OpenEngines = BTreeMap<(u32, &'static str), Arc<dyn Engine>>;

/// Returns the engine of this name, opened once in a process. Warns if a GPU is asked for and there is none.
pub(crate) fn engine(name: &str) -> Result<Arc<dyn Engine>> {
    let choice = name.parse::<Choice>().ok().filter(|choice| *choice != Choice::Reference);
    let choice = choice.ok_or_else(|| {
        Error::parameter(format!("engine={name:?}: there are \"cpu\", \"gpu\" and \"auto\""))
    })?;
    let open = || OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    let key = (process::id(), choice.name());
    let found = open().get(&key).cloned();
    if let Some(engine) = found {
        return Ok(engine);
    }
    // Without the lock: it may run code of Python's.
    let made = choose(choice, open_gpu, tell);
    Ok(open().entry(key).or_insert(made).clone())
}

/// Warns of what was asked for and is not there.
fn tell(notice: Notice<'_>) {
    if let Notice::Absent { why, is_asked: true } = notice {
        let text = format!("computations run on the CPU: {why}");
        Python::attach(|py| {
            // A caller who makes warnings errors has the CPU all the same.
            let _ = warn(py, Some(&text));
        });
    }
}

/// An engine that is present on this machine.
#[pyclass(frozen, get_all, name = "Device", module = "ciphergram")]
pub(crate) struct PyDevice {
    /// The engine's name.
    name: &'static str,
    /// The processor or device that it runs on.
    description: String,
    /// Whether the device is a program.
    is_emulated: bool,
}

#[pymethods]
impl PyDevice {
    fn __repr__(&self) -> String {
        format!("<Device {}: {}>", self.name, self.description)
    }
}

/// Returns the engines that are present on this machine: the CPU's first.
#[pyfunction]
pub(crate) fn devices(py: Python<'_>) -> Result<Vec<PyDevice>> {
    run(py, || {
        let present = ciphergram_accel::engines().into_iter();
        let present = present.filter(|present| present.engine.name() != Choice::Reference.name());
        let device = present.map(|present| {
            let info = present.engine.info();
            let (description, is_emulated) = (info.description, info.is_emulated);
            PyDevice { name: present.engine.name(), description, is_emulated }
        });
        Ok(device.collect())
    })
}
