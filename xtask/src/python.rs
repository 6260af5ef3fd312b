//! The stage that holds the binary beside independent Python implementations.
//!
//! Every script of `cli/tests/peers/` is one check: it gets the binary's path, and exits non-zero
//! if something differs. Packages are pinned in `requirements.txt` beside the scripts.

use std::path::{Path, PathBuf};

use crate::{
    command::{output, program, root, run as run_seen, target},
    outcome::Outcome,
    programs,
};

/// Where the scripts stand, from the root.
const SCRIPTS: &str = "cli/tests/peers";
/// A registry may be away for a moment in CI; a person offline should not wait for it.
const CI_ATTEMPTS: usize = 3;

/// Runs every script, in order of their names.
pub(crate) fn run() -> Outcome {
    let interpreter = match environment() {
        Ok(interpreter) => interpreter,
        Err(reason) => {
            println!("!! NOT RUN, no check against other implementations: {reason}");
            return Outcome::Skipped(reason);
        }
    };
    run_scripts(&interpreter).into()
}

fn run_scripts(interpreter: &Path) -> Result<(), String> {
    // With the tests, so that no second set of features is built.
    programs::build()?;
    let binary =
        target().join("release").join(format!("ciphergram{}", std::env::consts::EXE_SUFFIX));
    for script in scripts()? {
        // -B: leave no compiled files beside the scripts.
        run_seen(program(interpreter).arg("-B").arg(script).arg("--binary").arg(&binary))?;
    }
    Ok(())
}

/// Returns their paths from the root, sorted.
fn scripts() -> Result<Vec<PathBuf>, String> {
    let entries = std::fs::read_dir(root().join(SCRIPTS));
    let entries = entries.map_err(|error| format!("{SCRIPTS}: {error}"))?;
    let names = entries.filter_map(|entry| Some(PathBuf::from(entry.ok()?.file_name())));
    let scripts = names.filter(|name| name.extension().is_some_and(|end| end == "py"));
    let mut scripts: Vec<_> = scripts.map(|name| Path::new(SCRIPTS).join(name)).collect();
    scripts.sort();
    Ok(scripts)
}

/// Returns the interpreter of a virtual environment that has the pinned packages.
///
/// # Errors
///
/// Returns why there is none: no Python, no venv module, no way to the packages.
fn environment() -> Result<PathBuf, String> {
    let folder = target().join("venv");
    let relative = if cfg!(windows) { "Scripts/python.exe" } else { "bin/python" };
    let interpreter = folder.join(relative);
    let list = format!("{SCRIPTS}/requirements.txt");
    let wanted = std::fs::read_to_string(root().join(&list));
    let wanted = wanted.map_err(|error| format!("{list}: {error}"))?;
    // The list that the environment was filled from, so that a second run needs no network.
    let stamp = folder.join("requirements.installed.txt");
    if std::fs::read_to_string(&stamp).is_ok_and(|installed| installed == wanted) {
        return Ok(interpreter);
    }
    output(program("python3").args(["-m", "venv", "--clear"]).arg(&folder))?;
    install(&interpreter, &list)?;
    std::fs::write(&stamp, wanted)
        .map_err(|error| format!("requirements.installed.txt: {error}"))?;
    Ok(interpreter)
}

fn install(interpreter: &Path, list: &str) -> Result<(), String> {
    let in_ci = std::env::var("CI").is_ok_and(|value| value == "true");
    let attempts = if in_ci { CI_ATTEMPTS } else { 1 };
    let options = "-m pip install --quiet --disable-pip-version-check --retries 1 --requirement";
    let attempt = || run_seen(program(interpreter).args(options.split(' ')).arg(list));
    let mut result = attempt();
    for _ in 1..attempts {
        result = result.or_else(|complaint| {
            println!("{complaint}; once more");
            attempt()
        });
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_are_found() {
        let found = scripts().unwrap();
        assert!(found.is_sorted());
        assert!(found.contains(&Path::new(SCRIPTS).join("numpy_mean.py")));
    }
}
