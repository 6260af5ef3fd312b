//! The command line.

mod demo;
mod files;
mod keys;
mod measure;
mod rounds;
mod show;
mod tune;
mod values;
mod vectors;

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

use ciphergram_accel::Choice;
use ciphergram_he::{Error, Integers, Ledger, Scheme, params::Literal};
use clap::{
    ArgAction, Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand, ValueEnum,
    builder::{PossibleValuesParser, TypedValueParser},
    error::{ContextKind, ContextValue},
};
use clap_complete::Shell;

pub(crate) use demo::{DemoArgs, DemoClientArgs};
pub(crate) use files::{AggregateArgs, DecryptArgs, EncryptArgs, InspectArgs, RangesArgs};
pub(crate) use keys::{BundleArgs, IdentityArgs, JobArgs, KeygenArgs};
pub(crate) use measure::Bench;
pub(crate) use rounds::{JoinArgs, LinkArgs, OpenerArgs, Serve, ServerKeyArg};

pub(crate) use show::{
    DevicesArgs, NoiseArgs, ParamsArgs, ProgramArgs, ShowCommand, ShownOperation,
};
pub(crate) use tune::Tune;
use values::any_scheme;
pub(crate) use values::{AnyScheme, JobRanges, ServerName};
pub(crate) use vectors::{PredictArgs, ScoresArgs, ScreenArgs, VectorsCommand};

/// Encrypted gradient sums over reliable datagrams.
#[derive(Parser)]
#[command(name = "ciphergram", version, max_term_width = 100)]
pub(crate) struct Arguments {
    /// Format of log lines on standard error; CIPHERGRAM_LOG=info asks for more of them
    #[arg(long, global = true, value_name = "FORMAT", value_enum, default_value_t = LogFormat::Text)]
    pub(crate) log: LogFormat,
    #[command(subcommand)]
    pub(crate) command: CliCommand,
}

/// Returns the first paragraph of the parser's message as one line, and what may have been meant.
pub(crate) fn line(error: &clap::Error) -> String {
    let text = error.to_string();
    let paragraph = text.split("\n\n").next().unwrap_or_default();
    let mut line = paragraph.split_whitespace().collect::<Vec<_>>().join(" ");
    if let Some(meant) = suggestion(error) {
        line += &format!("; did you mean '{meant}'?");
    }
    line
}

/// Returns the best of the parser's guesses at what was meant, which is its last.
fn suggestion(error: &clap::Error) -> Option<&str> {
    let kinds =
        [ContextKind::SuggestedSubcommand, ContextKind::SuggestedArg, ContextKind::SuggestedValue];
    match kinds.into_iter().find_map(|kind| error.get(kind))? {
        ContextValue::String(meant) => Some(meant),
        ContextValue::Strings(all) => all.last().map(String::as_str),
        _ => None,
    }
}

impl Arguments {
    /// Parses what the person typed.
    ///
    /// # Errors
    /// It is no command, or asks for help.
    pub(crate) fn parse_words(words: Vec<OsString>) -> Result<Self, clap::Error> {
        let mut command = command();
        let matches = command.try_get_matches_from_mut(words)?;
        Self::from_arg_matches(&matches).map_err(|e| e.format(&mut command))
    }
}

/// Returns all commands. A number below zero is taken for an option's value, so that what refuses it names the option.
pub(crate) fn command() -> clap::Command {
    let all = Arguments::command();
    with_negative_values(all)
}

fn with_negative_values(command: clap::Command) -> clap::Command {
    let takes_value =
        |arg: &clap::Arg| !arg.is_positional() && matches!(arg.get_action(), ArgAction::Set);
    let command = command.mut_args(|arg| match takes_value(&arg) {
        true => arg.allow_negative_numbers(true),
        false => arg,
    });
    command.mut_subcommands(with_negative_values)
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
pub(crate) enum CliCommand {
    /// Train a digit classifier with federated clients, encrypted, beside its plaintext twin
    Demo(DemoArgs),
    #[command(hide = true)]
    DemoClient(DemoClientArgs),
    /// Make keys and a job: public.json to sum with, and what clients encrypt with
    ///
    /// Under ckks-sum-threshold each client has an identity, clients/NUMBER.json, and they open sums together; under
    /// other schemes secret.json opens them. The folder also gets node keys for rounds on this machine.
    Keygen(KeygenArgs),
    /// Make a job: what clients agree on once, and hold the aggregator to; no file is overwritten
    Job(JobArgs),
    /// Make a folder for each machine of a federation, the aggregator and each client: key, job and node keys
    Bundle(BundleArgs),
    /// Make a node key, for rounds between machines; no file is overwritten
    Identity(IdentityArgs),
    /// Measure a client's clipping ranges, merge those of all clients, or agree on some without showing any
    Ranges(RangesArgs),
    /// Encrypt a safetensors file
    Encrypt(EncryptArgs),
    /// Sum encrypted files, without the secret key
    Aggregate(AggregateArgs),
    /// Answer an aggregator's request as an opener of a job, once a round
    Opener(OpenerArgs),
    /// Decrypt a sum to the weighted mean, or the weighted sum
    Decrypt(DecryptArgs),
    /// Compute on encrypted vectors: norms and directions of updates, weights for their sum, answers of a model
    #[command(subcommand)]
    Vectors(VectorsCommand),
    /// Run the aggregator of rounds: add what clients send as it arrives
    Serve(Serve),
    /// Take part in a round: encrypt, send, receive the sum, decrypt the mean
    ///
    /// With a client's own key, which decrypts nothing, the sum is written as aggregate writes it.
    Join(JoinArgs),
    /// Describe a file, without its secrets
    Inspect(InspectArgs),
    /// Show what things come to: sizes, programs, engines, noise
    #[command(subcommand)]
    Show(ShowCommand),
    /// Time the operations of both schemes, beside the limit of the processor
    Bench(Bench),
    /// Print what completes commands in a shell
    Complete(CompleteArgs),
    #[command(hide = true)]
    Man(ManArgs),
}

/// Instructions for shells, which look for completions in places of their own.
const COMPLETIONS: &str = "Where it goes:
  bash  ~/.local/share/bash-completion/completions/ciphergram
  zsh   _ciphergram in a folder of $fpath
  fish  ~/.config/fish/completions/ciphergram.fish";

#[derive(Args)]
#[command(after_help = COMPLETIONS)]
pub(crate) struct CompleteArgs {
    /// The shell
    pub(crate) shell: Shell,
}

/// Writes a manual page for each command: for those who make packages.
#[derive(Args)]
pub(crate) struct ManArgs {
    /// Folder to write them to
    #[arg(value_name = "FOLDER")]
    pub(crate) folder: PathBuf,
}

/// The form of what a command reports.
#[derive(Args, Clone, Copy)]
pub(crate) struct ReportArgs {
    /// Report as JSON; serve and join one object a line
    #[arg(long)]
    pub(crate) json: bool,
}

/// The choice of an engine.
#[derive(Args, Clone, Copy)]
pub(crate) struct EngineArgs {
    /// Engine that runs programs: gpu, and fpga, the card that CIPHERGRAM_FPGA names, leave to the CPU what they cannot
    /// do; auto takes the faster of CPU and GPU or splits batches, once there is work for four seconds; reference,
    /// which engines are tested against, is slow
    #[arg(long, value_name = "NAME", value_parser = engine_name(), default_value = "cpu")]
    pub(crate) engine: Choice,
}

/// Parses an engine, or a way to choose one, by its name.
fn engine_name() -> impl TypedValueParser<Value = Choice> {
    PossibleValuesParser::new(Choice::ALL.map(Choice::name)).try_map(|name| name.parse::<Choice>())
}

/// The choices that a parameter set is derived from.
#[derive(Args)]
pub(crate) struct Set {
    /// ckks-sum-threshold, ckks-sum, paillier-2048, paillier-3072 or paillier-4096, for sums; ckks-4096x1,
    /// ckks-4096x2, ckks-8192x7 or ckks-16384x14, for vectors to compute with, by slots and levels
    #[arg(long, default_value = "ckks-sum-threshold", value_parser = any_scheme)]
    pub(crate) scheme: AnyScheme,
    /// Most clients that a sum will ever have, 1 to 1024: fields get headroom for them [default: 64]
    #[arg(long)]
    clients: Option<u32>,
    /// Bits of a quantised value, 8 to 24 [default: 16]
    #[arg(long)]
    bits: Option<u32>,
}

impl Set {
    /// Returns the literal of a set of this scheme.
    pub(crate) fn literal(&self, scheme: Scheme) -> Literal {
        Literal { scheme, clients: self.clients.unwrap_or(64), bits: self.bits.unwrap_or(16) }
    }

    /// Returns the options that a preset has none of, and whether they are given.
    pub(crate) fn of_sums(&self) -> [(&'static str, bool); 2] {
        [("--clients", self.clients.is_some()), ("--bits", self.bits.is_some())]
    }
}

/// The choice of what becomes of integers.
#[derive(Args, Clone, Copy)]
pub(crate) struct IntegersChoice {
    /// Integer and bool tensors: keep leaves them out of the sum, and each client keeps its own; sum sums them exactly,
    /// a mean rounded to the nearest; refuse takes them for an error
    #[arg(id = "integers", long = "integers", value_name = "HOW", value_parser = integers(), default_value = "keep")]
    pub(crate) policy: Integers,
}

fn integers() -> impl TypedValueParser<Value = Integers> {
    PossibleValuesParser::new(Integers::NAMES)
        .map(|name| Integers::from_name(&name).unwrap_or_default())
}

/// The record of a key's use.
#[derive(Args)]
pub(crate) struct Used {
    /// The secret key's ledger, which rounds and sums are recorded in [default: that of CIPHERGRAM_LEDGER, or the one
    /// beside the key]
    #[arg(long, value_name = "FILE")]
    pub(crate) ledger: Option<PathBuf>,
}

impl Used {
    /// Returns the ledger of a key's file.
    pub(crate) fn ledger_of(&self, key: &Path) -> Result<Ledger, Error> {
        Ok(Ledger::at(Ledger::path_of(key, self.ledger.clone())?))
    }

    /// Returns the option that keys without a ledger have none of, and whether it is given.
    pub(crate) fn of_sums(&self) -> (&'static str, bool) {
        ("--ledger", self.ledger.is_some())
    }
}

/// The key of a command.
#[derive(Args)]
pub(crate) struct KeyArg {
    /// The key
    #[arg(id = "key", long = "key", value_name = "FILE")]
    pub(crate) path: PathBuf,
}

/// The input of a command.
#[derive(Args)]
pub(crate) struct InArg {
    /// File to read; - is standard input
    #[arg(id = "in", long = "in", value_name = "FILE")]
    pub(crate) path: PathBuf,
}

/// The output of a command.
#[derive(Args)]
pub(crate) struct OutArg {
    /// File to write
    #[arg(id = "out", long = "out", value_name = "FILE")]
    pub(crate) path: PathBuf,
}

/// The folder that a command fills.
#[derive(Args)]
pub(crate) struct FolderArg {
    /// Folder to make, or of keygen to fill; no file in it is overwritten
    #[arg(id = "out", long = "out", value_name = "FOLDER")]
    pub(crate) path: PathBuf,
}

/// The file for a command's figures.
#[derive(Args)]
pub(crate) struct FiguresArg {
    /// Also write all figures to this file, as JSON
    #[arg(id = "json", long = "json", value_name = "FILE")]
    pub(crate) path: Option<PathBuf>,
}

/// The number of a client.
#[derive(Args, Clone, Copy)]
pub(crate) struct ClientArg {
    /// This client's number, from 0; a client's own key knows it
    #[arg(id = "client", long = "client")]
    pub(crate) number: Option<u16>,
}

/// The clients of rounds.
#[derive(Args)]
pub(crate) struct ClientsArgs {
    /// Clients, numbered from 0 [default: the job's; of a new job as many as the key admits]
    #[arg(id = "clients", long = "clients", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) count: Option<u16>,
    /// Fewest clients of a sum that leaves the aggregator and is opened [default: the
    /// job's; of a new job two thirds of the clients, at least 3, or all if they are fewer]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) min_clients: Option<u16>,
    /// List of the nodes that may take part: a public node key and a client's number, or *, on each line [default of
    /// serve: the job's; of a bundle, and on loopback: clients.allow beside the key]. SIGHUP has serve read it again
    #[arg(long, value_name = "FILE")]
    pub(crate) allow: Option<PathBuf>,
}

/// The key and the job of a command.
#[derive(Args)]
pub(crate) struct Agreed {
    #[command(flatten)]
    pub(crate) key: KeyArg,
    /// The job [default: job.json beside the key or, for a key in clients/, in the folder above]
    #[arg(long, value_name = "FILE")]
    pub(crate) job: Option<PathBuf>,
}
