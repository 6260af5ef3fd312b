//! What the transport does on this machine: `cargo run --release -p ciphergram-benches --bin transport`.
//!
//! Arguments: seconds for each row, 2 if there are none; and a text, to measure only the rows that contain it.

use std::{process::ExitCode, time::Duration};

use ciphergram_benches::transport::{Failure, Setting, ceiling, sums, trips, writes};
use ciphergram_he::Scheme;
use ciphergram_nic::proto::Suite;

const MEBIBYTE: usize = 1 << 20;
const LONG: usize = 8900;
const SHORT: usize = 1400;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let seconds = arguments.next().map_or(Ok(2.0), |text| text.parse::<f64>());
    let wanted = arguments.next().unwrap_or_default();
    let measured = seconds
        .map_err(Failure::from)
        .and_then(|s| Table { wanted, span: Duration::from_secs_f64(s) }.measure());
    match measured {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("error: {failure}");
            ExitCode::FAILURE
        }
    }
}

/// The rows that are wanted, each measured for so long.
struct Table {
    wanted: String,
    span: Duration,
}

impl Table {
    /// Measures a row, and prints it with its ratio to another if both are wanted.
    fn row(
        &self,
        name: &str,
        of: Option<f64>,
        rate: impl Fn(Duration) -> Result<f64, Failure>,
    ) -> Result<Option<f64>, Failure> {
        if !name.contains(&self.wanted) {
            return Ok(None);
        }
        let rate = rate(self.span)?;
        let share = of.map_or(String::new(), |of| format!("{:>8.2}", rate / of));
        println!("{name:<58}{rate:>8.2}{share}");
        Ok(Some(rate))
    }

    fn measure(&self) -> Result<(), Failure> {
        println!("{:<58}{:>8}{:>8}", "two threads, loopback", "Gbit/s", "ratio");
        for bytes in [LONG, SHORT] {
            let name = format!("sockets alone, bursts of {bytes}-byte datagrams");
            let limit = self.row(&name, None, |span| ceiling(bytes, span))?;
            let mut plain = None;
            for suite in [Suite::ChaCha20Poly1305, Suite::Aes256Gcm] {
                let name =
                    format!("WRITE of 1 MiB, {bytes}-byte datagrams, {suite:?}, of the sockets");
                let setting = Setting { suite, ..Setting::of(bytes) };
                plain = self.row(&name, limit, |span| writes(setting, MEBIBYTE, span))?;
            }
            for scheme in [Scheme::CkksSum, Scheme::Paillier2048] {
                let name = format!("SUM of {scheme}, {bytes}-byte datagrams, of WRITE");
                self.row(&name, plain, |span| sums(Setting::of(bytes), scheme, span))?;
            }
            for (what, loss, trimming) in [("lost", 10, 0), ("trimmed", 0, 10)] {
                let setting = Setting { loss, trimming, ..Setting::of(bytes) };
                let name = format!("WRITE, {bytes}-byte datagrams, 1 % {what}, of none");
                self.row(&name, plain, |span| writes(setting, MEBIBYTE, span))?;
            }
        }
        for (how, polling) in [("poll", true), ("sleep", false)] {
            let name = format!("4 KiB WRITE with immediate and back, ends that {how}");
            if !name.contains(&self.wanted) {
                continue;
            }
            let found = trips(Setting::of(LONG), 4096, polling, self.span)?;
            println!(
                "{name}: median {:.1} us, p99 {:.1} us of {}",
                found.median.as_secs_f64() * 1e6,
                found.p99.as_secs_f64() * 1e6,
                found.count
            );
        }
        Ok(())
    }
}
