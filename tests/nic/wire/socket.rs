//! A round over real sockets, one thread a process.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::ops::ControlFlow;
use std::thread;
use std::time::{Duration, Instant};

use ciphergram_nic::Driver;
use ciphergram_nic::driver::MAX_SLEEP;
use ciphergram_nic::faults::{Faults, MILLION};
use ciphergram_nic::proto::Origin;
use ciphergram_nic::relay::{Bottleneck, RelaySwitch};
use ciphergram_nic::round::{
    Aggregator, AggregatorConfig, RoundClient, RoundClientConfig, RoundClientEvent, RoundEnd,
    SumLayout,
};
use ciphergram_nic::wire::{Faulty, SocketWire, Wire};

use crate::support::world::{
    CHUNK_BYTES, CHUNKS, Integers, Issue, hello, node, process, server, values, words,
};

fn loopback(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}

fn contribute(aggregator: SocketAddr, number: u16) -> (Vec<Vec<u64>>, RoundEnd) {
    let config = RoundClientConfig {
        endpoint: process(node(number), 100 + u32::from(number)),
        addr: aggregator,
        aggregator: server().id(),
        contributor: number,
        seed: [number as u8; 32],
    };
    let mut driver = Driver::new(SocketWire::bind(loopback(0)).unwrap());
    let mut node = RoundClient::new(config).unwrap();
    node.join(driver.now(), [number as u8; 16], hello(number as u8), None).unwrap();
    let mut next = CHUNKS;
    let mut sums = vec![Vec::new(); CHUNKS as usize];
    let end = driver
        .run(&mut node, |node, now| {
            while let Some(event) = node.poll_event() {
                match event {
                    RoundClientEvent::Opened(_) => {
                        node.accept(
                            now,
                            SumLayout { chunks: CHUNKS, sum_bytes: CHUNK_BYTES.get() as usize },
                        )
                        .unwrap();
                        next = 0;
                    }
                    RoundClientEvent::Sum { chunk, bytes, .. } => {
                        let words = bytes.as_chunks().0.iter();
                        sums[chunk as usize] = words.map(|w| u64::from_le_bytes(*w)).collect();
                    }
                    RoundClientEvent::Counted { .. } => {}
                    RoundClientEvent::Ended(end) => return ControlFlow::Break(end),
                    other => panic!("{other:?}"),
                }
            }
            while next < CHUNKS && node.can_push() {
                let mine = values(number, next, Issue::of(0));
                let bytes: Vec<u8> = mine.iter().flat_map(|word| word.to_le_bytes()).collect();
                node.push(now, next, CHUNK_BYTES, bytes.into()).unwrap();
                next += 1;
            }
            ControlFlow::Continue(MAX_SLEEP)
        })
        .unwrap();
    driver.linger(&mut node, Duration::from_millis(50)).unwrap();
    (sums, end)
}

#[test]
fn rounds_survive_noise_and_a_dead_socket() {
    let wire = SocketWire::bind(loopback(0)).unwrap();
    let addr = wire.local_addr().unwrap();
    let serving = thread::spawn(move || {
        let config = AggregatorConfig {
            endpoint: process(server(), 1),
            nodes: (0..3).map(|number| (node(number).id(), Some(number))).collect(),
            clients: 3,
            min_clients: 3,
            rounds: 1,
            join_deadline: Duration::from_secs(20),
            wait_for_clients: true,
            round_deadline: Duration::from_secs(20),
            whole: false,
            linger: Duration::from_secs(2),
            seed: [7; 32],
        };
        let mut aggregator =
            Aggregator::new(config, Integers::new(1, Default::default(), Default::default()))
                .unwrap();
        let mut driver = Driver::new(wire);
        let finished = driver.run(&mut aggregator, |aggregator, _| {
            if aggregator.is_finished() {
                ControlFlow::Break(aggregator.stats())
            } else {
                ControlFlow::Continue(MAX_SLEEP)
            }
        });
        finished.unwrap()
    });
    // Noise, and a sender that is gone when it is answered.
    let stranger = UdpSocket::bind(loopback(0)).unwrap();
    for length in 1..=100 {
        stranger.send_to(&vec![length; usize::from(length)], addr).unwrap();
    }
    drop(stranger);
    let clients: Vec<_> =
        (0..3).map(|number| thread::spawn(move || contribute(addr, number))).collect();
    for client in clients {
        let (sums, end) = client.join().unwrap();
        assert!(end.is_complete() && end.closed == CHUNKS, "{end:?}");
        for chunk in 0..CHUNKS {
            let mut expected = vec![0u64; words(chunk)];
            for number in 0..3 {
                let added = values(number, chunk, Issue::of(0));
                expected.iter_mut().zip(added).for_each(|(sum, v)| *sum = sum.wrapping_add(v));
            }
            assert_eq!(sums[chunk as usize], expected);
        }
    }
    let stats = serving.join().unwrap();
    assert_eq!(stats.malformed, 100, "{stats:?}");
}

#[test]
fn dead_peers_do_not_stop_the_socket() {
    let gone = SocketWire::bind(loopback(0)).unwrap().local_addr().unwrap();
    let mut wire = SocketWire::bind(loopback(0)).unwrap();
    for _ in 0..3 {
        assert!(wire.send(gone.into(), b"anyone?", 7));
        assert_eq!(wire.receive(Duration::from_millis(5), &mut |_, _| panic!("who?")), Ok(0));
    }
    let me = wire.local_addr().unwrap();
    assert!(wire.send(me.into(), b"still hereand once more", 10));
    let mut found = vec![];
    let second = Duration::from_secs(1);
    while found.len() < 3 {
        wire.receive(second, &mut |from, bytes| found.push((from, bytes.to_vec()))).unwrap();
    }
    let expected: [&[u8]; 3] = [b"still here", b"and once m", b"ore"];
    assert_eq!(found, expected.map(|bytes| (me.into(), bytes.to_vec())));
}

#[test]
fn a_faulty_wire_marks_doubles_and_delays() {
    let delay = Duration::from_millis(20);
    let faults = Faults { duplication: MILLION, marking: MILLION, delay, ..Faults::default() };
    let mut wire = Faulty::new(SocketWire::bind(loopback(0)).unwrap(), faults, 1);
    let me = wire.local_addr().unwrap();
    let begin = Instant::now();
    assert!(wire.send(me.into(), b"late", 4));
    let mut found = vec![];
    while found.len() < 2 {
        let wait = Duration::from_secs(1);
        let mut take =
            |from: Origin, bytes: &mut [u8]| found.push((from.congested, bytes.to_vec()));
        wire.receive(wait, &mut take).unwrap();
    }
    assert_eq!(found, [(true, b"late".to_vec()), (true, b"late".to_vec())]);
    assert!(begin.elapsed() >= delay);
}

#[test]
fn a_switch_marks_congestion_both_ways() {
    let mut server = SocketWire::bind(loopback(0)).unwrap();
    let mut client = SocketWire::bind(loopback(0)).unwrap();
    let faults = Faults { marking: MILLION, ..Faults::default() };
    let to = server.local_addr().unwrap();
    let mut switch = RelaySwitch::bind(loopback(0), to, faults, Bottleneck::default(), 1).unwrap();
    let through = switch.local_addr().unwrap();
    let switching = thread::spawn(move || switch.run(Some(Duration::from_secs(6)), None));
    let receive = |wire: &mut SocketWire| {
        let mut found = vec![];
        wire.receive(Duration::from_secs(5), &mut |from, _| found.push(from)).unwrap();
        found[0]
    };
    assert!(client.send(through.into(), b"there", 5));
    let there = receive(&mut server);
    assert!(server.send(there.route, b"back", 4));
    assert!(there.congested && receive(&mut client).congested);
    switching.join().unwrap().unwrap();
}
