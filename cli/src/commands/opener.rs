//! `ciphergram opener`.

mod pages;

use std::{
    ops::ControlFlow,
    path::Path,
    sync::{Arc, OnceLock},
};

use ciphergram_he::{
    Error, MemberFiles,
    threshold::{OpenRequest, OpenerKey},
};
use ciphergram_nic::{
    federation::{OpenerEvent, PathConfig, SocketOpener},
    wire::PcapFile,
};
use serde_json::json;

use crate::{
    args::{OpenerArgs, ServerName, Tune},
    commands::opener::pages::Pages,
    failure::Failure,
    files::{self, FileKind, OutputFile, named},
    nodes,
    report::{counted, report, say, shown},
    signals,
};

pub(crate) fn run(args: &OpenerArgs) -> Result<(), Failure> {
    let path = &args.agreed.key.path;
    let files = files::beside_key(files::read_key(path)?, &args.agreed, &args.used)?;
    let opener = files.opener()?;
    match (&args.server, &args.input, &args.out) {
        (Some(server), ..) => serve(args, &files, &opener, server),
        (None, Some(input), Some(out)) => answer(args, &files, &opener, (input, out)),
        _ => Err(Failure::Misuse("--in FILE and --out FILE, or --server HOST:PORT".into())),
    }
}

/// Answers the request in a file.
fn answer(
    args: &OpenerArgs,
    files: &MemberFiles,
    opener: &OpenerKey,
    (input, out): (&Path, &Path),
) -> Result<(), Failure> {
    let public = files.key.public();
    let here = |e: Error| e.within(input.display());
    let request = OpenRequest::from_bytes(&files::read(input)?, public).map_err(here)?;
    let (input, key) = (input.to_path_buf(), &args.agreed.key.path);
    let inputs = [Some(&input), Some(key), args.agreed.job.as_ref()];
    let mut file = OutputFile::create(out, FileKind::OpenAnswer, &named(&inputs))?;
    let answer = opener.answer(&files.ledger, &request).map_err(here)?;
    file.put(&answer.to_bytes(public))?;
    file.commit()?;
    let clients: Vec<_> = request.contributors().map(|c| c.number).collect();
    let (round, place) = (request.round, opener.place());
    let value = json!({"out": shown(out), "round": round, "opener": place, "clients": clients});
    let line = format!(
        "{}: answer of opener {place} for round {round}, a sum of {}",
        out.display(),
        counted(clients.len(), "client")
    );
    report(args.report.json, &value, &[line])
}

/// Answers what an aggregator asks, until stopped.
fn serve(
    args: &OpenerArgs,
    files: &MemberFiles,
    opener: &OpenerKey,
    server: &ServerName,
) -> Result<(), Failure> {
    let nodes = (&*args.agreed.key.path, &args.link, &args.server_key);
    let (found, keys) = nodes::client(nodes, server)?;
    let Tune { paths, split: flows, poll, pipelines } = args.link.tune;
    let paths = PathConfig { paths, flows, poll, sizes: args.link.datagram };
    let pages = args.metrics.map(Pages::start).transpose()?;
    if let Some(pages) = &pages {
        let address = pages.address();
        say(args.report.json, &json!({"event": "metrics", "address": address.to_string()}), || {
            format!("metrics at http://{address}/metrics")
        });
    }
    let stopped_by = Arc::new(OnceLock::new());
    let at_signal = stopped_by.clone();
    signals::take_over(move |signal| at_signal.set(signal).is_ok());
    let place = opener.place();
    let tell = |event: &str, line: String, more: serde_json::Value| {
        let mut value = json!({"event": event, "opener": place});
        if let (Some(value), Some(more)) = (value.as_object_mut(), more.as_object()) {
            value.extend(more.clone());
        }
        say(args.report.json, &value, || line);
    };
    let capture = args.link.capture.as_ref();
    let capture = capture.map(|path| {
        let file = files::create(path, FileKind::Capture)?;
        Ok::<_, Failure>(PcapFile::new(file)?)
    });
    let (node, identity) = (keys.server, keys.identity);
    let service = SocketOpener {
        server: found,
        node,
        identity,
        paths,
        pipelines,
        capture: capture.transpose()?,
    };
    service.run(opener, &files.ledger, |event| {
        if let Some(pages) = &pages {
            pages.follow(event.as_ref());
        }
        match event {
            Some(OpenerEvent::Attending { transport }) => {
                let by = transport.map(|transport| transport.to_string());
                let line = format!("opener {place} attends {server}");
                tell("attending", line, json!({"transport": by}));
            }
            Some(OpenerEvent::Answered { round, contributors }) => {
                let clients: Vec<_> = contributors.iter().map(|c| c.number).collect();
                let line = format!("round {round}: answered for a sum of clients {clients:?}");
                tell("answered", line, json!({"round": round, "clients": clients}));
            }
            Some(OpenerEvent::Refused { reason }) => {
                tell("refused", format!("no answer: {reason}"), json!({"reason": reason}));
            }
            Some(OpenerEvent::Unreachable { dial }) => {
                let why = dial.map_or_else(String::new, |why| format!(" ({why})"));
                tell("unreachable", format!("no answer from {server}: asking on{why}"), json!({}));
            }
            None => {}
        }
        match stopped_by.get() {
            None => ControlFlow::Continue(()),
            Some(_) => ControlFlow::Break(()),
        }
    })?;
    match stopped_by.get() {
        Some(signal) => Err(Failure::Stopped(*signal, "stopped".into())),
        None => Ok(()),
    }
}
