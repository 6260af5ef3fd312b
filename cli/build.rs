//! Notes the commit and the compiler that the binary is built from, for reports of measurements.

use std::{env, path::Path, process::Command};

/// Folders and files whose content decides what is built, beside this one.
const SOURCES: [&str; 8] = [
    "src",
    "data",
    "../accel/src",
    "../benches/src",
    "../he/src",
    "../nic-integration/src",
    "../shaders",
    "../Cargo.lock",
];

fn main() {
    println!("cargo:rerun-if-env-changed=CIPHERGRAM_COMMIT");
    for name in SOURCES.iter().filter(|name| Path::new(name).exists()) {
        println!("cargo:rerun-if-changed={name}");
    }
    let commit = env::var("CIPHERGRAM_COMMIT").ok().or_else(commit);
    println!("cargo:rustc-env=CIPHERGRAM_COMMIT={}", commit.as_deref().unwrap_or("unknown"));
    let compiler = env::var("RUSTC").ok().and_then(|rustc| output(&rustc, &["--version"]));
    println!("cargo:rustc-env=CIPHERGRAM_COMPILER={}", compiler.as_deref().unwrap_or("unknown"));
}

/// Returns the commit, with `-dirty` behind it where sources differ from it; none from an archive, also where that
/// lies within a repository of something else.
fn commit() -> Option<String> {
    git(&["ls-files", "--error-unmatch", "build.rs"])?;
    for name in ["HEAD", "logs/HEAD"] {
        let path = git(&["rev-parse", "--git-path", name])?;
        if Path::new(&path).exists() {
            println!("cargo:rerun-if-changed={path}");
        }
    }
    let commit = git(&["rev-parse", "HEAD"])?;
    let is_clean =
        git(&[&["diff-index", "--quiet", "HEAD", "--"], &SOURCES[..]].concat()).is_some();
    Some(if is_clean { commit } else { commit + "-dirty" })
}

/// Runs git in this folder, without waiting for its locks.
fn git(words: &[&str]) -> Option<String> {
    output("git", &[&["--no-optional-locks"], words].concat())
}

/// Returns what a command printed, if it succeeded.
fn output(program: &str, words: &[&str]) -> Option<String> {
    let output = Command::new(program).args(words).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
