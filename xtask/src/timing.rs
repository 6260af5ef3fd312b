//! The request that tests whether time depends on secrets: builds the binary of `benches`, runs it on
//! one core. No stage of `cargo xtask test`: it takes minutes, and a loaded machine drowns it.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, ExitCode};

use crate::command::{cargo, output, program, run as run_seen, target};

/// Options that its arguments may begin with, each before a value that the binary itself checks.
pub(crate) const OPTIONS: [&str; 3] = ["--samples", "--only", "--minutes"];

/// Builds and runs it with `words` as its arguments.
pub(crate) fn run(words: &[String]) -> ExitCode {
    match build_and_run(words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(complaint) => {
            eprintln!("error: {complaint}");
            ExitCode::FAILURE
        }
    }
}

fn build_and_run(words: &[String]) -> Result<(), String> {
    run_seen(&mut cargo("build --release --package ciphergram-benches --bin timing"))?;
    let binary =
        target().join("release").join("timing").with_extension(std::env::consts::EXE_EXTENSION);
    let core = last_core().filter(|_| output(program("taskset").arg("--version")).is_ok());
    if core.is_none() {
        println!("not pinned to a core: that takes Linux and `taskset`");
    }
    run_seen(pinned(&binary, core).args(words))
}

/// Returns the binary, by way of `taskset` if it is to stay on a core.
fn pinned(binary: &Path, core: Option<u32>) -> Command {
    let Some(core) = core else { return program(binary) };
    let words: [OsString; 3] = ["--cpu-list".into(), core.to_string().into(), binary.into()];
    let mut command = program("taskset");
    command.args(words);
    command
}

/// Returns the last of the cores that this process may run on: interrupts favour the first.
fn last_core() -> Option<u32> {
    last_of(&std::fs::read_to_string("/proc/self/status").ok()?)
}

/// Reads it from the line `Cpus_allowed_list:` with words such as `0-3,8`.
fn last_of(status: &str) -> Option<u32> {
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    list.rsplit([',', '-']).next()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_core_is_found() {
        assert_eq!(last_of("Name:\tx\nCpus_allowed_list:\t0-3,8\nMems_allowed:\t1"), Some(8));
        assert_eq!(last_of("Cpus_allowed_list:\t0-63"), Some(63));
        assert_eq!(last_of("Cpus_allowed_list:\t1"), Some(1));
        assert_eq!(last_of("Name:\tx"), None);
    }

    #[test]
    fn a_core_goes_through_taskset() {
        let shown = |core| {
            let command = pinned(Path::new("timing"), core);
            let words = std::iter::once(command.get_program()).chain(command.get_args());
            words.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(shown(Some(3)), "taskset --cpu-list 3 timing");
        assert_eq!(shown(None), "timing");
    }
}
