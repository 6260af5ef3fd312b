//! How datagrams travel between a client and its aggregator.

use std::{
    fmt::{self, Display, Formatter},
    net::SocketAddr,
    str::FromStr,
};

use crate::{NicError, proto::DatagramSizes, wire::SocketWire};

/// Free ports that are tried.
const PORT_TRIES: u32 = 16;

/// The paths of a client's datagrams to its aggregator.
#[derive(Clone, Copy, Debug)]
pub struct PathConfig {
    /// Sockets of a pipeline that each flow's datagrams are sprayed over.
    pub paths: u16,
    /// Flows that messages are dealt to; paths × flows is at most
    /// [`MAX_PATHS`](crate::proto::path::MAX_PATHS).
    pub flows: u16,
    /// Polls the sockets instead of sleeping.
    pub poll: bool,
    /// The sizes of datagrams that are tried.
    pub sizes: DatagramSizes,
}

impl PathConfig {
    /// Returns the number of sockets that each pipeline's wire needs.
    #[must_use]
    pub fn sockets(&self) -> u16 {
        self.paths.saturating_mul(self.flows)
    }
}

impl Default for PathConfig {
    /// Returns one path and one flow, sleeping between datagrams.
    fn default() -> Self {
        Self { paths: 1, flows: 1, poll: false, sizes: DatagramSizes::DEFAULT }
    }
}

/// The protocol that carries datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// Each by itself.
    Udp,
    /// One connection, on which none overtakes another.
    Tcp,
}

impl Display for Transport {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Udp => "udp",
            Self::Tcp => "tcp",
        })
    }
}

/// The transports that are allowed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transports {
    /// Both: an aggregator listens by both, clients try TCP where nobody answers by UDP.
    #[default]
    Auto,
    /// One alone.
    Only(Transport),
}

impl Transports {
    /// Returns whether a transport is allowed.
    #[must_use]
    pub fn allow(self, transport: Transport) -> bool {
        self == Self::Auto || self == Self::Only(transport)
    }

    /// Binds the wires of an aggregator, one for each pipeline: UDP at an address and the ports that follow,
    /// connections at the first of them.
    ///
    /// # Errors
    ///
    /// [`NicError::Bind`], [`NicError::Wire`]; [`NicError::OutOfRange`] for several pipelines of connections alone.
    pub fn bind(self, listen: SocketAddr, pipelines: u16) -> Result<Vec<SocketWire>, NicError> {
        let both = || {
            let mut wires = SocketWire::bind_all(listen, pipelines, 1)?;
            wires.first_mut().map_or(Ok(()), SocketWire::listen_too)?;
            Ok(wires)
        };
        match self {
            Self::Only(Transport::Udp) => SocketWire::bind_all(listen, pipelines, 1),
            Self::Only(Transport::Tcp) if pipelines > 1 => Err(NicError::pipelines(pipelines, 1)),
            Self::Only(Transport::Tcp) => Ok(vec![SocketWire::listen(listen)?]),
            // A port that is free for one may be taken for the other.
            Self::Auto if listen.port() == 0 => {
                (1..PORT_TRIES).find_map(|_| both().ok()).map_or_else(both, Ok)
            }
            Self::Auto => both(),
        }
    }
}

impl FromStr for Transports {
    type Err = String;

    /// Reads `auto`, `udp` or `tcp`.
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "udp" => Ok(Self::Only(Transport::Udp)),
            "tcp" => Ok(Self::Only(Transport::Tcp)),
            _ => Err("a transport is auto, udp or tcp".into()),
        }
    }
}
