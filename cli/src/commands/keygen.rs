//! `ciphergram keygen`, and the files of a key.

use std::path::{Path, PathBuf};

use ciphergram_he::{
    Error, IdentityKey, Job, Limits, Parameters, PublicKey, Scheme, SecretKey,
    keys::{RANGES_KEY, write_folder, write_identities, write_new},
    params::Literal,
    private_ranges::{HAS_BOOTSTRAPS, RangesSecret},
};
use ciphergram_nic::federation::nodes::LocalNodes;
use serde_json::{Value, json};

use crate::{
    args::{AnyScheme, KeygenArgs},
    commands::{job::quorum_words, vectors},
    failure::{Failure, at},
    files,
    progress::ProgressLine,
    report::{counted, report, shown, warn},
};

pub(crate) fn run(args: &KeygenArgs) -> Result<(), Failure> {
    if let Some(path) = &args.upgrade {
        files::refuse_keys(&args.out.path)?;
        let key = files::read_secret(path)?.upgrade().map_err(|e| e.within(path.display()))?;
        let (value, lines) = write(&key, Limits::of_key(key.public()), &args.out.path, None)?;
        return report(args.report.json, &value, &lines);
    }
    if !matches!(args.set.scheme, AnyScheme::Sums(Scheme::CkksSumThreshold)) {
        let given = [("--member", args.member), ("--open", args.open.is_some())];
        vectors::refuse(&given, "a scheme whose sums a key opens")?;
    }
    let scheme = match args.set.scheme {
        AnyScheme::Levelled(preset) => {
            vectors::refuse(&args.set.of_sums(), preset.name())?;
            vectors::refuse(&[("--ranges-key", args.ranges_key)], preset.name())?;
            return vectors::keygen(args, preset);
        }
        AnyScheme::Sums(scheme) => scheme,
    };
    vectors::refuse(&[("--rotations", !args.rotations.is_empty())], scheme.name())?;
    files::refuse_keys(&args.out.path)?;
    let former = args.replaces.as_deref().map(|folder| Former::read(args, folder)).transpose()?;
    let literal = former.as_ref().map_or_else(|| args.set.literal(scheme), Former::literal);
    if literal.scheme == Scheme::CkksSumThreshold {
        return identities(args, literal);
    }
    let has_ranges = args.ranges_key || former.as_ref().is_some_and(Former::has_ranges);
    if has_ranges && !HAS_BOOTSTRAPS {
        return Err(Error::WithoutTfhe.into());
    }
    let progress = ProgressLine::new(
        args.report.json,
        format!("looking for the primes of a {} key", literal.scheme),
    );
    let mut key = SecretKey::generate(literal)?;
    if has_ranges {
        key = key.with_ranges_secret(RangesSecret::draw()?);
    }
    drop(progress);
    if literal.scheme == Scheme::Paillier2048 {
        warn("paillier-2048 is of about 112-bit security; paillier-3072 and ckks-sum are of 128");
    }
    let mut limits = former.as_ref().map_or_else(|| Limits::of_key(key.public()), Former::limits);
    if let (Some(private), Some(secret)) = (&mut limits.private_ranges, key.ranges_secret()) {
        private.key = secret.id();
    }
    let (mut value, mut lines) = write(&key, limits, &args.out.path, former.as_ref())?;
    if let Some(former) = former {
        value["replaces"] = former.key.id().to_string().into();
        lines.extend(former.steps(&key, &args.out.path));
    }
    report(args.report.json, &value, &lines)
}

/// Makes the identity of one member, or of all clients of a job with their job.
fn identities(args: &KeygenArgs, literal: Literal) -> Result<(), Failure> {
    let given = [("--ranges-key", args.ranges_key), ("--replaces", args.replaces.is_some())];
    vectors::refuse(&given, literal.scheme.name())?;
    let public = PublicKey::of_parameters(Parameters::new(literal).map_err(Error::from)?)?;
    let out = &args.out.path;
    let Literal { scheme, clients, bits } = literal;
    let (clients, parties) = (clients as u16, counted(clients, "client"));
    let mut value = json!({"scheme": scheme.name(), "clients": clients, "bits": bits});
    if args.member {
        let key = IdentityKey::generate(public)?;
        files::fill(out, |folder| {
            let known = key.save(&folder.join("identity.json"))?;
            let member = folder.join("member.pub");
            write_new(&member, known.to_text().as_bytes(), 0o644)?;
            Ok(key.public.save(&folder.join("public.json"))?)
        })?;
        let [identity, member] = ["identity.json", "member.pub"].map(|name| out.join(name));
        value["identity"] = shown(&identity).into();
        value["member"] = shown(&member).into();
        let lines = [
            format!("{}  for this member, and for no one else", identity.display()),
            format!("{}  for whoever makes the job", member.display()),
            format!("{}  for the aggregator, the same of all", out.join("public.json").display()),
        ];
        return report(args.report.json, &value, &lines);
    }
    files::fill(out, |folder| {
        write_identities(&public, Limits::of_key(&public), args.open, folder)?;
        Ok(LocalNodes::of_folder(folder).draw()?)
    })?;
    let [public_path, _, identities, job_path] = files::KEY_FILES.map(|name| out.join(name));
    let job = Job::load(&job_path, &public)?;
    value["public"] = shown(&public_path).into();
    value["job"] = shown(&job_path).into();
    value["client_keys"] = shown(&identities).into();
    let last = clients - 1;
    let mut lines = vec![
        format!("{scheme}, for sums of at most {parties} at {bits} bits"),
        format!("{}  for the aggregator", public_path.display()),
        format!(
            "{}  one for each client, its identity: 0.json to {last}.json, each with its prekeys",
            identities.display()
        ),
        format!("{}  for all of them: members, openers and limits", job_path.display()),
    ];
    lines.push(quorum_words(job.openers()?.quorum()));
    report(args.report.json, &value, &lines)
}

/// A key that another one replaces.
pub(crate) struct Former<'a> {
    folder: &'a Path,
    key: PublicKey,
    limits: Limits,
    renew_nodes: bool,
}

impl<'a> Former<'a> {
    fn read(args: &KeygenArgs, folder: &'a Path) -> Result<Self, Failure> {
        let key = PublicKey::load(&folder.join("public.json"))?;
        let job = args.job.clone().unwrap_or_else(|| folder.join("job.json"));
        let limits = Job::load(&job, &key)?.limits().clone();
        Ok(Self { folder, key, limits, renew_nodes: args.renew_nodes })
    }

    /// Returns whether clients of the key have a secret of ranges.
    fn has_ranges(&self) -> bool {
        self.limits.private_ranges.is_some() || self.folder.join(RANGES_KEY).exists()
    }

    fn limits(&self) -> Limits {
        self.limits.clone()
    }

    fn literal(&self) -> Literal {
        self.key.parameters().literal()
    }

    /// Returns what to do next, in order.
    fn steps(&self, key: &SecretKey, out: &Path) -> Vec<String> {
        // Without the slash that a folder's name may end in.
        let [new, old] = [out, self.folder].map(|folder| folder.components().collect::<PathBuf>());
        let (new, old) = (new.display(), old.display());
        let own = if key.public().encrypts() { "clients/NUMBER.json" } else { "secret.json" };
        let nodes = match self.renew_nodes {
            true => {
                "; node keys are new: server.node, client.identity and clients.allow go with it"
            }
            false => "",
        };
        vec![
            format!(
                "This key replaces {}, whose files stay as they are. Next, in this order:",
                self.key.id()
            ),
            format!("1. Hand each client its key, {new}/{own}, and {new}/job.json{nodes}."),
            "2. Let the round under way end, until no client has a spool left.".into(),
            format!(
                "3. Stop serve, and start it with --key {new}/public.json and --job {new}/job.json."
            ),
            "4. Have the clients join with the new key and job: their rounds begin at 0 again."
                .into(),
            format!(
                "5. Keep {old}/secret.json and its ledger, which opens sums of the former key and nothing else, as \
                 long as there are any."
            ),
        ]
    }
}

/// Writes the folder of a key, whole or not at all: see [`write_files`]. Returns the report.
pub(crate) fn write(
    key: &SecretKey,
    limits: Limits,
    out: &Path,
    former: Option<&Former<'_>>,
) -> Result<(Value, Vec<String>), Failure> {
    files::fill(out, |folder| write_files(key, limits, folder, former))?;
    describe(key, out)
}

/// Writes all files of a key into a folder, with a job of these limits and node keys for this machine: those of the key
/// that it replaces, or new ones.
pub(crate) fn write_files(
    key: &SecretKey,
    limits: Limits,
    folder: &Path,
    former: Option<&Former<'_>>,
) -> Result<(), Failure> {
    write_folder(key, &Job::new(key.public(), limits)?, folder)?;
    let nodes = LocalNodes::of_folder(folder);
    match former.filter(|former| !former.renew_nodes) {
        Some(former) => nodes.take_over(&LocalNodes::of_folder(former.folder))?,
        None => nodes.draw()?,
    }
    Ok(())
}

fn describe(key: &SecretKey, out: &Path) -> Result<(Value, Vec<String>), Failure> {
    let [public, secret, clients, job] = files::KEY_FILES.map(|name| out.join(name));
    let Literal { scheme, clients: count, bits } = key.public().parameters().literal();
    let encrypts = key.public().encrypts();
    let id = key.public().id().to_string();
    let mut value = json!({
        "scheme": scheme.name(), "clients": count, "bits": bits, "key_id": id,
        "public": shown(&public), "secret": shown(&secret), "job": shown(&job),
        "client_keys": encrypts.then(|| shown(&clients)),
    });
    let mut lines = vec![
        format!(
            "{scheme} key {id}, for sums of at most {} at {bits} bits",
            counted(count, "client")
        ),
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
    if key.ranges_secret().is_some() {
        let path = out.join(RANGES_KEY);
        let megabytes = std::fs::metadata(&path).map_err(at(&path))?.len() as f64 / 1e6;
        lines.push(format!(
            "{}  for the aggregator, which agrees on private ranges with it: {megabytes:.0} MB",
            path.display()
        ));
        value["ranges_key"] = shown(&path).into();
    }
    lines.push(format!("{}  for all of them: the limits of a round", job.display()));
    lines.push(
        "and node keys, with which serve and join authenticate each other on this machine".into(),
    );
    Ok((value, lines))
}
