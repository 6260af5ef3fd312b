//! A kit to test and measure on another machine's GPU: one binary, and the script that runs it.

use std::{fs, path::Path};

use crate::command::{cargo, program, root, run as run_seen, target};

/// The script; see its first lines.
const SCRIPT: &str = "benches/gpu.py";

/// Builds both into `target/gpu`, and runs them there if `here`.
///
/// # Errors
///
/// Returns one line that says what failed and how.
pub(crate) fn run(here: bool) -> Result<(), String> {
    assemble(&target().join("gpu"))?;
    if here { measure() } else { Ok(()) }
}

fn assemble(folder: &Path) -> Result<(), String> {
    // Beside libc it links nothing: a driver of Vulkan is opened at run time, if there is one.
    let line =
        "rustc --release --package ciphergram --bin ciphergram -- -C link-arg=-static-libgcc";
    run_seen(&mut cargo(line))?;
    let binary = format!("ciphergram{}", std::env::consts::EXE_SUFFIX);
    let wrong = |error: std::io::Error| format!("{}: {error}", folder.display());
    fs::create_dir_all(folder).map_err(wrong)?;
    fs::copy(target().join("release").join(&binary), folder.join(&binary)).map_err(wrong)?;
    fs::copy(root().join(SCRIPT), folder.join("gpu.py")).map_err(wrong)?;
    println!("python3 {} runs it, here or wherever both files are", shown(folder));
    Ok(())
}

fn shown(folder: &Path) -> String {
    folder.strip_prefix(root()).unwrap_or(folder).join("gpu.py").display().to_string()
}

fn measure() -> Result<(), String> {
    let folder = target().join("gpu");
    let out = folder.join("gpu.json");
    let mut command = program("python3");
    run_seen(command.arg(folder.join("gpu.py")).arg("--out").arg(out))
}
