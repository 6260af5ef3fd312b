//! A client as a process: one contribution a round, sealed and pushed at the same time.
//!
//! A thread seals chunks while this one pushes those sealed before and takes the sums that come
//! back; a bounded queue is between them.

mod contribution;
mod open_round;
mod run;
mod saved;
mod sealing;
pub(super) mod socket;
mod stream;

use std::{mem::discriminant, net::SocketAddr, ops::ControlFlow, time::Duration};

use ciphergram_he::random;
use tracing::{field::Empty, info_span};

use self::{
    contribution::{Prepared, PreparedContribution},
    run::Run,
};
pub use self::{
    saved::finish_from_spool,
    socket::{SocketClient, SocketClientConfig},
};
use super::{
    Error, FAREWELL, PROGRESS_SPAN, fresh_endpoint,
    participation::{Participation, ParticipationPhase, RoundResult},
    pipelines::PipelineSet,
    transport::PathConfig,
};
use crate::{
    proto::{Config, Identity, NodeId, Time},
    round::{RoundClient, RoundClientConfig},
    wire::{PcapFile, Wire},
};

/// A client of one aggregator, for any number of rounds.
pub struct FederationClient<W> {
    server: SocketAddr,
    number: u16,
    pipelines: PipelineSet<W>,
    node: RoundClient,
}

impl<W: Wire> FederationClient<W> {
    /// Returns contributor `number` of the aggregator at `server`, which is `node`, with a pipeline
    /// for each of `wires`.
    ///
    /// # Errors
    ///
    /// The wires', no randomness, no such number of pipelines or paths.
    pub fn new(
        wires: Vec<W>,
        server: SocketAddr,
        node: NodeId,
        number: u16,
        identity: Identity,
        config: PathConfig,
    ) -> Result<Self, Error> {
        let (pipelines, node) = connect(wires, (server, node), number, identity, config)?;
        Ok(Self { server, number, pipelines, node })
    }

    /// Also writes every datagram, sent and received, to `file`: see
    /// [`Captured`](crate::wire::Captured).
    ///
    /// # Errors
    ///
    /// The socket's.
    pub fn capture(&mut self, file: &PcapFile) -> Result<(), Error> {
        Ok(self.pipelines.capture(file)?)
    }

    /// Takes part in one round: joins, contributes, waits for the sum and opens it if it can. Asks nobody if
    /// the [spool](Participation::spool) of an earlier run saved the sum. `observe` is given each
    /// [`ParticipationPhase`] as it begins, and then how far it is: twenty times a second at most, and no later
    /// than 150 ms after the last time. If it breaks, this ends. It is not asked while the sum is opened.
    ///
    /// # Errors
    ///
    /// See [`Error`]. The spool is kept unless the round ended with a sum that never opens.
    pub fn contribute(
        &mut self,
        participation: &Participation<'_>,
        mut observe: impl FnMut(ParticipationPhase) -> ControlFlow<()>,
    ) -> Result<RoundResult, Error> {
        match PreparedContribution::prepare(participation, self.number)? {
            Prepared::Finished(result) => Ok(*result),
            Prepared::Unfinished(mut contribution) => {
                self.take_part(&mut contribution, participation.patience, &mut observe)
            }
        }
    }

    /// Takes a contribution to the aggregator, whose first answer has to come within `contact`.
    fn take_part(
        &mut self,
        contribution: &mut PreparedContribution<'_>,
        contact: Duration,
        observe: &mut dyn FnMut(ParticipationPhase) -> ControlFlow<()>,
    ) -> Result<RoundResult, Error> {
        let _round = info_span!("round", client = self.number, round = Empty).entered();
        let run = Run::new(contribution, self.server, contact);
        let mut phases = Phases::default();
        let (end, run) = std::thread::scope(|scope| {
            // It goes with whatever fails here: a sealing thread that waits for space to hand over ends then.
            let mut run = run;
            self.pipelines.start(|wakers| self.node.detach(wakers))?;
            let now = self.pipelines.first.now();
            run.join(&mut self.node, now)?;
            let driver = &mut self.pipelines.first;
            let ending = driver.run(&mut self.node, |node, now| {
                let flow = run.iterate(node, now, scope);
                match phases.follow(now, run.phase(node), observe) {
                    ControlFlow::Break(()) if flow.is_continue() => {
                        ControlFlow::Break(Err(Error::Stopped))
                    }
                    _ => flow,
                }
            })?;
            let end = ending?;
            run.stop_sealing()?;
            Ok::<_, Error>((end, run))
        })?;
        if let Some(phase) = run.opening_phase()
            && observe(phase).is_break()
        {
            return Err(Error::Stopped);
        }
        let landed = self.node.take_sums();
        run.finish(&end, landed, self.node.stats())
    }

    /// Takes leave of the aggregator, so that it does not wait for acknowledgements that were lost: until it
    /// knows, and no longer than [`FAREWELL`], as it may be gone itself.
    ///
    /// # Errors
    ///
    /// The socket failed for good.
    pub fn leave(mut self) -> Result<(), Error> {
        let end = self.pipelines.first.now() + FAREWELL;
        if self.node.bye(self.pipelines.first.now()).is_err() {
            // What is answered already may still have to leave.
            return Ok(self.pipelines.first.linger(&mut self.node, FAREWELL)?);
        }
        let leaving = |node: &mut RoundClient, now: Time| match end.since(now) {
            rest if node.is_leaving() && rest > Duration::ZERO => ControlFlow::Continue(rest),
            _ => ControlFlow::Break(()),
        };
        Ok(self.pipelines.first.run(&mut self.node, leaving)?)
    }
}

/// Makes the pipelines and the end of a client, or of an opener, which has no number, of the aggregator at `server`,
/// which is `node`.
///
/// # Errors
///
/// The wires', no randomness, no such number of pipelines or paths.
pub(super) fn connect<W: Wire>(
    wires: Vec<W>,
    (server, node): (SocketAddr, NodeId),
    number: u16,
    identity: Identity,
    config: PathConfig,
) -> Result<(PipelineSet<W>, RoundClient), Error> {
    let pipelines = PipelineSet::new(wires, config.sockets(), config.poll)?;
    let PathConfig { paths, flows, sizes, .. } = config;
    let endpoint = fresh_endpoint(identity, sizes)?;
    let node = RoundClient::new(RoundClientConfig {
        endpoint: Config { pipelines: pipelines.count(), paths, flows, ..endpoint },
        addr: server,
        aggregator: node,
        contributor: number,
        seed: *random::bytes::<32>()?,
    })?;
    Ok((pipelines, node))
}

/// The phases of a round, as an observer learns of them.
#[derive(Default)]
struct Phases {
    last: Option<ParticipationPhase>,
    due: Time,
}

impl Phases {
    /// Reports a phase that begins at once, and its progress when that is due.
    fn follow(
        &mut self,
        now: Time,
        phase: ParticipationPhase,
        observe: &mut dyn FnMut(ParticipationPhase) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let begins = self.last.as_ref().map(discriminant) != Some(discriminant(&phase));
        if begins || now >= self.due {
            (self.last, self.due) = (Some(phase), now + PROGRESS_SPAN);
            return observe(phase);
        }
        ControlFlow::Continue(())
    }
}
