//! `ciphergram join`.

use std::{ffi::OsString, path::PathBuf};

use ciphergram_he::{Error, KeyRef, Ledger, codec::RangesFile};
use ciphergram_nic::{
    federation::{self, Client, Participation},
    proto::path::MAX_PATHS,
    wire::UdpWire,
};
use serde_json::{Value, json};

use super::decrypt::{output, output_name};
use crate::{
    args::{Join, PathConfig, Wire},
    engines::engine,
    failure::Failure,
    files::{self, Kind, named},
    nodes,
    report::{clipped, per_value, report, shown, warn_if_few},
    signals,
};

pub(crate) fn run(args: &Join) -> Result<(), Failure> {
    let file = files::read_key(&args.agreed.key)?;
    let key = file.as_client(args.client).map_err(|e| e.within(args.agreed.key.display()))?;
    if let (KeyRef::Client(_), true) = (key, args.sum) {
        let text = "--sum needs a secret key: with a client's the sum is written encrypted";
        return Err(Failure::Misuse(text.into()));
    }
    let job = files::read_job_of(&args.agreed, key)?;
    let min_clients = args.min_clients.unwrap_or(job.min_clients());
    let job = job.requiring(min_clients);
    let ledger = Ledger::beside(&args.agreed.key);
    let PathConfig { paths, split, wire } = args.path_config;
    if paths * split > MAX_PATHS as u16 {
        let text = format!("--paths {paths} --split {split}: no more than {MAX_PATHS} in all");
        return Err(Failure::Misuse(text));
    }
    let Wire { datagram: datagram_bytes, pipelines, poll } = wire;
    let path_config = federation::PathConfig { paths, flows: split, poll, datagram_bytes };
    let (update, clipped_first) = files::read_clipped(&args.input, args.weighting.clip)?;
    let kind = if matches!(key, KeyRef::Client(_)) { Kind::Sum } else { Kind::Tensors };
    let inputs = [Some(&args.input), Some(&args.agreed.key), args.agreed.job.as_ref()];
    let mut out = files::Output::create(&args.out, kind, &named(&inputs))?;
    let spool = args.spool.clone().unwrap_or_else(|| {
        let mut name = OsString::from(&args.out);
        name.push(".spool");
        PathBuf::from(name)
    });
    let participation = Participation {
        key,
        job: &job,
        ledger: Some(&ledger),
        engine: engine(args.place.engine),
        update: &update,
        weight: args.weighting.weight,
        spool: Some(&spool),
        patience: args.wait,
        keep_fields: false,
    };
    let (identity, node) = nodes::client(args)?;
    let wires = UdpWire::bind_towards(args.server, pipelines, path_config.sockets())?;
    let mut client = Client::new(wires, args.server, node, key.number(), identity, path_config)?;
    if let Some(path) = &args.capture {
        client.capture(files::create(path, Kind::Capture)?)?;
    }
    signals::set_last_line("stopped; the same command goes on with what was sealed");
    let result = client.contribute(&participation);
    client.leave()?;
    let round = result.map_err(|e| match e {
        federation::Error::Scheme(
            e @ (Error::NotFinite { .. } | Error::Weight { .. } | Error::Layout { .. }),
        ) => e.within(args.input.display()).into(),
        e => Failure::from(e),
    })?;
    let (bytes, name) = match &round.opened {
        Some(opened) => {
            let decoded = opened.decode(&round.sum, output(args.sum))?;
            (decoded.to_safetensors()?, output_name(args.sum))
        }
        None => (round.sum.to_bytes(key.public()), "encrypted sum"),
    };
    out.put(&bytes)?;
    out.commit()?;

    let (most, fewest) = (round.sum.most_contributors(), round.sum.fewest_contributors());
    warn_if_few(fewest);
    let (values, bytes) = (round.sum.agreement.values(), round.sum.stream.len());
    let names = round.sum.agreement.specs().iter().map(|s| s.name.as_str());
    let (clipped, mut lines) = clipped(names, &files::most_clipped(&clipped_first, &round.clipped));
    let ranges: Value =
        serde_json::from_str(&RangesFile::from_agreement(&round.sum.agreement).to_json()?)?;
    let value = json!({
        "out": shown(&args.out), "output": name, "round": round.sum.round,
        "contributors": round.sum.contributors.len(), "fewest_contributors": fewest, "values": values,
        "bytes_per_value_up": per_value(bytes, values),
        "bytes_per_value_down": per_value(bytes, values),
        "clipped": clipped, "ranges": ranges,
        "encrypting_s": round.encrypting.as_secs_f64(),
        "exchanging_s": round.exchanging.as_secs_f64(),
        "decrypting_s": round.decrypting.as_secs_f64(),
        "retransmitted": round.stats.retransmitted,
        "congested": round.stats.congested,
        "paths_rested": round.stats.paths_rested,
    });
    let partly = if fewest < most { format!(", {fewest} for some values") } else { String::new() };
    let closed = match &round.opened {
        Some(_) => "",
        None => ", to be decrypted with the secret key: ciphergram decrypt",
    };
    lines.push(format!(
        "{}: {name} of round {} over {most} contributors{partly}{closed}",
        args.out.display(),
        round.sum.round
    ));
    report(args.json, &value, &lines)
}
