//! The NIC path of Ciphergram: reliable datagrams, server to server, that WRITE into registered
//! memory or SUM ciphertexts into place as they arrive.
//!
//! # Layers
//!
//! | module | is | knows |
//! |---|---|---|
//! | [`proto`] | the protocol as a pure state machine: datagrams, regions, reliability, the exactly-once sum | time as a value; no clock, socket, thread or unseeded randomness |
//! | [`round`] | rounds over it: join, open, contribute, close, deliver; equally pure | no scheme: hello, round terms and chunks are bytes for an [`Application`](round::Application) and a [`ChunkAdder`](proto::ChunkAdder) |
//! | [`faults`] | the faults of a network, and one seeded decision of a datagram's fate, for the next three | how long a header is |
//! | [`sim`] | a network on virtual time with seeded faults | any [`Node`] |
//! | [`wire`] | UDP, TCP, and captures of datagrams in a file | bytes and addresses |
//! | [`relay`] | a switch between real sockets, with faults | how long a header is |
//! | [`driver`] | the loop that joins a node, a wire and the clock | real time |
//! | [`federation`] | whole rounds of encrypted updates over any wire: the aggregator's application, a client's sealing and its spool | the schemes of `ciphergram-he`, files, threads, a clock |
//!
//! Each may use those above it in the table, never one below.
//!
//! # Conventions
//!
//! - `nic-integration/PROTOCOL.md` is the specification; comments cite its clauses.
//! - State machines are driven by the five verbs of [`Node`] and their own `poll_event`.
//! - A peer's bytes never panic, never end a round, and are answered by a
//!   [`Refusal`] or silence; [`NicError`] is for the caller.
//! - Every queue and table has a named bound. Iteration is in key order, so that one seed
//!   reproduces a whole world.
//!
//! # Non-goals
//!
//! No byte streams, no ordering: a connection by TCP is one more path of datagrams. No secret key is ever held on the
//! summing side.

pub mod driver;
mod error;
pub mod faults;
pub mod federation;
mod node;
pub mod proto;
pub mod relay;
pub mod round;
pub mod sim;
mod threads;
pub mod wire;

pub use bytes::Bytes;
pub use driver::Driver;
pub use error::NicError;
pub use node::Node;
pub use proto::Refusal;
pub use threads::PipelineThreads;
