//! `ciphergram aggregate`.

use ciphergram_accel::CpuEngine;
use ciphergram_he::{Contribution, Error, KeyFile, Summing, keys::write_new};
use serde_json::json;

use crate::{
    args::AggregateArgs,
    commands::vectors,
    engines::engine,
    failure::Failure,
    files::{self, FileKind, OutputFile, named},
    progress::ProgressLine,
    report::{counted, per_value_words, report, shown, warn_if_few},
};

pub(crate) fn run(args: &AggregateArgs) -> Result<(), Failure> {
    let path = &args.agreed.key.path;
    let here = |e: Error| e.within(path.display());
    if args.weights.is_some() {
        return vectors::aggregate(args, vectors::read_evaluation(path, &CpuEngine::new())?);
    }
    let key = match files::read_any_key(path)? {
        KeyFile::Levelled(key, _) => {
            return vectors::aggregate(args, vectors::keys_of_sums(&key).map_err(here)?);
        }
        KeyFile::Sums(key) => key.into_public().map_err(here)?,
    };
    let job = files::read_job(&args.agreed, &key)?;
    let admitted = key.parameters().clients() as usize;
    if args.inputs.len() > admitted {
        let error = Error::TooManyContributors { found: args.inputs.len(), admitted };
        return Err(here(error).into());
    }
    if job.openers().is_ok() != args.requests.is_some() {
        let text = "--requests is for jobs with openers, who open no sum without";
        return Err(Failure::Misuse(text.into()));
    }
    let read = [Some(&args.agreed.key.path), args.agreed.job.as_ref()];
    let read = args.inputs.iter().map(Some).chain(read).collect::<Vec<_>>();
    let mut out = OutputFile::create(&args.out.path, FileKind::Sum, &named(&read))?;
    let progress = ProgressLine::new(args.report.json, "");
    let contributions = args.inputs.iter().zip(0..).map(|(path, done)| {
        progress.say(format!("adding {}", path.display()));
        progress.at(done, args.inputs.len() as u64);
        let bytes = std::fs::read(path).map_err(Error::from);
        (path.display(), bytes.and_then(|bytes| Contribution::from_vec(bytes, &key)))
    });
    let summing = Summing::of(&key, &job, engine(args.place.engine), contributions)?;
    let requests = summing.requests();
    let sum = summing.finish()?;
    let (head, stream, digest) = sum.to_parts(&key);
    [&head[..], stream, &digest].into_iter().try_for_each(|part| out.put(part))?;
    if let Some(folder) = &args.requests {
        files::fill(folder, |folder| {
            requests.iter().try_for_each(|request| {
                let path = folder.join(format!("{}.request", request.opener));
                Ok(write_new(&path, &request.to_bytes(&key), 0o644)?)
            })
        })?;
    }
    out.commit()?;
    drop(progress);
    let (contributors, values) = (sum.contributors.len(), sum.agreement.values());
    warn_if_few(contributors);
    let value = json!({
        "out": shown(&args.out.path), "round": sum.round, "contributors": contributors, "values": values,
        "ciphertext_bytes": sum.stream.len(),
    });
    let words = per_value_words(sum.stream.len(), values);
    let (out, round) = (args.out.path.display(), sum.round);
    let values = counted(values, "value");
    let line = format!("{out}: sum of {contributors} of round {round}, {values}, {words}");
    report(args.report.json, &value, &[line])
}
