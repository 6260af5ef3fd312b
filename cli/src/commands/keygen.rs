//! `ciphergram keygen`, and the files of a key.

use std::{fs, path::Path};

use ciphergram_he::{Error, Job, Limits, Scheme, SecretKey, params::Literal};
use serde_json::{Value, json};

use crate::{
    args::Keygen,
    failure::{Failure, at},
    nodes,
    progress::Progress,
    report::{report, shown, warn},
};

pub(crate) fn run(args: &Keygen) -> Result<(), Failure> {
    let literal = args.set.literal();
    refuse_existing(&args.out)?;
    let progress =
        Progress::new(args.json, format!("looking for the primes of a {} key", literal.scheme));
    let key = SecretKey::generate(literal)?;
    drop(progress);
    if literal.scheme == Scheme::Paillier2048 {
        warn("paillier-2048 is of about 112-bit security; paillier-3072 and ckks-sum are of 128");
    }
    let (value, lines) = write(&key, &args.out)?;
    report(args.json, &value, &lines)
}

/// Refuses a folder that holds a file of a key, before work is spent on one.
pub(crate) fn refuse_existing(out: &Path) -> Result<(), Failure> {
    let own = ["public.json", "secret.json", "clients", "job.json"].map(|name| out.join(name));
    match own.iter().chain(&nodes::files(out)).find(|path| path.exists()) {
        Some(path) => Err(Error::Exists { path: path.clone() }.into()),
        None => Ok(()),
    }
}

/// Writes all files of a key into a folder, with a job of default limits and node keys for this machine. Returns
/// the report.
pub(crate) fn write(key: &SecretKey, out: &Path) -> Result<(Value, Vec<String>), Failure> {
    let (public, secret) = (out.join("public.json"), out.join("secret.json"));
    let (clients, job) = (out.join("clients"), out.join("job.json"));
    let Literal { scheme, clients: count, bits } = key.public().parameters().literal();
    fs::create_dir_all(out).map_err(at(out))?;
    key.save(&secret)?;
    key.public().save(&public)?;
    let encrypts = key.public().encrypts();
    if encrypts {
        fs::create_dir(&clients).map_err(at(&clients))?;
        for number in 0..count as u16 {
            key.client_key(number)?.save(&clients.join(format!("{number}.json")))?;
        }
    }
    Job::new(key.public(), Limits::of_key(key.public()))?.save(&job)?;
    nodes::write(out)?;
    let id = key.public().id().to_string();
    let value = json!({
        "scheme": scheme.name(), "clients": count, "bits": bits, "key_id": id,
        "public": shown(&public), "secret": shown(&secret), "job": shown(&job),
        "client_keys": encrypts.then(|| shown(&clients)),
    });
    let mut lines = vec![
        format!("{scheme} key {id}, for sums of at most {count} clients at {bits} bits"),
        format!("{}  for the aggregator", public.display()),
    ];
    let openers = if encrypts { "those who decrypt" } else { "the clients" };
    lines.push(format!("{}  for {openers}, and for no one else", secret.display()));
    if encrypts {
        let last = count - 1;
        lines.push(format!(
            "{}  one for each client, who encrypts with it: 0.json to {last}.json",
            clients.display()
        ));
    }
    lines.push(format!("{}  for all of them: the limits of a round", job.display()));
    lines.push(
        "and node keys, with which serve and join authenticate each other on this machine".into(),
    );
    Ok((value, lines))
}
