//! Updates to contributions, contributions to sums, sums to updates: for whole files by three functions,
//! chunk by chunk by the types beneath them. Nothing here knows a scheme.
//!
//! | | whole | chunk by chunk |
//! |---|---|---|
//! | a client's tensors to a contribution | [`encrypt`], to a file [`encrypt_to`] | [`Sealer`], under a [`Ticket`] |
//! | contributions to their sum | [`aggregate`](fn@aggregate), one by one [`Summing`] | [`Accumulator`] |
//! | a sum to tensors | [`decrypt`], [`decrypt_into`], to a file [`decrypt_to`] | [`OpenedSum`], to exact integers |

mod aggregate;
mod open;
mod seal;
mod summing;
mod ticket;

pub use aggregate::Accumulator;
pub use open::{OpenedSum, decrypt, decrypt_into, decrypt_to};
pub use seal::{Encrypted, Leaves, Sealer, Written, encrypt, encrypt_to};
pub use summing::{Summing, aggregate};
pub use ticket::Ticket;
