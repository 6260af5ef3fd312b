//! Virtual environments of Python under the target folder, filled from lists of pinned packages.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::{
    command::{output, program, root, run as run_seen, target},
    outcome::Outcome,
};

/// A registry may be away for a moment in CI; a person offline should not wait for it.
const CI_RETRIES: usize = 5;
/// The names of an interpreter, the usual one first.
const NAMES: [&str; 5] = ["python3", "python3.14", "python3.13", "python3.12", "python3.11"];

/// An environment: its folder, what it holds, and the oldest Python that is good enough.
pub(crate) struct Environment<'a> {
    /// A folder under the target folder.
    pub(crate) name: &'a str,
    /// Lists of packages, from the root.
    pub(crate) lists: &'a [&'a str],
    /// The oldest minor version of Python 3.
    pub(crate) oldest: u32,
}

impl Environment<'_> {
    /// Returns its interpreter, once it holds the packages.
    ///
    /// # Errors
    ///
    /// Returns why it cannot: no Python, no venv module, no way to the packages.
    pub(crate) fn interpreter(&self) -> Result<PathBuf, String> {
        let folder = target().join(self.name);
        let relative = if cfg!(windows) { "Scripts/python.exe" } else { "bin/python" };
        let interpreter = folder.join(relative);
        let wanted = self.packages()?;
        // What the environment was filled from, so that a second run needs no network.
        let stamp = folder.join("requirements.installed.txt");
        if fs::read_to_string(&stamp).is_ok_and(|installed| installed == wanted) {
            return Ok(interpreter);
        }
        output(program(self.python()?).args(["-m", "venv", "--clear"]).arg(&folder))?;
        self.install(&interpreter)?;
        let wrong = |error| format!("requirements.installed.txt: {error}");
        fs::write(&stamp, wanted).map_err(wrong)?;
        Ok(interpreter)
    }

    /// Runs what needs its interpreter, or says that `what` there is without.
    pub(crate) fn run(&self, what: &str, run: impl FnOnce(&Path) -> Result<(), String>) -> Outcome {
        match self.interpreter() {
            Ok(interpreter) => run(&interpreter).into(),
            Err(reason) => {
                println!("!! NOT RUN, {what}: {reason}");
                Outcome::Skipped(reason)
            }
        }
    }

    /// Returns the text of all lists.
    fn packages(&self) -> Result<String, String> {
        let read = |list: &&str| {
            fs::read_to_string(root().join(list)).map_err(|error| format!("{list}: {error}"))
        };
        self.lists.iter().map(read).collect()
    }

    /// Returns the first interpreter that is new enough and can make environments.
    fn python(&self) -> Result<&'static str, String> {
        let Self { oldest, .. } = self;
        let probe =
            format!("import ensurepip, sys, venv; sys.exit(sys.version_info < (3, {oldest}))");
        let fits = |name: &&str| output(program(name).args(["-c", &probe])).is_ok();
        let missing = || format!("no Python 3.{oldest} or later with its venv module");
        NAMES.into_iter().find(fits).ok_or_else(missing)
    }

    fn install(&self, interpreter: &Path) -> Result<(), String> {
        let in_ci = std::env::var("CI").is_ok_and(|value| value == "true");
        let lists = self.lists.iter().flat_map(|list| ["--requirement", list]);
        let retries = format!("--retries {}", if in_ci { CI_RETRIES } else { 1 });
        pip(interpreter, &retries, &lists.collect::<Vec<_>>())
    }
}

/// Installs packages, with options split at spaces and words that are left as they are.
pub(crate) fn pip(interpreter: &Path, options: &str, words: &[&str]) -> Result<(), String> {
    let usual = "-m pip install --quiet --disable-pip-version-check";
    let options = usual.split(' ').chain(options.split_whitespace());
    run_seen(program(interpreter).args(options).args(words))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with<'a>(lists: &'a [&'a str], oldest: u32) -> Environment<'a> {
        Environment { name: "venv-of-no-stage", lists, oldest }
    }

    #[test]
    fn what_is_missing_is_named() {
        let complaint = with(&["no/such/list.txt"], 0).interpreter().unwrap_err();
        assert!(complaint.starts_with("no/such/list.txt: "), "{complaint}");
        let complaint = with(&["xtask/Cargo.toml"], 999).interpreter().unwrap_err();
        assert_eq!(complaint, "no Python 3.999 or later with its venv module");
    }
}
