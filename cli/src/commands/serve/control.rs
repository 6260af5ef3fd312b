//! The end of `serve`, and signals to it: SIGHUP has the allow list read again, SIGINT and SIGTERM end it in order.

use std::sync::{Arc, OnceLock, mpsc::Sender};

use ciphergram_nic::{
    federation::ServerCommand,
    round::{AggregatorEvent, Shortage},
};

use super::shortage;
use crate::{
    failure::Failure,
    nodes::AllowList,
    report::warn,
    signals::{self, Signal},
};

/// The wishes of signals, the stage of the rounds, and failures in them.
pub(super) struct Control {
    stop: Arc<OnceLock<Signal>>,
    /// The open round, or the number of the next one.
    stage: Stage,
    chunks: u64,
    withheld: u64,
    /// The last round that too few clients joined.
    shortage: Option<Shortage>,
}

enum Stage {
    Waiting { next: u32 },
    Open { round: u32 },
}

impl Control {
    /// Takes signals over for a server that takes `commands`.
    pub(super) fn start(commands: Sender<ServerCommand>, list: AllowList) -> Self {
        let stop = Arc::new(OnceLock::new());
        let stopping = stop.clone();
        signals::take_over(move |signal| match signal {
            Signal::HangUp => {
                match list.read_again() {
                    // Nobody takes it once all rounds are over.
                    Ok(nodes) => drop(commands.send(ServerCommand::Allow(nodes))),
                    Err(failure) => warn(&format!("{failure}; the former allow list stays")),
                }
                true
            }
            // At the second one it ends at once.
            Signal::Interrupt | Signal::Terminate => {
                stopping.set(signal).is_ok() && commands.send(ServerCommand::Stop).is_ok()
            }
        });
        Self { stop, stage: Stage::Waiting { next: 0 }, chunks: 0, withheld: 0, shortage: None }
    }

    /// Notes how far the rounds are.
    pub(super) fn follow(&mut self, event: &AggregatorEvent) {
        match event {
            AggregatorEvent::Opened { round, .. } => self.stage = Stage::Open { round: *round },
            AggregatorEvent::Closed(summary) => {
                self.stage = Stage::Waiting { next: summary.round + 1 };
                self.chunks += u64::from(summary.closed) + u64::from(summary.withheld);
                self.withheld += u64::from(summary.withheld);
            }
            AggregatorEvent::TooFew(few) => self.shortage = Some(few.clone()),
            _ => {}
        }
    }

    /// Returns the name of the last event.
    pub(super) fn last_event(&self) -> &'static str {
        if self.stop.get().is_some() { "stopped" } else { "done" }
    }

    /// Returns how all rounds went, once they are over.
    ///
    /// # Errors
    /// A signal stopped them, too few clients came, or sums were withheld.
    pub(super) fn outcome(self) -> Result<(), Failure> {
        let Self { stop, stage, chunks, withheld, shortage } = self;
        if let Some(signal) = stop.get() {
            return Err(Failure::Stopped(*signal, stage.last_line()));
        }
        // Those who wait on have made a round since, and after one without an end there is only a signal.
        if let Some(shortage) = shortage.filter(|shortage| !shortage.waits_on) {
            return Err(Failure::Work(shortage::failure(&shortage)));
        }
        match withheld {
            0 => Ok(()),
            _ => Err(Failure::Work(format!("{withheld} of {chunks} chunk sums were withheld"))),
        }
    }
}

impl Stage {
    /// Returns the last line of a server that is stopped then.
    fn last_line(&self) -> String {
        match self {
            Self::Waiting { next } => format!("stopped before round {next}; no round was open"),
            Self::Open { round } => format!(
                "stopped in round {round}; its clients go on when the aggregator is started again"
            ),
        }
    }
}
