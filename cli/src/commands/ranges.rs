//! `ciphergram ranges`.

use std::{path::Path, time::Instant};

use ciphergram_he::{
    AgreedRanges, Error, Job, PublicKey, RangesProposal, codec::RangesFile, keys::beside,
    private_ranges::RangesEvaluationKey,
};
use serde_json::{Value, json};

use crate::{
    args::{Agreed, KeyArg, RangesArgs},
    failure::Failure,
    files::{self, FileKind, OutputFile, named},
    progress::ProgressLine,
    report::{counted, kept, report, shown},
};

pub(crate) fn run(args: &RangesArgs) -> Result<(), Failure> {
    let inputs = args.inputs.iter().chain(&args.key).chain(&args.job).map(Some);
    let inputs: Vec<_> = inputs.collect();
    let kind = match (&args.key, args.agree, args.merge) {
        (Some(_), true, _) => FileKind::RangesProposal,
        (Some(_), _, true) => FileKind::AgreedRanges,
        (Some(_), _, _) if !args.open => {
            let text = "--key is for private ranges: say --agree, --merge or --open";
            return Err(Failure::Misuse(text.into()));
        }
        _ => FileKind::Ranges,
    };
    let mut out = OutputFile::create(&args.out.path, kind, &named(&inputs))?;
    let progress = ProgressLine::new(args.report.json, "reading tensors");
    let found = match &args.key {
        None if args.merge => in_clear(args, &merge(args)?, (json!([]), None))?,
        None => measure(args)?,
        Some(key) if args.agree => propose(args, key)?,
        Some(key) if args.merge => agree(args, key, &progress)?,
        Some(key) => open(args, key)?,
    };
    drop(progress);
    out.put(&found.bytes)?;
    out.commit()?;
    report(args.report.json, &found.json, &found.lines)
}

/// The bytes of the file, and the report.
struct Found {
    bytes: Vec<u8>,
    json: Value,
    lines: Vec<String>,
}

/// Returns a ranges file, and what is kept out of it, for JSON and for people.
fn in_clear(
    args: &RangesArgs,
    ranges: &RangesFile,
    (kept, kept_words): (Value, Option<String>),
) -> Result<Found, Failure> {
    let text = ranges.to_json()?;
    let agreement = ranges.agreement()?;
    let lines = kept_words.into_iter().chain([format!(
        "{}: ranges of {}, {}, largest weight {}",
        args.out.path.display(),
        counted(agreement.specs().len(), "tensor"),
        counted(agreement.values(), "value"),
        agreement.max_weight()
    )]);
    let content: Value = serde_json::from_str(&text)?;
    let json = json!({"out": shown(&args.out.path), "ranges": content, "kept": kept});
    Ok(Found { bytes: format!("{text}\n").into_bytes(), json, lines: lines.collect() })
}

/// Returns the one input of a command that takes `what`.
fn only<'a>(args: &'a RangesArgs, what: &str) -> Result<&'a Path, Failure> {
    match &args.inputs[..] {
        [input] => Ok(input),
        _ => Err(Failure::Misuse(format!("ranges takes {what}"))),
    }
}

fn measure(args: &RangesArgs) -> Result<Found, Failure> {
    let input = only(args, "one safetensors file, or ranges files with --merge")?;
    let update = files::read_update(input, args.integers.policy)?;
    let measured = RangesFile::measure(&update, args.policy, args.weight.unwrap_or(1));
    in_clear(args, &measured.map_err(|e| e.within(input.display()))?, kept(&update))
}

fn merge(args: &RangesArgs) -> Result<RangesFile, Failure> {
    let mut merged: Option<RangesFile> = None;
    for path in &args.inputs {
        let next = files::read_ranges(path)?;
        let all: Vec<_> = merged.into_iter().chain([next]).collect();
        merged = Some(RangesFile::merge(&all).map_err(|e| e.within(path.display()))?);
    }
    merged.ok_or_else(|| Failure::Misuse("nothing to merge".into()))
}

/// Reads the job of private ranges.
fn read_job(args: &RangesArgs, path: &Path, key: &PublicKey) -> Result<Job, Failure> {
    let agreed = Agreed { key: KeyArg { path: path.into() }, job: args.job.clone() };
    files::read_job(&agreed, key)
}

/// Names the file that an error is of: the key's, if it has no secret of ranges, else the one that was read.
fn within(error: Error, key: &Path, input: &Path) -> Error {
    let path = if error == Error::NoRangesSecret { key } else { input };
    error.within(path.display())
}

fn propose(args: &RangesArgs, path: &Path) -> Result<Found, Failure> {
    let input = only(args, "one safetensors file with --agree")?;
    let key = files::read_key(path)?;
    let client = key.as_client(args.client).map_err(|e| e.within(path.display()))?;
    let job = read_job(args, path, key.public())?;
    let update = files::read_update(input, args.integers.policy)?;
    let proposal = RangesProposal::new(client, &job, &update, args.policy);
    let proposal = proposal.map_err(|e| within(e, path, input))?;
    let bytes = proposal.to_bytes(key.public());
    let (tensors, levels, number) = (proposal.specs().len(), proposal.levels(), proposal.number());
    let (kept, kept_words) = kept(&update);
    let lines = kept_words.into_iter().chain([format!(
        "{}: proposal of client {number}, {} in {}, encrypted; {} bytes",
        args.out.path.display(),
        counted(tensors, "range"),
        counted(levels, "level"),
        bytes.len()
    )]);
    let lines = lines.collect();
    let json = json!({
        "out": shown(&args.out.path), "client": number, "tensors": tensors, "levels": levels,
        "bytes": bytes.len(), "kept": kept,
    });
    Ok(Found { bytes, json, lines })
}

fn agree(args: &RangesArgs, path: &Path, progress: &ProgressLine) -> Result<Found, Failure> {
    let key = PublicKey::load(&beside(path, "public.json"))?;
    let job = read_job(args, path, &key)?;
    let read = |path: &std::path::PathBuf| {
        let proposal = RangesProposal::from_bytes(&files::read(path)?, &key);
        let checked = proposal.and_then(|proposal| proposal.check(&job).map(|()| proposal));
        checked.map_err(|e| Failure::from(e.within(path.display())))
    };
    let proposals = args.inputs.iter().map(read).collect::<Result<Vec<_>, _>>()?;
    progress.say("opening the evaluation key");
    let evaluation = RangesEvaluationKey::load(path, &key)?;
    let tensors = proposals.first().map_or(0, |proposal| proposal.specs().len());
    let levels = job.private_ranges()?.total_levels(tensors);
    progress.say("comparing encrypted ranges");
    let clock = Instant::now();
    let counter = progress.counter(levels as u64);
    let agreed = AgreedRanges::find(&evaluation, &job, &proposals, &counter)?;
    let seconds = clock.elapsed().as_secs_f64();
    let bytes = agreed.to_bytes(&key);
    let (clients, tensors) = (proposals.len(), agreed.specs().len());
    let lines = vec![format!(
        "{}: ranges of {}, agreed by {}, encrypted; {} bytes, {seconds:.1} s",
        args.out.path.display(),
        counted(tensors, "tensor"),
        counted(clients, "client"),
        bytes.len()
    )];
    let json = json!({
        "out": shown(&args.out.path), "clients": clients, "tensors": tensors, "bytes": bytes.len(),
        "seconds": seconds,
    });
    Ok(Found { bytes, json, lines })
}

fn open(args: &RangesArgs, path: &Path) -> Result<Found, Failure> {
    let input = only(args, "one file of agreed ranges with --open")?;
    let key = files::read_key(path)?;
    let job = read_job(args, path, key.public())?;
    let agreed = AgreedRanges::from_bytes(&files::read(input)?, key.public());
    let agreement = agreed.and_then(|agreed| agreed.open(key.ranges_secret(), &job));
    let agreement = agreement.map_err(|e| within(e, path, input))?;
    in_clear(args, &RangesFile::from_agreement(&agreement), (json!([]), None))
}
