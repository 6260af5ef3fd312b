//! The protocol as a pure state machine: no clock, no socket, no thread, no unseeded randomness.
//!
//! Bytes and times go in; bytes, times and events come out. One seed therefore reproduces a whole
//! world (see `sim`). Pipelines may be driven on threads of their own; driven on one thread, they
//! are reproducible too. The specification is `PROTOCOL.md`; comments cite its clauses.

pub mod accumulator;
pub mod ack;
mod bits;
pub mod channel;
pub mod datagram;
pub mod endpoint;
pub mod event;
pub mod link;
mod lock;
mod numbered;
mod outbox;
pub mod path;
pub mod path_size;
pub mod pipeline;
pub mod receiver;
pub mod recovery;
mod region;
pub mod secure;
pub mod sender;
mod shared;
pub mod stats;
pub mod sum;
pub mod time;

pub use accumulator::{ChunkAdder, ChunkLayout, Shard};
pub use ack::Refusal;
pub use datagram::{DatagramHeader, Opcode};
pub use endpoint::{Config, Endpoint, Usage};
pub use event::{Cause, EndpointEvent, MessageId, Peer, Stranger};
pub use outbox::{MESSAGE_WINDOW, SumMessage};
pub use path::{Origin, Route};
pub use path_size::DatagramSizes;
pub use pipeline::Pipeline;
pub use secure::{Identity, NodeId, Suite};
pub use shared::MAX_PIPELINES;
pub use stats::{Stats, Traffic};
pub use sum::{Counts, MAX_STAGED_BYTES, SumConfig, SumRegion};
pub use time::Time;
