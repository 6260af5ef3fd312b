//! The configuration of an endpoint, and the bounds of all endpoints.

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::time::Duration;

use crate::proto::path_size::DatagramSizes;
use crate::proto::secure::{Identity, NodeId, Suite};

/// Silence after which a peer with unanswered messages is given up.
pub const DEFAULT_GIVE_UP: Duration = Duration::from_secs(10);
/// Inbox bytes held for all peers together, messages not yet polled included.
pub const DEFAULT_HELD_BYTES: usize = 64 << 20;
/// Processes that may be remembered.
pub const MAX_PEERS: usize = 4096;
/// Of those: processes that have sent a HELLO and nothing since.
pub const MAX_UNCONFIRMED: usize = 256;
/// Datagrams sent by one path before the next is chosen, by default.
pub const DEFAULT_SPRAY: u32 = 16;
/// Datagrams of handshakes that may wait to be sent.
pub const MAX_HANDSHAKE_DATAGRAMS: usize = 256;
/// A peer idle for this long is forgotten.
pub const IDLE_SPAN: Duration = Duration::from_secs(60);
/// A process that has sent a HELLO and nothing since is forgotten after this span.
pub const UNCONFIRMED_SPAN: Duration = Duration::from_secs(5);
/// The longest message; an inbox may set less.
pub const MAX_MESSAGE_BYTES: usize = 1 << 30;

/// The configuration of an endpoint.
#[derive(Clone)]
pub struct Config {
    /// The node's key.
    pub identity: Identity,
    /// This process's number: random, fresh at every start.
    pub incarnation: NonZeroU32,
    /// Source of indices and cookies, and of handshake keys together with `entropy`: from the operating
    /// system, fresh at every start.
    pub seed: [u8; 32],
    /// Returns 32 bytes of the system's entropy for each handshake, so that a copy of a running process
    /// shares no key with it. Zeros in simulations.
    pub entropy: fn() -> [u8; 32],
    /// The nodes that may open a link to us. Those we contact need not be among them.
    pub allow: BTreeSet<NodeId>,
    /// The cipher towards those we contact; those who contact us choose theirs.
    pub suite: Suite,
    /// The sizes of datagrams sent.
    pub sizes: DatagramSizes,
    /// Silence after which a peer with unanswered messages is given up.
    pub give_up: Duration,
    /// Inbox bytes held for all peers together; one peer may hold a quarter.
    pub held_bytes: usize,
    /// Paths to each node that we contact: sockets of ours that a flow's datagrams are sprayed
    /// over. Those who contact us choose their own.
    pub paths: u16,
    /// Flows that messages to a node that we contact are dealt to, each with paths of its own: with
    /// one path each, a message stays on one path.
    pub flows: u16,
    /// Datagrams sent by one path before the next is chosen: 1 sprays by the datagram; a wire that
    /// sends bursts does better with a burst.
    pub spray: u32,
    /// Pipelines of this process, each with sockets, sessions and buffers of its own.
    pub pipelines: u16,
    /// The ports at which pipelines from the second on listen, which those who contact us learn.
    /// Without them nobody may contact us.
    pub ports: Vec<u16>,
}

impl Config {
    /// Makes the default configuration, of a process that nobody may contact.
    #[must_use]
    pub fn new(identity: Identity, incarnation: NonZeroU32, seed: [u8; 32]) -> Self {
        Self {
            identity,
            incarnation,
            seed,
            entropy: || [0; 32],
            allow: BTreeSet::new(),
            suite: Suite::default(),
            sizes: DatagramSizes::DEFAULT,
            give_up: DEFAULT_GIVE_UP,
            held_bytes: DEFAULT_HELD_BYTES,
            paths: 1,
            flows: 1,
            spray: DEFAULT_SPRAY,
            pipelines: 1,
            ports: vec![],
        }
    }

    /// Returns the number of sockets that a pipeline's wire must have.
    #[must_use]
    pub fn sockets(&self) -> u16 {
        self.paths.saturating_mul(self.flows)
    }
}
