//! Reports and warnings of commands: lines for people, or JSON.

use serde_json::Value;
use tracing_subscriber::fmt::{
    format::Writer,
    time::{FormatTime as _, SystemTime},
};

use crate::failure::Failure;

/// Prints a warning on standard error, one line.
pub(crate) fn warn(text: &str) {
    eprintln!("warning: {text}");
}

/// Prints a result: `lines` for people, or the JSON object.
pub(crate) fn report(json: bool, value: &Value, lines: &[String]) -> Result<(), Failure> {
    if json {
        println!("{}", serde_json::to_string_pretty(value)?);
    } else {
        lines.iter().for_each(|line| println!("{line}"));
    }
    Ok(())
}

/// Prints an event as it happens: a line for people, or a JSON object on one line, with its `time`.
pub(crate) fn say(json: bool, value: &Value, line: impl FnOnce() -> String) {
    if !json {
        return println!("{}", line());
    }
    let mut value = value.clone();
    value["time"] = time_now().into();
    println!("{value}");
}

/// Returns the time as RFC 3339 has it, in UTC: as in lines of the log.
pub(crate) fn time_now() -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = SystemTime.format_time(&mut Writer::new(&mut text));
    text
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

/// Describes the values of each tensor that were clipped, for JSON and for people.
pub(crate) fn clipped<'a>(
    names: impl Iterator<Item = &'a str>,
    counts: &[usize],
) -> (Value, Vec<String>) {
    let found: Vec<_> = names.zip(counts).filter(|(_, count)| **count > 0).collect();
    let json = found.iter().map(|(name, count)| (name.to_string(), Value::from(**count))).collect();
    let line = |(name, count): &(&str, &usize)| format!("clipped {count} values of {name:?}");
    (Value::Object(json), found.iter().map(line).collect())
}
