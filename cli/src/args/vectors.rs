//! The arguments of commands that compute on vectors.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{
    EngineArgs, ReportArgs,
    values::{clip, cosine, norm},
};

/// How to encrypt under a key of the levelled scheme.
#[derive(Args)]
pub(crate) struct VectorArgs {
    /// Under a key of vectors: largest magnitude of a value, the same for all clients; it is public [default: that
    /// of this file, rounded up to a power of two, or --clip]
    #[arg(long, value_name = "LIMIT", value_parser = clip)]
    pub(crate) range: Option<f64>,
    /// Under a key of vectors: each column of the one tensor by itself, as a batch for predict
    #[arg(long)]
    pub(crate) columns: bool,
}

impl VectorArgs {
    /// Returns the options, and whether they are given.
    pub(crate) fn given(&self) -> [(&'static str, bool); 2] {
        [("--range", self.range.is_some()), ("--columns", self.columns)]
    }
}

#[derive(Subcommand)]
#[command(arg_required_else_help = false)]
pub(crate) enum VectorsCommand {
    /// Compute norms and directions of encrypted updates, before they are summed
    Screen(ScreenArgs),
    /// Decrypt scores, and write the weights that follow from limits
    Scores(ScoresArgs),
    /// Run a model on encrypted values
    Predict(PredictArgs),
}

#[derive(Args)]
pub(crate) struct ScreenArgs {
    /// The evaluation key, made with keygen --rotations sum
    #[arg(long, value_name = "FILE")]
    pub(crate) key: PathBuf,
    /// An encrypted update that others are compared with: their products with it are computed too
    #[arg(long, value_name = "FILE")]
    pub(crate) against: Option<PathBuf>,
    /// File to write the encrypted scores to
    #[arg(long, value_name = "FILE")]
    pub(crate) out: PathBuf,
    /// The encrypted updates
    #[arg(required = true, value_name = "FILE")]
    pub(crate) inputs: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) place: EngineArgs,
    #[command(flatten)]
    pub(crate) report: ReportArgs,
}

#[derive(Args)]
pub(crate) struct ScoresArgs {
    /// The secret key
    #[arg(long, value_name = "FILE")]
    pub(crate) key: PathBuf,
    /// The encrypted scores
    #[arg(long = "in", value_name = "FILE")]
    pub(crate) input: PathBuf,
    /// L2 norm that longer updates are clipped to
    #[arg(long, value_name = "NORM", value_parser = norm)]
    pub(crate) max_norm: Option<f64>,
    /// Least cosine between an update and the reference; others are dropped
    #[arg(long, value_name = "COSINE", value_parser = cosine, allow_negative_numbers = true)]
    pub(crate) min_cosine: Option<f64>,
    /// File to write the encrypted weights to, for aggregate --weights
    #[arg(long, value_name = "FILE")]
    pub(crate) out: PathBuf,
    #[command(flatten)]
    pub(crate) report: ReportArgs,
}

#[derive(Args)]
pub(crate) struct PredictArgs {
    /// The evaluation key; for one sample, made with keygen --rotations matrix:ROWSxCOLUMNS for each layer
    #[arg(long, value_name = "FILE")]
    pub(crate) key: PathBuf,
    /// The model: a safetensors file of one or two linear layers
    #[arg(long, value_name = "FILE")]
    pub(crate) model: PathBuf,
    /// The encrypted input: a batch, encrypted with --columns, or one sample
    #[arg(long = "in", value_name = "FILE")]
    pub(crate) input: PathBuf,
    /// File to write the encrypted answers to
    #[arg(long, value_name = "FILE")]
    pub(crate) out: PathBuf,
    #[command(flatten)]
    pub(crate) place: EngineArgs,
    #[command(flatten)]
    pub(crate) report: ReportArgs,
}
