//! `ciphergram bundle`.

use std::{fs, path::Path};

use ciphergram_he::{
    Job, SecretKey,
    keys::{RANGES_KEY, beside},
};
use ciphergram_nic::{
    federation::nodes::{
        Allowed, LocalNodes, draw_identity, write_allowed, write_identity, write_node,
    },
    proto::NodeId,
};
use serde_json::json;

use crate::{
    args,
    failure::{Failure, at},
    files,
    report::{report, shown},
};

/// The aggregator's folder.
const AGGREGATOR: &str = "aggregator";

pub(crate) fn run(args: &args::Bundle) -> Result<(), Failure> {
    let key = files::read_secret(&args.agreed.key)?;
    let job = files::read_job(&args.agreed, key.public())?;
    if job.limits().allow.is_some() {
        let text = "the job names its nodes already, and bundles are of new ones: make one without --allow";
        return Err(Failure::Work(text.into()));
    }
    if args.out.exists() {
        return Err(ciphergram_he::Error::Exists { path: args.out.clone() }.into());
    }
    let mut server = args.server_key;
    files::fill(&args.out, |folder| {
        server = Some(write(args, &key, &job, folder)?);
        Ok(())
    })?;
    let (out, clients) = (args.out.display(), job.limits().clients);
    let (name, is_own) = (key_name(&key), key.public().encrypts());
    let number = if is_own { "" } else { " --client 0" };
    let nodes = args.server_key.map_or("", |_| " --identity FILE --allow clients.allow");
    let lines = [
        format!("{out}/{AGGREGATOR}  for the aggregator, which there runs"),
        format!("  ciphergram serve --key public.json --listen 0.0.0.0:7700{nodes}"),
        format!(
            "{out}/client-0 to {out}/client-{}  one for each client, which there runs, the first:",
            clients - 1
        ),
        format!(
            "  ciphergram join --key {name}{number} --server AGGREGATOR:7700 --in FILE --out FILE"
        ),
        "Each has secrets of its own: hand it to its owner alone, and remove it here.".into(),
    ];
    let server = server.map(|node| node.to_string());
    report(
        args.json,
        &json!({"out": shown(&args.out), "clients": clients, "server_key": server}),
        &lines,
    )
}

/// Returns the name of the key's file in a client's folder.
fn key_name(key: &SecretKey) -> &'static str {
    if key.public().encrypts() { "client.json" } else { "secret.json" }
}

/// Writes the folders, with new node keys. Returns the aggregator's.
fn write(
    args: &args::Bundle,
    key: &SecretKey,
    job: &Job,
    folder: &Path,
) -> Result<NodeId, Failure> {
    let made = |name: String| {
        let folder = folder.join(name);
        fs::create_dir(&folder).map_err(at(&folder))?;
        job.save(&folder.join("job.json"))?;
        Ok::<_, Failure>((LocalNodes::of_folder(&folder), folder))
    };
    let (aggregator, own) = made(AGGREGATOR.into())?;
    key.public().save(&own.join("public.json"))?;
    let ranges = beside(&args.agreed.key, RANGES_KEY);
    if job.private_ranges().is_ok() {
        fs::copy(&ranges, own.join(RANGES_KEY)).map_err(at(&ranges))?;
    }
    let server = match args.server_key {
        Some(node) => node,
        None => {
            let identity = draw_identity()?;
            write_identity(&aggregator.server, &identity)?;
            identity.id()
        }
    };
    let mut allowed = Allowed::new();
    for number in 0..job.limits().clients {
        let (nodes, own) = made(format!("client-{number}"))?;
        let path = own.join(key_name(key));
        if key.public().encrypts() {
            key.client_key(number)?.save(&path)?;
        } else {
            key.save(&path)?;
        }
        let identity = draw_identity()?;
        write_identity(&nodes.client, &identity)?;
        write_node(&nodes.server_node, server)?;
        allowed.insert(identity.id(), Some(number));
    }
    write_allowed(&aggregator.allowed, &allowed)?;
    Ok(server)
}
