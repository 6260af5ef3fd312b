//! The stages of the Python package: its wheel is built, installed and tested, as users have it.
//!
//! `wheel` runs the tests of `python/tests/`. Those that need a big framework, or start processes of one, or a package
//! built with a feature, are in a folder there, `with_` and its name, and have a stage of that name with an environment
//! of its own, which runs when it is asked for. Packages are pinned in `python/tests/requirements/`: `common.txt` for
//! all, and a list for each stage.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::{
    command::{program, run as run_seen, target},
    outcome::Outcome,
    stages,
    venv::{Environment, pip},
};

/// The oldest Python 3 whose stable ABI has the buffer protocol.
pub(crate) const OLDEST: u32 = 11;
const TESTS: &str = "python/tests";
/// The stage of the tests that need no big framework.
const USUAL: &str = "wheel";

/// Runs the tests of the package, but for those of separate stages.
pub(crate) fn run() -> Outcome {
    test(USUAL, TESTS, &ignored(), "")
}

/// Runs the same tests on a wheel that was built already, in an environment that holds [`lists`].
pub(crate) fn test_built(interpreter: &Path, wheel: &Path) -> Result<(), String> {
    install(interpreter, wheel)?;
    pytest(interpreter, TESTS, &ignored())
}

/// Returns the lists of packages that these tests need, maturin among them.
pub(crate) fn lists() -> [String; 2] {
    lists_of(USUAL)
}

/// Returns the options that leave out the tests of separate stages.
fn ignored() -> Vec<String> {
    let folders = stages::ALL.iter().filter(|stage| stage.separate).map(|stage| stage.name);
    folders.map(|name| format!("--ignore={TESTS}/with_{name}")).collect()
}

fn lists_of(stage: &str) -> [String; 2] {
    ["common", stage].map(|name| format!("{TESTS}/requirements/{name}.txt"))
}

/// Runs the tests of the package with one framework.
pub(crate) fn run_with(framework: &str) -> Outcome {
    // Processes of a framework take minutes to come and go.
    let patience = "--override-ini=faulthandler_timeout=900".to_owned();
    test(framework, &format!("{TESTS}/with_{framework}"), &[patience], "")
}

/// Runs the tests of the package that is built with a feature.
pub(crate) fn run_with_feature(feature: &str) -> Outcome {
    test(feature, &format!("{TESTS}/with_{feature}"), &[], feature)
}

/// Runs the tests of a folder in the environment of a stage, with the package of some features.
fn test(stage: &str, folder: &str, options: &[String], features: &str) -> Outcome {
    let lists = lists_of(stage);
    let lists = lists.each_ref().map(String::as_str);
    let name = format!("venv-{stage}");
    let interpreter =
        match (Environment { name: &name, lists: &lists, oldest: OLDEST }).interpreter() {
            Ok(interpreter) => interpreter,
            Err(reason) => {
                println!("!! NOT RUN, no test of the Python package: {reason}");
                return Outcome::Skipped(reason);
            }
        };
    let wheel = build(&interpreter, features);
    let installed = wheel.and_then(|wheel| install(&interpreter, &wheel));
    installed.and_then(|()| pytest(&interpreter, folder, options)).into()
}

/// Builds the wheel in the workspace's target folder.
fn build(interpreter: &Path, features: &str) -> Result<PathBuf, String> {
    let folder = target().join("wheels");
    // An earlier version would be installed instead.
    let _ = fs::remove_dir_all(&folder);
    let line =
        "-m maturin build --quiet --release --locked --manifest-path python/Cargo.toml --out";
    let mut build = program(interpreter);
    build.args(line.split(' ')).arg(&folder).arg("--interpreter").arg(interpreter);
    run_seen(build.args(["--features", features]))?;
    made(&folder, "whl")
}

fn install(interpreter: &Path, wheel: &Path) -> Result<(), String> {
    pip(interpreter, "--no-deps --no-index --force-reinstall", &[&wheel.to_string_lossy()])
}

/// Returns the file of a folder that has this extension.
pub(crate) fn made(folder: &Path, extension: &str) -> Result<PathBuf, String> {
    let shown = folder.display();
    let entries = fs::read_dir(folder).map_err(|error| format!("{shown}: {error}"))?;
    let mut files = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let found = files.find(|file| file.extension().is_some_and(|end| end == extension));
    found.ok_or(format!("{shown}: no .{extension} was built"))
}

fn pytest(interpreter: &Path, folder: &str, options: &[String]) -> Result<(), String> {
    // -B and without its cache, so that nothing is left beside the tests; -rs names what was skipped, and why.
    let line = "-B -m pytest -p no:cacheprovider --quiet -rs --durations 5";
    run_seen(program(interpreter).args(line.split(' ')).arg(folder).args(options))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::root;

    #[test]
    fn every_stage_has_a_list_of_packages() {
        let separate = stages::ALL.iter().filter(|stage| stage.separate).map(|stage| stage.name);
        for name in separate.clone() {
            assert!(root().join(format!("{TESTS}/with_{name}")).is_dir(), "{name}");
        }
        for name in separate.chain(["common", "wheel"]) {
            let list = root().join(format!("{TESTS}/requirements/{name}.txt"));
            let text = fs::read_to_string(&list).unwrap();
            assert!(text.lines().all(|line| line.contains("==")), "{name}: {text}");
        }
    }
}
