//! The tests of `ciphergram-he`; those of one of its modules are in a module of that name.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests, where a panic is the report")]

mod ckks;
mod dp;
mod error;
mod formats {
    mod frame;
    mod sum;
}
mod job;
mod keys {
    mod client;
    mod secret;
}
mod ledger;
mod private_ranges;
mod schemes {
    mod paillier;
}
mod support {
    pub(crate) mod frames;
    pub(crate) mod liar;
    pub(crate) mod openers;
    pub(crate) mod paillier;
    pub(crate) mod sums;
}
mod threshold;
mod update;
mod vectors {
    mod file;
}
mod worlds;
