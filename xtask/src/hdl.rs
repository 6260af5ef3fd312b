//! The hardware: what is written from its register map, and its lints, models, benches and counts (`hdl/run.py`).

mod registers;

use crate::{
    command::{program, root, run as run_seen, target},
    outcome::Outcome,
    venv::Environment,
};

/// The folder of the models that the benches build, and of the card that programs run.
const MODELS: &str = "hdl";
const LISTS: [&str; 1] = ["hdl/requirements.txt"];

/// Writes what follows from `hdl/registers.toml`.
///
/// # Errors
///
/// Returns which file cannot be read or written.
pub(crate) fn write_registers() -> Result<(), String> {
    registers::write()
}

/// Tries the hardware: the steps that a change needs, or, the long way, all of them.
pub(crate) fn run(long: bool) -> Outcome {
    if let Err(difference) = registers::check() {
        return Outcome::Failed(difference);
    }
    match (Environment { name: "venv-hdl", lists: &LISTS, oldest: 11 }).interpreter() {
        Ok(interpreter) => {
            let mut command = program(interpreter);
            command.arg("-B").arg(root().join("hdl/run.py"));
            command.args(long.then_some("--all"));
            run_seen(command.env("CIPHERGRAM_HDL", target().join(MODELS))).into()
        }
        Err(reason) => {
            println!("!! NOT RUN, no bench of the hardware: {reason}");
            Outcome::Skipped(reason)
        }
    }
}
