//! The native half of the Python package `ciphergram`: classes over the crates beneath, and nothing that another
//! front end would need again.

mod arrays;
mod buffer;
mod ckks;
mod client;
mod contribution;
mod engines;
mod errors;
mod exchange;
mod files;
mod hints;
mod holder;
mod ints;
mod job;
mod keys;
mod opened;
mod openers;
mod paths;
mod pool;
mod private_ranges;
mod ranges;
mod server;
mod sum;
mod summing;

use pyo3::prelude::*;

/// The classes and functions that `ciphergram/__init__.py` makes public.
#[pymodule(gil_used = false)]
mod _native {
    use super::*;

    #[pymodule_export]
    use super::{
        client::PyClient,
        contribution::PyContribution,
        engines::{PyDevice, devices},
        exchange::{PyAnnouncement, PyRoundTerms, join_round},
        files::{PyKeys, keygen, load, load_keys, loads, save},
        ints::PyCiphertexts,
        job::PyJob,
        keys::{PyClientKey, PyMember, PyPublicKey, PySecretKey},
        openers::keygen_members,
        pool::set_threads,
        private_ranges::{
            PyAgreedRanges, PyRangesKey, PyRangesProposal, measure, merge_ranges, open_ranges,
        },
        ranges::PyRanges,
        server::PyServer,
        sum::PySum,
        summing::{PySumming, aggregate},
    };

    /// What `ciphergram/ckks.py` makes public.
    #[pymodule(module = "ciphergram._native", gil_used = false)]
    mod ckks {
        #[pymodule_export]
        use crate::ckks::{
            PyCkksKeys, PyCkksPublicKey, PyCkksSecretKey, PyEvaluationKeys, PyVector, keygen, load,
            load_keys, loads,
        };
    }

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        // Modules within one are found there, and nowhere else unless they are listed.
        let inner = module.getattr("ckks")?;
        let listed = module.py().import("sys")?.getattr("modules")?;
        listed.set_item("ciphergram._native.ckks", inner)?;
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
