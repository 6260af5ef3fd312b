//! `ciphergram join`.

mod server;

use std::{
    convert::Infallible,
    ffi::OsString,
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use ciphergram_he::{
    Destination, Error, KeyRef, Member, Update,
    codec::{RangesFile, most_clipped},
    threshold::OpenerKey,
};
use ciphergram_nic::federation::{
    self, Participation, ParticipationPhase, RoundResult, finish_from_spool,
};
use serde_json::{Value, json};

use self::server::FoundServer;
use super::decrypt::{output, output_name};
use crate::{
    args::{JoinArgs, Tune},
    cohorts::{self, Cohorts},
    engines::engine,
    failure::Failure,
    files::{self, FileKind, OutputFile, named},
    progress::ProgressLine,
    report::{clipped, counted, kept, per_value, say, shown, warn, warn_if_few},
    signals::{self, AtStop},
};

/// The last line of a command that is stopped once something is sealed.
const GOES_ON: &str = "stopped; the same command goes on with what was sealed";

pub(crate) fn run(args: &JoinArgs) -> Result<(), Failure> {
    let mut files =
        files::beside_key(files::read_key(&args.agreed.key.path)?, &args.agreed, &args.used)?;
    // It answers by the job as it is.
    let opener = files.opener_if_any()?;
    let min_clients = args.opening.min_clients.unwrap_or(files.job.min_clients());
    files.job = files.job.requiring(min_clients);
    let member = files::member(&files, args.client.number, engine(args.place.engine))?;
    if let (KeyRef::Client(_), true) = (member.key, args.opening.sum) {
        let text = "--sum needs a secret key: with a client's the sum is written encrypted";
        return Err(Failure::Misuse(text.into()));
    }
    let Tune { paths, split: flows, poll, .. } = args.link.tune;
    let paths = federation::PathConfig { paths, flows, poll, sizes: args.link.datagram };
    let spool = spool_of(args)?;
    if args.before.is_some() {
        // What is wrong with the rest is said before that takes its time.
        FoundServer::find(args, member.key.number(), paths)?;
    }
    let is_stream = |path: &Path| path.as_os_str() == "-";
    if args.rounds > 1 && [&args.input.path, &args.out.path].into_iter().any(|path| is_stream(path))
    {
        let text = "--rounds takes files: a stream has no end of a round";
        return Err(Failure::Misuse(text.into()));
    }
    for _ in 0..args.rounds {
        signals::set_last_line("");
        if let (Some(command), false) = (&args.before, has_content(&spool)) {
            run_before(command)?;
        }
        take_part(args, &member, opener.as_ref(), (paths, &spool))?;
    }
    Ok(())
}

/// Returns whether something is sealed in a spool: the contribution that it is of goes on, and another one waits.
fn has_content(spool: &Path) -> bool {
    fs::metadata(spool).is_ok_and(|spool| spool.len() > 0)
}

/// Runs the command that makes the update of a round.
fn run_before(command: &str) -> Result<(), Failure> {
    let failed = |why: String| Failure::Work(format!("--before {command}: {why}"));
    let mut shell = Command::new("sh");
    shell.args(["-c", command]).stdin(Stdio::null()).stdout(io::stderr());
    // What it starts ends with it.
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(&mut shell, 0);
    let (mut child, _at_stop) = signals::at_stop(|| {
        let child = shell.spawn().map_err(|e| failed(e.to_string()))?;
        let id = child.id();
        Ok::<_, Failure>((child, move || signals::end_group(id)))
    })?;
    let status = child.wait().map_err(|e| failed(e.to_string()))?;
    if status.success() { Ok(()) } else { Err(failed(status.to_string())) }
}

/// Takes part in one round.
fn take_part(
    args: &JoinArgs,
    member: &Member<'_>,
    opener: Option<&OpenerKey>,
    (paths, spool): (federation::PathConfig, &Path),
) -> Result<(), Failure> {
    let (update, clipped_first) =
        files::read_clipped(&args.input.path, args.integers.policy, args.weighting.clip)?;
    let outputs = Outputs::create(args, member.key, &update)?;
    let _unless_stopped = remove_if_empty(spool);
    let participation = Participation {
        member: member.clone(),
        update: &update,
        weight: args.weighting.weight,
        spool: Some(spool),
        patience: args.wait,
        keep_fields: false,
        opener,
    };
    if has_content(spool) {
        signals::set_last_line(GOES_ON);
    }
    let progress = ProgressLine::new(args.report.json, "opening the sum");
    let kept = finish_from_spool(&participation).map_err(|e| refused(args, spool, e))?;
    let mut round = match kept {
        Some(round) => round,
        None => {
            let mut reporter = StepReporter { args, progress: &progress, last: None };
            let server = FoundServer::find(args, member.key.number(), paths)?;
            server.contribute(&participation, spool, |phase| reporter.follow(phase))?
        }
    };
    outputs.write(args, &participation, &mut round, spool).map_err(|error| match error {
        Failure::Work(text) if spool.exists() => Failure::Work(format!(
            "{text}; the sum is in {}: the same command goes on with it",
            spool.display()
        )),
        error => error,
    })?;
    drop(progress);
    let (value, lines) = describe(args, &participation, &round, &clipped_first)?;
    if let Some(Err(error)) = round.spool.take().map(|spool| spool.remove()) {
        warn(&format!("{error}: the output is written, and it is no longer needed"));
    }
    say(args.report.json, &value, || lines.join("\n"));
    Ok(())
}

/// Returns the spool's name.
fn spool_of(args: &JoinArgs) -> Result<PathBuf, Failure> {
    if let Some(spool) = &args.spool {
        if *spool == args.out.path {
            let out = args.out.path.display();
            return Err(Failure::Misuse(format!(
                "--spool {out} is --out as well: they are two files"
            )));
        }
        return Ok(spool.clone());
    }
    // A folder is refused as one.
    let is_stream = fs::metadata(&args.out.path).is_ok_and(|out| !out.is_file() && !out.is_dir());
    if is_stream || args.out.path.as_os_str() == "-" {
        let out = args.out.path.display();
        let text = format!("--out {out} is a stream: say --spool FILE, to keep what is sealed");
        return Err(Failure::Misuse(text));
    }
    let mut name = OsString::from(&args.out.path);
    name.push(".spool");
    Ok(name.into())
}

/// Has a signal remove a spool that nothing is sealed into yet.
fn remove_if_empty(spool: &Path) -> AtStop {
    let path = spool.to_owned();
    let clean_up = move || {
        if fs::metadata(&path).is_ok_and(|spool| spool.is_file() && spool.len() == 0) {
            // Without, the next run removes it.
            let _ = fs::remove_file(path);
        }
    };
    let Ok(((), at_stop)) = signals::at_stop(|| Ok::<_, Infallible>(((), clean_up)));
    at_stop
}

/// Describes an error of a round in the words of the command line.
fn refused(args: &JoinArgs, spool: &Path, error: federation::Error) -> Failure {
    match error {
        federation::Error::Scheme(
            e @ (Error::NotFinite { .. }
            | Error::Integer { .. }
            | Error::NotExact { .. }
            | Error::Weight { .. }
            | Error::Layout { .. }),
        ) => e.within(args.input.path.display()).into(),
        federation::Error::Scheme(e @ Error::TooFewContributors { found, .. })
            if spool.exists() =>
        {
            let spool = spool.display();
            Failure::Work(format!(
                "{e}; {spool} keeps the sum: the same command with --min-clients {found} opens it"
            ))
        }
        error @ federation::Error::Refused { .. } if has_content(spool) => {
            let spool = spool.display();
            Failure::Work(format!(
                "{error}; if that round is over, delete {spool}, which keeps what was sealed for it, and join the next"
            ))
        }
        error => error.into(),
    }
}

/// Outputs of the command, opened before it joins.
struct Outputs {
    out: OutputFile,
    cohorts: Option<OutputFile>,
}

impl Outputs {
    /// Opens the outputs, with space for the result.
    fn create(args: &JoinArgs, key: KeyRef<'_>, update: &Update) -> Result<Self, Failure> {
        let inputs =
            [Some(&args.input.path), Some(&args.agreed.key.path), args.agreed.job.as_ref()];
        let (kind, bytes) = match key {
            KeyRef::Client(key) => {
                let values = update.tensors().iter().filter_map(|t| t.spec.values()).sum();
                (FileKind::Sum, key.public().parameters().chunks(values).total_bytes() as u64)
            }
            KeyRef::Secret(..) | KeyRef::Member(_) => (FileKind::Tensors, update.file_bytes()?),
        };
        let mut out = OutputFile::create(&args.out.path, kind, &named(&inputs))?;
        out.reserve(bytes)?;
        Ok(Self {
            out,
            cohorts: cohorts::create(args.opening.cohorts.as_deref(), &named(&inputs))?,
        })
    }

    /// Writes the mean, or the sum that this client cannot open, and its cohorts.
    fn write(
        mut self,
        args: &JoinArgs,
        participation: &Participation<'_>,
        round: &mut RoundResult,
        spool: &Path,
    ) -> Result<(), Failure> {
        let Participation { member, update, .. } = participation;
        match member.key {
            KeyRef::Secret(..) | KeyRef::Member(_) => {
                let open = |file: &File| {
                    let to = Destination::File { file, template: Some(update), observe: &|_| {} };
                    round.open_to(member, output(args.opening.sum), to)
                };
                self.out.fill(open, |e| match e {
                    federation::Error::Scheme(Error::Io { why }) => Err(why),
                    e => Ok(refused(args, spool, e)),
                })?;
            }
            KeyRef::Client(key) => {
                let (head, stream, digest) = round.sum.to_parts(key.public());
                [&head[..], stream, &digest].iter().try_for_each(|part| self.out.put(part))?;
            }
        }
        let cohorts = Cohorts::of(&round.sum, member.key.public());
        self.cohorts.map_or(Ok(()), |out| cohorts.write(out))?;
        self.out.commit()
    }
}

/// Describes the round and its result, for JSON and for people.
fn describe(
    args: &JoinArgs,
    participation: &Participation<'_>,
    round: &RoundResult,
    clipped_first: &[usize],
) -> Result<(Value, Vec<String>), Failure> {
    let (sum, key) = (&round.sum, participation.member.key);
    let cohorts = Cohorts::of(sum, key.public());
    let fewest = sum.fewest_contributors();
    warn_if_few(fewest);
    let (values, bytes) = (sum.agreement.values(), sum.stream.len());
    let names = sum.agreement.specs().iter().map(|s| s.name.as_str());
    let (clipped, mut lines) = clipped(names, &most_clipped(clipped_first, &round.clipped));
    let ranges: Value =
        serde_json::from_str(&RangesFile::from_agreement(&sum.agreement).to_json()?)?;
    let (kept, kept_words) = kept(participation.update);
    lines.extend(kept_words);
    let (name, closed) = match key {
        KeyRef::Secret(..) | KeyRef::Member(_) => (output_name(args.opening.sum), ""),
        KeyRef::Client(_) => {
            ("encrypted sum", ", to be decrypted with the secret key: ciphergram decrypt")
        }
    };
    let value = json!({
        "event": "finished", "out": shown(&args.out.path), "output": name, "round": sum.round,
        "contributors": sum.contributors.len(), "fewest_contributors": fewest, "values": values,
        "cohorts": cohorts.summary(),
        "bytes_per_value_up": per_value(bytes + round.shares_bytes, values),
        "bytes_per_value_down": per_value(bytes, values),
        "clipped": clipped, "ranges": ranges, "kept": kept,
        "encrypting_s": round.encrypting.as_secs_f64(),
        "exchanging_s": round.exchanging.as_secs_f64(),
        "decrypting_s": round.decrypting.as_secs_f64(),
        "transport": round.transport.map(|transport| transport.to_string()),
        "datagram_bytes": round.stats.datagram_bytes,
        "retransmitted_datagrams": round.stats.retransmitted,
        "congested_datagrams": round.stats.congested,
        "paths_rested": round.stats.paths_rested,
    });
    let (out, words) = (args.out.path.display(), cohorts.words());
    if let Some(transport) = round.transport {
        let (by, stats) = (transport.to_string().to_uppercase(), round.stats);
        let (bytes, again) = (stats.datagram_bytes, stats.retransmitted);
        lines.push(format!("by {by}, datagrams of {bytes} bytes, {again} sent again"));
    }
    lines.push(format!("{out}: {name} of round {} over {words}{closed}", sum.round));
    Ok((value, lines))
}

/// The steps of a round that are reported as events.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum RoundStep {
    Joined,
    Opened,
    Sealed,
}

/// Tells what the client does, and whom it waits for: in the line of progress, and each step once, as an event, where
/// nobody sees that line.
struct StepReporter<'a> {
    args: &'a JoinArgs,
    progress: &'a ProgressLine,
    last: Option<RoundStep>,
}

impl StepReporter<'_> {
    fn follow(&mut self, phase: ParticipationPhase) {
        let (server, progress) = (&self.args.server, self.progress);
        let joined = json!({"event": "joined", "server": server.as_str()});
        let waits = format!("joined {server}, waiting for the other clients");
        match phase {
            ParticipationPhase::Contacting { .. } => {
                progress.go_on(format!("looking for {server}"))
            }
            ParticipationPhase::Waiting => {
                self.tell(RoundStep::Joined, &joined, &waits);
                progress.go_on(waits);
            }
            ParticipationPhase::Exchanging { contributors, chunks, sealed, sent, back } => {
                if sealed > 0 {
                    signals::set_last_line(GOES_ON);
                }
                // A round may open within the moment that the join is answered in.
                self.tell(RoundStep::Joined, &joined, &waits);
                let opened =
                    json!({"event": "opened", "contributors": contributors, "chunks": chunks});
                let (clients, parts) = (counted(contributors, "client"), counted(chunks, "chunk"));
                self.tell(
                    RoundStep::Opened,
                    &opened,
                    &format!("a round of {clients} opened: sealing {parts}"),
                );
                self.sealed(sealed, chunks);
                progress.say(format!(
                    "round of {contributors}: {sealed} of {chunks} chunks sealed, {sent} sent, {back} sums back"
                ));
                let done = [sealed, sent, back].map(u64::from).iter().sum();
                progress.at(done, 3 * u64::from(chunks));
            }
            ParticipationPhase::Opening { chunks, sealed } => {
                self.sealed(sealed, chunks);
                progress.go_on(format!("all {chunks} sums are back: opening them"));
            }
        }
    }

    fn sealed(&mut self, sealed: u32, chunks: u32) {
        if sealed == chunks {
            let event = json!({"event": "sealed"});
            self.tell(RoundStep::Sealed, &event, "all chunks are sealed and kept");
        }
    }

    fn tell(&mut self, step: RoundStep, event: &Value, line: &str) {
        if self.last < Some(step) {
            self.last = Some(step);
            if self.args.report.json || !self.progress.is_seen() {
                say(self.args.report.json, event, || line.into());
            }
        }
    }
}
