//! Splits streams into datagrams.

#![no_main]

#[path = "../bodies/framing.rs"]
mod framing;

libfuzzer_sys::fuzz_target!(|data: &[u8]| framing::run(data));
