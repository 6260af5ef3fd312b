//! The aggregator that a client looks for, and why it does not answer.

use std::{
    net::SocketAddr,
    ops::ControlFlow,
    path::Path,
    time::{Duration, Instant},
};

use ciphergram_nic::{
    federation::{
        Error, Participation, ParticipationPhase, PathConfig, RoundResult, SocketClient,
        SocketClientConfig,
    },
    wire::{PcapFile, tcp::dial::DialError},
};

use super::refused;
use crate::{
    args::JoinArgs,
    failure::Failure,
    files::{self, FileKind},
    nodes,
    report::warn,
};

/// The silence after which a client says for how long it waits, if it waits for twice as long: one that starts first
/// is no fault.
const REPORTED_AFTER: Duration = Duration::from_secs(5);

/// The aggregator as a client finds it.
pub(super) struct FoundServer<'a> {
    args: &'a JoinArgs,
    client: SocketClient,
    /// The option or the file that the aggregator's node key is from.
    key_source: String,
}

impl<'a> FoundServer<'a> {
    /// Finds out where the server of a command may be, and reads the node keys, for client `number`.
    pub(super) fn find(
        args: &'a JoinArgs,
        number: u16,
        paths: PathConfig,
    ) -> Result<Self, Failure> {
        let node_args = (&*args.agreed.key.path, &args.link, &args.server_key);
        let (server, keys) = nodes::client(node_args, &args.server)?;
        let (node, identity, pipelines) = (keys.server, keys.identity, args.link.tune.pipelines);
        let config = SocketClientConfig { server, node, number, identity, paths, pipelines };
        Ok(Self { args, client: SocketClient::new(config), key_source: keys.server_source })
    }

    /// Takes part in a round by whichever way somebody answers, and takes leave.
    pub(super) fn contribute(
        mut self,
        participation: &Participation<'_>,
        spool: &Path,
        mut follow: impl FnMut(ParticipationPhase),
    ) -> Result<RoundResult, Failure> {
        if let Some(path) = &self.args.link.capture {
            self.client.capture(PcapFile::new(files::create(path, FileKind::Capture)?)?);
        }
        let (args, key_source) = (self.args, &self.key_source);
        let (wait, start, mut reported) = (args.wait, Instant::now(), false);
        let observe = |phase| {
            follow(phase);
            let waits =
                matches!(phase, ParticipationPhase::Contacting { .. }) && start.elapsed() < wait;
            if !reported && waits && start.elapsed() >= REPORTED_AFTER.min(wait / 2) {
                reported = true;
                warn(&format!(
                    "no answer from {} yet: waiting up to {} s for it (a server whose node key is not that of \
                     {key_source} stays silent)",
                    args.server,
                    wait.as_secs_f64()
                ));
            }
            ControlFlow::Continue(())
        };
        match self.client.contribute(participation, observe) {
            Ok(result) => {
                self.client.leave()?;
                Ok(result)
            }
            Err(Error::Unreachable { has_answered, is_closed, dial, .. }) => {
                Err(self.silence(has_answered, is_closed, dial))
            }
            Err(Error::Unlisted { server, node }) => Err(Failure::Work(format!(
                "{} does not list this node, {node}: its owner adds it to the allow list (`ciphergram serve --allow`)",
                self.describe(&[server])
            ))),
            Err(error) => Err(refused(args, spool, error)),
        }
    }

    /// Describes why nobody answers, as far as that can be told from here.
    fn silence(&self, has_answered: bool, is_closed: bool, dial: Option<DialError>) -> Failure {
        let server = self.describe(self.client.server().addresses());
        let seconds = self.args.wait.as_secs_f64();
        let why = if has_answered {
            "it answered before, and is gone or cut off; the same command goes on with what was \
             sealed"
                .into()
        } else if is_closed {
            "nothing listens there: is `ciphergram serve` running, and is this its address?".into()
        } else {
            format!(
                "nothing listens there, datagrams are dropped on the way, or its node key is not \
                 that of {}: the log of `ciphergram serve` tells which",
                self.key_source
            )
        };
        let dial = match dial {
            // Of a port where nothing listens this is no news.
            Some(why) if !why.is_refused() => format!("; {why}"),
            _ => String::new(),
        };
        Failure::Work(format!("no answer from {server} in {seconds} s: {why}{dial}"))
    }

    /// Names the server as it was typed, and the addresses that this stands for.
    fn describe(&self, addresses: &[SocketAddr]) -> String {
        let name = &self.args.server;
        let all: Vec<_> = addresses.iter().map(SocketAddr::to_string).collect();
        if all.is_empty() || all == [name.as_str()] {
            name.to_string()
        } else {
            format!("{name} ({})", all.join(", "))
        }
    }
}
