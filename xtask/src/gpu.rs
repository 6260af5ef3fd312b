//! The stage that runs the tests of the GPU engine on llvmpipe, the Vulkan driver that is a program: it
//! needs no GPU, and every machine runs the same kernels.

use crate::{
    command::{cargo, run_telling},
    stages::Outcome,
};

/// Names the adapter for `GpuEngine`, whatever else is there.
const ADAPTER: &str = "llvmpipe";
/// What the tests say before the adapter that they opened.
const OPENED: &str = "on ";

/// Runs them, and tells which adapters ran.
pub(crate) fn run() -> Outcome {
    let line = "test --release --package ciphergram-accel --features gpu --test gpu -- --nocapture";
    let mut adapters = vec![];
    // The passes of its compiler cost more time than they save.
    let mut command = cargo(line);
    command.env("CIPHERGRAM_GPU", ADAPTER).env("GALLIVM_PERF", "nopt");
    let result =
        run_telling(&mut command, |said| adapters.extend(adapter(said).map(str::to_owned)));
    adapters.iter().for_each(|adapter| println!("ran on {adapter}"));
    judge(result, &adapters)
}

/// The adapter that a line tells of. The harness may have begun the line with the name of a test.
fn adapter(said: &str) -> Option<&str> {
    let (before, adapter) = said.split_once(OPENED)?;
    let begins = before.is_empty() || before.ends_with(" ... ");
    (begins && adapter.contains(ADAPTER)).then_some(adapter)
}

fn judge(result: Result<(), String>, adapters: &[String]) -> Outcome {
    match (result, adapters.is_empty()) {
        (Ok(()), true) => {
            let why = format!("there is no {ADAPTER}; on Debian, as root: {INSTALL}");
            println!("!! NOT RUN, no kernel of the GPU engine: {why}");
            Outcome::Skipped(why)
        }
        (result, _) => result.into(),
    }
}

const INSTALL: &str =
    "apt-get install --yes --no-install-recommends mesa-vulkan-drivers libvulkan1";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adapters_are_told_by_name() {
        assert_eq!(adapter("on llvmpipe (LLVM 15)"), Some("llvmpipe (LLVM 15)"));
        assert_eq!(adapter("test dots ... on llvmpipe, split"), Some("llvmpipe, split"));
        assert_eq!(adapter("compositions of llvmpipe"), None);
        assert_eq!(adapter("no GPU adapter like \"llvmpipe\""), None);
    }

    #[test]
    fn tests_without_an_adapter_are_no_pass() {
        let ran = ["llvmpipe".to_owned()];
        assert_eq!(judge(Ok(()), &ran), Outcome::Passed);
        assert!(matches!(judge(Ok(()), &[]), Outcome::Skipped(why) if why.contains(INSTALL)));
        assert_eq!(judge(Err("no".into()), &[]), Outcome::Failed("no".into()));
    }
}
