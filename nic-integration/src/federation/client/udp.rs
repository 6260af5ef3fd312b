//! A client by UDP of an aggregator that several addresses may be of.

use std::{
    io::{self, ErrorKind},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket},
    ops::ControlFlow,
    time::{Duration, Instant},
};

use super::{FederationClient, PathConfig};
use crate::{
    federation::{
        Error,
        participation::{Participation, ParticipationPhase, RoundResult},
    },
    proto::{Identity, NodeId},
    wire::{PcapFile, UdpWire},
};

/// The time for which one of several addresses is tried before the next one is.
const TRY_SPAN: Duration = Duration::from_secs(2);
/// The wait for a host's word that nothing listens at a port.
const REFUSAL_SPAN: Duration = Duration::from_millis(300);

/// What a client needs to reach its aggregator.
#[derive(Clone)]
pub struct UdpClientConfig {
    /// The addresses at which the aggregator may be; at least one.
    pub addresses: Vec<SocketAddr>,
    /// The aggregator's node.
    pub server: NodeId,
    /// The number that the client contributes as.
    pub number: u16,
    /// The client's node.
    pub identity: Identity,
    /// The paths of datagrams.
    pub paths: PathConfig,
    /// The pipelines, each on a thread and with sockets of its own.
    pub pipelines: u16,
}

/// A client of one aggregator, which stays with the address that answered from round to round.
pub struct UdpClient {
    config: UdpClientConfig,
    capture: Option<PcapFile>,
    connected: Option<FederationClient<UdpWire>>,
}

impl UdpClient {
    /// Makes a client that has asked nobody yet.
    #[must_use]
    pub fn new(mut config: UdpClientConfig) -> Self {
        // A machine may lack one of the two IPs.
        let binds = |address: &SocketAddr| UdpWire::bind_towards(*address, 1, 1).is_ok();
        let usable: Vec<_> = config.addresses.iter().copied().filter(binds).collect();
        if !usable.is_empty() {
            config.addresses = usable;
        }
        Self { config, capture: None, connected: None }
    }

    /// Also writes every datagram, sent and received, to a file: see [`Captured`](crate::wire::Captured).
    pub fn capture(&mut self, file: PcapFile) {
        self.capture = Some(file);
    }

    /// Returns the addresses that are tried.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.config.addresses
    }

    /// Takes part in one round, as [`FederationClient::contribute`] does, at whichever address answers. Several are
    /// tried one after the other, until none has answered for the [patience](Participation::patience) of the client.
    ///
    /// # Errors
    ///
    /// See [`Error`]; [`Error::Unreachable`] is of all addresses, and names the first.
    pub fn contribute(
        &mut self,
        participation: &Participation<'_>,
        mut observe: impl FnMut(ParticipationPhase) -> ControlFlow<()>,
    ) -> Result<RoundResult, Error> {
        let (wait, addresses) = (participation.patience, self.config.addresses.clone());
        let are_several = addresses.len() > 1;
        let last = self.connected.as_ref().map(FederationClient::server);
        let start = addresses.iter().position(|address| Some(*address) == last).unwrap_or(0);
        let (mut silent_since, mut has_answered) = (Instant::now(), false);
        for &address in addresses.iter().cycle().skip(start) {
            let mut contact = wait.saturating_sub(silent_since.elapsed());
            // Where the last round was, all of the time is given.
            if are_several && self.connected.is_none() {
                contact = contact.min(TRY_SPAN).min(wait / addresses.len() as u32);
            }
            match self.contribute_at(address, participation, contact, &mut observe) {
                // Without a spool it would be another contribution, and the first may be in a sum already.
                Err(error @ Error::Unreachable { has_answered: true, .. })
                    if participation.spool.is_none() =>
                {
                    return Err(error);
                }
                Err(Error::Unreachable { has_answered: answered, .. }) => {
                    has_answered |= answered;
                    if answered && are_several {
                        // It was there: it may come back, here or at another address.
                        silent_since = Instant::now();
                    } else if answered || silent_since.elapsed() >= wait {
                        break;
                    }
                }
                ended => return ended,
            }
        }
        let is_closed = !has_answered && addresses.iter().all(is_closed);
        Err(Error::Unreachable { server: addresses[0], waited: wait, has_answered, is_closed })
    }

    /// Takes part in a round where the last one was, else at an address, which has a span to answer in.
    fn contribute_at(
        &mut self,
        address: SocketAddr,
        participation: &Participation<'_>,
        contact: Duration,
        observe: &mut impl FnMut(ParticipationPhase) -> ControlFlow<()>,
    ) -> Result<RoundResult, Error> {
        let mut client = match self.connected.take() {
            Some(client) => client,
            None => self.connect(address)?,
        };
        let ended = client.contribute_within(contact, participation, observe);
        match &ended {
            Ok(_) => self.connected = Some(client),
            // A client that was stopped is gone at once.
            Err(Error::Stopped) => {}
            // The server is to forget whatever a failed round left. Why it failed matters more than whether the
            // farewell arrives.
            Err(_) => drop(client.leave()),
        }
        ended
    }

    fn connect(&mut self, address: SocketAddr) -> Result<FederationClient<UdpWire>, Error> {
        let UdpClientConfig { server, number, identity, paths, pipelines, .. } = &self.config;
        let wires = UdpWire::bind_towards(address, *pipelines, paths.sockets())?;
        let mut client =
            FederationClient::new(wires, address, *server, *number, identity.clone(), *paths)?;
        if let Some(file) = &self.capture {
            client.capture(file)?;
        }
        Ok(client)
    }

    /// Takes leave of the aggregator: see [`FederationClient::leave`].
    ///
    /// # Errors
    ///
    /// The socket failed for good.
    pub fn leave(self) -> Result<(), Error> {
        self.connected.map_or(Ok(()), FederationClient::leave)
    }
}

/// Returns the addresses that `HOST:PORT` stands for, each once and at least one.
///
/// # Errors
///
/// The name stands for none.
pub fn resolve(name: &str) -> io::Result<Vec<SocketAddr>> {
    let mut addresses: Vec<SocketAddr> = vec![];
    for address in name.to_socket_addrs()? {
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    if addresses.is_empty() {
        return Err(io::Error::new(ErrorKind::NotFound, "it has no address"));
    }
    Ok(addresses)
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
