//! `ciphergram decrypt`.

use ciphergram_he::{Sum, codec::Output, decrypt};
use serde_json::json;

use crate::{
    args::Decrypt,
    engines::engine,
    failure::Failure,
    files,
    report::{report, warn_if_few},
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
    let key = files::read_secret(&args.key)?;
    let here = |e: ciphergram_he::Error| e.within(args.input.display());
    let sum = Sum::from_bytes(&files::read(&args.input)?, key.public()).map_err(here)?;
    let update =
        decrypt(&key, &*engine(args.place.engine), &sum, output(args.sum)).map_err(here)?;
    files::write(&args.out, &update.to_safetensors()?)?;
    let fewest = sum.fewest_contributors();
    warn_if_few(fewest);
    let name = output_name(args.sum);
    let value = json!({
        "out": args.out, "output": name, "contributors": sum.contributors.len(),
        "fewest_contributors": fewest, "values": sum.agreement.values(),
    });
    let line = format!(
        "{}: {name} of {} contributors, {} tensors",
        args.out.display(),
        sum.most_contributors(),
        update.tensors().len()
    );
    report(args.json, &value, &[line])
}
