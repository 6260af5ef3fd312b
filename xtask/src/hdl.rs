//! The hardware: what is written from its register map, and its lints, models, benches and counts (`hdl/run.py`).

mod registers;

use crate::{
    command::{cargo, program, root, run as run_seen, target},
    outcome::Outcome,
    programs::{self, Share},
    venv::Environment,
};

/// The folder of the models that the benches build, and of the card that programs run.
const MODELS: &str = "hdl";
/// The variable that names a card; see `FpgaEngine`.
const CARD: &str = "CIPHERGRAM_FPGA";
const LISTS: [&str; 1] = ["hdl/requirements.txt"];

/// Writes what follows from `hdl/registers.toml`.
///
/// # Errors
///
/// Returns which file cannot be read or written.
pub(crate) fn write_registers() -> Result<(), String> {
    registers::write()
}

/// Tries the hardware and the engine on it: what a change needs, or, the long way, all of it.
pub(crate) fn run(long: bool) -> Outcome {
    if let Err(difference) = registers::check() {
        return Outcome::Failed(difference);
    }
    match (Environment { name: "venv-hdl", lists: &LISTS, oldest: 11 }).interpreter() {
        Ok(interpreter) => {
            let bench = |words: &[&str]| {
                let mut command = program(&interpreter);
                command.arg("-B").arg(root().join("hdl/run.py")).args(words);
                run_seen(command.env("CIPHERGRAM_HDL", target().join(MODELS)))
            };
            let tried = if long {
                let measured =
                    bench(&["card"]).and_then(|()| engine(true)).and_then(|()| measure());
                measured.and_then(|()| bench(&["--all"]))
            } else {
                bench(&[]).and_then(|()| engine(false))
            };
            tried.into()
        }
        Err(reason) => {
            println!("!! NOT RUN, no bench of the hardware: {reason}");
            Outcome::Skipped(reason)
        }
    }
}

/// Measures Paillier's operations on the simulated card and on a core: the step `targets` reads the report.
fn measure() -> Result<(), String> {
    let mut command = cargo(
        "run --release --quiet --bin ciphergram -- bench --engine cpu,fpga --ops paillier --bits 2048 --clock 300",
    );
    command.arg("--json").arg(target().join(MODELS).join("bench.json"));
    run_seen(command.env(CARD, target().join(MODELS).join("card")))
}

/// Runs the tests of the engine over the simulated card. Powers take minutes there.
fn engine(long: bool) -> Result<(), String> {
    let programs = programs::build()?;
    let words = if long { "" } else { "--skip powers" };
    let words = format!("fpga::twins::on_card a_card_that_is_there --nocapture {words}");
    let runs = programs::named(&programs, ["ciphergram_accel"])?.into_iter().map(|library| {
        let mut run = library.run(&words);
        run.command.env(CARD, target().join(MODELS).join("card"));
        run.name += " on the simulated card";
        run
    });
    let outputs = programs::run_all(runs.collect(), Share::Computing)?;
    // Tests without a card pass.
    match outputs
        .iter()
        .flat_map(|output| output.lines())
        .find_map(|line| line.split_once("on the program"))
    {
        Some((_, card)) => {
            println!("ran on the program{card}");
            Ok(())
        }
        None => Err("no test found the simulated card".into()),
    }
}
