//! The request that plays simulated worlds: the tests `simulate` of `nic-integration` and `liars_worlds` of `he`,
//! with arguments. Stages of `cargo xtask test` play the same seeds every time; this plays as many as one likes.

use std::process::ExitCode;

use crate::command::{cargo, run as run_seen};

/// Options that its arguments may begin with, each before a value that the test itself checks.
pub(crate) const OPTIONS: [&str; 2] = ["--worlds", "--seed"];

/// Worlds of a lying aggregator, unless another number is asked for.
const LIARS_WORLDS: &str = "20000";

/// Builds and runs both with `words` as their arguments.
pub(crate) fn run(words: &[String]) -> ExitCode {
    let mut rounds = cargo("test --release --package ciphergram-nic --test simulate --");
    let mut liars = cargo("test --release --package ciphergram-he --test liars_worlds --");
    if !words.iter().any(|word| word == OPTIONS[0]) {
        liars.args([OPTIONS[0], LIARS_WORLDS]);
    }
    let played = run_seen(rounds.args(words)).and_then(|()| run_seen(liars.args(words)));
    match played {
        Ok(()) => ExitCode::SUCCESS,
        Err(complaint) => {
            eprintln!("error: {complaint}");
            ExitCode::FAILURE
        }
    }
}
