//! A client's part in a round: who it is, its update, and the result.

use std::{path::Path, time::Duration};

use ciphergram_he::{
    Member, OpenedSum, Sum, Update,
    threshold::{OpenAnswer, OpenerKey},
};
use zeroize::Zeroizing;

use super::{spool::Spool, transport::Transport};
use crate::{proto::Stats, round::RoundOpening};

/// A client's contribution to a round.
#[derive(Clone)]
pub struct Participation<'a> {
    /// The client.
    pub member: Member<'a>,
    /// The tensors.
    pub update: &'a Update,
    /// The weight, from 1.
    pub weight: u64,
    /// The file that keeps sealed chunks until the sum is back, and then that; none for a client that
    /// need not survive.
    pub spool: Option<&'a Path>,
    /// The time for which an aggregator that does not answer is tried. One that has answered before is
    /// tried for at least [`DEFAULT_GIVE_UP`](crate::proto::endpoint::DEFAULT_GIVE_UP).
    pub patience: Duration,
    /// The result holds a copy of the client's own integers, which are as secret as the update, and those of the
    /// sum, if the client has the secret key. Else the sum is to be [opened](RoundResult::open_to).
    pub keep_fields: bool,
    /// The opener that this client is as well, if it is one: it answers while it takes part.
    pub opener: Option<&'a OpenerKey>,
}

/// A client's result of a round.
pub struct RoundResult {
    /// The round as it was opened; none if an earlier run took part in it, and the spool saved its sum.
    pub opening: Option<RoundOpening>,
    /// The sum as it came back, and its contributors.
    pub sum: Sum,
    /// The bytes of this client's shares for openers; none without such, or if an earlier run took part.
    pub shares_bytes: usize,
    /// The answers of openers that open it, in a job that has such.
    pub answers: Vec<OpenAnswer>,
    /// The sum in clear, if it is [kept](Participation::keep_fields).
    pub opened: Option<OpenedSum>,
    /// This client's own integers, if it [keeps](Participation::keep_fields) them and took part itself.
    pub fields: Option<Zeroizing<Vec<u32>>>,
    /// Values of this client out of range, for each tensor.
    pub clipped: Vec<usize>,
    /// Time spent on quantising and encrypting.
    pub encrypting: Duration,
    /// Time from the opening to the last sum, less encrypting.
    pub exchanging: Duration,
    /// Time spent on opening the sum, or checking it.
    pub decrypting: Duration,
    /// The endpoint's counters at the end of the round.
    pub stats: Stats,
    /// The transport of its datagrams, where a [`SocketClient`](crate::federation::SocketClient) chose it.
    pub transport: Option<Transport>,
    /// The spool, which holds the sum still, if there is one: to be [removed](Spool::remove) as soon as the
    /// result is where it should be. Until then the same contribution, made again, has the same result.
    pub spool: Option<Spool>,
}

/// The part of a round that a client is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParticipationPhase {
    /// The aggregator has not answered yet.
    Contacting {
        /// The time for which this client has looked for it.
        waited: Duration,
    },
    /// The aggregator has this client's join, and waits for other clients.
    Waiting,
    /// The round is open: chunks are sealed, sent, and their sums come back, all at the same time.
    Exchanging {
        /// Clients of the round.
        contributors: usize,
        /// Chunks of a contribution, and so of the sum.
        chunks: u32,
        /// Chunks sealed.
        sealed: u32,
        /// Chunks handed to the transport.
        sent: u32,
        /// Chunks of which the sum is back.
        back: u32,
    },
    /// All sums are back; they are opened, or checked as far as this client can.
    Opening {
        /// Chunks of the sum.
        chunks: u32,
        /// Chunks sealed: fewer if the round closed before.
        sealed: u32,
    },
}
