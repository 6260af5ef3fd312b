//! What commands say: lines for people, or JSON.

use serde_json::Value;

use crate::failure::Failure;

/// A warning on standard error, one line.
pub(crate) fn warn(text: &str) {
    eprintln!("warning: {text}");
}

/// A result: `lines` for people, or the JSON object.
pub(crate) fn report(json: bool, value: &Value, lines: &[String]) -> Result<(), Failure> {
    if json {
        println!("{}", serde_json::to_string_pretty(value)?);
    } else {
        lines.iter().for_each(|line| println!("{line}"));
    }
    Ok(())
}

/// What happens meanwhile: a line for people, or a JSON object on one.
pub(crate) fn say(json: bool, value: &Value, line: impl FnOnce() -> String) {
    if json { println!("{value}") } else { println!("{}", line()) }
}

/// Warns if the sum is of so few that it comes close to telling a single client's update.
pub(crate) fn warn_if_few(contributors: usize) {
    if contributors < usize::from(ciphergram_nic::federation::FEW) {
        let plural = if contributors == 1 {
            "contributor tells its"
        } else {
            "contributors comes close to telling each"
        };
        warn(&format!("a sum of {contributors} {plural} update to whoever decrypts it"));
    }
}

/// Bytes a value, to two places; none for no values.
pub(crate) fn per_value(bytes: usize, values: usize) -> Option<f64> {
    (values > 0).then(|| bytes as f64 / values as f64)
}

/// The same as words.
pub(crate) fn per_value_words(bytes: usize, values: usize) -> String {
    match per_value(bytes, values) {
        Some(each) => format!("{bytes} bytes of ciphertext, {each:.3} a value"),
        None => format!("{bytes} bytes of ciphertext for no values"),
    }
}

/// How many values of which tensors were clipped, for JSON and for people.
pub(crate) fn clipped<'a>(
    names: impl Iterator<Item = &'a str>,
    counts: &[usize],
) -> (Value, Vec<String>) {
    let found: Vec<_> = names.zip(counts).filter(|(_, count)| **count > 0).collect();
    let json = found.iter().map(|(name, count)| (name.to_string(), Value::from(**count))).collect();
    let line = |(name, count): &(&str, &usize)| format!("clipped {count} values of {name:?}");
    (Value::Object(json), found.iter().map(line).collect())
}
