//! The programs of tests that cargo builds, run several at once with a line on how far they are.
//!
//! Many tests wait for a deadline or a peer: beside them, programs that compute have the cores.

use std::{
    collections::{BTreeSet, VecDeque},
    io::{self, BufRead as _, BufReader, IsTerminal as _, Write as _},
    path::PathBuf,
    process::{Command, Stdio},
    sync::{
        Mutex, PoisonError,
        mpsc::{self, Receiver, RecvTimeoutError, Sender},
    },
    thread,
    time::{Duration, Instant},
};

use crate::command::{cargo, program, shown};

/// How programs share the cores.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Share {
    /// One for each core, because each computes all the time.
    Computing = 1,
    /// Two for each core, because many wait for deadlines and peers.
    Waiting = 2,
}

/// Between two lines on how far the programs are, on a terminal and in a log.
const INTERVALS: [Duration; 2] = [Duration::from_millis(200), Duration::from_secs(10)];

/// A program of tests.
#[derive(Debug, PartialEq)]
pub(crate) struct Program {
    /// The folder of its package, in which it runs.
    folder: PathBuf,
    /// The name of its target: a file of `tests/`, a library or a binary.
    pub(crate) name: String,
    path: PathBuf,
}

impl Program {
    /// Returns the name of its package's folder.
    pub(crate) fn package(&self) -> &str {
        self.folder.file_name().and_then(|name| name.to_str()).unwrap_or_default()
    }

    /// Returns a run of it with the arguments of `words`, split at spaces.
    pub(crate) fn run(&self, words: &str) -> Run {
        let mut command = program(&self.path);
        command.args(words.split_whitespace()).current_dir(&self.folder);
        // As cargo does.
        command.env("CARGO_MANIFEST_DIR", &self.folder);
        Run { name: format!("{} {}", self.package(), self.name), command }
    }
}

/// A command that writes the lines of Rust's test harness.
#[derive(Debug)]
pub(crate) struct Run {
    /// Its name for people.
    pub(crate) name: String,
    pub(crate) command: Command,
}

/// Builds every program of the workspace with its tests.
///
/// All stages take their programs from here: one set of packages has one set of features, and is built once.
///
/// # Errors
///
/// Returns one line that says how the build failed.
pub(crate) fn build() -> Result<Vec<Program>, String> {
    let mut command =
        cargo("test --release --workspace --no-run --message-format json-render-diagnostics");
    println!("$ {}", shown(&command));
    let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output();
    let output = output.map_err(|error| format!("cargo: {error}"))?;
    if !output.status.success() {
        return Err(format!("`{}`: {}", shown(&command), output.status));
    }
    let messages = String::from_utf8_lossy(&output.stdout);
    let mut programs: Vec<_> = messages.lines().filter_map(parse).collect();
    // Those first that wait for deadlines and peers.
    let waits = |program: &Program| ["cli", "nic-integration"].contains(&program.package());
    programs.sort_by_key(|program| (!waits(program), program.name.clone()));
    if programs.is_empty() {
        return Err(format!("`{}` named no program of tests", shown(&command)));
    }
    Ok(programs)
}

/// Reads one of cargo's messages, if it is of a program of tests.
fn parse(message: &str) -> Option<Program> {
    let field = |name: &str| {
        let (_, rest) = message.split_once(&format!("\"{name}\":\""))?;
        rest.split('"').next()
    };
    if !message.contains("\"test\":true},\"features\"") {
        return None;
    }
    let path = PathBuf::from(field("executable")?);
    let name = path.file_stem()?.to_str()?.rsplit_once('-')?.0.to_owned();
    Some(Program {
        folder: PathBuf::from(field("manifest_path")?).parent()?.to_owned(),
        name,
        path,
    })
}

/// A word from a run.
enum Event {
    Begun(String),
    /// One of its tests has ended.
    Tested,
    /// One of its tests takes long, in the harness's words.
    Slow(String),
    Ended(Ended),
}

/// A run that has ended.
struct Ended {
    name: String,
    output: String,
    result: Result<(), String>,
}

/// Runs all of them, as many at once as `share` says, up to the first that fails, of which all output is
/// shown. Returns the output of each that ended.
///
/// # Errors
///
/// Returns one line for the first that failed, or if no test ran.
pub(crate) fn run_all(runs: Vec<Run>, share: Share) -> Result<Vec<String>, String> {
    if runs.is_empty() {
        return Err("no program of tests has that name".into());
    }
    let mut progress = Progress::new(runs.len());
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let waiting = Mutex::new(VecDeque::from(runs));
    let (sender, events) = mpsc::channel();
    let mut outputs = vec![];
    let mut result = Ok(());
    thread::scope(|scope| {
        for _ in 0..share as usize * cores {
            let (sender, waiting) = (sender.clone(), &waiting);
            scope.spawn(move || work(waiting, &sender));
        }
        drop(sender);
        while let Some(ended) = progress.next(&events) {
            if let Err(why) = ended.result {
                println!("{}{}", progress.clear(), ended.output);
                waiting.lock().unwrap_or_else(PoisonError::into_inner).clear();
                result = result.clone().and(Err(format!("{}: {why}", ended.name)));
            }
            outputs.push(ended.output);
        }
    });
    progress.print();
    match progress.tests {
        0 => result.and(Err("no test ran".into())),
        _ => result.map(|()| outputs),
    }
}

/// Returns the programs of these names.
///
/// # Errors
///
/// Returns one line if one of them is not there, as after a file of tests was renamed.
pub(crate) fn named<'a>(
    programs: &'a [Program],
    names: impl IntoIterator<Item = &'a str>,
) -> Result<Vec<&'a Program>, String> {
    let find = |name: &str| programs.iter().find(|program| program.name == name);
    let absent = |name: &str| format!("there is no program of tests {name:?}");
    names.into_iter().map(|name| find(name).ok_or_else(|| absent(name))).collect()
}

/// Runs what waits, one after another.
fn work(waiting: &Mutex<VecDeque<Run>>, events: &Sender<Event>) {
    let next = || waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    while let Some(Run { name, command }) = next() {
        let mut output = String::new();
        // The other end is gone only where it panicked.
        let _ = events.send(Event::Begun(name.clone()));
        let result = follow(command, &mut output, events);
        let _ = events.send(Event::Ended(Ended { name, output, result }));
    }
}

fn follow(mut command: Command, output: &mut String, events: &Sender<Event>) -> Result<(), String> {
    let wrong = |error: io::Error| error.to_string();
    let (pipe, writer) = io::pipe().map_err(wrong)?;
    command.stdin(Stdio::null()).stdout(writer.try_clone().map_err(wrong)?).stderr(writer);
    let mut child = command.spawn().map_err(wrong)?;
    // It holds the pipe's other end, which would never close.
    drop(command);
    for line in BufReader::new(pipe).split(b'\n') {
        let line = String::from_utf8_lossy(&line.map_err(wrong)?).into_owned();
        if line.starts_with("test ") && line.contains(" ... ") {
            let _ = events.send(Event::Tested);
        } else if line.contains(" has been running for over ") {
            let _ = events.send(Event::Slow(line.clone()));
        }
        *output += &(line + "\n");
    }
    let status = child.wait().map_err(wrong)?;
    if status.success() { Ok(()) } else { Err(status.to_string()) }
}

/// How far the programs are, on one line: rewritten on a terminal, now and then a new one in a log.
struct Progress {
    all: usize,
    ended: usize,
    tests: usize,
    running: BTreeSet<String>,
    start: Instant,
    printed: Instant,
    is_terminal: bool,
}

impl Progress {
    fn new(all: usize) -> Self {
        let (start, is_terminal) = (Instant::now(), io::stdout().is_terminal());
        let running = BTreeSet::new();
        Self { all, ended: 0, tests: 0, running, start, printed: start, is_terminal }
    }

    /// Waits for the next program that ends, and prints how far all are meanwhile. None when all have ended.
    fn next(&mut self, events: &Receiver<Event>) -> Option<Ended> {
        loop {
            let interval = INTERVALS[usize::from(!self.is_terminal)];
            match events.recv_timeout(interval.saturating_sub(self.printed.elapsed())) {
                Ok(Event::Begun(name)) => _ = self.running.insert(name),
                Ok(Event::Tested) => self.tests += 1,
                Ok(Event::Slow(line)) => println!("{}{line}", self.clear()),
                Ok(Event::Ended(ended)) => {
                    self.ended += 1;
                    self.running.remove(&ended.name);
                    return Some(ended);
                }
                Err(RecvTimeoutError::Timeout) => self.print(),
                Err(RecvTimeoutError::Disconnected) => return None,
            }
        }
    }

    fn print(&mut self) {
        self.printed = Instant::now();
        let line = self.line(self.start.elapsed());
        if self.is_terminal {
            let end = if self.running.is_empty() { "\n" } else { "" };
            print!("{}{line:.100}{end}", self.clear());
            // A terminal that is gone needs no progress.
            let _ = io::stdout().flush();
        } else {
            println!("{line}");
        }
    }

    /// Returns the codes that clear the line of a terminal.
    fn clear(&self) -> &'static str {
        if self.is_terminal { "\r\x1b[2K" } else { "" }
    }

    fn line(&self, elapsed: Duration) -> String {
        let Self { all, ended, tests, running, .. } = self;
        let mut line = format!("{ended} of {all} programs, {tests} tests, {} s", elapsed.as_secs());
        if !running.is_empty() {
            let names: Vec<_> = running.iter().map(String::as_str).collect();
            line += &format!(": {}", names.join(", "));
        }
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(command: Command) -> Run {
        Run { name: shown(&command), command }
    }

    #[test]
    fn programs_are_found_in_what_cargo_says() {
        let message = r#"{"reason":"compiler-artifact","package_id":"path+file:///a/he#ciphergram-he@0.1.0",
            "manifest_path":"/a/he/Cargo.toml","target":{"kind":["test"],"name":"sums","test":true},
            "profile":{"opt_level":"3","test":true},"features":[],"executable":"/a/target/sums-0f","fresh":true}"#;
        let found = parse(message).unwrap();
        assert_eq!((found.package(), &*found.name), ("he", "sums"));
        let run = found.run("--nocapture");
        assert_eq!((&*run.name, &*shown(&run.command)), ("he sums", "sums-0f --nocapture"));
        assert_eq!(parse(&message.replace("true},\"features", "false},\"features")), None);
        assert_eq!(parse(r#"{"reason":"build-finished","success":true}"#), None);
    }

    #[test]
    fn outputs_are_returned_and_a_failure_is_named() {
        let mut tested = program("echo");
        tested.args(["test", "a", "...", "ok"]);
        let outputs = run_all(vec![of(cargo("--version")), of(tested)], Share::Waiting).unwrap();
        assert!(outputs.len() == 2 && outputs.iter().any(|output| output.starts_with("cargo ")));
        let none = run_all(vec![of(cargo("--version"))], Share::Waiting).unwrap_err();
        assert_eq!(none, "no test ran");
        let failed = run_all(vec![of(cargo("no-such-command"))], Share::Waiting).unwrap_err();
        assert!(failed.starts_with("cargo no-such-command: exit "), "{failed}");
        assert!(run_all(vec![], Share::Waiting).is_err(), "no test is no pass");
        let missing =
            run_all(vec![of(program("ciphergram-no-such-program"))], Share::Computing).unwrap_err();
        assert!(missing.starts_with("ciphergram-no-such-program: "), "{missing}");
    }

    #[test]
    fn progress_is_one_line() {
        let mut progress = Progress::new(9);
        (progress.ended, progress.tests) = (4, 31);
        let line = |progress: &Progress| progress.line(Duration::from_secs(7));
        assert_eq!(line(&progress), "4 of 9 programs, 31 tests, 7 s");
        progress.running = ["he sums", "cli rounds"].map(str::to_owned).into();
        assert_eq!(line(&progress), "4 of 9 programs, 31 tests, 7 s: cli rounds, he sums");
    }
}
