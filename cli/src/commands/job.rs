//! `ciphergram job`.

use std::{path::PathBuf, sync::Arc};

use ciphergram_he::{
    AnyKey, Error, Job, Limits,
    job::{AllowedNode, Budget, NoiseLimits, PrivateRanges, SettledTensor},
    private_ranges::{RangesSecret, Rank},
    threshold::{MAX_OPENERS, OpenerId, Openers, Quorum},
};
use ciphergram_nic::federation::nodes::read_allowed;
use serde_json::{Value, json};

use crate::{
    args::{JobArgs, JobRanges},
    failure::Failure,
    files,
    report::{self, counted, report, shown},
};

pub(crate) fn run(args: &JobArgs) -> Result<(), Failure> {
    let key = files::read_key(&args.key.path)?;
    key.public().check_sums().map_err(|e| e.within(args.key.path.display()))?;
    let defaults = Limits::of_key(key.public());
    let openers = openers(args)?;
    let members = openers.as_ref().map(|openers| openers.members().len() as u16);
    let clients = args.clients.count.or(members).unwrap_or(defaults.clients);
    let mut max_weight = args.max_weight;
    let (mut tensors, mut kept) = (None, None);
    let settled = match &args.ranges {
        Some(JobRanges::Settled(path)) => Some(path),
        Some(JobRanges::Agreed(_)) | None => None,
    };
    if settled.is_some() && args.layout.is_some() {
        let text = "--layout settles tensors, and so does a file of --ranges: choose one";
        return Err(Failure::Misuse(text.into()));
    }
    if let Some(path) = settled {
        let agreement =
            files::read_ranges(path)?.agreement().map_err(|e| e.within(path.display()))?;
        max_weight = max_weight.or(Some(agreement.max_weight()));
        let each = agreement.specs().iter().zip(agreement.ranges());
        let settled =
            each.map(|(spec, &range)| SettledTensor { spec: spec.clone(), range: Some(range) });
        tensors = Some(settled.collect());
    } else if let Some(path) = &args.layout {
        let update = files::read_update(path, args.integers.policy)?;
        kept = report::kept(&update).1;
        let specs = update.specs();
        tensors = Some(specs.into_iter().map(|spec| SettledTensor { spec, range: None }).collect());
    }
    let allow =
        args.clients.allow.as_ref().map(|path| read_allowed(path)).transpose()?.map(|allowed| {
            let node = |(node, client): (_, _)| AllowedNode { node: format!("{node}"), client };
            allowed.into_iter().map(|(id, client)| node((id, client))).collect()
        });
    let budget = args.dp_epsilon.zip(args.dp_rounds).map(|(epsilon, rounds)| Budget {
        epsilon,
        delta: args.dp_delta,
        rounds,
    });
    let noise = args.dp_sigma.zip(args.dp_clip);
    let noise = noise.map(|(sigma, clip)| NoiseLimits { sigma, clip, budget });
    let private_ranges = private_ranges(args, &key, clients)?;
    let defaults = defaults.of_clients(clients, args.clients.min_clients);
    let limits = Limits {
        colluders: args.colluders.or(defaults.colluders),
        tensors,
        noise,
        allow,
        private_ranges,
        bits: args.bits.clone(),
        openers,
        ..defaults
    };
    let limits = limits.up_to(max_weight, args.max_range)?;
    let job = Job::new(key.public(), limits)?;
    job.save(&args.out.path)?;
    let (id, limits) = (job.id().to_string(), job.limits());
    let mut lines = vec![
        format!("{}: job {id} of {}", args.out.path.display(), counted(limits.clients, "client")),
        format!(
            "sums of {} or more, of whom {} may collude, weights up to {}, ranges up to {}",
            limits.min_clients,
            limits.colluders.unwrap_or(0),
            limits.max_weight,
            limits.max_range
        ),
    ];
    lines.extend(job.openers().ok().map(|openers| quorum_words(openers.quorum())));
    if let Ok(PrivateRanges { rank, levels, agree_every, clip_norm, .. }) = job.private_ranges() {
        let of = |rank: &Rank| match rank {
            Rank::Largest(k) => format!("of rank {k}, the largest being 1"),
            Rank::Median => "the median".into(),
        };
        lines.push(format!("ranges are agreed in private, in {levels} levels: {}", of(rank)));
        if *agree_every > 1 {
            lines.push(format!("they hold for {agree_every} rounds"));
        }
        if let Some(rank) = clip_norm {
            lines.push(format!("updates are clipped to an agreed norm: {}", of(rank)));
        }
    }
    if let Some(noise) = job.noise() {
        lines
            .push(format!("one range of {} for all tensors, and noise in each sum", noise.range()));
    }
    if let Some(Budget { epsilon, delta, rounds }) = budget {
        lines.push(format!(
            "{} in all, within an epsilon of {epsilon} at a delta of {delta}",
            counted(rounds, "round")
        ));
    }
    lines.extend(kept);
    let content: Value = serde_json::from_str(&job.to_json()?)?;
    report(
        args.report.json,
        &json!({"out": shown(&args.out.path), "id": id, "job": content}),
        &lines,
    )
}

/// Returns who opens sums, if openers do.
fn openers(args: &JobArgs) -> Result<Option<Arc<Openers>>, Failure> {
    if args.members.is_empty() {
        return Ok(None);
    }
    let load = |paths: &[PathBuf]| {
        paths.iter().map(|path| OpenerId::load(path)).collect::<Result<Vec<_>, _>>()
    };
    let members = load(&args.members)?;
    let openers = match &args.openers[..] {
        [] => members.iter().take(MAX_OPENERS).cloned().collect(),
        named => load(named)?,
    };
    let quorum = Quorum::new(openers.len(), args.open)?;
    let members = members.into_iter().map(|member| member.id).collect();
    Ok(Some(Arc::new(Openers::new(quorum, openers, members)?)))
}

/// Says what the openers of a job come to.
pub(crate) fn quorum_words(quorum: Quorum) -> String {
    let Quorum { openers, open, faulty } = quorum;
    format!(
        "any {open} of {openers} openers open a sum: {} may be silent, and up to {faulty} together learn \
         nothing",
        quorum.silent()
    )
}

/// Returns how ranges are agreed on, if they are: by the secret in a client's key.
fn private_ranges(
    args: &JobArgs,
    key: &AnyKey,
    clients: u16,
) -> Result<Option<PrivateRanges>, Failure> {
    let Some(JobRanges::Agreed(rank)) = args.ranges else {
        let alone = [
            ("--levels", args.levels.is_some()),
            ("--agree-every", args.agree_every.is_some()),
            ("--clip-norm", args.clip_norm.is_some()),
        ];
        return match alone.into_iter().find(|(_, is_given)| *is_given) {
            Some((option, _)) => Err(Failure::Misuse(format!("{option} is for --ranges agree"))),
            None => Ok(None),
        };
    };
    let secret = match key {
        AnyKey::Public(_) => Err(Error::KeyKind {
            found: "public",
            needed: "a job that agrees on private ranges names their secret: give it keys/secret.json",
        }),
        private => private.ranges_secret().ok_or(Error::NoRangesSecret),
    };
    let key = secret.map(RangesSecret::id).map_err(|e| e.within(args.key.path.display()))?;
    let usual = PrivateRanges::new(rank.unwrap_or(Rank::usual(clients)), key);
    Ok(Some(PrivateRanges {
        levels: args.levels.unwrap_or(usual.levels),
        agree_every: args.agree_every.unwrap_or(usual.agree_every),
        clip_norm: args.clip_norm,
        ..usual
    }))
}
