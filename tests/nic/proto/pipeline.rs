//! Several pipelines at either end, driven on one thread: messages are spread over all channels,
//! what one channel loses another sends again, and everything is committed once.

use std::num::NonZeroU32;
use std::time::Duration;

use ciphergram_nic::Bytes;
use ciphergram_nic::NicError;
use ciphergram_nic::faults::Faults;
use ciphergram_nic::proto::{Cause, Config, Endpoint, EndpointEvent, MAX_PIPELINES, Peer};

use crate::support::multipath::{End, MEMORY, QUICK, World, identity, node};

fn world(faults: Faults, [one, two]: [u16; 2]) -> World {
    World::new([End::new(1, 11, 1, 1, one), End::new(2, 22, 1, 1, two)], faults)
}

fn peer(end: u8) -> Peer {
    Peer { node: node(end), incarnation: 11 * u32::from(end) }
}

const ROUGH: Faults = Faults {
    loss: 50_000,
    duplication: 100_000,
    corruption: 20_000,
    trimming: 50_000,
    marking: 40_000,
    junk: 20_000,
    lateness: 2_000,
    delay: Duration::from_micros(50),
    jitter: Duration::from_millis(1),
};

#[test]
fn messages_are_spread_over_all_channels() {
    for pipelines in [[1, 1], [1, 3], [3, 1], [2, 3], [4, 4]] {
        let mut world = world(QUICK, pipelines);
        world.write_and_check(800_000);
        let [one, two] = pipelines;
        assert_eq!(world.ends[0].counts().len(), usize::from(one), "{pipelines:?}");
        assert_eq!(world.ends[1].came.len(), usize::from(two), "{pipelines:?}");
        let (least, most) = (world.ends[0].counts(), world.ends[0].counts());
        let [least, most] = [least.values().min().unwrap(), most.values().max().unwrap()];
        // Channels are dealt to pipelines as evenly as they can be: three to two are not.
        assert!(3 * least > *most, "{pipelines:?}: {:?}", world.ends[0].counts());
        world.ends[0].came.clear();
        world.write(1, peer(1), 800_000);
        world.until_completed(1, 1);
        assert_eq!(world.ends[1].counts().len(), usize::from(two), "{pipelines:?}");
        assert_eq!(world.ends[0].came.len(), usize::from(one), "{pipelines:?}");
    }
}

#[test]
fn rough_channels_lose_nothing_immediates_count_once() {
    for pipelines in [[2, 2], [1, 4], [3, 2]] {
        let mut world = world(ROUGH, pipelines);
        for _ in 0..20 {
            world.write_and_check(200_000);
        }
        assert_eq!(world.ends[1].endpoint.immediates(MEMORY), Ok(20), "{pipelines:?}");
        // Many messages at once, each of one datagram.
        let now = world.network.now();
        let data: Bytes = vec![7; 100].into();
        for _ in 0..500 {
            let to = Peer::of(node(2));
            let sent = world.ends[0].endpoint.write(now, to, MEMORY, 0, data.clone(), Some(1));
            sent.unwrap();
        }
        let (_, events) = world.until_completed(0, 500);
        world.idle(Duration::from_secs(1));
        let rest = std::iter::from_fn(|| world.ends[1].endpoint.poll_event()).count();
        assert_eq!(events.len() + rest, 500, "{pipelines:?}");
        assert_eq!(world.ends[1].endpoint.immediates(MEMORY), Ok(520), "{pipelines:?}");
    }
}

#[test]
fn dead_channels_hand_over_and_come_back() {
    for via in [0, 1] {
        let mut world = world(QUICK, [2, 2]);
        world.write_and_check(800_000);
        world.ends[0].dead.insert(via);
        // Far less than the span after which a peer is given up.
        let took = world.write_and_check(800_000);
        assert!(took < Duration::from_millis(100), "{took:?}");
        for _ in 0..10 {
            let took = world.write_and_check(200_000);
            assert!(took < Duration::from_millis(60), "{took:?}");
        }
        let tried = world.ends[0].counts().get(&via).copied().unwrap_or(0);
        assert!(tried < 10, "it rests, and is tried now and then: {:?}", world.ends[0].counts());
        assert!(world.ends[0].endpoint.stats().paths_rested >= 1);
        world.ends[0].dead.clear();
        world.until_used_again(via);
    }
}

#[test]
fn lagging_channels_rest_until_they_recover() {
    let mut world = world(QUICK, [2, 2]);
    world.write_and_check(800_000);
    world.ends[0].slow.insert(1, Duration::from_millis(60));
    for _ in 0..6 {
        world.write_and_check(400_000);
    }
    let took = world.write_and_check(400_000);
    assert!(took < Duration::from_millis(60), "{took:?}");
    world.ends[0].slow.clear();
    world.until_used_again(1);
}

#[test]
fn unreachable_pipelines_are_done_without() {
    for via in [1, 2] {
        let mut world = world(QUICK, [3, 3]);
        world.ends[1].dead.insert(via);
        world.write_and_check(800_000);
        let took = world.write_and_check(800_000);
        assert!(took < Duration::from_millis(50), "{took:?}");
    }
}

#[test]
fn all_channels_silent_is_a_silent_peer() {
    let mut world = world(QUICK, [3, 2]);
    world.write_and_check(100_000);
    world.ends[0].dead.extend([0, 1, 2]);
    world.write(0, Peer::of(node(2)), 400_000);
    world.idle(Duration::from_secs(15));
    let events: Vec<_> = std::iter::from_fn(|| world.ends[0].endpoint.poll_event()).collect();
    let silent = EndpointEvent::Unreachable { peer: peer(2), cause: Cause::Silence };
    assert_eq!(events, [silent]);
    world.ends[0].dead.clear();
    world.write_and_check(400_000);
}

#[test]
fn peers_with_other_pipelines_are_new_peers() {
    let mut world = world(QUICK, [2, 3]);
    world.write_and_check(100_000);
    for pipelines in [1, 4, 2] {
        world.write(0, Peer::of(node(2)), 400_000);
        world.ends[1] = End::new(2, 100 + u32::from(pipelines), 1, 1, pipelines);
        world.idle(Duration::from_secs(3));
        let events: Vec<_> = std::iter::from_fn(|| world.ends[0].endpoint.poll_event()).collect();
        assert!(
            matches!(events[..], [EndpointEvent::Unreachable { cause: Cause::Restarted, .. }]),
            "{events:?}"
        );
        world.write_and_check(400_000);
    }
    // And so is one that contacts us.
    let restarted = End::new(1, 99, 1, 1, 4);
    world.ends[0] = restarted;
    world.write_and_check(400_000);
}

#[test]
fn peers_given_up_are_written_to_again() {
    let mut world = world(QUICK, [1, 1]);
    world.write_and_check(1000);
    world.ends[0].dead.insert(0);
    // More than a window, to a peer that made contact: no handshake reaches it.
    world.write(1, peer(1), 900_000);
    world.idle(Duration::from_secs(15));
    let events: Vec<_> = std::iter::from_fn(|| world.ends[1].endpoint.poll_event()).collect();
    let silent = EndpointEvent::Unreachable { peer: peer(1), cause: Cause::Silence };
    assert_eq!(events.last(), Some(&silent));
    world.ends[0].dead.clear();
    world.write(1, peer(1), 900_000);
    world.until_completed(1, 1);
}

#[test]
fn lagging_channels_replace_dead_quick_ones() {
    let mut world = world(QUICK, [2, 2]);
    world.write_and_check(800_000);
    world.ends[0].slow.insert(1, Duration::from_millis(20));
    for _ in 0..6 {
        world.write_and_check(400_000);
    }
    assert!(world.ends[0].endpoint.stats().paths_rested >= 1);
    world.ends[0].dead.insert(0);
    world.write_and_check(400_000);
    let took = (0..4).map(|_| world.write_and_check(400_000)).max().unwrap();
    assert!(took < Duration::from_secs(4), "{took:?}");
}

#[test]
fn datagrams_of_ended_pipelines_go_by_another() {
    for end in [0, 1] {
        let mut world = world(QUICK, [3, 3]);
        world.write_and_check(800_000);
        world.write(0, Peer::of(node(2)), 800_000);
        world.idle(Duration::from_micros(60));
        drop(world.ends[end].endpoint.detach(vec![]));
        let (took, _) = world.until_completed(0, 1);
        assert!(took < Duration::from_millis(200), "{end}: {took:?}");
        for _ in 0..20 {
            world.write_and_check(100_000);
        }
        let took = world.write_and_check(400_000);
        assert!(took < Duration::from_millis(20), "{end}: {took:?}");
    }
}

#[test]
fn pipelines_and_their_ports_are_bounded() {
    let config = |pipelines: u16, ports: u16, contacted: bool| {
        let one = Config::new(identity(1), NonZeroU32::MIN, [1; 32]);
        let allow = if contacted { [node(2)].into() } else { [].into() };
        Endpoint::new(Config { pipelines, ports: (1..=ports).collect(), allow, ..one }).err()
    };
    for pipelines in [0, MAX_PIPELINES + 1] {
        let (found, most) = (pipelines.into(), MAX_PIPELINES.into());
        let refused = NicError::OutOfRange { what: "pipelines", found, least: 1, most };
        assert_eq!(config(pipelines, 0, false), Some(refused));
    }
    let what = "ports of further pipelines";
    let refused = NicError::OutOfRange { what, found: 1, least: 2, most: 2 };
    assert_eq!(config(3, 1, true), Some(refused));
    assert_eq!((config(3, 2, true), config(3, 0, false)), (None, None));
}
