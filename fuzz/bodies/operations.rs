//! Two endpoints joined by a link that the script of bytes rules, beside a model of what may be true.
//!
//! Memory holds only what was written, an immediate comes at most once, a sum adds each contribution
//! exactly once, nothing is reported as done before it is committed, and what is held has a bound. When the
//! link is whole again, everything that waits is answered or given up.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    num::NonZeroU32,
    ops::Range,
    sync::{Arc, Mutex},
    time::Duration,
};

use ciphergram_nic::proto::{
    ChunkAdder, ChunkLayout, Config, Counts, Endpoint, EndpointEvent, Identity, MESSAGE_WINDOW,
    MessageId, NodeId, Peer, Refusal, Shard, SumConfig, SumMessage, SumRegion, Time,
};

/// Bytes of a script that are looked at, so that a run stays short.
const MOST_BYTES: usize = 600;
/// How often a script may have an end begin anew.
const MOST_STARTS: u32 = 6;
/// Datagrams under way; older ones are lost.
const MOST_UNDER_WAY: usize = 512;

/// Regions of each end: two of memory, an inbox, a sum.
const MEMORY: Range<u32> = 1..3;
const MEMORY_BYTES: usize = 6000;
const INBOX: u32 = 3;
const INBOX_BYTES: u32 = 4000;
const SUM: u32 = 4;
const HELD_BYTES: usize = 4 * INBOX_BYTES as usize;
/// Of the sum: chunks, their bytes, contributors.
const CHUNKS: u32 = 5;
const CHUNK_BYTES: usize = 500;
const CONTRIBUTORS: u16 = 3;

/// A script, 0 where it has ended.
struct Script<'a>(&'a [u8]);

impl Script<'_> {
    fn next(&mut self) -> usize {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        usize::from(*first)
    }
}

/// Chunks of one length.
const LAYOUT: ChunkLayout = ChunkLayout {
    chunk_bytes: NonZeroU32::new(CHUNK_BYTES as u32).unwrap(),
    total_bytes: CHUNKS as u64 * CHUNK_BYTES as u64,
};

/// Remembers what was added: chunk, and the contribution's first bytes, which say whose and which.
#[derive(Clone, Default)]
struct Ledger(Arc<Mutex<Vec<Added>>>);

type Added = (u32, [u8; 2]);

impl ChunkAdder for Ledger {
    fn check(&mut self, _: Range<u32>, _: &[u8]) -> Result<(), Refusal> {
        Ok(())
    }
    fn add(&mut self, chunks: Range<u32>, payload: &[u8]) -> Result<(), Refusal> {
        let added = payload.chunks(CHUNK_BYTES).map(|own| [own[0], own[1]]);
        self.0.lock().expect("one thread").extend(chunks.zip(added));
        Ok(())
    }
    fn finish(&mut self, _: u32, _: u32) -> Result<Vec<u8>, String> {
        Ok(vec![])
    }
}

fn identity(end: usize) -> Identity {
    Identity::from_secret(&[end as u8 + 1; 32]).expect("any secret is a key")
}

fn node(end: usize) -> NodeId {
    identity(end).id()
}

fn addr(end: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, end as u8 + 1], 7))
}

/// The request of an end, until its outcome is reported.
#[derive(Clone, Debug)]
enum Asked {
    Write { rkey: u32, offset: u64, bytes: usize, serial: u32, immediate: bool },
    Sum { chunks: Range<u32>, mark: [u8; 2] },
}

/// Returns the byte of a write at a place of its region.
fn byte(serial: u32, at: u64) -> u8 {
    (serial.wrapping_mul(89) as u8).wrapping_add(at as u8).wrapping_mul(3) | 1
}

/// One process, and what the script knows of it.
struct End {
    endpoint: Endpoint,
    incarnation: u32,
    ledger: Ledger,
    /// By the process that they are for: one that was named, or whichever runs. Ids are unique per peer.
    waiting: BTreeMap<(Peer, MessageId), Asked>,
    /// For whichever runs, when some process there was given up: they may have failed.
    doubtful: BTreeMap<MessageId, Vec<Asked>>,
    /// Immediates, which are serials, of messages that came here whole.
    came: BTreeSet<u32>,
}

impl End {
    fn new(end: usize, incarnation: u32) -> Self {
        let number = NonZeroU32::new(incarnation).expect("from 1 on");
        let seed = [incarnation as u8 * 2 + end as u8; 32];
        let config = Config::new(identity(end), number, seed);
        let (allow, held_bytes) = ([node(1 - end)].into(), HELD_BYTES);
        let endpoint = Endpoint::new(Config { allow, held_bytes, ..config });
        let mut endpoint = endpoint.expect("sizes are the defaults");
        endpoint.contact(node(1 - end), addr(1 - end));
        let (waiting, doubtful, came) = Default::default();
        Self { endpoint, incarnation, ledger: Ledger::default(), waiting, doubtful, came }
    }

    /// Registers the region or the sum of an rkey, if there is none.
    fn register(&mut self, end: usize, rkey: u32, other: u32) {
        let endpoint = &mut self.endpoint;
        if endpoint.is_registered(rkey) {
            return;
        }
        let registered = match rkey {
            INBOX => endpoint.register_inbox(rkey, INBOX_BYTES),
            SUM => {
                self.ledger = Ledger::default();
                let shards = [0..CHUNKS / 2, CHUNKS / 2..CHUNKS]
                    .map(|chunks| Shard { chunks, adder: Box::new(self.ledger.clone()) });
                let config = SumConfig {
                    round: 5,
                    contributors: CONTRIBUTORS,
                    target: 2,
                    layout: LAYOUT,
                    shards: shards.into(),
                    counts: Counts::Chunks,
                };
                let region = SumRegion::new(config).expect("any key is a key");
                endpoint.register_sum(rkey, region)
            }
            _ => endpoint.register_memory(rkey, MEMORY_BYTES, Some(node(1 - end))),
        };
        registered.expect("nothing was registered");
        self.bind(end, other);
    }

    fn ask(&mut self, peer: Peer, id: MessageId, asked: Asked) {
        assert!(self.waiting.insert((peer, id), asked).is_none(), "an id comes twice");
    }

    /// Returns the requests that a message may have been, of which its receiver hears.
    fn answered(&mut self, peer: Peer, id: MessageId) -> Vec<Asked> {
        let any = Peer::of(peer.node);
        let asked = self.waiting.remove(&(peer, id)).or_else(|| self.waiting.remove(&(any, id)));
        match asked {
            Some(asked) => vec![asked],
            None => self.doubtful.remove(&id).expect("answered once, and not after it failed"),
        }
    }

    /// Notes that all that waits for a process has failed.
    fn fail(&mut self, peer: Peer) {
        let waiting = std::mem::take(&mut self.waiting);
        for ((of, id), asked) in waiting {
            if of.incarnation == 0 && peer.incarnation != 0 {
                self.doubtful.entry(id).or_default().push(asked);
            } else if of != peer {
                self.waiting.insert((of, id), asked);
            }
        }
    }

    /// Lets the other end's present process contribute as anyone.
    fn bind(&mut self, end: usize, other: u32) {
        let peer = Peer { node: node(1 - end), incarnation: other };
        if let Ok(region) = self.endpoint.sum_region(SUM) {
            (0..CONTRIBUTORS).for_each(|contributor| region.bind(contributor, peer));
        }
    }
}

/// A write: rkey, range, serial.
type Written = (u32, Range<u64>, u32);
/// A message that came: rkey, range, immediate.
type Whole = (u32, Range<u64>, Option<u32>);

struct Datagram {
    to: usize,
    bytes: Vec<u8>,
}

struct World {
    now: Time,
    ends: [End; 2],
    under_way: Vec<Datagram>,
    starts: u32,
    serial: u32,
    /// Everything ever written, by the region's end.
    written: [Vec<Written>; 2],
    /// All messages that were reported whole to either end, of all processes.
    whole: [Vec<Whole>; 2],
    /// Everything ever added at either end, of all processes.
    added: [BTreeSet<Added>; 2],
}

impl World {
    fn new() -> Self {
        let ends = [0, 1].map(|end| End::new(end, 1));
        let (under_way, written, whole, added) = Default::default();
        let now = Time::ZERO;
        let mut world = Self { now, ends, under_way, starts: 0, serial: 0, written, whole, added };
        for end in 0..2 {
            (1..=SUM).for_each(|rkey| world.ends[end].register(end, rkey, 1));
        }
        world
    }

    fn step(&mut self, script: &mut Script<'_>) {
        let op = script.next();
        let end = op >> 4 & 1;
        let count = self.under_way.len();
        let which = |script: &mut Script<'_>| script.next() % count.max(1);
        match op % 16 {
            0..=2 => self.write(end, op >> 5, script),
            3 | 4 => self.sum(end, script),
            5 => {
                let rkey = 1 + script.next() as u32 % SUM;
                self.ends[end].endpoint.deregister(rkey);
            }
            6 => {
                let (rkey, other) =
                    (1 + script.next() as u32 % SUM, self.ends[1 - end].incarnation);
                self.ends[end].register(end, rkey, other);
            }
            7 if count > 0 => drop(self.under_way.remove(which(script))),
            8 if count > 0 => {
                let Datagram { to, bytes } = &self.under_way[which(script)];
                let again = Datagram { to: *to, bytes: bytes.clone() };
                self.under_way.push(again);
            }
            9 if count > 0 => {
                let later = self.under_way.remove(which(script));
                self.under_way.push(later);
            }
            10 if count > 0 => self.under_way[which(script)].bytes.truncate(64),
            11 if count > 0 => {
                let bytes = &mut self.under_way[which(script)].bytes;
                let at = script.next() * 7 % bytes.len().max(1);
                bytes.get_mut(at).into_iter().for_each(|byte| *byte ^= 1 << (op >> 5));
            }
            12 => self.wait(Duration::from_micros([30, 1_000, 20_000, 700_000][op >> 5 & 3])),
            13 if op >= 224 => self.wait(Duration::from_secs(11)),
            14 if op >= 224 && self.starts < MOST_STARTS => self.restart(end),
            _ => self.deliver(1 + script.next() % 32),
        }
        self.collect();
    }

    fn write(&mut self, end: usize, kind: usize, script: &mut Script<'_>) {
        let rkey = 1 + (script.next() as u32) % (INBOX + 1);
        let immediate = kind % 2 == 1;
        // Some go beyond the region, or past its end.
        let offset = if rkey == INBOX { 0 } else { script.next() as u64 * 24 };
        let bytes = script.next() * 18;
        self.serial += 1;
        let serial = self.serial;
        let data: Vec<u8> = (offset..).take(bytes).map(|at| byte(serial, at)).collect();
        let told = immediate.then_some(serial);
        let (now, peer) = (self.now, self.peer(end, kind));
        let endpoint = &mut self.ends[end].endpoint;
        let Ok(id) = endpoint.write(now, peer, rkey, offset, data.into(), told) else { return };
        let asked = Asked::Write { rkey, offset, bytes, serial, immediate };
        self.ends[end].ask(peer, id, asked);
        self.written[1 - end].push((rkey, offset..offset + bytes as u64, serial));
    }

    fn sum(&mut self, end: usize, script: &mut Script<'_>) {
        let what = script.next();
        let contributor = what % usize::from(CONTRIBUTORS);
        let first = script.next() as u32 % CHUNKS;
        let chunks = first..(first + 1 + (what as u32 >> 2) % CHUNKS).min(CHUNKS);
        // Now and then another contribution under the same number.
        let mark = [contributor as u8, u8::from(what >= 240)];
        let mut own = [0; CHUNK_BYTES];
        own[..2].copy_from_slice(&mark);
        let data = own.repeat(chunks.len());
        let (now, peer, contributor) = (self.now, self.peer(end, what >> 4), contributor as u16);
        let sum = SumMessage {
            rkey: SUM,
            round: 5,
            contributor,
            first_chunk: first,
            chunk_bytes: LAYOUT.chunk_bytes,
            by_chunk: true,
            data: data.into(),
        };
        let Ok(id) = self.ends[end].endpoint.sum(now, peer, sum) else { return };
        self.ends[end].ask(peer, id, Asked::Sum { chunks, mark });
    }

    /// Returns the peer: any process that runs there, or the one that does.
    fn peer(&self, end: usize, kind: usize) -> Peer {
        let incarnation = if kind & 2 == 0 { 0 } else { self.ends[1 - end].incarnation };
        Peer { node: node(1 - end), incarnation }
    }

    fn restart(&mut self, end: usize) {
        self.starts += 1;
        let incarnation = self.ends[end].incarnation + 1;
        self.ends[end] = End::new(end, incarnation);
        let other = self.ends[1 - end].incarnation;
        (1..=SUM).for_each(|rkey| self.ends[end].register(end, rkey, other));
        self.ends[1 - end].bind(1 - end, incarnation);
    }

    fn wait(&mut self, span: Duration) {
        self.now = self.now + span;
        self.ends.iter_mut().for_each(|end| end.endpoint.handle_timeout(self.now));
        self.look();
    }

    fn deliver(&mut self, count: usize) {
        for _ in 0..count.min(self.under_way.len()) {
            let Datagram { to, mut bytes } = self.under_way.remove(0);
            self.ends[to].endpoint.handle_datagram(self.now, addr(1 - to), &mut bytes);
            self.look();
        }
    }

    /// Takes up what the ends have to say.
    fn collect(&mut self) {
        for from in 0..2 {
            let mut bytes = vec![];
            while self.ends[from].endpoint.poll_transmit(self.now, &mut bytes).is_some() {
                self.under_way.push(Datagram { to: 1 - from, bytes: std::mem::take(&mut bytes) });
            }
        }
        let lost = self.under_way.len().saturating_sub(MOST_UNDER_WAY);
        drop(self.under_way.drain(..lost));
    }

    /// Checks the events of the ends against what may be true. The receiver's events come first: it
    /// hears of a message before its peer does.
    fn look(&mut self) {
        for end in 0..2 {
            self.look_at_sums(end);
            while let Some(event) = self.ends[end].endpoint.poll_event() {
                self.look_at(end, event);
            }
            let usage = self.ends[end].endpoint.usage();
            let processes = self.starts as usize + 2;
            assert!(usage.links <= processes && usage.sessions <= 4 * usage.links, "{usage:?}");
            assert!(usage.held_bytes <= HELD_BYTES, "{usage:?}");
            assert!(self.ends[end].waiting.len() <= 2 * MESSAGE_WINDOW as usize);
        }
    }

    fn look_at(&mut self, end: usize, event: EndpointEvent) {
        match event {
            EndpointEvent::Written { rkey, offset, bytes, immediate, .. } => {
                let range = offset..offset + u64::from(bytes);
                self.look_at_whole(end, rkey, range, immediate);
            }
            EndpointEvent::Received { rkey, immediate, data, .. } => {
                let range = 0..data.len() as u64;
                let mut own =
                    self.written[end].iter().filter(|(r, w, _)| (*r, w) == (rkey, &range));
                let same = |serial: u32| (0..).zip(&data).all(|(at, b)| *b == byte(serial, at));
                assert!(own.any(|(.., serial)| same(*serial)), "nobody wrote that message");
                self.look_at_whole(end, rkey, range, immediate);
            }
            EndpointEvent::Completed { peer, message } => {
                let asked = self.ends[end].answered(peer, message);
                let done = asked.iter().any(|asked| self.is_done(1 - end, asked));
                assert!(done, "{asked:?} is reported as done, and is not");
            }
            EndpointEvent::Refused { peer, message, .. } => {
                drop(self.ends[end].answered(peer, message))
            }
            EndpointEvent::Unreachable { peer, .. } => self.ends[end].fail(peer),
            EndpointEvent::ChunkClosed { .. }
            | EndpointEvent::Staged { .. }
            | EndpointEvent::Stranger { .. } => {}
        }
    }

    /// Checks a message that became whole at an end: someone wrote it, and its immediate is new.
    fn look_at_whole(&mut self, end: usize, rkey: u32, range: Range<u64>, immediate: Option<u32>) {
        let same = |(r, w, serial): &&Written| {
            (*r, w) == (rkey, &range) && immediate.is_none_or(|told| told == *serial)
        };
        let empty = range.is_empty();
        assert!(self.written[end].iter().any(|w| same(&w)) || empty, "nobody wrote {range:?}");
        if let Some(serial) = immediate {
            assert!(self.ends[end].came.insert(serial), "immediate {serial} twice");
        }
        self.whole[end].push((rkey, range, immediate));
    }

    /// Returns whether something that was asked for has been done.
    fn is_done(&self, at: usize, asked: &Asked) -> bool {
        match asked {
            Asked::Write { rkey, offset, bytes, serial, immediate } => {
                let range = *offset..*offset + *bytes as u64;
                self.whole[at].contains(&(*rkey, range, immediate.then_some(*serial)))
            }
            // Of what a contributor sent twice the first counts.
            Asked::Sum { chunks, mark } => chunks.clone().all(|chunk| {
                let mut added = self.added[at].iter();
                added.any(|(other, [contributor, _])| (*other, *contributor) == (chunk, mark[0]))
            }),
        }
    }

    /// Checks that every contribution is in a sum once, and its bit is set.
    fn look_at_sums(&mut self, end: usize) {
        let all = (0..CHUNKS).flat_map(|c| (0..CONTRIBUTORS).map(move |n| (c, n)));
        // A look at the region settles the additions that wait.
        let region = self.ends[end].endpoint.sum_region(SUM).ok();
        let bits = region.map(|r| all.filter(|(c, n)| r.has(*c, *n)).collect::<BTreeSet<_>>());
        let ledger = self.ends[end].ledger.0.lock().expect("one thread").clone();
        let mut own = BTreeSet::new();
        for (chunk, mark) in &ledger {
            let contributor = u16::from(mark[0]);
            assert!(own.insert((*chunk, contributor)), "{contributor} twice in chunk {chunk}");
        }
        self.added[end].extend(ledger);
        assert!(bits.is_none_or(|bits| bits == own), "bits without additions, or these without");
    }

    /// Checks that every byte of memory is 0 or one that was written there.
    fn look_at_memory(&self) {
        for (end, written) in self.ends.iter().zip(&self.written) {
            for rkey in MEMORY {
                let Ok(memory) = end.endpoint.memory(rkey) else { continue };
                let own: Vec<_> = written.iter().filter(|(of, ..)| *of == rkey).collect();
                for (at, found) in (0..).zip(memory).filter(|(_, found)| *found != 0) {
                    let is =
                        |(_, w, serial): &&&Written| w.contains(&at) && byte(*serial, at) == found;
                    assert!(own.iter().any(|w| is(&w)), "byte {at} of region {rkey} is {found}");
                }
            }
        }
    }

    /// Mends the link: everything that waits is answered or given up.
    fn recover(&mut self) {
        for _ in 0..4000 {
            if self.ends.iter().all(|end| end.waiting.is_empty()) {
                return;
            }
            self.collect();
            self.deliver(usize::MAX);
            self.wait(Duration::from_millis(10));
        }
        panic!("{:?} and {:?} wait for ever", self.ends[0].waiting, self.ends[1].waiting);
    }
}

/// Runs one script.
pub(crate) fn run(bytes: &[u8]) {
    let mut world = World::new();
    let mut script = Script(&bytes[..bytes.len().min(MOST_BYTES)]);
    while !script.0.is_empty() {
        world.step(&mut script);
    }
    world.look_at_memory();
    world.recover();
    world.look_at_memory();
}
