//! The tests of `ciphergram-accel`: a module for each of its own.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests, where a panic is the report")]

mod conformance;
mod cpu {
    mod allocations;
    mod extremes;
    mod montgomery;
}
mod dot;
mod gpu;
mod program {
    mod places;
}
mod random {
    mod rejections;
    mod streams;
}
mod reference;
mod toy_engine;
