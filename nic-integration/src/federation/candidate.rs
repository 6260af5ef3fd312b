//! The ways to an aggregator: its addresses by UDP, then by TCP.

use std::{
    env,
    io::{self, ErrorKind},
    net::{IpAddr, SocketAddr, ToSocketAddrs},
};

use tracing::info;

use super::transport::{Transport, Transports};
use crate::wire::{
    SocketWire,
    tcp::dial::{Dialer, Proxied, Proxy},
};

/// A way to an aggregator.
#[derive(Clone, Debug)]
pub(crate) enum Candidate {
    /// Datagrams to its address.
    Udp(SocketAddr),
    /// A connection to its address, or to that of a proxy.
    Tcp(Dialer),
}

impl Candidate {
    /// Returns the address that datagrams go to.
    pub(crate) fn address(&self) -> SocketAddr {
        match self {
            Self::Udp(address) => *address,
            Self::Tcp(dialer) => dialer.address,
        }
    }

    pub(crate) fn transport(&self) -> Transport {
        match self {
            Self::Udp(_) => Transport::Udp,
            Self::Tcp(_) => Transport::Tcp,
        }
    }
}

/// The ways to one aggregator.
#[derive(Clone, Debug)]
pub struct ServerCandidates {
    name: String,
    addresses: Vec<SocketAddr>,
    all: Vec<Candidate>,
}

impl ServerCandidates {
    /// Finds the addresses that `HOST:PORT` stands for. Connections by TCP go through a proxy if there is one, by
    /// default that of `HTTPS_PROXY`, but to hosts of `NO_PROXY` and of this machine. A proxy finds the host by itself
    /// if that cannot be found here.
    ///
    /// # Errors
    ///
    /// The name, or that of the proxy, stands for no address.
    pub fn resolve(name: &str, transports: Transports, proxy: Option<Proxy>) -> io::Result<Self> {
        // A proxy is told the name in lines of text: with more in it, whoever gives it would ask the proxy for more.
        if name.contains(|c: char| c.is_whitespace() || c.is_control()) {
            return Err(io::Error::new(ErrorKind::InvalidInput, "a host has no spaces"));
        }
        let found = resolve(name);
        let dialers = |proxy: Proxy| {
            let addresses = resolve(proxy.host())
                .map_err(|why| io::Error::new(why.kind(), format!("the proxy {proxy}: {why}")))?;
            let proxied = Some(Proxied { host: name.to_owned(), proxy });
            let dialer = |address| Dialer { address, proxied: proxied.clone() };
            Ok::<Vec<_>, io::Error>(addresses.into_iter().map(dialer).collect())
        };
        let is_local = |found: &Vec<SocketAddr>| found.iter().all(|at| at.ip().is_loopback());
        let proxied = match proxy {
            _ if !transports.allow(Transport::Tcp) => vec![],
            Some(proxy) => dialers(proxy)?,
            None if found.as_ref().is_ok_and(is_local) => vec![],
            None => env_proxy(name)
                .and_then(|proxy| {
                    let used = proxy.parse().map_err(io::Error::other).and_then(dialers);
                    // It may be there for others, and not be needed.
                    used.inspect_err(|error| info!(%error, "HTTPS_PROXY is not used")).ok()
                })
                .unwrap_or_default(),
        };
        let addresses = match found {
            Err(why) if proxied.is_empty() => return Err(why),
            found => found.unwrap_or_default(),
        };
        Ok(Self::new(name, addresses, transports, proxied))
    }

    /// Makes those of an aggregator at some addresses, or behind a proxy; one of these at least.
    fn new(
        name: &str,
        addresses: Vec<SocketAddr>,
        transports: Transports,
        proxied: Vec<Dialer>,
    ) -> Self {
        // A machine may lack one of the two IPs.
        let binds = |address: &SocketAddr| SocketWire::bind_towards(*address, 1, 1).is_ok();
        let usable: Vec<_> = addresses.iter().copied().filter(binds).collect();
        let addresses = if usable.is_empty() { addresses } else { usable };
        let of = |transport| addresses.iter().filter(move |_| transports.allow(transport));
        let mut all: Vec<_> = of(Transport::Udp).map(|at| Candidate::Udp(*at)).collect();
        match proxied.is_empty() {
            true => all.extend(of(Transport::Tcp).map(|at| Candidate::Tcp(Dialer::direct(*at)))),
            false => all.extend(proxied.into_iter().map(Candidate::Tcp)),
        }
        Self { name: name.to_owned(), addresses, all }
    }

    /// Returns the aggregator's name, as it was asked for.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the aggregator's addresses; none if a proxy alone can find them.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Returns the ways in the order in which they are tried.
    pub(crate) fn all(&self) -> &[Candidate] {
        &self.all
    }
}

impl From<Vec<SocketAddr>> for ServerCandidates {
    /// Makes those of an aggregator at some addresses, one at least, by both transports.
    fn from(addresses: Vec<SocketAddr>) -> Self {
        let name = addresses.first().map_or_else(String::new, SocketAddr::to_string);
        Self::new(&name, addresses, Transports::Auto, vec![])
    }
}

/// Returns the environment's proxy for connections to `HOST:PORT`.
fn env_proxy(name: &str) -> Option<String> {
    let value = |names: [&str; 2]| {
        names.iter().find_map(|name| env::var(name).ok()).filter(|value| !value.is_empty())
    };
    let without = value(["no_proxy", "NO_PROXY"]).unwrap_or_default();
    value(["https_proxy", "HTTPS_PROXY"]).filter(|_| !is_in_no_proxy(name, &without))
}

/// Returns whether a list of names and addresses, with or without ports, has `HOST:PORT`, or a domain that it is of.
fn is_in_no_proxy(name: &str, list: &str) -> bool {
    let (name, list) = (name.to_ascii_lowercase(), list.to_ascii_lowercase());
    let (host, port) = split_port(&name);
    list.split(',').map(str::trim).filter(|entry| !entry.is_empty()).any(|entry| {
        let (domain, only) = split_port(entry);
        let domain = domain.trim_start_matches("*.").trim_start_matches('.');
        let is_ip = host.parse::<IpAddr>().is_ok();
        let is_of = host == domain || (!is_ip && host.ends_with(&format!(".{domain}")));
        entry == "*" || (is_of && (only.is_none() || only == port))
    })
}

/// Splits `HOST`, `HOST:PORT` or `[HOST]:PORT`; of an address by IPv6 without brackets no part is a port.
fn split_port(name: &str) -> (&str, Option<&str>) {
    let (host, port) = match name.rsplit_once(':') {
        Some((host, port)) if !host.contains(':') || host.ends_with(']') => (host, Some(port)),
        _ => (name, None),
    };
    (host.trim_matches(['[', ']']), port)
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
        let seen = |name: &str, transports: &str, proxy: Option<&str>| {
            let proxy = proxy.map(|proxy| proxy.parse().unwrap());
            let found =
                ServerCandidates::resolve(name, transports.parse().unwrap(), proxy).unwrap();
            let shown = |way: &Candidate| format!("{} {}", way.transport(), way.address());
            found.all().iter().map(shown).collect::<Vec<_>>().join(", ")
        };
        assert_eq!(seen("127.0.0.1:7", "auto", None), "udp 127.0.0.1:7, tcp 127.0.0.1:7");
        assert_eq!(seen("127.0.0.1:7", "udp", Some("http://127.0.0.2")), "udp 127.0.0.1:7");
        let proxy = Some("http://127.0.0.2:3128");
        assert_eq!(seen("127.0.0.1:7", "auto", proxy), "udp 127.0.0.1:7, tcp 127.0.0.2:3128");
        assert_eq!(seen("nowhere.invalid:7", "auto", proxy), "tcp 127.0.0.2:3128");
        let nowhere =
            |proxy| ServerCandidates::resolve("nowhere.invalid:7", Transports::Auto, proxy);
        assert!(nowhere(None).is_err());
        assert!(nowhere(Some("http://nowhere.invalid".parse().unwrap())).is_err());
        for name in ["a b:7", "a HTTP/1.1\r\n\r\nGET http://inside:7"] {
            let proxy = proxy.map(|proxy| proxy.parse().unwrap());
            let asked = ServerCandidates::resolve(name, Transports::Auto, proxy);
            assert_eq!(asked.unwrap_err().kind(), ErrorKind::InvalidInput, "{name}");
        }
    }

    #[test]
    fn hosts_and_domains_go_without_a_proxy() {
        let list = "localhost, .Clinic.example,10.0.0.1,odd.example:7,[fd00::1]:7,fd00::2";
        for (host, expected) in [
            ("LOCALHOST", true),
            ("odd.example:7", true),
            ("odd.example:8", false),
            ("[fd00::1]:7", true),
            ("[fd00::1]:8", false),
            ("[fd00::2]:8", true),
            ("10.0.0.1:80", true),
            ("a.clinic.example", true),
            ("clinic.example", true),
            ("notclinic.example", false),
            ("10.0.0.1", true),
            ("110.0.0.1", false),
        ] {
            assert_eq!(is_in_no_proxy(host, list), expected, "{host}");
        }
        assert!(is_in_no_proxy("any", "*") && !is_in_no_proxy("any", ""));
    }
}
