//! `ciphergram join`.

use std::{ffi::OsString, fs::File, path::PathBuf};

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
    report::{clipped, kept, per_value, report, shown, warn_if_few},
    signals,
};

pub(crate) fn run(args: &Join) -> Result<(), Failure> {
    let file = files::read_key(&args.agreed.key)?;
    let key = file.as_client(args.client).map_err(|e| e.within(args.agreed.key.display()))?;
    if let (KeyRef::Client(_), true) = (key, args.sum) {
        let text = "--sum needs a secret key: with a client's the sum is written encrypted";
        return Err(Failure::Misuse(text.into()));
    }
    let job = files::read_job(&args.agreed, key.public())?;
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
    let (update, clipped_first) =
        files::read_clipped(&args.input, args.integers.policy(), args.weighting.clip)?;
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
    let result = client.contribute(&participation, |_| {});
    client.leave()?;
    let refused = |e| match e {
        federation::Error::Scheme(
            e @ (Error::NotFinite { .. }
            | Error::Integer { .. }
            | Error::Weight { .. }
            | Error::Layout { .. }),
        ) => e.within(args.input.display()).into(),
        e => Failure::from(e),
    };
    let mut round = result.map_err(refused)?;
    let (name, closed) = match key {
        KeyRef::Secret(key, _) => {
            let open = |file: &File| {
                round.decrypt_to(key, &participation, output(args.sum), file).map_err(|e| match e {
                    federation::Error::Scheme(e) => e,
                    e => Error::from(std::io::Error::other(e)),
                })
            };
            out.fill(open, |e| refused(e.into()))?;
            (output_name(args.sum), "")
        }
        KeyRef::Client(key) => {
            let (head, stream, digest) = round.sum.to_parts(key.public());
            [&head[..], stream, &digest].into_iter().try_for_each(|part| out.put(part))?;
            ("encrypted sum", ", to be decrypted with the secret key: ciphergram decrypt")
        }
    };
    out.commit()?;

    let (most, fewest) = (round.sum.most_contributors(), round.sum.fewest_contributors());
    warn_if_few(fewest);
    let (values, bytes) = (round.sum.agreement.values(), round.sum.stream.len());
    let names = round.sum.agreement.specs().iter().map(|s| s.name.as_str());
    let (clipped, mut lines) = clipped(names, &files::most_clipped(&clipped_first, &round.clipped));
    let ranges: Value =
        serde_json::from_str(&RangesFile::from_agreement(&round.sum.agreement).to_json()?)?;
    let (kept, kept_words) = kept(&update);
    lines.extend(kept_words);
    let value = json!({
        "out": shown(&args.out), "output": name, "round": round.sum.round,
        "contributors": round.sum.contributors.len(), "fewest_contributors": fewest, "values": values,
        "bytes_per_value_up": per_value(bytes, values),
        "bytes_per_value_down": per_value(bytes, values),
        "clipped": clipped, "ranges": ranges, "kept": kept,
        "encrypting_s": round.encrypting.as_secs_f64(),
        "exchanging_s": round.exchanging.as_secs_f64(),
        "decrypting_s": round.decrypting.as_secs_f64(),
        "retransmitted": round.stats.retransmitted,
        "congested": round.stats.congested,
        "paths_rested": round.stats.paths_rested,
    });
    let partly = if fewest < most { format!(", {fewest} for some values") } else { String::new() };
    lines.push(format!(
        "{}: {name} of round {} over {most} contributors{partly}{closed}",
        args.out.display(),
        round.sum.round
    ));
    report(args.json, &value, &lines)
}
