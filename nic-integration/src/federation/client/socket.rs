//! A client of an aggregator that is looked for at several places.

use std::{
    io::ErrorKind,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    ops::ControlFlow,
    sync::mpsc::{RecvTimeoutError, channel},
    thread,
    time::{Duration, Instant},
};

use super::{FederationClient, PathConfig};
use crate::{
    NicError,
    federation::{
        Error, PROGRESS_SPAN,
        participation::{Participation, ParticipationPhase, RoundResult},
        target::{ServerAddress, Target, Transport},
    },
    proto::{Identity, NodeId},
    wire::{PcapFile, SocketWire, tcp::dial::DialError},
};

/// The time for which one of several places is tried before the next one is.
pub const TRY_SPAN: Duration = Duration::from_secs(2);
/// The wait after a connection was refused.
const REFUSED_SPAN: Duration = Duration::from_millis(200);
/// The wait for a host's word that nothing listens at a port.
const REFUSAL_SPAN: Duration = Duration::from_millis(300);

/// What a client needs to reach its aggregator.
#[derive(Clone)]
pub struct SocketClientConfig {
    /// Where the aggregator may be.
    pub server: ServerAddress,
    /// The aggregator's node.
    pub node: NodeId,
    /// The number that the client contributes as.
    pub number: u16,
    /// The client's node.
    pub identity: Identity,
    /// The paths of datagrams by UDP.
    pub paths: PathConfig,
    /// The pipelines by UDP, each on a thread and with sockets of its own.
    pub pipelines: u16,
}

/// A client of one aggregator, which stays with the place that answered from round to round.
pub struct SocketClient {
    config: SocketClientConfig,
    capture: Option<PcapFile>,
    connected: Option<(usize, FederationClient<SocketWire>)>,
}

impl SocketClient {
    /// Makes a client that has asked nobody yet.
    #[must_use]
    pub fn new(config: SocketClientConfig) -> Self {
        Self { config, capture: None, connected: None }
    }

    /// Also writes every datagram, sent and received, to a file: see [`Captured`](crate::wire::Captured).
    pub fn capture(&mut self, file: PcapFile) {
        self.capture = Some(file);
    }

    /// Returns the aggregator's addresses.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        self.config.server.addresses()
    }

    /// Returns what carried the datagrams of the last round that ended well.
    #[must_use]
    pub fn transport(&self) -> Option<Transport> {
        let (at, _) = self.connected.as_ref()?;
        Some(self.config.server.targets()[*at].transport())
    }

    /// Takes part in one round, as [`FederationClient::contribute`] does, at whichever place answers. They are tried
    /// one after the other, until none has answered for the [patience](Participation::patience) of the client.
    ///
    /// # Errors
    ///
    /// See [`Error`]; [`Error::Unreachable`] is of all places, and names the first. [`NicError::Dial`] if there are
    /// connections by TCP alone, and none was made.
    pub fn contribute(
        &mut self,
        participation: &Participation<'_>,
        mut observe: impl FnMut(ParticipationPhase) -> ControlFlow<()>,
    ) -> Result<RoundResult, Error> {
        let targets = self.config.server.targets().to_vec();
        let (wait, are_several) = (participation.patience, targets.len() > 1);
        let start = self.connected.as_ref().map_or(0, |(at, _)| *at);
        let (mut silent_since, mut has_answered, mut fault) = (Instant::now(), false, None);
        for (at, target) in targets.iter().enumerate().cycle().skip(start) {
            let mut contact = wait.saturating_sub(silent_since.elapsed());
            // Where the last round was, all of the time is given.
            if are_several && self.connected.is_none() {
                contact = contact.min(TRY_SPAN).min(wait / targets.len() as u32);
            }
            match self.contribute_at((at, target), participation, contact, &mut observe) {
                // Without a spool it would be another contribution, and the first may be in a sum already.
                Err(error @ Error::Unreachable { has_answered: true, .. })
                    if participation.spool.is_none() =>
                {
                    return Err(error);
                }
                Err(Error::Unreachable { has_answered: answered, .. }) => {
                    has_answered |= answered;
                    if answered && are_several {
                        // It was there: it may come back, here or at another place.
                        silent_since = Instant::now();
                    } else if answered || silent_since.elapsed() >= wait {
                        break;
                    }
                }
                Err(Error::Nic(NicError::Dial(why))) => {
                    let is_final = is_final(why) && targets.iter().all(is_tcp);
                    fault = Some(why);
                    if is_final || silent_since.elapsed() >= wait {
                        break;
                    }
                    thread::sleep(REFUSED_SPAN.min(wait));
                }
                ended => return ended,
            }
        }
        match fault {
            Some(why) if !has_answered && targets.iter().all(is_tcp) => {
                Err(NicError::from(why).into())
            }
            _ => {
                let is_closed = !has_answered && self.addresses().iter().all(is_closed);
                let server = targets[0].address;
                Err(Error::Unreachable { server, waited: wait, has_answered, is_closed })
            }
        }
    }

    /// Takes part in a round where the last one was, else at a place, which has a span to answer in.
    fn contribute_at(
        &mut self,
        (at, target): (usize, &Target),
        participation: &Participation<'_>,
        contact: Duration,
        observe: &mut impl FnMut(ParticipationPhase) -> ControlFlow<()>,
    ) -> Result<RoundResult, Error> {
        let mut client = match self.connected.take() {
            Some((_, client)) => client,
            None => self.connect(target, observe)?,
        };
        let ended = client.contribute_within(contact, participation, observe);
        match &ended {
            Ok(_) => self.connected = Some((at, client)),
            // A client that was stopped is gone at once.
            Err(Error::Stopped) => {}
            // The server is to forget whatever a failed round left. Why it failed matters more than whether the
            // farewell arrives.
            Err(_) => drop(client.leave()),
        }
        ended
    }

    fn connect(
        &mut self,
        target: &Target,
        observe: &mut impl FnMut(ParticipationPhase) -> ControlFlow<()>,
    ) -> Result<FederationClient<SocketWire>, Error> {
        let SocketClientConfig { node, number, identity, paths, pipelines, .. } =
            self.config.clone();
        let (wires, paths) = match target.transport() {
            Transport::Udp => target.open(pipelines, paths)?,
            Transport::Tcp => dialed(target.clone(), paths, observe)?,
        };
        let mut client =
            FederationClient::new(wires, target.address, node, number, identity, paths)?;
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
        self.connected.map_or(Ok(()), |(_, client)| client.leave())
    }
}

fn is_tcp(target: &Target) -> bool {
    target.transport() == Transport::Tcp
}

/// Returns whether a proxy refuses whatever is tried again: it wants other credentials, or forbids it.
fn is_final(fault: DialError) -> bool {
    matches!(fault, DialError::Refused { code: 403 | 407, .. })
}

/// Connects on a thread of its own, since that takes its time, while the client is observed.
fn dialed(
    target: Target,
    paths: PathConfig,
    observe: &mut impl FnMut(ParticipationPhase) -> ControlFlow<()>,
) -> Result<(Vec<SocketWire>, PathConfig), Error> {
    let (began, (sender, receiver)) = (Instant::now(), channel());
    thread::spawn(move || sender.send(target.open(1, paths)));
    loop {
        match receiver.recv_timeout(PROGRESS_SPAN) {
            Ok(opened) => return Ok(opened?),
            Err(RecvTimeoutError::Timeout) => {
                let phase = ParticipationPhase::Contacting { waited: began.elapsed() };
                if observe(phase).is_break() {
                    return Err(Error::Stopped);
                }
            }
            Err(RecvTimeoutError::Disconnected) => {
                return Err(NicError::Wire { kind: ErrorKind::Other }.into());
            }
        }
    }
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
