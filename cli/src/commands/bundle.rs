//! `ciphergram bundle`.

use std::{
    fs,
    path::{Path, PathBuf},
};

use ciphergram_he::{
    AnyKey, Job, Limits, PublicKey, SecretKey,
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

/// What keys of a bundle's clients are made from.
enum Source {
    /// A key that opens sums: each gets that one, or its own of it.
    Secret(Box<SecretKey>),
    /// The parameters of a job whose clients are its openers, and how many of them open: each gets a new identity.
    Members(PublicKey, usize),
}

impl Source {
    fn read(args: &args::BundleArgs) -> Result<(Self, Limits), Failure> {
        let key = files::read_key(&args.agreed.key.path)?;
        let job = files::read_job(&args.agreed, key.public())?;
        let limits = job.limits().clone();
        if limits.allow.is_some() {
            let text = "the job names its nodes already, and bundles are of new ones: make one without --allow";
            return Err(Failure::Work(text.into()));
        }
        let source = match (key, &limits.openers) {
            (AnyKey::Public(key), Some(openers)) => {
                let first = openers.members().iter().take(MAX_OPENERS);
                if openers.openers().iter().map(|opener| &opener.id).ne(first) {
                    let text = "the job's openers are no clients: have each make an identity of its own, by \
                                `keygen --member`";
                    return Err(Failure::Work(text.into()));
                }
                Self::Members(key, openers.quorum().open.into())
            }
            (key, _) => {
                let secret = key.into_secret();
                Self::Secret(secret.map_err(|e| e.within(args.agreed.key.path.display()))?.into())
            }
        };
        Ok((source, limits))
    }

    fn public(&self) -> &PublicKey {
        match self {
            Self::Secret(key) => key.public(),
            Self::Members(key, _) => key,
        }
    }

    /// Returns the name of the key's file in a client's folder, and what tells `join` the first client's number.
    fn name(&self) -> (&'static str, &'static str) {
        match self {
            Self::Secret(key) if key.public().encrypts() => ("client.json", ""),
            Self::Secret(_) => ("secret.json", " --client 0"),
            Self::Members(..) => ("identity.json", ""),
        }
    }

    /// Writes a key for each client, and makes their job: one of its own, since what was sealed and opened of the one
    /// that is used here, no ledger of a bundle knows.
    fn write(&self, limits: Limits, path: impl Fn(u16) -> PathBuf) -> Result<Job, Failure> {
        let key = match self {
            Self::Members(key, open) => return Ok(draw_members(key, limits, Some(*open), path)?),
            Self::Secret(key) => key,
        };
        for number in 0..limits.clients {
            match key.public().encrypts() {
                true => key.client_key(number)?.save(&path(number))?,
                false => key.save(&path(number))?,
            }
        }
        Ok(Job::new(key.public(), limits)?)
    }
}

pub(crate) fn run(args: &args::BundleArgs) -> Result<(), Failure> {
    let (source, limits) = Source::read(args)?;
    let clients = limits.clients;
    if args.out.path.exists() {
        return Err(ciphergram_he::Error::Exists { path: args.out.path.clone() }.into());
    }
    let server = draw_identity()?;
    files::fill(&args.out.path, |folder| {
        write(&source, limits, &server, &args.agreed.key.path, folder)
    })?;
    // Without the slash that a folder's name may end in.
    let out = args.out.path.components().collect::<PathBuf>();
    let (out, (name, number)) = (out.display(), source.name());
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

/// Writes the folders, with new node keys for the clients.
fn write(
    source: &Source,
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
    let path = |number: u16| clients[usize::from(number)].1.join(source.name().0);
    let job = source.write(limits, path)?;
    job.save(&own.join("job.json"))?;
    source.public().save(&own.join("public.json"))?;
    write_identity(&aggregator.server, server)?;
    if job.private_ranges().is_ok() {
        let path = beside(key_path, RANGES_KEY);
        let bytes = fs::read(&path).map_err(at(&path))?;
        RangesEvaluationKey::from_bytes(&bytes, source.public())
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
