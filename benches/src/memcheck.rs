//! Tests whether a jump or an address depends on a secret: `cargo xtask timing --memcheck`.
//!
//! # Method
//! Valgrind's memcheck follows, bit by bit, which memory was never written, and reports each conditional jump
//! and each address that depends on such bits. Each test of the [catalogue](crate::timing::catalogue) marks
//! the memory of its secrets so and runs once: a report is a leak, whatever time says, and whatever the
//! secrets are. That is how it finds what time hides, such as an index into a table that stays in cache.
//!
//! # What a result means
//! No report: on this run's path through this binary nothing branched on a secret or was indexed by one. It
//! says nothing of instructions whose time depends on their operands, of a path that was not taken, nor of
//! AVX-512, which valgrind does not know: what runs is the portable path, or that of AVX2.
//!
//! # What is not marked
//! - Keys are marked once they are made. Making them tests numbers for primality and rejects draws, which
//!   are branches on secrets by design: a draw that is rejected says nothing about the one that is kept.
//! - The public half of what programs hold: n², rings, seeds, ciphertexts.
//! - Opened sums. Whether they are sums of their contributors is checked, and the outcome is a branch.
//!
//! Outputs stay undefined. Ciphertexts are public, but no operation here decides anything by one.
//!
//! # Source
//! A. Langley, "Checking that functions are constant time with Valgrind", 2010.

pub mod valgrind;

use std::process::ExitCode;

use ciphergram_accel::random::StreamRng;
use ciphergram_he::{Error, random};

use crate::timing::{
    catalogue::{Expect, Test},
    subject::{Class, Setup},
    verdict::conclusion,
};

/// Runs tests on the calling thread, each once, and prints a row for each as it ends. Those that compare a
/// class with itself are left out: here there are no classes.
///
/// # Errors
/// The engine's, or no randomness.
pub fn run(tests: &[&'static Test]) -> Result<ExitCode, Error> {
    let setup = Setup::new()?;
    let mut rng = random::generator()?;
    println!("engine {}: {}", setup.engine().name(), setup.engine().info().description);
    println!("test              reports");
    let mut verdicts = vec![];
    for test in tests.iter().filter(|test| test.expect != Expect::Same) {
        eprintln!("{}: {}", test.name, test.about);
        let reports = run_test(test, &setup, &mut rng)?;
        let verdict = test.expect.verdict(reports > 0);
        println!("{:16} {reports:>8}  {}", test.name, verdict.word(reports > 0));
        verdicts.push((test.name, verdict));
    }
    let leak = "a jump or an address depends on a secret in";
    let (text, code) = conclusion(&verdicts, leak, "no jump and no address depends on a secret");
    println!("{text}");
    Ok(code)
}

/// Returns how many jumps and addresses of one run depended on a secret.
fn run_test(test: &Test, setup: &Setup, rng: &mut StreamRng) -> Result<usize, Error> {
    let mut subject = (test.make)(setup, rng)?;
    subject.prepare(Class::B, rng)?;
    let secrets = subject.secrets();
    secrets.iter().for_each(valgrind::mark_undefined);
    let before = valgrind::error_count();
    let result = subject.run();
    let reports = valgrind::error_count() - before;
    result.map(|()| reports)
}
