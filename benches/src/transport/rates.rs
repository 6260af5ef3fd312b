//! Bytes a second.

use std::{
    collections::BTreeMap,
    net::Ipv4Addr,
    ops::ControlFlow,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use ciphergram_nic::{
    Bytes,
    driver::MAX_SLEEP,
    proto::{Endpoint, Event, MessageId, Peer, Time},
    wire::{MAX_BURST_BYTES, UdpWire, Wire as _},
};

use super::{
    Failure, WARM_UP,
    pair::{End, Pair, Setting},
};

/// Messages of a mebibyte under way at once.
const LONG_AHEAD: usize = 4;
/// The region that messages are written to.
const MEMORY: u32 = 5;
/// Gives the sending end a message, and says how long it is.
pub(super) type Give<'a> =
    dyn FnMut(&mut Endpoint, Time) -> Result<(MessageId, usize), Failure> + 'a;

/// Runs both ends in a thread each, keeps `ahead` messages under way, and counts what is answered: Gbit/s.
pub(super) fn goodput(
    ends: (End, End),
    to: Peer,
    ahead: usize,
    span: Duration,
    give: &mut Give<'_>,
) -> Result<f64, Failure> {
    let (waits, contacts) = ends;
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let attending = scope.spawn(|| attend(waits, &stop));
        let rate = send(contacts, to, ahead, span, give);
        stop.store(true, Ordering::Relaxed);
        attending.join().map_err(|_| "the other end panicked")??;
        rate
    })
}

/// Drives the end that waits until the other one is done.
fn attend(mut end: End, stop: &AtomicBool) -> Result<(), Failure> {
    Ok(end.driver.run(&mut end.endpoint, |endpoint, _| {
        while endpoint.poll_event().is_some() {}
        match stop.load(Ordering::Relaxed) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(MAX_SLEEP),
        }
    })?)
}

fn send(
    mut end: End,
    to: Peer,
    ahead: usize,
    span: Duration,
    give: &mut Give<'_>,
) -> Result<f64, Failure> {
    let began = Instant::now();
    let (mut measured, mut bytes) = (None, 0u64);
    let mut under_way = BTreeMap::new();
    let mut turn = |endpoint: &mut Endpoint, now| -> Result<Option<f64>, Failure> {
        while let Some(event) = endpoint.poll_event() {
            let Event::Completed { message, .. } = event else {
                return Err(format!("{event:?}").into());
            };
            bytes += under_way.remove(&message).unwrap_or(0) as u64;
        }
        if measured.is_none() && began.elapsed() >= WARM_UP {
            (measured, bytes) = (Some(Instant::now()), 0);
        }
        while under_way.len() < ahead && endpoint.room(to) > 0 {
            let (message, length) = give(endpoint, now)?;
            under_way.insert(message, length);
        }
        let elapsed = measured.map_or(Duration::ZERO, |since: Instant| since.elapsed());
        Ok((elapsed >= span).then(|| bytes as f64 * 8e-9 / elapsed.as_secs_f64()))
    };
    end.driver.run(&mut end.endpoint, |endpoint, now| match turn(endpoint, now) {
        Ok(Some(rate)) => ControlFlow::Break(Ok(rate)),
        Ok(None) => ControlFlow::Continue(MAX_SLEEP),
        Err(failure) => ControlFlow::Break(Err(failure)),
    })?
}

/// Measures the goodput of WRITEs of `message_bytes`, in Gbit/s.
///
/// # Errors
/// The sockets', or an end that gave up.
pub fn writes(setting: Setting, message_bytes: usize, span: Duration) -> Result<f64, Failure> {
    let Pair { mut waits, contacts, node } = Pair::new(setting)?;
    waits.endpoint.register_memory(MEMORY, message_bytes, None)?;
    let data: Bytes = vec![7; message_bytes].into();
    let to = Peer::of(node);
    goodput((waits, contacts), to, LONG_AHEAD, span, &mut |endpoint, now| {
        Ok((endpoint.write(now, to, MEMORY, 0, data.clone(), None)?, message_bytes))
    })
}

/// Measures what two sockets pass between two threads, in bursts, of datagrams that nobody seals,
/// answers or keeps: what the system takes for itself. Gbit/s.
///
/// # Errors
/// The sockets'.
pub fn ceiling(datagram_bytes: usize, span: Duration) -> Result<f64, Failure> {
    let mut takes = UdpWire::bind((Ipv4Addr::LOCALHOST, 0).into())?;
    let mut gives = UdpWire::bind((Ipv4Addr::LOCALHOST, 0).into())?;
    let to = takes.local_addr()?;
    let stop = AtomicBool::new(false);
    let count = (MAX_BURST_BYTES / datagram_bytes).min(gives.burst_limit());
    let burst = vec![7; count * datagram_bytes];
    thread::scope(|scope| {
        let taking = scope.spawn(|| -> Result<f64, Failure> {
            let (mut bytes, began) = (0u64, Instant::now());
            while began.elapsed() < span {
                takes.receive(MAX_SLEEP, &mut |_, datagram| bytes += datagram.len() as u64)?;
            }
            Ok(bytes as f64 * 8e-9 / began.elapsed().as_secs_f64())
        });
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                gives.send(to.into(), &burst, datagram_bytes);
            }
        });
        let rate = taking.join().map_err(|_| "the receiver panicked");
        stop.store(true, Ordering::Relaxed);
        rate?
    })
}
