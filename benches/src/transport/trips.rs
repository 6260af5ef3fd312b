//! Round trips.

use std::{
    io::ErrorKind,
    net::{Ipv4Addr, UdpSocket},
    ops::ControlFlow,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use ciphergram_nic::{
    Bytes,
    driver::MAX_SLEEP,
    proto::{Endpoint, EndpointEvent, Peer, Time},
};

use super::{
    Failure, WARM_UP,
    pair::{End, Pair, Setting},
};

/// The region of either end.
const MEMORY: u32 = 5;
/// The time after which a bare datagram does not come back any more.
const LOST: Duration = Duration::from_millis(100);

/// Times of round trips.
#[derive(Clone, Copy, Debug)]
pub struct Trips {
    /// Half took no longer.
    pub median: Duration,
    /// Ninety-nine of a hundred took no longer.
    pub p99: Duration,
    /// The number of trips.
    pub count: usize,
}

impl Trips {
    fn of(mut times: Vec<Duration>) -> Result<Self, Failure> {
        times.sort_unstable();
        let at = |share: f64| times.get((times.len() as f64 * share) as usize).copied();
        let none = "no round trip was finished";
        Ok(Self { median: at(0.5).ok_or(none)?, p99: at(0.99).ok_or(none)?, count: times.len() })
    }
}

/// Writes with an immediate of `message_bytes`, each answered by one of the same length; either end sleeps
/// while it waits, or never does.
///
/// # Errors
/// The sockets', or an end that gave up.
pub fn trips(
    setting: Setting,
    message_bytes: usize,
    polling: bool,
    span: Duration,
) -> Result<Trips, Failure> {
    let Pair { mut waits, mut contacts, node } = Pair::new(setting)?;
    waits.endpoint.register_memory(MEMORY, message_bytes, None)?;
    contacts.endpoint.register_memory(MEMORY, message_bytes, None)?;
    let data: Bytes = vec![7; message_bytes].into();
    let sleep = if polling { Duration::ZERO } else { MAX_SLEEP };
    let stop = AtomicBool::new(false);
    let mut times = vec![];
    let (echoed, stopped) = (&data, &stop);
    thread::scope(|scope| {
        let echo = move |endpoint: &mut Endpoint, now: Time| -> Result<bool, Failure> {
            while let Some(event) = endpoint.poll_event() {
                if let EndpointEvent::Written { from, .. } = event {
                    endpoint.write(now, from, MEMORY, 0, echoed.clone(), Some(2))?;
                }
            }
            Ok(stopped.load(Ordering::Relaxed))
        };
        let echoing = scope.spawn(move || run(waits, sleep, echo));
        let (began, mut sent) = (Instant::now(), None::<Instant>);
        let ask = |endpoint: &mut Endpoint, now: Time| -> Result<bool, Failure> {
            while let Some(event) = endpoint.poll_event() {
                if let (EndpointEvent::Written { .. }, Some(since)) = (event, sent) {
                    if began.elapsed() > WARM_UP {
                        times.push(since.elapsed());
                    }
                    sent = None;
                }
            }
            if sent.is_none() {
                endpoint.write(now, Peer::of(node), MEMORY, 0, data.clone(), Some(1))?;
                sent = Some(Instant::now());
            }
            Ok(began.elapsed() >= WARM_UP + span)
        };
        let asked = run(contacts, sleep, ask);
        stop.store(true, Ordering::Relaxed);
        echoing.join().map_err(|_| "the other end panicked")??;
        asked
    })?;
    Trips::of(times)
}

/// Drives an end until its owner is done.
fn run(
    mut end: End,
    sleep: Duration,
    mut turn: impl FnMut(&mut Endpoint, Time) -> Result<bool, Failure>,
) -> Result<(), Failure> {
    end.driver.run(&mut end.endpoint, |endpoint, now| match turn(endpoint, now) {
        Ok(true) => ControlFlow::Break(Ok(())),
        Ok(false) => ControlFlow::Continue(sleep),
        Err(failure) => ControlFlow::Break(Err(failure)),
    })?
}

/// Passes one datagram of `bytes` between two sockets that poll, and back: what the system takes for itself, of
/// a trip that nobody seals, answers or places.
///
/// # Errors
/// The sockets', or that no trip was finished.
pub fn bare_trips(bytes: usize, span: Duration) -> Result<Trips, Failure> {
    let bind = || UdpSocket::bind((Ipv4Addr::LOCALHOST, 0));
    let (asks, echoes) = (bind()?, bind()?);
    asks.connect(echoes.local_addr()?)?;
    echoes.connect(asks.local_addr()?)?;
    asks.set_nonblocking(true)?;
    echoes.set_nonblocking(true)?;
    let stop = AtomicBool::new(false);
    let mut times = vec![];
    thread::scope(|scope| {
        let echoing = scope.spawn(|| -> Result<(), Failure> {
            let mut datagram = vec![0; bytes];
            while !stop.load(Ordering::Relaxed) {
                if take(&echoes, &mut datagram)? {
                    echoes.send(&datagram)?;
                }
            }
            Ok(())
        });
        let mut ask = || -> Result<(), Failure> {
            let (began, mut datagram) = (Instant::now(), vec![7; bytes]);
            while began.elapsed() < WARM_UP + span {
                let sent = Instant::now();
                asks.send(&datagram)?;
                // One that was lost is not waited for.
                while !take(&asks, &mut datagram)? && sent.elapsed() < LOST {}
                if began.elapsed() > WARM_UP && sent.elapsed() < LOST {
                    times.push(sent.elapsed());
                }
            }
            Ok(())
        };
        let asked = ask();
        stop.store(true, Ordering::Relaxed);
        echoing.join().map_err(|_| "the other end panicked")??;
        asked
    })?;
    Trips::of(times)
}

/// Takes a datagram if one came.
fn take(socket: &UdpSocket, datagram: &mut [u8]) -> Result<bool, Failure> {
    match socket.recv(datagram) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
        Err(error) => Err(error.into()),
    }
}
