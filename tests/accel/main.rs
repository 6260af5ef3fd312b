//! The tests of `ciphergram-accel`; those of one of its modules are in a module of that name.

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
