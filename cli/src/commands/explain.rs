//! `ciphergram explain`: the real program of a throw-away key. Programs print shapes, never values.

use ciphergram_he::{
    SecretKey, ckks_sum,
    paillier::Encryptor,
    params::{Literal, Scheme},
};
use serde_json::json;

use super::engine;
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
    if let (Some(public), Some(secret)) = (key.public().lattice(), key.lattice()) {
        // Sums are made as under ckks-sum.
        match operation {
            "encrypt" => return Ok(public.encrypt_program(parameters).to_string()),
            "decrypt" => return Ok(secret.decrypt_public_program(parameters).to_string()),
            _ => {}
        }
    }
    Ok(match (key.paillier(), key.lattice(), parameters.lattice(), operation) {
        (Some(secret), _, _, "encrypt") => {
            Encryptor::new(secret.modulus(), &*engine())?.program().to_string()
        }
        (Some(secret), _, _, "aggregate") => secret.modulus().sum_program().to_string(),
        (Some(secret), _, _, _) => secret.decrypt_program().to_string(),
        (_, Some(secret), _, "encrypt") => secret.encrypt_program(parameters).to_string(),
        (_, _, Some(lattice), "aggregate") => ckks_sum::sum_program(&lattice.ring).to_string(),
        (_, Some(secret), _, _) => secret.decrypt_program(parameters, CONTRIBUTORS).to_string(),
        _ => return Err(Failure::Work(format!("no program for {operation} under {scheme}"))),
    })
}
