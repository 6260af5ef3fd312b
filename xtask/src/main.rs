//! Developer commands of the workspace, run as `cargo xtask`.
//!
//! One list of stages is what a person runs before sending a change and what continuous
//! integration runs after it:
//!
//! - [`stages`]: the stages, in order, and those that are a single command;
//! - [`install`], [`hygiene`], [`gpu`], [`hdl`], [`python`], [`wheel`]: the stages that are more than that;
//! - [`venv`]: environments of Python for them;
//! - [`suite`]: building the workspace, linted on the way, and running its tests;
//! - [`report`], [`outcome`]: running stages, timing them, listing what was skipped and why;
//! - [`timing`], [`simulate`], [`kit`], [`dist`]: no stages, but requests of their own: whether time, jumps or
//!   addresses depend on secrets, simulated worlds, a kit for a machine with a GPU, and an archive to install
//!   from;
//! - [`command`]: child processes.
//!
//! Not here: anything that a user of Ciphergram needs; that belongs to `cli`.

mod circles;
mod command;
mod dist;
mod gpu;
mod hdl;
mod hygiene;
mod install;
mod kit;
mod outcome;
mod python;
mod report;
mod simulate;
mod stages;
mod suite;
mod timing;
mod venv;
mod wheel;

#[cfg(unix)]
use std::os::unix::process::CommandExt as _;
use std::process::ExitCode;

use outcome::Outcome;
use stages::Stage;

/// A command of the person who runs this.
#[derive(Debug, PartialEq)]
enum Request {
    Help,
    /// Stages, and whether they run the long way.
    Test(Vec<&'static Stage>, bool),
    Timing(Vec<String>),
    Memcheck(Vec<String>),
    Simulate(Vec<String>),
    /// Words for the relay.
    Relay(Vec<String>),
    /// Whether it is also run here.
    Gpu(bool),
    Hdl,
    HdlRegisters,
    /// Whether the Python package is made too.
    Dist(bool),
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (result, wrong) = match parse(&words) {
        Ok(request) => (run(request), 1),
        Err(complaint) => (Err(format!("{complaint}; `cargo xtask help` lists what there is")), 2),
    };
    ExitCode::from(result.unwrap_or_else(|error| {
        eprintln!("error: {error}");
        wrong
    }))
}

/// Does what is asked for, and returns the exit code.
fn run(request: Request) -> Result<u8, String> {
    match request {
        Request::Help => println!("{}", help()),
        Request::Test(stages, long) => return report::run(&stages, long),
        Request::Timing(words) => return timing::run(&words),
        Request::Memcheck(words) => return timing::run_memcheck(&words),
        Request::Simulate(words) => simulate::run(&words)?,
        Request::Relay(words) => {
            let line = "run --release --quiet --package ciphergram-nic --example relay --";
            let mut relay = command::cargo(line);
            relay.args(words);
            // In place of this process, whose number whoever ends the relay knows.
            #[cfg(unix)]
            return Err(relay.exec().to_string());
            #[cfg(not(unix))]
            command::run(&mut relay)?;
        }
        Request::Gpu(here) => kit::run(here)?,
        Request::Hdl => {
            let _lock = report::alone()?;
            match hdl::run(true) {
                Outcome::Passed => {}
                Outcome::Skipped(why) | Outcome::Failed(why) => return Err(why),
            }
        }
        Request::HdlRegisters => hdl::write_registers()?,
        Request::Dist(with_python) => dist::run(with_python)?,
    }
    Ok(0)
}

fn parse(words: &[&str]) -> Result<Request, String> {
    match words {
        [] | ["help" | "--help" | "-h"] => Ok(Request::Help),
        ["test", rest @ .., "--long"] => test(words, rest, true),
        ["test", rest @ ..] => test(words, rest, false),
        ["timing", "--memcheck", rest @ ..] => {
            options(words, rest, &[timing::ONLY]).map(Request::Memcheck)
        }
        ["timing", rest @ ..] => options(words, rest, &timing::OPTIONS).map(Request::Timing),
        ["simulate", rest @ ..] => options(words, rest, &simulate::OPTIONS).map(Request::Simulate),
        ["relay", rest @ ..] => {
            Ok(Request::Relay(rest.iter().map(|&word| word.to_owned()).collect()))
        }
        ["dist"] => Ok(Request::Dist(false)),
        ["dist", "--python"] => Ok(Request::Dist(true)),
        ["hdl"] => Ok(Request::Hdl),
        ["hdl", "registers"] => Ok(Request::HdlRegisters),
        ["gpu"] => Ok(Request::Gpu(true)),
        ["gpu", "--build-only"] => Ok(Request::Gpu(false)),
        _ => Err(unread(words)),
    }
}

fn test(words: &[&str], rest: &[&str], long: bool) -> Result<Request, String> {
    let all = stages::ALL.iter();
    let chosen: Vec<_> = match rest {
        [] => all.filter(|stage| !stage.separate).collect(),
        ["--only", name] => all.filter(|stage| stage.name == *name).collect(),
        [flag] => all.filter(|stage| stage.flag().as_deref() == Some(flag)).collect(),
        _ => vec![],
    };
    match (chosen.is_empty(), rest) {
        (false, _) => Ok(Request::Test(chosen, long)),
        (true, ["--only", name]) => Err(format!("no stage {name:?}")),
        (true, _) => Err(unread(words)),
    }
}

/// Returns options and their values, as they are.
fn options(words: &[&str], rest: &[&str], known: &[&str]) -> Result<Vec<String>, String> {
    if !rest.len().is_multiple_of(2) {
        return Err(unread(words));
    }
    match rest.iter().step_by(2).find(|word| !known.contains(word)) {
        Some(word) => Err(format!("no option {word:?}")),
        None => Ok(rest.iter().map(|&word| word.to_owned()).collect()),
    }
}

fn unread(words: &[&str]) -> String {
    format!("cannot read {:?}", words.join(" "))
}

fn help() -> String {
    let mut text = String::from(
        "Developer commands of the workspace.\n\n\
         cargo xtask test                run every stage below, in order, up to the first failure\n\
         cargo xtask test --only STAGE   run one\n\
         cargo xtask test --flower       run one of those that run only so: they take big frameworks of Python\n\
         cargo xtask test --long         with eight times as many cases of properties and worlds, and all\n\
         \x20                               tests on all paths and drivers; also with --only STAGE\n\
         cargo xtask timing              whether the time of operations depends on secrets, and whether\n\
         \x20                               their jumps and addresses do, by valgrind's memcheck;\n\
         \x20                               [--samples N] [--only TEST] [--minutes M]; exit 1: a leak, or\n\
         \x20                               a control failed, 3: cannot tell\n\
         cargo xtask timing --memcheck   jumps and addresses alone; [--only TEST]\n\
         cargo xtask simulate            rounds in simulated worlds, every fault included, and sums of lying\n\
         \x20                               aggregators, 20,000 unless --worlds says another number;\n\
         \x20                               [--worlds N] [--seed S]; one world is printed as it goes\n\
         cargo xtask relay --help        a bad network between real processes\n\
         cargo xtask gpu                 one binary and one script that test and measure on the GPU of\n\
         \x20                               whatever machine they are taken to; runs them here too, but for\n\
         \x20                               [--build-only]\n\
         cargo xtask hdl                 every bench, count and proof of the hardware\n\
         cargo xtask hdl registers       write what follows from hdl/registers.toml\n\
         cargo xtask dist                an archive to install from, with its checksum, in target/dist\n\
         cargo xtask dist --python       that, and the Python package: a wheel for Linux with old C\n\
         \x20                               libraries, audited and tested, and a source distribution\n\
         cargo xtask help                this text\n\n\
         Stages:",
    );
    for stage in stages::ALL {
        let name = stage.flag().unwrap_or(stage.name.to_owned());
        text += &format!("\n  {name:10}  {}", stage.about);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_become_requests() {
        assert_eq!(parse(&[]), Ok(Request::Help));
        assert_eq!(parse(&["help"]), Ok(Request::Help));
        let chosen = |words: &[&str]| match parse(words) {
            Ok(Request::Test(stages, long)) => {
                (stages.iter().map(|stage| stage.name).collect::<Vec<_>>(), long)
            }
            other => panic!("{other:?}"),
        };
        let usual = stages::ALL.iter().filter(|stage| !stage.separate);
        let all: Vec<_> = usual.map(|stage| stage.name).collect();
        assert_eq!(chosen(&["test"]), (all.clone(), false));
        assert_eq!(chosen(&["test", "--long"]), (all, true));
        assert_eq!(chosen(&["test", "--only", "tests"]), (vec!["tests"], false));
        assert_eq!(chosen(&["test", "--only", "tests", "--long"]), (vec!["tests"], true));
        assert_eq!(chosen(&["test", "--flower"]), (vec!["flower"], false));
        assert_eq!(chosen(&["test", "--only", "flower"]), (vec!["flower"], false));
        assert!(!chosen(&["test"]).0.contains(&"flower"));
        assert_eq!(parse(&["timing"]), Ok(Request::Timing(vec![])));
        let words = ["timing", "--samples", "5000", "--only", "pow-ones"];
        let rest = words[1..].iter().map(|&word| word.to_owned()).collect();
        assert_eq!(parse(&words), Ok(Request::Timing(rest)));
        let words = ["timing", "--memcheck", "--only", "seal"];
        let rest = words[2..].iter().map(|&word| word.to_owned()).collect();
        assert_eq!(parse(&words), Ok(Request::Memcheck(rest)));
        let words = vec!["--loss".to_owned(), "5".to_owned()];
        assert_eq!(parse(&["relay", "--loss", "5"]), Ok(Request::Relay(words)));
        assert_eq!(parse(&["gpu"]), Ok(Request::Gpu(true)));
        assert_eq!(parse(&["dist"]), Ok(Request::Dist(false)));
        assert_eq!(parse(&["dist", "--python"]), Ok(Request::Dist(true)));
        assert_eq!(parse(&["hdl"]), Ok(Request::Hdl));
        assert_eq!(parse(&["hdl", "registers"]), Ok(Request::HdlRegisters));
        assert_eq!(parse(&["gpu", "--build-only"]), Ok(Request::Gpu(false)));
        let worlds = vec!["--worlds".to_owned(), "9".to_owned()];
        assert_eq!(parse(&["simulate", "--worlds", "9"]), Ok(Request::Simulate(worlds)));
    }

    #[test]
    fn misuse_is_named() {
        assert_eq!(parse(&["test", "--only", "tea"]), Err("no stage \"tea\"".to_owned()));
        assert_eq!(parse(&["test", "--only"]), Err("cannot read \"test --only\"".to_owned()));
        // Only separate stages have flags of their own.
        assert_eq!(parse(&["test", "--tests"]), Err("cannot read \"test --tests\"".to_owned()));
        assert_eq!(parse(&["brew"]), Err("cannot read \"brew\"".to_owned()));
        let words = ["timing", "--brew", "tea"];
        assert_eq!(parse(&words), Err("no option \"--brew\"".to_owned()));
        let samples = ["timing", "--memcheck", "--samples", "5000"];
        assert_eq!(parse(&samples), Err("no option \"--samples\"".to_owned()));
        assert_eq!(parse(&words[..2]), Err("cannot read \"timing --brew\"".to_owned()));
    }

    #[test]
    fn help_lists_every_stage() {
        assert!(stages::ALL.iter().all(|stage| help().contains(stage.about)));
    }
}
