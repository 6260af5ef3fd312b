//! `ciphergram explain`: the real program of a throw-away key. Programs print shapes, never values.

use ciphergram_accel::CpuEngine;
use ciphergram_he::{Operation, SecretKey, params::Literal};
use serde_json::json;

use crate::{
    args::{Explain, Explained},
    failure::Failure,
    report::report,
};

/// Contributors of the sum whose decryption is shown.
const CONTRIBUTORS: usize = 3;

pub(crate) fn run(args: &Explain) -> Result<(), Failure> {
    let literal = Literal { scheme: args.scheme, clients: 64, bits: 16 };
    let key = SecretKey::generate(literal)?;
    let (name, operation) = match args.operation {
        Explained::Encrypt => ("encrypt", Operation::Encrypt),
        Explained::Aggregate => ("aggregate", Operation::Aggregate),
        Explained::Decrypt => ("decrypt", Operation::Decrypt),
    };
    let text = key.program(operation, &CpuEngine::new(), CONTRIBUTORS)?.to_string();
    let value = json!({
        "operation": name, "scheme": args.scheme.name(), "program": text,
    });
    report(args.json, &value, &[text.trim_end().to_string()])
}
