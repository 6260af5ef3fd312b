//! The arguments of commands that describe and measure engines.

use std::{path::PathBuf, time::Duration};

use ciphergram_he::{Operation, ckks};
use clap::{
    Args, Subcommand,
    builder::{PossibleValue, PossibleValuesParser, TypedValueParser},
};

use super::{
    EngineName,
    values::{AnyScheme, any_scheme, clock, key_sizes, seconds, threads},
};
use crate::bench::operation::{self, Operations};

#[derive(Args)]
pub(crate) struct Devices {
    /// Also compare every engine with the oracle, bit by bit, over every step: takes seconds, on
    /// emulated devices a minute
    #[arg(long)]
    pub(crate) check: bool,
    /// Report as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// An operation whose program is shown: of sums, or of a levelled scheme.
#[derive(Clone, Copy)]
pub(crate) enum Explained {
    Sums(Operation),
    Levelled(ckks::Operation),
}

impl Explained {
    /// Returns all of them.
    fn all() -> impl Iterator<Item = Self> {
        let sums = [Operation::Encrypt, Operation::Aggregate, Operation::Decrypt].map(Self::Sums);
        sums.into_iter().chain(ckks::Operation::ALL.map(Self::Levelled))
    }

    fn parser() -> impl TypedValueParser<Value = Self> {
        let value = |operation: Self| match operation {
            Self::Sums(_) => PossibleValue::new(operation.name()),
            Self::Levelled(own) => PossibleValue::new(own.name()).help(own.about()),
        };
        PossibleValuesParser::new(Self::all().map(value)).try_map(|name| {
            Self::all().find(|operation| operation.name() == name).ok_or("no operation")
        })
    }

    /// Returns its word.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Sums(Operation::Encrypt) => "encrypt",
            Self::Sums(Operation::Aggregate) => "aggregate",
            Self::Sums(Operation::Decrypt) => "decrypt",
            Self::Levelled(operation) => operation.name(),
        }
    }
}

#[derive(Args)]
pub(crate) struct Explain {
    /// The operation
    #[arg(value_parser = Explained::parser())]
    pub(crate) operation: Explained,
    /// ckks-sum, ckks-sum-public, paillier-2048, paillier-3072 or paillier-4096; or ckks-4096x1, ckks-4096x2,
    /// ckks-8192x7 or ckks-16384x14, which are levelled; else ckks-sum, or ckks-4096x1 for what it has not
    #[arg(long, value_parser = any_scheme)]
    pub(crate) scheme: Option<AnyScheme>,
    /// Values of an update, of schemes of sums: large ones have larger rings under ckks-sum
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub(crate) values: usize,
    /// Report as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args)]
#[command(arg_required_else_help = false)]
pub(crate) struct Params {
    #[command(subcommand)]
    pub(crate) command: ParamsCommand,
}

#[derive(Subcommand)]
pub(crate) enum ParamsCommand {
    /// Derive every size step by step, from security and noise to bytes a value
    Explain(ParamsExplain),
}

#[derive(Args)]
pub(crate) struct ParamsExplain {
    /// ckks-sum, ckks-sum-public, paillier-2048, paillier-3072 or paillier-4096; or ckks-4096x1, ckks-4096x2,
    /// ckks-8192x7 or ckks-16384x14, which are levelled
    #[arg(long, default_value = "ckks-sum", value_parser = any_scheme)]
    pub(crate) scheme: AnyScheme,
    /// Of sums: most clients that one will ever have, 1 to 1024 [default: 64]
    #[arg(long)]
    pub(crate) clients: Option<u32>,
    /// Of sums: bits of a quantised value, 8 to 24 [default: 16]
    #[arg(long)]
    pub(crate) bits: Option<u32>,
    /// Of ckks-sum: make the public key encrypt, for clients without the secret key
    #[arg(long)]
    pub(crate) public_encrypt: bool,
    /// Report as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args)]
#[command(after_long_help = operation::help())]
pub(crate) struct Bench {
    /// Operations, separated by commas, or a scheme for all of its own: see --help
    #[arg(
        long, value_name = "LIST", default_value = "paillier,ckks-sum",
        value_parser = Operations::parse
    )]
    pub(crate) ops: Operations,
    /// Engines, separated by commas: only gpu, fpga and auto open a device
    #[arg(long, value_name = "LIST", value_enum, value_delimiter = ',', default_value = "cpu")]
    pub(crate) engine: Vec<EngineName>,
    /// Threads, 1 to 1024
    #[arg(long, default_value = "1", value_parser = threads)]
    pub(crate) threads: usize,
    /// Seconds to measure each row, after warming up; at least five samples are taken
    #[arg(long, default_value = "1", value_parser = seconds)]
    pub(crate) seconds: Duration,
    /// Sizes of Paillier keys, separated by commas: 2048, 3072, 4096
    #[arg(long, value_name = "LIST", default_value = "2048,3072", value_parser = key_sizes)]
    pub(crate) bits: KeySizes,
    /// Also measure Paillier keys of 1024 bits, which protect nothing: for comparison with papers
    #[arg(long)]
    pub(crate) insecure_1024: bool,
    /// Project rates of cards, which count cycles, to this clock in MHz, 1 to 2000
    #[arg(long, value_name = "MHZ", value_parser = clock)]
    pub(crate) clock: Option<f64>,
    /// Measure nothing, and put reports beside each other that --json wrote
    #[arg(
        long, value_name = "FILE", num_args = 1..,
        conflicts_with_all = ["ops", "engine", "threads", "seconds", "bits", "json", "insecure_1024", "clock"]
    )]
    pub(crate) compare: Vec<PathBuf>,
    /// Also write all figures to this file, as benches/README.md says
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}

/// Sizes of n in bits, each once.
#[derive(Clone)]
pub(crate) struct KeySizes(pub(crate) Vec<u32>);
