//! Connections to an aggregator, maybe through a proxy that forwards what `CONNECT` asks for (RFC 9110, 9.3.6).

use std::fmt::{self, Display, Formatter};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::str::FromStr;
use std::time::Duration;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use zeroize::Zeroizing;

/// The wait for a connection, and for each answer of a proxy.
pub const DIAL_SPAN: Duration = Duration::from_secs(3);
/// The most bytes of a proxy's answer.
const MAX_ANSWER_BYTES: usize = 8192;
/// The most fields of a proxy's answer.
const MAX_ANSWER_FIELDS: usize = 64;

/// A reason why there is no connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DialError {
    /// The host, or the network, does not let us connect.
    #[error("no connection by TCP to {to}: {kind}")]
    Connect {
        /// The address.
        to: SocketAddr,
        /// The operating system's error.
        kind: ErrorKind,
    },
    /// A proxy refuses.
    #[error("the proxy at {proxy} refuses to connect to the aggregator: HTTP {code}{}", reason(*code))]
    Refused {
        /// The proxy.
        proxy: SocketAddr,
        /// Its status code.
        code: u16,
    },
    /// A proxy answers nothing, or no HTTP.
    #[error("the proxy at {proxy} does not answer in HTTP: {kind}")]
    Silent {
        /// The proxy.
        proxy: SocketAddr,
        /// The fault.
        kind: ErrorKind,
    },
}

impl DialError {
    /// Returns the address that there is no connection to: the aggregator's, or a proxy's.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        match *self {
            Self::Connect { to, .. } => to,
            Self::Refused { proxy, .. } | Self::Silent { proxy, .. } => proxy,
        }
    }
}

/// An HTTP proxy, `http://[USER:PASSWORD@]HOST[:PORT]`.
#[derive(Clone, PartialEq, Eq)]
pub struct Proxy {
    host: String,
    /// As the proxy expects them.
    credentials: Option<Zeroizing<String>>,
}

impl Proxy {
    /// Returns its host and port.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }
}

impl Display for Proxy {
    /// Writes the host and port alone.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.host)
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "Proxy({self})")
    }
}

impl FromStr for Proxy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = || "a proxy is http://[USER:PASSWORD@]HOST[:PORT]".to_owned();
        let rest = text.strip_prefix("http://").or((!text.contains("://")).then_some(text));
        let rest = rest.ok_or_else(expected)?.trim_end_matches('/');
        let (credentials, host) = match rest.rsplit_once('@') {
            Some((credentials, host)) => (Some(credentials), host),
            None => (None, rest),
        };
        let is_host = |c: char| c.is_ascii_alphanumeric() || "-._:[]".contains(c);
        let has_port = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        if host.is_empty() || !host.chars().all(is_host) {
            return Err(expected());
        }
        let host = if has_port { host.to_owned() } else { format!("{host}:80") };
        let encoded =
            credentials.map(|plain| Zeroizing::new(BASE64_STANDARD.encode(decoded(plain))));
        Ok(Self { host, credentials: encoded })
    }
}

/// Decodes the percent signs of a URL; what is no such escape stays.
fn decoded(text: &str) -> Zeroizing<Vec<u8>> {
    let mut out = Zeroizing::new(Vec::with_capacity(text.len()));
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let hex = |at: usize| char::from(*after.get(at)?).to_digit(16);
        let escaped = (*first == b'%').then(|| Some((hex(0)? * 16 + hex(1)?) as u8)).flatten();
        out.push(escaped.unwrap_or(*first));
        rest = if escaped.is_some() { &after[2..] } else { after };
    }
    out
}

/// How an aggregator is reached by TCP.
#[derive(Clone, Debug)]
pub struct Dial {
    /// The aggregator's address, or the proxy's.
    pub address: SocketAddr,
    /// The aggregator's host and port, and the proxy that is asked to connect there.
    pub through: Option<(String, Proxy)>,
}

impl Dial {
    /// Connects.
    ///
    /// # Errors
    ///
    /// [`DialError`].
    pub fn connect(&self) -> Result<TcpStream, DialError> {
        let to = self.address;
        let connected = TcpStream::connect_timeout(&to, DIAL_SPAN);
        let mut stream = connected.map_err(|e| DialError::Connect { to, kind: e.kind() })?;
        let Some((host, proxy)) = &self.through else { return Ok(stream) };
        let silent = |e: io::Error| DialError::Silent { proxy: to, kind: e.kind() };
        match ask(&mut stream, host, proxy).map_err(silent)? {
            200..300 => Ok(stream),
            code => Err(DialError::Refused { proxy: to, code }),
        }
    }
}

/// Returns what a proxy means by a status code.
fn reason(code: u16) -> &'static str {
    match code {
        403 => ", it forbids that",
        407 => ", it asks for other credentials",
        502..=504 => ", it does not reach it",
        _ => "",
    }
}

/// Asks a proxy to connect to a host. Returns the status code of its answer.
fn ask(stream: &mut TcpStream, host: &str, proxy: &Proxy) -> io::Result<u16> {
    stream.set_read_timeout(Some(DIAL_SPAN))?;
    stream.set_write_timeout(Some(DIAL_SPAN))?;
    let mut request = Zeroizing::new(format!("CONNECT {host} HTTP/1.1\r\nHost: {host}\r\n"));
    if let Some(credentials) = &proxy.credentials {
        request.push_str("Proxy-Authorization: Basic ");
        request.push_str(credentials);
        request.push_str("\r\n");
    }
    request.push_str("\r\n");
    stream.write_all(request.as_bytes())?;
    let mut answer = vec![];
    while !answer.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        // What follows the answer is the aggregator's.
        stream.read_exact(&mut byte)?;
        answer.extend_from_slice(&byte);
        if answer.len() > MAX_ANSWER_BYTES {
            return Err(ErrorKind::InvalidData.into());
        }
    }
    let mut fields = [httparse::EMPTY_HEADER; MAX_ANSWER_FIELDS];
    let mut parsed = httparse::Response::new(&mut fields);
    parsed.parse(&answer).map_err(|_| ErrorKind::InvalidData)?;
    parsed.code.ok_or_else(|| ErrorKind::InvalidData.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proxies_are_read_and_do_not_show_their_credentials() {
        let proxy: Proxy = "http://a%40b:c:d%@proxy.example:3128/".parse().unwrap();
        assert_eq!(proxy.host(), "proxy.example:3128");
        let credentials = BASE64_STANDARD.decode(&**proxy.credentials.as_ref().unwrap()).unwrap();
        assert_eq!(credentials, b"a@b:c:d%");
        assert_eq!(format!("{proxy} {proxy:?}"), "proxy.example:3128 Proxy(proxy.example:3128)");
        let host = |text: &str| text.parse().map(|proxy: Proxy| proxy.host);
        assert_eq!(host("10.0.0.1"), Ok("10.0.0.1:80".into()));
        assert_eq!(host("[::1]:8080"), Ok("[::1]:8080".into()));
        for text in
            ["", "https://proxy", "socks5://proxy", "http://", "http://a b", "http://a\r\nX: y"]
        {
            assert!(host(text).is_err(), "{text}");
        }
    }
}
