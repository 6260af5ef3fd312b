//! The bodies of the fuzz targets of the transport, with scripts from a seed: a fuzzer's work in a
//! run that is short and always the same. `CIPHERGRAM_SEED=17` replays one script,
//! `CIPHERGRAM_SCRIPTS` sets their number.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

#[path = "../../fuzz/bodies/handshake.rs"]
mod handshake;
#[path = "../../fuzz/bodies/operations.rs"]
mod operations;

use rand_chacha::ChaCha8Rng;
use rand_core::{Rng as _, SeedableRng as _};

/// Names the script that is running when an assertion fails.
struct Running(u64);

impl Drop for Running {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("this script's seed: CIPHERGRAM_SEED={}", self.0);
        }
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

/// Runs scripts of many lengths.
fn scripts(count: u64, longest: u64, run: fn(&[u8])) {
    let seeds = match number("CIPHERGRAM_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("CIPHERGRAM_SCRIPTS").unwrap_or(count),
    };
    for seed in seeds {
        let _running = Running(seed);
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut bytes = vec![0; (rng.next_u64() % longest) as usize];
        rng.fill_bytes(&mut bytes);
        run(&bytes);
    }
}

#[test]
fn handshakes_stand_what_scripts_make_of_them() {
    scripts(100, 400, handshake::run);
}

#[test]
fn operations_over_a_link_that_scripts_rule_do_what_they_say() {
    scripts(300, 600, operations::run);
}
