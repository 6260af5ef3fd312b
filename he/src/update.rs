//! Updates to contributions, contributions to sums, sums to updates. Nothing here knows a scheme, or who is a
//! [`Member`](crate::Member).
//!
//! | | whole | in part |
//! |---|---|---|
//! | a client's tensors to a contribution | [`Sealer::write_to`] | [`Sealer::next_batch`], under a [`SealPermit`] |
//! | contributions to their sum | [`aggregate`](fn@aggregate), one by one [`Summing`] | [`Accumulator`] |
//! | a sum to tensors | [`open_to`] a [`Destination`] | [`OpenedSum`], to exact integers |

mod aggregate;
mod open;
mod permit;
mod seal;
mod summing;

pub use aggregate::Accumulator;
pub use open::{Destination, OpenedSum, SumOpener, open_to};
pub use permit::SealPermit;
pub use seal::Sealer;
pub use summing::{Summing, aggregate};
