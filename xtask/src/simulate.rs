//! The request that plays simulated worlds: the test `simulate` of `nic-integration`, with arguments. A
//! stage of `cargo xtask test` plays the same seeds every time; this plays as many as one likes.

use std::process::ExitCode;

use crate::command::{cargo, run as run_seen};

/// Options that its arguments may begin with, each before a value that the test itself checks.
pub(crate) const OPTIONS: [&str; 2] = ["--worlds", "--seed"];

/// Builds and runs it with `words` as its arguments.
pub(crate) fn run(words: &[String]) -> ExitCode {
    let mut command = cargo("test --release --package ciphergram-nic --test simulate --");
    match run_seen(command.args(words)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(complaint) => {
            eprintln!("error: {complaint}");
            ExitCode::FAILURE
        }
    }
}
