//! Every option that takes a value, as `--help` lists them, with values that are none.

use std::collections::BTreeSet;

use super::{
    table::{Row, check, row},
    world,
};
use crate::support::place::Place;

/// Words that make a command whole, and that end it soon whatever else is said. A command that `--help` lists
/// and that is not here fails the test.
const COMMANDS: &[(&str, &str)] = &[
    // Refused before anything is done: more bits than there are.
    ("demo", "--bits 25"),
    ("keygen", "--out nowhere/keys"),
    ("job", "--key none --out nowhere/out --dp-sigma 1 --dp-clip 1"),
    ("bundle", "--key none --out nowhere/out"),
    ("identity", "--out nowhere/out"),
    ("ranges", "--out nowhere/out none"),
    ("encrypt", "--key none --in none --out nowhere/out"),
    ("aggregate", "--key none --out nowhere/out none"),
    ("opener", "--key none --in none --out nowhere/out"),
    ("decrypt", "--key none --in none --out nowhere/out"),
    ("vectors screen", "--key none --out nowhere/out none"),
    ("vectors scores", "--key none --in none --out nowhere/out"),
    ("vectors predict", "--key none --model none --in none --out nowhere/out"),
    ("serve", "--key none --listen 127.0.0.1:0"),
    ("join", "--key none --server 127.0.0.1:9 --in none --out nowhere/out"),
    ("inspect", "none"),
    ("show params", ""),
    ("show program", "encrypt"),
    ("show devices", ""),
    ("show noise", "--sigma 1 --clip 1 --clients 3 --rounds 1"),
    ("bench", "--ops none"),
    ("complete", "bash"),
];

/// Numbers that some ranges leave out, what is no number, and what is no address.
const VALUES: [&str; 9] = [
    "0",
    "1",
    "25",
    "64",
    "340282366920938463463374607431768211456",
    "1e300",
    "0x10",
    "\u{663}",
    "127.0.0.1:65536",
];

/// Values that no option with a type takes, whatever the type.
const REFUSED: [&str; 6] = ["", "-1", "-0.5", "NaN", "-inf", "1x"];

/// Options that take numbers below zero: rotations go back, and angles are wide.
const SIGNED: [&str; 2] = ["--rotations", "--min-cosine"];

/// Values for options that take names of files.
const NAMES: [&str; 4] = ["", "-1", "25", "\u{1b}[31m"];

/// Returns the commands below the words of one, each with the words before it.
fn commands(place: &Place, of: &str) -> Vec<String> {
    let help = place.done(format!("{of} --help").trim_start());
    let Some((_, list)) = help.split_once("\nCommands:\n") else { return vec![of.to_owned()] };
    let lines = list.lines().take_while(|line| !line.is_empty());
    let names = lines.filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    let names = names.filter(|name| !name.is_empty() && *name != "help");
    names.flat_map(|name| commands(place, format!("{of} {name}").trim_start())).collect()
}

/// Returns the options of a command that take a value.
fn options(place: &Place, command: &str) -> BTreeSet<String> {
    let help = place.done(&format!("{command} --help"));
    let lines = help.lines().map(str::trim_start).filter(|line| line.starts_with('-'));
    let option = |line: &str| {
        let at = line.find("--")?;
        let (name, rest) = line[at..].split_once([' ', '='])?;
        rest.starts_with(['<', '[']).then(|| name.to_owned())
    };
    lines.filter_map(option).collect()
}

/// Returns the words of a command with an option of this value: in place of the one that they have, if any.
fn with_option(command: &str, words: &str, option: &str, value: &str) -> Row {
    let mut kept = vec![];
    let mut words = words.split(' ').filter(|word| !word.is_empty());
    while let Some(word) = words.next() {
        if word == option {
            words.next();
        } else {
            kept.push(word);
        }
    }
    let line = [command.split(' ').collect(), kept].concat().join(" ");
    row(2, &format!("{line} {option}={{}}"), "").put(value.as_bytes())
}

/// Returns whether an option takes a number, an address or one of some words, and refuses others for it.
fn is_typed(place: &Place, command: &str, words: &str, option: &str) -> bool {
    let ran = place.run(&with_option(command, words, option, "x").typed());
    ran.code == Some(2) && ran.stderr.contains(&format!("for '{option} <"))
}

#[test]
fn every_command_is_tried() {
    let found = commands(&Place::new(), "");
    let known: Vec<_> = COMMANDS.iter().map(|(name, _)| *name).collect();
    assert_eq!(found, known);
}

/// Returns rows of every option of a command: none panics, and those with a type name what they refuse.
fn of_command(place: &Place, command: &str, words: &str, tried: &mut BTreeSet<String>) -> Vec<Row> {
    let mut rows = vec![];
    for option in options(place, command) {
        // Those of all commands, and of many, are the same everywhere.
        if ["--log", "--engine"].contains(&&*option) && !tried.insert(option.clone()) {
            continue;
        }
        let of = |value: &&str| with_option(command, words, &option, value);
        if option.starts_with("--dp-") {
            // Judged when the job is made.
            rows.extend(VALUES.iter().chain(&REFUSED).map(of).map(Row::or_not));
        } else if is_typed(place, command, words, &option) {
            // What noise protects is said in words, of all numbers together.
            let named =
                if command == "show noise" { String::new() } else { format!("'{option} <") };
            rows.extend(VALUES.iter().map(of).map(Row::or_not));
            let is_refused =
                |value: &&&str| !(SIGNED.contains(&&*option) && ["-1", "-0.5"].contains(*value));
            rows.extend(REFUSED.iter().filter(is_refused).map(|value| of(value).and(&named)));
            let apart = of(&"-1").apart();
            rows.push(if is_refused(&&"-1") { apart.and(&named) } else { apart.or_not() });
        } else {
            rows.extend(NAMES.iter().map(of).map(Row::or_not));
        }
    }
    rows
}

/// Also where a number below zero is a word of its own.
#[test]
fn no_option_value_panics_options_are_named() {
    let (place, mut tried) = (world(), BTreeSet::new());
    let rows =
        COMMANDS.iter().flat_map(|(name, words)| of_command(&place, name, words, &mut tried));
    let rows: Vec<_> = rows.collect();
    assert!(rows.len() > 900, "{} rows", rows.len());
    check(&place, rows);
}
