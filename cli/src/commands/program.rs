//! `ciphergram show program`: the real program of a throw-away key. Programs print shapes, never values.

use ciphergram_accel::CpuEngine;
use ciphergram_he::{
    Operation, Scheme, SecretKey,
    ckks::{self, Preset},
    params::Literal,
};
use serde_json::json;

use crate::{
    args::{AnyScheme, ProgramArgs, ShownOperation},
    failure::Failure,
    report::report,
};

/// Contributors of the sum whose decryption is shown.
const CONTRIBUTORS: usize = 3;

pub(crate) fn run(args: &ProgramArgs) -> Result<(), Failure> {
    let scheme = args.scheme.unwrap_or(match args.operation {
        ShownOperation::Levelled(_) => AnyScheme::Levelled(Preset::Slots4096Levels1),
        ShownOperation::Sums(_) => AnyScheme::Sums(Scheme::CkksSum),
    });
    let text = match (args.operation, scheme) {
        (ShownOperation::Sums(operation), AnyScheme::Sums(scheme)) => {
            let key = SecretKey::generate(Literal { scheme, clients: 64, bits: 16 })?;
            let program = key.program(operation, &CpuEngine::new(), CONTRIBUTORS, args.values)?;
            Some(program.to_string())
        }
        (ShownOperation::Levelled(_), AnyScheme::Sums(_)) => None,
        (operation, AnyScheme::Levelled(preset)) => levelled(operation)
            .and_then(|operation| operation.program(&ckks::Parameters::preset(preset)))
            .map(|program| program.to_string()),
    };
    let (name, scheme) = (args.operation.name(), scheme.name());
    let Some(text) = text else {
        return Err(Failure::Misuse(format!("{scheme} has no operation {name:?}")));
    };
    let value = json!({"operation": name, "scheme": scheme, "program": text});
    report(args.report.json, &value, &[text.trim_end().to_string()])
}

/// Returns the operation of a levelled scheme, if it has one by that word.
fn levelled(operation: ShownOperation) -> Option<ckks::Operation> {
    match operation {
        ShownOperation::Levelled(operation) => Some(operation),
        ShownOperation::Sums(Operation::Encrypt) => Some(ckks::Operation::Encrypt),
        ShownOperation::Sums(Operation::Decrypt) => Some(ckks::Operation::Decrypt),
        ShownOperation::Sums(Operation::Aggregate) => None,
    }
}
