//! Signals to `serve`: SIGHUP has the allow list read again, SIGINT and SIGTERM end it in order.

use std::sync::{Arc, OnceLock, mpsc::Sender};

use ciphergram_nic::{federation::Command, round::AggregatorEvent};

use crate::{
    failure::Failure,
    nodes::AllowList,
    report::warn,
    signals::{self, Signal},
};

/// What signals asked for, and how far the rounds are.
pub(super) struct Control {
    stop: Arc<OnceLock<Signal>>,
    /// The open round, or the number of the next one.
    stage: Stage,
}

enum Stage {
    Waiting { next: u32 },
    Open { round: u32 },
}

impl Control {
    /// Takes signals over for a server that takes `commands`.
    pub(super) fn start(commands: Sender<Command>, list: AllowList) -> Self {
        let stop = Arc::new(OnceLock::new());
        let stopping = stop.clone();
        signals::take_over(move |signal| match signal {
            Signal::HangUp => {
                match list.read_again() {
                    // Nobody takes it once all rounds are over.
                    Ok(nodes) => drop(commands.send(Command::Allow(nodes))),
                    Err(failure) => warn(&format!("{failure}; the former allow list stays")),
                }
                true
            }
            // At the second one it ends at once.
            Signal::Interrupt | Signal::Terminate => {
                stopping.set(signal).is_ok() && commands.send(Command::Stop).is_ok()
            }
        });
        Self { stop, stage: Stage::Waiting { next: 0 } }
    }

    /// Notes how far the rounds are.
    pub(super) fn follow(&mut self, event: &AggregatorEvent) {
        match event {
            AggregatorEvent::Opened { round, .. } => self.stage = Stage::Open { round: *round },
            AggregatorEvent::Closed(summary) => {
                self.stage = Stage::Waiting { next: summary.round + 1 };
            }
            _ => {}
        }
    }

    /// Returns the failure that stands for a signal, if one has stopped the server.
    pub(super) fn stopped(&self) -> Option<Failure> {
        let line = match self.stage {
            Stage::Waiting { next } => format!("stopped before round {next}; no round was open"),
            Stage::Open { round } => format!(
                "stopped in round {round}; its clients go on when the aggregator is started again"
            ),
        };
        self.stop.get().map(|signal| Failure::Stopped(*signal, line))
    }
}
