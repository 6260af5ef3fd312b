//! A picture of `serve` at work, for its status page: clients, the open round, the last rounds,
//! traffic, and the lines of events, which name nodes by their public keys. No secret is in it.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use ciphergram_nic::{
    federation::{Observation, Progress, RangesProgress},
    proto::Stats,
    round::{AggregatorEvent, RoundProgress, RoundSummary},
};
use serde_json::{Value, json};

use super::metrics::{Metrics, Presence, RoundPhase};
use crate::{report::time_now, responder::check_turned};

/// Cells that a round's chunks are drawn in, at most.
const MAX_CELLS: u32 = 240;
/// Rounds and events kept.
const MAX_ROUNDS: usize = 20;
const MAX_EVENTS: usize = 40;
/// The time between two samples of traffic, and how many are kept.
const SAMPLE_SPAN: Duration = Duration::from_secs(1);
const MAX_SAMPLES: usize = 121;

/// Constants of a server.
#[derive(Clone, Copy)]
pub(super) struct Terms {
    pub(super) scheme: &'static str,
    pub(super) clients: u16,
    pub(super) min_clients: u16,
    /// 0 for no end.
    pub(super) rounds: u32,
}

/// The state of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RoundsState {
    /// Not here: its last round, if it was in one, is over.
    Missing,
    /// Waits for the next round.
    Joined,
    /// In a round, and some of its chunks did not come yet.
    Contributing,
    /// In a round that has its contribution, and waits for the rest of the sums.
    Contributed,
    /// In a round, and no longer answers.
    Lost,
    /// Refused, and not here since.
    Refused,
}

impl RoundsState {
    const NAMES: [&str; 6] =
        ["missing", "joined", "contributing", "contributed", "lost", "refused"];

    fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }

    fn is_connected(self) -> bool {
        matches!(self, Self::Joined | Self::Contributing | Self::Contributed)
    }

    fn is_in_round(self) -> bool {
        matches!(self, Self::Contributing | Self::Contributed | Self::Lost)
    }
}

#[derive(Clone, Copy)]
struct Client {
    state: RoundsState,
    /// The round that `state` and `chunks` are about, if it is in one.
    round: u32,
    chunks: u32,
}

/// Chunks drawn as one.
#[derive(Clone, Copy, Default)]
struct Cell {
    summed: u32,
    withheld: u32,
}

#[derive(Clone)]
struct Round {
    number: u32,
    contributors: usize,
    /// Contributors of whom every chunk counts; once it is closed.
    whole: Option<usize>,
    chunks: u32,
    withheld: u32,
    waited: Duration,
    opened: Instant,
    closed: Option<Instant>,
    finished: Option<Instant>,
}

impl Round {
    fn phase(&self) -> Option<RoundPhase> {
        match (self.closed, self.finished) {
            (None, _) => Some(RoundPhase::Summing),
            (Some(_), None) => Some(RoundPhase::Delivering),
            (Some(_), Some(_)) => None,
        }
    }

    /// Returns the time that each phase has taken up to now; none for one that did not begin.
    fn spans(&self, now: Instant) -> [Option<Duration>; 3] {
        let summing = self.closed.unwrap_or(now) - self.opened;
        let delivering = self.closed.map(|closed| self.finished.unwrap_or(now) - closed);
        [Some(self.waited), Some(summing), delivering]
    }
}

/// Bytes since the start.
#[derive(Clone, Copy)]
struct RateSample {
    elapsed: Duration,
    received_bytes: u64,
    sent_bytes: u64,
}

/// The picture. A clone is a copy.
#[derive(Clone)]
pub(super) struct Status {
    terms: Terms,
    began: Instant,
    /// The latest observation.
    turned: Instant,
    listening: bool,
    over: bool,
    /// Set while clients wait for the next round.
    waiting_since: Option<Instant>,
    /// Private ranges of the next round, while they are found.
    ranges: Option<RangesProgress>,
    clients: Vec<Client>,
    opened: u32,
    /// The latest ones, ascending.
    rounds: VecDeque<Round>,
    /// Of the latest round.
    cells: Vec<Cell>,
    pub(super) metrics: Metrics,
    samples: VecDeque<RateSample>,
    events: VecDeque<Value>,
}

impl Status {
    pub(super) fn new(terms: Terms, now: Instant) -> Self {
        let client = Client { state: RoundsState::Missing, round: 0, chunks: 0 };
        Self {
            began: now,
            turned: now,
            listening: false,
            over: false,
            waiting_since: None,
            ranges: None,
            clients: vec![client; terms.clients.into()],
            opened: 0,
            rounds: VecDeque::new(),
            cells: vec![],
            metrics: Metrics::default(),
            samples: VecDeque::new(),
            events: VecDeque::new(),
            terms,
        }
    }

    /// Takes an observation in. Returns the phase that ended with it, and its span.
    pub(super) fn follow(
        &mut self,
        seen: &Observation,
        now: Instant,
    ) -> Option<(RoundPhase, Duration)> {
        self.turned = now;
        self.metrics.follow(seen);
        let event = match seen {
            Observation::Progress(progress) => {
                self.on_progress(progress);
                return None;
            }
            Observation::Event(event) => event,
        };
        match event {
            AggregatorEvent::Joined { contributor, .. } => {
                self.waiting_since.get_or_insert(now);
                self.set(*contributor, RoundsState::Joined, 0);
            }
            AggregatorEvent::Refused { contributor, .. } => self.on_refused(*contributor),
            AggregatorEvent::Resumed { round, contributor } => {
                let closed = self.round(*round).is_some_and(|round| round.closed.is_some());
                let state =
                    if closed { RoundsState::Contributed } else { RoundsState::Contributing };
                self.set(*contributor, state, *round);
            }
            AggregatorEvent::Opened { round, contributors, chunks } => {
                return Some((
                    RoundPhase::Waiting,
                    self.on_opened(*round, contributors, *chunks, now),
                ));
            }
            AggregatorEvent::Preparing { .. } => {}
            AggregatorEvent::TooFew(shortage) if shortage.waits_on => {}
            AggregatorEvent::OpenFailed { .. } | AggregatorEvent::TooFew(_) => {
                self.waiting_since = None;
                self.change(|client| client.state == RoundsState::Joined, RoundsState::Refused);
            }
            AggregatorEvent::Settled { chunk, leaves, .. } => self.on_settled(*chunk, *leaves),
            AggregatorEvent::Lost { round, contributor } => {
                self.set(*contributor, RoundsState::Lost, *round);
            }
            AggregatorEvent::Closed(summary) => {
                return Some((RoundPhase::Summing, self.on_closed(summary, now)?));
            }
            AggregatorEvent::Finished { round } => {
                return Some((RoundPhase::Delivering, self.on_finished(*round, now)?));
            }
            AggregatorEvent::Allowed { .. }
            | AggregatorEvent::Stranger { .. }
            | AggregatorEvent::OpenerAttends { .. }
            | AggregatorEvent::OpenerAnswered { .. }
            | AggregatorEvent::OpenerRefused { .. }
            | AggregatorEvent::TooFewAnswers { .. } => {}
        }
        None
    }

    /// Keeps an event's line, for people.
    pub(super) fn note(&mut self, line: &str) {
        self.events.push_front(json!({"time": time_now(), "text": line}));
        self.events.truncate(MAX_EVENTS);
    }

    /// Takes the last numbers in: all rounds are over.
    pub(super) fn end(&mut self, stats: Stats) {
        self.metrics.stats = stats;
        self.ranges = None;
        self.over = true;
    }

    pub(super) fn presence(&self) -> Presence {
        let connected = self.clients.iter().filter(|client| client.state.is_connected()).count();
        let round = self.rounds.back().map(|round| round.number);
        Presence { connected, missing: self.clients.len() - connected, round }
    }

    /// Says whether the loop of datagrams turns.
    ///
    /// # Errors
    ///
    /// The reason why not.
    pub(super) fn health(&self, now: Instant) -> Result<(), String> {
        if self.over {
            return Err("all rounds are over".into());
        }
        check_turned(self.turned, now)
    }

    /// Says whether clients can join.
    ///
    /// # Errors
    ///
    /// The reason why not.
    pub(super) fn readiness(&self, now: Instant) -> Result<(), String> {
        self.health(now)?;
        if !self.listening {
            return Err("not listening yet".into());
        }
        if self.is_last() {
            return Err("the last round is open or over: nobody can join".into());
        }
        Ok(())
    }

    fn is_last(&self) -> bool {
        self.terms.rounds > 0 && self.opened >= self.terms.rounds
    }

    fn round(&mut self, number: u32) -> Option<&mut Round> {
        self.rounds.iter_mut().find(|round| round.number == number)
    }

    /// Notes a client's state; a number that nobody was declared by is not noted.
    fn set(&mut self, number: u16, state: RoundsState, round: u32) {
        if let Some(client) = self.clients.get_mut(usize::from(number)) {
            let chunks =
                if client.round == round && state.is_in_round() { client.chunks } else { 0 };
            *client = Client { state, round, chunks };
        }
    }

    fn change(&mut self, which: impl Fn(&Client) -> bool, state: RoundsState) {
        self.clients
            .iter_mut()
            .filter(|client| which(client))
            .for_each(|client| client.state = state);
    }

    fn on_progress(&mut self, progress: &Progress) {
        self.listening = true;
        self.ranges = progress.ranges;
        if let Some(round) = &progress.round {
            self.on_received(round);
        }
        let elapsed = progress.elapsed;
        let since = self.samples.back().map(|sample| elapsed.saturating_sub(sample.elapsed));
        if since.is_none_or(|since| since >= SAMPLE_SPAN) {
            let (received, sent) = (progress.stats.received, progress.stats.sent);
            let (received_bytes, sent_bytes) = (received.wire_bytes(), sent.wire_bytes());
            self.samples.push_back(RateSample { elapsed, received_bytes, sent_bytes });
            if self.samples.len() > MAX_SAMPLES {
                self.samples.pop_front();
            }
        }
    }

    fn on_received(&mut self, round: &RoundProgress) {
        for (number, chunks) in &round.received {
            let client = self.clients.get_mut(usize::from(*number));
            let own = client.filter(|c| c.round == round.round && c.state.is_in_round());
            let Some(client) = own.filter(|c| c.chunks <= *chunks) else { continue };
            client.chunks = *chunks;
            if client.state == RoundsState::Contributing && *chunks == round.chunks {
                client.state = RoundsState::Contributed;
            }
        }
    }

    fn on_refused(&mut self, number: u16) {
        // Somebody else may have claimed the number of one that is here: it is not refused by that.
        let client = self.clients.get_mut(usize::from(number));
        let absent = |client: &&mut Client| {
            matches!(client.state, RoundsState::Missing | RoundsState::Refused)
        };
        if let Some(client) = client.filter(absent) {
            client.state = RoundsState::Refused;
        }
    }

    fn on_opened(
        &mut self,
        number: u32,
        contributors: &[u16],
        chunks: u32,
        now: Instant,
    ) -> Duration {
        let waited = self.waiting_since.take().map_or(Duration::ZERO, |since| now - since);
        for contributor in contributors {
            self.set(*contributor, RoundsState::Contributing, number);
        }
        // All who waited are in it, but for those that it left out.
        self.change(|client| client.state == RoundsState::Joined, RoundsState::Refused);
        self.opened += 1;
        self.cells = vec![Cell::default(); chunks.div_ceil(chunks_per_cell(chunks)) as usize];
        self.rounds.push_back(Round {
            number,
            contributors: contributors.len(),
            whole: None,
            chunks,
            withheld: 0,
            waited,
            opened: now,
            closed: None,
            finished: None,
        });
        if self.rounds.len() > MAX_ROUNDS {
            self.rounds.pop_front();
        }
        waited
    }

    fn on_settled(&mut self, chunk: u32, leaves: bool) {
        let Some(round) = self.rounds.back_mut() else { return };
        let cell = self.cells.get_mut((chunk / chunks_per_cell(round.chunks)) as usize);
        let Some(cell) = cell else { return };
        if leaves {
            cell.summed += 1;
        } else {
            cell.withheld += 1;
            round.withheld += 1;
        }
    }

    fn on_closed(&mut self, summary: &RoundSummary, now: Instant) -> Option<Duration> {
        for (number, chunks) in &summary.contributed {
            let client = self.clients.get_mut(usize::from(*number));
            let Some(client) = client.filter(|c| c.round == summary.round) else { continue };
            if client.state == RoundsState::Contributing {
                client.state = RoundsState::Contributed;
                client.chunks = *chunks;
            }
        }
        let round = self.round(summary.round)?;
        round.closed = Some(now);
        round.withheld = summary.withheld;
        round.whole = Some(summary.contributed.iter().filter(|(_, n)| *n == round.chunks).count());
        Some(now - round.opened)
    }

    fn on_finished(&mut self, number: u32, now: Instant) -> Option<Duration> {
        let round = self.round(number)?;
        round.finished = Some(now);
        let span = now - round.closed?;
        // Who was in the last of all rounds is missing nowhere.
        if !self.is_last() {
            let left = |client: &Client| {
                client.state == RoundsState::Contributed && client.round == number
            };
            self.change(left, RoundsState::Missing);
        }
        Some(span)
    }
}

/// The answer to `/status.json`.
impl Status {
    pub(super) fn to_json(&self, now: Instant) -> Value {
        let Terms { scheme, clients: declared, min_clients, rounds } = self.terms;
        let Presence { connected, missing, .. } = self.presence();
        let (phase, phase_span) = self.phase(now);
        let count = |name| self.clients.iter().filter(|client| client.state.name() == name).count();
        let counts = RoundsState::NAMES.map(|name| (name.to_owned(), json!(count(name))));
        let ranges = self.ranges.map(|r| json!({"done": r.done, "levels": r.levels}));
        let each = |(number, client): (usize, &Client)| json!({"client": number, "state": client.state.name(), "chunks": client.chunks});
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "time": time_now(),
            "elapsed_s": (now - self.began).as_secs_f64(),
            "scheme": scheme,
            "rounds": rounds,
            "rounds_opened": self.opened,
            "phase": phase,
            "phase_s": phase_span.as_secs_f64(),
            "clients": {
                "declared": declared, "minimum": min_clients, "connected": connected, "missing": missing,
                "states": counts.into_iter().collect::<serde_json::Map<_, _>>(),
                "each": self.clients.iter().enumerate().map(each).collect::<Vec<_>>(),
            },
            "ranges": ranges,
            "round": self.rounds.back().map(|round| self.round_json(round, now)),
            "last_rounds": self.rounds.iter().rev().map(|r| line_json(r, now)).collect::<Vec<_>>(),
            "traffic": self.traffic_json(),
            "events": self.events,
        })
    }

    /// Returns the phase that people look at, and its time so far: a round under way comes before
    /// the wait for the next one.
    fn phase(&self, now: Instant) -> (&'static str, Duration) {
        if self.over {
            return ("over", Duration::ZERO);
        }
        let under_way = self.rounds.iter().rev().find_map(|round| Some((round, round.phase()?)));
        match under_way {
            Some((round, phase)) => {
                let span = round.spans(now)[phase as usize].unwrap_or_default();
                (phase.name(), span)
            }
            None => {
                let waited = self.waiting_since.map_or(Duration::ZERO, |since| now - since);
                (RoundPhase::Waiting.name(), waited)
            }
        }
    }

    fn round_json(&self, round: &Round, now: Instant) -> Value {
        let each = |of: fn(&Cell) -> u32| self.cells.iter().map(of).collect::<Vec<_>>();
        let settled: u32 = self.cells.iter().map(|cell| cell.summed + cell.withheld).sum();
        let mut value = line_json(round, now);
        value["settled"] = json!(settled);
        value["chunks_per_cell"] = json!(chunks_per_cell(round.chunks));
        value["cells_summed"] = json!(each(|cell| cell.summed));
        value["cells_withheld"] = json!(each(|cell| cell.withheld));
        value
    }

    fn traffic_json(&self) -> Value {
        let samples = self.samples.iter().zip(self.samples.iter().skip(1));
        let rates = samples.map(|(a, b)| {
            let seconds = (b.elapsed - a.elapsed).as_secs_f64();
            let rate = |from: u64, to: u64| (to.saturating_sub(from) as f64 / seconds).round();
            (rate(a.received_bytes, b.received_bytes), rate(a.sent_bytes, b.sent_bytes))
        });
        let (received, sent): (Vec<f64>, Vec<f64>) = rates.unzip();
        let last = |rates: &[f64]| rates.last().copied().unwrap_or(0.0);
        let stats = &self.metrics.stats;
        let Stats { retransmitted, trimmed, congested, malformed, turned_away, .. } = *stats;
        json!({
            "received_bytes": stats.received.wire_bytes(),
            "sent_bytes": stats.sent.wire_bytes(),
            "received_bytes_per_s": last(&received),
            "sent_bytes_per_s": last(&sent),
            "history_received_bytes_per_s": received,
            "history_sent_bytes_per_s": sent,
            "history_step_s": SAMPLE_SPAN.as_secs(),
            "received_datagrams": stats.received.datagrams,
            "sent_datagrams": stats.sent.datagrams,
            "retransmitted_datagrams": retransmitted,
            "trimmed_datagrams": trimmed,
            "congested_datagrams": congested,
            "malformed_datagrams": malformed,
            "handshakes_turned_away": turned_away,
        })
    }
}

fn line_json(round: &Round, now: Instant) -> Value {
    let [waiting, summing, delivering] = round.spans(now).map(|s| s.map(|span| span.as_secs_f64()));
    json!({
        "round": round.number,
        "phase": round.phase().map_or("finished", RoundPhase::name),
        "contributors": round.contributors,
        "whole_contributors": round.whole,
        "chunks": round.chunks,
        "withheld": round.withheld,
        "waiting_s": waiting,
        "summing_s": summing,
        "delivering_s": delivering,
    })
}

/// Returns the chunks that a cell stands for; the last one stands for fewer.
fn chunks_per_cell(chunks: u32) -> u32 {
    chunks.div_ceil(MAX_CELLS).max(1)
}

#[cfg(test)]
#[path = "status/tests.rs"]
mod tests;
