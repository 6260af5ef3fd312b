//! A bad network between clients and a server, as `cargo xtask relay` starts it: prints an object of JSON once it
//! listens, and another with what it did at the end.

use std::{
    io::{self, ErrorKind},
    net::{SocketAddr, ToSocketAddrs as _},
    num::NonZeroU64,
    process::ExitCode,
    time::Duration,
};

use ciphergram_nic::{
    NicError,
    faults::{Faults, MILLION},
    relay::{Bottleneck, DirectionTally, RelaySwitch},
};
use clap::{Parser, value_parser};
use serde_json::{Value, json};

/// Forward datagrams between clients and a server as a bad network would. Each direction has the same faults, and a
/// rate and a queue of its own.
#[derive(Parser)]
#[command(name = "relay")]
struct Arguments {
    /// Address that clients send to
    #[arg(long, value_parser = address, value_name = "HOST:PORT")]
    listen: SocketAddr,
    /// The server's address
    #[arg(long, value_parser = address, value_name = "HOST:PORT")]
    to: SocketAddr,
    /// Milliseconds that each datagram is delayed
    #[arg(long, default_value = "0", value_parser = milliseconds, value_name = "MS")]
    delay: Duration,
    /// Most milliseconds of further delay, drawn for each datagram: they overtake each other
    #[arg(long, default_value = "0", value_parser = milliseconds, value_name = "MS")]
    jitter: Duration,
    /// Datagrams lost
    #[arg(long, default_value = "0", value_parser = percent, value_name = "PERCENT")]
    loss: u32,
    /// Datagrams sent on twice
    #[arg(long, default_value = "0", value_parser = percent, value_name = "PERCENT")]
    duplicate: u32,
    /// Datagrams of which one bit is flipped
    #[arg(long, default_value = "0", value_parser = percent, value_name = "PERCENT")]
    corrupt: u32,
    /// Datagrams cut to their header
    #[arg(long, default_value = "0", value_parser = percent, value_name = "PERCENT")]
    trim: u32,
    /// Datagrams marked for congestion
    #[arg(long, default_value = "0", value_parser = percent, value_name = "PERCENT")]
    mark: u32,
    /// Megabits a second that pass in each direction [default: no limit]
    #[arg(long, value_parser = rate, value_name = "MBIT/S")]
    rate: Option<NonZeroU64>,
    /// With --rate: datagrams that the queue holds
    #[arg(long, default_value = "128", requires = "rate", value_name = "DATAGRAMS",
        value_parser = value_parser!(u32).range(1..=1_000_000))]
    queue: u32,
    /// With --rate: cut datagrams that find the queue full to their header instead of dropping them
    #[arg(long, requires = "rate")]
    trim_on_full: bool,
    /// Seed of all faults
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Seconds until it ends and prints what it did [default: until it is killed, silently]
    #[arg(long, value_parser = value_parser!(u64).range(1..))]
    seconds: Option<u64>,
    /// Bytes sent to the server after which it ends and prints what it did, if that is before --seconds
    #[arg(long, value_parser = value_parser!(u64).range(1..))]
    bytes: Option<u64>,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Arguments) -> Result<(), NicError> {
    let faults = Faults {
        loss: args.loss,
        duplication: args.duplicate,
        corruption: args.corrupt,
        trimming: args.trim,
        marking: args.mark,
        delay: args.delay,
        jitter: args.jitter,
        ..Faults::default()
    };
    let (queue, trim_on_full) = (args.queue as usize, args.trim_on_full);
    let bottleneck = Bottleneck { rate: args.rate, queue, trim_on_full };
    let mut switch = RelaySwitch::bind(args.listen, args.to, faults, bottleneck, args.seed)?;
    println!("{}", json!({"event": "listening", "address": switch.local_addr()?.to_string()}));
    switch.run(args.seconds.map(Duration::from_secs), args.bytes)?;
    let (to_server, to_clients) = switch.tallies();
    let done = json!({
        "event": "done", "datagrams_to_server": counts(&to_server), "datagrams_to_clients": counts(&to_clients),
        "clients_turned_away": switch.turned_away(), "datagrams_unsent": switch.unsent(),
    });
    println!("{done}");
    Ok(())
}

fn counts(t: &DirectionTally) -> Value {
    let injected = t.injected;
    json!({
        "received": t.received, "forwarded": t.forwarded, "reordered": t.reordered,
        "lost": injected.lost, "duplicated": injected.duplicated, "corrupted": injected.corrupted,
        "trimmed": injected.trimmed, "marked": injected.marked, "trimmed_full": t.trimmed_full, "dropped_full": t.dropped,
    })
}

/// Parses an address with a port, or finds out that of a host's name.
fn address(text: &str) -> io::Result<SocketAddr> {
    text.to_socket_addrs()?.next().ok_or(ErrorKind::NotFound.into())
}

/// Parses a number from 0 to `most`; `what` names it.
fn number(text: &str, most: f64, what: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number| (0.0..=most).contains(number));
    number.ok_or_else(|| format!("{what} from 0 to {most}"))
}

fn milliseconds(text: &str) -> Result<Duration, String> {
    number(text, 60_000.0, "a number of milliseconds").map(|ms| Duration::from_secs_f64(ms / 1e3))
}

/// Parses a percentage to parts of a million.
fn percent(text: &str) -> Result<u32, String> {
    let percent = number(text, 100.0, "a percentage")?;
    Ok((percent / 100.0 * f64::from(MILLION)).round() as u32)
}

/// Parses megabits a second to bits a second.
fn rate(text: &str) -> Result<NonZeroU64, String> {
    let megabits = text.parse().ok().filter(|megabits: &f64| (0.001..=1e6).contains(megabits));
    let bits = megabits.and_then(|megabits| NonZeroU64::new((megabits * 1e6) as u64));
    bits.ok_or_else(|| "a number of megabits a second from 0.001 to 1000000".into())
}
