//! Child processes, and where things are in the workspace.

use std::ffi::OsStr;
use std::io::{self, BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The root of the workspace, in which every child process runs.
pub(crate) fn root() -> &'static Path {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.parent().unwrap_or(package)
}

/// Where cargo puts what it builds.
pub(crate) fn target() -> PathBuf {
    root().join(std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()))
}

/// A command that runs in the root.
pub(crate) fn program(name: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(name);
    command.current_dir(root());
    command
}

/// The cargo that runs us, with `words` as its arguments, split at spaces.
pub(crate) fn cargo(words: &str) -> Command {
    let mut command = program(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(words.split_whitespace());
    command
}

/// Runs a command that writes straight to our terminal.
///
/// # Errors
///
/// One line saying which command failed and how.
pub(crate) fn run(command: &mut Command) -> Result<(), String> {
    let line = shown(command);
    println!("$ {line}");
    let status = command.status().map_err(|error| format!("`{line}`: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("`{line}`: {status}")) }
}

/// Runs a command whose standard output, line by line, is shown and told.
///
/// # Errors
///
/// One line saying which command failed and how.
pub(crate) fn run_telling(command: &mut Command, mut tell: impl FnMut(&str)) -> Result<(), String> {
    let line = shown(command);
    println!("$ {line}");
    let wrong = |error: io::Error| format!("`{line}`: {error}");
    let mut child = command.stdout(Stdio::piped()).spawn().map_err(wrong)?;
    for said in child.stdout.take().into_iter().flat_map(|pipe| BufReader::new(pipe).lines()) {
        let said = said.map_err(wrong)?;
        println!("{said}");
        tell(&said);
    }
    let status = child.wait().map_err(wrong)?;
    if status.success() { Ok(()) } else { Err(format!("`{line}`: {status}")) }
}

/// Runs a command unseen and returns what it wrote to its standard output.
///
/// # Errors
///
/// One line: the first that the command wrote to its standard error, if any.
pub(crate) fn output(command: &mut Command) -> Result<String, String> {
    let line = shown(command);
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("`{line}`: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let complaint = String::from_utf8_lossy(&output.stderr);
    let first = complaint.lines().next().unwrap_or("failed without a word");
    Err(format!("`{line}`: {first}"))
}

/// The command as a person would type it, with its program's name alone.
fn shown(command: &Command) -> String {
    let name = Path::new(command.get_program()).file_name().unwrap_or_default();
    let words = std::iter::once(name).chain(command.get_args());
    words.map(OsStr::to_string_lossy).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_is_the_workspace() {
        assert!(root().join("xtask").is_dir());
        assert!(root().join("Cargo.lock").is_file());
    }

    #[test]
    fn commands_are_shown_as_typed() {
        let command = program(Path::new("some").join("cargo"));
        assert_eq!(shown(&command), "cargo");
        let cargo = cargo("doc --no-deps");
        assert_eq!(cargo.get_args().collect::<Vec<_>>(), ["doc", "--no-deps"]);
    }

    #[test]
    fn lines_are_told_as_they_come() {
        let mut told = vec![];
        run_telling(&mut cargo("--version"), |line| told.push(line.to_owned())).unwrap();
        assert!(told.len() == 1 && told[0].starts_with("cargo "), "{told:?}");
        assert!(run_telling(&mut program("ciphergram-no-such-program"), |_| {}).is_err());
    }

    #[test]
    fn failures_are_one_line() {
        assert!(output(&mut cargo("--version")).unwrap().starts_with("cargo "));
        let refusal = output(&mut cargo("no-such-command")).unwrap_err();
        assert!(refusal.contains("no-such-command") && !refusal.contains('\n'), "{refusal}");
        let missing = run(&mut program("ciphergram-no-such-program")).unwrap_err();
        assert!(missing.starts_with("`ciphergram-no-such-program`: "), "{missing}");
    }
}
