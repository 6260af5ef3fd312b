//! `ciphergram explain`: the real program of a throw-away key. Programs print shapes, never values.

use ciphergram_accel::CpuEngine;
use ciphergram_he::{
    SecretKey, ckks_sum,
    paillier::Encryptor,
    params::{Literal, Scheme},
};
use serde_json::json;

use crate::{args::Explain, failure::Failure, report::report};

/// Contributors of the sum whose decryption is shown.
const CONTRIBUTORS: usize = 3;

pub(crate) fn run(args: &Explain) -> Result<(), Failure> {
    let literal = Literal { scheme: args.scheme, clients: 64, bits: 16 };
    let key = SecretKey::generate(literal)?;
    let text = program(&key, &args.operation, args.scheme)?;
    let value = json!({
        "operation": args.operation, "scheme": args.scheme.name(), "program": text,
    });
    report(args.json, &value, &[text.trim_end().to_string()])
}

fn program(key: &SecretKey, operation: &str, scheme: Scheme) -> Result<String, Failure> {
    let parameters = key.public().parameters();
    let (paillier, lattice, public) = (key.paillier(), key.lattice(), key.public().lattice());
    Ok(match (operation, paillier, parameters.lattice(), lattice, public) {
        ("encrypt", Some(secret), ..) => {
            Encryptor::new(secret.modulus(), &CpuEngine::new())?.program().to_string()
        }
        ("aggregate", Some(secret), ..) => secret.modulus().sum_program().to_string(),
        ("decrypt", Some(secret), ..) => secret.decrypt_program().to_string(),
        ("encrypt", .., Some(public)) => public.encrypt_program(parameters).to_string(),
        ("encrypt", .., Some(secret), None) => secret.encrypt_program(parameters).to_string(),
        ("aggregate", _, Some(set), ..) => ckks_sum::sum_program(&set.ring).to_string(),
        ("decrypt", .., Some(secret), Some(_)) => {
            secret.decrypt_public_program(parameters).to_string()
        }
        ("decrypt", .., Some(secret), None) => {
            secret.decrypt_program(parameters, CONTRIBUTORS).to_string()
        }
        _ => return Err(Failure::Work(format!("no program for {operation} under {scheme}"))),
    })
}
