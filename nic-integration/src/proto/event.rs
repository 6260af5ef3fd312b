//! Events of an endpoint, and the names they use.

use std::net::SocketAddr;

use super::ack::Refusal;
use super::secure::NodeId;

/// One process of one node. A restarted process is another peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Peer {
    /// The node that the process belongs to.
    pub node: NodeId,
    /// The process's number; 0 names whichever process runs.
    pub incarnation: u32,
}

impl Peer {
    /// Names whichever process of that node runs.
    #[must_use]
    pub fn of(node: NodeId) -> Self {
        Self { node, incarnation: 0 }
    }
}

/// A message that this endpoint sends; unique per peer sent to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageId(pub u64);

/// The reason to give up a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Nothing was acknowledged for the give-up span.
    Silence,
    /// Another process is there now.
    Restarted,
    /// The peer's node does not allow ours.
    Unlisted,
}

/// A sender of a first message that gets no session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stranger {
    /// It does not know our node key: it was given another one, or what it sent is noise.
    WrongKey,
    /// Its node is not one that we allow.
    Unlisted(NodeId),
}

/// An event of an endpoint. Events come in the order in which pipelines reported them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EndpointEvent {
    /// A message of ours is wholly committed in the target region.
    Completed {
        /// The peer that committed it.
        peer: Peer,
        /// The message.
        message: MessageId,
    },
    /// A message of ours was refused. Some of a WRITE's bytes may have landed, some of a SUM's chunks may count.
    Refused {
        /// The peer that refused it.
        peer: Peer,
        /// The message.
        message: MessageId,
        /// The byte of the message at which the refused datagram began.
        start: u32,
        /// The reason.
        refusal: Refusal,
    },
    /// Every unanswered message to that peer has failed.
    Unreachable {
        /// The peer given up.
        peer: Peer,
        /// The reason.
        cause: Cause,
    },
    /// A whole message arrived in an inbox.
    Received {
        /// The sender.
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
        /// The sender.
        from: Peer,
        /// The region.
        rkey: u32,
        /// First byte written.
        offset: u64,
        /// Number of bytes.
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
    /// All chunks of a contributor are staged, which is to be admitted or not: see
    /// [`SumRegion::admit`](super::SumRegion::admit).
    Staged {
        /// The sum region.
        rkey: u32,
        /// The contributor.
        contributor: u16,
    },
    /// Somebody sent a first message and got no session. Reported now and then only.
    Stranger {
        /// The address that it came from; nobody vouches for that.
        from: SocketAddr,
        /// What is wrong with it.
        stranger: Stranger,
    },
}
