//! `ciphergram encrypt`.

use ciphergram_he::{
    Agreement, Error, Job, KeyFile, Update,
    codec::{Policy, RangesFile, most_clipped},
};
use serde_json::json;

use crate::{
    args::EncryptArgs,
    commands::vectors,
    engines::engine,
    failure::Failure,
    files::{self, FileKind, OutputFile, named},
    progress::ProgressLine,
    report::{clipped, counted, kept, per_value, per_value_words, report, shown, warn},
};

pub(crate) fn run(args: &EncryptArgs) -> Result<(), Failure> {
    let key_path = &args.agreed.key.path;
    let file = match files::read_any_key(key_path)? {
        KeyFile::Levelled(key, _) => return vectors::encrypt(args, &key),
        KeyFile::Sums(key) => key,
    };
    vectors::refuse(&args.vector.given(), "sums")?;
    let files = files::beside_key(file, &args.agreed, &args.used)?;
    let member = files::member(&files, args.client.number, engine(args.place.engine))?;
    let (key, job) = (member.key, member.job);
    let progress =
        ProgressLine::new(args.report.json, format!("encrypting {}", args.input.path.display()));
    let (update, clipped_first) =
        files::read_clipped(&args.input.path, args.integers.policy, args.weighting.clip)?;
    let here = |e: Error| e.within(args.input.path.display());
    let agreement = agreement(args, job, &update)?;
    let inputs =
        [Some(&args.input.path), Some(key_path), args.agreed.job.as_ref(), args.ranges.as_ref()];
    let mut out = OutputFile::create(&args.out.path, FileKind::Contribution, &named(&inputs))?;
    let parameters = key.public().parameters();
    // A full disk is found before the work.
    let total_bytes = agreement.chunks(parameters).total_bytes() as u64;
    out.reserve(total_bytes)?;
    // Through a pipe bytes leave while they are written: the round is used before the first of them.
    let (leaves, weight) = (out.is_stream(), args.weighting.weight);
    let sealed = if leaves {
        member.seal(&update, weight, &agreement, args.round)
    } else {
        member.prepare(&update, weight, &agreement, args.round)
    };
    let sealer = sealed.map_err(here)?;
    let (round, outside) = (sealer.round(), sealer.clipped().to_vec());
    let written = sealer.write_to(&mut progress.count(&mut out, total_bytes));
    let bytes = written.map_err(|e| match e {
        // Of the output, which it names.
        Error::Io { why } => Failure::Work(why),
        e => here(e).into(),
    })?;
    out.commit_after(|| if leaves { Ok(()) } else { Ok(member.enter(round)?) })?;
    drop(progress);
    let outside = most_clipped(&clipped_first, &outside);
    let names = agreement.specs().iter().map(|s| s.name.as_str());
    let (clipped, mut lines) = clipped(names, &outside);
    let values = agreement.values();
    let (kept, kept_words) = kept(&update);
    let value = json!({
        "out": shown(&args.out.path), "client": key.number(), "round": round, "scheme": parameters.scheme().name(), "values": values,
        "ciphertext_bytes": bytes, "bytes_per_value": per_value(bytes, values),
        "clipped": clipped, "kept": kept,
    });
    lines.extend(kept_words);
    let words = per_value_words(bytes, values);
    let values = counted(values, "value");
    lines.push(format!("{}: round {round}, {values}, {words}", args.out.path.display()));
    report(args.report.json, &value, &lines)
}

/// Returns the ranges file's agreement, or the job's, or else one of the file's own ranges.
fn agreement(args: &EncryptArgs, job: &Job, update: &Update) -> Result<Agreement, Failure> {
    if let Some(path) = &args.ranges {
        let shared = files::read_ranges(path)?.agreement();
        let shared = shared.and_then(|shared| job.at_precision(&shared));
        return Ok(shared.map_err(|e| e.within(path.display()))?);
    }
    if job.private_ranges().is_ok() {
        let text = "the job agrees on private ranges: give --ranges, the file that `ciphergram ranges --open` wrote";
        return Err(Failure::Misuse(text.into()));
    }
    let here = |e: ciphergram_he::Error| e.within(args.input.path.display());
    let own = RangesFile::measure(update, Policy::Max, args.weighting.weight).map_err(here)?;
    let settled = job.settle(&own.agreement()?).map_err(here)?;
    if !job.settles_ranges() {
        warn(
            "no --ranges, and the job has none: these ranges are this file's own, and only updates with the \
             same ranges can be summed",
        );
    }
    Ok(settled)
}
