//! The goodput of the transport on this machine: `cargo run --release -p ciphergram-benches --bin transport`.
//!
//! Arguments: seconds for each row, 2 if there are none; and a text, to measure only the rows that contain it. Or
//! `account` and seconds: where both ends' time goes.
//! With `--features peers` before `--bin`, quinn's rows are there as well; libfabric's are wherever it is installed.

use std::{process::ExitCode, time::Duration};

use ciphergram_benches::transport::{
    Column, Failure, Flow, Libfabric, Setting, Trips, Wait, account, bare_trips, ceiling,
    multiply_limit, sums, sums_insecure_1024, trips, writes,
};
use ciphergram_he::Scheme;
use ciphergram_nic::{
    faults::{Faults, MILLION},
    proto::Suite,
};

const MEBIBYTE: usize = 1 << 20;
const LONG: usize = 8900;
const SHORT: usize = 1400;
/// Width of a row's name.
const NAME: usize = 84;
/// Measurements of ours and of a rival's, in turn, for a span each.
const TURNS: usize = 3;
/// The ratio to a rival that ours is to reach.
#[cfg(feature = "peers")]
const WANTED_OF_QUINN: f64 = 3.0;
const WANTED_OF_LIBFABRIC: f64 = 1.0;
/// Bytes of a message that goes and comes, and the microseconds it may take more than bare sockets.
const TRIP_BYTES: usize = 4096;
const WANTED_OVER_BARE: f64 = 6.0;
/// The beginning of the names of a rival's rows.
const QUINN: &str = "quinn, one stream, 1 MiB writes";
const LIBFABRIC: &str = "libfabric tcp;ofi_rxm fi_write, 1 MiB, not encrypted";

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1).peekable();
    let is_account = arguments.next_if(|word| word == "account").is_some();
    let seconds = arguments.next().map_or(Ok(2.0), |text| text.parse::<f64>());
    let wanted = arguments.next().unwrap_or_default();
    let measured =
        seconds.map_err(Failure::from).map(Duration::from_secs_f64).and_then(
            |span| match is_account {
                true => accounts(span),
                false => Table { wanted, span }.measure(),
            },
        );
    match measured {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("error: {failure}");
            ExitCode::FAILURE
        }
    }
}

/// Prints where the time of both ends goes.
fn accounts(span: Duration) -> Result<(), Failure> {
    for bytes in [LONG, SHORT] {
        let columns = account(bytes, span)?;
        let row = |name: &str, of: &dyn Fn(&Column) -> String| {
            let cells: Vec<_> =
                columns.iter().map(|column| format!("{:>15}", of(column))).collect();
            println!("{name:<34}{}", cells.concat());
        };
        let picoseconds =
            |of: fn(&Column) -> f64| move |column: &Column| format!("{:.0}", of(column));
        row(&format!("ps a byte, {bytes}-byte datagrams"), &|column| column.name.into());
        row("total", &picoseconds(|c| c.total));
        row("  in the system", &picoseconds(|c| c.system));
        row("  AES-256-GCM", &picoseconds(|c| c.cipher));
        row("  one copy", &picoseconds(|c| c.copy));
        row("  adding, range check", &picoseconds(|c| c.add));
        row("  rest", &picoseconds(Column::rest));
        row("sockets alone", &picoseconds(|c| c.sockets));
        row("floor: sockets, AES, copy", &picoseconds(Column::floor));
        row("floor of total", &|column| format!("{:.2}", column.floor() / column.total));
    }
    Ok(())
}

/// The rows that are wanted, and how long each is measured.
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
        flow: impl Fn(Duration) -> Result<Flow, Failure>,
    ) -> Result<Option<f64>, Failure> {
        if !name.contains(&self.wanted) {
            return Ok(None);
        }
        let rate = flow(self.span)?.rate;
        let share = of.map_or(String::new(), |of| format!("{:>8.2}", rate / of));
        println!("{name:<NAME$}{rate:>8.2}{share}");
        Ok(Some(rate))
    }

    /// Measures a row, and prints it with its ratio to the sums of ciphertexts of `bits` bits that a core could make if
    /// it did nothing but multiply.
    fn beside_multiplies(
        &self,
        name: &str,
        bits: usize,
        flow: impl Fn(Duration) -> Result<Flow, Failure>,
    ) -> Result<(), Failure> {
        let limit = if name.contains(&self.wanted) { multiply_limit(bits)? } else { None };
        self.row(name, limit, flow).map(|_| ())
    }

    fn measure(&self) -> Result<(), Failure> {
        println!("{:<NAME$}{:>8}{:>8}", "two threads, loopback", "Gbit/s", "ratio");
        for bytes in [LONG, SHORT] {
            let name = format!("sockets alone, bursts of {bytes}-byte datagrams");
            let limit = self.row(&name, None, |span| ceiling(bytes, u64::MAX, span))?;
            let mut plain = None;
            for suite in [Suite::ChaCha20Poly1305, Suite::Aes256Gcm] {
                let name =
                    format!("WRITE of 1 MiB, {bytes}-byte datagrams, {suite:?}, of the sockets");
                let setting = Setting { suite, ..Setting::of(bytes) };
                plain = self.row(&name, limit, |span| writes(setting, MEBIBYTE, span))?;
            }
            for (pipelines, what) in [([1; 2], ""), ([2, 1], " to 2 pipelines")] {
                let setting = Setting { pipelines, ..Setting::of(bytes) };
                let name = format!("SUM of ckks-sum{what}, {bytes}-byte datagrams, of WRITE");
                self.row(&name, plain, |span| sums(setting, Scheme::CkksSum, span))?;
                let name = format!(
                    "SUM of paillier-2048{what}, {bytes}-byte datagrams, of a core's multiplies"
                );
                self.beside_multiplies(&name, 4096, |span| {
                    sums(setting, Scheme::Paillier2048, span)
                })?;
            }
            let name = format!(
                "SUM of paillier-1024 (insecure), {bytes}-byte datagrams, of a core's multiplies"
            );
            self.beside_multiplies(&name, 2048, |span| {
                sums_insecure_1024(Setting::of(bytes), span)
            })?;
            let setting = Setting { pipelines: [2; 2], ..Setting::of(bytes) };
            let name = format!("WRITE, {bytes}-byte datagrams, 2 pipelines to 2, of one to one");
            self.row(&name, plain, |span| writes(setting, MEBIBYTE, span))?;
            let (lost, trimmed) = (
                Faults { loss: MILLION / 100, ..Faults::default() },
                Faults { trimming: MILLION / 100, ..Faults::default() },
            );
            for (what, faults) in [("lost", lost), ("trimmed", trimmed)] {
                let setting = Setting { faults, ..Setting::of(bytes) };
                let name = format!("WRITE, {bytes}-byte datagrams, 1 % {what}, of none");
                self.row(&name, plain, |span| writes(setting, MEBIBYTE, span))?;
            }
            let setting = Setting { is_tcp: true, ..Setting::of(bytes) };
            let name = format!("WRITE, {bytes}-byte datagrams over TCP, of UDP");
            self.row(&name, plain, |span| writes(setting, MEBIBYTE, span))?;
            let setting = Setting { paths: 4, ..Setting::of(bytes) };
            let name = format!("WRITE, {bytes}-byte datagrams, sprayed over 4 paths, of one");
            self.row(&name, plain, |span| writes(setting, MEBIBYTE, span))?;
        }
        self.quinn()?;
        self.libfabric()?;
        self.trips()
    }

    /// Measures WRITE and a rival in turn, and prints medians; that of the ratio is over pairs. A rival that
    /// fails becomes a line.
    fn beside(
        &self,
        name: &str,
        wanted: f64,
        datagram_bytes: usize,
        theirs: impl Fn(Duration) -> Result<f64, Failure>,
    ) -> Result<(), Failure> {
        if !name.contains(&self.wanted) {
            return Ok(());
        }
        let mut pairs = vec![];
        for _ in 0..TURNS {
            let ours = writes(Setting::of(datagram_bytes), MEBIBYTE, self.span)?.rate;
            match theirs(self.span) {
                Ok(theirs) => pairs.push((ours, theirs)),
                Err(failure) => {
                    println!("{name}: {failure}");
                    return Ok(());
                }
            }
        }
        let middle = |of: fn(&(f64, f64)) -> f64| median(pairs.iter().map(of).collect());
        let (ours, theirs) = (middle(|pair| pair.0), middle(|pair| pair.1));
        let ratio = middle(|(ours, theirs)| ours / theirs);
        let verdict = if ratio >= wanted { "met" } else { "missed" };
        println!("{name:<NAME$}{theirs:>8.2}");
        let beside = format!("  WRITE in turn, {datagram_bytes}-byte datagrams, Aes256Gcm");
        println!(
            "{beside:<NAME$}{ours:>8.2}{ratio:>8.2}  ours / theirs, wanted {wanted}: {verdict}"
        );
        Ok(())
    }

    #[cfg(feature = "peers")]
    fn quinn(&self) -> Result<(), Failure> {
        use ciphergram_benches::transport::{MAX_DATAGRAM_BYTES, stream};
        for (bytes, ours) in [(LONG, LONG), (MAX_DATAGRAM_BYTES, LONG), (SHORT, SHORT)] {
            let name = format!("{QUINN}, {bytes}-byte datagrams, AES-256-GCM");
            self.beside(&name, WANTED_OF_QUINN, ours, |span| stream(bytes, MEBIBYTE, span))?;
        }
        Ok(())
    }

    #[cfg(not(feature = "peers"))]
    fn quinn(&self) -> Result<(), Failure> {
        self.absent(QUINN, "built without it; `--features peers` before `--bin` has its rows");
        Ok(())
    }

    fn libfabric(&self) -> Result<(), Failure> {
        let libfabric = match Libfabric::find() {
            Ok(libfabric) => libfabric,
            Err(failure) => {
                self.absent(LIBFABRIC, &failure.to_string());
                return Ok(());
            }
        };
        for (how, wait) in [("poll", Wait::Poll), ("sleep", Wait::Sleep)] {
            let name = format!("{LIBFABRIC}, ends that {how}");
            let theirs = |span| libfabric.writes(wait, span);
            self.beside(&name, WANTED_OF_LIBFABRIC, LONG, theirs)?;
        }
        Ok(())
    }

    /// Says why a rival has no rows, if they were wanted.
    fn absent(&self, rival: &str, reason: &str) {
        if rival.contains(&self.wanted) {
            println!("{rival}: {reason}");
        }
    }

    /// Measures round trips by bare sockets that poll, then by WRITE.
    fn trips(&self) -> Result<(), Failure> {
        let bytes = TRIP_BYTES;
        let bare = format!("{bytes} bytes and back, bare sockets that poll");
        let limit = self.trip(&bare, None, |span| bare_trips(bytes, span))?;
        for (how, polling) in [("poll", true), ("sleep", false)] {
            let name = format!("WRITE of {bytes} bytes with immediate and back, ends that {how}");
            self.trip(&name, limit.filter(|_| polling), |span| {
                trips(Setting::of(LONG), bytes, polling, span)
            })?;
        }
        Ok(())
    }

    /// Measures a row of round trips, and prints its median, and by how much it is longer than another; returns the
    /// median in microseconds.
    fn trip(
        &self,
        name: &str,
        over: Option<f64>,
        found: impl Fn(Duration) -> Result<Trips, Failure>,
    ) -> Result<Option<f64>, Failure> {
        if !name.contains(&self.wanted) {
            return Ok(None);
        }
        let found = found(self.span)?;
        let [median, p99] = [found.median, found.p99].map(|time| time.as_secs_f64() * 1e6);
        let longer = over.map_or(String::new(), |over| {
            let verdict = if median - over <= WANTED_OVER_BARE { "met" } else { "missed" };
            format!(", {:+.1} us, wanted +{WANTED_OVER_BARE}: {verdict}", median - over)
        });
        println!("{name}: median {median:.1} us, p99 {p99:.1} us of {}{longer}", found.count);
        Ok(Some(median))
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}
