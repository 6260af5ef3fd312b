//! The stage that holds the binary beside independent Python implementations.
//!
//! Every script of `tests/cli/peers/` is one check: it gets the binary's path, and exits non-zero
//! if something differs. Packages are pinned in `requirements.txt` beside the scripts.

use std::path::{Path, PathBuf};

use crate::{
    command::{program, root, run as run_seen, target},
    outcome::Outcome,
    suite,
    venv::Environment,
};

/// Where the scripts stand, from the root.
const SCRIPTS: &str = "tests/cli/peers";

/// Runs every script, in order of their names.
pub(crate) fn run() -> Outcome {
    let lists = ["tests/cli/peers/requirements.txt"];
    let environment = Environment { name: "venv", lists: &lists, oldest: 9 };
    environment.run("no check against other implementations", run_scripts)
}

fn run_scripts(interpreter: &Path) -> Result<(), String> {
    suite::build()?;
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
