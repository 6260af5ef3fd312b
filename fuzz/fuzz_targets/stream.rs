//! Splits streams into datagrams.

#![no_main]

#[path = "../bodies/stream.rs"]
mod stream;

libfuzzer_sys::fuzz_target!(|data: &[u8]| stream::run(data));
