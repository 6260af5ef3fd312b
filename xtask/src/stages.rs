//! The stages of `cargo xtask test`, in order: cheap ones first, each able to run alone.

use crate::command::{cargo, output, run, run_telling};
use crate::{gpu, hygiene, install, python};

/// How a stage ended.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Outcome {
    /// Everything it checks holds.
    Passed,
    /// It could not run here, for a reason that is no fault of the code.
    Skipped(String),
    /// Something does not hold.
    Failed(String),
}

impl From<Result<(), String>> for Outcome {
    fn from(result: Result<(), String>) -> Self {
        result.map_or_else(Self::Failed, |()| Self::Passed)
    }
}

/// One thing that must hold.
#[derive(Debug)]
pub(crate) struct Stage {
    /// What `--only` calls it.
    pub(crate) name: &'static str,
    /// One line for `cargo xtask help`.
    pub(crate) about: &'static str,
    /// Does it.
    pub(crate) run: fn() -> Outcome,
}

impl PartialEq for Stage {
    /// Names are unique, and functions cannot be compared.
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

/// All stages. Benchmarks have none of their own: clippy and tests compile them.
pub(crate) const ALL: &[Stage] = &[
    Stage {
        name: "install",
        about: "packages that the rest needs (Debian, as root)",
        run: install::run,
    },
    Stage {
        name: "hygiene",
        about: "no machine's paths or hosts, no overlong file",
        run: hygiene::run,
    },
    Stage { name: "format", about: "cargo fmt --check", run: format },
    Stage { name: "clippy", about: "lints of every target, warnings denied", run: clippy },
    Stage { name: "docs", about: "documentation, warnings denied", run: docs },
    Stage { name: "build", about: "every crate", run: build },
    Stage { name: "tests", about: "unit, property and end-to-end tests", run: tests },
    Stage {
        name: "portable",
        about: "the same tests on the path that any processor has",
        run: portable,
    },
    Stage {
        name: "gpu",
        about: "the GPU engine on two Vulkan drivers that need no GPU, over both preludes",
        run: gpu::run,
    },
    Stage {
        name: "namespaces",
        about: "rounds between network namespaces that lose and trim (Linux, as root)",
        run: namespaces,
    },
    Stage {
        name: "python",
        about: "the binary beside numpy and python-paillier",
        run: python::run,
    },
];

fn format() -> Outcome {
    with_component("fmt", "rustfmt", "fmt --all --check")
}

fn clippy() -> Outcome {
    let line = "clippy --release --workspace --all-targets -- -D warnings";
    with_component("clippy", "clippy", line)
}

fn docs() -> Outcome {
    let mut command = cargo("doc --release --workspace --no-deps");
    run(command.env("RUSTDOCFLAGS", "-D warnings")).into()
}

fn build() -> Outcome {
    run(&mut cargo("build --release --workspace")).into()
}

/// Kernels run in the stage `gpu`, not in each.
fn tests() -> Outcome {
    run(cargo("test --release --workspace").env(gpu::CHOICE, "none")).into()
}

/// Where the first path was the portable one already, this repeats it.
fn portable() -> Outcome {
    let mut command = cargo("test --release --workspace");
    run(command.env(gpu::CHOICE, "none").env("CIPHERGRAM_CPU", "portable")).into()
}

/// Among the tests already, which do not say what they skipped.
fn namespaces() -> Outcome {
    let line = "test --release --package ciphergram --test namespaces -- --nocapture";
    let mut skipped = None;
    let result = run_telling(&mut cargo(line), |said| {
        let reason = said.split_once("SKIPPED, ").map(|(_, reason)| reason.to_owned());
        skipped = skipped.take().or(reason);
    });
    match (result, skipped) {
        (Ok(()), Some(reason)) => Outcome::Skipped(reason),
        (result, _) => result.into(),
    }
}

/// Runs a cargo command that comes with a rustup component, if the component is there.
fn with_component(subcommand: &str, component: &str, line: &str) -> Outcome {
    if let Err(complaint) = output(cargo(subcommand).arg("--version")) {
        return Outcome::Skipped(format!("{complaint}; `rustup component add {component}` helps"));
    }
    run(&mut cargo(line)).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique() {
        let mut names: Vec<_> = ALL.iter().map(|stage| stage.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ALL.len());
    }

    #[test]
    fn a_missing_component_is_a_reason_to_skip() {
        let outcome = with_component("no-such-command", "none", "no-such-command");
        let Outcome::Skipped(reason) = outcome else { panic!("{outcome:?}") };
        assert!(reason.ends_with("`rustup component add none` helps"), "{reason}");
    }
}
