//! Senders on a line of bounded rate, which they share with the queue before it, on virtual time.

use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroU64};
use std::time::Duration;

use ciphergram_nic::Bytes;
use ciphergram_nic::faults::Faults;
use ciphergram_nic::proto::{Config, DatagramSizes, Endpoint, EndpointEvent, Peer, Time};
use ciphergram_nic::relay::{Bottleneck, Direction};

use crate::support::multipath::{MEMORY, identity, node};

/// Bytes of a message: of sums, as an aggregator sends them.
const MESSAGE: usize = 8256;

/// Returns the address of a number, that of the receiver 1.
fn addr(number: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1], number.into()))
}

/// A line, the same each way.
#[derive(Clone, Copy, Debug)]
struct Line {
    megabits: u64,
    delay_ms: u64,
    /// Datagrams that wait for it.
    queue: usize,
    /// Datagrams lost, of a million.
    loss: u32,
    /// Bytes of the longest datagram.
    longest: usize,
}

const WIRELESS: Line = Line { megabits: 30, delay_ms: 20, queue: 128, loss: 20_000, longest: 8900 };

impl Line {
    /// Has senders write to one receiver, each from its time on, until `messages` are answered. Returns when that was,
    /// how many of each sender's were, and the bytes that all sent.
    fn run(self, seed: u64, begins: &[Duration], messages: usize) -> (Duration, Vec<usize>, u64) {
        let end = |number: u8| {
            let config = Config::new(identity(number), NonZeroU32::MIN, [seed as u8; 32]);
            let (allow, sizes) =
                ([1, 2, 3].map(node).into(), DatagramSizes::up_to(self.longest).unwrap());
            let mut end = Endpoint::new(Config { allow, sizes, ..config }).unwrap();
            end.register_memory(MEMORY, MESSAGE, None).unwrap();
            end.contact(node(1), addr(1));
            end
        };
        let mut ends: Vec<Endpoint> = (1..begins.len() as u8 + 2).map(end).collect();
        let delay = Duration::from_millis(self.delay_ms);
        let faults = Faults { loss: self.loss, delay, ..Faults::default() };
        let rate = NonZeroU64::new(self.megabits * 1_000_000);
        let line = Bottleneck { rate, queue: self.queue, ..Bottleneck::default() };
        let mut ways =
            [seed, !seed].map(|seed| Direction::<(usize, usize)>::new(faults, line, seed));
        let (data, mut bytes, mut completed) =
            (Bytes::from(vec![3; MESSAGE]), vec![], vec![0; begins.len()]);
        let (mut now, receiver) = (Time::ZERO, Peer::of(node(1)));
        loop {
            for (sender, begin) in ends[1..].iter_mut().zip(begins) {
                while Time::ZERO + *begin <= now && sender.headroom(receiver) > 0 {
                    sender.write(now, receiver, MEMORY, 0, data.clone(), None).unwrap();
                }
            }
            for (from, end) in ends.iter_mut().enumerate() {
                while let Some(route) = end.poll_transmit(now, &mut bytes) {
                    let to = usize::from(route.addr.port()) - 1;
                    ways[usize::from(from == 0)].push(now, &(from, to), &mut bytes);
                    bytes.clear();
                }
                while let Some(event) = end.poll_event() {
                    match event {
                        EndpointEvent::Completed { .. } => completed[from - 1] += 1,
                        EndpointEvent::Written { .. } => {}
                        other => panic!("{other:?}"),
                    }
                }
            }
            if completed.iter().sum::<usize>() >= messages {
                let sent = ends[1..].iter().map(|sender| sender.stats().sent.wire_bytes()).sum();
                return (now.since(Time::ZERO), completed, sent);
            }
            let begins =
                begins.iter().map(|begin| Time::ZERO + *begin).filter(|begin| *begin > now);
            let due = ends.iter().filter_map(Endpoint::poll_timeout).chain(begins);
            now = now.max(due.chain(ways.iter().filter_map(Direction::due)).min().unwrap());
            for way in &mut ways {
                while let Some(mut datagram) = way.pop(now) {
                    let (from, to) = datagram.to;
                    ends[to].handle_datagram(now, addr(from as u8 + 1), &mut datagram.bytes);
                }
            }
            ends.iter_mut().for_each(|end| end.handle_timeout(now));
            assert!(
                now < Time::ZERO + Duration::from_secs(60),
                "{completed:?} messages over {self:?}"
            );
        }
    }

    /// Returns the share of what the line's rate and loss allow that one sender has, until so many messages are
    /// answered.
    fn used_by_one(self, seed: u64, messages: usize) -> f64 {
        let (took, _, _) = self.run(seed, &[Duration::ZERO], messages);
        let most = self.megabits as f64 * 1e6 * (1.0 - f64::from(self.loss) / 1e6);
        (8 * messages * MESSAGE) as f64 / most / took.as_secs_f64()
    }
}

#[test]
fn random_loss_leaves_a_line_in_use() {
    for (delay_ms, longest, least) in
        [(20, 8900, 0.9), (40, 8900, 0.85), (20, 1452, 0.85), (40, 1452, 0.8)]
    {
        let line = Line { delay_ms, longest, ..WIRELESS };
        let mut used: Vec<f64> = (0..9).map(|seed| line.used_by_one(seed, 2000)).collect();
        used.sort_by(f64::total_cmp);
        assert!(used[4] >= least, "{used:.2?} of {line:?}");
    }
}

/// Of the first 30 MB on a line a sender that comes later has its share.
#[test]
fn senders_share_a_line() {
    let short = Line { loss: 0, queue: 42, delay_ms: 1, ..WIRELESS };
    let ethernet = Line { loss: 0, longest: 1452, ..WIRELESS };
    for line in [short, Line { queue: 32, delay_ms: 20, ..short }, ethernet] {
        for late_ms in [5, 50, 200, 1000] {
            let (_, completed, _) = line.run(1, &[0, late_ms].map(Duration::from_millis), 3600);
            let share = completed[0] as f64 / completed.iter().sum::<usize>() as f64;
            assert!(
                (0.25..0.78).contains(&share),
                "{share:.2} before one {late_ms} ms late, of {line:?}"
            );
        }
    }
}

/// A window grows by little enough that slow lines are not flooded.
#[test]
fn slow_lines_lose_little() {
    for (megabits, longest, most) in [(2, 1452, 1.4), (5, 8900, 1.3), (10, 1452, 1.2)] {
        let line = Line { megabits, longest, delay_ms: 25, queue: 20, loss: 0 };
        let messages = 100 * megabits as usize;
        let (_, _, sent) = line.run(1, &[Duration::ZERO], messages);
        let ratio = sent as f64 / (messages * MESSAGE) as f64;
        assert!(ratio <= most, "{ratio:.2} of what arrived was sent over {line:?}");
    }
}

/// Round trips of a satellite, and longer than a few timeouts: they are measured all the same.
#[test]
fn round_trips_of_a_second_are_no_silence() {
    for (delay_ms, least) in [(280, 0.2), (330, 0.06), (480, 0.03)] {
        let line = Line { delay_ms, loss: 0, ..WIRELESS };
        let used = line.used_by_one(1, 500);
        assert!(used >= least, "{used:.2} of {line:?}");
    }
}
