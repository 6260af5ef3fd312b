//! One world from its beginning until nothing more can come of it.

use std::collections::BTreeMap;
use std::time::Duration;

use ciphergram_nic::faults::Faults;
use ciphergram_nic::proto::{Identity, Refusal, Time};
use ciphergram_nic::round::{AggregatorEvent, Resume};

use super::attacker::Attacker;
use super::plan::{Dice, Happening, Plan, Spool, When};
use super::summary::Summary;
use crate::support::world::{Client, MISFIT, World, node};

/// The number of a node that may not take part; no client's.
const STRANGER: u16 = 100;
/// The length of an attack, and the span between two of its acts.
const ATTACK: [Duration; 2] = [Duration::from_millis(400), Duration::from_millis(4)];
/// Steps of a world that goes on and on at one instant; others take some thousands.
const MAX_STEPS: u64 = 1_000_000;
/// The span after which waiting for progress is given up: by then there is none.
const LAST_CHANCE: Duration = Duration::from_secs(16);

/// The plans of a client's owner.
#[derive(Default)]
struct Member {
    contribution: u8,
    /// Contributions made so far: each has a number of its own.
    made: u8,
    /// Rounds to join after the present one.
    left: u32,
    first: Option<(u8, Resume)>,
    latest: Option<Resume>,
}

struct Play {
    plan: Plan,
    world: World,
    dice: Dice,
    members: Vec<Member>,
    attacker: Attacker,
    /// The end of its attack, and its next act.
    attack: Option<(Time, Time)>,
    agenda: BTreeMap<(Time, usize), Happening>,
    awaiting: Vec<(usize, Happening)>,
    scheduled: usize,
    steps: u64,
    /// Addresses that clients moved to.
    moves: u16,
    summary: Summary,
}

/// Plays the world of a seed; a violation is a panic.
pub(crate) fn play(seed: u64, trace: bool) -> Summary {
    let plan = Plan::draw(seed);
    let mut world = World::of(seed, plan.settings(seed), plan.faults);
    world.misfits = plan.misfits.clone();
    world.most_packed = plan.most_packed;
    world.most_paths = plan.most_paths;
    world.most_pipelines = plan.most_pipelines;
    world.ledger.trace = trace;
    world.ledger.print(&plan);
    plan.clocks.iter().for_each(|(machine, clock)| world.network.set_clock(*machine, *clock));
    plan.narrow.iter().for_each(|(from, to, longest)| world.network.narrow(*from, *to, *longest));
    world.start_aggregator();
    let mut play = Play {
        world,
        dice: Dice::new(seed.rotate_left(32)),
        members: (0..plan.clients).map(|number| Member::new(number, plan.rounds)).collect(),
        attacker: Attacker::new(seed),
        attack: None,
        agenda: BTreeMap::new(),
        awaiting: vec![],
        scheduled: 0,
        steps: 0,
        moves: 0,
        summary: Summary::default(),
        plan,
    };
    play.begin();
    play.disturb();
    play.settle();
    play.finish()
}

impl Member {
    fn new(number: u16, rounds: u32) -> Self {
        let mut member = Self { left: rounds - 1, ..Self::default() };
        member.contribute(number);
        member
    }

    /// Makes another contribution.
    fn contribute(&mut self, number: u16) {
        self.contribution = 16 * number as u8 + self.made;
        self.made = (self.made + 1) % 16;
    }
}

impl Play {
    fn begin(&mut self) {
        let happenings = std::mem::take(&mut self.plan.happenings);
        let late = |number: u16| {
            let start = |h: &Happening| matches!(h, Happening::Start { number: n } if *n == number);
            happenings.iter().any(|(_, happening)| start(happening))
        };
        for number in (0..self.plan.clients).filter(|number| !late(*number)) {
            self.world.start_client(number, self.members[usize::from(number)].contribution);
        }
        for (when, happening) in happenings {
            match when {
                When::At(time) => self.schedule(time, happening),
                When::Counted(count) => self.awaiting.push((count, happening)),
            }
        }
        self.summary.add("worlds", 1);
        self.summary.add("clients", u64::from(self.plan.clients));
        self.summary.fault("clocks of their own", self.plan.clocks.len() as u64);
    }

    fn schedule(&mut self, at: Time, happening: Happening) {
        self.scheduled += 1;
        self.agenda.insert((at, self.scheduled), happening);
    }

    fn after(&mut self, span: Duration, happening: Happening) {
        self.schedule(self.world.network.now() + span, happening);
    }

    /// Carries out all happenings that are due.
    fn disturb(&mut self) {
        loop {
            let due = self.agenda.first_key_value().map(|((due, _), _)| *due);
            let last = (!self.awaiting.is_empty()).then_some(Time::ZERO + LAST_CHANCE);
            let attack = self.attack.map(|(_, next)| next);
            let Some(until) = [due, attack].into_iter().flatten().min().or(last) else { return };
            if !self.step(until) && due.is_none() && attack.is_none() {
                return;
            }
            let now = self.world.network.now();
            while let Some(entry) = self.agenda.first_entry().filter(|entry| entry.key().0 <= now) {
                let happening = entry.remove();
                self.happen(happening);
            }
            let counted = self.world.ledger.counted();
            let ripe = self.awaiting.extract_if(.., |(count, _)| *count <= counted);
            let ripe: Vec<_> = ripe.collect();
            ripe.into_iter().for_each(|(_, happening)| self.happen(happening));
            self.attack(now);
        }
    }

    fn attack(&mut self, now: Time) {
        let Some((end, next)) = self.attack.filter(|(_, next)| *next <= now) else { return };
        self.attacker.act(&mut self.world.network, &mut self.summary.faults);
        let pause = self.dice.below(ATTACK[1].as_nanos() as u64);
        let next = next.max(now) + Duration::from_nanos(pause);
        self.attack = (next < end).then_some((end, next));
    }

    fn happen(&mut self, happening: Happening) {
        self.world.ledger.print(happening);
        match happening {
            Happening::Start { number } => self.start(number, Spool::Nameless),
            Happening::CrashClient { number, down, spool } => {
                let Some(client) = self.world.clients.iter_mut().find(|c| c.number == number)
                else {
                    return;
                };
                client.node = None;
                if let Some(down) = down {
                    self.after(down, Happening::RestartClient { number, spool });
                }
            }
            Happening::RestartClient { number, spool } => self.start(number, spool),
            Happening::CrashAggregator { down } => {
                self.world.aggregator = None;
                self.after(down, Happening::RestartAggregator);
            }
            Happening::RestartAggregator => {
                if self.world.aggregator.is_some() {
                    return;
                }
                self.world.start_aggregator();
            }
            Happening::Cut { from, to, span } => {
                self.world.network.cut(from, to);
                self.after(span, Happening::Mend { from, to });
            }
            Happening::Mend { from, to } => self.world.network.mend(from, to),
            Happening::Narrow { from, to, longest } => {
                self.world.network.narrow(from, to, longest);
            }
            Happening::Move { number } => {
                self.moves += 1;
                let running = |client: &&mut Client| runs(client) && client.number == number;
                let Some(client) = self.world.clients.iter_mut().find(running) else { return };
                // Nobody else's: those of new processes are below.
                client.addr.set_port(2000 + self.moves);
            }
            Happening::Suspend { machine, span } => {
                self.world.asleep.insert(machine);
                self.after(span, Happening::Wake { machine });
            }
            Happening::Wake { machine } => self.world.wake(machine),
            Happening::Equivocate { number } => {
                let running = |client: &&mut Client| runs(client) && client.number == number;
                let Some(client) = self.world.clients.iter_mut().find(running) else { return };
                client.equivocate();
            }
            Happening::Rejoin { number } => {
                let open = |client: &&mut Client| client.number == number && !client.done;
                let Some(client) = self.world.clients.iter_mut().find(open) else { return };
                let member = &self.members[usize::from(number)];
                let now = self.world.network.time_at(client.addr);
                client.join(now, member.contribution, member.latest);
            }
            Happening::Weather(faults) => self.world.network.set_faults(faults),
            Happening::Attack => {
                let now = self.world.network.now();
                self.attack = Some((now + ATTACK[0], now));
            }
            Happening::Flood => {
                let count = self.attacker.flood(&mut self.world.network);
                self.summary.fault("HELLOs of a flood", count);
                if count == 0 {
                    return;
                }
            }
            Happening::Stranger => {
                let stranger = Identity::from_secret(&[150; 32]).unwrap();
                self.world.start_node(stranger, STRANGER, 0, None);
            }
        }
        self.summary.happened(happening.name());
    }

    /// Starts or restarts a client.
    fn start(&mut self, number: u16, spool: Spool) {
        let member = &mut self.members[usize::from(number)];
        let mut resume = None;
        match spool {
            Spool::Kept => resume = member.latest,
            Spool::Nameless | Spool::Forged => {}
            Spool::Lost => member.contribute(number),
            Spool::Stale => {
                if let Some((contribution, round)) = member.first {
                    (member.contribution, resume) = (contribution, Some(round));
                }
            }
        }
        let contribution = member.contribution;
        self.world.start_node(node(number), number, contribution, resume);
        if matches!(spool, Spool::Forged) {
            self.world.client(number).equivocate();
        }
    }

    fn step(&mut self, until: Time) -> bool {
        let stepped = self.world.step(until);
        self.steps += 1;
        assert!(self.steps < MAX_STEPS, "it does not come to rest");
        // Copies are made all the time: some that are sent later are old.
        if self.dice.below(16) == 0 {
            self.attacker.listen(&self.world.network);
        }
        self.follow();
        stepped
    }

    /// Does the work of owners after events of their clients.
    fn follow(&mut self) {
        let world = &mut self.world;
        for client in world.clients.iter_mut().filter(|client| client.number != STRANGER) {
            let member = &mut self.members[usize::from(client.number)];
            if let Some(opening) = &client.opening {
                let latest = Resume { incarnation: opening.incarnation, round: opening.round };
                member.latest = Some(latest);
                member.first.get_or_insert((member.contribution, latest));
            }
            for refusal in client.rejected.drain(..) {
                let usual = matches!(refusal, Refusal::NotContributor | Refusal::RoundClosed);
                assert!(usual, "client {} is rejected: {refusal}", client.number);
            }
            if !client.done || !runs(client) || world.asleep.contains(&client.addr.ip()) {
                continue;
            }
            let left_out = client.refused.pop_if(|reason| reason == MISFIT).is_some();
            if left_out {
                self.summary.fault("misfits left out", 1);
            }
            if left_out || (client.refused.is_empty() && member.left > 0) {
                member.left -= u32::from(!left_out);
                member.contribute(client.number);
                client.join(world.network.time_at(client.addr), member.contribution, None);
            }
        }
    }

    /// Ends all faults to come: all that has begun must end.
    fn settle(&mut self) {
        self.world.network.mend_all();
        let asleep = std::mem::take(&mut self.world.asleep);
        asleep.into_iter().for_each(|machine| self.world.wake(machine));
        self.world.network.set_faults(calm(self.plan.faults));
        self.world.ledger.print("the world calms down");
        let until = self.world.network.now() + self.plan.patience();
        while !self.is_settled() {
            if !self.step(until) {
                let clients = self.world.clients.iter().filter(|client| !client.done);
                let open: Vec<_> = clients.map(|client| client.number).collect();
                panic!("after {:?} it has not ended for {open:?}", self.plan.patience());
            }
        }
    }

    /// Returns whether no round is open, and nobody waits for one that can still open.
    fn is_settled(&self) -> bool {
        let Some(aggregator) = &self.world.aggregator else { return false };
        let unfinished =
            |client: &&Client| runs(client) && client.number != STRANGER && !client.done;
        let unfinished = self.world.clients.iter().filter(unfinished).count();
        let waiting = aggregator.waiting();
        let too_few = waiting < usize::from(self.plan.min_clients);
        self.world.is_between_rounds() && unfinished <= waiting && (too_few || unfinished == 0)
    }

    fn finish(mut self) -> Summary {
        for event in &self.world.events {
            match event {
                AggregatorEvent::Opened { .. } => self.summary.add("rounds opened", 1),
                AggregatorEvent::Closed(round) => {
                    self.summary.add("rounds closed", 1);
                    let absent = round.contributed.iter().filter(|(_, chunks)| *chunks == 0);
                    let count = if round.closed > 0 { absent.count() as u64 } else { 0 };
                    let whole = if self.plan.whole { count } else { 0 };
                    self.summary.fault("contributions never whole", whole);
                }
                AggregatorEvent::Resumed { .. } => self.summary.add("clients resumed", 1),
                AggregatorEvent::Lost { .. } => self.summary.add("clients given up", 1),
                AggregatorEvent::Refused { .. } => self.summary.add("clients refused", 1),
                _ => {}
            }
        }
        let ends = self.world.clients.iter().map(|client| client.ends.len() as u64).sum();
        self.summary.add("ends that clients received", ends);
        self.summary.add("chunks counted", self.world.ledger.counted() as u64);
        self.summary.add("different sums checked", self.world.ledger.sums() as u64);
        self.summary.add("steps", self.steps);
        self.summary.add("virtual seconds", self.world.network.now().0 / 1_000_000_000);
        self.summary.tally(self.world.network.tally());
        self.summary
    }
}

fn runs(client: &Client) -> bool {
    client.node.is_some()
}

/// Softens faults, so that most datagrams arrive.
fn calm(faults: Faults) -> Faults {
    Faults {
        loss: faults.loss.min(200_000),
        corruption: faults.corruption.min(100_000),
        trimming: faults.trimming.min(300_000),
        lateness: faults.lateness.min(10_000),
        jitter: faults.jitter.min(Duration::from_millis(20)),
        ..faults
    }
}
