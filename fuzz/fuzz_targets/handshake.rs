//! Handshakes with whatever a network, or a stranger who knows the responder's key, makes of them.

#![no_main]

#[path = "../bodies/handshake.rs"]
mod handshake;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| handshake::run(bytes));
