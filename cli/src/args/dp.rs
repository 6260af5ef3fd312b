//! The command line of `ciphergram dp`.

use clap::Args;

#[derive(Args)]
pub(crate) struct Dp {
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
    /// Report as JSON
    #[arg(long)]
    pub(crate) json: bool,
}
