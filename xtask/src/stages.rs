//! The stages of `cargo xtask test`, in order: cheap ones first, each able to run alone.

use std::thread;

use crate::{
    command::{cargo, output, program, run},
    gpu, hdl, hygiene, install,
    outcome::Outcome,
    python, suite, wheel,
};

/// One thing that must hold.
#[derive(Debug)]
pub(crate) struct Stage {
    /// Its name, for `--only`.
    pub(crate) name: &'static str,
    /// One line for `cargo xtask help`.
    pub(crate) about: &'static str,
    /// Runs it: the long way, if its argument says so.
    pub(crate) run: fn(bool) -> Outcome,
    /// Whether it runs only when it is asked for, by `--NAME`.
    pub(crate) separate: bool,
}

impl Stage {
    const fn new(name: &'static str, about: &'static str, run: fn(bool) -> Outcome) -> Self {
        Self { name, about, run, separate: false }
    }

    const fn separate(name: &'static str, about: &'static str, run: fn(bool) -> Outcome) -> Self {
        Self { name, about, run, separate: true }
    }

    /// Returns the word that asks for it alone, if it is separate.
    pub(crate) fn flag(&self) -> Option<String> {
        self.separate.then(|| format!("--{}", self.name))
    }
}

impl PartialEq for Stage {
    /// Names are unique, and functions cannot be compared.
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

/// All stages, those last that run only when they are asked for. Benchmarks have none of their own: `build` lints and
/// compiles them.
pub(crate) const ALL: &[Stage] = &[
    Stage::new(
        "install",
        "what the rest needs: cargo-nextest, and packages (Debian, as root)",
        |_| install::run(),
    ),
    Stage::new("hygiene", "no overlong file or comment, no leftovers", |_| hygiene::run()),
    Stage::new("format", "cargo fmt --check", |_| format()),
    Stage::new("build", "every target, with clippy's lints, warnings denied", |_| build()),
    Stage::new("docs", "documentation, warnings denied, and its examples", |_| docs()),
    Stage::new("check", "the binary with its own features alone, and the fuzz targets", |_| {
        check()
    }),
    Stage::new("tests", "unit, property and end-to-end tests", tests),
    Stage::new("portable", "tests of arithmetic on the path that any processor has", portable),
    Stage::new(
        "gpu",
        "the GPU engine on two Vulkan drivers that need no GPU, one for each prelude",
        gpu::run,
    ),
    Stage::new(
        "namespaces",
        "rounds between network namespaces that lose and trim (Linux, as root)",
        |_| namespaces(),
    ),
    Stage::new("python", "the binary beside numpy and python-paillier", |_| python::run()),
    Stage::new(
        "hdl",
        "the card: lints, benches of its modules, the model that programs run",
        hdl::run,
    ),
    Stage::new("wheel", "the Python package over the library that was built", |_| wheel::run()),
    Stage::separate(
        "tfhe",
        "private ranges, with crate tfhe, which takes minutes to build",
        |_| tfhe(),
    ),
    Stage::separate("flower", "Flower's processes, with the Python package in them", |_| {
        wheel::run_with("flower")
    }),
    Stage::separate("flare", "NVIDIA FLARE's simulator, with the Python package in it", |_| {
        wheel::run_with("flare")
    }),
    Stage::separate("torch", "PyTorch's process groups; an environment of 6 GB", |_| {
        wheel::run_with("torch")
    }),
];

fn format() -> Outcome {
    with_component("fmt", "rustfmt", "fmt --all --check")
}

/// The hardware is built beside, and the Python packages of a later stage are fetched.
fn build() -> Outcome {
    let built = thread::scope(|scope| {
        scope.spawn(hdl::prepare);
        scope.spawn(wheel::prepare);
        suite::build()
    });
    match built {
        Ok(()) if !suite::has_clippy() => {
            Outcome::Skipped("built, but without lints: `rustup component add clippy` helps".into())
        }
        result => result.into(),
    }
}

fn docs() -> Outcome {
    let mut command = cargo(&format!("doc --release {} --no-deps", suite::PACKAGES));
    let documented = run(command.env("RUSTDOCFLAGS", "-D warnings"));
    documented.and_then(|()| run(&mut suite::harness("--doc"))).into()
}

/// Tests bring features and packages that the binary must not need. Fuzz targets are linked with a library in C++.
fn check() -> Outcome {
    let line = "check --release --package ciphergram";
    if let Err(complaint) = output(program("c++").arg("--version")) {
        let checked = run(&mut suite::linted(line));
        return checked.map_or_else(Outcome::Failed, |()| Outcome::Skipped(complaint));
    }
    run(&mut suite::linted(&format!("{line} --package ciphergram-fuzz"))).into()
}

/// Runs all tests but those of devices and of namespaces, which have stages of their own.
fn tests(long: bool) -> Outcome {
    suite::run("all()", None, long).into()
}

/// Tests whose results depend on the path: of `he`, and those of `accel` that do not run every path, or none, in one
/// process. The other tests inside of `accel` are of devices and the scheduler.
const OF_ARITHMETIC: &str = "\
    binary_id(ciphergram-he) | binary_id(ciphergram-tests::he) \
    | binary_id(ciphergram-accel) & test(/^(cpu|random)::/) \
    | binary_id(ciphergram-tests::accel) \
        - test(/^(conformance|cpu::montgomery|random::rejections|reference)::/)";

/// Repeats the first path's tests where that was the portable one already.
fn portable(long: bool) -> Outcome {
    suite::run(if long { "all()" } else { OF_ARITHMETIC }, Some("portable"), long).into()
}

/// Runs rounds between namespaces, whose output says whether they could run.
fn namespaces() -> Outcome {
    let output = suite::build().and_then(|()| {
        suite::captured(&mut suite::harness("--test cli -- namespaces:: --nocapture"), false)
    });
    let output = match output {
        Ok(output) if output.contains("test namespaces::") => output,
        Ok(_) => return Outcome::Skipped("there are none on this system".into()),
        Err(why) => return Outcome::Failed(why),
    };
    println!("{output}");
    let reason = output.lines().find_map(|line| line.split_once("SKIPPED, "));
    reason.map_or(Outcome::Passed, |(_, reason)| Outcome::Skipped(reason.to_owned()))
}

/// The features that crate `tfhe` comes with.
const TFHE: &str =
    "--features ciphergram/tfhe,ciphergram-benches/tfhe,ciphergram-py/tfhe,ciphergram-tests/tfhe";

/// Runs what only the feature `tfhe` compiles: lints, and the tests of private ranges, in Python too.
fn tfhe() -> Outcome {
    let build = || {
        run(&mut suite::linted(&format!(
            "build --release {} --all-targets {TFHE}",
            suite::PACKAGES
        )))
    };
    let tested = build().and_then(|()| {
        let tests = "nextest run --release --filterset test(private_ranges)";
        run(&mut suite::linted(&format!("{tests} {} {TFHE}", suite::PACKAGES)))
    });
    tested.map_or_else(Outcome::Failed, |()| wheel::run_with_feature("tfhe", build))
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
        let separate = ALL.iter().filter(|stage| stage.separate).map(|stage| stage.name);
        assert!(separate.eq(wheel::SEPARATE));
    }

    #[test]
    fn a_missing_component_is_a_reason_to_skip() {
        let outcome = with_component("no-such-command", "none", "no-such-command");
        let Outcome::Skipped(reason) = outcome else { panic!("{outcome:?}") };
        assert!(reason.ends_with("`rustup component add none` helps"), "{reason}");
    }
}
