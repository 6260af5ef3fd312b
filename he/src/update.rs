//! Updates to contributions, contributions to sums, sums to updates. Nothing here knows a scheme, or who is a
//! [`Member`](crate::Member).
//!
//! | | whole | in part |
//! |---|---|---|
//! | a client's tensors to a contribution | [`Sealer::write_to`] | [`Sealer::next_batch`], under a [`Ticket`] |
//! | contributions to their sum | [`aggregate`](fn@aggregate), one by one [`Summing`] | [`Accumulator`] |
//! | a sum to tensors | [`open_to`] a [`Destination`] | [`OpenedSum`], to exact integers |

mod aggregate;
mod open;
mod seal;
mod summing;
mod ticket;

pub use aggregate::Accumulator;
pub use open::{Destination, OpenedSum, open_to};
pub use seal::Sealer;
pub use summing::{Summing, aggregate};
pub use ticket::Ticket;
