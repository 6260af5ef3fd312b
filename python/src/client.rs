//! A client of rounds over datagrams.

use std::{
    ops::ControlFlow,
    path::PathBuf,
    process,
    sync::{
        Mutex, MutexGuard, PoisonError, TryLockError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use ciphergram_he::{self as he, AnyKey, Destination, Member, threshold::OpenerKey};
use ciphergram_nic::federation::{
    self, Participation, PathConfig, RoundResult, ServerCandidates, SocketClient,
    SocketClientConfig,
    nodes::{read_identity, read_node},
};
use pyo3::prelude::*;

use crate::{
    arrays::{self, Arrays},
    errors::{Error, Result, warn_clipped, weight, whole_or_none},
    files::SECRET,
    holder::Holder,
    job::PyJob,
    keys::PyMember,
    opened,
    server::{check_process, datagram_sizes, local_nodes, seconds, transports},
    sum::PySum,
};

/// Rounds whose numbers a client reserves at a time.
const ROUNDS_RESERVED: u64 = 32;

/// The longest wait between two looks at whether a call that waits for another's round is to end.
const LOOK: Duration = Duration::from_millis(20);

/// A client of a server's rounds. It stays between rounds, until it is closed.
///
/// Making one reaches nobody: the server is first asked when a round begins, in `mean` or `sum`, and one that is not
/// there is `Unreachable` then.
///
/// Args:
///     server: The server's address, "HOST:PORT".
///     key: A client's own key, a member's or the secret key, or the path of its file; the folder of a key stands for
///         its secret one. A member that is an opener answers while it takes part.
///     number: The client's number, from 0; a client's own key has it.
///     identity: The file of the client's node key; None, on loopback or in a bundle, for the one beside the key.
///     server_key: The server's node key, or the path of its file; None, likewise, for the one beside the key.
///     spool: A file to keep what is sealed in until the result is there, so that a process that was killed can
///         finish its round: the same update and weight are to be given again. None keeps nothing.
///     job: The job; None for the key's own.
///     min_clients: The fewest contributors of a sum that is opened; None for the job's.
///     timeout: Seconds for which a server that does not answer is tried.
///     engine: "cpu", "gpu" or "auto".
///     transport: "udp"; "tcp"; or "auto": UDP, and where nobody answers by it within seconds a connection by TCP.
///     proxy: The HTTP proxy that connections by TCP go through, "http://USER:PASSWORD@HOST:PORT"; None for that of
///         HTTPS_PROXY, but to hosts of NO_PROXY and of this machine.
///     datagram: Bytes of the longest datagrams that a path is tried with; None for 8,900.
///
/// Raises:
///     KeyKind: The key is public.
///     NodeKeyError: A node key cannot be used, or is not there.
///     NoJob: The key has no job, and none is given.
#[pyclass(frozen, name = "Client", module = "ciphergram")]
pub(crate) struct PyClient {
    config: SocketClientConfig,
    key: Holder,
    /// The opener that it is as well.
    opener: Option<OpenerKey>,
    /// The client's number.
    #[pyo3(get)]
    number: u16,
    /// The job.
    #[pyo3(get)]
    job: PyJob,
    engine: String,
    spool: Option<PathBuf>,
    patience: Duration,
    owner: u32,
    /// How often it was stopped: a call ends if that was after it began.
    stops: AtomicU64,
    end: Mutex<ClientEnd>,
}

/// The end that talks to the server, while there is one; held for the whole of a round.
type ClientEnd = Option<SocketClient>;

/// A call that waits, until it is stopped or a signal comes.
struct StoppableCall<'a> {
    stops: &'a AtomicU64,
    began: u64,
}

impl StoppableCall<'_> {
    /// Returns an error if the call is to end.
    fn check(&self) -> Result<()> {
        if self.stops.load(Relaxed) != self.began {
            return Err(federation::Error::Stopped.into());
        }
        Ok(Python::attach(|py| py.check_signals())?)
    }
}

#[pymethods]
impl PyClient {
    #[new]
    #[pyo3(signature = (server, key, *, number=None, identity=None, server_key=None, spool=None, job=None,
                        min_clients=None, timeout=30.0, engine="cpu", transport="auto", proxy=None,
                        datagram=None))]
    #[expect(clippy::too_many_arguments)]
    fn new(
        server: &str,
        key: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = whole_or_none)] number: Option<u16>,
        identity: Option<PathBuf>,
        server_key: Option<PathBuf>,
        spool: Option<PathBuf>,
        job: Option<&PyJob>,
        #[pyo3(from_py_with = whole_or_none)] min_clients: Option<u16>,
        timeout: f64,
        engine: &str,
        transport: &str,
        proxy: Option<&str>,
        #[pyo3(from_py_with = whole_or_none)] datagram: Option<usize>,
    ) -> Result<Self> {
        let parsed =
            |text: &str| text.parse().map_err(|why| Error::parameter(format!("proxy=: {why}")));
        let proxy = proxy.map(parsed).transpose()?;
        let found = ServerCandidates::resolve(server, transports(transport)?, proxy)
            .map_err(|why| Error::parameter(format!("address {server:?}: {why}")))?;
        let addresses = found.addresses();
        let (key, path) = client_key(key, number)?;
        let mut job = PyJob(key.job(job)?);
        let (number, opener) = match (&*key.key, &path) {
            (AnyKey::Identity(own, _), Some(path)) => {
                let client = own.client(&job.0, &key.ledger()?)?.number();
                let asked = number.unwrap_or(client);
                if asked != client {
                    return Err(he::Error::AnotherClient { found: client, asked }.into());
                }
                // It answers by the job as it is.
                (client, own.opener_if_any(path, &job.0)?)
            }
            (key, _) => (key.as_client(number)?.number(), None),
        };
        if let Some(least) = min_clients {
            job = job.requiring(least)?;
        }
        job.0.check_number(number)?;
        let local = || local_nodes(path.as_deref(), addresses, "identity= and server_key=");
        let identity = identity.map_or_else(|| Ok(local()?.client), Ok::<_, Error>)?;
        let node = match server_key {
            Some(text) => match text.to_str().and_then(|text| text.parse().ok()) {
                Some(node) => node,
                None => read_node(&text)?,
            },
            None => read_node(&local()?.server_node)?,
        };
        // A name that is none is refused now, not in a round.
        crate::engines::engine(engine)?;
        let config = SocketClientConfig {
            node,
            number,
            identity: read_identity(&identity)?,
            server: found,
            paths: PathConfig { sizes: datagram_sizes(datagram)?, ..PathConfig::default() },
            pipelines: 1,
        };
        Ok(Self {
            config,
            key,
            opener,
            number,
            job,
            engine: engine.into(),
            spool,
            patience: seconds("timeout", timeout)?,
            owner: process::id(),
            stops: AtomicU64::new(0),
            end: Mutex::new(None),
        })
    }

    /// Takes part in one round, and returns the weighted mean of its clients' tensors. A call while another thread is
    /// in a round of this client waits for that round's end.
    ///
    /// Args:
    ///     tensors: Arrays of floats by name, or the path of a safetensors file.
    ///     weight: The weight of this update, from 1; it travels encrypted. Unless the job settles all ranges,
    ///         the server is told it as well, for the largest one of the round.
    ///     total: Returns the weighted sum instead of the mean.
    ///     clip: Clips values to this magnitude first.
    ///     integers: As of `SecretKey.encrypt`; those that are kept are in the result as they are here.
    ///
    /// Returns:
    ///     New arrays by name, in the order, shapes and types given; `contributors`, `clipped` and `ranges` beside
    ///     them.
    ///
    /// Raises:
    ///     KeyKind: A client's own key opens nothing: see `sum`.
    ///     Unreachable, Unlisted, Refused, Withheld: There was no round, or not with this client.
    ///     NotFinite, DtypeError, LayoutError, WeightError, BeyondJob: As `SecretKey.encrypt`.
    ///     SumMismatch, SecondSum, TooFew: As `SecretKey.decrypt`.
    ///     Stopped: Another thread called `stop` or `close`.
    ///     ForkedError: The client is of the process that this one was forked from.
    #[pyo3(signature = (tensors, *, weight=1, total=false, clip=None, integers="keep"))]
    fn mean<'py>(
        &self,
        py: Python<'py>,
        tensors: &Bound<'py, PyAny>,
        #[pyo3(from_py_with = weight)] weight: u64,
        total: bool,
        clip: Option<f64>,
        integers: &str,
    ) -> Result<Bound<'py, PyAny>> {
        let (AnyKey::Secret(..) | AnyKey::Identity(..)) = &*self.key.key else {
            let text = "a client's own key opens no sums: take part with sum(), and have the secret key open it";
            return Err(Error::Own("KeyKind", text.into()));
        };
        // A path has no order.
        let like = tensors.hasattr("items")?.then_some(tensors);
        let open = |result: &mut RoundResult, member: &Member<'_>| {
            let mut arrays = Arrays::new(py, &result.sum.agreement, like)?;
            let target = &mut arrays;
            py.detach(|| {
                let mut slices = target.slices();
                let to = Destination::Memory(&mut slices);
                result.open_to(member, opened::output(total), to)
            })?;
            Ok(arrays)
        };
        let (result, arrays) = self.take_part(py, (tensors, clip, integers), weight, open)?;
        opened::opened(py, arrays, &result.sum, total, Some(&result.clipped))
    }

    /// Takes part in one round, and returns the encrypted sum, for clients that open nothing.
    ///
    /// Args:
    ///     tensors, weight, clip, integers: As `mean`.
    ///
    /// Raises:
    ///     As `mean`, but for what opening raises. KeyKind: It is a member, whose sums open with their round.
    #[pyo3(signature = (tensors, *, weight=1, clip=None, integers="keep"))]
    fn sum(
        &self,
        py: Python<'_>,
        tensors: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = weight)] weight: u64,
        clip: Option<f64>,
        integers: &str,
    ) -> Result<PySum> {
        if let AnyKey::Identity(..) = &*self.key.key {
            let text = "a member opens its sums by openers' answers, which come with them: take part with mean()";
            return Err(Error::Own("KeyKind", text.into()));
        }
        let open = |_: &mut RoundResult, _: &Member<'_>| Ok(());
        let (result, ()) = self.take_part(py, (tensors, clip, integers), weight, open)?;
        let public = self.key.public_of(Some(self.job.0.clone()));
        Ok(PySum::new(result.sum, public, Some(result.clipped)))
    }

    /// Ends the calls of other threads that are under way, which raise `Stopped` there, as Ctrl-C ends this one's.
    ///
    /// The server is not told. The client may take part again at once, and takes its own place if the round has not
    /// opened yet; one that opened meanwhile counts it in, waits for it until its `round_timeout`, and refuses it
    /// (`Refused`) unless a spool has what it sealed.
    fn stop(&self) {
        self.stops.fetch_add(1, Relaxed);
    }

    /// Leaves the server; ends the calls of other threads first, as `stop` does.
    fn close(&self, py: Python<'_>) -> Result<()> {
        if self.owner != process::id() {
            return Ok(());
        }
        self.stop();
        let call = self.call();
        py.detach(|| {
            let end = self.hold(&call)?.take();
            Ok(end.map_or(Ok(()), SocketClient::leave)?)
        })
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_error))]
    fn __exit__(&self, py: Python<'_>, _error: &Bound<'_, PyAny>) -> Result<()> {
        self.close(py)
    }

    fn __repr__(&self) -> String {
        format!("<Client {} of the server at {}>", self.number, self.config.server.name())
    }
}

impl PyClient {
    /// Begins a call that can be stopped from now on.
    fn call(&self) -> StoppableCall<'_> {
        StoppableCall { stops: &self.stops, began: self.stops.load(Relaxed) }
    }

    /// Takes the end that talks to the server, which another thread may hold for as long as its round lasts.
    fn hold(&self, call: &StoppableCall<'_>) -> Result<MutexGuard<'_, ClientEnd>> {
        loop {
            match self.end.try_lock() {
                Ok(end) => return Ok(end),
                Err(TryLockError::Poisoned(end)) => return Ok(end.into_inner()),
                Err(TryLockError::WouldBlock) => thread::sleep(LOOK),
            }
            call.check()?;
        }
    }

    /// Takes part in a round with tensors, clipped and integers treated as asked, and opens what came of it. Counts
    /// what was clipped here as well.
    fn take_part<T>(
        &self,
        py: Python<'_>,
        (tensors, clip, integers): (&Bound<'_, PyAny>, Option<f64>, &str),
        weight: u64,
        open: impl FnOnce(&mut RoundResult, &Member<'_>) -> Result<T>,
    ) -> Result<(RoundResult, T)> {
        check_process(self.owner, "Client")?;
        let call = self.call();
        let (update, outside) = arrays::take_clipped(py, tensors, clip, integers)?;
        self.key.act(Some(self.number), &self.job.0, &self.engine, |member| {
            let participation = Participation {
                member: member.clone(),
                update: &update,
                weight,
                spool: self.spool.as_deref(),
                patience: self.patience,
                keep_fields: false,
                opener: self.opener.as_ref(),
            };
            let mut result = self.contribute(py, &participation, &call)?;
            let opened = open(&mut result, member)?;
            // Its result is there.
            result.spool.take().map_or(Ok(()), |spool| spool.remove())?;
            warn_clipped(py, &result.clipped);
            result.clipped = he::codec::most_clipped(&outside, &result.clipped);
            Ok((result, opened))
        })
    }

    /// Contributes to a round, until it ends, a signal comes, or the call is stopped.
    fn contribute(
        &self,
        py: Python<'_>,
        participation: &Participation<'_>,
        call: &StoppableCall<'_>,
    ) -> Result<RoundResult> {
        let mut ends = None;
        let observe = |_| match call.check() {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                ends = Some(error);
                ControlFlow::Break(())
            }
        };
        let result = py.detach(|| {
            let mut end = self.hold(call)?;
            let client = end.get_or_insert_with(|| SocketClient::new(self.config.clone()));
            Ok(client.contribute(participation, observe)?)
        });
        ends.map_or(result, Err)
    }
}

/// Takes a key that a client contributes with, and the path of its file, if it is of one.
fn client_key(key: &Bound<'_, PyAny>, number: Option<u16>) -> Result<(Holder, Option<PathBuf>)> {
    let Ok(path) = key.extract::<PathBuf>() else {
        let holder = Holder::of(key)?;
        if let Ok(member) = key.cast::<PyMember>() {
            let path = member.get().1.lock().unwrap_or_else(PoisonError::into_inner).clone();
            return Ok((holder, Some(path)));
        }
        holder.key.as_client(number)?;
        return Ok((holder, None));
    };
    let path = if path.is_dir() { path.join(SECRET) } else { path };
    // One line of the ledger for many rounds.
    let holder = Holder::load(key.py(), &path, None, ROUNDS_RESERVED)?;
    if !matches!(&*holder.key, AnyKey::Identity(..)) {
        holder.key.as_client(number).map_err(|e| e.within(path.display()))?;
    }
    Ok((holder, Some(path)))
}
