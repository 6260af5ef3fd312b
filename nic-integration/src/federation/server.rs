//! The aggregator as a process: public material, wires, one loop.

use std::{
    collections::BTreeMap,
    fs::File,
    net::SocketAddr,
    ops::ControlFlow,
    sync::{
        Arc,
        mpsc::{self, Receiver, Sender},
    },
    time::Duration,
};

use ciphergram_accel::Engine;
use ciphergram_he::{Job, PublicKey, private_ranges::RangesEvaluationKey, random};
use tracing::{Span, field::Empty, info_span};

use super::{
    Allowed, Error, FAREWELL, PROGRESS_SPAN,
    application::{RangesProgress, SumApplication},
    fresh_endpoint,
    pipelines::PipelineSet,
};
use crate::{
    driver::MAX_SLEEP,
    proto::{Config, DatagramSizes, Identity, Stats, Time},
    round::{Aggregator, AggregatorConfig, AggregatorEvent, RoundProgress},
    wire::{PcapFile, Wire},
};

/// An aggregator's settings.
#[derive(Clone)]
pub struct ServerConfig {
    /// The aggregator's node key.
    pub identity: Identity,
    /// The nodes that may take part.
    pub allowed: Allowed,
    /// Clients declared; contributor numbers are below it.
    pub clients: u16,
    /// No sum of fewer leaves.
    pub min_clients: u16,
    /// Rounds to run; 0 for no end.
    pub rounds: u32,
    /// The span after which a round opens without the missing clients: see
    /// [`AggregatorConfig`](AggregatorConfig::join_deadline).
    pub join_deadline: Duration,
    /// Whether clients that are too few at the join deadline wait on: see
    /// [`AggregatorConfig`](AggregatorConfig::wait_for_clients).
    pub wait_for_clients: bool,
    /// The time after its opening at which a round closes with those who came.
    pub round_deadline: Duration,
    /// Whether only whole contributions count: see
    /// [`AggregatorConfig`](AggregatorConfig::whole).
    pub whole: bool,
    /// Polls the sockets instead of sleeping: a core's worth of time for some microseconds less.
    pub poll: bool,
    /// The sizes of datagrams that are tried.
    pub sizes: DatagramSizes,
    /// The key that private ranges are found with, for a job that has such.
    pub ranges_key: Option<Arc<RangesEvaluationKey>>,
}

/// The time for which a round's sums are offered to clients that do not acknowledge any.
const LINGER: Duration = Duration::from_secs(10);

/// A server's progress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Time since the server began.
    pub elapsed: Duration,
    /// The number of clients that wait for the next round.
    pub waiting: usize,
    /// Private ranges of the next round, while they are found.
    pub ranges: Option<RangesProgress>,
    /// The open round, or the last one; none before the first.
    pub round: Option<RoundProgress>,
    /// The endpoint's counters.
    pub stats: Stats,
}

/// An observation of a server by its owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Observation {
    /// Something happened.
    Event(AggregatorEvent),
    /// Its progress: at once, then twenty times a second at most, and whenever a round is finished.
    Progress(Progress),
}

/// A command to a server from another thread, which it takes within
/// [`MAX_SLEEP`].
pub enum ServerCommand {
    /// Let other nodes take part, from the next round on: see [`Aggregator::allow`].
    Allow(Allowed),
    /// End once the sums of the last round that closed are delivered, or given up. Clients of the open
    /// round, and those who wait, get no word: they look for the next aggregator there.
    Stop,
}

/// An aggregator that listens.
pub struct FederationServer<W> {
    pipelines: PipelineSet<W>,
    node: Aggregator<SumApplication>,
    /// Both ends of the queue, so that it never closes.
    commands: (Sender<ServerCommand>, Receiver<ServerCommand>),
}

impl<W: Wire> FederationServer<W> {
    /// Returns an aggregator with a pipeline for each of `wires`, all of one IP address; clients
    /// contact the first.
    ///
    /// # Errors
    ///
    /// The wires', or no such number of pipelines; more clients than the job has; a minimum that
    /// the clients cannot reach, or below the rank of private ranges.
    pub fn new(
        wires: Vec<W>,
        key: PublicKey,
        job: Job,
        engine: Arc<dyn Engine>,
        config: ServerConfig,
    ) -> Result<Self, Error> {
        let admitted = job.limits().clients;
        if config.clients > admitted {
            return Err(Error::TooManyClients { declared: config.clients, admitted });
        }
        if let Ok(private) = job.private_ranges() {
            // Else fewer clients than the rank would wait for a round that never opens.
            private.check_count(config.min_clients.into())?;
        }
        let pipelines = PipelineSet::new(wires, 1, config.poll)?;
        let (count, ports) = (pipelines.count(), pipelines.ports()?);
        let endpoint = fresh_endpoint(config.identity, config.sizes)?;
        let settings = AggregatorConfig {
            endpoint: Config { pipelines: count, ports, ..endpoint },
            nodes: config.allowed,
            clients: config.clients,
            min_clients: config.min_clients,
            rounds: config.rounds,
            join_deadline: config.join_deadline,
            wait_for_clients: config.wait_for_clients,
            round_deadline: config.round_deadline,
            whole: config.whole,
            linger: LINGER,
            seed: *random::bytes::<32>()?,
        };
        let node =
            Aggregator::new(settings, SumApplication::new(key, job, engine, config.ranges_key)?)?;
        Ok(Self { pipelines, node, commands: mpsc::channel() })
    }

    /// Returns the address of the first pipeline.
    ///
    /// # Errors
    ///
    /// The wire's.
    pub fn local_addr(&self) -> Result<SocketAddr, Error> {
        Ok(self.pipelines.local_addr()?)
    }

    /// Also writes every datagram, sent and received, to `file`: see
    /// [`Captured`](crate::wire::Captured).
    ///
    /// # Errors
    ///
    /// The socket's, or the file's.
    pub fn capture(&mut self, file: File) -> Result<(), Error> {
        Ok(self.pipelines.capture(&PcapFile::new(file)?)?)
    }

    /// Returns the queue of commands to this server.
    pub fn commands(&self) -> Sender<ServerCommand> {
        self.commands.0.clone()
    }

    /// Runs all rounds, or until a [`ServerCommand::Stop`], with every event and the progress for `observe`, which is
    /// asked no later than 150 ms after the last time. If it breaks, this ends, whatever is under way.
    ///
    /// # Errors
    ///
    /// The socket failed for good.
    pub fn run(
        &mut self,
        mut observe: impl FnMut(Observation) -> ControlFlow<()>,
    ) -> Result<Stats, Error> {
        let mut spans = RoundSpans::default();
        let mut due = Time::ZERO;
        self.pipelines.start(|wakers| self.node.detach(wakers))?;
        let commands = &self.commands.1;
        let mut stopping = false;
        let mut finished = None;
        self.pipelines.first.run(&mut self.node, |node, now| {
            for command in commands.try_iter() {
                match command {
                    ServerCommand::Allow(nodes) => node.allow(now, nodes),
                    ServerCommand::Stop => {
                        stopping = true;
                        node.hasten(now);
                    }
                }
            }
            while let Some(event) = node.poll_event() {
                spans.follow(&event);
                // Whoever hears that a round is finished knows its traffic.
                if matches!(event, AggregatorEvent::Finished { .. }) {
                    observe(Observation::Progress(progress(node, now)))?;
                }
                observe(Observation::Event(event))?;
            }
            if due <= now {
                due = now + PROGRESS_SPAN;
                observe(Observation::Progress(progress(node, now)))?;
            }
            if !node.is_finished() {
                finished = None;
                return match stopping && node.is_delivered() {
                    true => ControlFlow::Break(()),
                    false => ControlFlow::Continue(MAX_SLEEP),
                };
            }
            // Clients that have everything take leave, and wait for an answer.
            match (*finished.get_or_insert(now) + FAREWELL).since(now) {
                rest if !node.is_left() && rest > Duration::ZERO => ControlFlow::Continue(rest),
                _ => ControlFlow::Break(()),
            }
        })?;
        Ok(self.node.stats())
    }
}

fn progress(node: &mut Aggregator<SumApplication>, now: Time) -> Progress {
    Progress {
        elapsed: now.since(Time::ZERO),
        waiting: node.waiting(),
        ranges: node.application().ranges_progress(),
        round: node.progress(),
        stats: node.stats(),
    }
}

/// A span of the log for each round that is not finished: one may open while another is delivered.
#[derive(Default)]
struct RoundSpans(BTreeMap<u32, Span>);

impl RoundSpans {
    fn follow(&mut self, event: &AggregatorEvent) {
        match event {
            AggregatorEvent::Opened { round, contributors, .. } => {
                let clients = contributors.len();
                let span = info_span!("round", round, clients, summed = Empty, withheld = Empty);
                self.0.insert(*round, span);
            }
            AggregatorEvent::Closed(summary) => {
                if let Some(span) = self.0.get(&summary.round) {
                    span.record("summed", summary.closed).record("withheld", summary.withheld);
                }
            }
            AggregatorEvent::Finished { round } => drop(self.0.remove(round)),
            _ => {}
        }
    }
}
