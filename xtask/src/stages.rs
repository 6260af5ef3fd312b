//! The stages of `cargo xtask test`, in order: cheap ones first, each able to run alone.

use crate::{
    command::{cargo, output, run},
    gpu, hdl, hygiene, install,
    outcome::Outcome,
    programs::{self, Program, Run, Share},
    python, wheel,
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

/// All stages, those last that run only when they are asked for. Benchmarks have none of their own: clippy and tests
/// compile them.
pub(crate) const ALL: &[Stage] = &[
    Stage::new("install", "packages that the rest needs (Debian, as root)", |_| install::run()),
    Stage::new("hygiene", "no overlong file or comment, no leftovers", |_| hygiene::run()),
    Stage::new("format", "cargo fmt --check", |_| format()),
    Stage::new("clippy", "lints of every target, warnings denied", |_| clippy()),
    Stage::new("docs", "documentation, warnings denied", |_| docs()),
    Stage::new("build", "every crate and its tests", |_| build()),
    Stage::new("tests", "unit, property and end-to-end tests", tests),
    Stage::new("portable", "tests of arithmetic on the path that any processor has", portable),
    Stage::new(
        "gpu",
        "the GPU engine on two Vulkan drivers that need no GPU, over both preludes",
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
    Stage::new("wheel", "the Python package, built, installed and tested", |_| wheel::run()),
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

fn clippy() -> Outcome {
    let line = "clippy --release --workspace --all-targets -- -D warnings";
    with_component("clippy", "clippy", line)
}

fn docs() -> Outcome {
    let mut command = cargo("doc --release --workspace --no-deps");
    run(command.env("RUSTDOCFLAGS", "-D warnings")).into()
}

/// Builds all, and checks the binary with the features that it has without tests.
fn build() -> Outcome {
    let alone = run(&mut cargo("check --release --package ciphergram"));
    alone.and_then(|()| programs::build()).map(drop).into()
}

/// The variable that multiplies the cases of properties and the worlds that are played, and its value in
/// long runs.
const CASES: (&str, &str) = ("CIPHERGRAM_CASES", "8");

/// Cases of properties that leave their number to proptest, in long runs: eight times its default.
const LONG_PROPERTIES: &str = "2048";

/// Runs all tests but kernels and namespaces, which have stages of their own.
fn tests(long: bool) -> Outcome {
    let examples = Run {
        name: "examples in documentation".into(),
        command: cargo("test --release --workspace --doc"),
    };
    let runs = programs::build().map(|programs| {
        let programs = programs.iter().filter(|program| program.name != NAMESPACES);
        std::iter::once(examples).chain(programs.map(|program| program.run(""))).collect()
    });
    runs.and_then(|runs| run_on_cpu(runs, long, Share::Waiting)).into()
}

/// Repeats the first path's tests where that was the portable one already.
fn portable(long: bool) -> Outcome {
    let runs = programs::build().and_then(|programs| {
        programs::named(&programs, OF_NO_PATH.into_iter().chain(["ciphergram_accel"]))?;
        let chosen = programs.iter().filter(|program| long || is_of_arithmetic(program));
        Ok(chosen.map(|program| on_portable_path(program, long)).collect())
    });
    runs.and_then(|runs| run_on_cpu(runs, long, Share::Computing)).into()
}

/// Tests of `accel` that run every path in one program, or none.
const OF_NO_PATH: [&str; 5] = ["bignum", "conformance", "gpu", "oracle", "rejections"];

/// Returns whether results of its tests depend on the path.
fn is_of_arithmetic(program: &Program) -> bool {
    ["accel", "he"].contains(&program.package()) && !OF_NO_PATH.contains(&&*program.name)
}

fn on_portable_path(program: &Program, long: bool) -> Run {
    // The other tests inside of `accel` are of the GPU engine and the scheduler.
    let filter = if program.name == "ciphergram_accel" && !long { "cpu:: random::" } else { "" };
    let mut run = program.run(filter);
    run.command.env("CIPHERGRAM_CPU", "portable");
    run
}

fn run_on_cpu(mut runs: Vec<Run>, long: bool, share: Share) -> Result<(), String> {
    for run in &mut runs {
        run.command.env(gpu::CHOICE, "none");
        if long {
            run.command.env(CASES.0, CASES.1).env("PROPTEST_CASES", LONG_PROPERTIES);
        }
    }
    programs::run_all(runs, share).map(drop)
}

/// The program of tests that need network namespaces.
const NAMESPACES: &str = "namespaces";

/// Runs them and shows their output, which says whether they could run.
fn namespaces() -> Outcome {
    let runs = programs::build().map(|programs| {
        let program = programs.iter().find(|program| program.name == NAMESPACES);
        program.map(|program| program.run("--nocapture")).into_iter().collect()
    });
    let outputs = match runs.and_then(|runs| programs::run_all(runs, Share::Computing)) {
        Ok(outputs) => outputs.join("\n"),
        Err(why) => return Outcome::Failed(why),
    };
    println!("{outputs}");
    let reason = outputs.lines().find_map(|line| line.split_once("SKIPPED, "));
    reason.map_or(Outcome::Passed, |(_, reason)| Outcome::Skipped(reason.to_owned()))
}

/// Runs what only the feature `tfhe` compiles: lints, and the tests of private ranges, in Python too.
fn tfhe() -> Outcome {
    let features =
        "--release --package ciphergram-he --package ciphergram --features ciphergram/tfhe";
    let lines = [
        format!("clippy {features} --all-targets -- -D warnings"),
        "clippy --release --package ciphergram-benches --features tfhe --bins -- -D warnings"
            .into(),
        "test --release --package ciphergram-he --features tfhe --lib private_ranges".into(),
        format!("test {features} --test private_ranges"),
    ];
    let tested = lines.iter().try_for_each(|line| run(&mut cargo(line)));
    tested.map_or_else(Outcome::Failed, |()| wheel::run_with_feature("tfhe"))
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
