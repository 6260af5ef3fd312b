//! The arguments of commands that compute on vectors.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{
    EngineArgs, InArg, KeyArg, OutArg, ReportArgs,
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
    ///
    /// The key is the evaluation key, made with keygen --rotations sum.
    Screen(ScreenArgs),
    /// Decrypt scores, and write the weights that follow from limits, encrypted, for aggregate --weights
    Scores(ScoresArgs),
    /// Run a model on encrypted values: a batch, encrypted with --columns, or one sample
    ///
    /// The key is the evaluation key, for one sample made with keygen --rotations matrix:ROWSxCOLUMNS for each layer.
    Predict(PredictArgs),
}

#[derive(Args)]
pub(crate) struct ScreenArgs {
    #[command(flatten)]
    pub(crate) key: KeyArg,
    /// An encrypted update that others are compared with: their products with it are computed too
    #[arg(long, value_name = "FILE")]
    pub(crate) against: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) out: OutArg,
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
    #[command(flatten)]
    pub(crate) key: KeyArg,
    #[command(flatten)]
    pub(crate) input: InArg,
    /// L2 norm that longer updates are clipped to
    #[arg(long, value_name = "NORM", value_parser = norm)]
    pub(crate) max_norm: Option<f64>,
    /// Least cosine between an update and the reference; others are dropped
    #[arg(long, value_name = "COSINE", value_parser = cosine, allow_negative_numbers = true)]
    pub(crate) min_cosine: Option<f64>,
    #[command(flatten)]
    pub(crate) out: OutArg,
    #[command(flatten)]
    pub(crate) report: ReportArgs,
}

#[derive(Args)]
pub(crate) struct PredictArgs {
    #[command(flatten)]
    pub(crate) key: KeyArg,
    /// The model: a safetensors file of one or two linear layers
    #[arg(long, value_name = "FILE")]
    pub(crate) model: PathBuf,
    #[command(flatten)]
    pub(crate) input: InArg,
    #[command(flatten)]
    pub(crate) out: OutArg,
    #[command(flatten)]
    pub(crate) place: EngineArgs,
    #[command(flatten)]
    pub(crate) report: ReportArgs,
}
