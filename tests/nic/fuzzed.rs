//! The bodies of the fuzz targets of the transport, with scripts from a seed: a fuzzer's work in a
//! run that is short and always the same. `CIPHERGRAM_SEED=17` replays one script,
//! `CIPHERGRAM_CASES=50` runs fifty times as many.

#[path = "../../fuzz/bodies/handshake.rs"]
mod handshake;
#[path = "../../fuzz/bodies/operations.rs"]
mod operations;
#[path = "../../fuzz/bodies/stream.rs"]
mod stream;

use ciphergram_tests::seeds;
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

/// Runs scripts of many lengths.
fn scripts(count: u32, longest: u64, run: fn(&[u8])) {
    for seed in seeds(count) {
        let _running = Running(seed);
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut bytes = vec![0; (rng.next_u64() % longest) as usize];
        rng.fill_bytes(&mut bytes);
        run(&bytes);
    }
}

#[test]
fn streams_are_the_same_however_they_are_cut() {
    scripts(2000, 3000, stream::run);
}

#[test]
fn handshakes_stand_what_scripts_make_of_them() {
    scripts(100, 400, handshake::run);
}

#[test]
fn operations_over_scripted_links_are_right() {
    scripts(300, 600, operations::run);
}
