//! Handshakes, which give links their sessions (PROTOCOL §8).

use std::net::SocketAddr;

use rand_chacha::ChaCha20Rng;
use rand_core::{Rng, SeedableRng};
use zeroize::Zeroizing;

use crate::proto::event::{Cause, EndpointEvent, Peer, Stranger};
use crate::proto::link::{HELLO_SPAN, Handshake, MAX_HELLO_SPAN};
use crate::proto::lock::lock;
use crate::proto::path::Route;
use crate::proto::secure::{
    Admission, Cookie, HELLO_BYTES, Hello, Initiator, SessionSecrets, TransportParameters,
};
use crate::proto::shared::{ChannelId, MAX_PIPELINES, PipelineCommand, SessionPart};
use crate::proto::time::Time;

use super::{Endpoint, MAX_HANDSHAKE_DATAGRAMS, MAX_UNCONFIRMED, Pipeline};

impl Endpoint {
    /// Draws an index that no session of ours has. Its lowest bits are the channel's; the byte
    /// below it in a datagram is the epoch's.
    fn fresh_index(&mut self) -> u32 {
        loop {
            let index = self.rng.next_u32() >> 8 & !(u32::from(MAX_PIPELINES) - 1);
            let sessions = self.pipelines.first().map(Pipeline::sessions);
            let taken = sessions.is_some_and(|sessions| sessions.contains_key(&index));
            if index != 0 && !taken && !self.indices.contains_key(&index) {
                return index;
            }
        }
    }

    /// Counts the indices of handshakes under way, and of sessions of first channels.
    pub(super) fn session_count(&self) -> usize {
        let sessions = self.pipelines.iter().flat_map(|pipeline| pipeline.sessions().values());
        self.indices.len() + sessions.filter(|id| id.channel == 0).count()
    }

    fn queue_handshake(&mut self, to: Route, bytes: Vec<u8>) {
        if self.handshakes.len() < MAX_HANDSHAKE_DATAGRAMS {
            self.handshakes.push_back((to, bytes));
        }
    }

    /// Sends a HELLO to the node at the other end of a link, anew if one is under way.
    pub(super) fn send_hello(&mut self, now: Time, id: u32) {
        let index = self.fresh_index();
        let Some(link) = self.links.get_mut(&id) else { return };
        let Some((addr, _)) = self.contacts.get(&link.peer.node) else { return };
        let former = link.handshake.take();
        let (began, attempts, socket, cookie) = former.map_or((now, 0, 0, None), |former| {
            self.indices.remove(&former.index);
            (former.began, former.attempts + 1, former.socket, former.cookie)
        });
        self.hellos += 1;
        let sockets = self.config.sockets();
        // A cookie is for the address that it came to.
        let socket = if cookie.is_some() { socket } else { attempts };
        let to = Route { via: (socket % u32::from(sockets)) as u16, ..Route::from(*addr) };
        let me = (&self.config.identity, self.config.incarnation.get(), self.hellos);
        let mut bytes = vec![];
        let parameters = TransportParameters {
            suite: self.config.suite,
            sockets,
            pipelines: self.config.pipelines,
        };
        reseed(&mut self.rng, self.config.entropy);
        let (node, rng, out) = (link.peer.node, &mut self.rng, &mut bytes);
        let initiator =
            Initiator::hello(me, node, index, &parameters, cookie.as_ref(), rng, out).ok();
        let wait = (HELLO_SPAN * (1 << attempts.min(8))).min(MAX_HELLO_SPAN);
        let sent = initiator.is_some();
        let next = now + wait;
        let handshake = Handshake { initiator, index, began, next, attempts, socket, cookie };
        link.handshake = Some(Box::new(handshake));
        if sent {
            self.indices.insert(index, id);
            self.queue_handshake(to, bytes);
        }
    }

    /// Answers a HELLO. A sender that does not show that it knows our key gets silence, and one
    /// that may not talk to us costs no state.
    pub(super) fn on_hello(&mut self, now: Time, from: Route, bytes: &[u8]) {
        self.stats.handshakes += 1;
        self.drain_confirmed();
        let Some(hello) = self.admit_hello(now, from, bytes) else {
            self.stats.turned_away += 1;
            return;
        };
        let peer = Peer { node: hello.node, incarnation: hello.incarnation };
        let Some(id) = self.link_for(now, peer) else {
            self.stats.overrun += 1;
            return;
        };
        let Some(link) = self.links.get_mut(&id) else { return };
        // Of two HELLOs that cross, the one with the lower key is answered. And a recorded one that
        // comes again must not take the place of the handshake under way.
        let crossing = link.handshake.is_some() && self.config.identity.id() < peer.node;
        if crossing || (link.peer == peer && hello.number <= link.hello) {
            self.stats.duplicates += 1;
            return;
        }
        link.hello = hello.number;
        if let Some(index) = link.cancel_handshake() {
            self.indices.remove(&index);
        }
        self.welcome(id, from, peer, hello);
    }

    /// Opens a HELLO of a node that may talk to us. Under load it is answered by a cookie first. A node that
    /// may not is declined, if anyone may.
    fn admit_hello(&mut self, now: Time, from: Route, bytes: &[u8]) -> Option<Hello> {
        if bytes.len() != HELLO_BYTES {
            return None;
        }
        if !self.gate.knows_us(bytes) {
            if self.gate.suspects(from.addr.ip()) {
                self.report_stranger(now, from, Stranger::WrongKey);
            }
            return None;
        }
        self.gate.trusts(from.addr.ip());
        let admission = self.gate.admits(now, from.addr, bytes, &mut self.rng);
        if admission == Admission::Ask {
            let mut cookie = vec![];
            if self.gate.answer(from.addr, bytes, &mut self.rng, &mut cookie).is_ok() {
                self.queue_handshake(from, cookie);
            }
        }
        if admission != Admission::Welcome {
            return None;
        }
        reseed(&mut self.rng, self.config.entropy);
        let hello = Hello::open(&self.config.identity, bytes, &mut self.rng).ok()?;
        if self.config.allow.contains(&hello.node) {
            return Some(hello);
        }
        self.report_stranger(now, from, Stranger::Unlisted(hello.node));
        let mut answer = vec![];
        let is_declined = !self.config.allow.is_empty() && self.gate.declines();
        if is_declined && hello.decline(&mut answer).is_ok() {
            self.queue_handshake(from, answer);
        }
        None
    }

    /// Reports somebody who gets no session, now and then, if anyone may contact us.
    fn report_stranger(&mut self, now: Time, from: Route, stranger: Stranger) {
        let from = from.addr;
        if !self.config.allow.is_empty() && self.gate.reports(now, from.ip(), stranger) {
            self.shared.report(0, [EndpointEvent::Stranger { from, stranger }]);
        }
    }

    /// Returns the link to a process that contacts us, or adds one if there is space.
    fn link_for(&mut self, now: Time, peer: Peer) -> Option<u32> {
        let contact = self.contacts.get(&peer.node).and_then(|(_, link)| link.as_ref());
        let known = self.peers.get(&peer).or(contact).copied();
        known.filter(|id| self.is_link_to(*id, peer)).or_else(|| self.welcome_link(now, peer))
    }

    /// Answers a HELLO with a WELCOME, and offers the session to the peer's channels.
    fn welcome(&mut self, id: u32, from: Route, peer: Peer, hello: Hello) {
        let index = self.fresh_index();
        let mut answer = vec![];
        let (channels, sockets) = (hello.pipelines.max(self.config.pipelines), hello.sockets);
        let incarnation = self.config.incarnation.get();
        let Ok(secrets) = hello.accept(incarnation, index, &self.config.ports, &mut answer) else {
            return;
        };
        let Some(link) = self.links.get_mut(&id) else { return };
        let offered = link.offered.replace(Box::new((peer, index, channels)));
        // Offers to another process are void.
        let fewer = link.peer.incarnation == 0 && offered.is_some_and(|offered| offered.0 != peer);
        let now = if fewer { channels } else { channels.max(link.channels) };
        let before = std::mem::replace(&mut link.channels, now);
        self.end_channels(id, now..before);
        for part in self.parts(id, peer, &secrets, channels, None, sockets) {
            self.shared.send(0, part.id.channel, PipelineCommand::Offer(Box::new(part)));
        }
        self.pipelines.iter_mut().for_each(Pipeline::drain_commands);
        self.queue_handshake(from, answer);
    }

    /// Returns a session's parts, one for each channel.
    fn parts(
        &self,
        id: u32,
        peer: Peer,
        secrets: &SessionSecrets,
        channels: u16,
        ports: Option<&[u16]>,
        paths: u16,
    ) -> Vec<SessionPart> {
        let Some(link) = self.links.get(&id) else { return vec![] };
        let contact = self.contacts.get(&peer.node).zip(ports);
        let part = |channel: u16| {
            // Each of the peer's pipelines listens at a port of its own. A peer that contacts us
            // sends first.
            let addr = contact.map(|((first, _), ports)| {
                match (usize::from(channel) % (1 + ports.len())).checked_sub(1) {
                    Some(at) => SocketAddr::new(first.ip(), ports[at]),
                    None => *first,
                }
            });
            let (id, session) = (ChannelId { link: id, channel }, secrets.channel(channel));
            SessionPart { id, peer, session, messages: link.messages.clone(), addr, paths }
        };
        (0..channels).map(part).collect()
    }

    /// Returns whether a link is to that process, or to whichever answers first.
    fn is_link_to(&self, id: u32, peer: Peer) -> bool {
        self.links.get(&id).is_some_and(|link| link.peer == peer || link.peer.incarnation == 0)
    }

    /// Adds a link for an unknown process. If too many are unconfirmed, the oldest of them is
    /// forgotten.
    fn welcome_link(&mut self, now: Time, peer: Peer) -> Option<u32> {
        let waiting = self.links.iter().filter(|(_, link)| link.is_unconfirmed());
        let waiting: Vec<_> =
            waiting.map(|(id, link)| (link.messages.last_received(), *id)).collect();
        if let Some((_, oldest)) = waiting.iter().min()
            && waiting.len() >= MAX_UNCONFIRMED
        {
            self.forget(*oldest);
        }
        let id = self.add_link(now, peer, false)?;
        self.peers.insert(peer, id);
        Some(id)
    }

    /// Notes that a peer has begun the session that it was offered.
    pub(super) fn on_confirmed(&mut self, id: u32, index: u32) {
        let Some(link) = self.links.get_mut(&id) else { return };
        // The channel's part of an index is not the link's; and another channel may have confirmed
        // already.
        let index = index & !(u32::from(MAX_PIPELINES) - 1);
        let Some(offered) = link.offered.take_if(|offered| offered.1 == index) else { return };
        let (peer, _, channels) = *offered;
        link.peer = peer;
        self.peers.insert(peer, id);
        self.establish(id, channels);
    }

    /// Notes that a link has a session with `channels` channels.
    fn establish(&mut self, id: u32, channels: u16) {
        let Some(link) = self.links.get_mut(&id) else { return };
        link.established = true;
        link.channels = link.channels.max(channels);
        if let Some(index) = link.cancel_handshake() {
            self.indices.remove(&index);
        }
    }

    /// Takes the answer to a HELLO of ours.
    pub(super) fn on_welcome(&mut self, now: Time, from: Route, index: u32, bytes: &[u8]) {
        self.stats.handshakes += 1;
        self.drain_confirmed();
        let Some(id) = self.indices.get(&index).copied() else { return };
        let Some(link) = self.links.get_mut(&id) else { return };
        let Some(handshake) = link.handshake.as_mut().filter(|g| g.index == index) else { return };
        let Some(initiator) = &mut handshake.initiator else { return };
        let Ok(welcome) = initiator.welcome(&self.config.identity, bytes) else {
            self.stats.malformed += 1;
            return;
        };
        let peer = Peer { node: link.peer.node, incarnation: welcome.incarnation };
        let former = link.peer;
        link.handshake = None;
        link.messages.on_received(now);
        let restarted = former.incarnation != 0 && former != peer;
        // Or a process that was offered a session here had begun it, and is gone.
        if restarted || !link.messages.claim(peer) {
            self.peers.remove(&former);
            self.on_restarted(now, id);
        }
        // The peer may have contacted us first.
        if let Some(other) = self.peers.get(&peer).copied().filter(|other| *other != id) {
            self.merge(id, other);
        }
        self.peers.insert(peer, id);
        let channels = self.config.pipelines.max(1 + welcome.ports.len() as u16);
        if let Some(link) = self.links.get_mut(&id) {
            link.peer = peer;
            // Channels beyond their new number end.
            let before = std::mem::replace(&mut link.channels, channels);
            self.end_channels(id, channels..before);
        }
        self.establish(id, channels);
        self.indices.remove(&index);
        let sockets = self.config.sockets();
        let ports = Some(&welcome.ports[..]);
        for part in self.parts(id, peer, &welcome.secrets, channels, ports, sockets) {
            self.shared.send(0, part.id.channel, PipelineCommand::Begin(Box::new(part), now, from));
        }
        self.pipelines.iter_mut().for_each(Pipeline::drain_commands);
    }

    /// Starts a link anew for another process of its node: all unanswered messages have failed, and
    /// none of its own is known yet.
    fn on_restarted(&mut self, now: Time, id: u32) {
        self.fail(id, Cause::Restarted);
        let Some(link) = self.links.get_mut(&id) else { return };
        let outbox = lock(&link.messages.outbox).successor();
        link.messages = self.shared.messages(now, outbox);
        // Offers by the process before are void.
        link.hello = 0;
        link.offered = None;
    }

    /// Replaces another link to the same process: messages from that process are known there,
    /// messages to it are known here.
    fn merge(&mut self, id: u32, other: u32) {
        let Some(gone) = self.links.get(&other) else { return };
        let messages = gone.messages.clone();
        if !messages.is_idle() {
            self.fail(other, Cause::Silence);
        }
        let Some(link) = self.links.get_mut(&id) else { return };
        let own = std::mem::replace(&mut link.messages, messages.clone());
        let (mut from, mut into) = (lock(&own.outbox), lock(&messages.outbox));
        let theirs = into.next_message();
        let successor = from.successor();
        *into = std::mem::replace(&mut *from, successor);
        into.requeue_all();
        // Or a message would have the id of one that is answered, and be reported as done.
        into.skip_to(self.first_message.max(theirs));
        drop((from, into));
        self.forget(other);
    }

    /// Takes the word of a node that we contacted that it does not allow ours. Nothing will be answered.
    pub(super) fn on_decline(&mut self, index: u32, bytes: &[u8]) {
        self.stats.handshakes += 1;
        let Some(id) = self.indices.get(&index).copied() else { return };
        let Some(link) = self.links.get_mut(&id) else { return };
        let Some(handshake) = link.handshake.as_mut().filter(|g| g.index == index) else { return };
        let Some(initiator) = &mut handshake.initiator else { return };
        if initiator.declined(&self.config.identity, bytes).is_err() {
            self.stats.malformed += 1;
            return;
        }
        link.established = false;
        if let Some(gone) = link.cancel_handshake() {
            self.indices.remove(&gone);
        }
        self.fail(id, Cause::Unlisted);
    }

    /// Takes the cookie with which a responder under load asks whether we receive at our address.
    pub(super) fn on_cookie(&mut self, now: Time, index: u32, bytes: &[u8]) {
        self.stats.handshakes += 1;
        let Some(id) = self.indices.get(&index).copied() else { return };
        let Some(link) = self.links.get_mut(&id) else { return };
        let Some(handshake) = link.handshake.as_mut().filter(|g| g.index == index) else { return };
        let Some(initiator) = &handshake.initiator else { return };
        match Cookie::read(link.peer.node, initiator.mac(), bytes) {
            // The first is used at once; another one is no better.
            Ok(cookie) => {
                if handshake.cookie.replace(cookie).is_none() {
                    self.send_hello(now, id);
                }
            }
            Err(_) => self.stats.malformed += 1,
        }
    }
}

/// Reseeds the generator with its next 32 bytes and as many of entropy.
fn reseed(rng: &mut ChaCha20Rng, entropy: fn() -> [u8; 32]) {
    let mut seed = Zeroizing::new([0; 32]);
    rng.fill_bytes(&mut *seed);
    let entropy = Zeroizing::new(entropy());
    seed.iter_mut().zip(entropy.iter()).for_each(|(byte, more)| *byte ^= more);
    *rng = ChaCha20Rng::from_seed(*seed);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two copies of a running process go on apart; a simulated one goes on as its seed says.
    #[test]
    fn a_copy_with_other_entropy_draws_other_keys() {
        let draw = |entropy| {
            let mut rng = ChaCha20Rng::from_seed([7; 32]);
            reseed(&mut rng, entropy);
            rng.next_u64()
        };
        assert_ne!(draw(|| [1; 32]), draw(|| [2; 32]));
        assert_eq!(draw(|| [0; 32]), draw(|| [0; 32]));
    }
}
