//! Connections to an aggregator, maybe through a proxy that forwards what `CONNECT` asks for (RFC 9110, 9.3.6).

use std::fmt::{self, Display, Formatter};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::str::FromStr;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use zeroize::Zeroizing;

/// The time in which a connection is made, and a proxy answers.
pub const DIAL_SPAN: Duration = Duration::from_secs(3);
/// The wait before a proxy is asked again that refused for good: whoever tries a wrong password often is locked out.
pub const REFUSED_SPAN: Duration = Duration::from_secs(60);
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
    /// A proxy answers nothing in time, or no HTTP.
    #[error("the proxy at {proxy} does not answer in HTTP: {kind}")]
    NoHttp {
        /// The proxy.
        proxy: SocketAddr,
        /// The fault.
        kind: ErrorKind,
    },
}

impl DialError {
    /// Returns whether a host says that nothing listens at the port.
    #[must_use]
    pub fn is_refused(self) -> bool {
        matches!(self, Self::Connect { kind: ErrorKind::ConnectionRefused, .. })
    }

    /// Returns whether a proxy will refuse again: it forbids the connection, or asks for other credentials.
    pub(crate) fn is_final(self) -> bool {
        matches!(self, Self::Refused { code: 403 | 407, .. })
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

/// Decodes a URL's percent escapes; other percent signs stay.
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

/// Connects to an aggregator.
#[derive(Clone, Debug)]
pub struct Dialer {
    /// The aggregator's address, or its proxy's.
    pub address: SocketAddr,
    /// Credentials of a proxy, and whom it is asked to connect to.
    pub proxied: Option<Proxied>,
}

/// A host behind a proxy.
#[derive(Clone, Debug)]
pub struct Proxied {
    /// `HOST:PORT`.
    pub host: String,
    /// The proxy.
    pub proxy: Proxy,
}

impl Dialer {
    /// Makes one that connects without a proxy.
    #[must_use]
    pub fn direct(address: SocketAddr) -> Self {
        Self { address, proxied: None }
    }

    /// Connects on a thread of its own, since that takes seconds.
    pub(crate) fn start(&self) -> Receiver<Result<TcpStream, DialError>> {
        let (dialer, (sender, receiver)) = (self.clone(), channel());
        // Without a thread the sender goes, as if the connection had failed.
        let _ = thread::Builder::new().spawn(move || sender.send(dialer.connect()));
        receiver
    }

    /// Connects.
    ///
    /// # Errors
    ///
    /// [`DialError`].
    pub fn connect(&self) -> Result<TcpStream, DialError> {
        let (to, end) = (self.address, Instant::now() + DIAL_SPAN);
        let connected = TcpStream::connect_timeout(&to, DIAL_SPAN);
        let mut stream = connected.map_err(|e| DialError::Connect { to, kind: e.kind() })?;
        let Some(proxied) = &self.proxied else { return Ok(stream) };
        let no_http = |e: io::Error| DialError::NoHttp { proxy: to, kind: e.kind() };
        match ask(&mut stream, proxied, end).map_err(no_http)? {
            200..300 => Ok(stream),
            code => Err(DialError::Refused { proxy: to, code }),
        }
    }
}

/// Returns the meaning of a proxy's status code.
fn reason(code: u16) -> &'static str {
    match code {
        403 => ", it forbids that",
        407 => ", it asks for other credentials",
        502..=504 => ", it does not reach it",
        _ => "",
    }
}

/// Asks a proxy to connect to a host. Returns the status code of its answer, which has to come before `end`.
fn ask(stream: &mut TcpStream, Proxied { host, proxy }: &Proxied, end: Instant) -> io::Result<u16> {
    let mut request = Zeroizing::new(format!("CONNECT {host} HTTP/1.1\r\nHost: {host}\r\n"));
    if let Some(credentials) = &proxy.credentials {
        request.push_str("Proxy-Authorization: Basic ");
        request.push_str(credentials);
        request.push_str("\r\n");
    }
    request.push_str("\r\n");
    stream.set_write_timeout(Some(rest_until(end)?))?;
    stream.write_all(request.as_bytes())?;
    loop {
        let answer = read_head(stream, end)?;
        let mut fields = [httparse::EMPTY_HEADER; MAX_ANSWER_FIELDS];
        let mut parsed = httparse::Response::new(&mut fields);
        parsed.parse(&answer).map_err(|_| ErrorKind::InvalidData)?;
        match parsed.code.ok_or(ErrorKind::InvalidData)? {
            // What it decides follows.
            100..200 => {}
            code => return Ok(code),
        }
    }
}

/// Reads to the end of an answer's head: what follows is the next one's, or the aggregator's.
fn read_head(stream: &mut TcpStream, end: Instant) -> io::Result<Vec<u8>> {
    let mut answer = vec![];
    while !answer.ends_with(b"\r\n\r\n") {
        stream.set_read_timeout(Some(rest_until(end)?))?;
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        answer.extend_from_slice(&byte);
        if answer.len() > MAX_ANSWER_BYTES {
            return Err(ErrorKind::InvalidData.into());
        }
    }
    Ok(answer)
}

/// Returns the time that is left; none left is an error.
fn rest_until(end: Instant) -> io::Result<Duration> {
    let rest = end.saturating_duration_since(Instant::now());
    if rest.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(rest) }
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
