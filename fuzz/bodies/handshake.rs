//! Handshakes with whatever a network, or a stranger who knows the responder's key, makes of them.
//!
//! The bytes are a script. Node 1 is the one tried: node 2 may talk to it, node 3 may not, and all three
//! know each other's keys. Whatever happens, node 1 does not panic, keeps nothing for node 3, and what it
//! keeps has a bound; nobody but node 3 is declined; and when the trouble is over, node 2 still gets through to it.

use std::{net::SocketAddr, num::NonZeroU32, time::Duration};

use ciphergram_nic::proto::{
    Cause, Config, Endpoint, EndpointEvent, Identity, NodeId, Peer, Time,
    endpoint::{MAX_HANDSHAKE_DATAGRAMS, MAX_PEERS, MAX_UNCONFIRMED},
};

/// Bytes of a script that are looked at, so that a run stays short.
const MOST_BYTES: usize = 400;
/// Datagrams of handshakes that are remembered, to be changed and said again.
const MOST_DATAGRAMS: usize = 64;
/// How often a script may have node 2 begin anew.
const MOST_STARTS: u32 = 8;

/// The nodes by their place in the world.
const TRIED: usize = 0;
const FRIEND: usize = 1;
const STRANGER: usize = 2;

/// A script, 0 where it has ended.
struct Script<'a>(&'a [u8]);

impl Script<'_> {
    fn next(&mut self) -> usize {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        usize::from(*first)
    }
}

fn identity(place: usize) -> Identity {
    Identity::from_secret(&[place as u8 + 1; 32]).expect("any secret is a key")
}

fn node(place: usize) -> NodeId {
    identity(place).id()
}

fn addr(place: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, place as u8 + 1], 7))
}

fn endpoint(place: usize, incarnation: u32) -> Endpoint {
    let number = NonZeroU32::new(incarnation).expect("from 1 on");
    let config = Config::new(identity(place), number, [incarnation as u8 * 4 + place as u8; 32]);
    let allow = [node(TRIED), node(FRIEND)].into();
    let mut endpoint = Endpoint::new(Config { allow, ..config }).expect("sizes are the defaults");
    let known = if place == TRIED { FRIEND } else { TRIED };
    endpoint.contact(node(known), addr(known));
    endpoint.register_memory(1, 64, None).expect("nothing is registered yet");
    endpoint
}

struct World {
    now: Time,
    ends: [Endpoint; 3],
    starts: u32,
    /// Handshakes said so far.
    said: Vec<Vec<u8>>,
}

impl World {
    /// Gives bytes to an end as if from an address; node 1 must stand it.
    fn give(&mut self, to: usize, from: usize, mut bytes: Vec<u8>) {
        self.ends[to].handle_datagram(self.now, addr(from % 4), &mut bytes);
        self.check();
    }

    fn check(&self) {
        let usage = self.ends[TRIED].usage();
        assert_eq!(self.ends[TRIED].links_to(node(STRANGER)), 0, "a link for a stranger");
        // One for each process of node 2, and one that is not confirmed to be the same.
        let processes = self.starts as usize + 1;
        assert!(usage.links <= processes.min(MAX_PEERS), "{usage:?} of {processes} processes");
        assert!(usage.unconfirmed <= MAX_UNCONFIRMED, "{usage:?}");
        // The present session, the one before, one offered, a handshake under way.
        assert!(usage.sessions <= 4 * usage.links, "{usage:?}");
        assert!(usage.handshakes <= MAX_HANDSHAKE_DATAGRAMS, "{usage:?}");
        for end in &self.ends[..STRANGER] {
            assert!(end.usage().links <= processes + 1, "{:?}", end.usage());
        }
    }

    /// Takes all datagrams that an end has to send: remembered, and delivered or lost.
    fn speak(&mut self, from: usize, arrives: bool) {
        let mut bytes = vec![];
        for _ in 0..2 * MAX_HANDSHAKE_DATAGRAMS {
            let Some(to) = self.ends[from].poll_transmit(self.now, &mut bytes) else { return };
            let bytes = std::mem::take(&mut bytes);
            if bytes.get(3).is_some_and(|code| *code >= 16) {
                self.said.truncate(MOST_DATAGRAMS - 1);
                self.said.insert(0, bytes.clone());
            }
            let to = (0..3).find(|place| addr(*place) == to.addr);
            if let Some(to) = to.filter(|_| arrives) {
                self.give(to, from, bytes);
            }
        }
    }

    fn wait(&mut self, span: Duration) {
        self.now = self.now + span;
        for end in &mut self.ends {
            end.handle_timeout(self.now);
            while let Some(event) = end.poll_event() {
                match event {
                    EndpointEvent::Completed { peer, .. } => {
                        assert!(peer.node != node(STRANGER), "a stranger got something done");
                    }
                    EndpointEvent::Unreachable { cause: Cause::Unlisted, .. } => {
                        assert!(end.node() == node(STRANGER), "a friend was declined");
                    }
                    _ => {}
                }
            }
        }
        self.check();
    }

    /// Returns a datagram sent before, or nothing.
    fn recall(&self, which: usize) -> Vec<u8> {
        self.said.get(which % self.said.len().max(1)).cloned().unwrap_or_default()
    }

    fn step(&mut self, script: &mut Script<'_>) {
        let op = script.next();
        let (to, from) = ([TRIED, TRIED, TRIED, FRIEND][op >> 4 & 3], op >> 6);
        match op % 16 {
            // Arbitrary bytes, as they are or behind the prefix of a handshake, as long as one.
            0 => {
                let bytes: Vec<u8> = (0..script.next() % 40).map(|_| script.next() as u8).collect();
                self.give(to, from, bytes);
            }
            1 | 2 => {
                let kind = script.next() % 5;
                let mut bytes = vec![b'C', b'G', 3, 16 + kind as u8];
                bytes.extend((0..script.next() % 40).map(|_| script.next() as u8));
                bytes.resize([148, 110, 52, 73, 12][kind], script.next() as u8);
                self.vouch(to, &mut bytes, op % 16 == 2);
                self.give(to, from, bytes);
            }
            // A genuine one, changed, with a MAC that anyone can make or without.
            3..=5 => {
                let mut bytes = self.recall(script.next());
                for _ in 0..=script.next() % 3 {
                    let (at, flip) = (script.next(), script.next() as u8);
                    let length = bytes.len().max(1);
                    if let Some(byte) = bytes.get_mut(at % length) {
                        *byte ^= flip;
                    }
                }
                if script.next() % 8 == 7 {
                    bytes.truncate(script.next());
                }
                self.vouch(to, &mut bytes, op % 16 > 3);
                self.give(to, from, bytes);
            }
            // Again, from anywhere.
            6 | 7 => {
                let bytes = self.recall(script.next());
                self.give(to, from, bytes);
            }
            // Many at once: that is load, and asks for cookies.
            8 => {
                let bytes = self.recall(script.next());
                for _ in 0..40 * (script.next() % 8) {
                    self.give(to, from, bytes.clone());
                }
            }
            // Someone has something to say: node 1 too.
            9 | 10 => {
                let (from, to) = [(FRIEND, TRIED), (TRIED, FRIEND), (STRANGER, TRIED)][op / 16 % 3];
                // Without room for it, it is left out.
                let data = vec![op as u8; 8].into();
                let _ = self.ends[from].write(self.now, Peer::of(node(to)), 1, 0, data, Some(1));
            }
            11 | 12 => self.speak(op / 16 % 3, op & 64 == 0),
            13 | 14 => self.wait(Duration::from_millis([1, 120, 600, 6_000, 70_000][op / 16 % 5])),
            _ if self.starts < MOST_STARTS => {
                self.starts += 1;
                self.ends[FRIEND] = endpoint(FRIEND, self.starts);
            }
            _ => {}
        }
    }

    /// Makes a HELLO's first MAC right, or a WELCOME's, as all can who know the receiver's key.
    fn vouch(&self, to: usize, bytes: &mut [u8], wanted: bool) {
        let behind = if bytes.get(3) == Some(&16) { 16 } else { 0 };
        let Some(at) = bytes.len().checked_sub(behind + 16).filter(|_| wanted) else { return };
        let key = blake3::derive_key("ciphergram 5 first mac", &node(to).0);
        let mac = blake3::keyed_hash(&key, &bytes[..at]);
        bytes[at..at + 16].copy_from_slice(&mac.as_bytes()[..16]);
    }

    /// Runs a network without faults: the datagrams of node 2 arrive.
    fn recover(&mut self) {
        // An end that gave node 2 up has done so by now, and no load is left.
        (0..8).for_each(|_| self.wait(Duration::from_secs(10)));
        let peer = Peer::of(node(TRIED));
        let data = vec![7; 8].into();
        let mine = self.ends[FRIEND].write(self.now, peer, 1, 0, data, Some(9));
        let mine = mine.expect("what waited has failed long ago");
        for _ in 0..400 {
            (0..3).for_each(|from| self.speak(from, true));
            self.now = self.now + Duration::from_millis(20);
            self.ends.iter_mut().for_each(|end| end.handle_timeout(self.now));
            while let Some(event) = self.ends[FRIEND].poll_event() {
                if matches!(event, EndpointEvent::Completed { message, .. } if message == mine) {
                    return;
                }
            }
        }
        panic!("node 2 no longer gets through: {:?}", self.ends[TRIED].usage());
    }
}

/// Runs one script.
pub(crate) fn run(bytes: &[u8]) {
    let ends = [TRIED, FRIEND, STRANGER].map(|place| endpoint(place, 1));
    let mut world = World { now: Time::ZERO, ends, starts: 1, said: vec![] };
    let mut script = Script(&bytes[..bytes.len().min(MOST_BYTES)]);
    while !script.0.is_empty() {
        world.step(&mut script);
    }
    world.recover();
}
