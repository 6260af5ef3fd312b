//! A server of rounds, on a thread of its own.

use std::{
    net::SocketAddr,
    ops::ControlFlow,
    path::{Path, PathBuf},
    process,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
        mpsc::{self, Sender},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use ciphergram_he::{self as he, private_ranges::RangesEvaluationKey};
use ciphergram_nic::{
    federation::{
        self, Observation, ServerCommand, ServerConfig, Transports,
        nodes::{Allowed, LocalNodes, allowed_by, read_allowed, read_identity},
        resolve,
    },
    proto::DatagramSizes,
    round::AggregatorEvent,
    wire::SocketWire,
};
use pyo3::prelude::*;

use crate::{
    errors::{Error, Result, whole, whole_or_none},
    job::PyJob,
    keys::PyPublicKey,
    pool,
    private_ranges::PyRangesKey,
};

/// The longest wait between two looks at whether something ended, or a signal came.
const LOOK: Duration = Duration::from_millis(50);

/// A server that sums what clients contribute, round by round, and holds public material only. It runs on a thread
/// of its own until it is stopped, or its rounds are over, and logs who joins, who is refused or lost, and how
/// rounds end as `ciphergram.server`.
///
/// Args:
///     key: The public key, or the path of its file or folder.
///     listen: The address to listen at, "HOST:PORT"; port 0 for any.
///     clients: The clients of a round; None for all of the job.
///     min_clients: The fewest contributors of a sum that leaves; None for the job's.
///     rounds: Rounds to run; 0 for no end.
///     job: The job; None for the key's own.
///     identity: The file of the server's node key; None, on loopback or in a bundle, for the one
///         beside the key.
///     allow: The file that lists the nodes that may take part; None for the job's, or, on loopback or in a bundle,
///         for the one beside the key.
///     join_timeout: Seconds after the first client joined, when a round opens without those who are missing.
///     round_timeout: Seconds after its opening, when a round closes with those who came.
///     wait_for_clients: Waits on after `join_timeout` if clients are too few for a round.
///     by_chunk: Counts each chunk that arrives, also of contributions that stay incomplete, so that a sum may be of
///         other clients in one chunk than in the next.
///     engine: "cpu", "gpu" or "auto".
///     ranges_key: The key to find ranges with, if clients agree on them without showing theirs; None for the file
///         beside the key.
///     transport: "udp"; "tcp", for connections alone; or "auto", for both at one port.
///     datagram: Bytes of the longest datagrams that a path is tried with; None for 8,900.
///
/// Raises:
///     KeyKind: The key is more than public.
///     NoRangesKey: The job agrees on ranges, and there is no key to find them with.
///     NodeKeyError: A file of node keys cannot be used.
///     ParameterError: The address is none, or the clients are more than the job has.
#[pyclass(frozen, name = "Server", module = "ciphergram")]
pub(crate) struct PyServer {
    /// The address that it listens at, "HOST:PORT".
    #[pyo3(get)]
    address: String,
    /// The server's node key, which clients of other machines need.
    #[pyo3(get)]
    server_key: String,
    owner: u32,
    commands: Mutex<Sender<ServerCommand>>,
    shared: Arc<ServerState>,
    thread: Mutex<Option<JoinHandle<Result<(), federation::Error>>>>,
}

/// What the thread and its owner both see.
#[derive(Default)]
struct ServerState {
    rounds: AtomicU64,
    /// Whether to end at once.
    ends: AtomicBool,
}

impl ServerState {
    fn follow(&self, log: &Sender<LogLine>, seen: &Observation) -> ControlFlow<()> {
        if let Observation::Event(event) = seen {
            if let AggregatorEvent::Closed(_) = event {
                self.rounds.fetch_add(1, Relaxed);
            }
            // Another thread writes it: this one must not wait for the interpreter. Chunks that settle have no line.
            if let Some(line) = event.line() {
                let _ = log.send(LogLine { line, is_warning: event.is_warning() });
            }
        }
        if self.ends.load(Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

fn spawn<T: Send + 'static>(
    name: &str,
    run: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>> {
    Ok(thread::Builder::new().name(name.into()).spawn(run).map_err(he::Error::from)?)
}

/// A line of the log.
struct LogLine {
    line: String,
    is_warning: bool,
}

/// Writes a line to the log `ciphergram.server`; what is wrong, as a warning.
fn write_line(LogLine { line, is_warning }: LogLine) {
    let level = if is_warning { "warning" } else { "info" };
    // At the interpreter's end nobody reads it. Whatever a handler raises is its own: rounds go on.
    let _ = Python::try_attach(|py| {
        let written = py.import("logging").and_then(|logging| {
            let logger = logging.call_method1("getLogger", ("ciphergram.server",))?;
            logger.call_method1(level, ("%s", line))
        });
        if let Err(error) = written {
            error.write_unraisable(py, None);
        }
    });
}

/// Reads a public key, and finds its job: from a file, or as it is.
fn public_key(key: &Bound<'_, PyAny>) -> Result<(PyPublicKey, Option<PathBuf>)> {
    let Ok(path) = key.extract::<PathBuf>() else {
        // Never the public half of what is more: it would be here, then.
        let text = "a server holds public material only: give it keys.public, or public.json";
        let public = key.cast::<PyPublicKey>().map_err(|_| Error::Own("KeyKind", text.into()))?;
        return Ok((public.get().clone(), None));
    };
    let path = if path.is_dir() { path.join("public.json") } else { path };
    Ok((PyPublicKey::load(key.py(), &path)?, Some(path)))
}

#[pymethods]
impl PyServer {
    #[new]
    #[pyo3(signature = (key, *, listen="127.0.0.1:0", clients=None, min_clients=None, rounds=0, job=None, identity=None,
                        allow=None, join_timeout=30.0, round_timeout=300.0, wait_for_clients=false, by_chunk=false,
                        engine="cpu", ranges_key=None, transport="auto", datagram=None))]
    #[expect(clippy::too_many_arguments)]
    fn new(
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        listen: &str,
        #[pyo3(from_py_with = whole_or_none)] clients: Option<u16>,
        #[pyo3(from_py_with = whole_or_none)] min_clients: Option<u16>,
        #[pyo3(from_py_with = whole)] rounds: u32,
        job: Option<&PyJob>,
        identity: Option<PathBuf>,
        allow: Option<PathBuf>,
        join_timeout: f64,
        round_timeout: f64,
        wait_for_clients: bool,
        by_chunk: bool,
        engine: &str,
        ranges_key: Option<&PyRangesKey>,
        transport: &str,
        #[pyo3(from_py_with = whole_or_none)] datagram: Option<usize>,
    ) -> Result<Self> {
        let (key, path) = public_key(key)?;
        let job = key.0.job(job)?;
        let address = addresses(listen)?[0];
        let clients = clients.unwrap_or(job.limits().clients);
        let local = || local_nodes(path.as_deref(), &[address], "identity= and allow=");
        let identity = identity.map_or_else(|| Ok(local()?.server), Ok::<_, Error>)?;
        let allowed: Allowed = match (allow, allowed_by(&job)?) {
            (Some(path), _) => read_allowed(&path)?,
            (None, Some(nodes)) => nodes,
            (None, None) => read_allowed(&local()?.allowed)?,
        };
        let ranges_key = match (ranges_key, &path) {
            (Some(given), _) => Some(given.key.clone()),
            (None, Some(path)) => {
                pool::run(py, || Ok(RangesEvaluationKey::of_job(&job, key.key(), path, None)?))?
            }
            (None, None) => None,
        };
        let config = ServerConfig {
            identity: read_identity(&identity)?,
            allowed,
            clients,
            min_clients: min_clients.unwrap_or(job.min_clients().min(clients)),
            rounds,
            join_deadline: seconds("join_timeout", join_timeout)?,
            wait_for_clients,
            round_deadline: seconds("round_timeout", round_timeout)?,
            whole: !by_chunk,
            poll: false,
            sizes: datagram_sizes(datagram)?,
            ranges_key,
        };
        let server_key = config.identity.id().to_string();
        let wires = transports(transport)?.bind(address, 1).map_err(federation::Error::from)?;
        let engine = crate::engines::engine(engine)?;
        let server = federation::FederationServer::new(
            wires,
            key.key().clone(),
            (*job).clone(),
            engine,
            config,
        )?;
        Self::start(server, server_key)
    }

    /// The number of rounds that closed.
    #[getter]
    fn rounds(&self) -> u64 {
        self.shared.rounds.load(Relaxed)
    }

    /// Waits until all rounds are over.
    ///
    /// Args:
    ///     timeout: Seconds to wait at most; None for no end.
    ///
    /// Returns:
    ///     Whether they are over.
    ///
    /// Raises:
    ///     CiphergramError: The server failed.
    #[pyo3(signature = (timeout=None))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> Result<bool> {
        self.check_process()?;
        let timeout = timeout.map(|timeout| seconds("timeout", timeout)).transpose()?;
        self.wait_for(py, timeout)
    }

    /// Stops the server, after the sums of the last round that closed are delivered.
    ///
    /// Args:
    ///     timeout: Seconds to wait for that at most.
    ///
    /// Raises:
    ///     CiphergramError: The server had failed.
    #[pyo3(signature = (timeout=10.0))]
    fn stop(&self, py: Python<'_>, timeout: f64) -> Result<()> {
        self.check_process()?;
        let timeout = seconds("timeout", timeout)?;
        let commands = self.commands.lock().unwrap_or_else(PoisonError::into_inner).clone();
        // One that ended takes no more commands.
        let _ = commands.send(ServerCommand::Stop);
        let stopped = self.wait_for(py, Some(timeout));
        if !matches!(stopped, Ok(true)) {
            self.shared.ends.store(true, Relaxed);
            py.detach(|| self.join())?;
        }
        stopped.map(drop)
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_error))]
    fn __exit__(&self, py: Python<'_>, _error: &Bound<'_, PyAny>) -> Result<()> {
        self.stop(py, 10.0)
    }

    fn __repr__(&self) -> String {
        format!("<Server at {}, {} rounds closed>", self.address, self.rounds())
    }
}

impl PyServer {
    fn start(
        mut server: federation::FederationServer<SocketWire>,
        server_key: String,
    ) -> Result<Self> {
        let address = server.local_addr()?.to_string();
        let commands = Mutex::new(server.commands());
        let shared = Arc::new(ServerState::default());
        let (own, pool) = (shared.clone(), pool::beside()?);
        let (log, lines) = mpsc::channel();
        let writer = spawn("ciphergram-log", move || lines.iter().for_each(write_line))?;
        let run = move || {
            // In a pool of its own: what it computes is spread there, and nowhere else.
            let ended = pool.install(|| server.run(|seen| own.follow(&log, &seen)).map(drop));
            drop(log);
            // Whoever waits for the server finds its log whole.
            let _ = writer.join();
            ended
        };
        let thread = spawn("ciphergram-server", run)?;
        let thread = Mutex::new(Some(thread));
        Ok(Self { address, server_key, owner: process::id(), commands, shared, thread })
    }

    fn check_process(&self) -> Result<()> {
        check_process(self.owner, "Server")
    }

    fn wait_for(&self, py: Python<'_>, timeout: Option<Duration>) -> Result<bool> {
        let since = Instant::now();
        while !self.is_over() {
            if timeout.is_some_and(|timeout| since.elapsed() >= timeout) {
                return Ok(false);
            }
            py.detach(|| thread::sleep(LOOK.min(timeout.unwrap_or(LOOK))));
            py.check_signals()?;
        }
        py.detach(|| self.join()).map(|()| true)
    }

    fn is_over(&self) -> bool {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Waits for the thread, and says once how it ended.
    fn join(&self) -> Result<()> {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(thread) = thread else { return Ok(()) };
        match thread.join() {
            Ok(ended) => Ok(ended?),
            Err(_) => Err(Error::Own("CiphergramError", "the server's thread panicked".into())),
        }
    }
}

impl Drop for PyServer {
    fn drop(&mut self) {
        // The thread sees it within a fraction of a second; nobody waits for it here.
        self.shared.ends.store(true, Relaxed);
    }
}

/// Refuses what another process made: its threads and sockets are not here.
pub(crate) fn check_process(owner: u32, class: &str) -> Result<()> {
    if owner == process::id() {
        return Ok(());
    }
    let text = format!(
        "this {class} belongs to process {owner}, of which this one is a fork: make another here"
    );
    Err(Error::Own("ForkedError", text))
}

/// Returns the addresses that a text of a host and a port stands for; at least one.
pub(crate) fn addresses(text: &str) -> Result<Vec<SocketAddr>> {
    resolve(text).map_err(|why| Error::parameter(format!("address {text:?}: {why}")))
}

/// Returns the node keys beside the file of a scheme's key, for a server that is at one of these addresses. `options`
/// name what else gives them.
pub(crate) fn local_nodes(
    key: Option<&Path>,
    addresses: &[SocketAddr],
    options: &str,
) -> Result<LocalNodes> {
    key.and_then(|path| LocalNodes::with_key(path, addresses).ok()).ok_or_else(|| {
        let text = format!(
            "say {options}: node keys are found beside the key's file on loopback, and in a bundle"
        );
        Error::Own("NodeKeyError", text)
    })
}

/// Reads the transports that are used.
pub(crate) fn transports(text: &str) -> Result<Transports> {
    text.parse().map_err(|why| Error::parameter(format!("transport={text:?}: {why}")))
}

/// Returns the sizes of datagrams up to the longest that a path is tried with.
pub(crate) fn datagram_sizes(longest: Option<usize>) -> Result<DatagramSizes> {
    let Some(bytes) = longest else { return Ok(DatagramSizes::DEFAULT) };
    DatagramSizes::up_to(bytes).map_err(|why| Error::parameter(format!("datagram={bytes}: {why}")))
}

/// Returns a span of so many seconds.
pub(crate) fn seconds(name: &str, seconds: f64) -> Result<Duration> {
    let bad = |_| Error::parameter(format!("{name}={seconds}: it is no number of seconds"));
    Duration::try_from_secs_f64(seconds).map_err(bad)
}
