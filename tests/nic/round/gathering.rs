//! Rounds that too few clients join or that are far away, and nodes that may no longer take part, on virtual time.

use std::time::Duration;

use ciphergram_nic::faults::Faults;
use ciphergram_nic::proto::NodeId;
use ciphergram_nic::round::{AggregatorEvent, Shortage};

use crate::support::world::{self, CHUNKS, MISFIT, World, node};

/// Longer than any round's deadlines, give-ups and lingering together.
const FOREVER: Duration = Duration::from_secs(120);
/// A little longer than the join deadline of worlds, and than a refusal is on its way.
const JOINING: Duration = Duration::from_secs(32);

/// Returns worlds of three clients, all of which a round needs, without anybody in them yet.
fn worlds(rounds: u32, wait_for_clients: bool) -> impl Iterator<Item = World> {
    (0..30).map(move |seed| {
        let mut world = World::new(seed, 3, 3);
        world.settings.rounds = rounds;
        world.settings.wait_for_clients = wait_for_clients;
        world.start_aggregator();
        world
    })
}

fn shortages(world: &World) -> Vec<&Shortage> {
    let events = world.events.iter();
    let shortages = events.filter_map(|event| match event {
        AggregatorEvent::TooFew(shortage) => Some(shortage),
        _ => None,
    });
    shortages.collect()
}

fn finished(world: &World) -> bool {
    world.aggregator.as_ref().unwrap().is_finished()
}

fn all_done(world: &World) -> bool {
    world.clients.iter().all(|client| client.done)
}

fn join(world: &mut World, number: u16, contribution: u8) {
    let now = world.network.now();
    world.client(number).join(now, contribution, None);
}

#[test]
fn too_few_clients_end_both_sides() {
    for mut world in worlds(2, false) {
        let seed = world.seed;
        [0, 2].into_iter().for_each(|number| world.start_client(number, number as u8));
        assert!(!world.run(Duration::from_secs(19), |world| !shortages(world).is_empty()));
        assert!(world.run(JOINING, |world| finished(world) && all_done(world)), "seed {seed}");
        let expected = "2 clients joined within 20 s, and a round needs 3; client 1 is missing";
        assert_eq!(shortages(&world).len(), 1, "seed {seed}");
        assert_eq!(shortages(&world)[0].to_string(), expected);
        assert!(!shortages(&world)[0].waits_on);
        for client in &world.clients {
            assert_eq!(client.refused, [expected], "seed {seed}");
        }
        world.start_client(1, 1);
        assert!(world.run(FOREVER, all_done), "seed {seed}: whoever comes later is refused");
        let late = "too few clients joined, and no further round opens";
        assert_eq!(world.client(1).refused, [late]);
    }
}

#[test]
fn aggregators_wait_for_no_dead_clients() {
    for mut world in worlds(1, false) {
        world.start_client(0, 0);
        let joined = |world: &World| world.aggregator.as_ref().unwrap().waiting() == 1;
        assert!(world.run(JOINING, joined));
        world.client(0).node = None;
        assert!(world.run(FOREVER, finished), "seed {}", world.seed);
    }
}

#[test]
fn unbounded_rounds_go_on_after_too_few() {
    for mut world in worlds(0, false) {
        let seed = world.seed;
        [0, 2].into_iter().for_each(|number| world.start_client(number, number as u8));
        assert!(world.run(FOREVER, all_done), "seed {seed}");
        assert_eq!(world.client(0).refused.len(), 1, "seed {seed}");
        for round in 0..3 {
            (0..3).for_each(|number| world.start_client(number, 10 + 3 * round + number as u8));
            let ended = |world: &World| world.clients.iter().all(|client| !client.ends.is_empty());
            assert!(world.run(FOREVER, ended), "seed {seed}: round {round}");
            world.check_complete();
        }
        assert!(!world.run(FOREVER, finished), "seed {seed}: there is no end of rounds");
        assert_eq!(shortages(&world).len(), 1, "seed {seed}: nobody waits");
    }
}

#[test]
fn deliveries_go_on_while_somebody_acknowledges() {
    let (linger, mut outlasted) = (Duration::from_millis(500), 0);
    for mut world in worlds(1, false) {
        world.settings.linger = linger;
        world.start_aggregator();
        (0..3).for_each(|number| world.start_client(number, number as u8));
        let closed = |event: &AggregatorEvent| matches!(event, AggregatorEvent::Closed(_));
        assert!(world.run(FOREVER, |world| world.events.iter().any(closed)));
        let since = world.network.now();
        world.network.set_faults(Faults { loss: 700_000, ..Faults::default() });
        assert!(world.run(FOREVER, finished), "seed {}", world.seed);
        let lost = |event: &AggregatorEvent| matches!(event, AggregatorEvent::Lost { .. });
        if !world.events.iter().any(lost) {
            world.check_complete();
            outlasted += u32::from(world.network.now().since(since) > linger);
        }
    }
    assert!(outlasted > 0, "nothing took long");
}

#[test]
fn clients_that_are_far_away_take_part() {
    for (seed, one_way_ms) in [150, 200, 250, 300, 350, 400, 480].into_iter().enumerate() {
        let mut world = World::new(seed as u64, 3, 3);
        let delay = Duration::from_millis(one_way_ms);
        world.network.set_faults(Faults { delay, ..Faults::default() });
        (0..3).for_each(|number| world.start_client(number, number as u8));
        let span = Duration::from_secs(15);
        assert!(world.run(span, all_done), "{one_way_ms} ms each way");
        world.check_complete();
    }
}

#[test]
fn clients_waited_for_make_the_round() {
    for mut world in worlds(1, true) {
        let seed = world.seed;
        [0, 2].into_iter().for_each(|number| world.start_client(number, number as u8));
        assert!(!world.run(Duration::from_secs(70), all_done), "seed {seed}");
        let said = shortages(&world);
        assert_eq!(said.len(), 3, "once for each deadline, seed {seed}");
        assert!(said.iter().all(|it| it.waits_on && it.missing == [1]));
        let waited: Vec<u64> = said.iter().map(|it| it.waited.as_secs()).collect();
        assert_eq!(waited, [20, 40, 60]);
        world.start_client(1, 1);
        // At once: the join deadline has passed.
        let opened = |world: &World| world.clients.iter().all(|client| client.opening.is_some());
        assert!(world.run(Duration::from_secs(15), opened), "seed {seed}");
        assert!(world.run(FOREVER, all_done), "seed {seed}");
        world.check_complete();
    }
}

#[test]
fn a_shortage_names_who_was_refused() {
    for mut world in worlds(1, false) {
        world.misfits.insert(2);
        world.start_aggregator();
        (0..3).for_each(|number| world.start_client(number, number as u8));
        assert!(world.run(FOREVER, all_done), "seed {}", world.seed);
        let refused = [(2, MISFIT.to_string())];
        assert_eq!(
            (&shortages(&world)[0].refused[..], &shortages(&world)[0].missing[..]),
            (&refused[..], &[2][..])
        );
        assert_eq!(world.client(2).refused, [MISFIT]);
        assert!(world.client(0).refused[0].ends_with("client 2 is missing"));
    }
}

#[test]
fn long_rounds_leave_time_to_join_next() {
    for seed in 0..10 {
        let mut world = World::new(seed, 4, 3);
        (world.settings.rounds, world.settings.wait_for_clients) = (2, false);
        world.start_aggregator();
        (0..3).for_each(|number| world.start_client(number, number as u8));
        let begun = |world: &World| world.clients.iter().all(|client| client.pushed() > 3);
        assert!(world.run(FOREVER, begun), "seed {seed}");
        // Client 0 dies, so that the round takes its 30 s; client 3 waits for the next one meanwhile,
        // for longer than the join deadline.
        world.client(0).node = None;
        world.start_client(3, 3);
        let ended = |world: &World| world.clients[1..3].iter().all(|client| client.done);
        assert!(world.run(FOREVER, ended), "seed {seed}");
        world.run(Duration::from_secs(10), |_| false);
        (1..3).for_each(|number| join(&mut world, number, 10 + number as u8));
        let ended = |world: &World| world.clients[1..].iter().all(|client| client.done);
        assert!(world.run(FOREVER, ended), "seed {seed}");
        assert_eq!(world.client(3).opening.as_ref().unwrap().contributors, [1, 2, 3]);
        assert!(shortages(&world).is_empty(), "seed {seed}");
    }
}

/// Lets a node take part as `contributor`, or as none.
fn allow(world: &mut World, node: NodeId, contributor: Option<u16>) {
    let mut nodes = world.settings.nodes.clone();
    nodes.remove(&node);
    world.struck.insert(node);
    nodes.extend(contributor.map(|number| (node, Some(number))));
    let now = world.network.time_at(world::SERVER.into());
    world.aggregator.as_mut().unwrap().allow(now, nodes);
}

fn links_to(world: &World, node: NodeId) -> usize {
    world.aggregator.as_ref().unwrap().endpoint().links_to(node)
}

#[test]
fn nodes_struck_out_finish_only_their_round() {
    for mut world in worlds(0, true) {
        let (seed, struck) = (world.seed, node(2).id());
        (0..3).for_each(|number| world.start_client(number, number as u8));
        let begun = |world: &World| world.clients.iter().all(|client| client.pushed() > 3);
        assert!(world.run(FOREVER, begun), "seed {seed}");
        allow(&mut world, struck, None);
        let changed = |event: &AggregatorEvent| {
            matches!(event, AggregatorEvent::Allowed { added, removed, rebound }
                if added.is_empty() && removed[..] == [struck] && rebound.is_empty())
        };
        let ended = |world: &World| world.clients.iter().all(|client| !client.ends.is_empty());
        assert!(world.run(FOREVER, ended), "seed {seed}: it finishes the round under way");
        assert!(world.events.iter().any(changed), "seed {seed}");
        world.check_complete();
        assert!(world.run(FOREVER, |world| links_to(world, struck) == 0), "seed {seed}");

        (0..3).for_each(|number| join(&mut world, number, 10 + number as u8));
        world.run(FOREVER, |_| false);
        assert!(world.client(2).unlisted > 0 && world.client(2).opening.is_none());
        assert!(shortages(&world).iter().all(|it| it.missing == [2]), "seed {seed}");

        // Back on the list, it takes part again.
        allow(&mut world, struck, Some(2));
        join(&mut world, 2, 12);
        assert!(world.run(FOREVER, all_done), "seed {seed}");
        world.check_complete();
    }
}

#[test]
fn waiting_nodes_struck_out_are_refused() {
    for mut world in worlds(0, true) {
        let (seed, struck) = (world.seed, node(2).id());
        [0, 2].into_iter().for_each(|number| world.start_client(number, number as u8));
        let waiting = |world: &World| world.aggregator.as_ref().unwrap().waiting() == 2;
        assert!(world.run(JOINING, waiting), "seed {seed}");
        allow(&mut world, struck, None);
        let reported = |world: &World| world.clients[1].done;
        assert!(world.run(FOREVER, reported), "seed {seed}");
        assert_eq!(world.client(2).refused, [format!("node {struck} is no longer allowed")]);
        assert!(world.run(FOREVER, |world| links_to(world, struck) == 0), "seed {seed}");
        assert!(!world.client(0).done, "seed {seed}: the others wait on");
    }
}

#[test]
fn a_node_may_be_given_another_number() {
    let mut world = worlds(0, true).next().unwrap();
    world.start_node(node(7), 1, 1, None);
    let waiting = |world: &World| world.aggregator.as_ref().unwrap().waiting() == 1;
    assert!(world.run(JOINING, waiting));
    let renamed = node(7).id();
    allow(&mut world, renamed, Some(2));
    assert!(world.run(FOREVER, all_done));
    let reason = format!("node {renamed} is allowed as contributor 2, not as contributor 1");
    assert_eq!(world.client(1).refused, [reason]);
    assert!(world.events.iter().any(|event| {
        matches!(event, AggregatorEvent::Allowed { rebound, .. } if rebound[..] == [renamed])
    }));
}

#[test]
fn sums_that_close_together_share_messages() {
    let mut world = World::new(1, 2, 2);
    world.network.set_faults(Faults::default());
    (world.most_packed, world.most_paths, world.most_pipelines) = (CHUNKS, 1, 1);
    (0..2).for_each(|number| world.start_client(number, number as u8));
    assert!(world.run(FOREVER, all_done));
    world.check_complete();
    let stats = world.aggregator.as_ref().unwrap().stats();
    let datagrams = stats.sent.datagrams - stats.acks_sent;
    assert!(datagrams < u64::from(CHUNKS), "{datagrams} to two clients, with {CHUNKS} sums each");
}
