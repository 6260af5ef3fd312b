//! The arguments of `bench`.

use std::{path::PathBuf, time::Duration};

use ciphergram_accel::Choice;
use ciphergram_benches::cases::{self, Cases};
use clap::Args;

use super::{
    FiguresArg, engine_name,
    values::{KeySizes, clock, key_sizes, seconds, threads},
};

#[derive(Args)]
#[command(after_long_help = cases::help())]
pub(crate) struct Bench {
    /// Operations, separated by commas, or a scheme for all of its own: see --help
    #[arg(
        long, value_name = "LIST", default_value = "paillier,ckks-sum",
        value_parser = Cases::parse
    )]
    pub(crate) ops: Cases,
    /// Engines, separated by commas: only gpu, fpga and auto open a device
    #[arg(long, value_name = "LIST", value_parser = engine_name(), value_delimiter = ',', default_value = "cpu")]
    pub(crate) engine: Vec<Choice>,
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
    #[command(flatten)]
    pub(crate) figures: FiguresArg,
}
