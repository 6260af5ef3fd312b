//! Every option that takes a value, as `--help` lists them, with values that are none.

use std::collections::BTreeSet;

use crate::{
    place::Place,
    table::{Row, check, row},
    world,
};

/// Words that make a command whole, and that end it soon whatever else is said. A command that `--help` lists
/// and that is not here fails the test.
const COMMANDS: &[(&str, &str)] = &[
    // Refused before anything is done: more bits than there are.
    ("demo", "--bits 25"),
    ("keygen", "--out nowhere/keys"),
    ("key upgrade", "--key none --out nowhere/keys"),
    ("key status", "--key none"),
    ("job", "--key none --out nowhere/out"),
    ("identity", "--out nowhere/out"),
    ("ranges", "--out nowhere/out none"),
    ("encrypt", "--key none --in none --out nowhere/out"),
    ("aggregate", "--key none --out nowhere/out none"),
    ("decrypt", "--key none --in none --out nowhere/out"),
    ("serve", "--key none --listen 127.0.0.1:0"),
    ("join", "--key none --server 127.0.0.1:9 --in none --out nowhere/out"),
    // An address of nobody here.
    ("relay", "--listen 192.0.2.1:9 --to 127.0.0.1:9"),
    ("inspect", "none"),
    ("devices", ""),
    ("explain", "encrypt"),
    ("params explain", ""),
    ("dp", "--sigma 1 --clip 1 --clients 3 --rounds 1"),
    ("bench", "--ops none"),
    ("complete", "bash"),
];

/// Numbers of every kind that a range leaves out, and what is none.
const VALUES: &[&str] = &[
    "",
    " ",
    "-",
    "x",
    "1x",
    "0",
    "-0",
    "-1",
    "1",
    "25",
    "64",
    "1025",
    "65536",
    "4294967296",
    "18446744073709551616",
    "340282366920938463463374607431768211456",
    "-9223372036854775809",
    "0.5",
    "-0.5",
    "1e9",
    "1e400",
    "-1e400",
    "NaN",
    "nan",
    "inf",
    "-inf",
    "infinity",
    "0x10",
    "1_000",
    "1,5",
    "+1",
    "１",
    "\u{663}",
    "1\n",
    "\u{0}1",
    "%s%n",
    "../..",
    "sigma:",
    "sigma:-1",
    "sigma:NaN",
    "fixed:0",
    "fixed:1e400",
    "127.0.0.1",
    "127.0.0.1:",
    "127.0.0.1:65536",
    ":0",
    "[::1]",
    "[::1]:-1",
    "256.0.0.1:1",
];

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

#[test]
fn no_value_of_an_option_panics() {
    let place = world();
    let rows = COMMANDS.iter().flat_map(|(command, words)| {
        let options = options(&place, command);
        assert!(options.contains("--log"), "{command}: {options:?}");
        let values = |option: String| {
            // A process takes no words with a zero in them.
            let values = VALUES.iter().filter(|value| !value.contains('\0'));
            let rows = values.map(|value| with_option(command, words, &option, value).or_not());
            rows.collect::<Vec<_>>()
        };
        options.into_iter().flat_map(values).collect::<Vec<_>>()
    });
    check(&place, rows.collect());
}

/// Whatever the type, a number below zero is refused, and the option is named: also where the value is a word of
/// its own.
#[test]
fn options_with_a_type_are_named_with_what_they_refuse() {
    let place = world();
    let mut rows = vec![];
    for (command, words) in COMMANDS {
        for option in options(&place, command) {
            if !is_typed(&place, command, words, &option) {
                continue;
            }
            let named = format!("'{option} <");
            for value in ["", " ", "-1", "-0.5", "NaN", "-inf", "1x", "1e400", "1,5"] {
                rows.push(with_option(command, words, &option, value).and(&named));
            }
            rows.push(with_option(command, words, &option, "-1").apart().and(&named));
        }
    }
    assert!(rows.len() > 600, "{} rows", rows.len());
    check(&place, rows);
}
