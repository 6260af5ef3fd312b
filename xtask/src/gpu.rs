//! The stage that runs the tests of the GPU engine on Vulkan drivers that are programs: they need no GPU, and
//! every machine runs the same kernels.

use std::{
    path::{Path, PathBuf},
    thread,
};

use crate::{command::target, outcome::Outcome, suite};

/// A driver that is a program.
struct Driver {
    /// The part of its adapter's name that `CIPHERGRAM_GPU` takes.
    adapter: &'static str,
    /// Its manifest, where the system does not know it.
    manifest: Option<PathBuf>,
    /// Programs of tests, as cargo's options, and words for them.
    tests: &'static str,
    /// How to get it.
    advice: &'static str,
}

/// Returns Chromium's, which has no 64-bit integers, and Mesa's, which has them: each runs the prelude that suits it.
fn drivers(long: bool) -> [Driver; 2] {
    let mesa = Driver {
        adapter: "llvmpipe",
        manifest: None,
        // The text of kernels needs no adapter, and is among the usual tests. The suite runs in the library's own.
        tests: if long {
            "--tests -- gpu:: --skip every_permutation"
        } else {
            "--tests -- gpu:: --skip every_permutation --skip gpu::usual:: --skip gpu::split::"
        },
        advice: "on Debian, as root: apt-get install --yes --no-install-recommends \
                 mesa-vulkan-drivers libvulkan1",
    };
    let swiftshader = Driver {
        adapter: "SwiftShader",
        manifest: Some(swiftshader()),
        // How dispatches are cut and batches shared out is no matter of the driver, and takes this one long.
        tests: if long {
            "--test accel -- gpu::"
        } else {
            "--test accel -- gpu:: --skip long:: --skip auto::"
        },
        advice: "on Debian, as root, `cargo xtask test --only install` unpacks it",
    };
    [swiftshader, mesa]
}

/// Returns the manifest of SwiftShader, which Debian has only inside a package of Chromium.
pub(crate) fn swiftshader() -> PathBuf {
    target().join("swiftshader/usr/lib/chromium/vk_swiftshader_icd.json")
}

/// Runs the tests on all drivers at once, and prints which adapters ran.
pub(crate) fn run(long: bool) -> Outcome {
    let (present, absent): (Vec<_>, Vec<_>) = drivers(long).into_iter().partition(Driver::may_run);
    let outputs = suite::build().and_then(|()| {
        thread::scope(|scope| {
            let runs = present.iter().map(|driver| scope.spawn(move || driver.run(long)));
            let runs: Vec<_> = runs.collect();
            let ended =
                |run: thread::ScopedJoinHandle<'_, _>| run.join().map_err(|_| "it panicked");
            runs.into_iter().map(|run| ended(run)?).collect::<Result<Vec<_>, String>>()
        })
    });
    let outputs = match outputs {
        Ok(outputs) => outputs,
        Err(why) => return Outcome::Failed(why),
    };
    let mut skipped: Vec<_> = absent.iter().map(Driver::absence).collect();
    for driver in present {
        let adapters = driver.adapters(&outputs);
        adapters.iter().for_each(|adapter| println!("ran on {adapter}"));
        skipped.extend(adapters.is_empty().then(|| driver.absence()));
    }
    if skipped.is_empty() {
        return Outcome::Passed;
    }
    let skipped = skipped.join("; ");
    println!("!! NOT RUN, kernels of the GPU engine: {skipped}");
    Outcome::Skipped(skipped)
}

impl Driver {
    /// Returns whether its manifest is there; of a driver that the system knows, only its tests
    /// show.
    fn may_run(&self) -> bool {
        self.manifest.as_deref().is_none_or(Path::is_file)
    }

    fn absence(&self) -> String {
        format!("there is no {}; {}", self.adapter, self.advice)
    }

    /// Runs its tests, one process for each program: to open a device and make its pipelines takes longest.
    fn run(&self, long: bool) -> Result<String, String> {
        let mut command = suite::harness(&format!("{} --nocapture", self.tests));
        // The passes of llvmpipe's compiler cost more time than they save.
        command.env(suite::GPU_CHOICE, self.adapter).env("GALLIVM_PERF", "nopt");
        if let Some(manifest) = &self.manifest {
            command.env("VK_DRIVER_FILES", manifest);
        }
        suite::captured(&mut command, long)
    }

    /// Returns those of its adapters that tests say they ran on.
    fn adapters<'s>(&self, outputs: &'s [String]) -> Vec<&'s str> {
        let lines = outputs.iter().flat_map(|output| output.lines());
        lines.filter_map(|line| adapter(line, self.adapter)).collect()
    }
}

/// The words with which tests name the adapter that they opened.
const OPENED: &str = "on ";

/// Returns the adapter that a line names. The harness may have begun the line with the name of a test.
fn adapter<'s>(said: &'s str, wanted: &str) -> Option<&'s str> {
    let (before, adapter) = said.split_once(OPENED)?;
    let begins = before.is_empty() || before.ends_with(" ... ");
    (begins && adapter.contains(wanted)).then_some(adapter)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adapters_are_read_by_name() {
        let read = |said| adapter(said, "llvmpipe");
        assert_eq!(read("on llvmpipe (LLVM 15)"), Some("llvmpipe (LLVM 15)"));
        assert_eq!(read("test dots ... on llvmpipe, split"), Some("llvmpipe, split"));
        assert_eq!(read("compositions of llvmpipe"), None);
        assert_eq!(read("no GPU adapter like \"llvmpipe\""), None);
        assert_eq!(read("on SwiftShader Device"), None);
    }

    #[test]
    fn tests_without_an_adapter_are_no_pass() {
        let [swiftshader, mesa] = drivers(false);
        let ran = ["test dots ... on llvmpipe\nok".to_owned(), "on llvmpipe, split".to_owned()];
        assert_eq!(mesa.adapters(&ran), ["llvmpipe", "llvmpipe, split"]);
        assert_eq!(swiftshader.adapters(&ran), [""; 0]);
        assert!(mesa.may_run() && mesa.absence().contains("mesa-vulkan-drivers"));
    }

    #[test]
    fn a_driver_that_is_not_there_is_skipped() {
        let [driver, _] = drivers(false);
        let driver = Driver { manifest: Some("no/such/manifest.json".into()), ..driver };
        assert!(!driver.may_run() && driver.absence().contains("SwiftShader"));
    }
}
