//! State that the pipelines of one endpoint share: regions, messages, events; and their commands to
//! each other.
//!
//! Pipelines may run on threads of their own. A thread that holds one of these locks takes another
//! only in the order inbox, regions, region; and an outbox or a queue alone, but for the endpoint,
//! which alone holds two outboxes when two links become one.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::task::Waker;

use super::event::{EndpointEvent, Peer};
use super::lock::{lock, read, write};
use super::outbox::Outbox;
use super::path::Route;
use super::receiver::Receiver;
use super::region::Region;
use super::secure::Session;
use super::stats::Stats;
use super::sum::SumRegion;
use super::time::Time;

/// The most pipelines of one endpoint, and channels between two.
pub const MAX_PIPELINES: u16 = 16;
/// Events that may wait; while they do, datagrams are dropped unanswered.
pub const MAX_EVENTS: usize = 1 << 16;

/// The messages to and from one process, which all channels to it share.
pub(super) struct Messages {
    pub(super) outbox: Mutex<Outbox>,
    pub(super) inbox: Mutex<Receiver>,
    /// When a datagram that a session vouches for last came, in nanoseconds.
    last_received: AtomicU64,
    /// The incarnation of that process, once it is known; never another one's.
    of: AtomicU32,
    held: Arc<AtomicUsize>,
}

/// Releases messages under assembly, which nobody will take.
impl Drop for Messages {
    fn drop(&mut self) {
        let inbox = self.inbox.get_mut().unwrap_or_else(PoisonError::into_inner);
        self.held.fetch_sub(inbox.held_bytes(), Ordering::Relaxed);
    }
}

impl Messages {
    fn new(now: Time, outbox: Outbox, held: Arc<AtomicUsize>) -> Arc<Self> {
        let (outbox, inbox) = (Mutex::new(outbox), Mutex::default());
        let (last_received, of) = (AtomicU64::new(now.0), AtomicU32::new(0));
        Arc::new(Self { outbox, inbox, last_received, of, held })
    }

    /// Claims the messages for a process; `false` if they are another one's.
    pub(super) fn claim(&self, peer: Peer) -> bool {
        let claimed =
            self.of.compare_exchange(0, peer.incarnation, Ordering::Relaxed, Ordering::Relaxed);
        claimed.is_ok() || claimed == Err(peer.incarnation)
    }

    pub(super) fn last_received(&self) -> Time {
        Time(self.last_received.load(Ordering::Relaxed))
    }

    pub(super) fn on_received(&self, now: Time) {
        self.last_received.fetch_max(now.0, Ordering::Relaxed);
    }

    /// Returns whether nothing is unanswered.
    pub(super) fn is_idle(&self) -> bool {
        lock(&self.outbox).is_idle()
    }
}

/// Names a channel: its link, and its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ChannelId {
    pub(super) link: u32,
    pub(super) channel: u16,
}

/// Iterates over channels of a link, one bit each.
pub(super) fn channels_of(mut channels: u16) -> impl Iterator<Item = u16> {
    std::iter::from_fn(move || {
        let channel = channels.trailing_zeros() as u16;
        channels &= channels.checked_sub(1)?;
        Some(channel)
    })
}

/// A channel's part of a session that a handshake made.
pub(super) struct SessionPart {
    pub(super) id: ChannelId,
    pub(super) peer: Peer,
    pub(super) session: Session,
    pub(super) messages: Arc<Messages>,
    /// The peer's address, if we made contact.
    pub(super) addr: Option<SocketAddr>,
    /// The number of the peer's sockets that it may send from.
    pub(super) paths: u16,
}

/// A command to a pipeline.
pub(super) enum PipelineCommand {
    /// Begin a session when a datagram shows that the peer has it.
    Offer(Box<SessionPart>),
    /// Begin a session now; the answer to our HELLO came by that route.
    Begin(Box<SessionPart>, Time, Route),
    /// Send: there is something to send.
    Wake(ChannelId),
    /// Forget the datagrams in flight, all of which have failed; and the session, if the flag is
    /// set.
    Fail(ChannelId, bool),
    /// End a channel.
    End(ChannelId),
}

/// A queue between threads that is mostly empty, and cheap to find so.
pub(super) struct Queue<T> {
    nonempty: AtomicBool,
    /// `None` once it is closed.
    items: Mutex<Option<Vec<T>>>,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self { nonempty: AtomicBool::new(false), items: Mutex::new(Some(vec![])) }
    }
}

impl<T> Queue<T> {
    /// Appends an item; `true` if the queue was empty.
    fn push(&self, item: T) -> bool {
        match &mut *lock(&self.items) {
            Some(items) => {
                items.push(item);
                !self.nonempty.swap(true, Ordering::Release)
            }
            None => false,
        }
    }

    pub(super) fn drain(&self) -> Vec<T> {
        if !self.nonempty.load(Ordering::Acquire) {
            return vec![];
        }
        let mut items = lock(&self.items);
        self.nonempty.store(false, Ordering::Release);
        items.as_mut().map(std::mem::take).unwrap_or_default()
    }

    fn close(&self) {
        *lock(&self.items) = None;
    }
}

pub(super) struct SharedState {
    pub(super) regions: RwLock<BTreeMap<u32, Region>>,
    events: Mutex<VecDeque<EndpointEvent>>,
    /// The number of `events`.
    event_count: AtomicUsize,
    /// Inbox bytes under assembly or waiting in `events`.
    held: Arc<AtomicUsize>,
    held_limit: usize,
    commands: Vec<Queue<PipelineCommand>>,
    /// Links whose offered session, of that index, the peer has begun.
    confirmed: Queue<(u32, u32)>,
    stats: Vec<Mutex<Stats>>,
    /// One for each pipeline, once they are driven on threads of their own.
    pub(super) wakers: OnceLock<Vec<Waker>>,
}

impl SharedState {
    pub(super) fn new(pipelines: u16, held_limit: usize) -> Arc<Self> {
        Arc::new(Self {
            regions: RwLock::default(),
            events: Mutex::default(),
            event_count: AtomicUsize::new(0),
            held: Arc::default(),
            held_limit,
            commands: (0..pipelines).map(|_| Queue::default()).collect(),
            confirmed: Queue::default(),
            stats: (0..pipelines).map(|_| Mutex::default()).collect(),
            wakers: OnceLock::new(),
        })
    }

    /// Wakes a pipeline, unless it is the caller.
    fn wake(&self, from: u16, pipeline: u16) {
        let wakers = self.wakers.get().filter(|_| pipeline != from);
        if let Some(waker) = wakers.and_then(|wakers| wakers.get(usize::from(pipeline))) {
            waker.wake_by_ref();
        }
    }

    // Regions.

    pub(super) fn with_region<T>(&self, rkey: u32, look: impl FnOnce(&Region) -> T) -> Option<T> {
        read(&self.regions).get(&rkey).map(look)
    }

    /// Registers a region; `false` if the rkey is in use.
    pub(super) fn register(&self, rkey: u32, region: Region) -> bool {
        let mut regions = write(&self.regions);
        let free = !regions.contains_key(&rkey);
        if free {
            regions.insert(rkey, region);
        }
        free
    }

    pub(super) fn deregister(&self, rkey: u32) {
        write(&self.regions).remove(&rkey);
    }

    /// Returns the sum region of an rkey.
    pub(super) fn sum_region(&self, rkey: u32) -> Option<SumRegion> {
        let found = self.with_region(rkey, |region| match region {
            Region::Sum(region) => Some(region.clone()),
            Region::Memory(_) | Region::Inbox { .. } => None,
        });
        found.flatten()
    }

    // Commands.

    /// Returns the pipeline that carries a channel.
    fn pipeline_of(&self, channel: u16) -> u16 {
        channel % self.commands.len() as u16
    }

    pub(super) fn send(&self, from: u16, channel: u16, command: PipelineCommand) {
        let pipeline = self.pipeline_of(channel);
        if self.commands[usize::from(pipeline)].push(command) {
            self.wake(from, pipeline);
        }
    }

    /// Drops commands to a pipeline from now on.
    pub(super) fn close(&self, pipeline: u16) {
        self.commands[usize::from(pipeline)].close();
    }

    pub(super) fn drain_commands(&self, pipeline: u16) -> Vec<PipelineCommand> {
        self.commands[usize::from(pipeline)].drain()
    }

    /// Commands channels of a link, one bit each, to send.
    pub(super) fn wake_channels(&self, from: u16, link: u32, channels: u16) {
        for channel in channels_of(channels) {
            self.send(from, channel, PipelineCommand::Wake(ChannelId { link, channel }));
        }
    }

    /// Reports that a peer has begun the session of that index. The first pipeline's driver keeps
    /// the links.
    pub(super) fn confirm(&self, from: u16, link: u32, index: u32) {
        self.confirmed.push((link, index));
        self.wake(from, 0);
    }

    pub(super) fn drain_confirmed(&self) -> Vec<(u32, u32)> {
        self.confirmed.drain()
    }

    // Events.

    pub(super) fn event_count(&self) -> usize {
        self.event_count.load(Ordering::Relaxed)
    }

    /// Queues events for the owner, and wakes the first pipeline's driver.
    pub(super) fn report(&self, from: u16, news: impl IntoIterator<Item = EndpointEvent>) {
        let mut news = news.into_iter().peekable();
        if news.peek().is_none() {
            return;
        }
        let mut events = lock(&self.events);
        let first = events.is_empty();
        events.extend(news);
        self.event_count.store(events.len(), Ordering::Relaxed);
        drop(events);
        if first {
            self.wake(from, 0);
        }
    }

    pub(super) fn next_event(&self) -> Option<EndpointEvent> {
        if self.event_count() == 0 {
            return None;
        }
        let mut events = lock(&self.events);
        let event = events.pop_front()?;
        self.event_count.store(events.len(), Ordering::Relaxed);
        drop(events);
        if let EndpointEvent::Received { data, .. } = &event {
            self.release(data.len());
        }
        Some(event)
    }

    // Inbox bytes.

    pub(super) fn messages(&self, now: Time, outbox: Outbox) -> Arc<Messages> {
        Messages::new(now, outbox, self.held.clone())
    }

    pub(super) fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    /// Returns the bytes that one peer may hold under assembly.
    pub(super) fn peer_held_limit(&self) -> usize {
        self.held_limit / 4
    }

    /// Reserves bytes for an assembly; `false` if there is no space.
    pub(super) fn reserve(&self, bytes: usize) -> bool {
        let before = self.held.fetch_add(bytes, Ordering::Relaxed);
        let fits = before + bytes <= self.held_limit;
        if !fits {
            self.release(bytes);
        }
        fits
    }

    pub(super) fn release(&self, bytes: usize) {
        self.held.fetch_sub(bytes, Ordering::Relaxed);
    }

    // Counters.

    pub(super) fn publish(&self, pipeline: u16, stats: &Stats) {
        *lock(&self.stats[usize::from(pipeline)]) = *stats;
    }

    pub(super) fn published(&self) -> Stats {
        self.stats.iter().map(|stats| *lock(stats)).fold(Stats::default(), |sum, own| sum + own)
    }
}
