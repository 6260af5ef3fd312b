//! The stage that reads every file of the repository for what must not grow or stay behind.
//!
//! It sees files that git tracks and files that a commit would add, and looks for:
//!
//! - files of Rust and Python that have grown too long to read, and comments of Rust, lines of Python and pages about
//!   Python that are too wide;
//! - macros and calls that somebody debugged with, and marks of a merge that was not finished;
//! - [`circles`] of imports;
//! - package registries other than the public one, in the lock file.

use crate::{
    circles,
    command::{output, program, root},
    outcome::Outcome,
};

/// The most lines of a file of Rust or Python: a longer one is several.
const MAX_LINES: usize = 700;
/// The most characters of a line of a Rust comment, of Python, or of a page of the Python package.
const MAX_WIDTH: usize = 120;
/// Beginnings of lines that nobody means to publish, in halves so that this file has none.
const LEFTOVERS: [&str; 5] = [
    concat!("dbg", "!("),
    concat!("todo", "!("),
    concat!("break", "point()"),
    concat!("<<<<", "<<< "),
    concat!(">>>>", ">>> "),
];
/// The only registry that the lock file may name.
const PUBLIC_REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Reads all files, and names the first few offences.
pub(crate) fn run() -> Outcome {
    let list = "ls-files --cached --others --exclude-standard -z";
    let names = match output(program("git").args(list.split(' '))) {
        Ok(names) => names,
        Err(reason) => return Outcome::Skipped(reason),
    };
    let names: Vec<&str> = names.split_terminator('\0').collect();
    let files = names.iter().flat_map(|name| offences_in(name));
    let offences: Vec<String> = files.chain(circles::offences()).collect();
    for offence in &offences {
        println!("{offence}");
    }
    println!("{} files read, {} offences", names.len(), offences.len());
    match offences.first() {
        None => Outcome::Passed,
        Some(first) => Outcome::Failed(format!("{} offences, first {first}", offences.len())),
    }
}

fn offences_in(name: &str) -> Vec<String> {
    // A file that was deleted but not yet removed from git has no content to judge.
    std::fs::read(root().join(name)).map_or_else(|_| Vec::new(), |bytes| judge(name, &bytes))
}

/// Returns a line for each offence of one file.
fn judge(name: &str, bytes: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(bytes);
    let mut offences = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if let Some(complaint) = judge_line(name, line) {
            offences.push(format!("{name}:{}: {complaint}", index + 1));
        }
    }
    let lines = text.lines().count();
    if is_code(name) && lines > MAX_LINES {
        offences.push(format!("{name}: {lines} lines, more than {MAX_LINES}"));
    }
    offences
}

fn is_code(name: &str) -> bool {
    name.ends_with(".rs") || is_python(name)
}

fn is_python(name: &str) -> bool {
    [".py", ".pyi"].iter().any(|end| name.ends_with(end))
}

fn judge_line(name: &str, line: &str) -> Option<String> {
    let begun = line.trim_start();
    if let Some(leftover) = LEFTOVERS.iter().find(|leftover| begun.starts_with(**leftover)) {
        return Some(format!("{leftover} was left behind"));
    }
    let width = line.chars().count();
    if width > MAX_WIDTH && is_wrapped(name, begun) {
        return Some(format!("a line of {width} characters, more than {MAX_WIDTH}"));
    }
    let source = line.strip_prefix("source = ").map(|source| source.trim_matches('"'));
    let foreign = |source: &str| name == "Cargo.lock" && source != PUBLIC_REGISTRY;
    source.filter(|source| foreign(source)).map(|source| format!("{source} is not crates.io"))
}

/// Returns whether a line, without its indentation, is one of those that are wrapped.
fn is_wrapped(name: &str, begun: &str) -> bool {
    // A row of a table cannot be.
    let is_row = |begun: &str| begun.trim_start_matches(['/', '!', ' ']).starts_with('|');
    let is_comment = name.ends_with(".rs") && begun.starts_with("//");
    let is_page = name.starts_with("python/") && name.ends_with(".md");
    is_python(name) || (is_comment || is_page) && !is_row(begun)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leftovers_are_found_where_they_begin_a_line() {
        for leftover in LEFTOVERS {
            let found = judge("a", format!("\n  {leftover}x)").as_bytes());
            assert_eq!(found, [format!("a:2: {leftover} was left behind")]);
            assert_eq!(judge("a", format!("see {leftover}x)").as_bytes()), [""; 0]);
        }
    }

    #[test]
    fn wide_lines_are_found() {
        let comment = |characters: usize| format!("    // {}", "\u{e9}".repeat(characters - 7));
        assert_eq!(judge("a.rs", comment(MAX_WIDTH).as_bytes()), [""; 0]);
        let wider = comment(MAX_WIDTH + 1);
        let complaint = "a.rs:1: a line of 121 characters, more than 120";
        assert_eq!(judge("a.rs", wider.as_bytes()), [complaint]);
        for other in ["a.md", "a.json", "docs/a.md"] {
            assert_eq!(judge(other, wider.as_bytes()), [""; 0]);
        }
        for wrapped in ["python/a.md", "a.py", "b/a.pyi"] {
            let complaint = format!("{wrapped}:1: a line of 121 characters, more than 120");
            assert_eq!(judge(wrapped, wider.as_bytes()), [complaint]);
        }
        let row = format!("//! | {} |", "x".repeat(MAX_WIDTH));
        assert_eq!(judge("a.rs", row.as_bytes()), [""; 0]);
        assert_eq!(judge("python/a.md", &row.as_bytes()[4..]), [""; 0]);
    }

    #[test]
    fn foreign_registries_are_found_in_the_lock_file() {
        let public = format!("[[package]]\nsource = \"{PUBLIC_REGISTRY}\"\n");
        assert_eq!(judge("Cargo.lock", public.as_bytes()), [""; 0]);
        let foreign = b"version = 4\nsource = \"sparse+https://mirror.example/index/\"\n";
        assert_eq!(
            judge("Cargo.lock", foreign),
            ["Cargo.lock:2: sparse+https://mirror.example/index/ is not crates.io"]
        );
    }

    #[test]
    fn overlong_files_are_found() {
        let lines = "//\n".repeat(MAX_LINES);
        assert_eq!(judge("a.rs", lines.as_bytes()), [""; 0]);
        let longer = lines + "//\n";
        assert_eq!(judge("a.rs", longer.as_bytes()), ["a.rs: 701 lines, more than 700"]);
        assert_eq!(judge("a.py", longer.as_bytes()), ["a.py: 701 lines, more than 700"]);
        assert_eq!(judge("a.json", longer.as_bytes()), [""; 0]);
    }
}
