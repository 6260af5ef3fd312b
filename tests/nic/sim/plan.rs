//! The plan of a world, drawn from its seed before it begins.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use ciphergram_nic::faults::Faults;
use ciphergram_nic::proto::{Time, datagram::MIN_DATAGRAM_BYTES};
use ciphergram_nic::round::AggregatorConfig;
use ciphergram_nic::sim::Clock;
use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};

use crate::support::world::{CHUNKS, SERVER, machine, node, process, server};

/// The moment of a happening.
#[derive(Clone, Copy, Debug)]
pub(crate) enum When {
    At(Time),
    /// Once this many chunks count, of all clients together: in the midst of a round, however slow.
    Counted(usize),
}

/// The state that a client comes back with.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Spool {
    /// Its contribution, and the round that it was in.
    Kept,
    /// Its contribution.
    Nameless,
    /// Nothing: it makes another contribution.
    Lost,
    /// The contribution of the first round it was in.
    Stale,
    /// Its contribution, of which it makes another version.
    Forged,
}

/// A happening in a world.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Happening {
    Start {
        number: u16,
    },
    CrashClient {
        number: u16,
        down: Option<Duration>,
        spool: Spool,
    },
    RestartClient {
        number: u16,
        spool: Spool,
    },
    CrashAggregator {
        down: Duration,
    },
    RestartAggregator,
    Cut {
        from: IpAddr,
        to: IpAddr,
        span: Duration,
    },
    Mend {
        from: IpAddr,
        to: IpAddr,
    },
    /// A path takes other datagrams than before.
    Narrow {
        from: IpAddr,
        to: IpAddr,
        longest: usize,
    },
    /// A client has another address: it moves between networks or transports, or a NAT forgets it.
    Move {
        number: u16,
    },
    Suspend {
        machine: IpAddr,
        span: Duration,
    },
    Wake {
        machine: IpAddr,
    },
    Equivocate {
        number: u16,
    },
    /// An owner loses patience, and asks again.
    Rejoin {
        number: u16,
    },
    Weather(Faults),
    Attack,
    Flood,
    Stranger,
}

impl Happening {
    /// Returns its name in the summary.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Start { .. } => "late starts",
            Self::CrashClient { .. } => "client crashes",
            Self::RestartClient { spool: Spool::Kept, .. } => "client restarts with spool",
            Self::RestartClient { spool: Spool::Nameless, .. } => "client restarts with no round",
            Self::RestartClient { spool: Spool::Lost, .. } => "client restarts without spool",
            Self::RestartClient { spool: Spool::Stale, .. } => "client restarts, stale round",
            Self::RestartClient { spool: Spool::Forged, .. } => "client restarts, other bytes",
            Self::CrashAggregator { .. } => "aggregator crashes",
            Self::RestartAggregator => "aggregator restarts",
            Self::Cut { .. } => "one-way cuts",
            Self::Mend { .. } => "mended cuts",
            Self::Narrow { .. } => "paths of another size",
            Self::Move { .. } => "moves",
            Self::Suspend { .. } => "suspensions",
            Self::Wake { .. } => "wakings",
            Self::Equivocate { .. } => "equivocations",
            Self::Rejoin { .. } => "impatient owners",
            Self::Weather(_) => "changes of faults",
            Self::Attack => "attacks",
            Self::Flood => "HELLO floods",
            Self::Stranger => "strangers",
        }
    }
}

/// A world to come.
#[derive(Debug)]
pub(crate) struct Plan {
    pub clients: u16,
    pub min_clients: u16,
    pub rounds: u32,
    join_deadline: Duration,
    round_deadline: Duration,
    linger: Duration,
    pub faults: Faults,
    pub most_packed: u32,
    /// The most sockets of a client.
    pub most_paths: u16,
    pub most_pipelines: u16,
    /// Only whole contributions count.
    pub whole: bool,
    /// Contributions that no round opens with.
    pub misfits: BTreeSet<u8>,
    pub clocks: Vec<(IpAddr, Clock)>,
    /// Ways from one machine to another, and the longest datagrams that they take.
    pub narrow: Vec<(IpAddr, IpAddr, usize)>,
    pub happenings: Vec<(When, Happening)>,
}

impl Plan {
    pub(crate) fn draw(seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let clients = 1 + dice.below(8) as u16;
        let mut plan = Self {
            clients,
            // Rather few, so that rounds open although somebody is gone.
            min_clients: 1 + dice.below(u64::from(clients)).min(dice.below(8)) as u16,
            rounds: 1 + dice.below(3) as u32,
            join_deadline: dice.span(MILLISECOND * 200, SECOND * 8),
            round_deadline: dice.span(MILLISECOND * 500, SECOND * 12),
            linger: dice.span(MILLISECOND * 500, SECOND * 12),
            faults: dice.faults(),
            most_packed: 1 + dice.below(CHUNKS.into()) as u32,
            most_paths: 1 + dice.below(4) as u16,
            most_pipelines: 1 + dice.below(3) as u16,
            whole: false,
            misfits: BTreeSet::new(),
            clocks: vec![],
            narrow: vec![],
            happenings: vec![],
        };
        let skewed = dice.below(4) > 0;
        for machine in plan.machines().into_iter().filter(|_| skewed) {
            let offset = Duration::from_nanos(dice.below(600_000_000_000));
            let drift_ppm = dice.below(1001) as i32 - 500;
            plan.clocks.push((machine, Clock { offset, drift_ppm }));
        }
        for number in 0..clients {
            if dice.below(6) == 0 {
                plan.happenings.push((dice.when(clients), Happening::Start { number }));
            }
        }
        let count = if dice.below(4) == 0 { 0 } else { 1 + dice.below(6) };
        for _ in 0..count {
            let when = dice.when(clients);
            plan.add(when, &mut dice);
        }
        plan.whole = dice.below(3) == 0;
        let (some, server) = (dice.below(3) > 0, SocketAddr::from(SERVER).ip());
        for client in (0..clients).filter(|_| some).map(machine) {
            for (from, to) in [(client, server), (server, client)] {
                if dice.below(2) == 0 {
                    plan.narrow.push((from, to, dice.path_bytes()));
                }
                for _ in 0..dice.below(3) {
                    let longest = dice.path_bytes();
                    let narrow = Happening::Narrow { from, to, longest };
                    plan.happenings.push((dice.when(clients), narrow));
                }
            }
        }
        if dice.below(4) == 0 {
            plan.misfits = (0..16 * clients as u8).filter(|_| dice.below(4) == 0).collect();
        }
        for _ in 0..dice.below(6).saturating_sub(2) {
            let number = dice.below(clients.into()) as u16;
            plan.happenings.push((dice.when(clients), Happening::Move { number }));
        }
        plan
    }

    fn machines(&self) -> Vec<IpAddr> {
        let server = SocketAddr::from(SERVER).ip();
        (0..self.clients).map(machine).chain([server]).collect()
    }

    fn add(&mut self, when: When, dice: &mut Dice) {
        let number = dice.below(u64::from(self.clients)) as u16;
        let spools =
            [Spool::Kept, Spool::Kept, Spool::Nameless, Spool::Lost, Spool::Stale, Spool::Forged];
        let spool = spools[dice.below(6) as usize];
        let span = dice.span(MILLISECOND, SECOND * 15);
        let happening = match dice.below(18) {
            0..4 => {
                let down = (dice.below(5) > 0).then_some(span);
                Happening::CrashClient { number, down, spool }
            }
            4..6 => Happening::CrashAggregator { down: span },
            6..9 => return self.cut(when, dice),
            9..11 => {
                let machines = self.machines();
                let machine = machines[dice.below(machines.len() as u64) as usize];
                Happening::Suspend { machine, span }
            }
            11 => Happening::Equivocate { number },
            12 => Happening::Weather(dice.faults()),
            13 => Happening::Stranger,
            14 if dice.below(3) == 0 => Happening::Flood,
            14 | 15 => Happening::Attack,
            _ => Happening::Rejoin { number },
        };
        self.happenings.push((when, happening));
    }

    /// Cuts some clients off from the server, one way or both.
    fn cut(&mut self, when: When, dice: &mut Dice) {
        let server = SocketAddr::from(SERVER).ip();
        let span = dice.span(MILLISECOND, SECOND * 15);
        let (whom, ways) = (dice.below(1 << self.clients), 1 + dice.below(3));
        for client in (0..self.clients).filter(|number| whom >> number & 1 == 1).map(machine) {
            for (way, from, to) in [(1, client, server), (2, server, client)] {
                if ways & way != 0 {
                    self.happenings.push((when, Happening::Cut { from, to, span }));
                }
            }
        }
    }

    pub(crate) fn settings(&self, seed: u64) -> AggregatorConfig {
        AggregatorConfig {
            endpoint: process(server(), 1),
            nodes: (0..self.clients).map(|number| (node(number).id(), Some(number))).collect(),
            clients: self.clients,
            min_clients: self.min_clients,
            rounds: self.rounds,
            join_deadline: self.join_deadline,
            wait_for_clients: true,
            round_deadline: self.round_deadline,
            whole: self.whole,
            linger: self.linger,
            seed: [seed as u8; 32],
        }
    }

    /// Returns the time in which all rounds end in a network that carries most datagrams: each has
    /// its deadlines, and absent clients must be given up first.
    pub(crate) fn patience(&self) -> Duration {
        let round = self.join_deadline + self.round_deadline + self.linger;
        round * (self.rounds + 1) + SECOND * 60
    }
}

pub(crate) const MILLISECOND: Duration = Duration::from_millis(1);
pub(crate) const SECOND: Duration = Duration::from_secs(1);

/// Numbers from a seed.
pub(crate) struct Dice(ChaCha8Rng);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        // Not the network's numbers.
        Self(ChaCha8Rng::seed_from_u64(!seed))
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0.next_u64() % bound.max(1)
    }

    pub(crate) fn fill(&mut self, bytes: &mut [u8]) {
        self.0.fill_bytes(bytes);
    }

    /// Draws a span, as often short as long, whatever the scale.
    fn span(&mut self, least: Duration, most: Duration) -> Duration {
        let octaves = (most.as_nanos() / least.as_nanos()).ilog2();
        let base = least.as_nanos() as u64 * (1 << self.below(u64::from(octaves) + 1));
        Duration::from_nanos(base + self.below(base)).min(most)
    }

    fn when(&mut self, clients: u16) -> When {
        if self.below(2) == 0 {
            return When::Counted(self.below(30 * u64::from(clients)) as usize);
        }
        When::At(Time::ZERO + self.span(MILLISECOND, SECOND * 12))
    }

    /// Draws the bytes of the longest datagram of a path.
    fn path_bytes(&mut self) -> usize {
        MIN_DATAGRAM_BYTES as usize + self.below(900) as usize
    }

    /// Draws faults, from none to those that hardly anything passes.
    fn faults(&mut self) -> Faults {
        let most = [0, 30_000, 150_000, 300_000, 500_000][self.below(5) as usize];
        let mut fault =
            |most: u64| if self.below(3) == 0 { 0 } else { self.below(most + 1) as u32 };
        let mut faults = Faults {
            loss: fault(most),
            duplication: fault(most),
            corruption: fault(most / 2),
            trimming: fault(most),
            marking: fault(most),
            junk: fault(most / 2),
            lateness: fault(most / 8),
            ..Faults::default()
        };
        faults.delay = self.span(Duration::from_micros(20), MILLISECOND * 15);
        faults.jitter =
            if most == 0 { Duration::ZERO } else { self.span(MILLISECOND / 20, SECOND / 10) };
        faults
    }
}
