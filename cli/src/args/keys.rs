//! The arguments of commands that make keys and jobs.

use std::path::PathBuf;

use ciphergram_he::{
    ckks::Rotation,
    codec::TensorBits,
    private_ranges::{MAX_LEVELS, Rank},
};
use clap::Args;

use super::{
    Agreed, ClientsArgs, FolderArg, IntegersChoice, KeyArg, OutArg, ReportArgs, Set,
    values::{JobRanges, clip, job_ranges, named_bits},
};

#[derive(Args)]
pub(crate) struct KeygenArgs {
    #[command(flatten)]
    pub(crate) set: Set,
    /// Of ckks-4096x1 and such: rotations to make keys for, separated by commas: sum (all powers of two, which screen
    /// takes), conjugate, matrix:ROWSxCOLUMNS (of a product by such a matrix), or numbers of slots
    #[arg(long, value_name = "LIST", value_delimiter = ',', allow_hyphen_values = true)]
    pub(crate) rotations: Vec<Rotation>,
    /// Of ckks-sum or Paillier: also draw a secret with which clients agree on ranges without showing theirs, and write
    /// ranges-evaluation.cgk, which the aggregator does it with (30 MB)
    #[arg(long)]
    pub(crate) ranges_key: bool,
    /// Of ckks-sum-threshold: make the identity of one member alone, and member.pub for whoever makes the job
    #[arg(long, conflicts_with = "ranges_key")]
    pub(crate) member: bool,
    /// Of ckks-sum-threshold: openers whose answers open a sum [default: as few as keep a third of them from learning
    /// anything together]
    #[arg(long, conflicts_with = "member")]
    pub(crate) open: Option<usize>,
    #[command(flatten)]
    pub(crate) out: FolderArg,
    /// Folder of a key that the new one replaces: it gets the same parameters, and a job of the same
    /// limits; node keys stay as they are
    #[arg(long, value_name = "FOLDER",
        conflicts_with_all = ["scheme", "clients", "bits", "member", "open"])]
    pub(crate) replaces: Option<PathBuf>,
    /// With --replaces: the job whose limits stay [default: job.json in that folder]
    #[arg(long, value_name = "FILE", requires = "replaces")]
    pub(crate) job: Option<PathBuf>,
    /// With --replaces: draw new node keys for this machine as well
    #[arg(long, requires = "replaces")]
    pub(crate) renew_nodes: bool,
    /// Make the key from this secret key, of an earlier version or of python-paillier, which lacks what shows that sums
    /// are right
    #[arg(long, value_name = "FILE", conflicts_with_all = ["scheme", "clients", "bits", "member", "open", "rotations",
        "ranges_key", "replaces", "job", "renew_nodes"])]
    pub(crate) upgrade: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) report: ReportArgs,
}

#[derive(Args)]
pub(crate) struct JobArgs {
    #[command(flatten)]
    pub(crate) key: KeyArg,
    #[command(flatten)]
    pub(crate) out: OutArg,
    #[command(flatten)]
    pub(crate) clients: ClientsArgs,
    /// Under ckks-sum-threshold: the public files of all clients, in the order of their numbers, separated by commas
    #[arg(long, value_name = "FILES", value_delimiter = ',', conflicts_with = "clients")]
    pub(crate) members: Vec<PathBuf>,
    /// The public files of those who open sums, separated by commas [default: the members, the first 32 at most]
    #[arg(long, value_name = "FILES", value_delimiter = ',', requires = "members")]
    pub(crate) openers: Vec<PathBuf>,
    /// Openers whose answers open a sum [default: as few as keep a third of them from learning anything together]
    #[arg(long, requires = "members")]
    pub(crate) open: Option<usize>,
    /// Most clients that are assumed to collude: every sum has at least two contributors beyond them [default: less
    /// than a third of the clients]
    #[arg(long)]
    pub(crate) colluders: Option<u16>,
    /// Largest weight of a client [default: that of --ranges, 1 with noise and with private ranges, else
    /// 100000]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_weight: Option<u32>,
    /// Largest clipping range of a tensor [default: 65536, 1024 of private ranges, or what the noise needs
    /// if that is more]
    #[arg(long, value_parser = clip)]
    pub(crate) max_range: Option<f64>,
    /// Settle the tensors and ranges of this ranges file; or agree on private ones, of which agree:K takes the K-th
    /// largest of a round's clients, agree:median the middle, agree the second largest from four clients on
    #[arg(long, value_name = "FILE|agree[:K]", value_parser = job_ranges())]
    pub(crate) ranges: Option<JobRanges>,
    /// Levels that private ranges are told apart in, powers of two from the largest range down [default: 32]
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..=i64::from(MAX_LEVELS)))]
    pub(crate) levels: Option<u8>,
    /// Rounds that private ranges hold for [default: 1]
    #[arg(long, value_name = "ROUNDS", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) agree_every: Option<u32>,
    /// Have every client clip its whole update to an L2 norm that they agree on as on private ranges: the K-th largest
    /// of theirs, or the median
    #[arg(long, value_name = "agree:K", value_parser = Rank::from_agree)]
    pub(crate) clip_norm: Option<Rank>,
    /// Settle the tensors of this safetensors file, but not their ranges
    #[arg(long, value_name = "FILE")]
    pub(crate) layout: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) integers: IntegersChoice,
    /// Sum the tensors of floats of this name in 8 to 48 bits in place of the key's; * in NAME stands for any text, and
    /// of several that name a tensor the last counts
    #[arg(long, value_name = "NAME=BITS", value_parser = named_bits, allow_negative_numbers = true)]
    pub(crate) bits: Vec<TensorBits>,
    /// Noise that all clients share, for differential privacy: its standard deviation in a sum of the fewest
    /// clients, in multiples of --dp-clip; see `ciphergram show noise`
    #[arg(long, value_name = "MULTIPLE", requires = "dp_clip")]
    pub(crate) dp_sigma: Option<f64>,
    /// The L2 norm that each client's whole update is clipped to before noise is added
    #[arg(long, value_name = "NORM", requires = "dp_sigma")]
    pub(crate) dp_clip: Option<f64>,
    /// A privacy budget: the largest epsilon that all rounds together come to, against the colluders assumed
    #[arg(long, value_name = "EPSILON", requires_all = ["dp_sigma", "dp_rounds"])]
    pub(crate) dp_epsilon: Option<f64>,
    /// The budget's delta: the probability that more than epsilon is given away
    #[arg(long, value_name = "DELTA", default_value_t = 1e-5, requires = "dp_epsilon")]
    pub(crate) dp_delta: f64,
    /// The budget's rounds, after which no client contributes to the job
    #[arg(long, value_name = "ROUNDS", requires = "dp_epsilon", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) dp_rounds: Option<u32>,
    #[command(flatten)]
    pub(crate) report: ReportArgs,
}

#[derive(Args)]
pub(crate) struct BundleArgs {
    #[command(flatten)]
    pub(crate) agreed: Agreed,
    #[command(flatten)]
    pub(crate) out: FolderArg,
    #[command(flatten)]
    pub(crate) report: ReportArgs,
}

/// Makes a node key.
#[derive(Args)]
pub(crate) struct IdentityArgs {
    #[command(flatten)]
    pub(crate) out: OutArg,
    #[command(flatten)]
    pub(crate) report: ReportArgs,
}
