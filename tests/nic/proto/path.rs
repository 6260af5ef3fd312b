//! Several paths between two endpoints: datagrams are sprayed over them, and a failed or slow one
//! is avoided, tried, and used again.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::time::Duration;

use ciphergram_nic::Bytes;
use ciphergram_nic::faults::Faults;
use ciphergram_nic::proto::path::MAX_PATHS;
use ciphergram_nic::proto::{Cause, Config, Endpoint, EndpointEvent, Peer};
use ciphergram_nic::{NicError, Node};

use crate::support::multipath::{End, MEMORY, QUICK, World, addr, identity, node};

fn world(faults: Faults, paths: u16, flows: u16) -> World {
    World::new([End::new(1, 11, paths, flows, 1), End::new(2, 22, 1, 1, 1)], faults)
}

#[test]
fn datagrams_are_sprayed_over_all_paths() {
    let mut world = world(QUICK, 4, 1);
    world.write_and_check(800_000);
    let expected = 800_000 / 1292 / 4;
    for (via, count) in world.ends[0].counts() {
        assert!(count.abs_diff(expected) < expected / 4, "{via}: {count} of {expected}");
    }
    assert_eq!(world.ends[0].counts().len(), 4);
    // The other end has learned all paths, and sends by them as well.
    world.ends[0].came.clear();
    world.write(1, Peer { node: node(1), incarnation: 11 }, 800_000);
    world.until_completed(1, 1);
    let came = &world.ends[0].came;
    assert!(came.len() == 4 && came.values().all(|count| *count > expected / 2), "{came:?}");
}

#[test]
fn rough_paths_lose_nothing() {
    for paths in [2, 5, 16] {
        let faults = Faults {
            loss: 150_000,
            duplication: 50_000,
            corruption: 20_000,
            trimming: 50_000,
            marking: 40_000,
            jitter: Duration::from_millis(1),
            ..QUICK
        };
        let mut world = world(faults, paths, 1);
        for _ in 0..5 {
            world.write_and_check(150_000);
        }
    }
}

#[test]
fn failed_paths_are_tried_and_used_again() {
    let mut world = world(QUICK, 4, 1);
    world.write_and_check(400_000);
    world.ends[0].dead.insert(2);
    let took = world.write_and_check(800_000);
    assert!(took < Duration::from_millis(60), "{took:?}");
    assert_eq!(world.ends[0].endpoint.stats().paths_rested, 1);
    // From here on only trials go there.
    for _ in 0..5 {
        world.write_and_check(800_000);
        let tried = world.ends[0].counts().get(&2).copied().unwrap_or(0);
        assert!(tried <= 1, "{tried}");
    }
    world.ends[0].dead.clear();
    world.until_used_again(2);
    assert_eq!(world.ends[0].endpoint.stats().paths_rested, 1);
}

#[test]
fn lagging_paths_rest_until_they_recover() {
    let mut world = world(QUICK, 3, 1);
    world.write_and_check(400_000);
    world.ends[0].slow.insert(1, Duration::from_millis(40));
    for _ in 0..5 {
        world.write_and_check(800_000);
    }
    assert!(world.ends[0].endpoint.stats().paths_rested >= 1);
    let took = world.write_and_check(800_000);
    assert!(took < Duration::from_millis(30), "the slow path holds up nothing: {took:?}");
    world.ends[0].slow.clear();
    world.until_used_again(1);
}

#[test]
fn a_peer_that_pauses_rests_no_way() {
    let mut world = world(QUICK, 4, 1);
    world.write_and_check(800_000);
    for pause in [10, 20, 50, 200, 600] {
        world.write(0, Peer::of(node(2)), 800_000);
        let until = world.network.now() + Duration::from_millis(pause);
        let mut alone: [(SocketAddr, &mut dyn Node); 1] = [(addr(1), &mut world.ends[0])];
        while world.network.step(&mut alone, until) {}
        world.until_completed(0, 1);
        assert_eq!(world.ends[0].endpoint.stats().paths_rested, 0, "{pause} ms");
    }
}

#[test]
fn failed_single_path_flows_are_reported() {
    let mut world = world(QUICK, 1, 2);
    world.write_and_check(1000);
    world.ends[0].dead.insert(1);
    let (mut now, mut events) = (world.network.now(), vec![]);
    let end = now + Duration::from_secs(20);
    while events.is_empty() && now < end {
        // One path of either flow, again and again.
        for _ in 0..2 {
            let (data, to) = (Bytes::from_static(&[1; 100]), Peer::of(node(2)));
            let end = &mut world.ends[0].endpoint;
            if end.headroom(to) > 0 {
                end.write(now, to, MEMORY, 0, data, None).unwrap();
            }
        }
        world.idle(Duration::from_millis(50));
        let polled = std::iter::from_fn(|| world.ends[0].endpoint.poll_event());
        events = polled.filter(|event| !matches!(event, EndpointEvent::Completed { .. })).collect();
        now = world.network.now();
    }
    assert!(
        matches!(events[..], [EndpointEvent::Unreachable { cause: Cause::Silence, .. }]),
        "{events:?}"
    );
}

#[test]
fn handshakes_take_another_path_if_one_fails() {
    let mut world = world(QUICK, 2, 1);
    world.ends[0].dead.insert(0);
    let took = world.write_and_check(100_000);
    assert!(took < Duration::from_secs(1), "{took:?}");
}

#[test]
fn peers_without_paths_are_found_again() {
    let mut world = world(QUICK, 3, 1);
    world.write_and_check(100_000);
    world.ends[0].dead.extend([0, 1, 2]);
    world.write(0, Peer::of(node(2)), 100_000);
    world.idle(Duration::from_secs(30));
    let events: Vec<_> = std::iter::from_fn(|| world.ends[0].endpoint.poll_event()).collect();
    assert!(
        matches!(events[..], [EndpointEvent::Unreachable { cause: Cause::Silence, .. }]),
        "{events:?}"
    );
    // Any one path is enough.
    world.ends[0].dead.remove(&1);
    let took = world.write_and_check(100_000);
    assert!(took < Duration::from_secs(5), "{took:?}");
}

#[test]
fn messages_of_single_path_flows_stay() {
    let mut world = world(QUICK, 1, 3);
    for _ in 0..6 {
        let now = world.network.now();
        let data: Bytes = vec![1; 50_000].into();
        let to = Peer::of(node(2));
        world.ends[0].endpoint.write(now, to, MEMORY, 0, data, None).unwrap();
    }
    world.until_completed(0, 6);
    let left = &world.ends[0].left;
    assert_eq!(left.len(), 3);
    for (via, messages) in left {
        let distinct: BTreeSet<_> = messages.iter().collect();
        assert_eq!(distinct.len(), 2, "socket {via}");
        assert!(distinct.iter().all(|message| **message % 3 == u64::from(*via)));
    }
}

#[test]
fn processes_back_with_fewer_paths_are_served() {
    let mut world = world(QUICK, 16, 1);
    world.write_and_check(300_000);
    // The other end has datagrams in flight by paths that are gone.
    let to = Peer { node: node(1), incarnation: 11 };
    world.write(1, to, 300_000);
    world.ends[0] = End::new(1, 11, 1, 1, 1);
    world.write(0, Peer::of(node(2)), 1000);
    world.until_completed(0, 1);
    world.write_and_check(300_000);
}

#[test]
fn paths_are_bounded() {
    let config = |paths, flows| Config {
        paths,
        flows,
        ..Config::new(identity(1), NonZeroU32::MIN, [1; 32])
    };
    for (paths, flows) in [(0, 1), (1, 0), (17, 1), (4, 5), (u16::MAX, u16::MAX)] {
        let refused = Endpoint::new(config(paths, flows)).err();
        let sockets = usize::from(paths.saturating_mul(flows));
        assert_eq!(
            refused,
            Some(NicError::OutOfRange {
                what: "paths times flows",
                found: sockets,
                least: 1,
                most: MAX_PATHS
            })
        );
    }
    assert!(Endpoint::new(config(4, 4)).is_ok());
}

#[test]
fn congestion_marks_count_and_slow_senders() {
    let marked = |marking: u32| {
        let mut world = world(Faults { marking, ..QUICK }, 2, 1);
        for _ in 0..4 {
            world.write_and_check(400_000);
        }
        let took = world.write_and_check(400_000);
        (took, world.ends[1].endpoint.stats().congested)
    };
    let (free, few, all) = (marked(0), marked(20_000), marked(1_000_000));
    assert_eq!(free.1, 0);
    assert!(few.1 > 0 && all.1 >= 5 * 400_000 / 1292, "{few:?} {all:?}");
    assert!(all.0 > 4 * free.0, "{free:?} {all:?}");
}
