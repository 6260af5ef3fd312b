//! The aggregator's and the clients' processes.

use std::{
    io::{BufRead, BufReader, Lines},
    path::Path,
    process::{Child, ChildStdout, Command, Stdio},
    thread,
};

use serde_json::Value;

use super::client::ClientReport;
use crate::{
    args::{DemoArgs, LogFormat},
    failure::Failure,
    signals::{self, AtStop},
};

/// The environment variable with the number of an engine's threads.
const THREADS: &str = "RAYON_NUM_THREADS";

/// Returns the threads of a client's engine, unless the user chose them. By default each client
/// would take all cores of the machine that they share, and wait for the others in the middle of
/// encrypting.
fn threads_each(clients: usize) -> Option<usize> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    std::env::var_os(THREADS).is_none().then_some((cores / clients).max(1))
}

/// A child process and its lines. Killed when dropped, so that a failure leaves none running.
struct Process {
    name: String,
    child: Child,
    /// None once a thread reads what nobody wants.
    lines: Option<Lines<BufReader<ChildStdout>>>,
    /// None once it is waited for: its number may then be another process's.
    at_stop: Option<AtStop>,
}

/// Kills a child of this process, which nobody has waited for yet.
fn kill(child: u32) {
    #[cfg(unix)]
    if let Some(child) = rustix::process::Pid::from_raw(child as i32) {
        // Fails only for one that has ended, which is what is wanted.
        let _ = rustix::process::kill_process(child, rustix::process::Signal::KILL);
    }
    #[cfg(not(unix))]
    let _ = child;
}

impl Process {
    fn start(name: String, arguments: &[String], threads: Option<usize>) -> Result<Self, Failure> {
        let failed = |why: String| Failure::Work(format!("cannot start {name}: {why}"));
        let program = std::env::current_exe().map_err(|e| failed(e.to_string()))?;
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        if let Some(threads) = threads {
            command.env(THREADS, threads.to_string());
        }
        let (mut child, at_stop) = signals::at_stop(|| {
            let child = command.spawn().map_err(|e| failed(e.to_string()))?;
            let id = child.id();
            Ok::<_, Failure>((child, move || kill(id)))
        })?;
        let stdout = child.stdout.take().ok_or_else(|| failed("it has no output".into()))?;
        Ok(Self {
            name,
            child,
            lines: Some(BufReader::new(stdout).lines()),
            at_stop: Some(at_stop),
        })
    }

    fn next_line(&mut self) -> Result<String, Failure> {
        let line = self.lines.as_mut().and_then(Iterator::next).and_then(Result::ok);
        line.ok_or_else(|| Failure::Work(format!("{} ended early", self.name)))
    }

    /// Reads on what it prints, which would wait once a pipe is full.
    fn read_on(&mut self) {
        if let Some(lines) = self.lines.take() {
            thread::spawn(move || lines.map_while(Result::ok).for_each(drop));
        }
    }

    fn kill(&mut self) {
        // Fails only for a process that has ended, which is what is wanted.
        let _ = self.child.kill();
        self.at_stop = None;
        let _ = self.child.wait();
    }

    /// Waits for the end.
    fn finish(&mut self) -> Result<(), Failure> {
        self.read_on();
        self.at_stop = None;
        match self.child.wait() {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(Failure::Work(format!("{} ended with {status}", self.name))),
            Err(error) => Err(Failure::Work(format!("{}: {error}", self.name))),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The processes of all nodes.
pub(super) struct Processes {
    clients: Vec<Process>,
    aggregator: Process,
    address: String,
}

fn words(text: &str) -> Vec<String> {
    text.split(' ').map(str::to_owned).collect()
}

/// Returns the words that processes of all kinds take.
fn common(args: &DemoArgs, log: LogFormat) -> Vec<String> {
    words(&format!("{} --engine {}", log.option(), args.place.engine))
}

/// Starts an aggregator at an address, and returns the one that it got.
fn aggregator(
    args: &DemoArgs,
    log: LogFormat,
    folder: &Path,
    (address, clients, rounds): (&str, u16, u32),
) -> Result<(Process, String), Failure> {
    let mut serve = words(&format!("serve --json --listen {address} --deadline 300"));
    serve.extend(words(&format!("--clients {clients} --rounds {rounds}")));
    serve.extend(common(args, log));
    serve.extend(["--key".into(), folder.join("public.json").display().to_string()]);
    let mut aggregator = Process::start("the aggregator".into(), &serve, None)?;
    let line: Value = serde_json::from_str(&aggregator.next_line()?)?;
    let address = line["address"].as_str().unwrap_or_default().to_owned();
    aggregator.read_on();
    Ok((aggregator, address))
}

impl Processes {
    /// Starts the aggregator, learns its port, and starts the clients.
    pub(super) fn start(args: &DemoArgs, log: LogFormat, folder: &Path) -> Result<Self, Failure> {
        let first = ("127.0.0.1:0", args.clients, args.rounds);
        let (aggregator, address) = aggregator(args, log, folder, first)?;
        let threads = threads_each(usize::from(args.clients));
        let clients = (0..args.clients).map(|number| {
            let DemoArgs { clients, seed, .. } = args;
            let lives = number < args.survivors();
            let (rounds, waits) = if lives { (args.rounds, "") } else { (1, " --waits") };
            let mut client = vec!["demo-client".to_owned(), folder.display().to_string()];
            client.extend(words(&format!("{address} {number} {clients} {rounds} {seed}{waits}")));
            client.extend(common(args, log));
            Process::start(format!("client {number}"), &client, threads)
        });
        let clients = clients.collect::<Result<_, _>>()?;
        Ok(Self { clients, aggregator, address })
    }

    /// Kills the last clients and the aggregator, of which another one goes on after the first round.
    pub(super) fn kill(
        &mut self,
        args: &DemoArgs,
        log: LogFormat,
        folder: &Path,
    ) -> Result<(), Failure> {
        self.clients.truncate(args.survivors().into());
        self.aggregator.kill();
        let next = (&*self.address, args.survivors(), args.rounds - 1);
        self.aggregator = aggregator(args, log, folder, next)?.0;
        Ok(())
    }

    /// Reads every client's report of a round.
    pub(super) fn round(&mut self, round: u32) -> Result<Vec<ClientReport>, Failure> {
        let mut reports = vec![];
        for client in &mut self.clients {
            let report: ClientReport = serde_json::from_str(&client.next_line()?)?;
            if report.round != round {
                let (name, found) = (&client.name, report.round);
                return Err(Failure::Work(format!("{name} is in round {found}, not {round}")));
            }
            reports.push(report);
        }
        Ok(reports)
    }

    /// Waits until all have ended with success.
    pub(super) fn finish(&mut self) -> Result<(), Failure> {
        self.clients.iter_mut().try_for_each(Process::finish)?;
        self.aggregator.finish()
    }
}
