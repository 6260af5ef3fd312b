//! An opener of an aggregator that is looked for at several addresses, by UDP and TCP.

use std::{ops::ControlFlow, time::Instant};

use ciphergram_he::{Ledger, threshold::OpenerKey};

use super::{FederationOpener, OpenerEvent};
use crate::{
    NicError,
    federation::{
        Error,
        candidate::{Candidate, ServerCandidates},
        client::socket::{TRY_SPAN, open, pause},
        transport::PathConfig,
    },
    proto::{Identity, NodeId, endpoint::DEFAULT_GIVE_UP},
    wire::{PcapFile, tcp::dial::REFUSED_SPAN},
};

/// What an opener needs to reach its aggregator.
pub struct SocketOpener {
    /// The ways to the aggregator.
    pub server: ServerCandidates,
    /// The aggregator's node.
    pub node: NodeId,
    /// The opener's node.
    pub identity: Identity,
    /// The paths of datagrams by UDP.
    pub paths: PathConfig,
    /// The pipelines by UDP, each on a thread and with sockets of its own.
    pub pipelines: u16,
    /// A file to which every datagram is written as well.
    pub capture: Option<PcapFile>,
}

impl SocketOpener {
    /// Answers, as [`FederationOpener::run`] does, by whichever way somebody asks, until `observe` breaks. The ways are
    /// tried one after the other, until somebody answers by one.
    ///
    /// # Errors
    ///
    /// As [`FederationOpener::run`].
    pub fn run(
        &self,
        opener: &OpenerKey,
        ledger: &Ledger,
        mut observe: impl FnMut(Option<OpenerEvent>) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        let candidates = self.server.all();
        let mut told: Option<Instant> = None;
        // Not at every try.
        let mut is_news = || {
            let is_due = told.is_none_or(|told| told.elapsed() >= DEFAULT_GIVE_UP);
            told = if is_due { Some(Instant::now()) } else { told };
            is_due
        };
        let by_tcp_alone = candidates.iter().all(|way| matches!(way, Candidate::Tcp(_)));
        let mut refused: Option<Instant> = None;
        for candidate in candidates.iter().cycle() {
            if matches!(candidate, Candidate::Tcp(_))
                && refused.is_some_and(|at| at.elapsed() < REFUSED_SPAN)
            {
                if by_tcp_alone && pause(TRY_SPAN, asking(&mut observe)).is_err() {
                    return Ok(());
                }
                continue;
            }
            let waits = asking(&mut observe);
            let (wires, paths) = match open(candidate, self.pipelines, self.paths, waits) {
                Err(Error::Stopped) => return Ok(()),
                Err(Error::Nic(NicError::Dial(why))) => {
                    refused = why.is_final().then(Instant::now);
                    let event = OpenerEvent::Unreachable { dial: Some(why) };
                    if observe(is_news().then_some(event)).is_break()
                        || pause(TRY_SPAN, asking(&mut observe)).is_err()
                    {
                        return Ok(());
                    }
                    continue;
                }
                opened => opened?,
            };
            let (server, identity) = (candidate.address(), self.identity.clone());
            let mut service = FederationOpener::new(wires, server, self.node, identity, paths)?;
            if let Some(file) = &self.capture {
                service.capture(file)?;
            }
            let (began, mut is_there, mut is_stopped) = (Instant::now(), false, false);
            service.run(opener, ledger, |event| {
                let is_lost = matches!(event, Some(OpenerEvent::Unreachable { .. }));
                let event = match event {
                    Some(OpenerEvent::Attending { .. }) => {
                        is_there = true;
                        Some(OpenerEvent::Attending { transport: Some(candidate.transport()) })
                    }
                    event => event,
                };
                if observe(event).is_break() {
                    is_stopped = true;
                    return ControlFlow::Break(());
                }
                let goes_on =
                    candidates.len() == 1 || !is_lost && (is_there || began.elapsed() < TRY_SPAN);
                if goes_on { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            })?;
            let is_silent = !is_stopped && !is_there && is_news();
            let event = is_silent.then_some(OpenerEvent::Unreachable { dial: None });
            if is_stopped || observe(event).is_break() {
                break;
            }
        }
        Ok(())
    }
}

/// Asks an observer without an event whether to go on.
fn asking(
    observe: &mut impl FnMut(Option<OpenerEvent>) -> ControlFlow<()>,
) -> impl FnMut() -> Result<(), Error> {
    move || match observe(None) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => Err(Error::Stopped),
    }
}
