//! Where an aggregator may be, and how it is reached: by UDP, or by TCP where that is blocked.

use std::{
    env,
    fmt::{self, Display, Formatter},
    io::{self, ErrorKind},
    net::{IpAddr, SocketAddr, ToSocketAddrs},
    str::FromStr,
};

use crate::{
    NicError,
    wire::{
        SocketWire,
        tcp::dial::{Dial, Proxy},
    },
};

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
    /// Bytes of the longest datagram that a path is tried with, headers and tags of the protocol included; by default
    /// those of [`DatagramSizes::DEFAULT`](crate::proto::DatagramSizes::DEFAULT).
    pub datagram_bytes: Option<usize>,
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
        Self { paths: 1, flows: 1, poll: false, datagram_bytes: None }
    }
}

/// What carries datagrams.
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

/// The transports that are used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transports {
    /// UDP, and TCP where nobody answers by it.
    #[default]
    Any,
    /// One alone.
    Only(Transport),
}

impl Transports {
    /// Returns whether a transport is used.
    #[must_use]
    pub fn have(self, transport: Transport) -> bool {
        self == Self::Any || self == Self::Only(transport)
    }
}

impl Transports {
    /// Binds the wires of an aggregator, one for each pipeline: UDP at an address and the ports that follow,
    /// connections at the first of them.
    ///
    /// # Errors
    ///
    /// [`NicError::Bind`], [`NicError::Wire`]; [`NicError::OutOfRange`] for several pipelines of connections alone.
    pub fn bind(self, listen: SocketAddr, pipelines: u16) -> Result<Vec<SocketWire>, NicError> {
        let both = || {
            let mut wires = SocketWire::bind_all(listen, pipelines, 1)?;
            let first = wires.remove(0).and_listen()?;
            wires.insert(0, first);
            Ok(wires)
        };
        match self {
            Self::Only(Transport::Udp) => SocketWire::bind_all(listen, pipelines, 1),
            Self::Only(Transport::Tcp) if pipelines > 1 => Err(NicError::pipelines(pipelines, 1)),
            Self::Only(Transport::Tcp) => Ok(vec![SocketWire::listen(listen)?]),
            // A port that is free for one may be taken for the other.
            Self::Any if listen.port() == 0 => {
                (1..PORT_TRIES).find_map(|_| both().ok()).map_or_else(both, Ok)
            }
            Self::Any => both(),
        }
    }
}

impl FromStr for Transports {
    type Err = String;

    /// Reads `auto`, `udp` or `tcp`.
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Any),
            "udp" => Ok(Self::Only(Transport::Udp)),
            "tcp" => Ok(Self::Only(Transport::Tcp)),
            _ => Err("a transport is auto, udp or tcp".into()),
        }
    }
}

/// An address at which an aggregator may be, and what carries datagrams there.
#[derive(Clone, Debug)]
pub struct Target {
    /// The aggregator's address, or that of the proxy before it.
    pub address: SocketAddr,
    /// How to connect, by TCP.
    dial: Option<Dial>,
}

impl Target {
    /// Returns what carries datagrams there.
    #[must_use]
    pub fn transport(&self) -> Transport {
        if self.dial.is_some() { Transport::Tcp } else { Transport::Udp }
    }

    /// Opens wires towards it, and returns them with the paths that they have: a connection is one, of one pipeline.
    ///
    /// # Errors
    ///
    /// [`NicError::Bind`], [`NicError::Wire`]; [`NicError::Dial`], after some seconds if nobody answers.
    pub fn open(
        &self,
        pipelines: u16,
        paths: PathConfig,
    ) -> Result<(Vec<SocketWire>, PathConfig), NicError> {
        let Some(dial) = &self.dial else {
            return Ok((
                SocketWire::bind_towards(self.address, pipelines, paths.sockets())?,
                paths,
            ));
        };
        let wire = SocketWire::dial(dial.clone())?;
        Ok((vec![wire], PathConfig { paths: 1, flows: 1, ..paths }))
    }
}

/// All places at which one aggregator is looked for.
#[derive(Clone, Debug)]
pub struct ServerAddress {
    addresses: Vec<SocketAddr>,
    targets: Vec<Target>,
}

impl ServerAddress {
    /// Finds the addresses that `HOST:PORT` stands for. Connections by TCP go through the proxy `http://HOST:PORT`, by
    /// default that of `HTTPS_PROXY` but to hosts of `NO_PROXY` and of this machine. A proxy finds the host by itself
    /// if that cannot be found here.
    ///
    /// # Errors
    ///
    /// The name, or the proxy's, stands for no address; the proxy's is no such URL.
    pub fn find(name: &str, transports: Transports, proxy: Option<&str>) -> io::Result<Self> {
        let found = resolve(name);
        let is_local = |found: &Vec<SocketAddr>| found.iter().all(|at| at.ip().is_loopback());
        let usual = if found.as_ref().is_ok_and(is_local) { None } else { usual_proxy(name) };
        let proxy = proxy.map(str::to_owned).or(usual).filter(|_| transports.have(Transport::Tcp));
        let proxy = proxy.map(|text| {
            let bad = |why| io::Error::new(ErrorKind::InvalidInput, why);
            let proxy: Proxy = text.parse().map_err(bad)?;
            let addresses = resolve(proxy.host())
                .map_err(|why| io::Error::new(why.kind(), format!("the proxy {proxy}: {why}")))?;
            let through = Some((name.to_owned(), proxy));
            Ok::<_, io::Error>(Dial { address: addresses[0], through })
        });
        let proxy = proxy.transpose()?;
        let addresses = match (found, &proxy) {
            (Ok(addresses), _) => addresses,
            (Err(_), Some(_)) => vec![],
            (Err(why), None) => return Err(why),
        };
        Ok(Self::at(addresses, transports, proxy))
    }

    /// Returns an aggregator that is at some addresses.
    fn at(addresses: Vec<SocketAddr>, transports: Transports, proxy: Option<Dial>) -> Self {
        // A machine may lack one of the two IPs.
        let binds = |address: &SocketAddr| SocketWire::bind_towards(*address, 1, 1).is_ok();
        let usable: Vec<_> = addresses.iter().copied().filter(binds).collect();
        let addresses = if usable.is_empty() { addresses } else { usable };
        let of = |transport| addresses.iter().filter(move |_| transports.have(transport));
        let mut targets: Vec<_> =
            of(Transport::Udp).map(|address| Target { address: *address, dial: None }).collect();
        let dials: Vec<_> = match proxy {
            Some(dial) => vec![dial],
            None => of(Transport::Tcp)
                .map(|address| Dial { address: *address, through: None })
                .collect(),
        };
        targets.extend(
            dials.into_iter().map(|dial| Target { address: dial.address, dial: Some(dial) }),
        );
        Self { addresses, targets }
    }

    /// Returns the aggregator's addresses; none if a proxy alone can find them.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Returns where it is looked for, in this order; one place at least.
    #[must_use]
    pub fn targets(&self) -> &[Target] {
        &self.targets
    }
}

impl From<Vec<SocketAddr>> for ServerAddress {
    /// Makes that of an aggregator at one of some addresses, by any transport.
    fn from(addresses: Vec<SocketAddr>) -> Self {
        Self::at(addresses, Transports::Any, None)
    }
}

/// Returns the environment's proxy for connections to `HOST:PORT`.
fn usual_proxy(name: &str) -> Option<String> {
    let value = |names: [&str; 2]| {
        names.iter().find_map(|name| env::var(name).ok()).filter(|value| !value.is_empty())
    };
    let host = name.rsplit_once(':').map_or(name, |(host, _)| host);
    let without = value(["no_proxy", "NO_PROXY"]).unwrap_or_default();
    (!is_listed(host.trim_matches(['[', ']']), &without))
        .then(|| value(["https_proxy", "HTTPS_PROXY"]))?
}

/// Returns whether a list of names and addresses has a host, or a domain that it is of.
fn is_listed(host: &str, list: &str) -> bool {
    list.split(',').map(str::trim).filter(|entry| !entry.is_empty()).any(|entry| {
        let domain = entry.trim_start_matches("*.").trim_start_matches('.');
        let is_ip = host.parse::<IpAddr>().is_ok();
        entry == "*" || host == domain || (!is_ip && host.ends_with(&format!(".{domain}")))
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn udp_is_tried_before_tcp_and_proxies_stand_for_hosts() {
        let seen = |name: &str, transports: &str, proxy| {
            let server = ServerAddress::find(name, transports.parse().unwrap(), proxy).unwrap();
            let shown = |target: &Target| format!("{} {}", target.transport(), target.address);
            server.targets().iter().map(shown).collect::<Vec<_>>().join(", ")
        };
        assert_eq!(seen("127.0.0.1:7", "auto", None), "udp 127.0.0.1:7, tcp 127.0.0.1:7");
        assert_eq!(seen("127.0.0.1:7", "udp", Some("http://127.0.0.2")), "udp 127.0.0.1:7");
        let proxy = Some("http://127.0.0.2:3128");
        assert_eq!(seen("127.0.0.1:7", "auto", proxy), "udp 127.0.0.1:7, tcp 127.0.0.2:3128");
        assert_eq!(seen("nowhere.invalid:7", "auto", proxy), "tcp 127.0.0.2:3128");
        assert!(ServerAddress::find("nowhere.invalid:7", Transports::Any, None).is_err());
        assert!(ServerAddress::find("127.0.0.1:7", Transports::Any, Some("ftp://a")).is_err());
    }

    #[test]
    fn hosts_and_domains_go_without_a_proxy() {
        let list = "localhost, .clinic.example,10.0.0.1";
        for (host, expected) in [
            ("localhost", true),
            ("a.clinic.example", true),
            ("clinic.example", true),
            ("notclinic.example", false),
            ("10.0.0.1", true),
            ("110.0.0.1", false),
        ] {
            assert_eq!(is_listed(host, list), expected, "{host}");
        }
        assert!(is_listed("any", "*") && !is_listed("any", ""));
    }
}
