//! `ciphergram bundle`.

use std::{
    fs,
    path::{Path, PathBuf},
};

use ciphergram_he::{
    Job, SecretKey,
    keys::{RANGES_KEY, beside, write_new},
    private_ranges::RangesEvaluationKey,
};
use ciphergram_nic::{
    federation::nodes::{
        Allowed, LocalNodes, draw_identity, write_allowed, write_identity, write_node,
    },
    proto::Identity,
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

pub(crate) fn run(args: &args::BundleArgs) -> Result<(), Failure> {
    let key = files::read_secret(&args.agreed.key.path)?;
    let job = files::read_job(&args.agreed, key.public())?;
    if job.limits().allow.is_some() {
        let text = "the job names its nodes already, and bundles are of new ones: make one without --allow";
        return Err(Failure::Work(text.into()));
    }
    if args.out.path.exists() {
        return Err(ciphergram_he::Error::Exists { path: args.out.path.clone() }.into());
    }
    // One of its own: what was sealed and opened of the one that is used here, no ledger of a bundle knows.
    let job = Job::new(key.public(), job.limits().clone())?;
    let server = draw_identity()?;
    files::fill(&args.out.path, |folder| {
        write(&key, &job, &server, &args.agreed.key.path, folder)
    })?;
    // Without the slash that a folder's name may end in.
    let out = args.out.path.components().collect::<PathBuf>();
    let (out, clients) = (out.display(), job.limits().clients);
    let (name, is_own) = (key_name(&key), key.public().encrypts());
    let number = if is_own { "" } else { " --client 0" };
    let lines = [
        format!("{out}/{AGGREGATOR}  for the aggregator, which there runs"),
        "  ciphergram serve --key public.json --listen HOST:PORT".into(),
        format!(
            "{out}/client-0 to {out}/client-{}  one for each client, which there runs, the first:",
            clients - 1
        ),
        format!("  ciphergram join --key {name}{number} --server HOST:PORT --in FILE --out FILE"),
        "Each has secrets of its own: hand it to its owner alone, and remove it here.".into(),
    ];
    let server = server.id().to_string();
    report(
        args.report.json,
        &json!({"out": shown(&args.out.path), "clients": clients, "server_key": server}),
        &lines,
    )
}

/// Returns the name of the key's file in a client's folder.
fn key_name(key: &SecretKey) -> &'static str {
    if key.public().encrypts() { "client.json" } else { "secret.json" }
}

/// Writes the folders, with new node keys for the clients.
fn write(
    key: &SecretKey,
    job: &Job,
    server: &Identity,
    key_path: &Path,
    folder: &Path,
) -> Result<(), Failure> {
    let made = |name: String| {
        let folder = folder.join(name);
        fs::create_dir(&folder).map_err(at(&folder))?;
        job.save(&folder.join("job.json"))?;
        Ok::<_, Failure>((LocalNodes::of_folder(&folder), folder))
    };
    let (aggregator, own) = made(AGGREGATOR.into())?;
    key.public().save(&own.join("public.json"))?;
    write_identity(&aggregator.server, server)?;
    if job.private_ranges().is_ok() {
        let path = beside(key_path, RANGES_KEY);
        let bytes = fs::read(&path).map_err(at(&path))?;
        RangesEvaluationKey::from_bytes(&bytes, key.public())
            .map_err(|e| e.within(path.display()))?;
        write_new(&own.join(RANGES_KEY), &bytes, 0o644)?;
    }
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
        write_node(&nodes.server_node, server.id())?;
        // Its own line says that no other client has this node key.
        write_allowed(&nodes.allowed, &[(identity.id(), Some(number))].into())?;
        allowed.insert(identity.id(), Some(number));
    }
    Ok(write_allowed(&aggregator.allowed, &allowed)?)
}
