//! What the transport does on this machine: `cargo run --release -p ciphergram-benches --bin transport`.
//!
//! One argument: seconds for each row, 2 if there is none.

use std::{process::ExitCode, time::Duration};

use ciphergram_benches::transport::{Failure, Setting, ceiling, sums, trips, writes};
use ciphergram_he::Scheme;
use ciphergram_nic::proto::Suite;

const MEBIBYTE: usize = 1 << 20;
const LONG: usize = 8900;
const SHORT: usize = 1400;

fn main() -> ExitCode {
    let seconds = std::env::args().nth(1).map_or(Ok(2.0), |text| text.parse::<f64>());
    let measured = seconds.map_err(Failure::from).and_then(|s| measure(Duration::from_secs_f64(s)));
    match measured {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("error: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn measure(span: Duration) -> Result<(), Failure> {
    let row = |name: &str, rate: f64, of: Option<f64>| {
        let share = of.map_or(String::new(), |of| format!("{:>8.2}", rate / of));
        println!("{name:<58}{rate:>8.2}{share}");
    };
    println!("{:<58}{:>8}{:>8}", "two threads, loopback", "Gbit/s", "ratio");
    let mut plain = 0.0;
    for bytes in [LONG, SHORT] {
        let limit = ceiling(bytes, span)?;
        row(&format!("sockets alone, bursts of {bytes}-byte datagrams"), limit, None);
        for suite in [Suite::ChaCha20Poly1305, Suite::Aes256Gcm] {
            plain = writes(Setting { suite, ..Setting::of(bytes) }, MEBIBYTE, span)?;
            let name = format!("WRITE of 1 MiB, {bytes}-byte datagrams, {suite:?}, of the sockets");
            row(&name, plain, Some(limit));
        }
        for scheme in [Scheme::CkksSum, Scheme::Paillier2048] {
            let rate = sums(Setting::of(bytes), scheme, span)?;
            row(&format!("SUM of {scheme}, {bytes}-byte datagrams, of WRITE"), rate, Some(plain));
        }
        for (name, loss, trimming) in [("lost", 10, 0), ("trimmed", 0, 10)] {
            let setting = Setting { loss, trimming, ..Setting::of(bytes) };
            let rate = writes(setting, MEBIBYTE, span)?;
            row(&format!("WRITE, {bytes}-byte datagrams, 1 % {name}, of none"), rate, Some(plain));
        }
    }
    for (name, polling) in [("that poll", true), ("that sleep", false)] {
        let found = trips(Setting::of(LONG), 4096, polling, span)?;
        println!(
            "4 KiB WRITE with immediate and back, ends {name}: median {:.1} us, p99 {:.1} us of {}",
            found.median.as_secs_f64() * 1e6,
            found.p99.as_secs_f64() * 1e6,
            found.count
        );
    }
    Ok(())
}
