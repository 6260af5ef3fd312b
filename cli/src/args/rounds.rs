//! The arguments of rounds of processes.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use ciphergram_nic::{
    federation::Transports,
    proto::{DatagramSizes, NodeId},
    wire::tcp::dial::Proxy,
};
use clap::Args;

use super::{
    Agreed, ClientArg, ClientsArgs, EngineArgs, InArg, IntegersChoice, OutArg, ReportArgs, Used,
    files::{Opening, Weighting},
    tune::Tune,
    values::{ServerName, address, datagram_sizes, node, seconds},
};

#[derive(Args)]
pub(crate) struct Serve {
    #[command(flatten)]
    pub(crate) agreed: Agreed,
    /// Host, a name or an address, and port to listen at; other than on loopback, from a bundle or with
    /// --identity and --allow
    #[arg(long, default_value = "127.0.0.1:7700", value_parser = address, value_name = "HOST:PORT")]
    pub(crate) listen: SocketAddr,
    #[command(flatten)]
    pub(crate) clients: ClientsArgs,
    /// Rounds to run, numbered from 0; 0 runs rounds until it is stopped
    #[arg(long, default_value_t = 1)]
    pub(crate) rounds: u32,
    /// Seconds from a round's opening until it closes with the clients that are in it
    #[arg(long, default_value = "60", value_parser = seconds, value_name = "SECONDS")]
    pub(crate) deadline: Duration,
    /// Seconds from the first client's joining, or from the end of the round before, until a round
    /// opens without those that are missing. If fewer than --min-clients are there, those who are get
    /// refused and the command fails; with --rounds 0 it waits for the next ones
    #[arg(long, default_value = "300", value_parser = seconds, value_name = "SECONDS")]
    pub(crate) join_deadline: Duration,
    /// Wait on for clients that are missing, however long; who they are is said at each
    /// --join-deadline
    #[arg(long)]
    pub(crate) wait_for_clients: bool,
    /// Count each chunk that arrives, also of contributions that stay incomplete: sums of one round may then be of
    /// different clients. Otherwise what is incomplete waits in memory, up to 4 GiB of all clients together
    #[arg(long)]
    pub(crate) by_chunk: bool,
    /// The key that private ranges are found with, for a job that agrees on such [default: ranges-evaluation.cgk beside
    /// the key]
    #[arg(long, value_name = "FILE")]
    pub(crate) ranges_key: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) link: LinkArgs,
    /// Address of a status page over HTTP, with /metrics for Prometheus, /healthz and /readyz; best on loopback
    #[arg(long, value_parser = address, value_name = "HOST:PORT")]
    pub(crate) metrics: Option<SocketAddr>,
    #[command(flatten)]
    pub(crate) place: EngineArgs,
    #[command(flatten)]
    pub(crate) report: ReportArgs,
}

#[derive(Args)]
pub(crate) struct JoinArgs {
    #[command(flatten)]
    pub(crate) agreed: Agreed,
    #[command(flatten)]
    pub(crate) used: Used,
    /// The aggregator's host, a name or an address, and port; of a name all addresses are tried
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) server: ServerName,
    #[command(flatten)]
    pub(crate) server_key: ServerKeyArg,
    #[command(flatten)]
    pub(crate) client: ClientArg,
    #[command(flatten)]
    pub(crate) input: InArg,
    #[command(flatten)]
    pub(crate) out: OutArg,
    /// Rounds to take part in, one after the other
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rounds: u32,
    /// Shell command to run before each round, which makes the file to contribute; it prints to standard error
    #[arg(long, value_name = "COMMAND")]
    pub(crate) before: Option<String>,
    #[command(flatten)]
    pub(crate) integers: IntegersChoice,
    #[command(flatten)]
    pub(crate) weighting: Weighting,
    #[command(flatten)]
    pub(crate) opening: Opening,
    /// File that keeps sealed chunks, and the sum, until the output is on disk [default: OUT.spool]
    #[arg(long, value_name = "FILE")]
    pub(crate) spool: Option<PathBuf>,
    /// Seconds to look for an aggregator that does not answer
    #[arg(long, default_value = "30", value_parser = seconds, value_name = "SECONDS")]
    pub(crate) wait: Duration,
    #[command(flatten)]
    pub(crate) link: LinkArgs,
    #[command(flatten)]
    pub(crate) place: EngineArgs,
    #[command(flatten)]
    pub(crate) report: ReportArgs,
}

#[derive(Args)]
pub(crate) struct OpenerArgs {
    #[command(flatten)]
    pub(crate) agreed: Agreed,
    #[command(flatten)]
    pub(crate) used: Used,
    /// A request to this opener, as aggregate --requests writes it
    #[arg(long = "in", value_name = "FILE", requires = "out")]
    pub(crate) input: Option<PathBuf>,
    /// The answer to it
    #[arg(long, value_name = "FILE", requires = "input")]
    pub(crate) out: Option<PathBuf>,
    /// Answer what the aggregator of rounds at this host and port asks, until stopped
    #[arg(
        long,
        value_name = "HOST:PORT",
        conflicts_with = "input",
        required_unless_present = "input"
    )]
    pub(crate) server: Option<ServerName>,
    /// With --server: address of /metrics for Prometheus, /healthz and /readyz over HTTP; best on loopback
    #[arg(long, value_name = "IP:PORT", requires = "server")]
    pub(crate) metrics: Option<SocketAddr>,
    #[command(flatten)]
    pub(crate) server_key: ServerKeyArg,
    #[command(flatten)]
    pub(crate) link: LinkArgs,
    #[command(flatten)]
    pub(crate) report: ReportArgs,
}

/// The aggregator's node.
#[derive(Args)]
pub(crate) struct ServerKeyArg {
    /// The aggregator's public node key [default of a bundle, and on loopback: server.node beside the key]
    #[arg(long = "server-key", value_name = "KEY", value_parser = node)]
    pub(crate) node: Option<NodeId>,
    /// HTTP proxy for connections by TCP, http://HOST:PORT or http://USER:PASSWORD@HOST:PORT [default: that of
    /// HTTPS_PROXY, but to hosts of NO_PROXY and this machine]
    #[arg(long, value_name = "URL")]
    pub(crate) proxy: Option<Proxy>,
}

/// A node's key and its datagrams.
#[derive(Args)]
pub(crate) struct LinkArgs {
    /// This node's key [default of a bundle, and on loopback: server.identity or client.identity beside the key]
    #[arg(long, value_name = "FILE")]
    pub(crate) identity: Option<PathBuf>,
    /// The longest datagrams that a path is tried with, in bytes of UDP payload
    #[arg(long, value_name = "BYTES", default_value = "8900", value_parser = datagram_sizes)]
    pub(crate) datagram: DatagramSizes,
    /// pipelines=N with sockets and a thread each, for cores to spare: serve listens at its port and the ones after
    /// it; poll, to spend a core on some microseconds; of join also paths=N source ports to spray datagrams over, so
    /// that they take different paths, and split=N flows to deal messages to, each with as many paths (paths times
    /// split: at most 16)
    #[arg(long, value_name = "LIST", default_value = "pipelines=1")]
    pub(crate) tune: Tune,
    /// udp, tcp, or auto: serve listens by both, others try UDP, then TCP at the same port
    #[arg(long, value_name = "NAME", default_value = "auto")]
    pub(crate) transport: Transports,
    /// Also write every datagram to this file, for Wireshark; payloads stay sealed
    #[arg(long, value_name = "FILE")]
    pub(crate) capture: Option<PathBuf>,
}
