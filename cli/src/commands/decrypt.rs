//! `ciphergram decrypt`.

use std::{fs::File, path::Path};

use ciphergram_he::{
    AnyKey, Destination, Error, KeyFile, Sum, Update, codec::Output, threshold::OpenAnswer,
};
use serde_json::json;

use crate::{
    args::DecryptArgs,
    cohorts::{self, Cohorts},
    commands::vectors,
    engines::engine,
    failure::Failure,
    files::{self, FileKind, named},
    progress::ProgressLine,
    report::{counted, kept, report, shown, warn_if_few},
};

/// Returns the mean, or the sum if it was asked for.
pub(crate) fn output(sum: bool) -> Output {
    if sum { Output::Sum } else { Output::Mean }
}

/// Returns the name of an output in reports.
pub(crate) fn output_name(sum: bool) -> &'static str {
    if sum { "weighted sum" } else { "weighted mean" }
}

/// Opens the template of a sum's mean, and checks that it has the same tensors.
fn template(path: &Path, sum: &Sum) -> Result<Update, Failure> {
    let template = Update::open_template(path, sum.agreement.specs())?;
    let checked = sum.agreement.check_layout(&template.specs());
    checked.map_err(|e| e.within(path.display()))?;
    Ok(template)
}

pub(crate) fn run(args: &DecryptArgs) -> Result<(), Failure> {
    let key = match files::read_any_key(&args.agreed.key.path)? {
        KeyFile::Levelled(key, _) => return vectors::decrypt(args, &key),
        KeyFile::Sums(key) => key,
    };
    if !matches!(key, AnyKey::Identity(..)) {
        key.secret().map_err(|e| e.within(args.agreed.key.path.display()))?;
    }
    let mut files = files::beside_key(key, &args.agreed, &args.used)?;
    let min_clients = args.opening.min_clients.unwrap_or(files.job.min_clients());
    files.job = files.job.requiring(min_clients);
    let member = files.decryptor(engine(args.place.engine))?;
    let key = member.key.public();
    let here = |e: Error| e.within(args.input.path.display());
    let progress =
        ProgressLine::new(args.report.json, format!("decrypting {}", args.input.path.display()));
    let sum = Sum::from_vec(files::read(&args.input.path)?, key).map_err(here)?;
    let answers = args.answers.iter().map(|path| {
        let read = files::read(path)?;
        Ok(OpenAnswer::from_bytes(&read, key).map_err(|e| e.within(path.display()))?)
    });
    let answers = answers.collect::<Result<Vec<_>, Failure>>()?;
    let template = args.template.as_ref().map(|path| template(path, &sum)).transpose()?;
    let inputs = [&args.input.path, &args.agreed.key.path].into_iter().chain(&args.agreed.job);
    let inputs: Vec<_> = inputs.chain(&args.template).map(Some).collect();
    let mut out = files::OutputFile::create(&args.out.path, FileKind::Tensors, &named(&inputs))?;
    let cohorts_out = cohorts::create(args.opening.cohorts.as_deref(), &named(&inputs))?;
    let chunks = sum.agreement.chunks(key.parameters()).count();
    let open = |file: &File| {
        let observe = &progress.counter(chunks.into());
        let to = Destination::File { file, template: template.as_ref(), observe };
        member.open_sum(&sum, &answers, output(args.opening.sum), to)
    };
    out.fill(open, |e| match e {
        // What the sum is read from is in memory.
        Error::Io { why } => Err(why),
        e => Ok(here(e).into()),
    })?;
    out.commit()?;
    let cohorts = Cohorts::of(&sum, key);
    cohorts_out.map_or(Ok(()), |out| cohorts.write(out))?;
    drop(progress);
    let fewest = sum.fewest_contributors();
    warn_if_few(fewest);
    let name = output_name(args.opening.sum);
    let (kept, kept_words) = kept(&template.unwrap_or_default());
    let value = json!({
        "out": shown(&args.out.path), "output": name, "round": sum.round, "contributors": sum.contributors.len(),
        "fewest_contributors": fewest, "values": sum.agreement.values(),
        "cohorts": cohorts.summary(), "kept": kept,
    });
    let line = format!(
        "{}: {name} of {}, {}",
        args.out.path.display(),
        cohorts.words(),
        counted(sum.agreement.specs().len(), "tensor")
    );
    report(args.report.json, &value, &kept_words.into_iter().chain([line]).collect::<Vec<_>>())
}
