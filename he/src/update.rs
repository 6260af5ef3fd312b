//! Updates to contributions, contributions to sums, sums to updates: for whole files by three functions,
//! chunk by chunk by the types beneath them. Nothing here knows a scheme.
//!
//! | | whole | chunk by chunk |
//! |---|---|---|
//! | a client's tensors to a contribution | [`encrypt`] | [`Sealer`], under a [`Ticket`] |
//! | contributions to their sum | [`aggregate`](fn@aggregate) | [`Accumulator`] |
//! | a sum to tensors | [`decrypt`] | [`OpenedSum`], to exact integers |

mod aggregate;
mod open;
mod seal;
mod ticket;

pub use aggregate::{Accumulator, aggregate};
pub use open::{OpenedSum, decrypt};
pub use seal::{Encrypted, Sealer, encrypt};
pub use ticket::Ticket;
