//! The aggregator as a process: public material, one socket, one loop.

use std::{fs::File, net::SocketAddr, ops::ControlFlow, sync::Arc, time::Duration};

use ciphergram_accel::Engine;
use ciphergram_he::{PublicKey, random};

use super::{Allowed, Error, FEW, fresh_endpoint, job::SumJob};
use crate::{
    Driver,
    driver::MAX_SLEEP,
    proto::{Identity, Stats},
    round::{Aggregator, AggregatorConfig, AggregatorEvent},
    wire::{Captured, UdpWire, Wire},
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
}

/// How long after a round closed its sums are still offered to clients that do not acknowledge.
const LINGER: Duration = Duration::from_secs(10);

/// An aggregator that listens.
pub struct Server {
    driver: Driver<Captured<UdpWire>>,
    node: Aggregator<SumJob>,
}

impl Server {
    /// Binds the socket.
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
        let settings = AggregatorConfig {
            endpoint: fresh_endpoint(config.identity)?,
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
        Ok(Self { driver: Driver::new(Captured::new(UdpWire::bind(config.listen)?)), node })
    }

    /// The address in use, its port chosen by the system if none was asked for.
    ///
    /// # Errors
    ///
    /// The socket's.
    pub fn local_addr(&self) -> Result<SocketAddr, Error> {
        Ok(self.driver.wire().local_addr()?)
    }

    /// Also writes every datagram, sent and received, to `file`: see [`Captured`].
    ///
    /// # Errors
    ///
    /// The socket's, or the file's.
    pub fn capture(&mut self, file: File) -> Result<(), Error> {
        Ok(self.driver.wire_mut().capture(file)?)
    }

    /// Runs all rounds, telling `observe` what happens.
    ///
    /// # Errors
    ///
    /// The socket failed for good.
    pub fn run(&mut self, mut observe: impl FnMut(AggregatorEvent)) -> Result<Stats, Error> {
        self.driver.run(&mut self.node, |node, _| {
            while let Some(event) = node.poll_event() {
                observe(event);
            }
            if node.is_finished() {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(MAX_SLEEP)
            }
        })?;
        Ok(*self.node.stats())
    }
}
