//! Two endpoints on a simulated network: WRITE, WRITE with immediate, SUM, refusals, restarts.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ciphergram_nic::Bytes;
use ciphergram_nic::faults::Faults;
use ciphergram_nic::proto::{
    Cause, ChunkAdder, ChunkLayout, Config, Counts, Endpoint, EndpointEvent, Identity, NodeId,
    Peer, Refusal, Shard, Stranger, SumConfig, SumMessage, SumRegion, Time, secure::DECLINE_RATE,
};
use ciphergram_nic::sim::Network;
use ciphergram_nic::{NicError, Node};

const ROUGH: Faults = Faults {
    loss: 300_000,
    duplication: 100_000,
    corruption: 50_000,
    trimming: 50_000,
    marking: 40_000,
    junk: 50_000,
    lateness: 0,
    delay: Duration::from_micros(50),
    jitter: Duration::from_millis(2),
};

fn addr(port: u16) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1], port))
}

fn identity(number: u8) -> Identity {
    Identity::from_secret(&[number; 32]).unwrap()
}

fn node(number: u8) -> NodeId {
    identity(number).id()
}

/// Returns a process of node `number`, which listens to nodes 1 and 2 and knows where all are.
fn endpoint(number: u8, incarnation: u32) -> Endpoint {
    let seed = [incarnation as u8; 32];
    let config = Config::new(identity(number), NonZeroU32::new(incarnation).unwrap(), seed);
    let allow = [1, 2].map(node).into();
    let mut endpoint = Endpoint::new(Config { allow, ..config }).unwrap();
    for number in [1, 2, 3, 9] {
        endpoint.contact(node(number), addr(u16::from(number)));
    }
    endpoint
}

/// Endpoints 1 and 2, at ports 1 and 2.
struct Pair {
    network: Network,
    ends: [Endpoint; 2],
}

impl Pair {
    fn new(seed: u64, faults: Faults) -> Self {
        Self { network: Network::new(seed, faults), ends: [endpoint(1, 11), endpoint(2, 22)] }
    }

    /// Runs until nothing happens for `span`; returns both ends' events.
    fn run(&mut self, span: Duration) -> [Vec<EndpointEvent>; 2] {
        let until = self.network.now() + span;
        let [one, two] = &mut self.ends;
        let mut nodes: [(SocketAddr, &mut dyn Node); 2] = [(addr(1), one), (addr(2), two)];
        while self.network.step(&mut nodes, until) {}
        [0, 1].map(|end| std::iter::from_fn(|| self.ends[end].poll_event()).collect())
    }
}

fn pattern(bytes: usize, salt: usize) -> Bytes {
    (0..bytes).map(|at| (at * 31 + at / 251 + salt) as u8).collect()
}

#[test]
fn writes_land_in_place_immediates_count_once() {
    let (mut retransmitted, mut malformed) = (0, 0);
    for seed in 0..40 {
        let mut pair = Pair::new(seed, ROUGH);
        pair.ends[1].register_memory(7, 100_000, Some(node(1))).unwrap();
        let data = pattern(30_011, 1);
        let peer = Peer::of(node(2));
        pair.ends[0].write(Time::ZERO, peer, 7, 500, data.clone(), Some(9)).unwrap();
        pair.ends[0].write(Time::ZERO, peer, 7, 60_000, Bytes::new(), Some(10)).unwrap();
        let [sent, received] = pair.run(Duration::from_secs(9));
        assert_eq!(sent.len(), 2, "seed {seed}: {sent:?}");
        assert!(sent.iter().all(|event| matches!(event, EndpointEvent::Completed { .. })));
        let from = Peer { node: node(1), incarnation: 11 };
        let written = |offset, bytes, immediate| EndpointEvent::Written {
            from,
            rkey: 7,
            offset,
            bytes,
            immediate: Some(immediate),
        };
        assert_eq!(received.len(), 2, "seed {seed}: {received:?}");
        assert!(received.contains(&written(500, 30_011, 9)));
        assert!(received.contains(&written(60_000, 0, 10)));
        assert_eq!(pair.ends[1].immediates(7), Ok(2));
        let memory = pair.ends[1].memory(7).unwrap();
        assert_eq!(memory[500..30_511], data[..]);
        assert!(memory[..500].iter().chain(&memory[30_511..]).all(|byte| *byte == 0));
        retransmitted += pair.ends[0].stats().retransmitted;
        malformed += pair.ends[1].stats().malformed;
    }
    assert!(retransmitted > 100 && malformed > 10, "the faults must have happened");
}

/// An answer takes longer than the silence after which a handshake begins.
#[test]
fn late_answers_end_needless_handshakes() {
    let mut pair = Pair::new(1, Faults { delay: Duration::from_millis(400), ..Faults::default() });
    pair.ends[1].register_memory(7, 100, Some(node(1))).unwrap();
    for number in 0..6 {
        let before = pair.ends[0].stats().handshakes;
        let (now, peer) = (pair.network.now(), Peer::of(node(2)));
        pair.ends[0].write(now, peer, 7, 0, pattern(100, number), Some(0)).unwrap();
        let [sent, _] = pair.run(Duration::from_secs(5));
        assert!(matches!(sent[..], [EndpointEvent::Completed { .. }]), "{sent:?}");
        let handshakes = pair.ends[0].stats().handshakes - before;
        // HELLOs after 600 and 700 ms, and their answers, of which neither is taken.
        assert!(number == 0 || handshakes <= 4, "{handshakes} datagrams for message {number}");
    }
}

/// Answers that come after what they answer was given up still show what passes.
#[test]
fn late_answers_leave_the_size_of_a_path() {
    for (bytes, delay_ms) in
        [100, 1500, 3277].into_iter().flat_map(|bytes| [(bytes, 20), (bytes, 60), (bytes, 200)])
    {
        let mut pair = Pair::new(1, Faults::default());
        pair.ends[1].register_memory(7, 200_000, Some(node(1))).unwrap();
        let mut write = |delay_ms, bytes| {
            let delay = Duration::from_millis(delay_ms);
            pair.network.set_faults(Faults { delay, ..Faults::default() });
            let (now, peer) = (pair.network.now(), Peer::of(node(2)));
            pair.ends[0].write(now, peer, 7, 0, pattern(bytes, 0), Some(0)).unwrap();
            let [sent, _] = pair.run(Duration::from_secs(5));
            assert!(matches!(sent[..], [EndpointEvent::Completed { .. }]), "{sent:?}");
            pair.ends[0].stats().datagram_bytes
        };
        let sizes =
            [(0, 200_000), (delay_ms, bytes), (0, 100)].map(|(delay, bytes)| write(delay, bytes));
        assert_eq!(sizes, [8848; 3], "{bytes} bytes, {delay_ms} ms");
    }
}

#[test]
fn inboxes_hand_over_whole_messages_once() {
    for seed in 0..20 {
        let mut pair = Pair::new(seed, ROUGH);
        pair.ends[1].register_inbox(1, 10_000).unwrap();
        let peer = Peer::of(node(2));
        for message in 0..50 {
            let data = pattern(message * 200, message);
            pair.ends[0].write(Time::ZERO, peer, 1, 0, data, Some(message as u32)).unwrap();
        }
        let [_, received] = pair.run(Duration::from_secs(9));
        let mut messages = BTreeMap::new();
        for event in received {
            let EndpointEvent::Received { immediate: Some(immediate), data, .. } = event else {
                panic!("seed {seed}: {event:?}");
            };
            assert!(messages.insert(immediate, data).is_none(), "seed {seed}: twice");
        }
        assert_eq!(messages.len(), 50, "seed {seed}");
        for (message, data) in messages {
            assert_eq!(data[..], pattern(message as usize * 200, message as usize)[..]);
        }
    }
}

#[test]
fn invalid_writes_are_refused_by_code() {
    let mut pair = Pair::new(1, Faults::default());
    pair.ends[1].register_memory(1, 100, Some(node(3))).unwrap();
    pair.ends[1].register_memory(2, 100, None).unwrap();
    pair.ends[1].register_inbox(3, 50).unwrap();
    let cases = [
        (1, 0, 10, Refusal::NoRight),
        (2, 91, 10, Refusal::OutOfBounds),
        (2, u64::MAX, 10, Refusal::OutOfBounds),
        (3, 0, 51, Refusal::WrongLength),
        (3, 1, 50, Refusal::OutOfBounds),
        (4, 0, 10, Refusal::UnknownRkey),
    ];
    for (rkey, offset, bytes, expected) in cases {
        let now = pair.network.now();
        let data = pattern(bytes, 0);
        let id = pair.ends[0].write(now, Peer::of(node(2)), rkey, offset, data, None).unwrap();
        let [sent, received] = pair.run(Duration::from_secs(1));
        let [EndpointEvent::Refused { message, refusal, .. }] = sent[..] else {
            panic!("{sent:?}")
        };
        assert_eq!((message, refusal), (id, expected), "rkey {rkey}");
        assert!(received.is_empty());
    }
    assert_eq!(pair.ends[1].stats().refused, 6);
}

#[test]
fn withdrawn_regions_refuse_the_rest_of_messages() {
    let faults = Faults { delay: Duration::from_millis(1), ..Faults::default() };
    let mut pair = Pair::new(1, faults);
    pair.ends[1].register_memory(5, 1 << 20, None).unwrap();
    pair.ends[0].write(Time::ZERO, Peer::of(node(2)), 5, 0, pattern(1 << 20, 0), None).unwrap();
    let [sent, _] = pair.run(Duration::from_millis(3));
    assert!(sent.is_empty());
    pair.ends[1].deregister(5);
    let [sent, received] = pair.run(Duration::from_secs(1));
    assert!(
        matches!(sent[..], [EndpointEvent::Refused { refusal: Refusal::UnknownRkey, .. }]),
        "{sent:?}"
    );
    assert!(received.is_empty());
}

#[test]
fn refused_messages_are_never_reported_done() {
    for seed in 0..20 {
        let mut pair = Pair::new(seed, if seed == 0 { Faults::default() } else { ROUGH });
        pair.ends[1].register_memory(1, 100, None).unwrap();
        let peer = Peer::of(node(2));
        let mut refused = BTreeMap::new();
        for message in 0..500u32 {
            // Every fourth one has a target.
            let rkey = if message % 4 == 3 { 1 } else { 9 };
            let id = pair.ends[0].write(Time::ZERO, peer, rkey, 0, pattern(100, 0), None).unwrap();
            refused.insert(id, rkey == 9);
        }
        let [sent, _] = pair.run(Duration::from_secs(60));
        for event in sent {
            let (message, expected) = match event {
                EndpointEvent::Completed { message, .. } => (message, false),
                EndpointEvent::Refused { message, refusal: Refusal::UnknownRkey, .. } => {
                    (message, true)
                }
                other => panic!("seed {seed}: {other:?}"),
            };
            assert_eq!(refused.remove(&message), Some(expected), "seed {seed}");
        }
        assert!(refused.is_empty(), "seed {seed}: {} unanswered", refused.len());
    }
}

#[test]
fn a_replay_neither_redirects_nor_is_placed() {
    let mut ends = [endpoint(1, 11), endpoint(2, 22)];
    ends[1].register_memory(1, 100, None).unwrap();
    let mut captured = vec![];
    let exchange = |ends: &mut [Endpoint; 2], captured: &mut Vec<Vec<u8>>| {
        let (mut bytes, mut to_one) = (vec![], vec![]);
        for _ in 0..8 {
            for (from, to) in [(0, 1), (1, 0)] {
                while let Some(addr) = ends[from].poll_transmit(Time::ZERO, &mut bytes) {
                    if from == 0 {
                        captured.push(bytes.clone());
                    } else {
                        to_one.push(addr);
                    }
                    let from = self::addr(from as u16 + 1);
                    ends[to].handle_datagram(Time::ZERO, from, &mut bytes);
                    bytes.clear();
                }
            }
        }
        to_one
    };
    let write = |ends: &mut [Endpoint; 2]| {
        ends[0].write(Time::ZERO, Peer::of(node(2)), 1, 0, pattern(10, 0), Some(1)).unwrap();
    };
    write(&mut ends);
    assert!(exchange(&mut ends, &mut captured).iter().all(|to| *to == addr(1).into()));
    let replayed = captured.clone();
    for bytes in replayed {
        ends[1].handle_datagram(Time::ZERO, addr(66), &mut bytes.clone());
    }
    // A recorded HELLO is answered where it came from, and changes nothing.
    let answers = exchange(&mut ends, &mut captured);
    assert!(answers.iter().filter(|to| **to != addr(1).into()).count() <= 1, "{answers:?}");
    write(&mut ends);
    assert!(exchange(&mut ends, &mut captured).iter().all(|to| *to == addr(1).into()));
    let written = std::iter::from_fn(|| ends[1].poll_event()).count();
    assert_eq!(written, 2);
}

#[test]
fn simultaneous_greetings_come_to_one_session() {
    for seed in 0..40 {
        let mut pair = Pair::new(seed, ROUGH);
        for end in 0..2 {
            pair.ends[end].register_memory(7, 100_000, None).unwrap();
            let (peer, data) = (Peer::of(node(2 - end as u8)), pattern(30_000, end));
            pair.ends[end].write(Time::ZERO, peer, 7, 0, data.clone(), Some(1)).unwrap();
            pair.ends[end].write(Time::ZERO, peer, 7, 50_000, data, Some(2)).unwrap();
        }
        let events = pair.run(Duration::from_secs(9));
        for (end, events) in events.iter().enumerate() {
            let done =
                events.iter().filter(|event| matches!(event, EndpointEvent::Completed { .. }));
            let written =
                events.iter().filter(|event| matches!(event, EndpointEvent::Written { .. }));
            assert_eq!((done.count(), written.count()), (2, 2), "seed {seed}, {end}: {events:?}");
            let expected = pattern(30_000, 1 - end);
            assert_eq!(pair.ends[end].memory(7).unwrap()[50_000..80_000], expected[..]);
        }
    }
}

#[test]
fn idle_endpoints_send_nothing() {
    let faults = Faults { duplication: 1_000_000, trimming: 500_000, ..Faults::default() };
    let mut pair = Pair::new(5, faults);
    pair.ends[1].register_memory(1, 1000, None).unwrap();
    pair.ends[0].write(Time::ZERO, Peer::of(node(2)), 1, 0, pattern(900, 0), None).unwrap();
    let [sent, _] = pair.run(Duration::from_secs(8));
    assert_eq!(sent.len(), 1);
    let before = pair.ends.each_ref().map(|end| end.stats().sent.datagrams);
    pair.run(Duration::from_secs(30));
    assert_eq!(pair.ends.each_ref().map(|end| end.stats().sent.datagrams), before);
    assert!(before[0] + before[1] < 200, "{before:?}");
}

#[test]
fn silence_is_given_up_restarts_are_noticed() {
    let mut pair = Pair::new(1, Faults::default());
    let peer = Peer::of(node(9));
    pair.ends[0].write(Time::ZERO, peer, 1, 0, pattern(10, 0), None).unwrap();
    let [sent, _] = pair.run(Duration::from_millis(9_999));
    assert!(sent.is_empty());
    let [sent, _] = pair.run(Duration::from_millis(2));
    assert_eq!(sent, [EndpointEvent::Unreachable { peer, cause: Cause::Silence }]);

    pair.ends[1].register_memory(1, 100, None).unwrap();
    let now = pair.network.now();
    pair.ends[0].write(now, Peer::of(node(2)), 1, 0, pattern(10, 0), None).unwrap();
    let [sent, _] = pair.run(Duration::from_secs(1));
    let known = Peer { node: node(2), incarnation: 22 };
    assert!(
        matches!(sent[..], [EndpointEvent::Completed { peer, .. }] if peer == known),
        "{sent:?}"
    );
    pair.ends[1] = endpoint(2, 23);
    pair.ends[1].register_memory(1, 100, None).unwrap();
    let now = pair.network.now();
    pair.ends[0].write(now, Peer::of(node(2)), 1, 0, pattern(10, 0), None).unwrap();
    let [sent, received] = pair.run(Duration::from_secs(1));
    assert_eq!(sent, [EndpointEvent::Unreachable { peer: known, cause: Cause::Restarted }]);
    assert!(received.is_empty(), "what was meant for another process must not land");
    let now = pair.network.now();
    pair.ends[0].write(now, Peer::of(node(2)), 1, 0, pattern(10, 0), None).unwrap();
    let [sent, received] = pair.run(Duration::from_secs(1));
    assert!(matches!(sent[..], [EndpointEvent::Completed { .. }]), "{sent:?}");
    assert_eq!(received.len(), 1);
}

/// Found by fuzzing: the link meant for the process before took the place of the one to the present
/// process, and ids that this one had used came again, answered already.
#[test]
fn merged_links_use_no_id_twice() {
    let mut pair = Pair::new(1, Faults::default());
    let write = |pair: &mut Pair, from: usize, peer, byte: u8| {
        let now = pair.network.now();
        pair.ends[from].write(now, peer, 1, 0, vec![byte].into(), None).unwrap();
        pair.run(Duration::from_secs(2))
    };
    pair.ends[1].register_memory(1, 1, None).unwrap();
    write(&mut pair, 0, Peer::of(node(2)), 1);
    pair.ends[1] = endpoint(2, 23);
    pair.ends[1].register_memory(1, 1, None).unwrap();
    // The new process sends first, and is answered.
    write(&mut pair, 1, Peer::of(node(1)), 0);
    let present = Peer { node: node(2), incarnation: 23 };
    (2..7).for_each(|byte| drop(write(&mut pair, 0, present, byte)));
    // To whichever runs: by the link to the process before.
    let [sent, _] = write(&mut pair, 0, Peer::of(node(2)), 7);
    assert!(
        sent.iter().all(|event| matches!(event, EndpointEvent::Unreachable { .. })),
        "{sent:?}"
    );
    for byte in 8..12 {
        let [sent, received] = write(&mut pair, 0, present, byte);
        assert!(matches!(sent[..], [EndpointEvent::Completed { .. }]), "{sent:?}");
        assert_eq!((received.len(), pair.ends[1].memory(1).unwrap()), (1, vec![byte]));
    }
}

#[test]
fn queues_are_bounded() {
    let mut end = endpoint(1, 1);
    let peer = Peer::of(node(2));
    while end.headroom(peer) > 0 {
        end.write(Time::ZERO, peer, 1, 0, Bytes::new(), None).unwrap();
    }
    let full = end.write(Time::ZERO, peer, 1, 0, Bytes::new(), None);
    assert_eq!(full, Err(NicError::WindowFull { peer }));
    let big = sum(0, 0, (0, 8821), &[0; 8821]);
    let big = end.sum(Time::ZERO, Peer::of(node(3)), big);
    assert_eq!(big, Err(NicError::MessageTooLong { bytes: 8821, limit: 8820 }));
}

/// Returns bytes from a chunk on, for region 6; and how many each chunk has, by which its offset is known.
fn sum(round: u32, contributor: u16, (first_chunk, each): (u32, u32), data: &[u8]) -> SumMessage {
    let chunk_bytes = NonZeroU32::new(each).unwrap();
    let data = Bytes::copy_from_slice(data);
    SumMessage { rkey: 6, round, contributor, first_chunk, chunk_bytes, by_chunk: true, data }
}

/// Three chunks.
const LAYOUT: ChunkLayout =
    ChunkLayout { chunk_bytes: NonZeroU32::new(8).unwrap(), total_bytes: 20 };

/// Adds bytes as integers; remembers every addition.
struct Ledger(Arc<Mutex<Vec<(u32, u8)>>>);

/// Returns a region of round 4 in two shards, which closes chunks of two.
fn region(contributors: u16, ledger: &Arc<Mutex<Vec<(u32, u8)>>>) -> SumRegion {
    let shards =
        [0..2, 2..3].map(|chunks| Shard { chunks, adder: Box::new(Ledger(ledger.clone())) });
    let config = SumConfig {
        round: 4,
        contributors,
        target: 2,
        layout: LAYOUT,
        shards: shards.into(),
        counts: Counts::Chunks,
    };
    SumRegion::new(config).unwrap()
}

impl ChunkAdder for Ledger {
    fn check(&mut self, _: Range<u32>, payload: &[u8]) -> Result<(), Refusal> {
        if payload.contains(&255) { Err(Refusal::InvalidCiphertext) } else { Ok(()) }
    }
    fn add(&mut self, chunks: Range<u32>, payload: &[u8]) -> Result<(), Refusal> {
        self.check(chunks.clone(), payload)?;
        let firsts = payload.chunks(8).map(|chunk| chunk[0]);
        self.0.lock().unwrap().extend(chunks.zip(firsts));
        Ok(())
    }
    fn finish(&mut self, chunk: u32, _: u32) -> Result<Vec<u8>, String> {
        Ok(vec![chunk as u8])
    }
}

#[test]
fn sums_add_whole_datagrams_once_or_never() {
    let mut pair = Pair::new(3, Faults::default());
    let ledger = Arc::new(Mutex::new(Vec::new()));
    let region = region(70, &ledger);
    for contributor in [5, 69] {
        region.bind(contributor, Peer { node: node(1), incarnation: 11 });
    }
    pair.ends[1].register_sum(6, region).unwrap();
    let mut send = |round, contributor, chunk, data: &[u8]| {
        let now = pair.network.now();
        let peer = Peer::of(node(2));
        pair.ends[0].sum(now, peer, sum(round, contributor, chunk, data)).unwrap();
        let [mut sent, received] = pair.run(Duration::from_secs(1));
        let status = match sent.pop() {
            Some(EndpointEvent::Completed { .. }) => Ok(()),
            Some(EndpointEvent::Refused { refusal, .. }) => Err(refusal),
            other => panic!("{other:?}"),
        };
        (status, received, ledger.lock().unwrap().len())
    };
    let added = |count| (Ok(()), vec![], count);
    let refused = |refusal, count| (Err(refusal), vec![], count);
    assert_eq!(send(3, 5, (0, 8), &[1; 8]), refused(Refusal::WrongRound, 0));
    assert_eq!(send(4, 6, (0, 8), &[1; 8]), refused(Refusal::NotContributor, 0));
    assert_eq!(send(4, 5, (1, 12), &[1; 12]), refused(Refusal::WrongOffset, 0));
    assert_eq!(send(4, 5, (3, 8), &[1; 8]), refused(Refusal::ChunkOutOfRange, 0));
    assert_eq!(send(4, 5, (0, 8), &[1; 12]), refused(Refusal::WrongLength, 0));
    assert_eq!(send(4, 5, (0, 8), &[]), refused(Refusal::WrongLength, 0));
    let half_bad: Vec<u8> = [[1; 8], [255; 8]].concat();
    assert_eq!(send(4, 5, (0, 8), &half_bad), refused(Refusal::InvalidCiphertext, 0));
    assert_eq!(send(4, 5, (0, 8), &[1; 16]), added(2));
    assert_eq!(send(4, 5, (0, 8), &[1; 8]), added(2), "again, cut differently");
    assert_eq!(send(4, 5, (1, 8), &[1; 12]), added(3), "chunk 1 again, chunk 2 new");
    assert_eq!(send(4, 5, (1, 8), &[2; 8]), added(3), "other bytes: the first count");
    let closes = |chunk| EndpointEvent::ChunkClosed { rkey: 6, chunk };
    assert_eq!(send(4, 69, (0, 8), &[3; 16]), (Ok(()), vec![closes(0), closes(1)], 5));
    assert_eq!(send(4, 69, (0, 8), &[3; 8]), added(5), "a closed chunk still knows its own");
    let region = pair.ends[1].sum_region(6).unwrap();
    assert!(region.has(1, 5) && region.has(1, 69) && !region.has(2, 69));
    let mut bitmap = [0; 16];
    (bitmap[0], bitmap[8]) = (1 << 5, 1 << 5);
    assert_eq!(region.bitmap(0), bitmap);
    assert!(region.close(2) && !region.close(2));
    let mut late = |data: &[u8]| {
        let now = pair.network.now();
        let peer = Peer::of(node(2));
        pair.ends[0].sum(now, peer, sum(4, 69, (2, 8), data)).unwrap();
        pair.run(Duration::from_secs(1))
    };
    let [sent, received] = late(&[9; 4]);
    assert!(matches!(sent[..], [EndpointEvent::Refused { refusal: Refusal::RoundClosed, .. }]));
    assert!(received.is_empty());
    let expected = [(0, 1), (1, 1), (2, 1), (0, 3), (1, 3)];
    assert_eq!(*ledger.lock().unwrap(), expected);
}

/// A fault of one datagram affects none that arrives with it.
#[test]
fn sums_that_arrive_together_are_answered_apart() {
    let mut pair = Pair::new(3, Faults::default());
    let ledger = Arc::new(Mutex::new(Vec::new()));
    let region = region(9, &ledger);
    (0..4).for_each(|number| region.bind(number, Peer { node: node(1), incarnation: 11 }));
    pair.ends[1].register_sum(6, region).unwrap();
    let mut send = |datagrams: &[(u16, u32, &[u8])]| {
        let (now, peer) = (pair.network.now(), Peer::of(node(2)));
        let queue = |&(contributor, chunk, data): &(u16, u32, &[u8])| {
            pair.ends[0].sum(now, peer, sum(4, contributor, (chunk, 8), data)).unwrap()
        };
        let messages: Vec<_> = datagrams.iter().map(queue).collect();
        let [sent, _] = pair.run(Duration::from_secs(1));
        let status = |message| {
            let found = sent.iter().find_map(|event| match event {
                EndpointEvent::Completed { message: of, .. } if *of == message => Some(Ok(())),
                EndpointEvent::Refused { message: of, refusal, .. } if *of == message => {
                    Some(Err(*refusal))
                }
                _ => None,
            });
            found.expect("an answer to each")
        };
        let statuses: Vec<_> = messages.into_iter().map(status).collect();
        (statuses, std::mem::take(&mut *ledger.lock().unwrap()))
    };
    // The handshake, so that later datagrams leave at once.
    assert_eq!(send(&[]), (vec![], vec![]));
    let bad = Err(Refusal::InvalidCiphertext);
    // One of three that follow one another, in the middle.
    let three: [(u16, u32, &[u8]); 3] = [(0, 0, &[1; 8]), (0, 1, &[255; 8]), (0, 2, &[1; 4])];
    assert_eq!(send(&three), (vec![Ok(()), bad, Ok(())], vec![(0, 1), (2, 1)]));
    // A chunk twice, and other bytes for it; then what is there and what is new.
    let again: [(u16, u32, &[u8]); 3] = [(1, 0, &[2; 8]), (1, 0, &[2; 8]), (1, 0, &[3; 8])];
    assert_eq!(send(&again), (vec![Ok(()); 3], vec![(0, 2)]));
    let mixed: [(u16, u32, &[u8]); 2] = [(1, 0, &[2; 16]), (1, 2, &[2; 4])];
    assert_eq!(send(&mixed), (vec![Ok(()), Ok(())], vec![(1, 2), (2, 2)]));
    // The one that closes a chunk leaves none for the next.
    let full: [(u16, u32, &[u8]); 2] = [(2, 1, &[4; 8]), (3, 1, &[5; 8])];
    assert_eq!(send(&full), (vec![Ok(()), Err(Refusal::RoundClosed)], vec![(1, 4)]));
}

/// Returns the process of a node that has no session with endpoint 1, at the second end of a pair.
fn with_stranger(stranger: Endpoint) -> Pair {
    let mut pair = Pair::new(1, Faults::default());
    pair.ends[1] = stranger;
    pair
}

#[test]
fn unlisted_nodes_are_declined_and_leave_nothing() {
    let mut pair = with_stranger(endpoint(3, 33));
    let peer = Peer::of(node(1));
    let (mut declines, mut reports) = (vec![], vec![]);
    for _ in 0..50 {
        let now = pair.network.now();
        pair.ends[1].write(now, peer, 1, 0, pattern(8, 0), None).unwrap();
        let [seen, received] = pair.run(Duration::from_millis(2));
        declines.extend(received);
        reports.extend(seen);
    }
    assert_eq!(declines.len(), DECLINE_RATE as usize, "in the first second");
    let [seen, received] = pair.run(Duration::from_secs(2));
    assert_eq!(received.len(), 1, "what waited is answered later");
    declines.extend(received);
    reports.extend(seen);
    let declined = EndpointEvent::Unreachable { peer, cause: Cause::Unlisted };
    assert!(declines.iter().all(|event| *event == declined), "{declines:?}");
    let stranger = Stranger::Unlisted(node(3));
    assert_eq!(reports, [EndpointEvent::Stranger { from: addr(2), stranger }]);
    assert_eq!(pair.ends[0].links_to(node(3)), 0);
    assert_eq!(pair.ends[0].usage().links, 0);
}

#[test]
fn wrong_keys_get_silence_and_are_reported() {
    let mut stranger = endpoint(2, 22);
    stranger.contact(node(9), addr(1));
    let mut pair = with_stranger(stranger);
    let now = pair.network.now();
    pair.ends[1].write(now, Peer::of(node(9)), 1, 0, pattern(8, 0), None).unwrap();
    let [reports, received] = pair.run(Duration::from_secs(5));
    assert_eq!(received, []);
    let wrong_key = EndpointEvent::Stranger { from: addr(2), stranger: Stranger::WrongKey };
    assert_eq!(reports, [wrong_key]);
    assert!(pair.ends[0].stats().turned_away > 5);
}
