//! `ciphergram keygen`.

use std::fs;

use ciphergram_he::{Error, Scheme, SecretKey, params::Literal};
use serde_json::json;

use crate::{
    args::Keygen,
    failure::{Failure, at},
    nodes,
    report::{report, warn},
};

pub(crate) fn run(args: &Keygen) -> Result<(), Failure> {
    let (public, secret) = (args.out.join("public.json"), args.out.join("secret.json"));
    for path in [&public, &secret].into_iter().chain(&nodes::files(&args.out)) {
        if path.exists() {
            return Err(Error::Exists { path: path.clone() }.into());
        }
    }
    let literal = args.set.literal();
    let key = SecretKey::generate(literal)?;
    if literal.scheme == Scheme::Paillier2048 {
        warn("paillier-2048 is of about 112-bit security; paillier-3072 and ckks-sum are of 128");
    }
    fs::create_dir_all(&args.out).map_err(at(&args.out))?;
    key.save(&secret)?;
    key.public().save(&public)?;
    nodes::write(&args.out)?;
    let id = key.public().id().to_string();
    let Literal { scheme, clients, bits } = literal;
    let value = json!({
        "scheme": scheme.name(), "clients": clients, "bits": bits, "key_id": id,
        "public": public, "secret": secret,
    });
    let (to, by) = match key.public().check_encrypts() {
        Ok(()) => ("the aggregator, and for the clients, who encrypt with it", "those who decrypt"),
        Err(_) => ("the aggregator", "the clients"),
    };
    let lines = [
        format!("{scheme} key {id}, for sums of at most {clients} clients at {bits} bits"),
        format!("{}  for {to}", public.display()),
        format!("{}  for {by}, and for no one else", secret.display()),
        "and node keys, with which serve and join authenticate each other on this machine".into(),
    ];
    report(args.json, &value, &lines)
}
