//! `ciphergram encrypt`.

use ciphergram_he::{
    Encrypted, KeyRef,
    codec::{Policy, RangesFile},
};
use serde_json::json;

use crate::{
    args::Encrypt,
    engines::engine,
    failure::Failure,
    files,
    report::{clipped, per_value, per_value_words, report, warn},
};

pub(crate) fn run(args: &Encrypt) -> Result<(), Failure> {
    let key = files::read_key(&args.key)?;
    KeyRef::from(&key).check_encrypts().map_err(|e| e.within(args.key.display()))?;
    let update = files::read_update(&args.input)?;
    let here = |e: ciphergram_he::Error| e.within(args.input.display());
    let agreement = match files::settled(&args.weighting, &update)? {
        Some(agreement) => agreement,
        None => {
            warn(
                "no --ranges and no --clip: these ranges are this file's own, and only updates \
                  with the same ranges can be summed",
            );
            let weight = args.weighting.weight;
            RangesFile::measure(&update, Policy::Max, weight).map_err(here)?.agreement()?
        }
    };
    let (parameters, engine) = (key.public().parameters(), engine(args.place.engine));
    let Encrypted { contribution, clipped: outside } =
        ciphergram_he::encrypt(&key, engine, &update, &agreement, args.weighting.weight)
            .map_err(here)?;
    let names = agreement.specs().iter().map(|s| s.name.as_str());
    let (clipped, mut lines) = clipped(names, &outside);
    let values = agreement.values();
    files::write(&args.out, &contribution.to_bytes(key.public()))?;
    let bytes = contribution.stream.len();
    let value = json!({
        "out": args.out, "scheme": parameters.scheme().name(), "values": values,
        "ciphertext_bytes": bytes, "bytes_per_value": per_value(bytes, values),
        "clipped": clipped,
    });
    let words = per_value_words(bytes, values);
    lines.push(format!("{}: {values} values, {words}", args.out.display()));
    report(args.json, &value, &lines)
}
