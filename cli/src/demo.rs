//! `ciphergram demo`: federated training over real processes and sockets.
//!
//! One aggregator process with public material only, and client processes with a shard of the data
//! and the key file each, on loopback. Every round each client trains, encrypts its update, sends
//! it, receives the sum, decrypts the mean and applies it. Beside it runs the same training in
//! plain float32. This process holds no part in the rounds: it starts the others, and checks
//! afterwards that what every client decrypted equals the plaintext mean of the quantised updates,
//! bit for bit.

mod check;
pub(crate) mod client;
mod digits;
mod model;
mod processes;
mod summary;
mod twin;

use std::{
    fs,
    io::{self, IsTerminal as _},
    path::Path,
};

use ciphergram_he::{
    Limits, Parameters, PublicKey, Scheme, SecretKey,
    job::{PrivateRanges, usual_min_clients},
    keys::write_identities,
    params::Literal,
    private_ranges::RangesSecret,
    threshold::{MAX_OPENERS, Quorum},
};
use ciphergram_nic::federation::nodes::LocalNodes;

use crate::{
    args::{DemoArgs, LogFormat},
    commands::vectors,
    failure::{Failure, at},
    files::{FileKind, OutputFile},
    progress::ProgressLine,
    report::{counted, print},
    signals,
};
use check::Checker;
use digits::DigitImages;
use processes::Processes;
use summary::{RoundFigures, Summary};
use twin::PlaintextTraining;

/// Returns the seed of one client's training in one round: the same encrypted and plain.
fn training_seed(seed: u64, round: u32, client: usize) -> u64 {
    (seed << 32) | (u64::from(round) << 16) | client as u64
}

pub(crate) fn run(args: &DemoArgs, log: LogFormat) -> Result<(), Failure> {
    let out = args
        .figures
        .path
        .as_ref()
        .map(|path| OutputFile::create(path, FileKind::Report, &[]))
        .transpose()?;
    let (folder, _at_stop) = signals::at_stop(|| {
        let folder = tempfile::tempdir().map_err(at(&std::env::temp_dir()))?;
        let path = folder.path().to_owned();
        Ok::<_, Failure>((folder, move || drop(fs::remove_dir_all(path))))
    })?;
    let literal =
        Literal { scheme: args.scheme, clients: u32::from(args.clients), bits: args.bits };
    let parameters = Parameters::new(literal).map_err(ciphergram_he::Error::from)?;
    let openers = match literal.scheme {
        Scheme::CkksSumThreshold => {
            Some(Quorum::new(usize::from(args.clients).min(MAX_OPENERS), None)?)
        }
        _ => None,
    };
    let needed = usual_min_clients(literal.clients) as u16;
    let needed = openers.map_or(0, |quorum| quorum.open.into()).max(needed);
    if args.kill > 0 && args.rounds == 1 {
        return Err(Failure::Misuse("--kill: --rounds 1 ends before it".into()));
    }
    if args.kill > 0 && args.survivors() < needed {
        let text = format!(
            "--kill {}: a sum takes {needed} of {}",
            args.kill,
            counted(args.clients, "client")
        );
        return Err(Failure::Misuse(text));
    }
    write_keys(args, literal, folder.path())?;

    let mut checker = Checker::new(args, parameters, folder.path());
    let mut twin = PlaintextTraining::new(args.seed, usize::from(args.clients));
    print(&format!(
        "{}: {} client processes and an aggregator on loopback, {} parameters, {} images to train \
         on and {} to test",
        args.scheme,
        args.clients,
        twin.parameters(),
        twin.training_images(),
        twin.test_images()
    ))?;
    match openers {
        Some(Quorum { open, .. }) => print(&format!(
            "each client has an identity, and no key opens a sum: clients do, {open} of them together"
        ))?,
        None => print(
            "each client has secret.json: it contributes under a number of its own, and opens the sums",
        )?,
    }
    let mut processes = Processes::start(args, log, folder.path())?;
    let progress = io::stdout().is_terminal().then(|| ProgressLine::new(false, "round 1"));
    let mut summary = Summary::default();
    for round in 0..args.rounds {
        let plain = twin.round(round);
        let reports = processes.round(round)?;
        let checked = checker.round(round)?;
        let figures = RoundFigures::new(round, &plain, &checked, &reports);
        show(progress.as_ref(), &figures, args.rounds)?;
        summary.rounds.push(figures);
        if round == 0 && args.kill > 0 {
            let survivors = args.survivors();
            processes.kill(args, log, folder.path())?;
            checker.keep(survivors);
            twin.keep(survivors);
            print(&format!("{} and the aggregator killed", counted(args.kill, "client")))?;
        }
    }
    processes.finish()?;
    drop(progress);
    print(&summary.text())?;
    if let Some(mut out) = out {
        let text = serde_json::to_string_pretty(&summary.to_json(args))?;
        out.put((text + "\n").as_bytes())?;
        out.commit()?;
    }
    summary.verdict()
}

/// Writes the keys of all clients, and their job, into a folder.
fn write_keys(args: &DemoArgs, literal: Literal, folder: &Path) -> Result<(), Failure> {
    if literal.scheme == Scheme::CkksSumThreshold {
        vectors::refuse(&[("--ranges", args.ranges.is_some())], literal.scheme.name())?;
        let parameters = Parameters::new(literal).map_err(ciphergram_he::Error::from)?;
        let public = PublicKey::of_parameters(parameters)?;
        write_identities(&public, Limits::of_key(&public), None, folder)?;
        LocalNodes::of_folder(folder).draw()?;
        return Ok(());
    }
    let mut key = SecretKey::generate(literal)?;
    if args.ranges.is_some() {
        key = key.with_ranges_secret(RangesSecret::draw()?);
    }
    let limits = limits(args, &key);
    crate::commands::keygen::write_files(&key, limits, folder, None)?;
    Ok(())
}

/// Returns the limits of the demo's job.
fn limits(args: &DemoArgs, key: &SecretKey) -> Limits {
    let limits = Limits::of_key(key.public());
    let (Some(rank), Some(secret)) = (args.ranges, key.ranges_secret()) else { return limits };
    let private = PrivateRanges::new(rank, secret.id());
    // Nobody tells a weight either: the largest is that of the largest part of the images.
    let train = DigitImages::load().split(args.seed).train;
    let shards = train.shards(usize::from(args.clients), args.seed);
    let max_weight = shards.iter().map(DigitImages::len).max().unwrap_or(1) as u32;
    Limits { private_ranges: Some(private), max_weight, ..limits }
}

/// Shows a round: on a terminal as progress, elsewhere as a line.
fn show(
    progress: Option<&ProgressLine>,
    figures: &RoundFigures,
    rounds: u32,
) -> Result<(), Failure> {
    let done = figures.round + 1;
    let words =
        format!("round {done} of {rounds}: test accuracy {:.3}", figures.encrypted.accuracy);
    let Some(progress) = progress else { return print(&words) };
    progress.say(words);
    progress.at(done.into(), rounds.into());
    Ok(())
}
