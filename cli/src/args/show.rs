//! The arguments of commands that show what things come to.

use ciphergram_he::{Operation, ckks};
use clap::{
    Args, Subcommand,
    builder::{PossibleValue, PossibleValuesParser, TypedValueParser},
};

use super::{
    ReportArgs, Set,
    values::{AnyScheme, any_scheme},
};

#[derive(Subcommand)]
#[command(arg_required_else_help = false)]
pub(crate) enum ShowCommand {
    /// Derive every size of a parameter set, from security and noise to bytes a value
    Params(ParamsArgs),
    /// Print the program that an operation runs
    Program(ProgramArgs),
    /// List the engines that are present, and the steps that each supports
    Devices(DevicesArgs),
    /// Say what noise that clients add together protects: epsilon at delta
    Noise(NoiseArgs),
}

#[derive(Args)]
pub(crate) struct DevicesArgs {
    /// Also compare every engine with the oracle, bit by bit, over every step: takes seconds, on
    /// emulated devices a minute
    #[arg(long)]
    pub(crate) check: bool,
    #[command(flatten)]
    pub(crate) report: ReportArgs,
}

/// An operation whose program is shown: of sums, or of a levelled scheme.
#[derive(Clone, Copy)]
pub(crate) enum ShownOperation {
    Sums(Operation),
    Levelled(ckks::Operation),
}

impl ShownOperation {
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
pub(crate) struct ProgramArgs {
    /// The operation
    #[arg(value_parser = ShownOperation::parser())]
    pub(crate) operation: ShownOperation,
    /// ckks-sum, paillier-2048, paillier-3072 or paillier-4096; or ckks-4096x1, ckks-4096x2,
    /// ckks-8192x7 or ckks-16384x14, which are levelled; else ckks-sum, or ckks-4096x1 for what it has not
    #[arg(long, value_parser = any_scheme)]
    pub(crate) scheme: Option<AnyScheme>,
    /// Values of an update, of schemes of sums: large ones have larger rings under ckks-sum
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub(crate) values: usize,
    #[command(flatten)]
    pub(crate) report: ReportArgs,
}

#[derive(Args)]
pub(crate) struct ParamsArgs {
    #[command(flatten)]
    pub(crate) set: Set,
    #[command(flatten)]
    pub(crate) report: ReportArgs,
}

#[derive(Args)]
pub(crate) struct NoiseArgs {
    /// Noise of a sum of the fewest clients: its standard deviation in multiples of the clip
    #[arg(long, value_name = "MULTIPLE")]
    pub(crate) sigma: f64,
    /// L2 norm that a client's whole update is clipped to
    #[arg(long, value_name = "NORM")]
    pub(crate) clip: f64,
    /// Most clients of a sum, 1 to 1024
    #[arg(long)]
    pub(crate) clients: u32,
    /// Fewest clients of a sum, whose shares are the noise [default: two thirds of the clients, at least 3,
    /// or all if they are fewer]
    #[arg(long)]
    pub(crate) min_clients: Option<u32>,
    /// Sums that are released
    #[arg(long)]
    pub(crate) rounds: u32,
    /// Probability that more than epsilon is given away, above 0 and below 1
    #[arg(long, default_value_t = 1e-5)]
    pub(crate) delta: f64,
    /// Bits of a quantised value, 8 to 24
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(8..=24))]
    pub(crate) bits: u32,
    /// Values of an update: rounding makes it longer, the more there are
    #[arg(long, default_value_t = 1_000_000)]
    pub(crate) values: usize,
    /// The range of all tensors [default: the smallest with headroom for the noise]
    #[arg(long)]
    pub(crate) range: Option<f64>,
    #[command(flatten)]
    pub(crate) report: ReportArgs,
}
