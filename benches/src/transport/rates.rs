//! Bytes a second.

use std::{
    collections::BTreeMap,
    net::Ipv4Addr,
    ops::ControlFlow,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use ciphergram_accel::CpuEngine;
use ciphergram_he::{
    Quantised, Scheme, Sealer, SecretKey, Tensor, TensorSpec, Update,
    exchange::Announcement,
    params::{Chunks, Literal},
    seal::Ticket,
};
use ciphergram_nic::{
    driver::MAX_SLEEP,
    federation::SumJob,
    proto::{Endpoint, Event, MessageId, Peer, SumConfig, SumRegion, Time},
    round::Job as _,
    wire::{MAX_BURST_BYTES, UdpWire, Wire as _},
};

use super::{
    Failure, WARM_UP,
    pair::{End, Pair, Setting},
};

/// Messages under way at once: of a mebibyte, and of one datagram.
const LONG_AHEAD: usize = 4;
const SHORT_AHEAD: usize = 768;
/// Where messages are written to.
const MEMORY: u32 = 5;
/// The first of the sum regions.
const SUMS: u32 = 100;
/// Contributions to one region, all of them the same ciphertexts.
const CONTRIBUTORS: u16 = 64;
/// More than is sent in the time: bytes of all contributions, a second.
const PLENTY: f64 = 6e9;

/// Gives the sending end a message, and says how long it is.
type Give<'a> = dyn FnMut(&mut Endpoint, Time) -> Result<(MessageId, usize), Failure> + 'a;

/// Runs both ends in a thread each, keeps `ahead` messages under way, and counts what is answered: Gbit/s.
fn goodput(
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

/// Goodput of WRITEs of `message_bytes`, in Gbit/s.
///
/// # Errors
/// The sockets', or an end that gave up.
pub fn writes(setting: Setting, message_bytes: usize, span: Duration) -> Result<f64, Failure> {
    let Pair { mut waits, contacts, node } = Pair::new(setting)?;
    waits.endpoint.register_memory(MEMORY, message_bytes, None)?;
    let data: Arc<[u8]> = vec![7; message_bytes].into();
    let to = Peer::of(node);
    goodput((waits, contacts), to, LONG_AHEAD, span, &mut |endpoint, now| {
        Ok((endpoint.write(now, to, MEMORY, 0, data.clone(), None)?, message_bytes))
    })
}

/// Goodput of SUMs under a scheme, in Gbit/s of ciphertext: contributions of 300,000 values, sealed beforehand,
/// added by one thread that also receives, opens and digests them.
///
/// # Errors
/// The sockets', or an end that gave up.
pub fn sums(setting: Setting, scheme: Scheme, span: Duration) -> Result<f64, Failure> {
    let Pair { mut waits, contacts, node } = Pair::new(setting)?;
    let engine = Arc::new(CpuEngine::new());
    let literal = Literal { scheme, clients: u32::from(CONTRIBUTORS), bits: 16 };
    let key = SecretKey::generate(literal)?;
    let spec =
        TensorSpec { name: "w".into(), dtype: ciphergram_he::Dtype::F32, shape: vec![300_000] };
    let values: Vec<f64> = (0..300_000).map(|i| f64::from(i % 1000) / 1000.0).collect();
    let update = Update::new(vec![Tensor::from_values(spec, &values)?]);
    let mut job = SumJob::new(key.public().clone(), engine.clone());
    let mut hellos = BTreeMap::new();
    let mut agreement = None;
    for number in 0..2 {
        let announcement = Announcement::propose(Ticket::draw()?.seed(), &update, 1)?;
        hellos.insert(number, announcement.to_bytes(key.public()));
        agreement = Some(announcement.agreement);
    }
    let agreement = agreement.ok_or("nobody announced")?;
    let parameters = key.public().parameters();
    let mut rng = ciphergram_he::random::generator()?;
    let own = Quantised::new(&update, &agreement, 1, parameters, &mut rng)?;
    let sealer = Sealer::with_secret(&key, engine, own, Ticket::draw()?)?;
    let chunks = *sealer.chunks();
    let datagrams = cut(&chunks, &sealer.seal_all()?, contacts.endpoint.payload_limit());

    let region_bytes = chunks.total_bytes() * usize::from(CONTRIBUTORS);
    let needed = PLENTY * (span + 2 * WARM_UP).as_secs_f64() / region_bytes as f64;
    let peer = contacts.peer()?;
    for region in 0..needed.ceil() as u32 {
        let opened = job.open(0, &hellos)?;
        let config = SumConfig {
            round: 0,
            contributors: CONTRIBUTORS,
            target: u32::from(CONTRIBUTORS) + 1,
            digest_key: [9; 32],
            geometry: opened.geometry,
            stretches: opened.stretches,
        };
        let sum = SumRegion::new(config)?;
        (0..CONTRIBUTORS).for_each(|contributor| sum.bind(contributor, peer));
        waits.endpoint.register_sum(SUMS + region, sum)?;
    }
    let mut next = (0u32..)
        .flat_map(|region| (0..CONTRIBUTORS).map(move |contributor| (region, contributor)))
        .flat_map(|turn| datagrams.iter().map(move |datagram| (turn, datagram)));
    let to = Peer::of(node);
    goodput((waits, contacts), to, SHORT_AHEAD, span, &mut |endpoint, now| {
        let ((region, contributor), (chunk, offset, data)) = next.next().ok_or("no end")?;
        let rkey = SUMS + region;
        let sent = endpoint.sum(now, to, rkey, 0, contributor, *chunk, *offset, data.clone())?;
        Ok((sent, data.len()))
    })
}

/// A datagram's first chunk, its offset and its bytes.
type Cut = (u32, u64, Arc<[u8]>);

/// As many whole chunks to a datagram as fit.
fn cut(chunks: &Chunks, stream: &[u8], limit: usize) -> Vec<Cut> {
    let end = |chunk: u32| chunks.offset_of(chunk) + chunks.bytes_of(chunk);
    let (mut cuts, mut first) = (vec![], 0);
    while first < chunks.count() {
        let start = chunks.offset_of(first);
        let fits = |chunk: &u32| end(*chunk) <= start + limit;
        let last = (first..chunks.count()).take_while(fits).last().unwrap_or(first);
        cuts.push((first, start as u64, stream[start..end(last)].into()));
        first = last + 1;
    }
    cuts
}

/// Bytes a second that two sockets pass between two threads, in bursts, of datagrams that nobody seals,
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
