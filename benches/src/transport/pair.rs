//! Two ends that know each other.

use std::{
    net::{Ipv4Addr, SocketAddr},
    num::NonZeroU32,
};

use ciphergram_nic::{
    Driver,
    proto::{Config, Endpoint, Identity, NodeId, Peer, Suite},
    wire::{Faulty, UdpWire, Wire as _},
};

use super::Failure;

/// How two ends talk.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Bytes of the largest datagram.
    pub datagram_bytes: usize,
    /// What seals datagrams.
    pub suite: Suite,
    /// Of a thousand datagrams that arrive at either end, how many are lost.
    pub loss: u32,
    /// Of a thousand, how many arrive without their payload.
    pub trimming: u32,
    /// Source ports that datagrams are sprayed over.
    pub paths: u16,
}

impl Setting {
    /// Sealed by AES-256-GCM, and nothing goes wrong.
    #[must_use]
    pub fn of(datagram_bytes: usize) -> Self {
        Self { datagram_bytes, suite: Suite::Aes256Gcm, loss: 0, trimming: 0, paths: 1 }
    }
}

/// One end, and what drives it.
pub(super) struct End {
    pub(super) endpoint: Endpoint,
    pub(super) driver: Driver<Faulty<UdpWire>>,
}

/// The end that waits, and the end that contacts it.
pub(super) struct Pair {
    pub(super) waits: End,
    pub(super) contacts: End,
    /// Who waits.
    pub(super) node: NodeId,
}

impl End {
    /// What the other end knows it by.
    pub(super) fn peer(&self) -> Result<Peer, Failure> {
        Ok(Peer { node: identity(2)?.id(), incarnation: self.endpoint.incarnation() })
    }
}

/// Nobody else is meant to talk to these.
fn identity(number: u8) -> Result<Identity, Failure> {
    Ok(Identity::from_secret(&[number; 32])?)
}

impl Pair {
    pub(super) fn new(setting: Setting) -> Result<Self, Failure> {
        let end = |number: u8| -> Result<(End, SocketAddr), Failure> {
            let config = Config {
                suite: setting.suite,
                datagram_bytes: setting.datagram_bytes,
                paths: setting.paths,
                allow: [identity(2)?.id()].into(),
                ..Config::new(identity(number)?, NonZeroU32::MIN, [number; 32])
            };
            let wire = UdpWire::bind_many((Ipv4Addr::LOCALHOST, 0).into(), setting.paths)?;
            let addr = wire.local_addr()?;
            let wire = Faulty::new(wire, u64::from(number), setting.loss, setting.trimming);
            Ok((End { endpoint: Endpoint::new(config)?, driver: Driver::new(wire) }, addr))
        };
        let ((waits, addr), (mut contacts, _)) = (end(1)?, end(2)?);
        let node = identity(1)?.id();
        contacts.endpoint.contact(node, addr);
        Ok(Self { waits, contacts, node })
    }
}
