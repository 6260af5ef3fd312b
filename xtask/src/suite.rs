//! Building the workspace, linted on the way, and running its tests.
//!
//! All stages build by the same command, so that each crate is compiled once: clippy's compiler lints what it
//! compiles. Most tests run under cargo-nextest, each in a process of its own. Those of a device share it, and run
//! under Rust's own harness in one process.

#[cfg(unix)]
use std::os::unix::process::CommandExt as _;
use std::{
    io::{self, Read as _},
    process::{Command, Stdio},
    sync::LazyLock,
    thread,
    time::{Duration, Instant},
};

use crate::command::{cargo, output, program, run as run_seen, shown};

/// The variable by which the engine chooses its adapter; see `GpuEngine`.
pub(crate) const GPU_CHOICE: &str = "CIPHERGRAM_GPU";

/// The packages of all builds but that of fuzz targets, which are linked with a library in C++.
pub(crate) const PACKAGES: &str = "--workspace --exclude ciphergram-fuzz";
/// Tests that need what their stage provides, in the language of nextest's filters.
const OF_OTHER_STAGES: &str = "binary_id(ciphergram-tests::accel) & test(/^gpu::/) \
                               | binary_id(ciphergram-tests::cli) & test(/^(gpu|namespaces)::/)";
/// The variable that multiplies the cases of properties and the worlds that are played, and its value in long runs.
const CASES: (&str, &str) = ("CIPHERGRAM_CASES", "8");
/// Cases of properties that leave their number to proptest, in long runs: eight times its default.
const LONG_PROPERTIES: &str = "2048";
/// Processes of tests for each core: many wait for a peer.
const PROCESSES_OF_A_CORE: usize = 4;
/// The time that a command of [`harness`] may take, once all is built.
const LIMIT: Duration = Duration::from_secs(1200);

/// Returns whether clippy is there, which every build of a run asks.
pub(crate) fn has_clippy() -> bool {
    static HAS_CLIPPY: LazyLock<bool> =
        LazyLock::new(|| output(cargo("clippy").arg("--version")).is_ok());
    *HAS_CLIPPY
}

/// Returns a command of cargo that builds as all stages do: with lints, warnings denied, where clippy is there.
///
/// Clippy's compiler optimises less before it generates code, and transforms take half as long again: nothing that is
/// measured or given away is built so.
pub(crate) fn linted(words: &str) -> Command {
    let mut command = cargo(words);
    // To tell lines in backtraces takes a tenth of a build; a panic tells its own.
    command.env("CARGO_PROFILE_RELEASE_DEBUG", "false");
    if has_clippy() {
        command.env("RUSTC_WORKSPACE_WRAPPER", "clippy-driver");
        // As `cargo clippy -- -D warnings` passes it on.
        command.env("CLIPPY_ARGS", "-Dwarnings__CLIPPY_HACKERY__");
    }
    command
}

/// Builds every target of the workspace.
///
/// # Errors
///
/// Returns one line that says how the build failed.
pub(crate) fn build() -> Result<(), String> {
    run_seen(&mut linted(&format!("build --release {PACKAGES} --all-targets")))
}

/// Runs the tests of a filter, which says nothing of those that have stages of their own, on the CPU path of this name
/// or else the usual one.
///
/// # Errors
///
/// Returns one line that says how they failed, or that there are none.
pub(crate) fn run(filter: &str, path: Option<&str>, long: bool) -> Result<(), String> {
    build()?;
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let mut command = linted(&format!("nextest run --release {PACKAGES} --no-fail-fast"));
    command.args(["--test-threads", &(PROCESSES_OF_A_CORE * cores).to_string()]);
    command.args(["--filterset", &format!("({filter}) - ({OF_OTHER_STAGES})")]);
    command.env(GPU_CHOICE, "none");
    if let Some(path) = path {
        command.env("CIPHERGRAM_CPU", path);
    }
    if long {
        command.args(["--profile", "long"]);
        command.env(CASES.0, CASES.1).env("PROPTEST_CASES", LONG_PROPERTIES);
    }
    run_seen(&mut command)
}

/// Returns a run of tests in one process for each program, `words` being cargo's options and the harness's.
pub(crate) fn harness(words: &str) -> Command {
    linted(&format!("test --release {PACKAGES} {words}"))
}

/// Runs a command of [`harness`] unseen, and returns what it printed.
///
/// # Errors
///
/// Returns one line, after all output is printed, if it fails or takes longer than any has a reason to.
pub(crate) fn captured(command: &mut Command, long: bool) -> Result<String, String> {
    let limit = if long { 8 * LIMIT } else { LIMIT };
    let line = shown(command);
    println!("$ {line}");
    let wrong = |error: io::Error| format!("`{line}`: {error}");
    let (mut pipe, writer) = io::pipe().map_err(wrong)?;
    command.stdin(Stdio::null()).stdout(writer.try_clone().map_err(wrong)?).stderr(writer);
    // A group of its own, so that what cargo starts ends with it if it hangs; whoever interrupts this run waits for it.
    #[cfg(unix)]
    command.process_group(0);
    let mut child = command.spawn().map_err(wrong)?;
    // It holds the pipe's other end, which would never close.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let reader = thread::spawn(move || {
        let mut bytes = vec![];
        pipe.read_to_end(&mut bytes).map(|_| String::from_utf8_lossy(&bytes).into_owned())
    });
    let begin = Instant::now();
    while !reader.is_finished() && begin.elapsed() < limit {
        thread::sleep(Duration::from_millis(50));
    }
    let is_late = !reader.is_finished();
    if is_late {
        let group = format!("kill -KILL -{}", child.id());
        let _ = program("sh").args(["-c", &group]).status();
        child.kill().map_err(wrong)?;
    }
    let output = reader.join().map_err(|_| format!("`{line}`: its output is lost"))?;
    let (output, status) = (output.map_err(wrong)?, child.wait().map_err(wrong)?);
    if status.success() {
        return Ok(output);
    }
    println!("{output}");
    Err(if is_late {
        format!("`{line}`: not done after {} s", limit.as_secs())
    } else {
        format!("`{line}`: {status}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_captured_is_all_or_a_failure() {
        assert!(captured(&mut cargo("--version"), false).unwrap().starts_with("cargo "));
        let failed = captured(&mut cargo("no-such-command"), false).unwrap_err();
        assert!(failed.starts_with("`cargo no-such-command`: exit "), "{failed}");
    }
}
