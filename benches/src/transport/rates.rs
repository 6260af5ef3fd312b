//! Bytes a second.

use std::{
    collections::BTreeMap,
    net::Ipv4Addr,
    ops::ControlFlow,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

use ciphergram_nic::{
    Bytes,
    driver::MAX_SLEEP,
    proto::{Endpoint, EndpointEvent, MessageId, Peer, Time},
    wire::{MAX_BURST_BYTES, SocketWire, Wire as _},
};

use super::{
    Failure, WARM_UP,
    pair::{End, Pair, Setting},
    spent::{Clock, Flow, Spent},
};

/// The time for which a sender looks away while much is under way, and the number of times after which it is lost.
const PAUSE: Duration = Duration::from_micros(20);
const MANY: u32 = 100;
/// Messages of a mebibyte under way at once.
const LONG_AHEAD: usize = 4;
/// The region that messages are written to.
const MEMORY: u32 = 5;
/// Gives the sending end a message, and says how long it is.
pub(super) type Give<'a> =
    dyn FnMut(&mut Endpoint, Time) -> Result<(MessageId, usize), Failure> + 'a;

/// What both threads see.
#[derive(Default)]
struct Course {
    /// What passes is measured.
    measured: AtomicBool,
    /// It is over.
    over: AtomicBool,
}

/// Runs both ends in a thread each, keeps `ahead` messages under way, and counts what is answered.
pub(super) fn goodput(
    ends: (End, End),
    to: Peer,
    ahead: usize,
    span: Duration,
    give: &mut Give<'_>,
) -> Result<Flow, Failure> {
    let (waits, contacts) = ends;
    let course = Course::default();
    thread::scope(|scope| {
        let attending = scope.spawn(|| attend(waits, &course));
        let sent = send(contacts, to, ahead, (span, &course), give);
        course.over.store(true, Ordering::Relaxed);
        let [begin, end] = attending.join().map_err(|_| "the other end panicked")??;
        let Sent { bytes, span, clocks: [first, last] } = sent?;
        let ends = [last.since(first, bytes), end.since(begin, bytes)];
        Ok(Flow { rate: bytes as f64 * 8e-9 / span.as_secs_f64(), ends })
    })
}

/// Drives the end that waits until the other one is done; returns its clock at both ends of what is measured.
fn attend(mut end: End, course: &Course) -> Result<[Clock; 2], Failure> {
    let mut begin = None;
    end.driver.run(&mut end.endpoint, |endpoint, _| {
        while endpoint.poll_event().is_some() {}
        if begin.is_none() && course.measured.load(Ordering::Relaxed) {
            begin = Some(Clock::read());
        }
        match course.over.load(Ordering::Relaxed) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(MAX_SLEEP),
        }
    })?;
    let end = Clock::read()?;
    Ok([begin.unwrap_or(Ok(end))?, end])
}

/// What was answered.
struct Sent {
    bytes: u64,
    span: Duration,
    /// The sending thread's, at both ends of the span.
    clocks: [Clock; 2],
}

fn send(
    mut end: End,
    to: Peer,
    ahead: usize,
    (span, course): (Duration, &Course),
    give: &mut Give<'_>,
) -> Result<Sent, Failure> {
    let began = Instant::now();
    let (mut measured, mut bytes) = (None, 0u64);
    let mut under_way = BTreeMap::new();
    let mut turn = |endpoint: &mut Endpoint, now| -> Result<Option<Sent>, Failure> {
        while let Some(event) = endpoint.poll_event() {
            let EndpointEvent::Completed { message, .. } = event else {
                return Err(format!("{event:?}").into());
            };
            bytes += under_way.remove(&message).unwrap_or(0) as u64;
        }
        if measured.is_none() && began.elapsed() >= WARM_UP {
            course.measured.store(true, Ordering::Relaxed);
            (measured, bytes) = (Some((Instant::now(), Clock::read()?)), 0);
        }
        while under_way.len() < ahead && endpoint.headroom(to) > 0 {
            let (message, length) = give(endpoint, now)?;
            under_way.insert(message, length);
        }
        let Some((since, first)) = measured.filter(|(since, _)| since.elapsed() >= span) else {
            return Ok(None);
        };
        Ok(Some(Sent { bytes, span: since.elapsed(), clocks: [first, Clock::read()?] }))
    };
    end.driver.run(&mut end.endpoint, |endpoint, now| match turn(endpoint, now) {
        Ok(Some(sent)) => ControlFlow::Break(Ok(sent)),
        Ok(None) => ControlFlow::Continue(MAX_SLEEP),
        Err(failure) => ControlFlow::Break(Err(failure)),
    })?
}

/// Measures WRITEs of `message_bytes`.
///
/// # Errors
/// The sockets', or an end that gave up.
pub fn writes(setting: Setting, message_bytes: usize, span: Duration) -> Result<Flow, Failure> {
    let Pair { mut waits, contacts, node } = Pair::new(setting)?;
    waits.endpoint.register_memory(MEMORY, message_bytes, None)?;
    let data: Bytes = vec![7; message_bytes].into();
    let to = Peer::of(node);
    goodput((waits, contacts), to, LONG_AHEAD, span, &mut |endpoint, now| {
        Ok((endpoint.write(now, to, MEMORY, 0, data.clone(), None)?, message_bytes))
    })
}

/// Measures what two sockets pass between two threads, in bursts, of datagrams that nobody seals,
/// answers or keeps: what the system takes for itself. At most `ahead` bytes are under way; with no such limit many
/// are lost.
///
/// # Errors
/// The sockets'.
pub fn ceiling(datagram_bytes: usize, ahead: u64, span: Duration) -> Result<Flow, Failure> {
    let mut takes = SocketWire::bind((Ipv4Addr::LOCALHOST, 0).into())?;
    let mut gives = SocketWire::bind((Ipv4Addr::LOCALHOST, 0).into())?;
    let to = takes.local_addr()?;
    let (stop, came) = (AtomicBool::new(false), AtomicU64::new(0));
    let count = (MAX_BURST_BYTES / datagram_bytes).min(gives.burst_limit());
    let burst = vec![7; count * datagram_bytes];
    thread::scope(|scope| {
        let taking = scope.spawn(|| -> Result<(f64, Spent), Failure> {
            let (mut bytes, began, first) = (0u64, Instant::now(), Clock::read()?);
            while began.elapsed() < span {
                takes.receive(MAX_SLEEP, &mut |_, datagram| bytes += datagram.len() as u64)?;
                came.store(bytes, Ordering::Relaxed);
            }
            let rate = bytes as f64 * 8e-9 / began.elapsed().as_secs_f64();
            Ok((rate, Clock::read()?.since(first, bytes)))
        });
        let giving = scope.spawn(|| -> Result<Spent, Failure> {
            let (mut bytes, mut lost, first) = (0, 0, Clock::read()?);
            while !stop.load(Ordering::Relaxed) {
                let mut waits = 0;
                while bytes - lost > came.load(Ordering::Relaxed).saturating_add(ahead) {
                    thread::sleep(PAUSE);
                    waits += 1;
                    // What has not come by now never comes.
                    if waits == MANY {
                        lost = bytes - came.load(Ordering::Relaxed);
                    }
                }
                if gives.send(to.into(), &burst, datagram_bytes) {
                    bytes += burst.len() as u64;
                }
            }
            Ok(Clock::read()?.since(first, bytes))
        });
        let taken = taking.join().map_err(|_| "the receiver panicked");
        stop.store(true, Ordering::Relaxed);
        let gave = giving.join().map_err(|_| "the sender panicked")??;
        let (rate, took) = taken??;
        Ok(Flow { rate, ends: [gave, took] })
    })
}
