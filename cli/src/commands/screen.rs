//! `ciphergram vectors screen` and `ciphergram vectors scores`.

use ciphergram_accel::CpuEngine;
use ciphergram_he::{
    Error, KeyFile,
    ckks::Evaluator,
    vectors::{self, Limits, Scores as Found},
};
use serde_json::json;

use super::vectors::{read, read_evaluation, write};
use crate::{
    args::{ScoresArgs, ScreenArgs},
    engines::engine,
    failure::Failure,
    files::{self, FileKind, OutputFile, named},
    progress::ProgressLine,
    report::{counted, report, shown, warn},
};

pub(crate) fn run(args: &ScreenArgs) -> Result<(), Failure> {
    let engine = engine(args.place.engine);
    let read_too = [Some(&args.key.path), args.against.as_ref()];
    let inputs: Vec<_> = args.inputs.iter().map(Some).chain(read_too).collect();
    let out = OutputFile::create(&args.out.path, FileKind::Vector, &named(&inputs))?;
    let progress = ProgressLine::new(args.report.json, "reading keys");
    let evaluator = Evaluator::new(read_evaluation(&args.key.path, &*engine)?, &*engine);
    let against = args.against.as_ref().map(|path| read(path, &*engine)).transpose()?;
    let given = args.inputs.iter().zip(0..).map(|(path, done)| {
        progress.say(format!("screening {}", path.display()));
        progress.at(done, args.inputs.len() as u64);
        read(path, &*engine)
    });
    let against = against.as_ref().map(|(_, vector)| vector);
    let found = vectors::screen(&evaluator, against, given)?;
    let bytes = write(&found, out)?;
    drop(progress);
    let updates = found.sources().len();
    let value = json!({
        "out": shown(&args.out.path), "updates": updates, "against": args.against.as_deref().map(shown),
        "ciphertext_bytes": bytes,
    });
    let what = if args.against.is_some() { "norms and products" } else { "norms" };
    let line =
        format!("{}: {what} of {}, encrypted", args.out.path.display(), counted(updates, "update"));
    report(args.report.json, &value, &[line])
}

pub(crate) fn scores(args: &ScoresArgs) -> Result<(), Failure> {
    let engine = CpuEngine::new();
    let KeyFile::Levelled(key, _) = files::read_any_key(&args.key.path)? else {
        let needed = "scores are under a key of keygen --scheme ckks-4096x2";
        return Err(Error::KeyKind { found: "sum", needed }.within(args.key.path.display()).into());
    };
    let secret = key.secret().map_err(|e| e.within(args.key.path.display()))?;
    let out = OutputFile::create(
        &args.out.path,
        FileKind::Vector,
        &named(&[Some(&args.input.path), Some(&args.key.path)]),
    )?;
    let (_, vector) = read(&args.input.path, &engine)?;
    let here = |e: Error| e.within(args.input.path.display());
    let found = Found::decrypt(&vector, secret, &engine).map_err(here)?;
    let limits = Limits { max_norm: args.max_norm, min_cosine: args.min_cosine };
    let shares = found.shares(limits).map_err(here)?;
    write(&found.encrypt_weights(&key, &shares, &engine)?, out)?;
    if shares.iter().all(|&share| share == 0.0) {
        warn("these limits leave no update: the sum under these weights is zero");
    }
    let rows = || found.each().zip(&shares);
    let updates: Vec<_> = rows()
        .map(|((name, score), share)| {
            json!({ "name": name, "norm": score.norm, "cosine": score.cosine, "share": share })
        })
        .collect();
    let value = json!({ "out": shown(&args.out.path), "updates": updates });
    let mut lines: Vec<_> = rows()
        .map(|((name, score), share)| {
            let cosine =
                score.cosine.map_or(String::new(), |cosine| format!(", cosine {cosine:+.3}"));
            format!("{name}: norm {:.4}{cosine}: counts {share:.3}", score.norm)
        })
        .collect();
    lines.push(format!(
        "{}: weights of {}, encrypted",
        args.out.path.display(),
        counted(updates.len(), "update")
    ));
    report(args.report.json, &value, &lines)
}
