//! A client of an aggregator that is looked for at several addresses, by UDP and TCP.

use std::{
    io::ErrorKind,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    ops::ControlFlow,
    sync::mpsc::RecvTimeoutError,
    thread,
    time::{Duration, Instant},
};

use super::{
    FederationClient,
    contribution::{Prepared, PreparedContribution},
};
use crate::{
    NicError,
    federation::{
        Error, PROGRESS_SPAN,
        candidate::{Candidate, ServerCandidates},
        participation::{Participation, ParticipationPhase, RoundResult},
        transport::PathConfig,
    },
    proto::{Identity, NodeId},
    wire::{
        PcapFile, SocketWire,
        tcp::dial::{DialError, Dialer, REFUSED_SPAN},
    },
};

/// The time for which one of several candidates is tried before the next one is.
pub(crate) const TRY_SPAN: Duration = Duration::from_secs(2);
/// The wait after a connection that was refused.
const RETRY_SPAN: Duration = Duration::from_millis(200);
/// The wait for a host's word that nothing listens at a port.
const ICMP_SPAN: Duration = Duration::from_millis(300);

/// What a client needs to reach its aggregator.
#[derive(Clone)]
pub struct SocketClientConfig {
    /// The ways to the aggregator.
    pub server: ServerCandidates,
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

/// A client of one aggregator, which stays with the candidate that answered from round to round.
pub struct SocketClient {
    config: SocketClientConfig,
    capture: Option<PcapFile>,
    connected: Option<(usize, FederationClient<SocketWire>)>,
}

type Observe<'a> = &'a mut dyn FnMut(ParticipationPhase) -> ControlFlow<()>;

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

    /// Returns the ways to the aggregator.
    #[must_use]
    pub fn server(&self) -> &ServerCandidates {
        &self.config.server
    }

    /// Takes part in one round, as [`FederationClient::contribute`] does, by whichever way somebody answers. They are
    /// tried one after the other, until none has answered for the [patience](Participation::patience) of the client.
    ///
    /// # Errors
    ///
    /// See [`Error`]; [`Error::Unreachable`] is of all ways, and names the first.
    pub fn contribute(
        &mut self,
        participation: &Participation<'_>,
        mut observe: impl FnMut(ParticipationPhase) -> ControlFlow<()>,
    ) -> Result<RoundResult, Error> {
        let candidates = self.config.server.all().to_vec();
        let (wait, are_several) = (participation.patience, candidates.len() > 1);
        let share = TRY_SPAN.min(wait / candidates.len().max(1) as u32);
        let by_tcp_alone = candidates.iter().all(|way| matches!(way, Candidate::Tcp(_)));
        let mut held: Option<Box<PreparedContribution<'_>>> = None;
        let start = self.connected.as_ref().map_or(0, |(at, _)| *at);
        let (mut silent_since, mut has_answered) = (Instant::now(), false);
        let (mut dial, mut refused) = (None, None);
        for (tried, (at, candidate)) in (1..).zip(candidates.iter().enumerate().cycle().skip(start))
        {
            // All ways by TCP ask the same proxy.
            if refused.is_some_and(|at: Instant| at.elapsed() < REFUSED_SPAN)
                && matches!(candidate, Candidate::Tcp(_))
            {
                continue;
            }
            // What is sealed is read from the spool again, which one contribution at a time holds.
            held.take_if(|own| own.sealing.has_begun());
            let own = match &mut held {
                Some(own) => own,
                None => match PreparedContribution::prepare(participation, self.config.number)? {
                    Prepared::Finished(result) => return Ok(*result),
                    Prepared::Unfinished(own) => {
                        // The aggregator is not silent while this client prepares.
                        silent_since = Instant::now();
                        held.insert(own)
                    }
                },
            };
            // Each is tried, however long connections took.
            let is_last = tried >= candidates.len();
            let is_over = |since: Instant| is_last && since.elapsed() >= wait;
            let was_connected = self.connected.is_some();
            let rest = wait.saturating_sub(silent_since.elapsed());
            let contact = match are_several && !was_connected {
                true if is_last => rest.min(share),
                true => share,
                // Where the last round was, all of the time is given.
                false => rest,
            };
            match self.contribute_by((at, candidate), own, contact, &mut observe) {
                Ok(result) => {
                    return Ok(RoundResult { transport: Some(candidate.transport()), ..result });
                }
                // Without a spool it would be another contribution, and the first may be in a sum already.
                Err(error @ Error::Unreachable { has_answered: true, .. })
                    if participation.spool.is_none() && own.sealing.has_begun() =>
                {
                    return Err(error);
                }
                Err(Error::Unreachable { has_answered: answered, .. }) => {
                    has_answered |= answered;
                    if are_several && (answered || was_connected) {
                        // It was there: it may come back, here or elsewhere.
                        silent_since = Instant::now();
                    } else if answered || is_over(silent_since) {
                        break;
                    }
                }
                Err(Error::Nic(NicError::Dial(why))) => {
                    dial = Some(why);
                    refused = why.is_final().then(Instant::now);
                    if (why.is_final() && by_tcp_alone) || is_over(silent_since) {
                        break;
                    }
                    pause(RETRY_SPAN.min(wait), contacting(silent_since, &mut observe))?;
                }
                Err(error) => return Err(error),
            }
        }
        let Some(first) = candidates.first() else {
            return Err(NicError::NoSuchPeer { node: self.config.node }.into());
        };
        let is_refused = |why: &DialError| why.is_refused();
        let is_closed = !has_answered
            && match by_tcp_alone {
                true => dial.as_ref().is_some_and(is_refused),
                false => self.config.server.addresses().iter().all(is_closed),
            };
        let server = first.address();
        Err(Error::Unreachable { server, waited: wait, has_answered, is_closed, dial })
    }

    /// Takes part in a round where the last one was, else by a candidate, which has a span to answer in.
    fn contribute_by(
        &mut self,
        (at, candidate): (usize, &Candidate),
        contribution: &mut PreparedContribution<'_>,
        contact: Duration,
        observe: Observe<'_>,
    ) -> Result<RoundResult, Error> {
        let mut client = match self.connected.take() {
            Some((_, client)) => client,
            None => self.connect(candidate, observe)?,
        };
        let ended = client.take_part(contribution, contact, observe);
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
        candidate: &Candidate,
        observe: Observe<'_>,
    ) -> Result<FederationClient<SocketWire>, Error> {
        let SocketClientConfig { node, number, identity, paths, pipelines, .. } =
            self.config.clone();
        let waits = contacting(Instant::now(), observe);
        let (wires, paths) = open(candidate, pipelines, paths, waits)?;
        let server = candidate.address();
        let mut client = FederationClient::new(wires, server, node, number, identity, paths)?;
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

/// Tells an observer for how long a client has looked for its aggregator; it may stop the client.
fn contacting(since: Instant, observe: Observe<'_>) -> impl FnMut() -> Result<(), Error> {
    move || match observe(ParticipationPhase::Contacting { waited: since.elapsed() }) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => Err(Error::Stopped),
    }
}

/// Waits for a span, in which `waits` is asked whether to go on, as often as an observer is.
pub(crate) fn pause(
    span: Duration,
    mut waits: impl FnMut() -> Result<(), Error>,
) -> Result<(), Error> {
    let end = Instant::now() + span;
    loop {
        waits()?;
        let rest = end.saturating_duration_since(Instant::now());
        if rest.is_zero() {
            return Ok(());
        }
        thread::sleep(rest.min(PROGRESS_SPAN));
    }
}

/// Opens wires to a candidate, and returns them with the paths that they have: a connection is one, of one pipeline.
/// Connecting takes its time, in which `waits` is asked whether to go on, as often as an observer is.
///
/// # Errors
///
/// The wires'; [`NicError::Dial`]; whatever `waits` returns.
pub(crate) fn open(
    candidate: &Candidate,
    pipelines: u16,
    paths: PathConfig,
    mut waits: impl FnMut() -> Result<(), Error>,
) -> Result<(Vec<SocketWire>, PathConfig), Error> {
    let dialer: &Dialer = match candidate {
        Candidate::Udp(address) => {
            return Ok((SocketWire::bind_towards(*address, pipelines, paths.sockets())?, paths));
        }
        Candidate::Tcp(dialer) => dialer,
    };
    let connecting = dialer.start();
    let stream = loop {
        waits()?;
        match connecting.recv_timeout(PROGRESS_SPAN) {
            Ok(connected) => break connected.map_err(NicError::from)?,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                let kind = ErrorKind::Other;
                return Err(NicError::from(DialError::Connect { to: dialer.address, kind }).into());
            }
        }
    };
    let wire = SocketWire::dialed(stream, dialer.clone())?;
    Ok((vec![wire], PathConfig { paths: 1, flows: 1, ..paths }))
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
        socket.set_read_timeout(Some(ICMP_SPAN))?;
        socket.send(&[0])?;
        socket.recv(&mut [0; 1])
    };
    ask().is_err_and(|e| e.kind() == ErrorKind::ConnectionRefused)
}
