//! `ciphergram decrypt`.

use ciphergram_he::{Ledger, Sum, codec::Output, decrypt};
use serde_json::json;

use crate::{
    args::Decrypt,
    cohorts::{self, Cohorts},
    engines::engine,
    failure::Failure,
    files::{self, Kind, named},
    progress::Progress,
    report::{report, shown, warn_if_few},
};

/// Returns the mean, or the sum if it was asked for.
pub(crate) fn output(sum: bool) -> Output {
    if sum { Output::Sum } else { Output::Mean }
}

/// Returns the name of an output in reports.
pub(crate) fn output_name(sum: bool) -> &'static str {
    if sum { "weighted sum" } else { "weighted mean" }
}

pub(crate) fn run(args: &Decrypt) -> Result<(), Failure> {
    let key = files::read_secret(&args.agreed.key)?;
    let job = files::read_job(&args.agreed, key.public())?;
    let min_clients = args.min_clients.unwrap_or(job.min_clients());
    let job = job.requiring(min_clients);
    let here = |e: ciphergram_he::Error| e.within(args.input.display());
    let progress = Progress::new(args.json, format!("decrypting {}", args.input.display()));
    let sum = Sum::from_bytes(&files::read(&args.input)?, key.public()).map_err(here)?;
    let inputs = [Some(&args.input), Some(&args.agreed.key), args.agreed.job.as_ref()];
    let mut out = files::Output::create(&args.out, Kind::Tensors, &named(&inputs))?;
    let cohorts_out = cohorts::create(args.cohorts.as_deref(), &named(&inputs))?;
    let engine = engine(args.place.engine);
    let open = || decrypt(&key, &*engine, &sum, &job, output(args.sum));
    let ledger = Ledger::beside(&args.agreed.key);
    let update = ledger.open(key.public(), &job, &sum, open).map_err(here)?;
    out.put(&update.to_safetensors()?)?;
    out.commit()?;
    let cohorts = Cohorts::of(&sum, key.public());
    cohorts_out.map_or(Ok(()), |out| cohorts.write(out))?;
    drop(progress);
    let fewest = sum.fewest_contributors();
    warn_if_few(fewest);
    let name = output_name(args.sum);
    let value = json!({
        "out": shown(&args.out), "output": name, "round": sum.round, "contributors": sum.contributors.len(),
        "fewest_contributors": fewest, "values": sum.agreement.values(),
        "cohorts": cohorts.summary(),
    });
    let line = format!(
        "{}: {name} of {}, {} tensors",
        args.out.display(),
        cohorts.words(),
        update.tensors().len()
    );
    report(args.json, &value, &[line])
}
