//! The crate's one error type, sorted by culprit.

use std::{io, net::SocketAddr};

use thiserror::Error;

use crate::proto::{MAX_STAGED_BYTES, NodeId, Peer};

/// A failure, by the caller, a peer or the system. A peer's refusal is no error but an answer: see
/// [`Refusal`](crate::Refusal).
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum NicError {
    // The caller.
    /// The peer already has as many unanswered messages as a peer may have; try again later.
    #[error("node {} has no room for another message", peer.node)]
    WindowFull {
        /// The peer whose queue is full.
        peer: Peer,
    },
    /// The endpoint already knows as many peers as it may.
    #[error("no room for another peer")]
    TooManyPeers,
    /// A message longer than a message may be.
    #[error("a message of {bytes} bytes is longer than {limit}")]
    MessageTooLong {
        /// The length asked for.
        bytes: usize,
        /// The most that is allowed.
        limit: usize,
    },
    /// A region is already registered under that rkey.
    #[error("rkey {rkey:#010x} is already registered")]
    RkeyInUse {
        /// The rkey asked for.
        rkey: u32,
    },
    /// No region of the needed kind is registered under that rkey.
    #[error("no such region: rkey {rkey:#010x}")]
    NoSuchRegion {
        /// The rkey asked for.
        rkey: u32,
    },
    /// A datagram size that cannot hold a header, a tag and a useful payload, or exceeds UDP's.
    #[error("datagrams of {bytes} bytes are not possible")]
    DatagramSize {
        /// The size asked for.
        bytes: usize,
    },
    /// Shards of chunks that do not cover a sum, one after the other, group together.
    #[error("the shards of chunks to sum do not follow one another over all of them")]
    Shards,
    /// Whole contributions that take more bytes than may wait for the rest of their chunks.
    #[error(
        "the contributions of this round take {bytes} bytes, and {MAX_STAGED_BYTES} may wait to be \
         whole: serve it by chunk (--by-chunk), or to fewer clients"
    )]
    Staged {
        /// The bytes of all contributions together.
        bytes: u64,
    },
    /// No pipeline, or more than there may be.
    #[error("{pipelines} pipelines are not possible: from 1 to {most}")]
    Pipelines {
        /// Pipelines asked for.
        pipelines: u16,
        /// The most that is allowed.
        most: u16,
    },
    /// A number of ports that is not one for each pipeline from the second on.
    #[error("{pipelines} pipelines and {ports} further ports: each from the second on has one")]
    Ports {
        /// Pipelines asked for.
        pipelines: u16,
        /// Ports, without the first pipeline's.
        ports: usize,
    },
    /// No path to a peer, or more than there may be.
    #[error("{sockets} paths are not possible: from 1 to {most}, paths times flows")]
    Paths {
        /// Sockets asked for: paths times flows.
        sockets: usize,
        /// The most that is allowed.
        most: usize,
    },
    /// Rounds need 1 ≤ minimum ≤ clients ≤ 65,535.
    #[error("a round of {clients} clients cannot need {min_clients}")]
    Quorum {
        /// The number of clients declared.
        clients: u16,
        /// The fewest that may be summed.
        min_clients: u16,
    },
    /// No session with that process, and no address of its node.
    #[error("node {node} is not known")]
    NoSuchPeer {
        /// The node.
        node: NodeId,
    },
    /// A text that is no node key.
    #[error(
        "not a node key: 43 characters of base64 are expected, as `ciphergram identity` writes them"
    )]
    NodeKey,
    /// Chunks were pushed, or a layout accepted, while no round is open for it.
    #[error("no round is open")]
    NoOpenRound,

    // The peer.
    /// Bytes too few or too many to be a datagram.
    #[error("{bytes} bytes are no datagram")]
    DatagramLength {
        /// The number of bytes.
        bytes: usize,
    },
    /// The first two bytes are not "CG".
    #[error("not a ciphergram")]
    Magic,
    /// Another version of the protocol.
    #[error("protocol version {version} is not spoken here")]
    Version {
        /// The version found.
        version: u8,
    },
    /// A tag that is not its sender's, or of no session of ours.
    #[error("the tag does not match")]
    Tag,
    /// A message of a handshake that does not open.
    #[error("the handshake failed")]
    Handshake,
    /// An operation this version does not know.
    #[error("opcode {code} is not known")]
    Opcode {
        /// The opcode found.
        code: u8,
    },
    /// A field that must be zero is not, or must not be zero and is.
    #[error("header field at byte {at} is not allowed")]
    HeaderField {
        /// The field's first byte.
        at: usize,
    },
    /// A round message or acknowledgement that ends too soon, runs on, or holds an unknown code.
    #[error("malformed message at byte {at}")]
    Message {
        /// The offset of the first byte that is wrong.
        at: usize,
    },

    // The system.
    /// The cipher refused to seal.
    #[error("a datagram could not be sealed")]
    Seal,
    /// An address that no socket can be bound to.
    #[error("{address}: {kind}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// The operating system's error.
        kind: io::ErrorKind,
    },
    /// The wire failed for good.
    #[error("the wire failed: {kind}")]
    Wire {
        /// The operating system's error.
        kind: io::ErrorKind,
    },
}

impl From<io::Error> for NicError {
    fn from(error: io::Error) -> Self {
        Self::Wire { kind: error.kind() }
    }
}
