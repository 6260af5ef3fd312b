//! Developer commands of the workspace, run as `cargo xtask`.
//!
//! One list of stages is what a person runs before sending a change and what continuous
//! integration runs after it:
//!
//! - [`stages`]: what the stages are, in order, and the ones that are a single cargo command;
//! - [`install`], [`hygiene`], [`python`]: the stages that are more than that;
//! - [`report`]: running them, timing them, telling what was skipped and why;
//! - [`timing`]: no stage, but a request of its own: whether time tells secrets;
//! - [`command`]: child processes.
//!
//! Not here: anything that a user of Ciphergram needs; that belongs to `cli`.

mod command;
mod hygiene;
mod install;
mod python;
mod report;
mod stages;
mod timing;

use std::process::ExitCode;

use stages::Stage;

/// What a person asked for.
#[derive(Debug, PartialEq)]
enum Request {
    Help,
    Test(Vec<&'static Stage>),
    Timing(Vec<String>),
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match parse(&words) {
        Ok(Request::Help) => {
            println!("{}", help());
            ExitCode::SUCCESS
        }
        Ok(Request::Test(stages)) => report::run(&stages),
        Ok(Request::Timing(words)) => timing::run(&words),
        Err(complaint) => {
            eprintln!("error: {complaint}; `cargo xtask help` lists what there is");
            ExitCode::from(2)
        }
    }
}

fn parse(words: &[&str]) -> Result<Request, String> {
    match words {
        [] | ["help" | "--help" | "-h"] => Ok(Request::Help),
        ["test"] => Ok(Request::Test(stages::ALL.iter().collect())),
        ["test", "--only", name] => {
            let stage = stages::ALL.iter().find(|stage| stage.name == *name);
            stage.map(|stage| Request::Test(vec![stage])).ok_or(format!("no stage {name:?}"))
        }
        ["timing", rest @ ..] if rest.len().is_multiple_of(2) => {
            match rest.iter().step_by(2).find(|word| !timing::OPTIONS.contains(word)) {
                Some(word) => Err(format!("no option {word:?}")),
                None => Ok(Request::Timing(rest.iter().map(|&word| word.to_owned()).collect())),
            }
        }
        _ => Err(format!("cannot read {:?}", words.join(" "))),
    }
}

fn help() -> String {
    let mut text = String::from(
        "Developer commands of the workspace.\n\n\
         cargo xtask test                run every stage below, in order, up to the first failure\n\
         cargo xtask test --only STAGE   run one\n\
         cargo xtask timing              whether the time of an operation tells its secrets;\n\
         \x20                               [--samples N] [--only TEST] [--minutes M]\n\
         cargo xtask help                this text\n\n\
         Stages:",
    );
    for stage in stages::ALL {
        text += &format!("\n  {:10}  {}", stage.name, stage.about);
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
        let Ok(Request::Test(all)) = parse(&["test"]) else { panic!("no stages") };
        assert_eq!(all.len(), stages::ALL.len());
        let Ok(Request::Test(one)) = parse(&["test", "--only", "clippy"]) else {
            panic!("no stage")
        };
        assert_eq!(one.iter().map(|stage| stage.name).collect::<Vec<_>>(), ["clippy"]);
        assert_eq!(parse(&["timing"]), Ok(Request::Timing(vec![])));
        let words = ["timing", "--samples", "5000", "--only", "pow-ones"];
        let rest = words[1..].iter().map(|&word| word.to_owned()).collect();
        assert_eq!(parse(&words), Ok(Request::Timing(rest)));
    }

    #[test]
    fn misuse_is_named() {
        assert_eq!(parse(&["test", "--only", "tea"]), Err("no stage \"tea\"".to_owned()));
        assert_eq!(parse(&["test", "--only"]), Err("cannot read \"test --only\"".to_owned()));
        assert_eq!(parse(&["brew"]), Err("cannot read \"brew\"".to_owned()));
        let words = ["timing", "--brew", "tea"];
        assert_eq!(parse(&words), Err("no option \"--brew\"".to_owned()));
        assert_eq!(parse(&words[..2]), Err("cannot read \"timing --brew\"".to_owned()));
    }

    #[test]
    fn help_lists_every_stage() {
        assert!(stages::ALL.iter().all(|stage| help().contains(stage.about)));
    }
}
