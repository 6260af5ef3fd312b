//! The transport on one machine: two endpoints on loopback, a thread each.

mod account;
mod libfabric;
mod pair;
#[cfg(feature = "peers")]
mod quic;
mod rates;
mod spent;
mod sums;
mod trips;

use std::time::Duration;

pub use account::{Column, account};
pub use libfabric::{Libfabric, Wait};
pub use pair::Setting;
#[cfg(feature = "peers")]
pub use quic::{MAX_DATAGRAM_BYTES, stream};
pub use rates::{ceiling, writes};
pub use spent::{Flow, Spent};
pub use sums::{additions, multiply_limit, sums, sums_insecure_1024};
pub use trips::{Trips, bare_trips, trips};

pub use crate::Failure;

/// Left out of what is measured: handshake, growth of the window, first touch of memory.
const WARM_UP: Duration = Duration::from_millis(300);
