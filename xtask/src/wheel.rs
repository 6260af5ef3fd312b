//! The stages of the Python package, over the library of the workspace's own build. `cargo xtask dist --python`
//! makes the wheel that users have, and runs the same tests on it.
//!
//! `wheel` runs the tests of `python/tests/`. Those that need a big framework, or start processes of one, or a package
//! built with a feature, are in a folder there, `with_` and its name, and have a stage of that name with an environment
//! of its own, which runs when it is asked for. Packages are pinned in `python/tests/requirements/`: `common.txt` for
//! all, and a list for each stage.

use std::{
    env::consts::{DLL_PREFIX, DLL_SUFFIX},
    fs, io,
    path::{Path, PathBuf},
};

use crate::{
    command::{output, program, root, run as run_seen, target},
    outcome::Outcome,
    suite,
    venv::{Environment, pip},
};

/// The oldest Python 3 whose stable ABI has the buffer protocol.
pub(crate) const OLDEST: u32 = 11;
const TESTS: &str = "python/tests";
/// The separate stages, each with a folder of tests there.
pub(crate) const SEPARATE: [&str; 4] = ["tfhe", "flower", "flare", "torch"];
/// The stage of the tests that need no big framework.
const USUAL: &str = "wheel";

/// Runs the tests of the package, but for those of separate stages.
pub(crate) fn run() -> Outcome {
    test(USUAL, TESTS, &usual_options(), suite::build)
}

/// Makes the environment of the stage, so that it is there later; the stage says why it cannot be.
pub(crate) fn prepare() {
    with_environment(USUAL, |environment| drop(environment.interpreter()));
}

/// Runs the same tests on a wheel, in an environment that holds [`lists`].
pub(crate) fn test_built(interpreter: &Path, wheel: &Path) -> Result<(), String> {
    let wheel = wheel.to_string_lossy();
    pip(interpreter, "--no-deps --no-index --force-reinstall", &[&wheel])?;
    pytest(interpreter, TESTS, &usual_options())
}

/// Returns the lists of packages that these tests need.
pub(crate) fn lists() -> [String; 2] {
    lists_of(USUAL)
}

/// Returns the options that leave out the tests of separate stages, and run the others on all cores.
fn usual_options() -> Vec<String> {
    let ignored = SEPARATE.iter().map(|name| format!("--ignore={TESTS}/with_{name}"));
    ignored.chain(["--numprocesses=auto".into()]).collect()
}

/// Does something with the environment of a stage.
fn with_environment<T>(stage: &str, work: impl FnOnce(&Environment<'_>) -> T) -> T {
    let (name, lists) = (format!("venv-{stage}"), lists_of(stage));
    let lists = lists.each_ref().map(String::as_str);
    work(&Environment { name: &name, lists: &lists, oldest: OLDEST })
}

fn lists_of(stage: &str) -> [String; 2] {
    ["common", stage].map(|name| format!("{TESTS}/requirements/{name}.txt"))
}

/// Runs the tests of the package with one framework.
pub(crate) fn run_with(framework: &str) -> Outcome {
    // Processes of a framework take minutes to come and go.
    let patience = "--override-ini=faulthandler_timeout=900".to_owned();
    test(framework, &format!("{TESTS}/with_{framework}"), &[patience], suite::build)
}

/// Runs the tests of the package with a feature, of which `build` builds its library.
pub(crate) fn run_with_feature(feature: &str, build: fn() -> Result<(), String>) -> Outcome {
    test(feature, &format!("{TESTS}/with_{feature}"), &[], build)
}

/// Runs the tests of a folder in the environment of a stage.
fn test(
    stage: &str,
    folder: &str,
    options: &[String],
    build: fn() -> Result<(), String>,
) -> Outcome {
    let tests = |interpreter: &Path| {
        build()?;
        assemble(interpreter)?;
        pytest(interpreter, folder, options)
    };
    with_environment(stage, |environment| environment.run("no test of the Python package", tests))
}

/// Installs the package from its modules and the library, in the place of a wheel: frameworks take what lies elsewhere
/// for a part of a user's job.
fn assemble(interpreter: &Path) -> Result<(), String> {
    let code = "import sysconfig; print(sysconfig.get_path('purelib'))";
    let site = output(program(interpreter).args(["-c", code]))?;
    let package = Path::new(site.trim()).join("ciphergram");
    let wrong = |error: io::Error| format!("{}: {error}", package.display());
    // There may be none yet.
    let _ = fs::remove_dir_all(&package);
    copy(&root().join("python/src/ciphergram"), &package).map_err(wrong)?;
    let library = format!("{DLL_PREFIX}ciphergram_py{DLL_SUFFIX}");
    let library = target().join("release").join(library);
    fs::copy(library, package.join("_native.abi3.so")).map(drop).map_err(wrong)
}

/// Copies a folder and all in it.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (path, to) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() { copy(&path, &to)? } else { fs::copy(path, to).map(drop)? }
    }
    Ok(())
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

    #[test]
    fn every_stage_has_a_list_of_packages() {
        for name in SEPARATE {
            assert!(root().join(format!("{TESTS}/with_{name}")).is_dir(), "{name}");
        }
        for name in SEPARATE.into_iter().chain(["common", "wheel"]) {
            let list = root().join(format!("{TESTS}/requirements/{name}.txt"));
            let text = fs::read_to_string(&list).unwrap();
            assert!(text.lines().all(|line| line.contains("==")), "{name}: {text}");
        }
    }
}
