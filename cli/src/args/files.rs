//! The arguments of commands that read and write files of tensors.

use std::path::PathBuf;

use ciphergram_he::codec::Policy;
use clap::Args;

use super::{
    Agreed, ClientArg, EngineArgs, InArg, IntegersChoice, OutArg, ReportArgs, Used,
    values::{clip, policy, weight},
    vectors::VectorArgs,
};

#[derive(Args)]
pub(crate) struct RangesArgs {
    #[command(flatten)]
    pub(crate) out: OutArg,
    /// Merge the ranges files given, instead of measuring tensors; with --key, the proposals given, to ranges that
    /// only clients can open
    #[arg(long, conflicts_with_all = ["weight", "policy", "integers", "agree", "open"])]
    pub(crate) merge: bool,
    /// Write an encrypted proposal of the ranges that are measured, for a job that agrees on private ranges
    #[arg(long, requires = "key", conflicts_with_all = ["weight", "open"])]
    pub(crate) agree: bool,
    /// Open the ranges that were agreed
    #[arg(long, requires = "key", conflicts_with_all = ["weight", "policy", "integers"])]
    pub(crate) open: bool,
    /// With --agree and --open the client's key, with --merge ranges-evaluation.cgk
    #[arg(long, value_name = "FILE")]
    pub(crate) key: Option<PathBuf>,
    /// The job, with --key [default: job.json beside the key or, for a key in clients/, in the folder above]
    #[arg(long, value_name = "FILE", requires = "key")]
    pub(crate) job: Option<PathBuf>,
    /// With --agree, this client's number, from 0; a client's own key knows it
    #[arg(long, requires = "agree")]
    pub(crate) client: Option<u16>,
    /// This client's largest weight, an integer from 1 [default: 1]
    #[arg(long, value_parser = weight)]
    pub(crate) weight: Option<u64>,
    /// Clipping: max (none), sigma:MULTIPLE (of the root mean square), aciq or aciq:BITS (least error of values
    /// quantised to 8 to 24 bits, 16 by default), or fixed:RANGE, one range for all tensors
    #[arg(long, value_parser = policy, default_value = "max")]
    pub(crate) policy: Policy,
    #[command(flatten)]
    pub(crate) integers: IntegersChoice,
    /// A safetensors file; with --merge, ranges files or proposals; with --open, agreed ranges
    #[arg(required = true, value_name = "FILE")]
    pub(crate) inputs: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) report: ReportArgs,
}

#[derive(Args)]
pub(crate) struct EncryptArgs {
    #[command(flatten)]
    pub(crate) agreed: Agreed,
    #[command(flatten)]
    pub(crate) used: Used,
    #[command(flatten)]
    pub(crate) client: ClientArg,
    /// The round's number, the same for all clients [default: the one after this client's last]
    #[arg(long)]
    pub(crate) round: Option<u64>,
    #[command(flatten)]
    pub(crate) input: InArg,
    #[command(flatten)]
    pub(crate) out: OutArg,
    /// The ranges file that all clients share [default: the job's ranges]
    #[arg(long, value_name = "FILE")]
    pub(crate) ranges: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) integers: IntegersChoice,
    #[command(flatten)]
    pub(crate) weighting: Weighting,
    #[command(flatten)]
    pub(crate) vector: VectorArgs,
    #[command(flatten)]
    pub(crate) place: EngineArgs,
    #[command(flatten)]
    pub(crate) report: ReportArgs,
}

/// A client's weight, and the clipping of its own values.
#[derive(Args)]
pub(crate) struct Weighting {
    /// Clip this client's values to this magnitude first
    #[arg(long, value_parser = clip)]
    pub(crate) clip: Option<f64>,
    /// This client's weight, an integer from 1 to the agreed largest
    #[arg(long, default_value = "1", value_parser = weight)]
    pub(crate) weight: u64,
}

#[derive(Args)]
pub(crate) struct AggregateArgs {
    #[command(flatten)]
    pub(crate) agreed: Agreed,
    #[command(flatten)]
    pub(crate) out: OutArg,
    /// Encrypted weights of vectors, as scores writes them; --key is the evaluation key then
    #[arg(long, value_name = "FILE")]
    pub(crate) weights: Option<PathBuf>,
    /// Folder to make for the requests to openers, one file each, where the job has openers
    #[arg(long, value_name = "FOLDER", conflicts_with = "weights")]
    pub(crate) requests: Option<PathBuf>,
    /// The contributions, or vectors
    #[arg(required = true, value_name = "FILE")]
    pub(crate) inputs: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) place: EngineArgs,
    #[command(flatten)]
    pub(crate) report: ReportArgs,
}

/// The sum that a command opens.
#[derive(Args)]
pub(crate) struct Opening {
    /// Write Σ weight·x instead of the weighted mean
    #[arg(long)]
    pub(crate) sum: bool,
    /// Fewest contributors of a sum to decrypt [default: the job's]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) min_clients: Option<u16>,
    /// Write which values are of which clients to this file, as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) cohorts: Option<PathBuf>,
}

#[derive(Args)]
pub(crate) struct DecryptArgs {
    #[command(flatten)]
    pub(crate) agreed: Agreed,
    #[command(flatten)]
    pub(crate) used: Used,
    #[command(flatten)]
    pub(crate) input: InArg,
    #[command(flatten)]
    pub(crate) out: OutArg,
    /// A safetensors file with the tensors of the sum: the output is laid out as it is, with its metadata, and with
    /// the integer tensors that it has besides
    #[arg(long, value_name = "FILE")]
    pub(crate) template: Option<PathBuf>,
    /// Answers of openers, separated by commas, where the job has openers
    #[arg(long, value_name = "FILES", value_delimiter = ',')]
    pub(crate) answers: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) opening: Opening,
    #[command(flatten)]
    pub(crate) place: EngineArgs,
    #[command(flatten)]
    pub(crate) report: ReportArgs,
}

#[derive(Args)]
pub(crate) struct InspectArgs {
    /// A key, job, ranges, contribution, sum, vector, spool, ledger, identity, node key, allow list, capture or
    /// safetensors file
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// With --json and Paillier: also list the raw ciphertexts, big-endian hexadecimal
    #[arg(long, requires = "json")]
    pub(crate) ciphertexts: bool,
    #[command(flatten)]
    pub(crate) used: Used,
    #[command(flatten)]
    pub(crate) report: ReportArgs,
}
