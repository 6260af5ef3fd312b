//! `ciphergram join`.

use std::{ffi::OsString, path::PathBuf};

use ciphergram_he::{Error, codec::RangesFile};
use ciphergram_nic::federation::{self, Client, Participation};
use serde_json::{Value, json};

use super::{
    decrypt::{output, output_name},
    engine,
};
use crate::{
    args::Join,
    failure::Failure,
    files,
    report::{clipped, per_value, report, warn_if_few},
};

pub(crate) fn run(args: &Join) -> Result<(), Failure> {
    let key = files::read_secret(&args.key)?;
    let update = files::read_update(&args.input)?;
    let spool = args.spool.clone().unwrap_or_else(|| {
        let mut name = OsString::from(&args.out);
        name.push(".spool");
        PathBuf::from(name)
    });
    let job = Participation {
        key: &key,
        engine: engine(),
        update: &update,
        weight: args.weighting.weight,
        agreement: files::settled(&args.weighting, &update)?,
        spool: Some(&spool),
        min_clients: args.min_clients,
        patience: args.wait,
    };
    let mut client = Client::new(args.server, args.client)?;
    let result = client.contribute(&job);
    client.leave()?;
    let round = result.map_err(|e| match e {
        federation::Error::Scheme(
            e @ (Error::NotFinite { .. } | Error::Weight { .. } | Error::Layout { .. }),
        ) => e.within(args.input.display()).into(),
        e => Failure::from(e),
    })?;
    let decoded = round.opened.decode(&round.sum, output(args.sum))?;
    files::write(&args.out, &decoded.to_safetensors()?)?;

    let (contributors, fewest) = (round.sum.contributors.len(), round.sum.fewest_contributors());
    warn_if_few(fewest);
    let (values, bytes) = (round.sum.agreement.values(), round.sum.stream.len());
    let names = round.sum.agreement.specs().iter().map(|s| s.name.as_str());
    let (clipped, mut lines) = clipped(names, &round.clipped);
    let name = output_name(args.sum);
    let ranges: Value =
        serde_json::from_str(&RangesFile::from_agreement(&round.sum.agreement).to_json()?)?;
    let value = json!({
        "out": args.out, "output": name, "round": round.opening.round,
        "contributors": contributors, "fewest_contributors": fewest, "values": values,
        "bytes_per_value_up": per_value(bytes, values),
        "bytes_per_value_down": per_value(bytes, values),
        "clipped": clipped, "ranges": ranges,
        "encrypting_s": round.encrypting.as_secs_f64(),
        "exchanging_s": round.exchanging.as_secs_f64(),
        "decrypting_s": round.decrypting.as_secs_f64(),
        "retransmitted": round.stats.retransmitted,
    });
    lines.push(format!(
        "{}: {name} of round {} over {contributors} contributors{}",
        args.out.display(),
        round.opening.round,
        if fewest < contributors { format!(", {fewest} for some values") } else { String::new() }
    ));
    report(args.json, &value, &lines)
}
