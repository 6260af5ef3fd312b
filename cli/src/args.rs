//! The command line.

mod dp;
mod keys;

use std::{net::SocketAddr, num::NonZeroU64, path::PathBuf, time::Duration};

use ciphergram_he::{Scheme, codec::Policy, error::ParameterError, params::Literal};
use ciphergram_nic::{
    faults::MILLION,
    proto::{NodeId, datagram::MAX_DATAGRAM_BYTES, endpoint::DEFAULT_DATAGRAM_BYTES},
};
use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::bench::operation::{self, Operations};

pub(crate) use dp::Dp;
pub(crate) use keys::{Identity, Job, Key, KeyCommand, KeyStatus, KeyUpgrade, Keygen};

/// Encrypted gradient sums over reliable datagrams.
#[derive(Parser)]
#[command(name = "ciphergram", version, max_term_width = 100, arg_required_else_help = false)]
pub(crate) struct Arguments {
    /// Format of log lines on standard error; CIPHERGRAM_LOG=info asks for more of them
    #[arg(long, global = true, value_name = "FORMAT", value_enum, default_value_t = LogFormat::Text)]
    pub(crate) log: LogFormat,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The format of log lines.
#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum LogFormat {
    /// For people
    Text,
    /// A JSON object on each line, also when a span ends
    Json,
}

impl LogFormat {
    /// Returns the option that asks for it.
    pub(crate) fn option(self) -> &'static str {
        match self {
            Self::Text => "--log text",
            Self::Json => "--log json",
        }
    }
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Train a digit classifier with federated clients, encrypted, beside its plaintext twin
    Demo(Demo),
    #[command(hide = true)]
    DemoClient(DemoClient),
    /// Make a key: public.json to sum with, secret.json to decrypt with, clients' keys, and a job
    Keygen(Keygen),
    /// Make a key of an earlier version fit for sums, or see what a key was used for
    Key(Key),
    /// Make a job: what clients agree on once, and hold the aggregator to
    Job(Job),
    /// Make a node key, for rounds between machines
    Identity(Identity),
    /// Measure a client's clipping ranges, or merge those of all clients
    Ranges(Ranges),
    /// Encrypt a safetensors file
    Encrypt(Encrypt),
    /// Sum encrypted files, without the secret key
    Aggregate(Aggregate),
    /// Decrypt a sum to the weighted mean, or the weighted sum
    Decrypt(Decrypt),
    /// Run the aggregator of rounds: add what clients send as it arrives
    Serve(Serve),
    /// Take part in a round: encrypt, send, receive the sum, decrypt the mean
    Join(Join),
    /// Forward datagrams between clients and a server as a bad network would
    Relay(Relay),
    /// Describe a file, without its secrets
    Inspect(Inspect),
    /// List the engines that are present, and the steps that each supports
    Devices(Devices),
    /// Print the program that an operation runs
    Explain(Explain),
    /// Explain the sizes that a scheme, a number of clients and a precision lead to
    Params(Params),
    /// Say what noise that clients add together protects: epsilon at delta
    Dp(Dp),
    /// Time the operations of both schemes, beside the limit of the processor
    Bench(Bench),
}

/// The choice of an engine.
#[derive(Args, Clone, Copy)]
pub(crate) struct Place {
    /// Engine that runs programs: gpu leaves to the CPU what it cannot do; auto takes the faster or
    /// splits batches, once there is work for four seconds; reference is slow
    #[arg(long, value_name = "NAME", value_enum, default_value_t = EngineName::Cpu)]
    pub(crate) engine: EngineName,
}

/// An engine, or a way to choose one.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum EngineName {
    /// The CPU
    Cpu,
    /// A GPU; the CPU where there is none, and for programs with a step that the GPU lacks
    Gpu,
    /// The CPU, a GPU, or both with a part of each batch: the fastest of these
    Auto,
    /// The oracle that engines are tested against: slow
    Reference,
}

impl EngineName {
    /// Returns the option that asks for it.
    pub(crate) fn option(self) -> &'static str {
        match self {
            Self::Cpu => "--engine cpu",
            Self::Gpu => "--engine gpu",
            Self::Auto => "--engine auto",
            Self::Reference => "--engine reference",
        }
    }
}

#[derive(Args)]
pub(crate) struct Demo {
    /// ckks-sum, ckks-sum-public, paillier-2048, paillier-3072 or paillier-4096
    #[arg(long, default_value = "ckks-sum", value_parser = scheme)]
    pub(crate) scheme: Scheme,
    /// Client processes
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) clients: u16,
    /// Rounds of training
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) rounds: u32,
    /// Bits of a quantised value, 8 to 24
    #[arg(long, default_value_t = 16)]
    pub(crate) bits: u32,
    /// Seed of data and training; never of keys, masks or noise
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    #[command(flatten)]
    pub(crate) place: Place,
    /// Also write the figures to this file
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}

#[derive(Args)]
pub(crate) struct DemoClient {
    #[arg(long)]
    pub(crate) folder: PathBuf,
    #[arg(long)]
    pub(crate) server: SocketAddr,
    #[arg(long)]
    pub(crate) client: u16,
    #[arg(long)]
    pub(crate) clients: u16,
    #[arg(long)]
    pub(crate) rounds: u32,
    #[arg(long)]
    pub(crate) seed: u64,
    #[command(flatten)]
    pub(crate) place: Place,
}

/// The choices that a parameter set is derived from.
#[derive(Args)]
pub(crate) struct Set {
    /// ckks-sum, ckks-sum-public, paillier-2048, paillier-3072 or paillier-4096
    #[arg(long, default_value = "ckks-sum", value_parser = scheme)]
    pub(crate) scheme: Scheme,
    /// Most clients that a sum will ever have, 1 to 1024: fields get headroom for them
    #[arg(long, default_value_t = 64)]
    pub(crate) clients: u32,
    /// Bits of a quantised value, 8 to 24
    #[arg(long, default_value_t = 16)]
    pub(crate) bits: u32,
    /// Make the public key encrypt, for clients without the secret key: ckks-sum-public in place of
    /// ckks-sum; Paillier keys always can
    #[arg(long)]
    pub(crate) public_encrypt: bool,
}

impl Set {
    pub(crate) fn literal(&self) -> Literal {
        let Self { scheme, clients, bits, public_encrypt } = *self;
        let scheme = if public_encrypt { scheme.with_public_encryption() } else { scheme };
        Literal { scheme, clients, bits }
    }
}

#[derive(Args)]
pub(crate) struct Ranges {
    /// File to write the ranges to
    #[arg(long, value_name = "FILE")]
    pub(crate) out: PathBuf,
    /// Merge the ranges files given, instead of measuring tensors
    #[arg(long, conflicts_with_all = ["weight", "policy", "bits"])]
    pub(crate) merge: bool,
    /// This client's largest weight, an integer from 1 [default: 1]
    #[arg(long, value_parser = weight, allow_negative_numbers = true)]
    pub(crate) weight: Option<u64>,
    /// Clipping: max (none), sigma:MULTIPLE (of the root mean square), aciq (least error), or
    /// fixed:RANGE, one range for all tensors
    #[arg(long, value_parser = policy, default_value = "max")]
    pub(crate) policy: PolicyName,
    /// Bits of a quantised value, for the policy aciq
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(8..=24))]
    pub(crate) bits: u32,
    /// A safetensors file; with --merge, ranges files
    #[arg(required = true, value_name = "FILE")]
    pub(crate) inputs: Vec<PathBuf>,
    /// Report as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// The key and the job of a command.
#[derive(Args)]
pub(crate) struct Agreed {
    /// The key
    #[arg(long, value_name = "FILE")]
    pub(crate) key: PathBuf,
    /// The job [default: job.json beside the key or, for a key in clients/, in the folder above]
    #[arg(long, value_name = "FILE")]
    pub(crate) job: Option<PathBuf>,
}

#[derive(Args)]
pub(crate) struct Encrypt {
    #[command(flatten)]
    pub(crate) agreed: Agreed,
    /// This client's number, from 0; a client's own key knows it
    #[arg(long)]
    pub(crate) client: Option<u16>,
    /// The round's number, the same for all clients [default: the one after this client's last]
    #[arg(long)]
    pub(crate) round: Option<u64>,
    /// The safetensors file
    #[arg(long = "in", value_name = "FILE")]
    pub(crate) input: PathBuf,
    /// File to write the contribution to
    #[arg(long, value_name = "FILE")]
    pub(crate) out: PathBuf,
    /// The ranges file that all clients share [default: the job's ranges]
    #[arg(long, value_name = "FILE")]
    pub(crate) ranges: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) weighting: Weighting,
    #[command(flatten)]
    pub(crate) place: Place,
    /// Report as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// A client's weight, and the clipping of its own values.
#[derive(Args)]
pub(crate) struct Weighting {
    /// Clip this client's values to this magnitude first
    #[arg(long, value_parser = clip, allow_negative_numbers = true)]
    pub(crate) clip: Option<f64>,
    /// This client's weight, an integer from 1 to the agreed largest
    #[arg(long, default_value = "1", value_parser = weight, allow_negative_numbers = true)]
    pub(crate) weight: u64,
}

#[derive(Args)]
pub(crate) struct Aggregate {
    #[command(flatten)]
    pub(crate) agreed: Agreed,
    /// File to write the sum to
    #[arg(long, value_name = "FILE")]
    pub(crate) out: PathBuf,
    /// The contributions
    #[arg(required = true, value_name = "FILE")]
    pub(crate) inputs: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) place: Place,
    /// Report as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args)]
pub(crate) struct Decrypt {
    #[command(flatten)]
    pub(crate) agreed: Agreed,
    /// The sum
    #[arg(long = "in", value_name = "FILE")]
    pub(crate) input: PathBuf,
    /// File to write the tensors to
    #[arg(long, value_name = "FILE")]
    pub(crate) out: PathBuf,
    /// Write Σ weight·x instead of the weighted mean
    #[arg(long)]
    pub(crate) sum: bool,
    /// Fewest contributors of a sum to decrypt [default: the job's]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) min_clients: Option<u16>,
    #[command(flatten)]
    pub(crate) place: Place,
    /// Report as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args)]
pub(crate) struct Serve {
    #[command(flatten)]
    pub(crate) agreed: Agreed,
    /// Address to listen at; other than on loopback, --identity and --allow are needed
    #[arg(long, default_value = "127.0.0.1:7700", value_name = "ADDRESS")]
    pub(crate) listen: SocketAddr,
    /// The aggregator's node key [default on loopback: server.identity beside the key]
    #[arg(long, value_name = "FILE")]
    pub(crate) identity: Option<PathBuf>,
    /// List of the nodes that may take part: a public node key and a client's number, or *, on each
    /// line [default: the job's; on loopback: clients.allow beside the key]
    #[arg(long, value_name = "FILE")]
    pub(crate) allow: Option<PathBuf>,
    /// Clients of a round, numbered from 0 [default: the job's]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) clients: Option<u16>,
    /// Rounds to run, numbered from 0
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rounds: u32,
    /// Fewest clients of a sum that leaves the aggregator [default: the job's, or --clients if that
    /// is fewer]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) min_clients: Option<u16>,
    /// Seconds from a round's opening until it closes with the clients that are in it
    #[arg(long, default_value = "60", value_parser = seconds, value_name = "SECONDS")]
    pub(crate) deadline: Duration,
    /// Seconds from the first client's joining until a round opens without those that are missing
    #[arg(long, default_value = "300", value_parser = seconds, value_name = "SECONDS")]
    pub(crate) join_deadline: Duration,
    /// Count only contributions of which every chunk arrived, so that all sums of a round are of the
    /// same clients; keeps those that are incomplete in memory, up to 4 GiB of all clients together
    #[arg(long)]
    pub(crate) whole: bool,
    #[command(flatten)]
    pub(crate) wire: Wire,
    /// Also write every datagram to this file, for Wireshark; payloads stay sealed
    #[arg(long, value_name = "FILE")]
    pub(crate) capture: Option<PathBuf>,
    /// Address that answers GET /metrics over HTTP, in the text format of Prometheus
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) metrics: Option<SocketAddr>,
    #[command(flatten)]
    pub(crate) place: Place,
    /// Report as JSON, one object a line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args)]
pub(crate) struct Join {
    #[command(flatten)]
    pub(crate) agreed: Agreed,
    /// The aggregator's address
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) server: SocketAddr,
    /// The aggregator's public node key [default on loopback: server.node beside the key]
    #[arg(long, value_name = "KEY")]
    pub(crate) server_key: Option<NodeId>,
    /// This client's node key [default on loopback: client.identity beside the key]
    #[arg(long, value_name = "FILE")]
    pub(crate) identity: Option<PathBuf>,
    /// This client's number, from 0; a client's own key knows it
    #[arg(long)]
    pub(crate) client: Option<u16>,
    /// The safetensors file to contribute
    #[arg(long = "in", value_name = "FILE")]
    pub(crate) input: PathBuf,
    /// File to write the mean to; with a client's own key the encrypted sum, as `aggregate` writes it
    #[arg(long, value_name = "FILE")]
    pub(crate) out: PathBuf,
    #[command(flatten)]
    pub(crate) weighting: Weighting,
    /// Write Σ weight·x instead of the weighted mean
    #[arg(long)]
    pub(crate) sum: bool,
    /// Fewest clients of a sum to decrypt [default: the job's]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) min_clients: Option<u16>,
    /// File that keeps sealed chunks until the sum is back [default: OUT.spool]
    #[arg(long, value_name = "FILE")]
    pub(crate) spool: Option<PathBuf>,
    /// Seconds to look for an aggregator that does not answer, at least 10
    #[arg(long, default_value = "30", value_parser = seconds, value_name = "SECONDS")]
    pub(crate) wait: Duration,
    #[command(flatten)]
    pub(crate) path_config: PathConfig,
    /// Also write every datagram to this file, for Wireshark; payloads stay sealed
    #[arg(long, value_name = "FILE")]
    pub(crate) capture: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) place: Place,
    /// Report as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// The paths of datagrams to the aggregator.
#[derive(Args, Clone, Copy)]
pub(crate) struct PathConfig {
    /// Source ports to spray datagrams over, so that they take different paths through a network
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=16))]
    pub(crate) paths: u16,
    /// Flows to deal messages to, each with as many --paths; --paths 1 --split 4 keeps each message
    /// on one of four paths. Paths times flows: at most 16
    #[arg(long, default_value_t = 1, value_name = "FLOWS",
        value_parser = clap::value_parser!(u16).range(1..=16))]
    pub(crate) split: u16,
    #[command(flatten)]
    pub(crate) wire: Wire,
}

/// The sending and receiving of datagrams.
#[derive(Args, Clone, Copy)]
pub(crate) struct Wire {
    /// Longest datagram to send, in bytes of UDP payload: longer ones are faster, where the path
    /// carries them [default: 8900 on loopback, 1372 elsewhere]
    #[arg(long, value_name = "BYTES", value_parser = datagram_bytes)]
    pub(crate) datagram: Option<usize>,
    /// Pipelines, each with sockets and a thread of its own: as many as there are cores to spare.
    /// Those of a server listen at its port and the ones after it
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=16))]
    pub(crate) pipelines: u16,
    /// Poll the sockets instead of sleeping: spends a core to save some microseconds
    #[arg(long)]
    pub(crate) poll: bool,
}

/// A bad network. Each direction has the same faults, and a rate and a queue of its own.
#[derive(Args)]
pub(crate) struct Relay {
    /// Address that clients send to
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: SocketAddr,
    /// The server's address
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) to: SocketAddr,
    /// Milliseconds that each datagram is delayed
    #[arg(long, default_value = "0", value_parser = milliseconds, value_name = "MS")]
    pub(crate) delay: Duration,
    /// Most milliseconds of further delay, drawn for each datagram: they overtake each other
    #[arg(long, default_value = "0", value_parser = milliseconds, value_name = "MS")]
    pub(crate) jitter: Duration,
    /// Datagrams lost
    #[arg(long, default_value = "0", value_parser = percent, value_name = "PERCENT")]
    pub(crate) loss: u32,
    /// Datagrams sent on twice
    #[arg(long, default_value = "0", value_parser = percent, value_name = "PERCENT")]
    pub(crate) duplicate: u32,
    /// Datagrams of which one bit is flipped
    #[arg(long, default_value = "0", value_parser = percent, value_name = "PERCENT")]
    pub(crate) corrupt: u32,
    /// Datagrams cut to their header
    #[arg(long, default_value = "0", value_parser = percent, value_name = "PERCENT")]
    pub(crate) trim: u32,
    /// Datagrams marked for congestion
    #[arg(long, default_value = "0", value_parser = percent, value_name = "PERCENT")]
    pub(crate) mark: u32,
    /// Megabits a second that pass in each direction [default: no limit]
    #[arg(long, value_parser = rate, value_name = "MBIT/S")]
    pub(crate) rate: Option<NonZeroU64>,
    /// With --rate: datagrams that the queue holds
    #[arg(long, default_value = "128", requires = "rate", value_name = "DATAGRAMS",
        value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) queue: u32,
    /// With --rate: cut datagrams that find the queue full to their header instead of dropping them
    #[arg(long, requires = "rate")]
    pub(crate) trim_on_full: bool,
    /// Seed of all faults
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Seconds until it ends and prints what it did [default: until it is killed, silently]
    #[arg(long, value_parser = seconds)]
    pub(crate) seconds: Option<Duration>,
    /// Report as JSON, one object a line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args)]
pub(crate) struct Inspect {
    /// A key, job, ranges, contribution, sum, spool or safetensors file
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// With --json and Paillier: also list the raw ciphertexts, big-endian hexadecimal
    #[arg(long, requires = "json")]
    pub(crate) ciphertexts: bool,
    /// Report as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

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

/// An operation whose program is shown.
#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum Explained {
    Encrypt,
    Aggregate,
    Decrypt,
}

#[derive(Args)]
pub(crate) struct Explain {
    /// The operation
    pub(crate) operation: Explained,
    /// ckks-sum, ckks-sum-public, paillier-2048, paillier-3072 or paillier-4096
    #[arg(long, default_value = "ckks-sum", value_parser = scheme)]
    pub(crate) scheme: Scheme,
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
    #[command(flatten)]
    pub(crate) set: Set,
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
    /// One engine, as `ciphergram devices` names it, or auto [default: all but reference]
    #[arg(long, value_name = "NAME")]
    pub(crate) engine: Option<String>,
    /// Threads, 1 to 1024
    #[arg(long, default_value = "1", value_parser = threads)]
    pub(crate) threads: usize,
    /// Seconds to measure each row, after warming up; at least five samples are taken
    #[arg(long, default_value = "1", value_parser = seconds)]
    pub(crate) seconds: Duration,
    /// Sizes of Paillier keys, separated by commas: 2048, 3072, 4096
    #[arg(long, value_name = "LIST", default_value = "2048,3072", value_parser = key_sizes)]
    pub(crate) bits: KeySizes,
    /// Also write all figures to this file, as benches/README.md says
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Also measure Paillier keys of 1024 bits, which protect nothing: for comparison with papers
    #[arg(long)]
    pub(crate) insecure_1024: bool,
}

/// Sizes of n in bits, each once.
#[derive(Clone)]
pub(crate) struct KeySizes(pub(crate) Vec<u32>);

/// A clipping policy as typed; aciq gets its bits from another option.
#[derive(Clone, Copy)]
pub(crate) enum PolicyName {
    Max,
    Sigma(f64),
    Aciq,
    Fixed(f64),
}

impl PolicyName {
    pub(crate) fn at_bits(self, bits: u32) -> Policy {
        match self {
            Self::Max => Policy::Max,
            Self::Sigma(multiple) => Policy::Sigma(multiple),
            Self::Aciq => Policy::Aciq { bits },
            Self::Fixed(range) => Policy::Fixed(range),
        }
    }
}

fn scheme(text: &str) -> Result<Scheme, ParameterError> {
    text.parse()
}

fn weight(text: &str) -> Result<u64, String> {
    text.parse()
        .ok()
        .filter(|w| (1..=u64::from(u32::MAX)).contains(w))
        .ok_or_else(|| "a weight is an integer from 1 to 4294967295".into())
}

fn clip(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|c: &f64| c.is_finite() && *c > 0.0)
        .ok_or_else(|| "a clipping range is a positive number".into())
}

fn seconds(text: &str) -> Result<Duration, String> {
    text.parse()
        .ok()
        .filter(|s: &f64| (0.001..=1e7).contains(s))
        .map(Duration::from_secs_f64)
        .ok_or_else(|| "a number of seconds from 0.001 to 10000000".into())
}

/// Parses the longest datagram: no shorter than holds a chunk, no longer than UDP carries.
fn datagram_bytes(text: &str) -> Result<usize, String> {
    let range = DEFAULT_DATAGRAM_BYTES..=MAX_DATAGRAM_BYTES;
    let bytes = text.parse().ok().filter(|bytes| range.contains(bytes));
    bytes.ok_or_else(|| format!("a number of bytes from {} to {}", range.start(), range.end()))
}

fn milliseconds(text: &str) -> Result<Duration, String> {
    text.parse()
        .ok()
        .filter(|ms: &f64| (0.0..=60_000.0).contains(ms))
        .map(|ms| Duration::from_secs_f64(ms / 1e3))
        .ok_or_else(|| "a number of milliseconds from 0 to 60000".into())
}

/// Parses a percentage to parts of a million.
fn percent(text: &str) -> Result<u32, String> {
    text.parse()
        .ok()
        .filter(|percent: &f64| (0.0..=100.0).contains(percent))
        .map(|percent| (percent / 100.0 * f64::from(MILLION)).round() as u32)
        .ok_or_else(|| "a percentage from 0 to 100".into())
}

/// Parses megabits a second to bits a second.
fn rate(text: &str) -> Result<NonZeroU64, String> {
    text.parse()
        .ok()
        .filter(|megabits: &f64| (0.001..=1e6).contains(megabits))
        .and_then(|megabits| NonZeroU64::new((megabits * 1e6) as u64))
        .ok_or_else(|| "a number of megabits a second from 0.001 to 1000000".into())
}

fn threads(text: &str) -> Result<usize, String> {
    text.parse()
        .ok()
        .filter(|threads| (1..=1024).contains(threads))
        .ok_or_else(|| "a number of threads from 1 to 1024".into())
}

fn key_sizes(text: &str) -> Result<KeySizes, String> {
    let mut found = vec![];
    for word in text.split(',') {
        let bits = word.parse().ok().filter(|bits| [1024, 2048, 3072, 4096].contains(bits));
        let bits =
            bits.ok_or_else(|| format!("no keys of {word:?} bits; there are 2048, 3072, 4096"))?;
        if !found.contains(&bits) {
            found.push(bits);
        }
    }
    Ok(KeySizes(found))
}

fn policy(text: &str) -> Result<PolicyName, String> {
    let number = |t: &str| t.parse().ok().filter(|m: &f64| m.is_finite() && *m > 0.0);
    let needs = |name| format!("{name}: takes a positive number");
    match text.split_once(':') {
        None if text == "max" => Ok(PolicyName::Max),
        None if text == "aciq" => Ok(PolicyName::Aciq),
        Some((name @ "sigma", rest)) => number(rest).map(PolicyName::Sigma).ok_or(needs(name)),
        Some((name @ "fixed", rest)) => number(rest).map(PolicyName::Fixed).ok_or(needs(name)),
        _ => Err("a policy is max, sigma:MULTIPLE, aciq or fixed:RANGE".into()),
    }
}
