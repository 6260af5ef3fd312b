//! Keys, updates, aggregators in threads, and the check that every sum is exact.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use ciphergram_accel::{CpuEngine, Engine, Info, Operand, Program, RunError};
use ciphergram_he::job::SettledTensor;
use ciphergram_he::params::{Literal, Scheme};
use ciphergram_he::{
    Agreement, Dtype, Job, Ledger, Limits, Member, OpenedSum, Parameters, PublicKey, SecretKey,
    Sum, Tensor, TensorSpec, Update,
};
use ciphergram_nic::federation::spool::Spool;
use ciphergram_nic::federation::{
    Error, FederationClient, FederationServer, Observation, Participation, PathConfig, RoundResult,
    ServerConfig,
};
use ciphergram_nic::proto::{DatagramSizes, Identity};
use ciphergram_nic::round::AggregatorEvent;
use ciphergram_nic::wire::{SocketWire, Wire};

/// Longer than anything here takes, shorter than anyone waits.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A deadline by which every client that lives is through, on a slow machine beside other work too: only those that
/// died or sleep miss it.
pub(crate) const DEADLINE: Duration = Duration::from_secs(15);

pub(crate) fn engine() -> Arc<dyn Engine> {
    static ENGINE: OnceLock<Arc<CpuEngine>> = OnceLock::new();
    ENGINE.get_or_init(Arc::default).clone()
}

/// Returns a key for four clients at 16 bits, the same at every call.
pub(crate) fn key(scheme: Scheme) -> &'static SecretKey {
    static LATTICE: OnceLock<SecretKey> = OnceLock::new();
    static PAILLIER: OnceLock<SecretKey> = OnceLock::new();
    let place = match scheme {
        Scheme::CkksSum => &LATTICE,
        _ => &PAILLIER,
    };
    place.get_or_init(|| SecretKey::generate(Literal { scheme, clients: 4, bits: 16 }).unwrap())
}

/// Returns a job of all clients of a key, of which at least two are summed: the same at every call.
pub(crate) fn job(key: &PublicKey) -> &'static Job {
    static JOBS: Mutex<BTreeMap<String, &'static Job>> = Mutex::new(BTreeMap::new());
    let make = || {
        leak(
            Job::new(key, Limits { min_clients: 2, colluders: None, ..Limits::of_key(key) })
                .unwrap(),
        )
    };
    JOBS.lock().unwrap().entry(key.id().to_string()).or_insert_with(make)
}

/// Returns a job that leaves nothing open: an agreement's tensors, ranges and largest weight.
pub(crate) fn settled_job(key: &PublicKey, agreement: &Agreement) -> &'static Job {
    let settled = |(spec, &range): (&TensorSpec, &f64)| SettledTensor {
        spec: spec.clone(),
        range: Some(range),
    };
    let tensors = agreement.specs().iter().zip(agreement.ranges()).map(settled).collect();
    let limits = Limits {
        min_clients: 2,
        colluders: None,
        max_weight: agreement.max_weight(),
        tensors: Some(tensors),
        ..Limits::of_key(key)
    };
    leak(Job::new(key, limits).unwrap())
}

/// Keeps a value for as long as the test runs, in whichever threads.
pub(crate) fn leak<T>(value: T) -> &'static T {
    Box::leak(Box::new(value))
}

/// Returns a bias of three values and `values` more, of another size for every client and round.
pub(crate) fn update(number: u16, round: u32, values: usize) -> Update {
    let size = f64::from(number + 1) * 0.3;
    let value = move |i: usize| {
        let phase = i as f64 * 0.37 + f64::from(number) * 1000.0 + f64::from(round);
        phase.sin() * size
    };
    let tensor = |name: &str, dtype, shape: Vec<u64>, count| {
        let spec = TensorSpec { name: name.into(), dtype, shape };
        Tensor::from_values(spec, &(0..count).map(value).collect::<Vec<_>>()).unwrap()
    };
    Update::new(vec![
        tensor("bias", Dtype::F64, vec![3], 3),
        tensor("weights", Dtype::F32, vec![values as u64], values),
    ])
}

pub(crate) fn weight(number: u16) -> u64 {
    u64::from(number) * 10 + 7
}

/// An engine that takes its time to encrypt, and dies when asked for the `dies_at`-th batch that is
/// sent.
pub(crate) struct Troubled {
    pub(crate) pause: Duration,
    pub(crate) dies_at: usize,
    pub(crate) polynomials: AtomicUsize,
}

/// Polynomials that are sealed, one by one, before they are sent.
const POLYNOMIALS_A_BATCH: usize = 4;

impl Troubled {
    pub(crate) fn new(pause: Duration, dies_at: usize) -> Arc<Self> {
        Arc::new(Self { pause, dies_at, polynomials: AtomicUsize::new(0) })
    }
}

impl Engine for Troubled {
    fn name(&self) -> &'static str {
        "troubled"
    }
    fn info(&self) -> Info {
        Info::of_host("a process about to die")
    }
    fn supports(&self, step: &str) -> bool {
        engine().supports(step)
    }
    fn run(&self, program: &Program, operands: &mut [Operand<'_>]) -> Result<(), RunError> {
        // Of a polynomial that is sealed, the mask is made before its tiles.
        if ["encrypt", "mask"].iter().any(|name| program.name().contains(name)) {
            let polynomial = self.polynomials.fetch_add(1, Ordering::SeqCst);
            let batch = polynomial / POLYNOMIALS_A_BATCH;
            if batch > 0 && polynomial.is_multiple_of(POLYNOMIALS_A_BATCH) {
                thread::sleep(self.pause);
            }
            if batch >= self.dies_at {
                return Err(RunError::Unsupported { engine: "troubled", step: "life" });
            }
        }
        engine().run(program, operands)
    }
}

/// An aggregator in a thread of its own.
pub(crate) struct Serving {
    pub(crate) addr: SocketAddr,
    pub(crate) events: Receiver<AggregatorEvent>,
    pub(crate) thread: JoinHandle<()>,
}

/// The number of a node that may be any contributor.
pub(crate) const ANYONE: u16 = 100;

/// Returns the aggregator's node.
pub(crate) fn server() -> Identity {
    Identity::from_secret(&[200; 32]).unwrap()
}

/// Returns the node of client `number`.
pub(crate) fn node(number: u16) -> Identity {
    Identity::from_secret(&[number as u8 + 1; 32]).unwrap()
}

pub(crate) fn client(addr: SocketAddr, number: u16) -> Result<FederationClient<SocketWire>, Error> {
    let wires = SocketWire::bind_towards(addr, 1, 1)?;
    FederationClient::new(wires, addr, server().id(), number, node(number), PathConfig::default())
}

/// Wires for an aggregator of two pipelines, at any port.
pub(crate) fn wires() -> Vec<SocketWire> {
    SocketWire::bind_all((Ipv4Addr::LOCALHOST, 0).into(), 2, 1).unwrap()
}

pub(crate) fn config(clients: u16, min_clients: u16) -> ServerConfig {
    ServerConfig {
        identity: server(),
        allowed: (0..clients)
            .map(|number| (node(number).id(), Some(number)))
            .chain([(node(ANYONE).id(), None)])
            .collect(),
        clients,
        min_clients,
        rounds: 1,
        join_deadline: PATIENCE,
        wait_for_clients: false,
        whole: false,
        round_deadline: PATIENCE,
        poll: false,
        sizes: DatagramSizes::DEFAULT,
        ranges_key: None,
    }
}

/// Serves the key's [`job`] until all rounds are over, or until `dies` says so of an event.
pub(crate) fn serve(
    key: &PublicKey,
    config: ServerConfig,
    dies: impl Fn(&AggregatorEvent) -> bool + Send + 'static,
) -> Serving {
    serve_over(wires(), key, job(key), config, dies)
}

/// As [`serve`], over wires of the caller's and for a job of the caller's.
pub(crate) fn serve_over<W: Wire>(
    wires: Vec<W>,
    key: &PublicKey,
    job: &Job,
    config: ServerConfig,
    dies: impl Fn(&AggregatorEvent) -> bool + Send + 'static,
) -> Serving {
    let server = FederationServer::new(wires, key.clone(), job.clone(), engine(), config).unwrap();
    let addr = server.local_addr().unwrap();
    let (sender, events) = mpsc::channel();
    let thread = thread::spawn(move || {
        let mut server = server;
        let died = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            server.run(|seen| {
                let Observation::Event(event) = seen else { return ControlFlow::Continue(()) };
                let dead = dies(&event);
                let _ = sender.send(event);
                if dead {
                    // Without a word, and without the message of a panic.
                    std::panic::resume_unwind(Box::new(()));
                }
                ControlFlow::Continue(())
            })
        }));
        drop(died);
    });
    Serving { addr, events, thread }
}

impl Serving {
    /// Returns the first event that `wanted` picks.
    pub(crate) fn wait<T>(&self, wanted: impl Fn(AggregatorEvent) -> Option<T>) -> T {
        loop {
            let event = self.events.recv_timeout(PATIENCE).expect("the aggregator says no more");
            if let Some(found) = wanted(event) {
                return found;
            }
        }
    }

    pub(crate) fn wait_for_joins(&self, count: usize) {
        for _ in 0..count {
            self.wait(|event| matches!(event, AggregatorEvent::Joined { .. }).then_some(()));
        }
    }
}

/// Returns a client's part in a round, by default.
pub(crate) fn participation<'a>(
    key: &'a SecretKey,
    update: &'a Update,
    number: u16,
) -> Participation<'a> {
    Participation {
        member: Member::new(
            key.as_client(number),
            job(key.public()),
            leak(Ledger::in_memory()),
            engine(),
        ),
        update,
        weight: weight(number),
        spool: None,
        patience: PATIENCE,
        keep_fields: true,
        opener: None,
    }
}

/// Returns the same under another job.
pub(crate) fn under<'a>(job: &'a Job, mut participation: Participation<'a>) -> Participation<'a> {
    participation.member.job = job;
    participation
}

/// Lets the spool go, as whoever has taken the result does.
pub(crate) fn without_spool(result: Result<RoundResult, Error>) -> Result<RoundResult, Error> {
    let mut result = result?;
    result.spool.take().map_or(Ok(()), Spool::remove)?;
    Ok(result)
}

/// Returns a client for one round in a thread of its own.
pub(crate) fn contribute(
    key: &'static SecretKey,
    addr: SocketAddr,
    number: u16,
    values: usize,
    change: impl FnOnce(&mut Participation<'_>) + Send + 'static,
) -> JoinHandle<Result<RoundResult, Error>> {
    thread::spawn(move || {
        let update = update(number, 0, values);
        let mut participation = participation(key, &update, number);
        change(&mut participation);
        let mut client = client(addr, number)?;
        let result = client.contribute(&participation, |_| ControlFlow::Continue(()));
        client.leave()?;
        without_spool(result)
    })
}

/// As [`contribute`], with a spool and an engine.
pub(crate) fn contribute_spooled(
    key: &'static SecretKey,
    addr: SocketAddr,
    number: u16,
    values: usize,
    engine: Arc<dyn Engine>,
    spool: &Path,
) -> JoinHandle<Result<RoundResult, Error>> {
    let spool = spool.to_path_buf();
    thread::spawn(move || {
        let update = update(number, 0, values);
        let mut participation = participation(key, &update, number);
        (participation.member.engine, participation.spool) = (engine, Some(&*spool));
        let mut client = client(addr, number)?;
        let result = client.contribute(&participation, |_| ControlFlow::Continue(()));
        client.leave()?;
        without_spool(result)
    })
}

/// Returns the opened sum is exactly that of the integers of those listed, chunk by chunk, and so
/// are the weights. Returns how many contributed to each chunk.
pub(crate) fn check_exact(
    key: &SecretKey,
    numbers: &[u16],
    sum: &Sum,
    opened: &OpenedSum,
    fields: &BTreeMap<u16, Vec<u32>>,
) -> Vec<usize> {
    let half = i64::from(key.public().parameters().half_steps());
    let chunks = key.public().parameters().chunks(sum.agreement.values());
    assert_eq!(numbers.len(), sum.contributors.len());
    assert_eq!(opened.sums().len(), chunks.values());
    assert_eq!(opened.parts().len(), chunks.count() as usize);
    (0..chunks.count())
        .map(|chunk| {
            let listed: Vec<u16> =
                sum.sets[chunk as usize].iter().map(|index| numbers[index]).collect();
            for i in chunks.values_of(chunk) {
                let plain: i64 = listed.iter().map(|n| i64::from(fields[n][i]) - half).sum();
                assert_eq!(opened.sums()[i], plain, "value {i} over {listed:?}");
            }
            let weights = listed.iter().map(|&n| weight(n)).sum::<u64>();
            assert_eq!(opened.parts()[chunk as usize], (listed.len(), weights), "chunk {chunk}");
            listed.len()
        })
        .collect()
}

/// Checks that an opened sum is exactly that of the integers of those listed, in every chunk, and so are the weights.
pub(crate) fn check_fields(
    parameters: &Parameters,
    listed: &[u16],
    opened: &OpenedSum,
    fields: &BTreeMap<u16, Vec<u32>>,
) {
    let half = i64::from(parameters.half_steps());
    for (i, &sum) in opened.sums().iter().enumerate() {
        let plain: i64 = listed.iter().map(|n| i64::from(fields[n][i]) - half).sum();
        assert_eq!(sum, plain, "value {i} over {listed:?}");
    }
    let weights = listed.iter().map(|&n| weight(n)).sum::<u64>();
    assert!(opened.parts().iter().all(|part| *part == (listed.len(), weights)));
}

/// [`check_exact`] of every client's result.
pub(crate) fn check_results(
    key: &SecretKey,
    results: &BTreeMap<u16, RoundResult>,
    more: &[(u16, Vec<u32>)],
) -> Vec<usize> {
    let own =
        results.iter().map(|(&number, result)| (number, result.fields.as_ref().unwrap().to_vec()));
    let fields: BTreeMap<u16, Vec<u32>> = own.chain(more.iter().cloned()).collect();
    let mut counts = vec![];
    for result in results.values() {
        let numbers = &result.opening.as_ref().unwrap().contributors;
        counts = check_exact(key, numbers, &result.sum, result.opened.as_ref().unwrap(), &fields);
    }
    counts
}

/// Returns an agreement over the layout of [`update`].
pub(crate) fn agreement(values: usize, range: f64, max_weight: u32) -> Agreement {
    let specs = update(0, 0, values).specs();
    let ranges = vec![range; specs.len()];
    Agreement::new(specs, ranges, max_weight).unwrap()
}
