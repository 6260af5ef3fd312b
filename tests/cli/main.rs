//! The tests of the program `ciphergram`, which runs as users run it: those of one command in a module of its name.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests, where a panic is the report")]

#[cfg(unix)]
mod bad_input;
mod bench;
mod ckks_jobs;
mod demo;
mod dp;
mod errors {
    mod files;
    mod words;
}
mod exact;
mod files;
mod gpu;
mod inspect;
#[cfg(unix)]
mod install;
mod malicious;
mod metrics;
mod models;
#[cfg(target_os = "linux")]
mod namespaces;
mod newcomers;
#[cfg(unix)]
mod outputs;
#[cfg(feature = "tfhe")]
mod private_ranges;
mod progress;
mod readme;
mod relay;
mod rotation;
mod rounds;
#[cfg(unix)]
mod serve;
mod status;
mod support {
    pub(crate) mod craft;
    pub(crate) mod http;
    #[cfg(target_os = "linux")]
    pub(crate) mod namespaces;
    pub(crate) mod place;
    pub(crate) mod tensors;
}
mod threshold;
mod versions;
#[cfg(unix)]
mod wholeness;
