//! Answers `GET /metrics` over HTTP/1.1, on a thread of its own: one request a connection, one
//! connection after the other, each bounded in bytes and in time.

use std::{
    io::{self, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

/// The longest request, from its first byte to the blank line.
const MAX_REQUEST_BYTES: usize = 8 << 10;
/// Bytes read and dropped after a refused request.
const MAX_REST_BYTES: u64 = 1 << 20;
/// The longest that one connection may take, so that a stalled peer delays others no longer.
const MAX_ANSWER_SPAN: Duration = Duration::from_secs(2);
/// The wait when there is no room for another connection.
const NO_ROOM_SLEEP: Duration = Duration::from_millis(100);

/// A thread that answers requests.
pub(super) struct Responder {
    address: SocketAddr,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    /// Held from a request's first byte to the last of its answer.
    answering: Mutex<()>,
    over: AtomicBool,
}

impl Responder {
    /// Listens at `address`, and answers with what `page` returns.
    pub(super) fn start(
        address: SocketAddr,
        page: impl Fn() -> String + Send + 'static,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        let address = listener.local_addr()?;
        let state = Arc::new(State::default());
        let shared = state.clone();
        let run = move || run(&listener, &shared, &page);
        thread::Builder::new().name("metrics".into()).spawn(run)?;
        Ok(Self { address, state })
    }

    /// Returns the address it listens at, with the port that the system chose if none was asked
    /// for.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends after the answer in progress.
    pub(super) fn finish(self) {
        self.state.over.store(true, Ordering::SeqCst);
        drop(lock(&self.state.answering));
    }
}

/// Locks a mutex, poisoned or not: nothing behind it could be left halfway by a panic.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn run(listener: &TcpListener, state: &State, page: &impl Fn() -> String) {
    for stream in listener.incoming() {
        let _answering = lock(&state.answering);
        if state.over.load(Ordering::SeqCst) {
            return;
        }
        match stream {
            // One that went or stalled gets no answer.
            Ok(stream) => drop(answer(stream, page)),
            Err(_) => thread::sleep(NO_ROOM_SLEEP),
        }
    }
}

fn answer(stream: TcpStream, page: &impl Fn() -> String) -> io::Result<()> {
    let mut peer = Timed { stream, end: Instant::now() + MAX_ANSWER_SPAN };
    let status = status(&read_head(&mut peer)?);
    let found = status.starts_with("200");
    let body = if found { page() } else { format!("{status}\n") };
    let version = if found { "; version=0.0.4" } else { "" };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain{version}; charset=utf-8\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    peer.write_all((head + &body).as_bytes())?;
    peer.stream.shutdown(Shutdown::Write)?;
    if !found {
        // Closing with bytes unread resets the connection, and the answer might be lost with it.
        io::copy(&mut peer.take(MAX_REST_BYTES), &mut io::sink())?;
    }
    Ok(())
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

fn status(head: &[u8]) -> &'static str {
    const BAD: &str = "400 Bad Request";
    let line = head.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let Some(line) = std::str::from_utf8(line).ok().filter(|_| is_whole(head)) else { return BAD };
    let [method, target, "HTTP/1.0" | "HTTP/1.1"] = line.split(' ').collect::<Vec<_>>()[..] else {
        return BAD;
    };
    let named = !method.is_empty() && method.bytes().all(|byte| byte.is_ascii_uppercase());
    if !named || !target.starts_with('/') {
        return BAD;
    }
    let path = target.split('?').next();
    if method == "GET" && path == Some("/metrics") { "200 OK" } else { "404 Not Found" }
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
    fn only_a_whole_get_of_the_page_is_answered_with_it() {
        let code = |head: &str| status(head.as_bytes())[..3].to_owned();
        for head in
            ["GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", "GET /metrics?a=b HTTP/1.0\r\n\r\n"]
        {
            assert_eq!(code(head), "200", "{head:?}");
            assert_eq!(code(&head[..head.len() - 1]), "400", "{head:?} cut");
        }
        for line in ["GET / HTTP/1.1", "POST /metrics HTTP/1.1", "GET /metrics/ HTTP/1.1"] {
            assert_eq!(code(&format!("{line}\r\n\r\n")), "404", "{line}");
        }
        for line in ["", "GET /metrics", "GET  /metrics HTTP/1.1", "get /metrics HTTP/1.1"]
            .into_iter()
            .chain(["GET metrics HTTP/1.1", "GET /metrics HTTP/2.0", "\u{1f980}"])
        {
            assert_eq!(code(&format!("{line}\r\n\r\n")), "400", "{line}");
        }
        assert_eq!(status(b"GET /\xff HTTP/1.1\r\n\r\n"), "400 Bad Request");
    }

    #[test]
    fn no_more_of_a_request_is_read_than_its_bound() {
        let read = read_head(&mut io::repeat(b'x')).unwrap_or_default().len();
        assert!((MAX_REQUEST_BYTES..MAX_REQUEST_BYTES + 1024).contains(&read), "{read}");
    }
}
