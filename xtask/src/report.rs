//! Stages one after another, and a table of how each ended.

use std::{
    fs::{self, File, TryLockError},
    io,
    time::{Duration, Instant},
};

use crate::{
    command::target,
    outcome::Outcome,
    stages::{ALL, Stage},
};

/// A stage that ran.
struct Entry {
    name: &'static str,
    outcome: Outcome,
    took: Duration,
}

/// Runs `stages`, the `long` way or not, up to the first failure, then prints a table of all of them. Returns the exit
/// code.
///
/// # Errors
///
/// Returns one line: the target folder cannot be used.
pub(crate) fn run(stages: &[&Stage], long: bool) -> Result<u8, String> {
    let _lock = alone()?;
    Ok(run_each(stages, long))
}

fn run_each(stages: &[&Stage], long: bool) -> u8 {
    let mut entries: Vec<Entry> = Vec::new();
    for stage in stages {
        let entry = time(stage, long);
        let failed = matches!(entry.outcome, Outcome::Failed(_));
        entries.push(entry);
        if failed {
            break;
        }
    }
    let not_reached: Vec<&str> = stages[entries.len()..].iter().map(|stage| stage.name).collect();
    println!("\n{}", summary(&entries, &not_reached));
    if stages.iter().all(|stage| !stage.separate) {
        let separate: Vec<_> = ALL.iter().filter_map(Stage::flag).collect();
        println!("skipped unless asked for: {}", separate.join(", "));
    }
    entries.iter().any(|entry| matches!(entry.outcome, Outcome::Failed(_))).into()
}

/// Waits until no other run uses this target folder, whose environments and models would be changed under it.
pub(crate) fn alone() -> Result<File, String> {
    lock().map_err(|error| format!("{}: {error}", target().display()))
}

fn lock() -> io::Result<File> {
    fs::create_dir_all(target())?;
    let lock = File::create(target().join("xtask.lock"))?;
    match lock.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            println!("waiting for another run in this target folder");
            lock.lock()?;
        }
        Err(TryLockError::Error(error)) => return Err(error),
    }
    Ok(lock)
}

fn time(stage: &Stage, long: bool) -> Entry {
    println!("\n==> {}: {}", stage.name, stage.about);
    let start = Instant::now();
    let outcome = (stage.run)(long);
    let entry = Entry { name: stage.name, outcome, took: start.elapsed() };
    println!("<== {}", row(&entry));
    entry
}

/// Returns name, seconds, and how it ended.
fn row(entry: &Entry) -> String {
    let word = match &entry.outcome {
        Outcome::Passed => "passed",
        Outcome::Skipped(_) => "skipped",
        Outcome::Failed(_) => "FAILED",
    };
    format!("{:10} {:8.1} s  {word}", entry.name, entry.took.as_secs_f64())
}

fn summary(entries: &[Entry], not_reached: &[&str]) -> String {
    let mut lines: Vec<String> = entries.iter().map(row).collect();
    lines.extend(not_reached.iter().map(|name| format!("{name:10}          -  not reached")));
    let total: Duration = entries.iter().map(|entry| entry.took).sum();
    lines.push(format!("{:10} {:8.1} s", "total", total.as_secs_f64()));
    for Entry { name, outcome, .. } in entries {
        match outcome {
            Outcome::Passed => {}
            Outcome::Skipped(reason) => lines.push(format!("skipped {name}: {reason}")),
            Outcome::Failed(reason) => lines.push(format!("FAILED {name}: {reason}")),
        }
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stage(run: fn(bool) -> Outcome) -> Stage {
        Stage { name: "one", about: "a stage of a test", run, separate: false }
    }

    #[test]
    fn a_failure_stops_the_run_and_sets_the_exit_code() {
        let pass = stage(|_| Outcome::Passed);
        let skip = stage(|_| Outcome::Skipped("no tool".to_owned()));
        let fail = stage(|_| Outcome::Failed("it broke".to_owned()));
        let never = stage(|_| panic!("ran after a failure"));
        assert_eq!(run_each(&[&pass, &skip], false), 0);
        assert_eq!(run_each(&[&skip, &fail, &never], false), 1);
    }

    #[test]
    fn the_summary_tells_everything() {
        let entry =
            |name, outcome, seconds| Entry { name, outcome, took: Duration::from_secs(seconds) };
        let entries = [
            entry("format", Outcome::Passed, 1),
            entry("build", Outcome::Skipped("no clippy here".to_owned()), 0),
            entry("docs", Outcome::Failed("a broken link".to_owned()), 12),
        ];
        let expected = "\
format          1.0 s  passed
build           0.0 s  skipped
docs           12.0 s  FAILED
tests               -  not reached
total          13.0 s
skipped build: no clippy here
FAILED docs: a broken link";
        assert_eq!(summary(&entries, &["tests"]), expected);
    }
}
