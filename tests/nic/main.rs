//! The tests of `ciphergram-nic`; those of one of its modules are in a module of that name.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests, where a panic is the report")]

mod federation;
mod fuzzed;
mod memory;
mod proto {
    mod endpoint;
    mod line;
    mod path;
    mod pipeline;
}
mod protocol;
mod round {
    mod gathering;
}
mod sim;
mod support {
    pub(crate) mod counting;
    pub(crate) mod federation;
    pub(crate) mod ledger;
    pub(crate) mod multipath;
    pub(crate) mod world;
}
mod toy_wire;
mod wire {
    mod socket;
    mod tcp;
}
mod worlds;
