//! The timing test of operations on secrets: `cargo xtask timing` builds it and runs it on one core.
//!
//! See [`ciphergram_benches::timing`]. Exit 0: every operation was quiet and every control as it
//! must be; 1: a leak, a control that failed, or it could not run; 2: the arguments were not understood; 3:
//! no leak, but some would not have been found.

use std::process::ExitCode;

use ciphergram_benches::timing::{options::Options, session};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let options = match Options::parse(&words) {
        Ok(options) => options,
        Err(complaint) => {
            eprintln!("error: {complaint}");
            return ExitCode::from(2);
        }
    };
    // Inside a pool of one thread an engine has no other to hand work to.
    let run = rayon::ThreadPoolBuilder::new().num_threads(1).build().map_err(|why| why.to_string());
    let run =
        run.and_then(|pool| pool.install(|| session::run(&options)).map_err(|why| why.to_string()));
    run.unwrap_or_else(|why| {
        eprintln!("error: {why}");
        ExitCode::FAILURE
    })
}
