//! The requests that test secrets: `timing`, whether time depends on them, and then memcheck, whether a jump or
//! an address does. They build and run binaries of `benches`, on one core. No stage of `cargo xtask test`: they
//! take minutes, and a loaded machine drowns time.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::command::{cargo, output, program, run as run_seen, status, target};

/// Options that its arguments may begin with, each before a value that the binary itself checks.
pub(crate) const OPTIONS: [&str; 3] = ["--samples", ONLY, "--minutes"];
/// The one of them that memcheck has too.
pub(crate) const ONLY: &str = "--only";

/// The exit code of a run that found no leak but would not have found every one: of the binary, and of ours.
const CANNOT_TELL: u8 = 3;

/// Builds and runs both with `words` as their arguments, as far as they have them, and returns the exit code.
///
/// # Errors
///
/// Returns one line that says what did not build or run.
pub(crate) fn run(words: &[String]) -> Result<u8, String> {
    let only = words.chunks(2).filter(|pair| pair[0] == ONLY).flatten().cloned();
    let only: Vec<String> = only.collect();
    build()?;
    Ok(worst([Some(time(words)?), memcheck(&only)?].into_iter().flatten()))
}

/// Builds and runs memcheck alone. Skipped, it cannot tell.
///
/// # Errors
///
/// Returns one line that says what did not build or run.
pub(crate) fn run_memcheck(words: &[String]) -> Result<u8, String> {
    build()?;
    Ok(memcheck(words)?.unwrap_or(CANNOT_TELL))
}

/// Returns the exit code of several runs: that of the first that failed, but one that cannot tell gives way.
fn worst(codes: impl Iterator<Item = u8>) -> u8 {
    let place = |code: &u8| match *code {
        0 => 0,
        CANNOT_TELL => 1,
        _ => 2,
    };
    codes.fold(0, |worst, code| if place(&code) > place(&worst) { code } else { worst })
}

fn build() -> Result<(), String> {
    let words = "build --release --package ciphergram-benches --bin timing --bin memcheck";
    run_seen(&mut cargo(words))
}

/// Returns the exit code of the test of times.
fn time(words: &[String]) -> Result<u8, String> {
    let core = last_core().filter(|_| output(program("taskset").arg("--version")).is_ok());
    if core.is_none() {
        println!("not pinned to a core: that takes Linux and `taskset`");
    }
    code(pinned(&binary("timing"), core).args(words))
}

/// Returns the exit code of the same operations under valgrind's memcheck; none if they are skipped.
fn memcheck(words: &[String]) -> Result<Option<u8>, String> {
    let why = if cfg!(not(all(target_arch = "x86_64", target_os = "linux"))) {
        "its requests to valgrind are written for Linux on x86-64"
    } else if output(program("valgrind").arg("--version")).is_err() {
        "`valgrind` is not installed"
    } else {
        let mut command = program("valgrind");
        // All errors count, and each is shown with the callers that name the operation.
        command.args(["--quiet", "--error-limit=no", "--num-callers=24"]);
        // Valgrind knows no AVX-512, and takes long for AVX2.
        if std::env::var_os("CIPHERGRAM_CPU").is_none() {
            command.env("CIPHERGRAM_CPU", "portable");
        }
        return code(command.arg(binary("memcheck")).args(words)).map(Some);
    };
    println!("memcheck: skipped, {why}");
    Ok(None)
}

fn binary(name: &str) -> PathBuf {
    target().join("release").join(name).with_extension(std::env::consts::EXE_EXTENSION)
}

/// Runs a command that writes to our terminal, and returns its exit code.
fn code(command: &mut Command) -> Result<u8, String> {
    let status = status(command)?;
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    code.ok_or_else(|| format!("{}: {status}", command.get_program().display()))
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
    fn a_leak_goes_before_a_run_that_cannot_tell() {
        for (codes, expected) in [
            ([0, 0], 0),
            ([3, 0], 3),
            ([0, 3], 3),
            ([3, 1], 1),
            ([1, 3], 1),
            ([2, 1], 2),
            ([101, 0], 101),
        ] {
            assert_eq!(worst(codes.into_iter()), expected, "{codes:?}");
        }
        assert_eq!(worst([].into_iter()), 0);
    }

    #[test]
    fn exit_codes_are_passed_on() {
        let exit = |words: &str| code(&mut cargo(words));
        assert_eq!(exit("--version"), Ok(0));
        assert_eq!(exit("no-such-command"), Ok(101));
        assert!(code(&mut program("ciphergram-no-such-program")).is_err());
    }

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
