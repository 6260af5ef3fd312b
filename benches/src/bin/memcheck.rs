//! The test of jumps and addresses that depend on secrets: `cargo xtask timing` runs it under valgrind.
//!
//! See [`ciphergram_benches::memcheck`]. Arguments: `[--only TEST]`. Exit 0: no operation leaked and every
//! control was seen; 1: not so, or it could not run; 2: the arguments were not understood.

use std::process::ExitCode;

use ciphergram_benches::{
    memcheck::{self, valgrind},
    timing::options::Options,
};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let options = match *words {
        [] | ["--only", _] => Options::parse(&words),
        _ => Err(format!("cannot read {:?}", words.join(" "))),
    };
    let options = match options {
        Ok(options) => options,
        Err(complaint) => {
            eprintln!("error: {complaint}");
            return ExitCode::from(2);
        }
    };
    if !valgrind::is_memcheck() {
        eprintln!("error: this is for valgrind to run: `cargo xtask timing --memcheck`");
        return ExitCode::FAILURE;
    }
    // Inside a pool of one thread an engine has no other to hand work to.
    let run = rayon::ThreadPoolBuilder::new().num_threads(1).build().map_err(|why| why.to_string());
    let run = run.and_then(|pool| {
        pool.install(|| memcheck::run(&options.tests()).map_err(|why| why.to_string()))
    });
    run.unwrap_or_else(|why| {
        eprintln!("error: {why}");
        ExitCode::FAILURE
    })
}
