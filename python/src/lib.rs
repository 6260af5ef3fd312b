//! The native half of the Python package `ciphergram`: classes over the crates beneath, and nothing that another
//! front end would need again.

use pyo3::prelude::*;

/// The classes and functions that `ciphergram/__init__.py` makes public.
#[pymodule(gil_used = false)]
mod _native {
    use super::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
