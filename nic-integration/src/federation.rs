//! Whole rounds of encrypted updates over a wire: where the schemes meet the protocol.
//!
//! A [`FederationServer`] sums what clients contribute and holds public material only;
//! a [`FederationClient`] quantises, encrypts, spools and pushes chunk by chunk while earlier
//! chunks are already on their way, and opens the sum that comes back; a [`FederationOpener`] answers what it is asked
//! to open sums.

mod application;
mod candidate;
pub mod client;
pub mod nodes;
mod opener;
mod participation;
mod pipelines;
mod seal;
pub mod server;
pub mod spool;
mod transport;

use std::{net::SocketAddr, num::NonZeroU32, path::PathBuf, time::Duration};

pub use application::{RangesProgress, SumApplication};
pub use candidate::{ServerCandidates, resolve};
pub use client::{FederationClient, SocketClient, SocketClientConfig, finish_from_spool};
pub use nodes::Allowed;
pub use opener::{FederationOpener, OpenerEvent, SocketOpener};
pub use participation::{Participation, ParticipationPhase, RoundResult};
pub use server::{FederationServer, Observation, Progress, ServerCommand, ServerConfig};
pub use transport::{PathConfig, Transport, Transports};

use crate::{
    NicError,
    proto::{Config, DatagramSizes, Identity, NodeId},
    wire::tcp::dial::DialError,
};
use ciphergram_he::random;

/// A sum of fewer contributors comes close to telling each one's update.
pub const FEW: u16 = 3;

/// The shortest time from one progress report to the next: with the longest sleep beside it, an owner is asked often
/// enough whether to stop.
const PROGRESS_SPAN: Duration = Duration::from_millis(50);
/// The longest time for which a client waits until its aggregator knows that it leaves, and an aggregator, once all is
/// delivered, for those who have not said so.
pub const FAREWELL: Duration = Duration::from_millis(100);

/// A reason why a round failed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The caller's data, a key or a sum.
    #[error(transparent)]
    Scheme(#[from] ciphergram_he::Error),
    /// The protocol or the socket.
    #[error(transparent)]
    Nic(#[from] NicError),
    /// More clients declared than the job has.
    #[error("{declared} clients, but the job has {admitted}")]
    TooManyClients {
        /// Clients declared.
        declared: u16,
        /// Clients of the job.
        admitted: u16,
    },
    /// The owner of this client wants no more of the round. What was sealed is in the spool, if there is one.
    #[error("stopped")]
    Stopped,
    /// The aggregator refused this client, in its words.
    #[error("refused by {server}: {reason}")]
    Refused {
        /// The aggregator.
        server: SocketAddr,
        /// Its words.
        reason: String,
    },
    /// The aggregator does not answer, or no longer.
    #[error(
        "no {}answer from {server} in {} s{}{}", if *has_answered { "further " } else { "" }, waited.as_secs_f64(),
        if *is_closed { ": nothing listens there" } else { "" },
        dial.map_or_else(String::new, |why| format!("; {why}"))
    )]
    Unreachable {
        /// Its address.
        server: SocketAddr,
        /// The time for which it was tried.
        waited: Duration,
        /// Whether it answered before.
        has_answered: bool,
        /// Whether the host says that nothing listens at the port.
        is_closed: bool,
        /// Why there was no connection by TCP, if one was tried.
        dial: Option<DialError>,
    },
    /// The aggregator does not list this client's node.
    #[error("{server} does not list this node, {node}")]
    Unlisted {
        /// The aggregator's address.
        server: SocketAddr,
        /// This client's node.
        node: NodeId,
    },
    /// Chunks of this client were refused for a reason that honest parties do not meet.
    #[error("{server} refused chunk {chunk}: {reason}")]
    Rejected {
        /// The aggregator.
        server: SocketAddr,
        /// The first chunk refused.
        chunk: u32,
        /// Why.
        reason: String,
    },
    /// Some sums never left the aggregator, so there is no mean of all values.
    #[error("round {round}: {withheld} of {chunks} chunks were withheld: {reason}")]
    Withheld {
        /// The round.
        round: u32,
        /// The number of chunks without a sum.
        withheld: u32,
        /// The number of all chunks.
        chunks: u32,
        /// The reason for the first.
        reason: String,
    },
    /// The round that is open is of other terms than those that chunks are sealed under.
    #[error(
        "the round has another number or other ranges than those that this contribution is sealed under, and it \
         can be in no other{}", spool.as_ref().map_or_else(String::new, |spool| format!(
            ": delete {} to give it up", spool.display()
        ))
    )]
    TermsChanged {
        /// The spool that holds it, if one does.
        spool: Option<PathBuf>,
    },
    /// The aggregator's terms or sums make no sense.
    #[error("{server} opened a round that makes no sense: {what}")]
    BadRound {
        /// The aggregator.
        server: SocketAddr,
        /// The part that makes no sense.
        what: &'static str,
    },
    /// A file of node keys that cannot be used.
    #[error("{}: {why}", path.display())]
    NodeFile {
        /// The file.
        path: PathBuf,
        /// The fault.
        why: String,
    },
    /// A spool file that is not of this contribution.
    #[error("{}: {why}", path.display())]
    Spool {
        /// The file.
        path: PathBuf,
        /// The fault, and its remedy.
        why: String,
    },
}

/// Returns an endpoint configuration with a fresh random incarnation and seed, for datagrams of these sizes.
fn fresh_endpoint(identity: Identity, sizes: DatagramSizes) -> Result<Config, Error> {
    let draw = u32::from_le_bytes(*random::bytes::<4>()?);
    // Zero means "unknown" on the wire; its chance moves to one.
    let incarnation = NonZeroU32::new(draw).unwrap_or(NonZeroU32::MIN);
    let config = Config::new(identity, incarnation, *random::bytes::<32>()?);
    // A system that fails later leaves what was drawn at the start.
    let entropy = || random::bytes().map_or([0; 32], |bytes| *bytes);
    Ok(Config { sizes, entropy, ..config })
}
