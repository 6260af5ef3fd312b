//! The Python package of a release: a source distribution, and from it a wheel for Linux with old C libraries.
//!
//! What the machine's own linker makes needs the C library of this machine or a later one. Zig's linker links against
//! an older one.

use std::{
    env,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

use super::{licences, release, time};
use crate::{
    command::{output, program, run as run_seen},
    venv::Environment,
    wheel,
};

/// The policy of glibc 2.17, the oldest that Rust's standard library runs on.
const POLICY: &str = "manylinux_2_17";
/// The tools that build and audit the wheel.
const TOOLS: &str = "xtask/src/dist/requirements.txt";

/// Makes both in a folder, `build` being that of compilers, audits and tests the wheel, and returns their names.
///
/// # Errors
///
/// Returns one line that says which command failed and how, or that the wheel needs a later C library.
pub(super) fn make(out: &Path, build: &Path) -> Result<Vec<String>, String> {
    let lists = wheel::lists();
    let lists: Vec<_> = lists.iter().map(String::as_str).chain([TOOLS]).collect();
    let environment = Environment { name: "venv-dist", lists: &lists, oldest: wheel::OLDEST };
    let interpreter = environment.interpreter()?;
    let folder = out.join("python");
    // Earlier versions would be taken for this one.
    let _ = fs::remove_dir_all(&folder);
    let source = make_source(&interpreter, &folder)?;
    let built = make_wheel(&interpreter, &folder, build, &unpack(&source, build)?)?;
    audit(&interpreter, &built)?;
    wheel::test_built(&interpreter, &built)?;
    let names = [&source, &built].map(|file| file.strip_prefix(out).unwrap_or(file));
    Ok(names.map(|name| name.to_string_lossy().into_owned()).into())
}

/// Returns a run of maturin whose files are of the time of a release.
fn maturin(interpreter: &Path, words: &str) -> Result<Command, String> {
    let mut command = program(interpreter);
    command.args(["-m", "maturin"]).args(words.split(' ')).env("SOURCE_DATE_EPOCH", time()?);
    Ok(command)
}

fn make_source(interpreter: &Path, folder: &Path) -> Result<PathBuf, String> {
    let words = "sdist --manifest-path python/Cargo.toml --out";
    run_seen(maturin(interpreter, words)?.arg(folder))?;
    wheel::made(folder, "gz")
}

/// Makes the wheel of a source distribution that is unpacked.
fn make_wheel(
    interpreter: &Path,
    folder: &Path,
    build: &Path,
    source: &Path,
) -> Result<PathBuf, String> {
    let notices = licences::text(&licences::packages("ciphergram-py")?, &[])?;
    // By its name maturin takes it for one of our licences, all of which it puts into the wheel.
    let path = source.join("LICENSE-THIRD-PARTY.txt");
    fs::write(&path, notices).map_err(|error| format!("{}: {error}", path.display()))?;
    // Not `--locked`: cargo drops from the lock file what only packages need that are left out there.
    let words = "build --release --zig --compatibility";
    let mut command = maturin(interpreter, words)?;
    command.arg(POLICY).arg("--out").arg(folder).arg("--interpreter").arg(interpreter);
    command.env("PATH", path_with(interpreter)?).current_dir(source);
    run_seen(release(&mut command, build)?)?;
    wheel::made(folder, "whl")
}

/// Unpacks a source distribution, which a wheel that is built from it shows to be complete.
fn unpack(archive: &Path, build: &Path) -> Result<PathBuf, String> {
    let folder = build.join("python");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut tar = program("tar");
    // All files are of one time there: by that cargo would take them for those that it built before.
    tar.args(["--extract", "--touch", "--strip-components=1", "--file"]).arg(archive);
    run_seen(tar.arg("--directory").arg(&folder))?;
    Ok(folder)
}

/// Returns the path of programs with those of an environment first: maturin looks for zig there.
fn path_with(interpreter: &Path) -> Result<OsString, String> {
    let own = interpreter.parent().map(Path::to_owned);
    let usual = env::var_os("PATH").unwrap_or_default();
    let all = own.into_iter().chain(env::split_paths(&usual));
    env::join_paths(all).map_err(|error| error.to_string())
}

/// Checks that a wheel keeps to the policy, by another tool than built it.
fn audit(interpreter: &Path, wheel: &Path) -> Result<(), String> {
    let show = ["-m", "auditwheel", "show", "--json"];
    let report = output(program(interpreter).args(show).arg(wheel))?;
    let report: Value = serde_json::from_str(&report).map_err(|error| error.to_string())?;
    let tag = report["overall_tag"].as_str().unwrap_or("no tag");
    println!("auditwheel: {tag}");
    let keeps = tag == format!("{POLICY}_{}", env::consts::ARCH);
    if keeps { Ok(()) } else { Err(format!("{}: {tag}, not {POLICY}", wheel.display())) }
}
