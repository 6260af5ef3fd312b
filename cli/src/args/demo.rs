//! The arguments of the demo.

use std::{net::SocketAddr, path::PathBuf};

use ciphergram_he::{Scheme, private_ranges::Rank};
use clap::Args;

use super::{EngineArgs, FiguresArg, values::scheme};

#[derive(Args)]
pub(crate) struct DemoArgs {
    /// ckks-sum-threshold, ckks-sum, paillier-2048, paillier-3072 or paillier-4096
    #[arg(long, default_value = "ckks-sum-threshold", value_parser = scheme)]
    pub(crate) scheme: Scheme,
    /// Client processes
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) clients: u16,
    /// Rounds of training
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) rounds: u32,
    /// Clients to kill after the first round, with the aggregator, which is started again: the others go on
    #[arg(long, value_name = "CLIENTS", default_value_t = 0)]
    pub(crate) kill: u16,
    /// Bits of a quantised value, 8 to 24
    #[arg(long, default_value_t = 16)]
    pub(crate) bits: u32,
    /// Seed of data and training; never of keys, masks or noise
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Have clients agree on ranges without showing theirs: agree:K takes the K-th largest, agree:median the middle
    #[arg(long, value_name = "agree:K", value_parser = Rank::from_agree)]
    pub(crate) ranges: Option<Rank>,
    #[command(flatten)]
    pub(crate) place: EngineArgs,
    #[command(flatten)]
    pub(crate) figures: FiguresArg,
}

impl DemoArgs {
    /// Returns the number of clients that are not killed.
    pub(crate) fn survivors(&self) -> u16 {
        self.clients.saturating_sub(self.kill)
    }
}

/// What the demo tells a client that it starts, word by word.
#[derive(Args)]
pub(crate) struct DemoClientArgs {
    pub(crate) folder: PathBuf,
    pub(crate) server: SocketAddr,
    pub(crate) client: u16,
    pub(crate) clients: u16,
    pub(crate) rounds: u32,
    pub(crate) seed: u64,
    /// Waits after its rounds, in place of leaving, until it is killed or its standard input ends.
    #[arg(long)]
    pub(crate) waits: bool,
    #[command(flatten)]
    pub(crate) place: EngineArgs,
}
