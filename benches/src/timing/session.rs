//! A run of the program.

use std::{
    process::ExitCode,
    time::{Duration, Instant},
};

use ciphergram_accel::random::StreamRng;
use ciphergram_he::{Error, random};

use super::{
    BATCH,
    catalogue::Test,
    crops::Crops,
    measure::{Samples, measure, warm_up},
    options::Options,
    report::{Entry, HEAD, conclusion},
    subject::Setup,
};

/// Runs the tests on the calling thread and prints a row for each as it ends. Forecasts of how long
/// each takes go to standard error.
///
/// # Errors
/// The engine's, or no randomness.
pub fn run(options: &Options) -> Result<ExitCode, Error> {
    let setup = Setup::new()?;
    let mut rng = random::generator()?;
    println!("engine {}: {}", setup.engine().name(), setup.engine().info().description);
    println!("samples of {BATCH} items, of ckks-sum a polynomial, on core {}", cores());
    println!("Paillier key of 2048 bits, ckks-sum key for 64 clients and 16 bits");
    println!("{HEAD}");
    let (start, tests) = (Instant::now(), options.tests());
    let mut entries = vec![];
    for (index, test) in tests.iter().enumerate() {
        let left = options.limit.map(|limit| limit.saturating_sub(start.elapsed()));
        let share = left.map_or(Duration::MAX, |left| left / (tests.len() - index) as u32);
        let entry = run_test(test, &setup, options.samples, share, &mut rng)?;
        println!("{}", entry.row());
        entries.push(entry);
    }
    let (text, code) = conclusion(&entries);
    println!("{text}");
    Ok(code)
}

fn run_test(
    test: &'static Test,
    setup: &Setup,
    samples: usize,
    limit: Duration,
    rng: &mut StreamRng,
) -> Result<Entry, Error> {
    let asked = test.samples(samples);
    let mut subject = (test.make)(setup, rng)?;
    let each = warm_up(&mut *subject, rng)?;
    let forecast = each.mul_f64(asked as f64).min(limit);
    eprintln!("{}: {}; about {:.0} s", test.name, test.about, forecast.as_secs_f64());
    let Samples { taken, times } = measure(&mut *subject, asked, limit, rng)?;
    Ok(Entry::new(test, (taken, asked), &Crops::new(times)))
}

/// Returns the cores that Linux lets this thread run on: one, if it is pinned. `?` elsewhere.
fn cores() -> String {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    list.map_or("?", str::trim).to_owned()
}
