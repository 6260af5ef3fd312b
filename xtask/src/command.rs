//! Child processes, and where things are in the workspace.

use std::{
    env,
    ffi::OsStr,
    path::{Path, PathBuf},
    process::{self, Command, ExitStatus, Stdio},
    sync::LazyLock,
};

/// Returns the root of the workspace around the current folder, in which every child process runs.
///
/// It is looked for at run time: a target folder that was copied holds a binary of another checkout.
/// Where there is none, the process ends with an error.
pub(crate) fn root() -> &'static Path {
    static ROOT: LazyLock<PathBuf> = LazyLock::new(|| {
        let here = env::current_dir().unwrap_or_default();
        workspace_around(&here).map(Path::to_owned).unwrap_or_else(|| {
            eprintln!("error: {} is in no checkout of Ciphergram", here.display());
            process::exit(2)
        })
    });
    &ROOT
}

/// Returns the nearest folder, `here` or above, that holds a lock file and this package.
fn workspace_around(here: &Path) -> Option<&Path> {
    let is_root =
        |folder: &Path| ["Cargo.lock", "xtask"].iter().all(|name| folder.join(name).exists());
    here.ancestors().find(|folder| is_root(folder))
}

/// Returns the folder in which cargo puts what it builds.
pub(crate) fn target() -> PathBuf {
    root().join(env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()))
}

/// Returns a command that runs in the root.
pub(crate) fn program(name: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(name);
    command.current_dir(root());
    command
}

/// Returns a run of cargo, the one that started us, with the arguments of `words`, split at spaces.
pub(crate) fn cargo(words: &str) -> Command {
    let mut command = program(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(words.split_whitespace());
    command
}

/// Runs a command that writes straight to our terminal.
///
/// # Errors
///
/// Returns one line that says which command failed and how.
pub(crate) fn run(command: &mut Command) -> Result<(), String> {
    let status = status(command)?;
    if status.success() { Ok(()) } else { Err(format!("`{}`: {status}", shown(command))) }
}

/// Runs a command that writes straight to our terminal, and returns how it ended.
///
/// # Errors
///
/// Returns one line that says which command could not be run and why.
pub(crate) fn status(command: &mut Command) -> Result<ExitStatus, String> {
    let line = shown(command);
    println!("$ {line}");
    command.status().map_err(|error| format!("`{line}`: {error}"))
}

/// Runs a command unseen and returns what it wrote to its standard output.
///
/// # Errors
///
/// Returns one line: the first that the command wrote to its standard error, if any.
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

/// Returns the command as a person would type it, without the folder of its program.
pub(crate) fn shown(command: &Command) -> String {
    let name = Path::new(command.get_program()).file_name().unwrap_or_default();
    let words = std::iter::once(name).chain(command.get_args());
    words.map(OsStr::to_string_lossy).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_root_is_the_workspace_that_one_stands_in() {
        assert!(root().join("xtask/src/command.rs").is_file());
        let copy = env::temp_dir().join(format!("ciphergram-root-{}", process::id()));
        let inside = copy.join("he/src");
        fs::create_dir_all(&inside).unwrap();
        assert_ne!(workspace_around(&inside), Some(&*copy));
        fs::create_dir_all(copy.join("xtask")).unwrap();
        fs::write(copy.join("Cargo.lock"), "").unwrap();
        assert_eq!(workspace_around(&inside), Some(&*copy));
        fs::remove_dir_all(&copy).unwrap();
    }

    #[test]
    fn commands_are_shown_as_typed() {
        let command = program(Path::new("some").join("cargo"));
        assert_eq!(shown(&command), "cargo");
        let cargo = cargo("doc --no-deps");
        assert_eq!(cargo.get_args().collect::<Vec<_>>(), ["doc", "--no-deps"]);
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
