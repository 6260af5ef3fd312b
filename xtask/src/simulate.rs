//! The request that plays simulated worlds: the tests `sim` of `nic` and `worlds` of `he`. Stages of `cargo xtask test`
//! play the same seeds every time; this plays as many as one likes.

use crate::{command::run as run_seen, suite};

/// The options that it takes, and the variables by which the tests learn of them.
pub(crate) const OPTIONS: [&str; 2] = ["--worlds", "--seed"];
const VARIABLES: [&str; 2] = ["CIPHERGRAM_WORLDS", "CIPHERGRAM_SEED"];

/// Worlds of each kind, unless another number is asked for.
const WORLDS: &str = "20000";

/// Builds and runs both with the values of options, `words` being each option before its value.
///
/// # Errors
///
/// Returns one line that says how they failed.
pub(crate) fn run(words: &[String]) -> Result<(), String> {
    let play = |test: &str| {
        // As many as one likes take as long as they take, and a name that no test has is an error.
        let line = "nextest run --release --profile worlds --no-capture";
        let mut command = suite::linted(&format!("{line} {} --filterset", suite::PACKAGES));
        command.arg(test);
        command.env(VARIABLES[0], WORLDS);
        for pair in words.chunks_exact(2) {
            for (option, variable) in OPTIONS.iter().zip(VARIABLES) {
                if pair[0] == *option {
                    command.env(variable, &pair[1]);
                }
            }
        }
        run_seen(&mut command)
    };
    play("binary_id(ciphergram-tests::nic) & test(/^sim::/)")?;
    play("binary_id(ciphergram-tests::he) & test(/^worlds::/)")
}
