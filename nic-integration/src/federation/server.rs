//! The aggregator as a process: public material, sockets, one loop.

use std::{
    collections::BTreeMap, fs::File, net::SocketAddr, ops::ControlFlow, sync::Arc, time::Duration,
};

use ciphergram_accel::Engine;
use ciphergram_he::{PublicKey, random};
use tracing::{Span, field::Empty, info_span};

use super::{Allowed, Error, FEW, fresh_endpoint, job::SumJob, pipelines::Pipelines};
use crate::{
    driver::MAX_SLEEP,
    proto::{Config, Identity, Stats, Time},
    round::{Aggregator, AggregatorConfig, AggregatorEvent, RoundProgress},
    wire::Wire,
};

/// How many of `declared` clients a sum needs by default: three, or all if there are fewer.
#[must_use]
pub fn default_min_clients(declared: u16) -> u16 {
    declared.min(FEW)
}

/// What an aggregator is told.
#[derive(Clone)]
pub struct ServerConfig {
    /// Where to listen.
    pub listen: SocketAddr,
    /// The aggregator's node key.
    pub identity: Identity,
    /// The nodes that may take part.
    pub allowed: Allowed,
    /// Clients declared; contributor numbers are below it.
    pub clients: u16,
    /// No sum of fewer leaves.
    pub min_clients: u16,
    /// Rounds to run.
    pub rounds: u32,
    /// How long after the first client joined a round opens without the missing ones.
    pub join_deadline: Duration,
    /// How long after its opening a round closes with whoever came.
    pub round_deadline: Duration,
    /// Pipelines, each with a socket and a thread: the first listens at the address above, the others at the
    /// ports that follow.
    pub pipelines: u16,
    /// Asks the socket over and over instead of sleeping: a core's worth of time for some microseconds less.
    pub poll: bool,
    /// As a [client's](super::PathConfig::datagram_bytes).
    pub datagram_bytes: Option<usize>,
}

/// How often at most progress is told of.
const PROGRESS_SPAN: Duration = Duration::from_millis(100);
/// How long after a round closed its sums are still offered to clients that do not acknowledge.
const LINGER: Duration = Duration::from_secs(10);

/// How far a server is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Time since the server was bound.
    pub elapsed: Duration,
    /// How many clients wait for the next round.
    pub waiting: usize,
    /// The open round, or the last one; none before the first.
    pub round: Option<RoundProgress>,
    /// The endpoint's counters.
    pub stats: Stats,
}

/// What a server tells its owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Observation {
    /// Something happened.
    Event(AggregatorEvent),
    /// How far it is: at once, and then ten times a second at most.
    Progress(Progress),
}

/// An aggregator that listens.
pub struct Server {
    pipelines: Pipelines,
    node: Aggregator<SumJob>,
}

impl Server {
    /// Binds the sockets.
    ///
    /// # Errors
    ///
    /// The address is not free; more clients than the key admits; a minimum that
    /// the clients cannot reach.
    pub fn bind(
        key: PublicKey,
        engine: Arc<dyn Engine>,
        config: ServerConfig,
    ) -> Result<Self, Error> {
        let admitted = key.parameters().clients();
        if u32::from(config.clients) > admitted {
            return Err(Error::TooManyClients { declared: config.clients, admitted });
        }
        let pipelines = Pipelines::bind(config.listen, config.pipelines, 1, config.poll)?;
        let endpoint = fresh_endpoint(config.identity, config.listen, config.datagram_bytes)?;
        let settings = AggregatorConfig {
            endpoint: Config { pipelines: config.pipelines, ports: pipelines.ports()?, ..endpoint },
            nodes: config.allowed,
            clients: config.clients,
            min_clients: config.min_clients,
            rounds: config.rounds,
            join_deadline: config.join_deadline,
            round_deadline: config.round_deadline,
            linger: LINGER,
            seed: *random::bytes::<32>()?,
        };
        let node = Aggregator::new(settings, SumJob::new(key, engine))?;
        Ok(Self { pipelines, node })
    }

    /// The address in use of the first pipeline, its port chosen by the system if none was asked for.
    ///
    /// # Errors
    ///
    /// The socket's.
    pub fn local_addr(&self) -> Result<SocketAddr, Error> {
        Ok(self.pipelines.first.wire().local_addr()?)
    }

    /// Also writes every datagram, sent and received, to `file`: see [`Captured`](crate::wire::Captured).
    ///
    /// # Errors
    ///
    /// The socket's, or the file's.
    pub fn capture(&mut self, file: File) -> Result<(), Error> {
        Ok(self.pipelines.capture(file)?)
    }

    /// Runs all rounds, telling `observe` what happens and how far they are.
    ///
    /// # Errors
    ///
    /// The socket failed for good.
    pub fn run(&mut self, mut observe: impl FnMut(Observation)) -> Result<Stats, Error> {
        let mut spans = RoundSpans::default();
        let mut due = Time::ZERO;
        self.pipelines.start(|wakers| self.node.detach(wakers))?;
        self.pipelines.first.run(&mut self.node, |node, now| {
            while let Some(event) = node.poll_event() {
                spans.follow(&event);
                observe(Observation::Event(event));
            }
            if due <= now {
                due = now + PROGRESS_SPAN;
                observe(Observation::Progress(Progress {
                    elapsed: now.since(Time::ZERO),
                    waiting: node.waiting(),
                    round: node.progress(),
                    stats: node.stats(),
                }));
            }
            if node.is_finished() {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(MAX_SLEEP)
            }
        })?;
        Ok(self.node.stats())
    }
}

/// A span of the log for each round that is not finished: one may open while another is delivered.
#[derive(Default)]
struct RoundSpans(BTreeMap<u32, Span>);

impl RoundSpans {
    fn follow(&mut self, event: &AggregatorEvent) {
        match event {
            AggregatorEvent::Opened { round, contributors } => {
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
