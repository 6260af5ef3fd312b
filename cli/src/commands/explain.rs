//! `ciphergram explain`: the real program of a throw-away key. Programs print shapes, never values.

use ciphergram_accel::CpuEngine;
use ciphergram_he::{
    Operation, Scheme, SecretKey,
    ckks::{self, Preset},
    params::Literal,
};
use clap::ValueEnum as _;
use serde_json::json;

use crate::{
    args::{AnyScheme, Explain, Explained},
    failure::Failure,
    report::report,
};

/// Contributors of the sum whose decryption is shown.
const CONTRIBUTORS: usize = 3;

/// An operation of either kind of scheme.
enum Shown {
    Sums(Operation),
    Levelled(ckks::Operation),
}

pub(crate) fn run(args: &Explain) -> Result<(), Failure> {
    let name = args.operation.to_possible_value().map_or_else(String::new, |v| v.get_name().into());
    let levelled = args.scheme.map(|scheme| matches!(scheme, AnyScheme::Levelled(_)));
    let shown = shown(args.operation, levelled.unwrap_or(false));
    let scheme = args.scheme.unwrap_or(match &shown {
        Some(Shown::Levelled(_)) => AnyScheme::Levelled(Preset::Slots4096Levels1),
        _ => AnyScheme::Sums(Scheme::CkksSum),
    });
    let text = match (shown, scheme) {
        (Some(Shown::Sums(operation)), AnyScheme::Sums(scheme)) => {
            let key = SecretKey::generate(Literal { scheme, clients: 64, bits: 16 })?;
            key.program(operation, &CpuEngine::new(), CONTRIBUTORS, args.values)?.to_string()
        }
        (Some(Shown::Levelled(operation)), AnyScheme::Levelled(preset)) => {
            operation.program(&ckks::Parameters::preset(preset)).to_string()
        }
        _ => {
            let why = format!("{} has no operation {name:?}", scheme.name());
            return Err(Failure::Misuse(why));
        }
    };
    let value = json!({"operation": name, "scheme": scheme.name(), "program": text});
    report(args.json, &value, &[text.trim_end().to_string()])
}

/// Returns an operation of a levelled scheme, or of one of sums; none where there is none.
fn shown(operation: Explained, levelled: bool) -> Option<Shown> {
    use ckks::Operation as Levelled;
    Some(match (operation, levelled) {
        (Explained::Encrypt, false) => Shown::Sums(Operation::Encrypt),
        (Explained::Aggregate, false) => Shown::Sums(Operation::Aggregate),
        (Explained::Decrypt, false) => Shown::Sums(Operation::Decrypt),
        (Explained::Encrypt, true) => Shown::Levelled(Levelled::Encrypt),
        (Explained::Decrypt, true) => Shown::Levelled(Levelled::Decrypt),
        (Explained::Aggregate, true) => return None,
        (Explained::CkksEncryptSecret, _) => Shown::Levelled(Levelled::EncryptSecret),
        (Explained::CkksAdd, _) => Shown::Levelled(Levelled::Add),
        (Explained::CkksMul, _) => Shown::Levelled(Levelled::Multiply),
        (Explained::CkksMulPlain, _) => Shown::Levelled(Levelled::MultiplyPlain),
        (Explained::CkksRotate, _) => Shown::Levelled(Levelled::Rotate),
    })
}
