//! `ciphergram bundle`.

use std::{
    fs,
    path::{Path, PathBuf},
};

use ciphergram_he::{
    AnyKey, Job, Limits,
    keys::{RANGES_KEY, beside, draw_members, write_new},
    private_ranges::RangesEvaluationKey,
    threshold::MAX_OPENERS,
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
    let path = &args.agreed.key.path;
    let key = files::read_key(path)?;
    let limits = files::read_job(&args.agreed, key.public())?.limits().clone();
    if limits.allow.is_some() {
        let text = "the job names its nodes already, and bundles are of new ones: make one without --allow";
        return Err(Failure::Work(text.into()));
    }
    match (&key, &limits.openers) {
        (AnyKey::Public(_), Some(openers)) => {
            let first = openers.members().iter().take(MAX_OPENERS);
            if openers.openers().iter().map(|opener| &opener.id).ne(first) {
                let text = "bundles are of jobs that all clients open, the first 32 at most: have each make an \
                            identity of its own, by `keygen --member`";
                return Err(Failure::Work(text.into()));
            }
        }
        (_, Some(_)) => {
            let needed = "bundles have new identities: give it keys/public.json";
            let error = ciphergram_he::Error::KeyKind { found: "member's", needed };
            return Err(error.within(path.display()).into());
        }
        (_, None) => _ = key.secret().map_err(|e| e.within(path.display()))?,
    }
    let clients = limits.clients;
    if args.out.path.exists() {
        return Err(ciphergram_he::Error::Exists { path: args.out.path.clone() }.into());
    }
    let server = draw_identity()?;
    files::fill(&args.out.path, |folder| write(&key, limits, &server, path, folder))?;
    // Without the slash that a folder's name may end in.
    let out = args.out.path.components().collect::<PathBuf>();
    let (out, (name, number)) = (out.display(), key_file(&key));
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

/// Returns the name of a client's key file, and the words by which `join` learns the first client's number.
fn key_file(key: &AnyKey) -> (&'static str, &'static str) {
    match key {
        AnyKey::Public(_) => ("identity.json", ""),
        key if key.public().encrypts() => ("client.json", ""),
        _ => ("secret.json", " --client 0"),
    }
}

/// Writes each client's key, and returns a new job: no ledger of a bundle knows what the old one was used for.
fn write_keys(key: &AnyKey, limits: Limits, path: impl Fn(u16) -> PathBuf) -> Result<Job, Failure> {
    if let Some(openers) = &limits.openers {
        let open = openers.quorum().open.into();
        return Ok(draw_members(key.public(), limits, Some(open), path)?);
    }
    let key = key.secret()?;
    for number in 0..limits.clients {
        if key.public().encrypts() {
            key.client_key(number)?.save(&path(number))?;
        } else {
            key.save(&path(number))?;
        }
    }
    Ok(Job::new(key.public(), limits)?)
}

/// Writes the folders, with new node keys for the clients.
fn write(
    key: &AnyKey,
    limits: Limits,
    server: &Identity,
    key_path: &Path,
    folder: &Path,
) -> Result<(), Failure> {
    let made = |name: String| {
        let folder = folder.join(name);
        fs::create_dir(&folder).map_err(at(&folder))?;
        Ok::<_, Failure>((LocalNodes::of_folder(&folder), folder))
    };
    let (aggregator, own) = made(AGGREGATOR.into())?;
    let clients = (0..limits.clients).map(|number| made(format!("client-{number}")));
    let clients = clients.collect::<Result<Vec<_>, _>>()?;
    let path = |number: u16| clients[usize::from(number)].1.join(key_file(key).0);
    let job = write_keys(key, limits, path)?;
    job.save(&own.join("job.json"))?;
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
    for (number, (nodes, own)) in (0..).zip(&clients) {
        job.save(&own.join("job.json"))?;
        let identity = draw_identity()?;
        write_identity(&nodes.client, &identity)?;
        write_node(&nodes.server_node, server.id())?;
        // Its own line says that no other client has this node key.
        write_allowed(&nodes.allowed, &[(identity.id(), Some(number))].into())?;
        allowed.insert(identity.id(), Some(number));
    }
    Ok(write_allowed(&aggregator.allowed, &allowed)?)
}
