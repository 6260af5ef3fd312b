//! Two ends that know each other.

use std::{
    net::{Ipv4Addr, SocketAddr},
    num::NonZeroU32,
};

use ciphergram_nic::{
    Driver, PipelineThreads,
    faults::Faults,
    proto::{Config, DatagramSizes, Endpoint, Identity, NodeId, Peer, Suite},
    wire::{Faulty, SocketWire, Wire as _, tcp::dial::Dialer},
};

use super::Failure;

/// The settings of two ends.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Bytes of the largest datagram.
    pub datagram_bytes: usize,
    /// The cipher that seals datagrams.
    pub suite: Suite,
    /// Faults that datagrams meet on arrival at either end.
    pub faults: Faults,
    /// Source ports that datagrams are sprayed over.
    pub paths: u16,
    /// Whether datagrams go over a connection by TCP, of one pipeline and one path.
    pub is_tcp: bool,
    /// Pipelines of the end that waits, and of the one that contacts it, a thread each.
    pub pipelines: [u16; 2],
}

impl Setting {
    /// Returns a setting: sealed by AES-256-GCM, without faults.
    #[must_use]
    pub fn of(datagram_bytes: usize) -> Self {
        Self {
            datagram_bytes,
            suite: Suite::Aes256Gcm,
            faults: Faults::default(),
            paths: 1,
            is_tcp: false,
            pipelines: [1; 2],
        }
    }
}

/// One end, and what drives it.
pub(super) struct End {
    pub(super) endpoint: Endpoint,
    pub(super) driver: Driver<Faulty<SocketWire>>,
    /// The pipelines from the second on.
    _threads: PipelineThreads,
}

/// The end that waits, and the end that contacts it.
pub(super) struct Pair {
    pub(super) waits: End,
    pub(super) contacts: End,
    /// The end that waits.
    pub(super) node: NodeId,
}

impl End {
    /// Returns the peer as the other end names it.
    pub(super) fn peer(&self) -> Result<Peer, Failure> {
        Ok(Peer { node: identity(2)?.id(), incarnation: self.endpoint.incarnation() })
    }
}

/// Returns the key of an end, known to all: nobody else talks to these.
fn identity(number: u8) -> Result<Identity, Failure> {
    Ok(Identity::from_secret(&[number; 32])?)
}

impl Pair {
    pub(super) fn new(setting: Setting) -> Result<Self, Failure> {
        type Made = Result<(End, SocketAddr), Failure>;
        let end = |number: u8, pipelines: u16, to: Option<SocketAddr>| -> Made {
            let any = (Ipv4Addr::LOCALHOST, 0).into();
            let wire = || -> Result<_, Failure> {
                let wire = match to.map(Dialer::direct).filter(|_| setting.is_tcp) {
                    Some(dialer) => SocketWire::dialed(dialer.connect()?, dialer)?,
                    None if setting.is_tcp => SocketWire::listen(any)?,
                    None => SocketWire::bind_many(any, setting.paths)?,
                };
                Ok(Faulty::new(wire, setting.faults, u64::from(number)))
            };
            let mut driver = Driver::new(wire()?);
            let addr = driver.wire().local_addr()?;
            let others = (1..pipelines).map(|_| Ok(driver.with_wire(wire()?)));
            let others = others.collect::<Result<Vec<_>, Failure>>()?;
            let port = |other: &Driver<_>| Ok(Faulty::local_addr(other.wire())?.port());
            let config = Config {
                suite: setting.suite,
                pipelines,
                ports: others.iter().map(port).collect::<Result<_, Failure>>()?,
                sizes: DatagramSizes::fixed(setting.datagram_bytes as u32),
                paths: setting.paths,
                allow: [identity(2)?.id()].into(),
                ..Config::new(identity(number)?, NonZeroU32::MIN, [number; 32])
            };
            let mut endpoint = Endpoint::new(config)?;
            let threads =
                PipelineThreads::start(&mut driver, others, |wakers| endpoint.detach(wakers))?;
            Ok((End { endpoint, driver, _threads: threads }, addr))
        };
        let [waiting, contacting] = setting.pipelines;
        let (waits, addr) = end(1, waiting, None)?;
        let (mut contacts, _) = end(2, contacting, Some(addr))?;
        let node = identity(1)?.id();
        contacts.endpoint.contact(node, addr);
        Ok(Self { waits, contacts, node })
    }
}
