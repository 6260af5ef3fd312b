//! `ciphergram opener`.

use ciphergram_he::{Error, threshold::OpenRequest};
use serde_json::json;

use crate::{
    args::OpenerArgs,
    failure::Failure,
    files::{self, FileKind, OutputFile, named},
    report::{counted, report, shown},
};

pub(crate) fn run(args: &OpenerArgs) -> Result<(), Failure> {
    let path = &args.agreed.key.path;
    let files = files::beside_key(files::read_key(path)?, &args.agreed, &args.used)?;
    let mut opener = files.opener()?;
    let public = files.key.public();
    let here = |e: Error| e.within(args.input.path.display());
    let request = OpenRequest::from_bytes(&files::read(&args.input.path)?, public).map_err(here)?;
    let inputs = [Some(&args.input.path), Some(path), args.agreed.job.as_ref()];
    let mut out = OutputFile::create(&args.out.path, FileKind::OpenAnswer, &named(&inputs))?;
    let answer = opener.answer(&files.job, &files.ledger, &request).map_err(here)?;
    out.put(&answer.to_bytes(public))?;
    out.commit()?;
    let clients: Vec<_> = request.contributors().map(|c| c.number).collect();
    let (round, place) = (request.round, opener.place());
    let value = json!({
        "out": shown(&args.out.path), "round": round, "opener": place, "clients": clients,
    });
    let line = format!(
        "{}: answer of opener {place} for round {round}, a sum of {}",
        args.out.path.display(),
        counted(clients.len(), "client")
    );
    report(args.report.json, &value, &[line])
}
