//! The crate's one error type, sorted by culprit.

use std::{io, net::SocketAddr};

use thiserror::Error;

use crate::proto::{MAX_STAGED_BYTES, NodeId, Peer};
use crate::wire::tcp::dial::DialError;

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
    /// Shards of chunks that do not cover a sum, one after the other.
    #[error("the shards of chunks to sum do not follow one another over all of them")]
    Shards,
    /// Whole contributions that take more bytes than may wait for the rest of their chunks.
    #[error(
        "the contributions of this round take {bytes} bytes, and {MAX_STAGED_BYTES} may wait to be whole"
    )]
    Staged {
        /// The bytes of all contributions together.
        bytes: u64,
    },
    /// Fewer or more than there may be of something.
    #[error("{found} {what} are not possible: from {least} to {most}")]
    OutOfRange {
        /// The thing that is counted.
        what: &'static str,
        /// The number asked for.
        found: usize,
        /// The fewest that are allowed.
        least: usize,
        /// The most that are allowed.
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
    #[error("not a node key: 43 characters of base64 are expected")]
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
    /// A version of the protocol, or an operation, that this version does not know.
    #[error("{what} {code} is not known")]
    Unknown {
        /// The kind of code.
        what: &'static str,
        /// The code found.
        code: u8,
    },
    /// A tag that is not its sender's, or of no session of ours.
    #[error("the tag does not match")]
    Tag,
    /// A message of a handshake that does not open.
    #[error("the handshake failed")]
    Handshake,
    /// A header, round message or acknowledgement that ends too soon, runs on, or holds what it must not.
    #[error("malformed {what} at byte {at}")]
    Malformed {
        /// The part of a datagram.
        what: &'static str,
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
    /// There is no connection by TCP.
    #[error(transparent)]
    Dial(#[from] DialError),
    /// The wire failed for good.
    #[error("the wire failed: {kind}")]
    Wire {
        /// The operating system's error.
        kind: io::ErrorKind,
    },
}

impl NicError {
    /// Makes the error of so many pipelines, of which there may be `most`.
    pub(crate) fn pipelines(found: u16, most: u16) -> Self {
        let (found, most) = (found.into(), most.into());
        Self::OutOfRange { what: "pipelines", found, least: 1, most }
    }

    /// Makes the error of so many sockets, of which there are `most`.
    pub(crate) fn paths(found: usize, most: usize) -> Self {
        Self::OutOfRange { what: "paths times flows", found, least: 1, most }
    }
}

impl From<io::Error> for NicError {
    fn from(error: io::Error) -> Self {
        Self::Wire { kind: error.kind() }
    }
}
