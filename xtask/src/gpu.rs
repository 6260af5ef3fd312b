//! The stage that runs the tests of the GPU engine on Vulkan drivers that are programs: they need no GPU, and
//! every machine runs the same kernels.

use std::path::PathBuf;

use crate::{
    command::{cargo, run_telling, target},
    stages::Outcome,
};

/// Tells the engine which adapter to open; see `GpuEngine`.
pub(crate) const CHOICE: &str = "CIPHERGRAM_GPU";

/// A driver that is a program.
struct Driver {
    /// What `CIPHERGRAM_GPU` calls its adapter.
    adapter: &'static str,
    /// Its manifest, where the system does not know it.
    manifest: Option<PathBuf>,
    /// Which of the tests, in the words of cargo.
    tests: &'static [&'static str],
    /// How to get it.
    advice: &'static str,
}

/// Mesa's, with 64-bit integers, so both preludes run there; and Chromium's, which has none.
fn drivers() -> [Driver; 2] {
    let mesa = Driver {
        adapter: "llvmpipe",
        manifest: None,
        tests: &["--workspace --test gpu --test gpu_commands --", "--workspace --lib -- gpu::"],
        advice: "on Debian, as root: apt-get install --yes --no-install-recommends \
                 mesa-vulkan-drivers libvulkan1",
    };
    let swiftshader = Driver {
        adapter: "SwiftShader",
        manifest: Some(swiftshader()),
        // The same binary: with other packages it would have other features, and be built again.
        tests: &["--workspace --test gpu --"],
        advice: "on Debian, as root, `cargo xtask test --only install` unpacks it",
    };
    [mesa, swiftshader]
}

/// The manifest of SwiftShader, which Debian has only inside a package of Chromium.
pub(crate) fn swiftshader() -> PathBuf {
    target().join("swiftshader/usr/lib/chromium/vk_swiftshader_icd.json")
}

/// Runs them, and tells which adapters ran.
pub(crate) fn run() -> Outcome {
    let mut skipped = vec![];
    for driver in drivers() {
        match run_on(&driver) {
            Outcome::Passed => {}
            Outcome::Skipped(why) => skipped.push(why),
            failed @ Outcome::Failed(_) => return failed,
        }
    }
    if skipped.is_empty() { Outcome::Passed } else { Outcome::Skipped(skipped.join("; ")) }
}

fn run_on(driver: &Driver) -> Outcome {
    let missing = driver.manifest.as_ref().is_some_and(|manifest| !manifest.is_file());
    let (mut result, mut adapters) = (Ok(()), vec![]);
    for tests in driver.tests.iter().filter(|_| !missing) {
        let mut command = cargo(&format!("test --release {tests} --nocapture"));
        // The passes of llvmpipe's compiler cost more time than they save.
        command.env(CHOICE, driver.adapter).env("GALLIVM_PERF", "nopt");
        if let Some(manifest) = &driver.manifest {
            command.env("VK_DRIVER_FILES", manifest);
        }
        let ran = run_telling(&mut command, |said| {
            adapters.extend(adapter(said, driver.adapter).map(str::to_owned));
        });
        result = result.and(ran);
    }
    adapters.iter().for_each(|adapter| println!("ran on {adapter}"));
    judge(result, &adapters, driver)
}

/// What the tests say before the adapter that they opened.
const OPENED: &str = "on ";

/// The adapter that a line tells of. The harness may have begun the line with the name of a test.
fn adapter<'s>(said: &'s str, wanted: &str) -> Option<&'s str> {
    let (before, adapter) = said.split_once(OPENED)?;
    let begins = before.is_empty() || before.ends_with(" ... ");
    (begins && adapter.contains(wanted)).then_some(adapter)
}

fn judge(result: Result<(), String>, adapters: &[String], driver: &Driver) -> Outcome {
    match (result, adapters.is_empty()) {
        (Ok(()), true) => {
            let why = format!("there is no {}; {}", driver.adapter, driver.advice);
            println!("!! NOT RUN, no kernel of the GPU engine: {why}");
            Outcome::Skipped(why)
        }
        (result, _) => result.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adapters_are_told_by_name() {
        let told = |said| adapter(said, "llvmpipe");
        assert_eq!(told("on llvmpipe (LLVM 15)"), Some("llvmpipe (LLVM 15)"));
        assert_eq!(told("test dots ... on llvmpipe, split"), Some("llvmpipe, split"));
        assert_eq!(told("compositions of llvmpipe"), None);
        assert_eq!(told("no GPU adapter like \"llvmpipe\""), None);
        assert_eq!(told("on SwiftShader Device"), None);
    }

    #[test]
    fn tests_without_an_adapter_are_no_pass() {
        let [driver, _] = drivers();
        let ran = ["llvmpipe".to_owned()];
        assert_eq!(judge(Ok(()), &ran, &driver), Outcome::Passed);
        let absent = judge(Ok(()), &[], &driver);
        assert!(matches!(absent, Outcome::Skipped(why) if why.contains("mesa-vulkan-drivers")));
        assert_eq!(judge(Err("no".into()), &[], &driver), Outcome::Failed("no".into()));
    }

    #[test]
    fn a_driver_that_is_not_there_is_skipped() {
        let [_, driver] = drivers();
        let driver = Driver { manifest: Some("no/such/manifest.json".into()), ..driver };
        assert!(matches!(run_on(&driver), Outcome::Skipped(why) if why.contains("SwiftShader")));
    }
}
