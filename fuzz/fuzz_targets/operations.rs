//! Two endpoints over a link that the bytes rule, beside a model of what may be true.

#![no_main]

#[path = "../bodies/operations.rs"]
mod operations;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| operations::run(bytes));
