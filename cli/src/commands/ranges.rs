//! `ciphergram ranges`.

use ciphergram_he::codec::RangesFile;
use serde_json::{Value, json};

use crate::{
    args::Ranges,
    failure::Failure,
    files::{self, Kind, Output, named},
    progress::Progress,
    report::{report, shown},
};

pub(crate) fn run(args: &Ranges) -> Result<(), Failure> {
    let inputs = args.inputs.iter().map(Some).collect::<Vec<_>>();
    let mut out = Output::create(&args.out, Kind::Ranges, &named(&inputs))?;
    let progress = Progress::new(args.json, "reading tensors");
    let ranges = if args.merge { merge(args)? } else { measure(args)? };
    drop(progress);
    let text = ranges.to_json()?;
    out.put(format!("{text}\n").as_bytes())?;
    out.commit()?;
    let agreement = ranges.agreement()?;
    let lines = [format!(
        "{}: ranges of {} tensors, {} values, largest weight {}",
        args.out.display(),
        agreement.specs().len(),
        agreement.values(),
        agreement.max_weight()
    )];
    let content: Value = serde_json::from_str(&text)?;
    report(args.json, &json!({"out": shown(&args.out), "ranges": content}), &lines)
}

fn measure(args: &Ranges) -> Result<RangesFile, Failure> {
    let [input] = &args.inputs[..] else {
        let text = "ranges takes one safetensors file, or ranges files with --merge";
        return Err(Failure::Misuse(text.into()));
    };
    let update = files::read_update(input)?;
    let policy = args.policy.at_bits(args.bits);
    let measured = RangesFile::measure(&update, policy, args.weight.unwrap_or(1));
    measured.map_err(|e| e.within(input.display()).into())
}

fn merge(args: &Ranges) -> Result<RangesFile, Failure> {
    let mut merged: Option<RangesFile> = None;
    for path in &args.inputs {
        let next = files::read_ranges(path)?;
        let all: Vec<_> = merged.into_iter().chain([next]).collect();
        merged = Some(RangesFile::merge(&all).map_err(|e| e.within(path.display()))?);
    }
    merged.ok_or_else(|| Failure::Misuse("nothing to merge".into()))
}
