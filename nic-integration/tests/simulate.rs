//! Thousands of worlds, each made by one seed: clients that come, crash, return, lie and are cut
//! off, an aggregator that restarts, clocks that differ, a network with every fault, and an
//! attacker on the path. The invariants are checked after every step (`support/world.rs`). `cargo
//! xtask simulate --worlds N` plays more; `--worlds 1 --seed S` plays one again and prints its
//! events.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

#[path = "simulate/attacker.rs"]
mod attacker;
#[path = "simulate/plan.rs"]
mod plan;
#[path = "simulate/play.rs"]
mod play;
#[path = "simulate/summary.rs"]
mod summary;
#[path = "support/world.rs"]
#[expect(dead_code, reason = "some of it is for single worlds")]
mod world;

use std::cell::RefCell;
use std::panic::{self, AssertUnwindSafe};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use summary::Summary;

const DEFAULT_WORLDS: u64 = 2000;
/// Worlds that are certain to have every fault among them.
const MANY_WORLDS: u64 = 500;
/// Violations that are reported one by one.
const MAX_REPORTED: u64 = 10;

thread_local! {
    /// The message of this thread's last panic.
    static PANIC: RefCell<String> = const { RefCell::new(String::new()) };
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let Some((worlds, first)) = parse(&words) else {
        // `cargo test` gives every test the same words.
        println!("simulate: not played, for it takes --worlds N and --seed S only");
        return ExitCode::SUCCESS;
    };
    panic::set_hook(Box::new(|info| PANIC.with_borrow_mut(|line| *line = info.to_string())));
    let (next, violations) = (AtomicU64::new(0), AtomicU64::new(0));
    let summary = Mutex::new(Summary::default());
    let work = || {
        let mut mine = Summary::default();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= worlds {
                break;
            }
            let seed = first.wrapping_add(number);
            match panic::catch_unwind(AssertUnwindSafe(|| play::play(seed, worlds == 1))) {
                Ok(played) => mine.merge(played),
                Err(_) if violations.fetch_add(1, Ordering::Relaxed) < MAX_REPORTED => report(seed),
                Err(_) => {}
            }
        }
        summary.lock().unwrap().merge(mine);
    };
    let threads = thread::available_parallelism().map_or(1, |count| count.get() as u64);
    thread::scope(|scope| {
        (0..threads.min(worlds)).for_each(|_| {
            scope.spawn(work);
        });
    });
    let violations = violations.into_inner();
    let summary = summary.into_inner().unwrap();
    println!("{summary}violations: {violations}");
    let missing = summary.missing().filter(|_| worlds >= MANY_WORLDS);
    if let Some(fault) = missing {
        println!("no fault of the kind {fault:?} happened: what is it that this shows?");
    }
    if violations == 0 && missing.is_none() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn report(seed: u64) {
    let message = PANIC.with_borrow(|line| line.clone());
    println!("violation in the world of seed {seed}: {message}");
    println!("again: cargo xtask simulate --worlds 1 --seed {seed}");
}

/// Parses the number of worlds, and the seed of the first; `None` if other options are given.
fn parse(words: &[String]) -> Option<(u64, u64)> {
    let seed = std::env::var("CIPHERGRAM_SEED").ok();
    let (mut worlds, mut first) = match seed {
        Some(seed) => (1, seed.parse().expect("CIPHERGRAM_SEED is a number")),
        None => (DEFAULT_WORLDS, 0),
    };
    for pair in words.chunks(2) {
        let [option, value] = pair else { return None };
        let place = match option.as_str() {
            "--worlds" => &mut worlds,
            "--seed" => &mut first,
            _ => return None,
        };
        *place = value.parse().ok()?;
    }
    Some((worlds, first))
}
