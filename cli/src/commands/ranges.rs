//! `ciphergram ranges`.

use ciphergram_he::codec::RangesFile;
use serde_json::{Value, json};

use crate::{
    args::Ranges,
    failure::Failure,
    files::{self, Kind, Output, named},
    progress::Progress,
    report::{kept, report, shown},
};

pub(crate) fn run(args: &Ranges) -> Result<(), Failure> {
    let inputs = args.inputs.iter().map(Some).collect::<Vec<_>>();
    let mut out = Output::create(&args.out, Kind::Ranges, &named(&inputs))?;
    let progress = Progress::new(args.json, "reading tensors");
    let (ranges, (kept, kept_words)) =
        if args.merge { (merge(args)?, (json!([]), None)) } else { measure(args)? };
    drop(progress);
    let text = ranges.to_json()?;
    out.put(format!("{text}\n").as_bytes())?;
    out.commit()?;
    let agreement = ranges.agreement()?;
    let lines = kept_words.into_iter().chain([format!(
        "{}: ranges of {} tensors, {} values, largest weight {}",
        args.out.display(),
        agreement.specs().len(),
        agreement.values(),
        agreement.max_weight()
    )]);
    let lines: Vec<_> = lines.collect();
    let content: Value = serde_json::from_str(&text)?;
    report(args.json, &json!({"out": shown(&args.out), "ranges": content, "kept": kept}), &lines)
}

/// A ranges file, and what is kept out of it, for JSON and for people.
type Measured = (RangesFile, (Value, Option<String>));

fn measure(args: &Ranges) -> Result<Measured, Failure> {
    let [input] = &args.inputs[..] else {
        let text = "ranges takes one safetensors file, or ranges files with --merge";
        return Err(Failure::Misuse(text.into()));
    };
    let update = files::read_update(input, args.integers.policy())?;
    let policy = args.policy.at_bits(args.bits);
    let measured = RangesFile::measure(&update, policy, args.weight.unwrap_or(1));
    Ok((measured.map_err(|e| e.within(input.display()))?, kept(&update)))
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
