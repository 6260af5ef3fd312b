//! What an endpoint tells its owner, and the names it uses for it.

use super::ack::Refusal;
use super::secure::NodeId;

/// One process of one node. A restarted process is another peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Peer {
    /// Whose process it is.
    pub node: NodeId,
    /// Which process it is; 0 for whichever runs.
    pub incarnation: u32,
}

impl Peer {
    /// Whichever process of that node runs.
    #[must_use]
    pub fn of(node: NodeId) -> Self {
        Self { node, incarnation: 0 }
    }
}

/// A message that this endpoint sends; unique per peer sent to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageId(pub u64);

/// Why a peer is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Nothing was acknowledged for the give-up span.
    Silence,
    /// Another process is there now.
    Restarted,
}

/// Something that happened. In the order in which pipelines told of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A message of ours is committed in the target region, all of it.
    Completed {
        /// Who committed it.
        peer: Peer,
        /// The message.
        message: MessageId,
    },
    /// A message of ours was refused. Some of a WRITE's bytes may have landed.
    Refused {
        /// Who refused it.
        peer: Peer,
        /// The message.
        message: MessageId,
        /// Why.
        refusal: Refusal,
    },
    /// Every unanswered message to that peer has failed.
    Unreachable {
        /// Whom we gave up.
        peer: Peer,
        /// Why.
        cause: Cause,
    },
    /// A whole message arrived in an inbox.
    Received {
        /// Who sent it.
        from: Peer,
        /// The inbox.
        rkey: u32,
        /// The immediate, if it was sent with one.
        immediate: Option<u32>,
        /// The message.
        data: Vec<u8>,
    },
    /// A whole message was committed in a memory region.
    Written {
        /// Who wrote it.
        from: Peer,
        /// The region.
        rkey: u32,
        /// First byte written.
        offset: u64,
        /// How many bytes.
        bytes: u32,
        /// The immediate, if it was sent with one.
        immediate: Option<u32>,
    },
    /// A chunk reached its target: it is closed and can be finished.
    ChunkClosed {
        /// The sum region.
        rkey: u32,
        /// The chunk.
        chunk: u32,
    },
    /// A contributor sent two different contributions to one chunk. The first one counts.
    Equivocation {
        /// The sum region.
        rkey: u32,
        /// Whose number it is.
        contributor: u16,
        /// The chunk.
        chunk: u32,
    },
}
