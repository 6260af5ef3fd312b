//! The hardware: what is written from its register map (`hdl/registers.py`), and its lints, models, benches and counts
//! (`hdl/run.py`).

use std::{path::Path, process::Command};

use crate::{
    command::{cargo, output, program, root, run as run_seen, target},
    outcome::Outcome,
    suite,
    venv::Environment,
};

/// The folder of the models that the benches build, and of the card that programs run.
const MODELS: &str = "hdl";
/// The variable that names a card; see `FpgaEngine`.
const CARD: &str = "CIPHERGRAM_FPGA";
const ENVIRONMENT: Environment =
    Environment { name: "venv-hdl", lists: &["hdl/requirements.txt"], oldest: 11 };

/// Writes what follows from `hdl/registers.toml`.
///
/// # Errors
///
/// Returns one line that says how it failed.
pub(crate) fn write_registers() -> Result<(), String> {
    run_seen(registers(&ENVIRONMENT.interpreter()?).arg("write"))
}

/// Returns a command that checks what follows from `hdl/registers.toml`.
fn registers(interpreter: &Path) -> Command {
    let mut command = program(interpreter);
    command.args(["-B", "hdl/registers.py"]);
    command
}

/// Builds the models, by a run of the steps that nobody sees, beside what else is built: the stage finds them built,
/// and says what fails.
pub(crate) fn prepare() {
    if let Ok(interpreter) = ENVIRONMENT.interpreter() {
        let _ = output(&mut bench(&interpreter, &[]));
    }
}

/// Tries the hardware and the engine on it: what a change needs, or, the long way, all of it.
pub(crate) fn run(long: bool) -> Outcome {
    ENVIRONMENT.run("no bench of the hardware", |interpreter| try_all(interpreter, long))
}

fn try_all(interpreter: &Path, long: bool) -> Result<(), String> {
    run_seen(&mut registers(interpreter))?;
    let bench = |words: &[&str]| run_seen(&mut bench(interpreter, words));
    if !long {
        bench(&[])?;
        return engine(false);
    }
    bench(&["card"])?;
    engine(true)?;
    measure()?;
    bench(&["--all"])
}

/// Returns a run of the steps of `hdl/run.py` that are named, or of those that a change needs.
fn bench(interpreter: &Path, steps: &[&str]) -> Command {
    let mut command = program(interpreter);
    command.arg("-B").arg(root().join("hdl/run.py")).args(steps);
    command.env("CIPHERGRAM_HDL", target().join(MODELS));
    command
}

/// Measures Paillier's operations on the simulated card and on a core: the step `targets` reads the report.
fn measure() -> Result<(), String> {
    let mut command = cargo(
        "run --release --quiet --bin ciphergram -- bench --engine cpu,fpga --ops paillier --bits 2048 --clock 300",
    );
    command.arg("--json").arg(target().join(MODELS).join("bench.json"));
    run_seen(command.env(CARD, target().join(MODELS).join("card")))
}

/// Runs the tests of the engine over the simulated card, in one process. Powers take minutes there.
fn engine(long: bool) -> Result<(), String> {
    let skipped = if long { "" } else { "--skip powers" };
    let words =
        format!("--tests -- fpga::twins::on_card a_card_that_is_there --nocapture {skipped}");
    suite::build()?;
    let mut command = suite::harness(&words);
    let output = suite::captured(command.env(CARD, target().join(MODELS).join("card")), long)?;
    // Tests without a card pass.
    let (_, card) = output
        .lines()
        .find_map(|line| line.split_once("on the program"))
        .ok_or("no test found the simulated card")?;
    println!("ran on the program{card}");
    Ok(())
}
