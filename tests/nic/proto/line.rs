//! Senders on a line of bounded rate with a queue before it, which they share, on virtual time.

use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroU64};
use std::time::Duration;

use ciphergram_nic::Bytes;
use ciphergram_nic::faults::Faults;
use ciphergram_nic::proto::{Config, DatagramSizes, Endpoint, EndpointEvent, Identity, Peer, Time};
use ciphergram_nic::relay::{Bottleneck, Direction};

/// Bytes of a message: of sums, as an aggregator sends them.
const MESSAGE: usize = 8256;
const MEGABIT: u64 = 1_000_000;

fn addr(number: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1], number as u16))
}

fn identity(number: usize) -> Identity {
    Identity::from_secret(&[number as u8; 32]).unwrap()
}

/// A line, the same each way.
#[derive(Clone, Copy)]
struct Line {
    megabits: u64,
    delay_ms: u64,
    /// Datagrams that wait for it.
    queue: usize,
    /// Of a million datagrams.
    lost: u32,
    /// Bytes of the longest datagram.
    longest: usize,
}

/// A sender: when it begins, and the messages that it sends.
type Load = (Duration, usize);

impl Line {
    /// Has senders write to one receiver until it is over. Returns the time, and the messages of each that arrived.
    fn run(
        self,
        seed: u64,
        loads: &[Load],
        is_over: impl Fn(&[Load], &[usize]) -> bool,
    ) -> (Duration, Vec<usize>) {
        let ids: Vec<_> = (0..=loads.len()).map(|number| identity(number + 1).id()).collect();
        let end = |number: usize| {
            let seed = [seed as u8 + number as u8; 32];
            let config = Config::new(identity(number + 1), NonZeroU32::MIN, seed);
            let (allow, sizes) =
                (ids.iter().copied().collect(), DatagramSizes::up_to(self.longest).unwrap());
            let mut end = Endpoint::new(Config { allow, sizes, ..config }).unwrap();
            end.register_memory(7, MESSAGE, None).unwrap();
            end.contact(ids[0], addr(0));
            end
        };
        let mut ends: Vec<Endpoint> = (0..=loads.len()).map(end).collect();
        let delay = Duration::from_millis(self.delay_ms);
        let faults = Faults { loss: self.lost, delay, ..Faults::default() };
        let rate = NonZeroU64::new(self.megabits * MEGABIT);
        let line = Bottleneck { rate, queue: self.queue, ..Bottleneck::default() };
        let mut ways: [Direction<(usize, usize)>; 2] =
            [seed, !seed].map(|seed| Direction::new(faults, line, seed));
        let (mut queued, mut arrived) = (vec![0; loads.len()], vec![0; loads.len()]);
        let (data, mut bytes, mut now) = (Bytes::from(vec![3; MESSAGE]), vec![], Time::ZERO);
        loop {
            let open = |(_, (begins, _)): &(usize, &Load)| Time::ZERO + *begins <= now;
            for (sender, (_, messages)) in loads.iter().enumerate().filter(open) {
                let own = &mut ends[sender + 1];
                while queued[sender] < *messages && own.headroom(Peer::of(ids[0])) > 0 {
                    own.write(now, Peer::of(ids[0]), 7, 0, data.clone(), None).unwrap();
                    queued[sender] += 1;
                }
            }
            for (from, end) in ends.iter_mut().enumerate() {
                while let Some(route) = end.poll_transmit(now, &mut bytes) {
                    let to = usize::from(route.addr.port());
                    ways[usize::from(from == 0)].push(now, &(from, to), &mut bytes);
                    bytes.clear();
                }
                while let Some(event) = end.poll_event() {
                    match event {
                        EndpointEvent::Completed { .. } => arrived[from - 1] += 1,
                        EndpointEvent::Written { .. } => {}
                        other => panic!("{other:?}"),
                    }
                }
            }
            if is_over(loads, &arrived) {
                return (now.since(Time::ZERO), arrived);
            }
            let begins =
                loads.iter().map(|(begins, _)| Time::ZERO + *begins).filter(|begins| *begins > now);
            let due = ends.iter().filter_map(Endpoint::poll_timeout).chain(begins);
            now = now.max(due.chain(ways.iter().filter_map(Direction::due)).min().unwrap());
            for way in &mut ways {
                while let Some(mut datagram) = way.pop(now) {
                    let (from, to) = datagram.to;
                    ends[to].handle_datagram(now, addr(from), &mut datagram.bytes);
                }
            }
            ends.iter_mut().for_each(|end| end.handle_timeout(now));
            assert!(
                now < Time::ZERO + Duration::from_secs(60),
                "{arrived:?} messages of {loads:?}"
            );
        }
    }

    /// Returns the share of what the line's rate and loss allow that a sender of so many messages has.
    fn used_by_one(self, seed: u64, messages: usize) -> f64 {
        let all = |loads: &[Load], arrived: &[usize]| arrived[0] == loads[0].1;
        let (took, _) = self.run(seed, &[(Duration::ZERO, messages)], all);
        let bits = (8 * messages * MESSAGE) as f64;
        let most = (self.megabits * MEGABIT) as f64 * (1.0 - f64::from(self.lost) / 1e6);
        bits / most / took.as_secs_f64()
    }
}

const WIRELESS: Line = Line { megabits: 30, delay_ms: 20, queue: 128, lost: 20_000, longest: 8900 };

#[test]
fn random_loss_leaves_a_line_in_use() {
    for (delay_ms, longest, least) in
        [(20, 8900, 0.9), (40, 8900, 0.85), (20, 1452, 0.85), (40, 1452, 0.8)]
    {
        let line = Line { delay_ms, longest, ..WIRELESS };
        let mut used: Vec<f64> = (0..9).map(|seed| line.used_by_one(seed, 2000)).collect();
        used.sort_by(f64::total_cmp);
        println!("{delay_ms} ms each way, {longest} bytes: {used:.2?}");
        assert!(used[4] >= least, "{delay_ms} ms, {longest} bytes: {used:.2?}");
    }
}

/// Whoever comes second has its share within seconds: of 30 MB that two send together, not much less than half.
#[test]
fn senders_share_a_line() {
    let late = [5, 50, 200, 1000].map(Duration::from_millis);
    let line = Line { lost: 0, queue: 42, delay_ms: 1, ..WIRELESS };
    for line in [
        line,
        Line { queue: 32, delay_ms: 20, ..line },
        Line { queue: 128, delay_ms: 20, longest: 1452, ..line },
    ] {
        let share = |late: Duration| {
            let count = |_: &[Load], arrived: &[usize]| arrived.iter().sum::<usize>() >= 3600;
            let (_, arrived) = line.run(1, &[(Duration::ZERO, 9999), (late, 9999)], count);
            arrived[0] as f64 / arrived.iter().sum::<usize>() as f64
        };
        let shares = late.map(share);
        println!(
            "{} ms, queue of {}, {} bytes: {shares:.2?}",
            line.delay_ms, line.queue, line.longest
        );
        assert!(shares.iter().all(|share| (0.35..0.75).contains(share)), "{shares:.2?}");
    }
}

/// Round trips of a satellite, and longer than a few timeouts: they are measured all the same.
#[test]
fn round_trips_of_a_second_are_no_silence() {
    for (delay_ms, least) in [(280, 0.2), (330, 0.1), (480, 0.05)] {
        let used = Line { delay_ms, lost: 0, ..WIRELESS }.used_by_one(1, 500);
        println!("{delay_ms} ms each way: {used:.2}");
        assert!(used >= least, "{delay_ms} ms each way: {used:.2}");
    }
}
