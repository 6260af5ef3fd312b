//! `serve --config`: options from a file. Their names are those of the command line, and it is the parser of the
//! command line that reads their values: no option is declared twice.

use std::{ffi::OsString, fs, path::Path};

use clap::{ArgAction, parser::ValueSource};
use toml::{Spanned, de::DeTable, de::DeValue};

use super::{command, line};
use crate::failure::{Failure, at};

/// The command that takes options from a file.
const COMMAND: &str = "serve";
/// The option that names it.
const CONFIG: &str = "config";

/// Returns the words of a command line with the options of the file that its `--config` names, if it has one. An
/// option that the command line has itself is left out. A command line that is not understood is returned as it is.
///
/// # Errors
/// The file cannot be read, or holds something else; its line is named.
pub(crate) fn expanded(words: Vec<OsString>) -> Result<Vec<OsString>, Failure> {
    // Options that are needed may be in the file.
    let parser = lenient();
    let Ok(given) = parser.clone().try_get_matches_from(&words) else { return Ok(words) };
    let Some((COMMAND, given)) = given.subcommand() else { return Ok(words) };
    let Some(path) = given.get_one::<std::path::PathBuf>(CONFIG) else { return Ok(words) };
    let text = fs::read_to_string(path).map_err(at(path))?;
    let typed = |id: &str| given.value_source(id) == Some(ValueSource::CommandLine);
    let options = options(path, &text, &parser)?.into_iter().filter(|option| !typed(&option.id));
    let at = words.iter().skip(1).position(|word| word == COMMAND).map_or(words.len(), |at| at + 2);
    let (before, after) = words.split_at(at);
    let mut all = before.to_vec();
    all.extend(options.filter_map(|option| option.word.map(OsString::from)));
    all.extend_from_slice(after);
    Ok(all)
}

/// Returns the parser of all commands, but for which options of [`COMMAND`] must be there.
fn lenient() -> clap::Command {
    let mut parser = command()
        .mut_subcommand(COMMAND, |command| command.mut_args(|argument| argument.required(false)));
    parser.build();
    parser
}

/// An option of a file.
struct FileOption {
    id: String,
    /// The word of a command line that says the same; none for what is not switched on.
    word: Option<String>,
}

/// Reads the options of a file; the parser has checked each value.
fn options(path: &Path, text: &str, parser: &clap::Command) -> Result<Vec<FileOption>, Failure> {
    let wrong = |start: usize, why: &str| {
        let number = 1 + text[..start.min(text.len())].matches('\n').count();
        Failure::Misuse(format!("{}: line {number}: {why}", path.display()))
    };
    let table = DeTable::parse(text)
        .map_err(|e| wrong(e.span().map_or(0, |span| span.start), e.message()))?;
    let mut options = vec![];
    for (name, value) in table.get_ref() {
        let at = name.span().start;
        let option = option(name.get_ref(), value, parser).map_err(|why| wrong(at, &why))?;
        let words = ["ciphergram", COMMAND].into_iter().chain(option.word.as_deref());
        parser.clone().try_get_matches_from(words).map_err(|e| {
            let line = line(&e);
            wrong(at, line.strip_prefix("error: ").unwrap_or(&line))
        })?;
        options.push(option);
    }
    Ok(options)
}

fn option(
    name: &str,
    value: &Spanned<DeValue<'_>>,
    parser: &clap::Command,
) -> Result<FileOption, String> {
    let arguments =
        parser.find_subcommand(COMMAND).into_iter().flat_map(clap::Command::get_arguments);
    let mut known = arguments.filter(|a| is_option(a));
    let argument = known.find(|a| a.get_long() == Some(name)).ok_or_else(|| {
        format!("`{name}` is no option of {COMMAND}: `ciphergram {COMMAND} --help` lists them")
    })?;
    let word = match (argument.get_action(), value.get_ref()) {
        (ArgAction::SetTrue, DeValue::Boolean(on)) => on.then(|| format!("--{name}")),
        (ArgAction::SetTrue, _) => return Err(format!("`{name}` is true or false")),
        (_, DeValue::String(text)) => Some(format!("--{name}={text}")),
        (_, DeValue::Integer(number)) => Some(format!("--{name}={number}")),
        (_, DeValue::Float(number)) => Some(format!("--{name}={number}")),
        _ => return Err(format!("the value of `{name}` is a text or a number")),
    };
    Ok(FileOption { id: argument.get_id().to_string(), word })
}

/// Returns whether a file may have that argument.
fn is_option(argument: &clap::Arg) -> bool {
    let action = matches!(argument.get_action(), ArgAction::Set | ArgAction::SetTrue);
    action && argument.get_long().is_some_and(|name| name != CONFIG)
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXAMPLE: &str = include_str!("../../../packaging/serve.toml");

    /// Returns the example with every option that it shows switched on.
    fn with_all_options() -> String {
        let shown = |line: &str| {
            let option =
                line.strip_prefix('#').filter(|rest| rest.starts_with(char::is_alphabetic));
            option.unwrap_or(line).to_owned() + "\n"
        };
        EXAMPLE.lines().map(shown).collect()
    }

    fn read(text: &str) -> Result<Vec<FileOption>, String> {
        options(Path::new("serve.toml"), text, &lenient()).map_err(|failure| failure.to_string())
    }

    #[test]
    fn the_example_has_every_option_of_serve() {
        let mut found: Vec<_> =
            read(&with_all_options()).ok().unwrap().into_iter().map(|option| option.id).collect();
        let parser = lenient();
        let serve = parser.find_subcommand(COMMAND).unwrap();
        let known = serve.get_arguments().filter(|argument| is_option(argument));
        let mut known: Vec<_> = known.map(|argument| argument.get_id().to_string()).collect();
        assert!(known.len() > 15 && known.contains(&"log".to_string()), "{known:?}");
        found.sort();
        known.sort();
        assert_eq!(found, known);
        // And as it stands it is whole.
        let words = read(EXAMPLE).ok().unwrap().into_iter().filter_map(|option| option.word);
        let words = ["ciphergram".to_string(), COMMAND.into()].into_iter().chain(words);
        command().try_get_matches_from(words).unwrap();
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        for (text, why) in [
            ("clients = 3\ncleints = 4\n", "serve.toml: line 2: `cleints` is no option of serve: "),
            ("config = \"x\"", "line 1: `config` is no option of serve"),
            ("help = true", "line 1: `help` is no option of serve"),
            ("join_deadline = 3", "line 1: `join_deadline` is no option of serve"),
            ("\n\nclients = 0", "line 3: invalid value '0' for '--clients <CLIENTS>'"),
            ("clients = \"three\"", "line 1: invalid value 'three' for '--clients <CLIENTS>'"),
            ("clients = -1", "line 1: invalid value '-1' for '--clients"),
            ("clients = [3]", "line 1: the value of `clients` is a text or a number"),
            ("by-chunk = 1", "line 1: `by-chunk` is true or false"),
            ("deadline = true", "line 1: the value of `deadline` is a text or a number"),
            ("json = false\nclients = 3\nclients = 4", "line 3: duplicate key"),
            ("clients = 3\nby-chunk", "line 2: "),
            ("[serve]\nclients = 3", "line 1: `serve` is no option of serve"),
        ] {
            let told = read(text).err().unwrap();
            assert!(told.contains(why), "{text:?}: {told}");
        }
    }

    #[test]
    fn the_command_line_wins() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("serve.toml");
        fs::write(
            &path,
            "key = 'k.json'\nclients = 3\nrounds = 7\nby-chunk = true\ndeadline = 2.5\n",
        )
        .unwrap();
        let path = path.to_str().unwrap();
        let expand = |words: &[&str]| {
            let words = words.iter().map(OsString::from).collect();
            let words = expanded(words).ok().unwrap().into_iter();
            words.map(|word| word.into_string().unwrap()).collect::<Vec<_>>()
        };
        let words = expand(&["ciphergram", "serve", "--rounds", "2", "--config", path]);
        let expected = [
            "ciphergram",
            "serve",
            "--by-chunk",
            "--clients=3",
            "--deadline=2.5",
            "--key=k.json",
            "--rounds",
            "2",
            "--config",
            path,
        ];
        assert_eq!(words, expected);
        assert!(command().try_get_matches_from(words).is_ok());
        // What is not understood, or has no file, is left to the parser.
        for words in
            [&["ciphergram", "serve", "--config"][..], &["ciphergram", "serve"], &["ciphergram"]]
        {
            assert_eq!(expand(words), words);
        }
    }
}
