//! `ciphergram keygen`, and the files of a key.

use std::{fs, path::Path};

use ciphergram_he::{Error, Job, Limits, Scheme, SecretKey, params::Literal};
use serde_json::{Value, json};

use crate::{
    args::Keygen,
    failure::{Failure, at},
    files, nodes,
    report::{report, shown, warn},
};

/// The files of a key, and the folder of clients' keys.
const FILES: [&str; 4] = ["public.json", "secret.json", "clients", "job.json"];

pub(crate) fn run(args: &Keygen) -> Result<(), Failure> {
    let literal = args.set.literal();
    refuse_existing(&args.out)?;
    let key = SecretKey::generate(literal)?;
    if literal.scheme == Scheme::Paillier2048 {
        warn("paillier-2048 is of about 112-bit security; paillier-3072 and ckks-sum are of 128");
    }
    let (value, lines) = write(&key, &args.out)?;
    report(args.json, &value, &lines)
}

/// Refuses a folder that holds a file of a key, before work is spent on one.
pub(crate) fn refuse_existing(out: &Path) -> Result<(), Failure> {
    if out.exists() && !out.is_dir() {
        return Err(Failure::Work(format!("{}: is no folder", out.display())));
    }
    let own = FILES.map(|name| out.join(name));
    match own.iter().chain(&nodes::files(out)).find(|path| path.exists()) {
        Some(path) => Err(Error::Exists { path: path.clone() }.into()),
        None => Ok(()),
    }
}

/// Writes the folder of a key, whole or not at all: see [`write_files`]. Returns the report.
pub(crate) fn write(key: &SecretKey, out: &Path) -> Result<(Value, Vec<String>), Failure> {
    files::fill(out, |folder| write_files(key, folder))?;
    Ok(describe(key, out))
}

/// Writes all files of a key into a folder, with a job of default limits and node keys for this machine.
pub(crate) fn write_files(key: &SecretKey, folder: &Path) -> Result<(), Failure> {
    key.save(&folder.join("secret.json"))?;
    key.public().save(&folder.join("public.json"))?;
    if key.public().encrypts() {
        let clients = folder.join("clients");
        fs::create_dir(&clients).map_err(at(&clients))?;
        for number in 0..key.public().parameters().clients() as u16 {
            key.client_key(number)?.save(&clients.join(format!("{number}.json")))?;
        }
    }
    Job::new(key.public(), Limits::of_key(key.public()))?.save(&folder.join("job.json"))?;
    nodes::write(folder)
}

fn describe(key: &SecretKey, out: &Path) -> (Value, Vec<String>) {
    let [public, secret, clients, job] = FILES.map(|name| out.join(name));
    let Literal { scheme, clients: count, bits } = key.public().parameters().literal();
    let encrypts = key.public().encrypts();
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
    (value, lines)
}
