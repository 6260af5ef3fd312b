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
const OLDEST: u32 = 11;
const TESTS: &str = "python/tests";

/// Runs the tests of the package, but for those of separate stages.
pub(crate) fn run() -> Outcome {
    let folders = stages::ALL.iter().filter(|stage| stage.separate).map(|stage| stage.name);
    let ignored: Vec<_> = folders.map(|name| format!("--ignore={TESTS}/with_{name}")).collect();
    test("wheel", TESTS, &ignored, "")
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
    let list = format!("{TESTS}/requirements/{stage}.txt");
    let lists = [&*format!("{TESTS}/requirements/common.txt"), &*list];
    let name = format!("venv-{stage}");
    let interpreter =
        match (Environment { name: &name, lists: &lists, oldest: OLDEST }).interpreter() {
            Ok(interpreter) => interpreter,
            Err(reason) => {
                println!("!! NOT RUN, no test of the Python package: {reason}");
                return Outcome::Skipped(reason);
            }
        };
    install(&interpreter, features).and_then(|()| pytest(&interpreter, folder, options)).into()
}

/// Builds the wheel in the workspace's target folder, and installs it.
fn install(interpreter: &Path, features: &str) -> Result<(), String> {
    let folder = target().join("wheels");
    // An earlier version would be installed instead.
    let _ = fs::remove_dir_all(&folder);
    let line =
        "-m maturin build --quiet --release --locked --manifest-path python/Cargo.toml --out";
    let mut build = program(interpreter);
    build.args(line.split(' ')).arg(&folder).arg("--interpreter").arg(interpreter);
    run_seen(build.args(["--features", features]))?;
    let wheel = only_file(&folder)?;
    pip(interpreter, "--no-deps --no-index --force-reinstall", &[&wheel.to_string_lossy()])
}

fn only_file(folder: &Path) -> Result<PathBuf, String> {
    let shown = folder.display();
    let entries = fs::read_dir(folder).map_err(|error| format!("{shown}: {error}"))?;
    let mut files = entries.filter_map(|entry| Some(entry.ok()?.path()));
    files.next().ok_or(format!("{shown}: no wheel was built"))
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
