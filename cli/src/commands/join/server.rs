//! The aggregator that a client looks for: a name, the addresses that it stands for, and why none of them answers.

use std::{
    io::ErrorKind,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket},
    ops::ControlFlow,
    path::Path,
    time::{Duration, Instant},
};

use ciphergram_nic::{
    federation::{self, Client, Participation, PathConfig, Phase, RoundResult},
    wire::UdpWire,
};

use super::refused;
use crate::{
    args::{Join, ServerName},
    failure::Failure,
    files::{self, Kind},
    nodes::{self, ClientNodes},
    report::warn,
};

/// The time for which one of several addresses is tried before the next has its turn.
const TURN: Duration = Duration::from_secs(2);
/// The silence after which a client says for how long it waits, if it waits for twice as long: one that starts first
/// is no fault.
const TOLD_AFTER: Duration = Duration::from_secs(5);
/// The wait for a host's word that nothing listens at a port.
const REFUSAL_SPAN: Duration = Duration::from_millis(300);

/// The aggregator as a client finds it.
pub(super) struct Server<'a> {
    args: &'a Join,
    /// Addresses at which it may be; at least one.
    addresses: Vec<SocketAddr>,
    keys: ClientNodes,
}

/// The outcome of one address's turn.
enum Turn {
    Done(Box<RoundResult>),
    Silent {
        /// Whether it answered before.
        has_answered: bool,
    },
}

impl<'a> Server<'a> {
    /// Finds out where the server of a command may be, and reads the node keys.
    pub(super) fn find(args: &'a Join) -> Result<Self, Failure> {
        let mut addresses = resolve(&args.server)?;
        let keys = nodes::client(args, &addresses)?;
        if addresses.len() > 1 {
            // A machine may lack one of the two IPs.
            let binds = |address: &SocketAddr| UdpWire::bind_towards(*address, 1, 1).is_ok();
            let usable: Vec<_> = addresses.iter().copied().filter(binds).collect();
            if !usable.is_empty() {
                addresses = usable;
            }
        }
        Ok(Self { args, addresses, keys })
    }

    /// Takes part in a round at whichever address answers. Several have turns, until none has answered for as
    /// long as the command waits.
    pub(super) fn contribute(
        &self,
        participation: &Participation<'_>,
        paths: PathConfig,
        spool: &Path,
        mut follow: impl FnMut(Phase),
    ) -> Result<RoundResult, Failure> {
        let (wait, count) = (self.args.wait, self.addresses.len());
        let start = Instant::now();
        let (mut silent_since, mut answered, mut told) = (start, false, false);
        let mut observe = |phase| {
            follow(phase);
            let waits = matches!(phase, Phase::Contacting { .. }) && start.elapsed() < wait;
            if !told && waits && start.elapsed() >= TOLD_AFTER.min(wait / 2) {
                told = true;
                let (server, seconds) = (&self.args.server, wait.as_secs_f64());
                warn(&format!(
                    "no answer from {server} yet: waiting up to {seconds} s for it (a server whose node key is not \
                     that of {} stays silent)",
                    self.keys.server_source
                ));
            }
            ControlFlow::Continue(())
        };
        for &address in self.addresses.iter().cycle() {
            let mut patience = wait.saturating_sub(silent_since.elapsed());
            if count > 1 {
                patience = patience.min(TURN).min(wait / count as u32);
            }
            let turn = Participation { patience, ..participation.clone() };
            let has_answered = match self.try_at(address, &turn, paths, spool, &mut observe)? {
                Turn::Done(result) => return Ok(*result),
                Turn::Silent { has_answered } => has_answered,
            };
            answered |= has_answered;
            if has_answered && count > 1 {
                // It was there: it may come back, here or at another address.
                silent_since = Instant::now();
            } else if has_answered || silent_since.elapsed() >= wait {
                break;
            }
        }
        Err(self.silence(answered))
    }

    /// Takes part in a round at one address, if it answers.
    fn try_at(
        &self,
        address: SocketAddr,
        participation: &Participation<'_>,
        paths: PathConfig,
        spool: &Path,
        observe: &mut impl FnMut(Phase) -> ControlFlow<()>,
    ) -> Result<Turn, Failure> {
        let pipelines = self.args.path_config.wire.pipelines;
        let wires = UdpWire::bind_towards(address, pipelines, paths.sockets())?;
        let ClientNodes { identity, server, .. } = &self.keys;
        let (identity, number) = (identity.clone(), participation.member.key.number());
        let mut client = Client::new(wires, address, *server, number, identity, paths)?;
        if let Some(path) = &self.args.capture {
            client.capture(files::create(path, Kind::Capture)?)?;
        }
        let result = client.contribute(participation, observe);
        client.leave()?;
        match result {
            Ok(result) => Ok(Turn::Done(Box::new(result))),
            Err(federation::Error::Unreachable { has_answered, .. }) => {
                Ok(Turn::Silent { has_answered })
            }
            Err(federation::Error::Unlisted { node, .. }) => {
                let server = self.describe(&[address]);
                Err(Failure::Work(format!(
                    "{server} does not list this node, {node}: its owner adds it to the allow list \
                     (`ciphergram serve --allow`)"
                )))
            }
            Err(error) => Err(refused(self.args, spool, error)),
        }
    }

    /// Describes why nobody answers, as far as that can be told from here.
    fn silence(&self, has_answered: bool) -> Failure {
        let server = self.describe(&self.addresses);
        let seconds = self.args.wait.as_secs_f64();
        let why = if has_answered {
            "it answered before, and is gone or cut off; the same command goes on with what was \
             sealed"
                .into()
        } else if self.addresses.iter().all(is_closed) {
            "nothing listens there: is `ciphergram serve` running, and is this its address?".into()
        } else {
            format!(
                "nothing listens there, datagrams are dropped on the way, or its node key is not \
                 that of {}: the log of `ciphergram serve` tells which",
                self.keys.server_source
            )
        };
        Failure::Work(format!("no answer from {server} in {seconds} s: {why}"))
    }

    /// Names the server as it was typed, and the addresses that this stands for.
    fn describe(&self, addresses: &[SocketAddr]) -> String {
        let name = &self.args.server;
        let all: Vec<_> = addresses.iter().map(SocketAddr::to_string).collect();
        if all.len() == 1 && all[0] == name.as_str() {
            all[0].clone()
        } else {
            format!("{name} ({})", all.join(", "))
        }
    }
}

/// Returns the addresses that a name stands for, each once.
fn resolve(server: &ServerName) -> Result<Vec<SocketAddr>, Failure> {
    let fail = |why: &str| Failure::Work(format!("--server {server}: {why}"));
    let mut addresses: Vec<SocketAddr> = vec![];
    for address in server.as_str().to_socket_addrs().map_err(|e| fail(&e.to_string()))? {
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    if addresses.is_empty() { Err(fail("it has no address")) } else { Ok(addresses) }
}

/// Returns whether a host says that nothing listens at a port: it answers a datagram to it by ICMP.
fn is_closed(address: &SocketAddr) -> bool {
    let any: IpAddr = match address {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let ask = || {
        let socket = UdpSocket::bind((any, 0))?;
        socket.connect(address)?;
        socket.set_read_timeout(Some(REFUSAL_SPAN))?;
        socket.send(&[0])?;
        socket.recv(&mut [0; 1])
    };
    ask().is_err_and(|e| e.kind() == ErrorKind::ConnectionRefused)
}
