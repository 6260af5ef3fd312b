//! Handshakes: how links come by their sessions (PROTOCOL §8).

use rand_core::Rng;

use crate::proto::event::{Cause, Peer};
use crate::proto::link::{Greeting, HELLO_SPAN, Link, MAX_HELLO_SPAN};
use crate::proto::path::Route;
use crate::proto::secure::{Admission, Cookie, HELLO_BYTES, Hello, Initiator, Session};
use crate::proto::time::Time;

use super::{Endpoint, MAX_GREETINGS, MAX_UNCONFIRMED};

impl Endpoint {
    /// An index that no session of ours has; its lowest byte is an epoch's.
    fn fresh_index(&mut self) -> u32 {
        loop {
            let index = self.rng.next_u32() >> 8;
            if index != 0 && !self.sessions.contains_key(&index) {
                return index;
            }
        }
    }

    fn send_greeting(&mut self, to: Route, bytes: Vec<u8>) {
        if self.greetings.len() < MAX_GREETINGS {
            self.greetings.push_back((to, bytes));
        }
    }

    /// Says HELLO to the node at the other end of a link, again if need be.
    pub(super) fn greet(&mut self, now: Time, id: u32) {
        let index = self.fresh_index();
        let Some(link) = self.links.get_mut(&id) else { return };
        let former = link.greeting.take();
        let (attempts, way, cookie) = former.map_or((0, 0, None), |former| {
            self.sessions.remove(&former.index);
            (former.attempts + 1, former.way, former.cookie)
        });
        self.hellos += 1;
        if let Some((addr, _)) = self.contacts.get(&link.peer.node) {
            link.sender.paths.aim(*addr);
        }
        // A cookie is for the address that it came to.
        let way = if cookie.is_some() { way } else { attempts };
        let (to, node) = (link.sender.paths.greets(way), link.peer.node);
        let me = (&self.config.identity, self.config.incarnation.get(), self.hellos);
        let mut bytes = vec![];
        let terms = (self.config.suite, self.config.sockets());
        let (rng, out) = (&mut self.rng, &mut bytes);
        let initiator = Initiator::hello(me, node, index, terms, cookie.as_ref(), rng, out).ok();
        let wait = (HELLO_SPAN * (1 << attempts.min(8))).min(MAX_HELLO_SPAN);
        let sent = initiator.is_some();
        let next = now + wait;
        let greeting = Greeting { initiator, index, next, attempts, way, cookie };
        link.greeting = Some(Box::new(greeting));
        if sent {
            self.sessions.insert(index, id);
            self.send_greeting(to, bytes);
        }
    }

    /// Someone wants to talk to us. Until it shows that it knows our key it gets silence; until it
    /// is one that may, it costs no state.
    pub(super) fn on_hello(&mut self, now: Time, from: Route, bytes: &[u8]) {
        if bytes.len() != HELLO_BYTES || !self.gate.knows_us(bytes) {
            self.stats.turned_away += 1;
            return;
        }
        let admission = self.gate.admits(now, from.addr, bytes, &mut self.rng);
        if admission == Admission::Ask {
            let mut cookie = vec![];
            if self.gate.answer(from.addr, bytes, &mut self.rng, &mut cookie).is_ok() {
                self.send_greeting(from, cookie);
            }
        }
        if admission != Admission::Welcome {
            self.stats.turned_away += 1;
            return;
        }
        let hello = Hello::open(&self.config.identity, bytes, &mut self.rng);
        let Some(hello) = hello.ok().filter(|hello| self.config.allow.contains(&hello.node)) else {
            self.stats.turned_away += 1;
            return;
        };
        let peer = Peer { node: hello.node, incarnation: hello.incarnation };
        let contact = self.contacts.get(&peer.node).and_then(|(_, link)| link.as_ref());
        let known = self.peers.get(&peer).or(contact).copied();
        let known = known.filter(|id| self.greets_alone(*id, peer));
        let Some(id) = known.or_else(|| self.welcome_link(now, peer, from)) else {
            self.stats.overrun += 1;
            return;
        };
        let Some(link) = self.links.get_mut(&id) else { return };
        // Of two who greet each other at once, the one with the lower key is answered. And what was
        // recorded and comes again must not take the place of what is under way.
        let crossing = link.greeting.is_some() && self.config.identity.id() < peer.node;
        if crossing || (link.peer == peer && hello.number <= link.hello) {
            self.stats.duplicates += 1;
            return;
        }
        link.hello = hello.number;
        link.sender.paths.admit_up_to(usize::from(hello.paths));
        if let Some(index) = link.drop_greeting() {
            self.sessions.remove(&index);
        }
        let index = self.fresh_index();
        let mut answer = vec![];
        let Ok(session) = hello.accept(self.config.incarnation.get(), index, &mut answer) else {
            return;
        };
        let Some(link) = self.links.get_mut(&id) else { return };
        if let Some(former) = link.offered.replace(Box::new((peer, session))) {
            self.sessions.remove(&former.1.local());
        }
        self.sessions.insert(index, id);
        self.send_greeting(from, answer);
    }

    /// Whether a link is to that process, or to whichever answers first.
    fn greets_alone(&self, id: u32, peer: Peer) -> bool {
        self.links.get(&id).is_some_and(|link| link.peer == peer || link.peer.incarnation == 0)
    }

    /// A link for a process that nothing is known of. If too many wait to be confirmed, the oldest of
    /// them gives way.
    fn welcome_link(&mut self, now: Time, peer: Peer, from: Route) -> Option<u32> {
        let waits = |link: &Link| link.session.is_none() && link.offered.is_some();
        let waiting = self.links.iter().filter(|(_, link)| waits(link));
        let waiting: Vec<_> = waiting.map(|(id, link)| (link.heard, *id)).collect();
        if let Some((_, oldest)) = waiting.iter().min()
            && waiting.len() >= MAX_UNCONFIRMED
        {
            self.forget(*oldest);
        }
        let id = self.add_link(now, peer, &[from], false)?;
        self.peers.insert(peer, id);
        Some(id)
    }

    /// The answer to a HELLO of ours.
    pub(super) fn on_welcome(&mut self, now: Time, from: Route, index: u32, bytes: &[u8]) {
        let Some(id) = self.sessions.get(&index).copied() else { return };
        let Some(link) = self.links.get_mut(&id) else { return };
        let Some(greeting) = link.greeting.as_mut().filter(|g| g.index == index) else { return };
        let Some(initiator) = &mut greeting.initiator else { return };
        let Ok(welcome) = initiator.welcome(&self.config.identity, bytes) else {
            self.stats.malformed += 1;
            return;
        };
        let peer = Peer { node: link.peer.node, incarnation: welcome.incarnation };
        let former = link.peer;
        link.greeting = None;
        link.sender.paths.hear(now, from);
        link.sender.paths.wake_heard();
        (link.greeted, link.heard) = (now, now);
        if former.incarnation != 0 && former != peer {
            self.fail(id, Cause::Restarted);
            self.peers.remove(&former);
            if let Some(link) = self.links.get_mut(&id) {
                self.held -= std::mem::take(&mut link.receiver).held_bytes();
                // What the process before had offered.
                link.hello = 0;
                if let Some(offer) = link.offered.take() {
                    self.sessions.remove(&offer.1.local());
                }
            }
        }
        // It may have found us first.
        if let Some(other) = self.peers.get(&peer).copied().filter(|other| *other != id) {
            self.absorb(id, other);
        }
        self.peers.insert(peer, id);
        if let Some(link) = self.links.get_mut(&id) {
            link.peer = peer;
        }
        self.begin(id, welcome.session);
        self.schedule(id);
    }

    /// One link takes the place of another to the same process.
    fn absorb(&mut self, id: u32, other: u32) {
        let Some(link) = self.links.get_mut(&other) else { return };
        let receiver = std::mem::take(&mut link.receiver);
        if !link.sender.is_idle() {
            self.fail(other, Cause::Silence);
        }
        self.forget(other);
        if let Some(link) = self.links.get_mut(&id) {
            // Or a message would have the id of one that is answered, and be told as done.
            link.sender.skip_to(self.first_message);
            self.held -= std::mem::replace(&mut link.receiver, receiver).held_bytes();
        }
    }

    /// Goes on under a session, and lets the former one go.
    pub(super) fn begin(&mut self, id: u32, session: Session) {
        // Packets are numbered anew: what waits has numbers of before.
        self.settle();
        let Some(link) = self.links.get_mut(&id) else { return };
        let index = session.local();
        let gone = [link.renew(session).map(|before| before.local()), link.drop_greeting()];
        gone.into_iter().flatten().for_each(|index| {
            self.sessions.remove(&index);
        });
        self.sessions.insert(index, id);
    }

    /// A responder under load asks whether we receive at our address.
    pub(super) fn on_cookie(&mut self, now: Time, index: u32, bytes: &[u8]) {
        let Some(id) = self.sessions.get(&index).copied() else { return };
        let Some(link) = self.links.get_mut(&id) else { return };
        let Some(greeting) = link.greeting.as_mut().filter(|g| g.index == index) else { return };
        let Some(initiator) = &greeting.initiator else { return };
        match Cookie::read(link.peer.node, initiator.mac(), bytes) {
            // One at once; another one is no better.
            Ok(cookie) => {
                if greeting.cookie.replace(cookie).is_none() {
                    self.greet(now, id);
                }
            }
            Err(_) => self.stats.malformed += 1,
        }
    }
}
