//! The measurements of `ciphergram bench`. `commands/bench.rs` drives them; `benches/README.md`
//! documents the report.

mod kernels;
pub(crate) mod key;
pub(crate) mod levelled;
pub(crate) mod machine;
pub(crate) mod metered;
pub(crate) mod operation;
pub(crate) mod report;
pub(crate) mod row;
pub(crate) mod sampling;
mod spent;
pub(crate) mod sums;
pub(crate) mod table;
mod work;
