//! `ciphergram key`.

use ciphergram_he::Limits;
use serde_json::json;

use super::keygen;
use crate::{
    args::{KeyCommand, KeyStatusArgs, KeyUpgradeArgs},
    failure::Failure,
    files,
    report::report,
};

pub(crate) fn run(args: &KeyCommand) -> Result<(), Failure> {
    match args {
        KeyCommand::Upgrade(args) => upgrade(args),
        KeyCommand::Status(args) => status(args),
    }
}

fn upgrade(args: &KeyUpgradeArgs) -> Result<(), Failure> {
    keygen::refuse_existing(&args.out)?;
    let key = files::read_secret(&args.key)?.upgrade().map_err(|e| e.within(args.key.display()))?;
    let limits = Limits::of_key(key.public());
    let (value, lines) = keygen::write(&key, limits, &args.out, None)?;
    report(args.report.json, &value, &lines)
}

fn status(args: &KeyStatusArgs) -> Result<(), Failure> {
    let key = files::read_secret(&args.key)?;
    let failures = args.used.ledger_of(&args.key)?.failures(key.public())?;
    let most = key.public().parameters().scheme().max_failures();
    let (id, proves) = (key.public().id().to_string(), key.public().check_sums().is_ok());
    let value = json!({
        "key_id": id, "sum_key": proves, "failures": failures, "max_failures": most,
    });
    let of_most = most.map_or(String::new(), |most| format!(", of {most} that end it"));
    let mut lines =
        vec![format!("key {id}"), format!("sums that did not open: {failures}{of_most}")];
    if most.is_some_and(|most| failures >= most) {
        lines.push("it opens no more sums: make another key".into());
    }
    if !proves {
        lines.push("it has no sum key: ciphergram key upgrade".into());
    }
    report(args.report.json, &value, &lines)
}
