//! The native half of the Python package `ciphergram`: classes over the crates beneath, and nothing that another
//! front end would need again.

mod arrays;
mod buffer;
mod client;
mod contribution;
mod engines;
mod errors;
mod exchange;
mod files;
mod ints;
mod job;
mod keys;
mod opened;
mod pool;
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
        client::Client,
        contribution::Contribution,
        engines::{Device, devices},
        exchange::{Announcement, RoundTerms, join_round},
        files::{Keys, keygen, load, load_keys, loads, save},
        ints::EncryptedArray,
        job::Job,
        keys::{ClientKey, PublicKey, SecretKey},
        pool::set_threads,
        ranges::{Ranges, measure, merge_ranges},
        server::Server,
        sum::Sum,
        summing::{Summing, aggregate},
    };

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
