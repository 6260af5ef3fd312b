//! Rounds: joining, opening, contributing, closing, delivering (PROTOCOL §7). Pure, like
//! [`proto`](crate::proto), and ignorant of schemes: hello and terms are bytes that an
//! [`Application`] and the contributor's owner understand.

pub mod aggregator;
pub mod client;
mod lines;
pub mod message;
mod open;
mod pending;
mod rkey;
mod shortage;

use std::collections::{BTreeMap, BTreeSet};

use crate::proto::{ChunkLayout, Shard};

pub use aggregator::{Aggregator, AggregatorConfig, AggregatorEvent};
pub use client::{RoundClient, RoundClientConfig, RoundClientEvent, RoundOpening, SumLayout, Sums};
pub use message::{ContributionId, JOIN_INBOX, Resume, RoundEnd};
pub use open::{RoundProgress, RoundSummary};
pub use shortage::Shortage;

/// The scheme's side of an aggregator.
pub trait Application: Send {
    /// Checks that a client may join with this contribution and hello, whoever else joins: whether
    /// it fits the others shows when the round opens, so that nobody is refused for coming second.
    ///
    /// # Errors
    ///
    /// The reason, in words that the client will read.
    fn admit(
        &mut self,
        contributor: u16,
        contribution: &ContributionId,
        hello: &[u8],
    ) -> Result<(), String>;

    /// Opens a round over those who joined, contributor number to hello, or over some of them; or prepares to, and is
    /// asked again.
    ///
    /// # Errors
    ///
    /// The reason, in words that every client will read; then all may join anew.
    fn open(&mut self, round: u32, joined: &BTreeMap<u16, Vec<u8>>) -> Result<Readiness, String>;

    /// Returns the side of its openers, if sums open by their answers: of the round that opened last.
    fn openers(&mut self) -> Option<&mut dyn OpenerApplication> {
        None
    }
}

/// The scheme's side of openers, who open the sums of a round together (PROTOCOL §7.11).
pub trait OpenerApplication {
    /// Takes an opener's word that it can be asked.
    ///
    /// # Errors
    ///
    /// The reason why it cannot.
    fn attend(&mut self, opener: u8, hello: &[u8]) -> Result<(), String>;

    /// Takes the shares that a contribution has beside its chunks, if its client made them so.
    ///
    /// # Errors
    ///
    /// The reason, in words that the client will read.
    fn take_shares(&mut self, contributor: u16, shares: &[u8]) -> Result<(), String>;

    /// Admits a contribution of which all is there: shares, and chunks, of which `upload` is BLAKE3.
    ///
    /// # Errors
    ///
    /// The reason, in words that the client will read.
    fn admit(&mut self, contributor: u16, upload: &[u8; 32]) -> Result<(), String>;

    /// Returns the request to each opener, by its place, about all who were admitted.
    fn requests(&self) -> Vec<Vec<u8>>;

    /// Returns the number of answers that open the sums.
    fn needed(&self) -> usize;

    /// Returns the number of openers that attended since the start.
    fn attended(&self) -> usize;

    /// Takes the answer of an opener that has given none.
    ///
    /// # Errors
    ///
    /// The reason why it is none.
    fn take_answer(&mut self, opener: u8, answer: &[u8]) -> Result<(), String>;

    /// Returns all answers so far, for those who open the sums.
    fn answers(&self) -> Vec<u8>;
}

/// The answer of an application that is to open a round.
pub enum Readiness {
    /// It can begin.
    Ready(ReadyRound),
    /// It cannot begin yet, if it can over those who are left: the application is to be asked again soon.
    Preparing {
        /// Those who joined and will not be in this round, each with the reason, in words that it will read.
        left_out: Vec<(u16, String)>,
    },
}

impl Readiness {
    /// Returns the round, if it can begin.
    #[must_use]
    pub fn opened(self) -> Option<ReadyRound> {
        match self {
            Self::Ready(opened) => Some(opened),
            Self::Preparing { .. } => None,
        }
    }
}

/// A round that can begin.
pub struct ReadyRound {
    /// The terms that every contributor must know; opaque here.
    pub terms: Vec<u8>,
    /// The layout of their contributions.
    pub layout: ChunkLayout,
    /// All chunks, in order, with accumulators for the contributors that joined.
    pub shards: Vec<Shard>,
    /// Those who joined and are not in this round, each with the reason, in words that it will read.
    /// If the others are fewer than the minimum, nothing opens: they go on waiting, and the rest of
    /// this value is not looked at.
    pub left_out: Vec<(u16, String)>,
    /// Those who joined while the round was prepared: they go on waiting, for the next one.
    pub late: BTreeSet<u16>,
}
