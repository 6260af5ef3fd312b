//! The pages of `opener --metrics`.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Instant,
};

use ciphergram_nic::federation::OpenerEvent;

use crate::{
    failure::Failure,
    responder::{Page, Responder, check_turned, family, lock, version_family},
};

/// The state of an opener, and the threads that show it over HTTP.
pub(super) struct Pages {
    state: Arc<Mutex<State>>,
    responder: Responder,
}

#[derive(Clone)]
struct State {
    /// When the loop of datagrams turned last.
    turned: Instant,
    attends: bool,
    answered: u64,
    refused: u64,
    /// The round answered for last.
    round: Option<u64>,
}

impl Pages {
    pub(super) fn start(address: SocketAddr) -> Result<Self, Failure> {
        let state =
            State { turned: Instant::now(), attends: false, answered: 0, refused: 0, round: None };
        let state = Arc::new(Mutex::new(state));
        let shared = state.clone();
        let responder = Responder::start(address, move |path| lock(&shared).clone().page(path))?;
        Ok(Self { state, responder })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.responder.address()
    }

    pub(super) fn follow(&self, event: Option<&OpenerEvent>) {
        let mut state = lock(&self.state);
        state.turned = Instant::now();
        match event {
            Some(OpenerEvent::Attending { .. }) => state.attends = true,
            Some(OpenerEvent::Unreachable { .. }) => state.attends = false,
            Some(OpenerEvent::Answered { round, .. }) => {
                (state.answered, state.round) = (state.answered + 1, Some(*round));
            }
            Some(OpenerEvent::Refused { .. }) => state.refused += 1,
            None => {}
        }
    }
}

impl State {
    fn page(&self, path: &str) -> Option<Page> {
        Some(match path {
            "/metrics" => Page::metrics(self.metrics()),
            "/healthz" => Page::verdict(self.health()),
            "/readyz" => Page::verdict(self.health().and_then(|()| {
                let why = || "the aggregator does not answer".into();
                self.attends.then_some(()).ok_or_else(why)
            })),
            _ => return None,
        })
    }

    fn health(&self) -> Result<(), String> {
        check_turned(self.turned, Instant::now())
    }

    fn metrics(&self) -> String {
        let mut page = String::new();
        version_family(&mut page);
        let round = self.round.map_or(-1, |round| i64::try_from(round).unwrap_or(i64::MAX));
        for (name, help, value) in [
            ("opener_attends", "Whether the aggregator answers.", i64::from(self.attends)),
            ("opener_round", "Number of the round answered for last; -1 before the first.", round),
        ] {
            family(&mut page, "gauge", name, help, [(String::new(), value)]);
        }
        for (name, help, value) in [
            ("opener_answers", "Requests answered.", self.answered),
            ("opener_refusals", "Requests that got no answer.", self.refused),
        ] {
            family(&mut page, "counter", name, help, [("_total".into(), value)]);
        }
        page
    }
}
