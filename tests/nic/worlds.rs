//! Hundreds of seeded worlds. A world that fails prints its seed; `CIPHERGRAM_SEED=17` replays one
//! seed in every scenario, `CIPHERGRAM_CASES=50` runs fifty times as many.

mod he;
mod openers;

use std::time::Duration;

use ciphergram_nic::faults::Faults;
use ciphergram_nic::proto::Stranger;
use ciphergram_nic::round::{AggregatorEvent, RoundClientEvent};
use ciphergram_tests::seeds;

use crate::support::world::{self, CHUNKS, MISFIT, World, node, values};

/// Longer than any round's deadlines, give-ups and lingering together.
const FOREVER: Duration = Duration::from_secs(120);

/// Returns a world with its clients started; a panic inside names the seed.
fn started(seed: u64, clients: u16, min_clients: u16) -> World {
    let mut world = World::new(seed, clients, min_clients);
    (0..clients).for_each(|number| world.start_client(number, number as u8));
    world
}

fn all_ended(world: &World) -> bool {
    world.clients.iter().all(|client| client.node.is_none() || !client.ends.is_empty())
}

fn finished(world: &World) -> bool {
    world.aggregator.as_ref().is_some_and(|aggregator| aggregator.is_finished())
}

#[test]
fn sums_are_exact_everyone_is_added_once() {
    for seed in seeds(400) {
        let mut world = started(seed, 2 + (seed % 5) as u16, 2);
        assert!(world.run(FOREVER, all_ended), "seed {seed}: a round must end");
        world.check_complete();
        assert!(world.run(FOREVER, finished), "seed {seed}: the aggregator must finish");
        let stats = world.aggregator.as_ref().unwrap().stats();
        let bytes = stats.sent.payload_bytes + 80 * stats.sent.datagrams;
        assert_eq!(stats.sent.wire_bytes(), bytes, "seed {seed}");
    }
}

#[test]
fn the_faults_of_the_worlds_do_happen() {
    let mut counts = [0; 7];
    for seed in seeds(20) {
        let mut world = started(seed, 3, 2);
        assert!(world.run(FOREVER, all_ended));
        let tally = world.network.tally().injected;
        let stats = world.aggregator.as_ref().unwrap().stats();
        let seen = [
            tally.lost,
            tally.duplicated,
            tally.corrupted,
            tally.trimmed,
            tally.junk,
            stats.duplicates,
            stats.trimmed,
        ];
        counts.iter_mut().zip(seen).for_each(|(count, more)| *count += more);
    }
    assert!(counts.iter().all(|count| *count > 20), "{counts:?}");
}

#[test]
fn dead_clients_cost_only_their_chunks() {
    let mut partial = 0;
    for seed in seeds(200) {
        let mut world = started(seed, 4, 2);
        let die_at = 1 + (seed % 20) as u32;
        let begun = |world: &World| world.clients[0].pushed() >= die_at;
        assert!(world.run(FOREVER, begun), "seed {seed}");
        world.clients[0].node = None;
        assert!(world.run(FOREVER, all_ended), "seed {seed}: the deadline must end the round");
        let end = world.client(1).ends[0].clone();
        assert_eq!((end.withheld, end.closed), (0, CHUNKS), "seed {seed}");
        let others = end.contributed.iter().filter(|(number, _)| *number != 0);
        assert!(others.map(|(_, chunks)| *chunks).all(|chunks| chunks == CHUNKS), "seed {seed}");
        partial += u32::from((1..CHUNKS).contains(&end.contributed[0].1));
        assert!(world.run(FOREVER, finished), "seed {seed}");
    }
    assert!(partial > 5, "some must have died between chunks");
}

#[test]
fn dead_clients_leave_no_chunk_when_whole() {
    let mut dropped = 0;
    for seed in seeds(100) {
        let mut world = World::new(seed, 4, 2);
        world.settings.whole = true;
        world.start_aggregator();
        (0..4).for_each(|number| world.start_client(number, number as u8));
        let die_at = 1 + (seed % 20) as u32;
        let counted = |world: &World| {
            world.clients[0].pushed() >= die_at && world.clients[0].knows_to_count()
        };
        assert!(world.run(FOREVER, counted), "seed {seed}");
        world.clients[0].node = None;
        assert!(world.run(FOREVER, all_ended), "seed {seed}: the deadline must end the round");
        let end = world.client(1).ends[0].clone();
        assert_eq!((end.withheld, end.closed), (0, CHUNKS), "seed {seed}");
        let [(0, chunks), others @ ..] = &end.contributed[..] else { panic!("{end:?}") };
        assert!([0, CHUNKS].contains(chunks), "seed {seed}: {end:?}");
        assert!(others.iter().all(|(_, chunks)| *chunks == CHUNKS), "seed {seed}: {end:?}");
        dropped += u32::from(*chunks == 0);
        assert!(world.run(FOREVER, finished), "seed {seed}");
    }
    assert!(dropped > 5, "some must have died between chunks");
}

#[test]
fn a_sum_of_too_few_never_leaves() {
    for seed in seeds(100) {
        let mut world = started(seed, 3, 3);
        let begun = |world: &World| world.clients[0].pushed() >= 4;
        assert!(world.run(FOREVER, begun), "seed {seed}");
        world.clients[0].node = None;
        assert!(world.run(FOREVER, all_ended), "seed {seed}");
        let end = &world.client(2).ends[0];
        assert!(end.withheld > 0 && end.reason.contains("2 of at least 3"), "seed {seed}: {end:?}");
    }
}

#[test]
fn a_client_restarted_with_its_spool_continues() {
    for seed in seeds(200) {
        let mut world = started(seed, 3, 3);
        let die_at = 1 + (seed % 22) as u32;
        let begun = |world: &World| world.clients[0].pushed() >= die_at;
        assert!(world.run(FOREVER, begun), "seed {seed}");
        let addr = world.clients[0].addr;
        world.clients[0].node = None;
        world.run(Duration::from_millis(seed * 13 % 900), |_| false);
        world.start_client(0, 0);
        if seed % 2 == 1 {
            // The same port, another process.
            world.client(0).addr = addr;
        }
        assert!(world.run(FOREVER, all_ended), "seed {seed}: {:?}", world.client(0).refused);
        world.check_complete();
        let resumed = AggregatorEvent::Resumed { round: 0, contributor: 0 };
        assert!(world.events.contains(&resumed), "seed {seed}");
    }
}

#[test]
fn clients_restarted_without_spool_are_refused() {
    for seed in seeds(100) {
        let mut world = started(seed, 3, 2);
        let begun = |world: &World| world.clients[0].pushed() >= 5;
        assert!(world.run(FOREVER, begun), "seed {seed}");
        world.start_client(0, 99);
        let refused = |world: &World| world.clients.iter().any(|c| !c.refused.is_empty());
        assert!(world.run(FOREVER, refused), "seed {seed}");
        assert_eq!(
            world.client(0).refused,
            ["contributor 0 already joined round 0 with another contribution; without its spool \
              it is refused for this round"],
            "seed {seed}"
        );
        world.client(0).node = None;
        assert!(world.run(FOREVER, all_ended), "seed {seed}");
    }
}

#[test]
fn of_two_contributions_the_first_counts() {
    for seed in seeds(100) {
        let mut world = started(seed, 3, 2);
        let counted = |world: &World| {
            let client = &world.clients[0];
            client.pushed() >= 12 && client.is_counted()
        };
        let done = |world: &World| counted(world) || all_ended(world);
        assert!(world.run(FOREVER, done), "seed {seed}");
        let first = world.client(0).issue;
        let before = world.aggregator.as_ref().unwrap().stats().duplicates;
        let chunks = world.client(0).pushed();
        world.start_client(0, 0);
        world.client(0).equivocate();
        assert!(world.run(FOREVER, all_ended), "seed {seed}");
        assert!(world.client(0).rejected.is_empty(), "seed {seed}: a repetition is acknowledged");
        let again = world.aggregator.as_ref().unwrap().stats().duplicates;
        assert!(again > before, "seed {seed}: the second came");
        for chunk in 0..chunks {
            let Some((contributors, sum)) = world.client(1).sums.get(&chunk).cloned() else {
                panic!("seed {seed}: no sum of chunk {chunk}")
            };
            let mut expected = vec![0u64; sum.len()];
            for number in contributors {
                let issue = if number == 0 { first } else { world.client(number).issue };
                let own = values(number, chunk, issue);
                expected.iter_mut().zip(own).for_each(|(sum, own)| *sum = sum.wrapping_add(own));
            }
            assert_eq!(sum, expected, "seed {seed}: chunk {chunk}");
        }
    }
}

#[test]
fn aggregators_wait_for_nobody_who_left() {
    for seed in seeds(100) {
        let mut world = started(seed, 3, 2);
        assert!(world.run(FOREVER, all_ended), "seed {seed}");
        for client in &mut world.clients {
            let now = world.network.time_at(client.addr);
            client.node.as_mut().unwrap().bye(now).unwrap();
        }
        let left = |world: &World| {
            let nodes = world.clients.iter().filter_map(|client| client.node.as_ref());
            nodes.filter(|node| node.is_leaving()).count() == 0
        };
        assert!(world.run(FOREVER, left), "seed {seed}: they wait for an answer");
        // Whatever they acknowledged may be lost.
        world.clients.iter_mut().for_each(|client| client.node = None);
        assert!(world.run(Duration::from_millis(1), finished), "seed {seed}");
        assert!(world.aggregator.as_ref().unwrap().is_left(), "seed {seed}");
        let is_lost = |event: &AggregatorEvent| matches!(event, AggregatorEvent::Lost { .. });
        assert!(!world.events.iter().any(is_lost), "seed {seed}: nobody is missed");
    }
}

#[test]
fn waiting_clients_that_leave_join_no_round() {
    for seed in seeds(50) {
        let mut world = World::new(seed, 3, 2);
        world.start_client(2, 2);
        let waits =
            |world: &World| world.clients[0].node.as_ref().is_some_and(|node| node.is_waiting());
        assert!(world.run(FOREVER, waits), "seed {seed}");
        let now = world.network.time_at(world.clients[0].addr);
        world.client(2).node.as_mut().unwrap().bye(now).unwrap();
        let left =
            |world: &World| world.clients[0].node.as_ref().is_some_and(|node| !node.is_leaving());
        assert!(world.run(FOREVER, left), "seed {seed}");
        world.client(2).node = None;
        (0..2).for_each(|number| world.start_client(number, number as u8));
        assert!(world.run(FOREVER, all_ended), "seed {seed}");
        let opened = |event: &AggregatorEvent| matches!(event, AggregatorEvent::Opened { contributors, .. } if contributors == &[0, 1]);
        assert!(world.events.iter().any(opened), "seed {seed}");
    }
}

#[test]
fn an_aggregator_restarted_sums_everything_anew() {
    for seed in seeds(200) {
        let mut world = started(seed, 3, 3);
        let die_at = 1 + (seed % 22) as u32;
        let begun = |world: &World| world.clients[1].pushed() >= die_at;
        assert!(world.run(FOREVER, begun), "seed {seed}");
        let before = world.client(1).opening.clone().unwrap();
        world.aggregator = None;
        world.run(Duration::from_millis(seed * 17 % 3000), |_| false);
        world.start_aggregator();
        assert!(world.run(FOREVER, all_ended), "seed {seed}");
        world.check_complete();
        let after = world.client(1).opening.clone().unwrap();
        assert_ne!(before.incarnation, after.incarnation, "seed {seed}: the old round is void");
    }
}

#[test]
fn aggregators_gone_long_are_found_again() {
    let mut world = started(1, 2, 2);
    let begun = |world: &World| world.clients[1].pushed() >= 3;
    assert!(world.run(FOREVER, begun));
    world.aggregator = None;
    world.run(Duration::from_secs(25), |_| false);
    assert!(world.clients.iter().all(|client| client.unreachable >= 1));
    world.start_aggregator();
    assert!(world.run(FOREVER, all_ended));
    world.check_complete();
}

#[test]
fn suspended_clients_get_sums_when_they_wake() {
    for seed in seeds(20) {
        let mut world = started(seed, 2, 2);
        world.network.set_faults(Faults { delay: Duration::from_micros(50), ..Faults::default() });
        assert!(world.run(FOREVER, |world| world.clients[1].opening.is_some()), "seed {seed}");
        // Client 0 has nothing left to send when it is suspended, and nothing to miss when it
        // wakes.
        let other = world.clients[1].node.take();
        world.run(Duration::from_millis(2500), |_| false);
        let suspended = world.clients[0].node.take();
        world.clients[1].node = other;
        // Also for so long that both ends forget their session.
        world.run(Duration::from_secs(if seed % 2 == 0 { 14 } else { 90 }), |_| false);
        assert!(world.clients[1].ends.len() == 1 && world.clients[0].ends.is_empty());
        let lost = AggregatorEvent::Lost { round: 0, contributor: 0 };
        assert!(world.events.contains(&lost), "seed {seed}");
        world.clients[0].node = suspended;
        assert!(world.run(FOREVER, all_ended), "seed {seed}: it must not wait for ever");
        assert_eq!(world.clients[0].unreachable, 0, "seed {seed}: it was not found by silence");
        world.check_complete();
    }
}

#[test]
fn clients_that_wait_for_nothing_are_refused() {
    let mut world = World::new(4, 2, 2);
    world.network.set_faults(Faults { delay: Duration::from_micros(50), ..Faults::default() });
    world.start_client(0, 1);
    let joined = |event: &AggregatorEvent| matches!(event, AggregatorEvent::Joined { .. });
    assert!(world.run(FOREVER, |world| world.events.iter().any(joined)));
    world.run(Duration::from_millis(1500), |_| false);
    // Another process takes its place, with the same contribution, while it is suspended.
    let mut former = world.clients.remove(0);
    let suspended = former.node.take();
    world.start_client(0, 1);
    world.run(Duration::from_secs(2), |_| false);
    former.node = suspended;
    former.number = 9;
    world.clients.push(former);
    assert!(world.run(FOREVER, |world| !world.clients[1].refused.is_empty()));
    assert_eq!(world.clients[1].refused, ["the contribution of contributor 0 is in no round held"]);
}

#[test]
fn void_events_are_dropped() {
    let mut world = World::new(6, 1, 1);
    world.network.set_faults(Faults { delay: Duration::from_micros(50), ..Faults::default() });
    world.start_client(0, 0);
    let (addr, mut node) = (world.clients[0].addr, world.clients[0].node.take().unwrap());
    // The owner takes no events while one aggregator opens a round and another does.
    for life in 0..2 {
        if life == 1 {
            world.start_aggregator();
        }
        let until = world.network.now() + Duration::from_secs(3);
        let mut step = || {
            let aggregator = world.aggregator.as_mut().unwrap();
            let mut nodes: [(_, &mut dyn ciphergram_nic::Node); 2] =
                [(world::SERVER.into(), aggregator), (addr, &mut node)];
            world.network.step(&mut nodes, until)
        };
        while step() {}
    }
    let events: Vec<_> = std::iter::from_fn(|| node.poll_event()).collect();
    let latest = world.settings.endpoint.incarnation.get();
    let [RoundClientEvent::Opened(opening)] = &events[..] else { panic!("{events:?}") };
    assert_eq!(opening.incarnation, latest);
}

#[test]
fn rounds_follow_one_another() {
    for seed in seeds(100) {
        let mut world = World::new(seed, 3, 2);
        world.settings.rounds = 3;
        world.start_aggregator();
        (0..3).for_each(|number| world.start_client(number, number as u8));
        for round in 0..3usize {
            let ended = |world: &World| world.clients.iter().all(|c| c.ends.len() > round);
            assert!(world.run(FOREVER, ended), "seed {seed}: round {round}");
            world.check_complete();
            let now = world.network.now();
            for client in world.clients.iter_mut().filter(|_| round < 2) {
                client.join(now, client.issue.contribution + 10, None);
            }
        }
        let numbers = world.client(0).ends.iter().map(|end| end.round).collect::<Vec<_>>();
        assert_eq!(numbers, [0, 1, 2], "seed {seed}");
        assert!(world.run(FOREVER, finished), "seed {seed}");
    }
}

#[test]
fn rounds_open_without_clients_never_seen() {
    let mut world = World::new(5, 3, 2);
    (0..2).for_each(|number| world.start_client(number, number as u8));
    assert!(!world.run(Duration::from_secs(15), |world| world.clients[0].opening.is_some()));
    assert!(world.run(FOREVER, all_ended));
    assert_eq!(world.client(0).opening.as_ref().unwrap().contributors, [0, 1]);
    world.start_client(2, 2);
    assert!(world.run(FOREVER, |world| !world.clients[2].refused.is_empty()));
    assert_eq!(world.client(2).refused, ["the last round opened without contributor 2"]);
}

#[test]
fn a_round_opens_without_a_misfit() {
    for seed in seeds(50) {
        let mut world = World::new(seed, 3, 2);
        world.misfits = [1].into();
        world.start_aggregator();
        (0..3).for_each(|number| world.start_client(number, number as u8));
        assert!(world.run(FOREVER, |world| all_ended_but(world, 1)), "seed {seed}");
        assert_eq!(world.client(0).ends[0].contributed, [(0, CHUNKS), (2, CHUNKS)], "seed {seed}");
        assert!(world.run(FOREVER, |world| !world.clients[1].refused.is_empty()), "seed {seed}");
        assert_eq!(world.client(1).refused, [MISFIT], "seed {seed}");
    }
}

fn all_ended_but(world: &World, number: u16) -> bool {
    world.clients.iter().all(|client| client.number == number || !client.ends.is_empty())
}

#[test]
fn too_few_besides_misfits_go_on_waiting() {
    for seed in seeds(50) {
        let mut world = World::new(seed, 3, 3);
        world.misfits = [1].into();
        world.start_aggregator();
        (0..3).for_each(|number| world.start_client(number, number as u8));
        assert!(world.run(FOREVER, |world| !world.clients[1].refused.is_empty()), "seed {seed}");
        assert_eq!(world.client(1).refused, [MISFIT], "seed {seed}");
        for event in &world.events {
            let expected = match event {
                AggregatorEvent::Joined { .. } => true,
                AggregatorEvent::Refused { contributor: 1, reason } => reason == MISFIT,
                // A first message that was damaged on the way is as if for another key.
                AggregatorEvent::Stranger { stranger: Stranger::WrongKey, .. } => true,
                _ => false,
            };
            assert!(expected, "seed {seed}: {event:?}");
        }
        world.run(Duration::from_secs(2), |_| false);
        let events = world.events.len();
        // Past the deadline for joining.
        world.run(Duration::from_secs(30), |_| false);
        let [AggregatorEvent::TooFew(shortage)] = &world.events[events..] else {
            panic!("seed {seed}: they wait, and that is said: {:?}", &world.events[events..])
        };
        assert!(shortage.waits_on && shortage.joined == [0, 2], "seed {seed}");
        assert_eq!(shortage.refused, [(1, MISFIT.to_string())], "seed {seed}");
        let now = world.network.now();
        world.client(1).join(now, 99, None);
        assert!(world.run(FOREVER, all_ended), "seed {seed}");
        world.check_complete();
        let opened = world.client(0).opening.as_ref().unwrap().round;
        assert_eq!(opened, 0, "seed {seed}: what did not open has no number");
    }
}

#[test]
fn clients_refused_get_the_reason() {
    let mut world = World::new(2, 2, 2);
    world.start_client(7, 7);
    world.start_client(0, 0);
    let now = world.network.now();
    let node = world.client(0).node.as_mut().unwrap();
    node.join(now, [1; 16], b"good day".to_vec(), None).unwrap();
    let refused = |world: &World| world.clients.iter().all(|client| !client.refused.is_empty());
    assert!(world.run(FOREVER, refused));
    let range = "contributor 7 is out of range: 2 clients are declared, numbered from 0";
    assert_eq!(world.client(7).refused, [range]);
    assert_eq!(world.client(0).refused, ["say hello"]);
}

#[test]
fn nodes_join_as_allowed_strangers_are_declined() {
    let mut world = World::new(4, 3, 2);
    world.network.set_faults(Faults::default());
    // Node 1 claims another number; node 150 is nobody's.
    world.start_node(node(1), 0, 1, None);
    world.start_node(node(150), 2, 2, None);
    let refused =
        |world: &World| !world.clients[0].refused.is_empty() && world.clients[1].unlisted > 0;
    assert!(world.run(Duration::from_secs(1), refused));
    let own = node(1).id();
    let words = format!("node {own} is allowed as contributor 1, not as contributor 0");
    assert_eq!(world.client(0).refused, [words]);
    let unlisted = Stranger::Unlisted(node(150).id());
    let named = |event: &AggregatorEvent| matches!(event, AggregatorEvent::Stranger { stranger, .. } if *stranger == unlisted);
    // It insists: no more than a few answers a second, and one report.
    world.run(Duration::from_secs(20), |_| false);
    assert_eq!(world.events.iter().filter(|event| named(event)).count(), 1);
    assert!(world.client(2).refused.is_empty());
    let stats = world.aggregator.as_ref().unwrap().stats();
    assert!(stats.turned_away >= 10, "{stats:?}");
    let stats = world.client(2).node.as_ref().unwrap().stats();
    assert_eq!((stats.received.datagrams, stats.malformed), (0, 0), "{stats:?}");
}

#[test]
fn waiting_places_can_be_taken_over() {
    let mut world = World::new(2, 2, 2);
    world.network.set_faults(Faults::default());
    world.start_client(0, 1);
    let joined = |event: &AggregatorEvent| matches!(event, AggregatorEvent::Joined { .. });
    assert!(world.run(FOREVER, |world| world.events.iter().any(joined)));
    let mut former = world.clients.remove(0);
    former.number = 9;
    world.clients.push(former);
    world.start_client(0, 2);
    let refused = |world: &World| !world.clients[0].refused.is_empty();
    assert!(world.run(FOREVER, refused));
    assert!(world.clients[0].refused[0].contains("took the place of contributor 0"));
    // A client that starts again is no client that was refused.
    let refused = |event: &AggregatorEvent| matches!(event, AggregatorEvent::Refused { .. });
    assert!(!world.events.iter().any(refused));
    world.clients.remove(0);
    world.start_client(1, 3);
    assert!(world.run(FOREVER, all_ended));
    world.check_complete();
}

#[test]
fn closed_rounds_repeat_sums_until_next() {
    let mut world = World::new(3, 2, 2);
    world.settings.rounds = 2;
    world.start_aggregator();
    (0..2).for_each(|number| world.start_client(number, number as u8));
    assert!(world.run(FOREVER, all_ended));
    let opening = world.client(0).opening.clone().unwrap();
    // Client 0 is killed before it has written the mean, and comes back long after that was given up.
    world.client(0).node = None;
    world.run(FOREVER, |_| false);
    world.start_client(0, 0);
    assert!(world.run(FOREVER, all_ended), "the sums of the closed round, again");
    world.check_complete();
    for number in 0..2 {
        let now = world.network.now();
        let client = world.client(number);
        client.ends.clear();
        client.join(now, 50 + number as u8, None);
    }
    assert!(world.run(FOREVER, all_ended), "round 1");
    let now = world.network.now();
    let (incarnation, round) = (opening.incarnation, opening.round);
    let resume = Some(ciphergram_nic::round::Resume { incarnation, round });
    world.client(0).join(now, 0, resume);
    assert!(world.run(FOREVER, |world| world.clients.iter().any(|c| !c.refused.is_empty())));
    assert_eq!(world.client(0).refused, ["round 0 is over and its sums are no longer here"]);
}
