//! Answers `GET` and `HEAD` over HTTP/1.1, on threads of its own, for `--metrics`: one request a connection, each
//! bounded in bytes and in time.

use std::{
    fmt::{Display, Write as _},
    io::{self, Read, Write},
    net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use crate::failure::Failure;

/// The longest request, from its first byte to the blank line.
const MAX_REQUEST_BYTES: usize = 8 << 10;
/// Bytes read and dropped after a refused request.
const MAX_REST_BYTES: u64 = 1 << 20;
/// The longest that one connection may take, so that a stalled peer delays others no longer.
const MAX_ANSWER_SPAN: Duration = Duration::from_secs(2);
/// The same while every thread has a connection: others may wait behind those that stall.
const CROWDED_ANSWER_SPAN: Duration = Duration::from_millis(250);
/// The wait when there is no room for another connection.
const NO_ROOM_SLEEP: Duration = Duration::from_millis(100);
/// The silence after which a loop of datagrams counts as stalled.
const MAX_SILENCE: Duration = Duration::from_secs(10);
/// Connections answered at once: a browser opens some that it asks nothing of.
const THREADS: usize = 8;

/// The status of an answer that is there.
pub(crate) const OK: &str = "200 OK";

/// The answer to a request that names it.
pub(crate) struct Page {
    /// The code and its words.
    pub(crate) status: &'static str,
    /// The type of `body`.
    pub(crate) content_type: &'static str,
    /// Header lines of its own, each with its end.
    pub(crate) headers: String,
    pub(crate) body: String,
}

impl Page {
    /// Returns numbers as OpenMetrics text, which Prometheus reads.
    pub(crate) fn metrics(families: String) -> Self {
        let content_type = "application/openmetrics-text; version=1.0.0; charset=utf-8";
        Self { status: OK, content_type, headers: String::new(), body: families + "# EOF\n" }
    }

    /// Returns whether something is as it should be, or the reason why not.
    pub(crate) fn verdict(outcome: Result<(), String>) -> Self {
        match outcome {
            Ok(()) => Self::line(OK, "ok"),
            Err(reason) => Self::line("503 Service Unavailable", &reason),
        }
    }

    /// Returns a line of text.
    pub(crate) fn line(status: &'static str, line: &str) -> Self {
        let content_type = "text/plain; charset=utf-8";
        Self { status, content_type, headers: String::new(), body: format!("{line}\n") }
    }
}

/// Threads that answer requests.
pub(crate) struct Responder {
    address: SocketAddr,
    state: Arc<ConnectionState>,
}

struct ConnectionState {
    /// Read from a request's first byte to the last of its answer.
    answering: RwLock<()>,
    over: AtomicBool,
    /// Threads that have a connection.
    busy: AtomicUsize,
    /// Whether the listener is for this machine only.
    local: bool,
}

impl Responder {
    /// Listens at `address`, which `--metrics` names, and answers a path with the page that `pages` has for it.
    pub(crate) fn start(
        address: SocketAddr,
        pages: impl Fn(&str) -> Option<Page> + Send + Sync + 'static,
    ) -> Result<Self, Failure> {
        Self::listen(address, pages)
            .map_err(|error| Failure::Work(format!("--metrics {address}: {}", error.kind())))
    }

    fn listen(
        address: SocketAddr,
        pages: impl Fn(&str) -> Option<Page> + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let listener = Arc::new(TcpListener::bind(address)?);
        let address = listener.local_addr()?;
        let local = address.ip().is_loopback();
        let (over, busy) = (AtomicBool::default(), AtomicUsize::default());
        let state = ConnectionState { answering: RwLock::default(), over, busy, local };
        let (state, pages) = (Arc::new(state), Arc::new(pages));
        for _ in 0..THREADS {
            let (listener, state, pages) = (listener.clone(), state.clone(), pages.clone());
            let run = move || run(&listener, &state, &*pages);
            thread::Builder::new().name("metrics".into()).spawn(run)?;
        }
        Ok(Self { address, state })
    }

    /// Returns the address it listens at, with the port that the system chose if none was asked
    /// for.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends after the answers in progress.
    pub(crate) fn finish(self) {
        self.state.over.store(true, Ordering::SeqCst);
        drop(self.state.answering.write());
    }
}

/// Refuses a loop of datagrams that turned too long ago, which it does ten times a second: for `/healthz`.
///
/// # Errors
/// The reason why not.
pub(crate) fn check_turned(turned: Instant, now: Instant) -> Result<(), String> {
    let silence = now.saturating_duration_since(turned);
    if silence > MAX_SILENCE {
        return Err(format!("the loop of datagrams stalls for {} s", silence.as_secs()));
    }
    Ok(())
}

/// Writes what is said of one name as OpenMetrics text, and its values by how their names and labels go on.
pub(crate) fn family(
    page: &mut String,
    kind: &str,
    name: &str,
    help: &str,
    values: impl IntoIterator<Item = (String, impl Display)>,
) {
    let name = format!("ciphergram_{name}");
    // Writing to a string does not fail.
    let _ = writeln!(page, "# HELP {name} {help}\n# TYPE {name} {kind}");
    if name.ends_with("_seconds") {
        let _ = writeln!(page, "# UNIT {name} seconds");
    }
    for (rest, value) in values {
        let _ = writeln!(page, "{name}{rest} {value}");
    }
}

/// Writes the version of the program.
pub(crate) fn version_family(page: &mut String) {
    let version = concat!("_info{version=\"", env!("CARGO_PKG_VERSION"), "\"}");
    family(page, "info", "build", "Version of the program.", [(version.into(), 1)]);
}

/// Locks a mutex, poisoned or not: nothing behind it could be left halfway by a panic.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn run(listener: &TcpListener, state: &ConnectionState, pages: &impl Fn(&str) -> Option<Page>) {
    while !state.over.load(Ordering::SeqCst) {
        match listener.accept() {
            Ok((stream, _)) => {
                let others = state.busy.fetch_add(1, Ordering::Relaxed);
                let is_crowded = others + 1 >= THREADS;
                let span = if is_crowded { CROWDED_ANSWER_SPAN } else { MAX_ANSWER_SPAN };
                let peer = Timed { stream, end: Instant::now() + span };
                // One that went or stalled gets no answer.
                drop(answer(peer, state, pages));
                state.busy.fetch_sub(1, Ordering::Relaxed);
            }
            Err(_) => thread::sleep(NO_ROOM_SLEEP),
        }
    }
}

fn answer(
    mut peer: Timed,
    state: &ConnectionState,
    pages: &impl Fn(&str) -> Option<Page>,
) -> io::Result<()> {
    // A connection that nothing is asked of holds up no end.
    peer.wait()?;
    let _answering = state.answering.read();
    if state.over.load(Ordering::SeqCst) {
        return Ok(());
    }
    let request = parse(&read_head(&mut peer)?, state.local);
    let is_understood = request.is_ok();
    let (page, body_wanted) = match request {
        Ok(HttpRequest { path, with_body }) => {
            (pages(&path).unwrap_or_else(|| refusal(NOT_FOUND)), with_body)
        }
        Err(status) => (refusal(status), true),
    };
    let Page { status, content_type, headers, body } = page;
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\n{headers}\
         Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n",
        body.len()
    );
    peer.write_all(head.as_bytes())?;
    if body_wanted {
        peer.write_all(body.as_bytes())?;
    }
    peer.stream.shutdown(Shutdown::Write)?;
    if !is_understood {
        // Closing with bytes unread resets the connection, and the answer might be lost with it.
        io::copy(&mut peer.take(MAX_REST_BYTES), &mut io::sink())?;
    }
    Ok(())
}

const BAD_REQUEST: &str = "400 Bad Request";
const NOT_FOUND: &str = "404 Not Found";
const METHOD_NOT_ALLOWED: &str = "405 Method Not Allowed";
const MISDIRECTED: &str = "421 Misdirected Request";

fn refusal(status: &'static str) -> Page {
    let allow = if status == METHOD_NOT_ALLOWED { "Allow: GET, HEAD\r\n" } else { "" };
    Page { headers: allow.into(), ..Page::line(status, status) }
}

/// Reads a request up to its blank line, or as much of it as came, or as is read of one too long.
fn read_head(peer: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut head = vec![];
    let mut bytes = [0; 1024];
    while head.len() < MAX_REQUEST_BYTES && !is_whole(&head) {
        match peer.read(&mut bytes)? {
            0 => break,
            count => head.extend_from_slice(&bytes[..count]),
        }
    }
    Ok(head)
}

fn is_whole(head: &[u8]) -> bool {
    head.windows(4).any(|end| end == b"\r\n\r\n")
}

/// A request that may be answered with a page.
#[derive(Debug, PartialEq)]
struct HttpRequest {
    /// Without what follows a `?`.
    path: String,
    with_body: bool,
}

/// Returns the request, or the status that refuses it.
fn parse(head: &[u8], local: bool) -> Result<HttpRequest, &'static str> {
    let text = std::str::from_utf8(head).ok().filter(|_| is_whole(head)).ok_or(BAD_REQUEST)?;
    let mut lines = text.split("\r\n");
    let line = lines.next().unwrap_or_default();
    let [method, target, "HTTP/1.0" | "HTTP/1.1"] = line.split(' ').collect::<Vec<_>>()[..] else {
        return Err(BAD_REQUEST);
    };
    let named = !method.is_empty() && method.bytes().all(|byte| byte.is_ascii_uppercase());
    if !named || !target.starts_with('/') {
        return Err(BAD_REQUEST);
    }
    let mut hosts = lines.filter_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("host").then_some(value.trim())
    });
    // A page elsewhere could let its own name point here (DNS rebinding), and read what a browser
    // on this machine may.
    if local && !hosts.all(is_own_name) {
        return Err(MISDIRECTED);
    }
    let path = target.split('?').next().unwrap_or_default().to_owned();
    match method {
        "GET" | "HEAD" => Ok(HttpRequest { path, with_body: method == "GET" }),
        _ => Err(METHOD_NOT_ALLOWED),
    }
}

/// Returns whether a `Host` is an address or `localhost`, which nobody else's name is.
fn is_own_name(host: &str) -> bool {
    let is_port = |port: &str| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    let name =
        host.rsplit_once(':').filter(|(_, port)| is_port(port)).map_or(host, |(name, _)| name);
    let name = name.strip_prefix('[').and_then(|n| n.strip_suffix(']')).unwrap_or(name);
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok()
}

/// A connection all of whose reads and writes end in time.
struct Timed {
    stream: TcpStream,
    end: Instant,
}

impl Timed {
    fn left(&self) -> io::Result<Option<Duration>> {
        match self.end.saturating_duration_since(Instant::now()) {
            Duration::ZERO => Err(io::ErrorKind::TimedOut.into()),
            left => Ok(Some(left)),
        }
    }

    /// Waits until there is something to read, or the other side has said everything.
    fn wait(&self) -> io::Result<()> {
        self.stream.set_read_timeout(self.left()?)?;
        self.stream.peek(&mut [0]).map(drop)
    }
}

impl Read for Timed {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(self.left()?)?;
        self.stream.read(bytes)
    }
}

impl Write for Timed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(self.left()?)?;
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_requests_are_understood() {
        for (line, with_body) in
            [("GET /metrics?a=b HTTP/1.1", true), ("HEAD /metrics HTTP/1.0", false)]
        {
            let head = format!("{line}\r\nHost: localhost:9464\r\n\r\n");
            let request = HttpRequest { path: "/metrics".into(), with_body };
            assert_eq!(parse(head.as_bytes(), true), Ok(request), "{line}");
            assert_eq!(
                parse(&head.as_bytes()[..head.len() - 1], true),
                Err(BAD_REQUEST),
                "{line} cut"
            );
        }
        for line in ["POST / HTTP/1.1", "OPTIONS /metrics HTTP/1.1"] {
            assert_eq!(parse(format!("{line}\r\n\r\n").as_bytes(), true), Err(METHOD_NOT_ALLOWED));
        }
        for line in ["", "GET /metrics", "GET  /metrics HTTP/1.1", "get /metrics HTTP/1.1"]
            .into_iter()
            .chain(["GET metrics HTTP/1.1", "GET /metrics HTTP/2.0", "\u{1f980}"])
        {
            assert_eq!(
                parse(format!("{line}\r\n\r\n").as_bytes(), true),
                Err(BAD_REQUEST),
                "{line}"
            );
        }
        assert_eq!(parse(b"GET /\xff HTTP/1.1\r\n\r\n", true), Err(BAD_REQUEST));
    }

    /// On loopback; who may reach another address is for whoever opened it to say.
    #[test]
    fn foreign_names_are_refused() {
        let ask = |host: &str, local| {
            parse(format!("GET / HTTP/1.1\r\nA: b\r\nhOST:{host}\r\n\r\n").as_bytes(), local)
        };
        for own in ["localhost", " LOCALHOST:9464 ", "127.0.0.1:80", "[::1]:9464", "10.0.0.7"] {
            assert!(ask(own, true).is_ok(), "{own}");
        }
        for foreign in
            ["evil.example", "evil.example:9464", "localhost.evil.example", "", "127.0.0.1.nip.io"]
        {
            assert_eq!(ask(foreign, true), Err(MISDIRECTED), "{foreign:?}");
            assert!(ask(foreign, false).is_ok(), "{foreign:?}");
        }
        let both = b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n";
        assert_eq!(parse(both, true), Err(MISDIRECTED));
    }

    #[test]
    fn no_more_of_a_request_is_read_than_its_bound() {
        let read = read_head(&mut io::repeat(b'x')).unwrap_or_default().len();
        assert!((MAX_REQUEST_BYTES..MAX_REQUEST_BYTES + 1024).contains(&read), "{read}");
    }
}
