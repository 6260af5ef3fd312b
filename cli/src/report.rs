//! Reports and warnings of commands: lines for people, or JSON.

use std::{
    io::{self, ErrorKind, Write as _},
    path::Path,
    sync::{
        OnceLock,
        atomic::{AtomicBool, Ordering},
    },
};

use ciphergram_he::Update;
use serde_json::{Value, json};
use tracing_subscriber::fmt::{
    format::Writer,
    time::{FormatTime as _, SystemTime},
};

use crate::{
    failure::Failure,
    progress::{above_line, complain},
    signals,
};

/// Whether standard output carries the content of a file, and reports go to standard error.
static TO_STANDARD_ERROR: AtomicBool = AtomicBool::new(false);

/// The first failure to print an event, which [`check_said`] returns.
static UNSAID: OnceLock<Failure> = OnceLock::new();

/// Prints a warning on standard error, one line.
pub(crate) fn warn(text: &str) {
    complain(&format!("warning: {text}"));
}

/// Sends reports to standard error from here on: standard output carries the content of a file.
pub(crate) fn to_standard_error() {
    TO_STANDARD_ERROR.store(true, Ordering::Relaxed);
}

fn try_print(text: &str) -> io::Result<()> {
    above_line(|| {
        if TO_STANDARD_ERROR.load(Ordering::Relaxed) {
            return writeln!(io::stderr(), "{text}");
        }
        let mut out = io::stdout().lock();
        writeln!(out, "{text}")?;
        out.flush()
    })
}

fn unprinted(error: &io::Error) -> Failure {
    Failure::Work(format!("standard output: {error}"))
}

/// Prints lines of a report. If nobody reads them any more the process ends.
///
/// # Errors
/// They cannot be written.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    match try_print(text) {
        Err(e) if e.kind() == ErrorKind::BrokenPipe => signals::end_of_broken_pipe(),
        printed => printed.map_err(|e| unprinted(&e)),
    }
}

/// Prints a result: `lines` for people, or the JSON object.
///
/// # Errors
/// It cannot be written.
pub(crate) fn report(json: bool, value: &Value, lines: &[String]) -> Result<(), Failure> {
    print(&if json { serde_json::to_string_pretty(value)? } else { lines.join("\n") })
}

/// Prints an event as it happens: a line for people, or a JSON object on one line, with its `time`. Work for others
/// goes on if that fails: [`check_said`] tells in the end. That nobody reads events any more is no failure.
pub(crate) fn say(json: bool, value: &Value, line: impl FnOnce() -> String) {
    let text = if json { timed(value).to_string() } else { line() };
    match try_print(&text) {
        Err(e) if e.kind() != ErrorKind::BrokenPipe => {
            let _ = UNSAID.set(unprinted(&e));
        }
        _ => {}
    }
}

/// Returns an event with its time.
fn timed(event: &Value) -> Value {
    let mut event = event.clone();
    event["time"] = time_now().into();
    event
}

/// Returns the time as RFC 3339 has it, in UTC: as in lines of the log.
pub(crate) fn time_now() -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = SystemTime.format_time(&mut Writer::new(&mut text));
    text
}

/// Checks that all events were printed.
///
/// # Errors
/// The first failure.
pub(crate) fn check_said() -> Result<(), Failure> {
    UNSAID.get().map_or(Ok(()), |failure| Err(failure.clone()))
}

/// Returns a path as reports show it, which need not be UTF-8.
pub(crate) fn shown(path: &Path) -> String {
    path.display().to_string()
}

/// Warns of a sum of so few contributors that it comes close to a single client's update.
pub(crate) fn warn_if_few(contributors: usize) {
    if contributors < usize::from(ciphergram_nic::federation::FEW) {
        let shown = if contributors == 1 {
            "contributor shows its"
        } else {
            "contributors comes close to showing each"
        };
        warn(&format!("a sum of {contributors} {shown} update to those who decrypt it"));
    }
}

/// Returns a number of things, whose noun takes an s for any number but one: `1 tensor`, `2 tensors`.
pub(crate) fn counted(count: impl TryInto<u64>, noun: &str) -> String {
    let count = count.try_into().unwrap_or(u64::MAX);
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// Returns the bytes a value; none for no values.
pub(crate) fn per_value(bytes: usize, values: usize) -> Option<f64> {
    (values > 0).then(|| bytes as f64 / values as f64)
}

/// Describes a ciphertext's bytes, in all and a value.
pub(crate) fn per_value_words(bytes: usize, values: usize) -> String {
    match per_value(bytes, values) {
        Some(each) => format!("{bytes} bytes of ciphertext, {each:.3} a value"),
        None => format!("{bytes} bytes of ciphertext for no values"),
    }
}

/// Names shown of many.
const NAMES_SHOWN: usize = 3;

/// Describes the tensors that are kept out of a sum, for JSON and for people, if there are any.
pub(crate) fn kept(update: &Update) -> (Value, Option<String>) {
    let names: Vec<_> = update.kept().iter().map(|tensor| tensor.spec.name.as_str()).collect();
    let words = || {
        let shown = names.iter().take(NAMES_SHOWN).map(|name| format!("{name:?}"));
        let more = names.get(NAMES_SHOWN).map(|_| "…".into());
        let shown: Vec<_> = shown.chain(more).collect();
        let tensors = counted(names.len(), "integer tensor");
        format!("kept {tensors} of the client's own: {}", shown.join(", "))
    };
    (json!(names), (!names.is_empty()).then(words))
}

/// Describes the values of each tensor that were clipped, for JSON and for people.
pub(crate) fn clipped<'a>(
    names: impl Iterator<Item = &'a str>,
    counts: &[usize],
) -> (Value, Vec<String>) {
    let found: Vec<_> = names.zip(counts).filter(|(_, count)| **count > 0).collect();
    let json = found.iter().map(|(name, count)| (name.to_string(), Value::from(**count))).collect();
    let line = |(name, count): &(&str, &usize)| {
        format!("clipped {} of {name:?}", counted(**count, "value"))
    };
    (Value::Object(json), found.iter().map(line).collect())
}
